//! Options about what goes in and comes out.

use super::errors::CliError;
use super::files;
use super::scan::Given;
use super::table::options;
use super::values::{self, Lookup};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::settings::StdinPlan;
use rlaunch_protocol::stream::label::Prefix;

options! {
    Output, "Input and output", "output";
    Label -b'l' ["label", "tag-output"] Nothing: "begin each line of output with its rank",
        "Lines of several ranks are whole without it, too.";
    Raw ["raw"] Nothing: "pass output on as it comes, lines of ranks may mix",
        "The default for one rank. Lines of several are whole.";
    Prefix ["prefix"] One("FMT"): "begin each line with FMT: %r is rank, %h host",
        "%l local rank, %p pid, %s out or err, %4r four wide.";
    Color ["color", "colour"] One("WHEN"): "colour labels and messages: auto, always, never",
        "auto: on terminals, unless NO_COLOR is set.";
    Output -b'o' ["output"] One("FILE"): "write the output of ranks to FILE, as srun does",
        "%t rank, %N host, %n index of the host, %j job, %3t",
        "three digits; %x, %A, %a, %u, %s, %J. With %t, %N",
        "or %n each host writes its own. none: nowhere.",
        "Standard error too, without -e.";
    Error -b'e' ["error"] One("FILE"): "write the standard error of ranks to FILE",
        "The messages of rlaunch stay where they are.";
    Stdin ["stdin"] One("0|all|none"): "ranks that read standard input: 0 (default)",
        "all: each rank gets all of it, and the slowest rank",
        "holds the others back. Nothing is read before a rank",
        "waits for it.";
    Events ["events"] One("FILE|fd:N"): "write what happens as NDJSON, one event per line";
    Verbose -b'v' ["verbose"] Nothing: "say more; -vv: diagnostics of rlaunch itself";
    Quiet -b'q' ["quiet"] Nothing: "say only what went wrong";
}

/// Text that has colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum When {
    /// On terminals that have colours.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// How much rlaunch says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Verbosity {
    /// `-q`: errors and the report of a failure.
    Quiet,
    /// Notes too.
    #[default]
    Normal,
    /// `-v`: and how the launch went.
    Verbose,
    /// `-vv`: and diagnostics.
    Debug,
}

/// The destination of `--events`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Events {
    /// A file, made or emptied.
    File(OsBytes),
    /// A descriptor that rlaunch was started with.
    Fd(u32),
}

/// Style of the output of ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Style {
    /// Whole lines if there are several ranks. One rank's bytes pass as they come.
    #[default]
    Whole,
    /// Bytes pass as they come.
    Raw,
    /// Whole lines, each with this label.
    Labelled(OsBytes),
}

impl Style {
    /// The label of each line. Empty: whole lines without a label. `None`: bytes pass as they come.
    pub(crate) fn label(self, ranks: usize) -> Option<OsBytes> {
        match self {
            Self::Whole => (ranks > 1).then(OsBytes::default),
            Self::Raw => None,
            Self::Labelled(format) => Some(format),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Args {
    style: Option<Style>,
    prefix: Option<OsBytes>,
    output: Option<files::Named>,
    error: Option<files::Named>,
    stdin: Option<StdinPlan>,
    pub(super) color: When,
    pub(super) events: Option<Events>,
    pub(super) verbosity: Verbosity,
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: Given) -> Result<(), CliError> {
        match opt {
            Opt::Label => self.style = Some(Style::Labelled(OsBytes::from(Prefix::DEFAULT))),
            Opt::Raw => self.style = Some(Style::Raw),
            // Open MPI's option of this name says where it is installed on the hosts.
            Opt::Prefix if given.value.starts_with(b"/") && !given.value.contains(&b'%') => {
                let hint = Some("leave it out: rlaunch needs no installation on the hosts".into());
                let takes = "the beginning of each line of output, like '[%r] '".into();
                return Err(CliError::Value { option: given.spelled, takes, got: given.value, hint });
            }
            Opt::Prefix => {
                let format = Prefix::parse(&given.value);
                format.map_err(|source| CliError::Prefix { option: given.spelled, source })?;
                self.prefix = Some(given.value);
            }
            Opt::Color => {
                let words = [("auto", When::Auto), ("always", When::Always), ("never", When::Never)];
                self.color = values::choice(&given.spelled, &given.value, &words)?;
            }
            Opt::Output => self.output = Some(files::named(given)?),
            Opt::Error => self.error = Some(files::named(given)?),
            Opt::Stdin => self.stdin = Some(stdin(&given.spelled, &given.value)?),
            Opt::Events => self.events = Some(events(&given.spelled, &given.value)?),
            Opt::Verbose => {
                self.verbosity = match self.verbosity {
                    Verbosity::Quiet | Verbosity::Normal => Verbosity::Verbose,
                    Verbosity::Verbose | Verbosity::Debug => Verbosity::Debug,
                }
            }
            Opt::Quiet => self.verbosity = Verbosity::Quiet,
        }
        Ok(())
    }

    /// Fills in values that no flag gave.
    pub(super) fn fill(&mut self, env: Lookup<'_>) -> Result<(), CliError> {
        let labelled = || Style::Labelled(OsBytes::from(Prefix::DEFAULT));
        for (name, style) in [("RLAUNCH_RAW", Style::Raw), ("RLAUNCH_LABEL", labelled())] {
            if self.style.is_none()
                && self.prefix.is_none()
                && let Some(value) = values::variable(env, name)
            {
                let words = [("0", false), ("1", true)];
                self.style = values::choice(&OsBytes::from(name), &value, &words)?.then_some(style);
            }
        }
        Ok(())
    }

    pub(super) fn style(&mut self) -> Style {
        match (self.style.take(), self.prefix.take()) {
            // No typed option is beside it, and it goes before variables.
            (Some(Style::Raw), _) => Style::Raw,
            (_, Some(prefix)) => Style::Labelled(prefix),
            (style, None) => style.unwrap_or_default(),
        }
    }

    /// Files of the streams of ranks.
    pub(super) fn files(&mut self) -> files::Both {
        let output = self.output.take();
        let error = self.error.take().or_else(|| output.clone());
        [output, error].map(|named| named.filter(|named| named.pattern.is_some()))
    }

    pub(super) fn stdin(&self) -> StdinPlan {
        self.stdin.unwrap_or(StdinPlan::Rank0)
    }
}

fn stdin(option: &OsBytes, value: &OsBytes) -> Result<StdinPlan, CliError> {
    if value.len() < 10 && !value.is_empty() && value.iter().all(u8::is_ascii_digit) && value.as_slice() != b"0" {
        return Err(CliError::Value {
            option: option.clone(),
            takes: "0, all or none (no single rank but rank 0)".into(),
            got: value.clone(),
            hint: Some(format!("{}   or   {}", values::spell(option, "0"), values::spell(option, "all")).into()),
        });
    }
    values::choice(option, value, &[("0", StdinPlan::Rank0), ("all", StdinPlan::All), ("none", StdinPlan::None)])
}

fn events(option: &OsBytes, value: &OsBytes) -> Result<Events, CliError> {
    let refuse = |hint: String| CliError::Value {
        option: option.clone(),
        takes: "FILE or fd:N".into(),
        got: value.clone(),
        hint: Some(hint.into()),
    };
    let Some(digits) = value.strip_prefix(b"fd:") else {
        return if value.is_empty() {
            Err(refuse(values::spell(option, "events.ndjson")))
        } else {
            Ok(Events::File(value.clone()))
        };
    };
    let number = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match number.and_then(|text| text.parse::<u32>().ok()).filter(|fd| *fd > 0 && i32::try_from(*fd).is_ok()) {
        Some(fd) => Ok(Events::Fd(fd)),
        None => {
            let (fd, file) = (values::spell(option, "fd:3"), values::spell(option, "./fd:..."));
            Err(refuse(format!("{fd}   or, for a file of that name, {file}")))
        }
    }
}
