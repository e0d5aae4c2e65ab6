//! An error in a command line: the option, the value, the reason, and a way out.

use super::AllocationUseError;
use super::nearest::nearest;
use super::planned_options;
use super::site::Silent;
use super::table::{Row, Table};
use super::values;
use rlaunch_base::error::Hint;
use rlaunch_base::exit;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::shell::quoted;
use rlaunch_plan::bootstrap::TargetError;
use rlaunch_plan::hostlist::HostlistError;
use rlaunch_plan::place::PlaceError;
use rlaunch_plan::tpu::SliceError;
use rlaunch_protocol::env::ExportError;
use rlaunch_protocol::stream::label::PrefixError;
use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};

/// A command line that rlaunch does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// `rlaunch` and nothing else: not an error to explain, but the moment for a short help.
    #[error("no program given")]
    Nothing,
    /// Options, but no program.
    #[error("no program given")]
    NoProgram,
    /// Options, and the last word, which may have been meant as the program, is the value of one.
    #[error("no program given: '{}' is the value of {option}", Shown(word))]
    Swallowed { option: OsBytes, what: &'static str, word: OsBytes },
    /// A value that the option does not take; also for a variable that stands for it.
    #[error("{} takes {takes}, got '{}'", Named(option), Shown(got))]
    Value { option: OsBytes, takes: Cow<'static, str>, got: OsBytes, hint: Option<Cow<'static, str>> },
    /// An option at the end of the command line that needs a value.
    #[error("{} needs a value: {what}", Named(option))]
    Missing { option: OsBytes, what: &'static str, help: &'static str },
    /// `--label=yes`.
    #[error("{} takes no value, got '{}'", Named(option), Shown(got))]
    Unwanted { option: OsBytes, got: OsBytes },
    /// No such option.
    #[error("unknown option '{}'", Shown(option))]
    Unknown { option: OsBytes, nearest: Option<String>, help: &'static str },
    /// Known elsewhere or planned.
    #[error("{what} is {}", if hint.is_some() { "no option of rlaunch" } else { "not supported by this version" })]
    NotYet { what: String, hint: Option<Cow<'static, str>> },
    /// Several of the errors of a command line.
    #[error("the command line has several errors")]
    Several(Vec<CliError>),
    /// A command of a later version.
    #[error("the command '{name}' is not supported by this version")]
    Command { name: OsBytes },
    /// `rlaunch --devices tpu clean`
    #[error("'{name}' is a command of rlaunch, and commands stand before options; no program in PATH has this name")]
    LateCommand { name: &'static str },
    /// `rlaunch rapidfire`
    #[error("'{name}' is a command of FireWorks, whose program is called rlaunch too")]
    FireWorks { name: OsBytes },
    /// Open MPI and Slurm disagree.
    #[error("-N means ranks per node in Open MPI but nodes in Slurm")]
    AmbiguousN { value: OsBytes },
    /// `a :`
    #[error("no program given after ':'")]
    NoNextProgram,
    /// `a : --timeout 5 b`
    #[error("{} is for the whole job, not for one of its programs", Named(option))]
    WholeJob { option: OsBytes },
    /// `--json` for a job that runs.
    #[error("--json belongs to rlaunch map or --dry-run")]
    Json,
    /// `rlaunch doctor node1`
    #[error("'{}' is no option of rlaunch doctor", Shown(word))]
    NoHosts { word: OsBytes },
    /// A list of hosts, or a hostfile.
    #[error("{source}")]
    Hostlist { source: Box<HostlistError> },
    /// Ranks that do not fit.
    #[error("{}", said_so(source, variables))]
    Place { source: PlaceError, variables: Vec<(String, OsBytes)> },
    /// Hosts of the hostfile that form no TPU slices.
    #[error("{source}")]
    Chips { source: SliceError },
    /// A hostfile that cannot be read; `option` may be the variable that names it.
    #[error("cannot read the hostfile {path}{}: {why}", from_variable(option))]
    Hostfile { option: OsBytes, path: OsBytes, why: String, near: Option<OsBytes> },
    /// `-H FILE`
    #[error("{} takes names of hosts, but {} is a file here", Named(option), Shown(path))]
    IsFile { option: OsBytes, path: OsBytes },
    /// `-H` beside a hostfile chooses from it.
    #[error("{} names {host}, which is not in the hostfile {path}", Named(option))]
    NotInHostfile { option: OsBytes, host: String, path: OsBytes },
    /// The allocation of a scheduler.
    #[error(transparent)]
    Allocation(#[from] AllocationUseError),
    /// `--nproc-per-node gpu`
    #[error("{} gpu: {host} has no GPU", Named(option))]
    NoGpu { option: OsBytes, host: String },
    /// The same where /dev cannot be read.
    #[error("{} gpu: how many GPUs {host} has cannot be found out", Named(option))]
    UnknownGpus { option: OsBytes, host: String },
    /// `--nproc-per-node gpu` for other hosts, some of which report no resources. `others` has the names of all but the first.
    #[error("{}: {}{}{}", Named(option), first.text, nor(others), first.said())]
    Uncounted { option: OsBytes, first: Box<Silent>, others: Vec<String> },
    /// `--max-restarts 3 --on-failure continue`
    #[error("{} starts all ranks again when one fails, and --on-failure continue lets the others go on", Named(option))]
    RestartOrContinue { option: OsBytes },
    /// `-m --no-python`, or both of torchrun's variables.
    #[error("{} runs a module by Python, and {} runs no Python",
        if *by_variables { "PET_MODULE (environment)" } else { "-m" },
        if *by_variables { "PET_NO_PYTHON (environment)" } else { "--no-python" })]
    ModuleWithoutPython { by_variables: bool },
    /// `-o out.%t -t 3`
    #[error("{} names files for ranks, and so do --log-dir, -r and -t", Named(option))]
    TwoFiles { option: OsBytes },
    /// A policy, or what it is tried with.
    #[error("{at}: {what}")]
    Assign { at: String, what: String, hint: Option<Cow<'static, str>> },
    /// `--slices`
    #[error(transparent)]
    Slices(#[from] super::slices::SlicesError),
    /// `--wait` without `--pool`
    #[error("{} has no effect without {needs}", Named(option))]
    Alone { option: OsBytes, needs: String },
    /// `--pool train -H node1`
    #[error("{} and {} both name the hosts", Named(option), Named(with))]
    Beside { option: OsBytes, with: OsBytes },
    /// `pool exec --detach --json`
    #[error("{with} has no effect with --detach, which leaves the output in files and reads no input")]
    Detached { with: OsBytes },
    /// `-n 4 python3 -`
    #[error("'{}' reads its program from standard input, and only rank 0 gets standard input", Shown(program))]
    ProgramFromInput { program: OsBytes },
    /// `-x`.
    #[error("{} {source}", Named(option))]
    Export { option: OsBytes, source: ExportError },
    /// `-H`.
    #[error("{}: {source}", Named(option))]
    Host { option: OsBytes, source: Box<TargetError> },
    /// `--prefix`.
    #[error("{} {source}", Named(option))]
    Prefix { option: OsBytes, source: PrefixError },
}

impl CliError {
    pub(super) fn unknown(option: &OsBytes, table: &'static Table) -> Self {
        let typed: Vec<u8> = option.iter().skip_while(|b| **b == b'-').copied().collect();
        let typed: Vec<u8> = typed.split(|b| *b == b'=').next().unwrap_or_default().to_vec();
        let dashes: Vec<u8> = typed.iter().map(|b| if *b == b'_' { b'-' } else { b.to_ascii_lowercase() }).collect();
        let names = || table.rows().flat_map(|row| row.names.iter().copied()).filter(|name| name.len() > 1);
        let same = names().find(|name| name.as_bytes() == dashes).map(|name| format!("--{name}"));
        let meant = same
            .or_else(|| planned_options::meant(&dashes).filter(|_| table.is_jobs()).map(str::to_owned))
            .or_else(|| begun(&dashes, table))
            .or_else(|| nearest(&dashes, names()).map(|name| format!("--{name}")))
            .or_else(|| planned_options::nearly_meant(&dashes).filter(|_| table.is_jobs()).map(str::to_owned));
        Self::Unknown { option: option.clone(), nearest: meant, help: table.help }
    }

    /// These errors, of which there is at least one.
    pub(super) fn all(mut errors: Vec<Self>) -> Self {
        match errors.len() {
            1 => errors.remove(0),
            _ => Self::Several(errors),
        }
    }

    /// A letter or a word with its number, as `-np4`.
    pub(super) fn joined(word: &OsBytes, apart: String) -> Self {
        Self::Unknown { option: word.clone(), nearest: Some(apart), help: "" }
    }

    /// A dash as word processors make it of `-`.
    pub(super) fn no_dash(word: &OsBytes, rest: &str) -> Self {
        Self::Unknown {
            option: word.clone(),
            nearest: Some(format!("-{rest}   (the dash that was typed is another character)")),
            help: "",
        }
    }

    pub(super) fn missing(option: &OsBytes, what: &'static str, table: &Table) -> Self {
        Self::Missing { option: option.clone(), what, help: table.help }
    }

    pub(super) fn hostlist(source: HostlistError) -> Self {
        Self::Hostlist { source: Box::new(source) }
    }

    /// The exit code of rlaunch.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Uncounted { .. } => exit::LAUNCH,
            Self::Allocation(AllocationUseError::WithoutTerminal) => 0,
            _ => exit::USAGE,
        }
    }

    /// The whole message, for stderr.
    pub(crate) fn render(&self) -> String {
        match self {
            Self::Nothing => super::help::brief(),
            Self::Allocation(AllocationUseError::ManyTasks { is_first: false, .. }) => String::new(),
            Self::Several(all) => all.iter().map(Self::render).collect(),
            _ => render(self),
        }
    }
}

impl Hint for CliError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Nothing | Self::NoProgram => Some("rlaunch -n 4 PROGRAM [ARGS...]".into()),
            Self::Swallowed { option, what, word } => {
                Some(format!("rlaunch {option} {what} {}   if that is the program", typed(word)).into())
            }
            Self::Value { hint, .. } | Self::Assign { hint, .. } => hint.clone(),
            Self::Missing { help, .. } => Some((*help).into()),
            Self::Unwanted { option, .. } => Some(format!("{option}").into()),
            Self::Unknown { nearest: Some(nearest), .. } => Some(nearest.clone().into()),
            Self::Unknown { nearest: None, help, .. } => Some(format!("{help} lists all options").into()),
            Self::NotYet { hint, .. } => hint.clone(),
            Self::Several(_) => None,
            Self::Command { name } => Some(format!("./{name}   or   rlaunch run {name}, if it is your program").into()),
            Self::FireWorks { name } => Some(fireworks(name).into()),
            Self::AmbiguousN { value } => Some(ambiguous(value).into()),
            Self::NoNextProgram => Some("rlaunch run -- PROGRAM ARGS..., if ':' is an argument of yours".into()),
            Self::WholeJob { option } => Some(format!("{option} before the first program").into()),
            Self::ModuleWithoutPython { .. }
            | Self::RestartOrContinue { .. }
            | Self::TwoFiles { .. }
            | Self::Detached { .. }
            | Self::Beside { .. } => Some("one of the two".into()),
            Self::Alone { needs, .. } => Some(needs.clone().into()),
            Self::ProgramFromInput { .. } => {
                Some("--stdin all, which gives it to each rank\nPROGRAM FILE, with the program in a file".into())
            }
            Self::Json => Some("rlaunch map --json ...".into()),
            Self::NoHosts { word } => Some(format!("rlaunch doctor -H {}", typed(word)).into()),
            Self::Hostlist { source } => source.hint(),
            Self::Place { source, .. } => source.hint(),
            Self::Chips { source } => source.hint(),
            Self::LateCommand { name } => Some(format!("rlaunch {name} ...").into()),
            Self::Hostfile { option, near, .. } => Some(match near {
                Some(near) => values::spell(option, &quoted(near)).into(),
                None => "-H HOST,...   or a file with a host on each line, as: node01 slots=4".into(),
            }),
            Self::IsFile { path, .. } => {
                let host = OsBytes::new([path.as_slice(), b":1"].concat());
                Some(format!("--hostfile {}\n-H {}, if it is a host", typed(path), typed(&host)).into())
            }
            Self::NotInHostfile { .. } => Some("-H without --hostfile, or a line for it there".into()),
            Self::Allocation(source) => source.hint(),
            Self::NoGpu { option, .. } | Self::UnknownGpus { option, .. } => {
                Some(format!("{option} cpu   or   {option} N").into())
            }
            Self::Uncounted { option, first, .. } => {
                let other = if option.as_slice() == b"--map-by" { "slot or ppr:N:node" } else { "N" };
                let own = first.hint.iter().cloned().chain([format!("{option} {other}, which asks no host")]);
                Some(own.collect::<Vec<_>>().join("\n").into())
            }
            Self::Export { option, source: source @ ExportError::List(word) } if option.as_slice() == b"-x" => {
                let own = source.hint().unwrap_or_default();
                Some(super::excluded(word, false).map_or(own.clone(), |hosts| format!("{own}\n{hosts}").into()))
            }
            Self::Export { source, .. } => source.hint(),
            Self::Host { source, .. } => source.hint(),
            Self::Prefix { source, .. } => source.hint(),
            Self::Slices(source) => Some(source.hint().into()),
        }
    }
}

/// The options that begin with a word, if they are few.
fn begun(word: &[u8], table: &'static Table) -> Option<String> {
    const SHORTEST: usize = 4;
    const MOST: usize = 3;
    let named = |row: &'static Row| row.names.iter().find(|name| name.as_bytes().starts_with(word));
    let mut names: Vec<String> = table.rows().filter_map(named).map(|name| format!("--{name}")).collect();
    names.sort_by_key(String::len);
    (word.len() >= SHORTEST && (1..=MOST).contains(&names.len())).then(|| names.join("   or   "))
}

fn fireworks(name: &OsBytes) -> String {
    format!(
        "that rlaunch by its path: rlaunch version -v lists all\n./{name}   or   rlaunch run {name}, if it is your program"
    )
}

fn ambiguous(value: &OsBytes) -> String {
    let shown = format!("{}", Shown(value));
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let n = if digits { &shown } else { "N" };
    format!("--ppn {n}   or   --nnodes {n}\n-n {n} for {n} rank{} in all", if n == "1" { "" } else { "s" })
}

/// `error: …` and, aligned below it, what to try.
pub(crate) fn render(error: &(impl Display + Hint)) -> String {
    let mut text = format!("error: {error}\n");
    let mut key = "try";
    for line in error.hint().as_deref().unwrap_or_default().lines() {
        // Writing to a String cannot fail.
        writeln!(text, "  {key:<7} {line}").unwrap_or_default();
        key = "";
    }
    text
}

/// An option as it was typed, or the variable that was set in its place.
struct Named<'a>(&'a OsBytes);

impl Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, if is_variable(self.0) { " (environment)" } else { "" })
    }
}

/// Options and commands are small or begin with a dash.
pub(super) fn is_variable(option: &OsBytes) -> bool {
    option.first().is_some_and(u8::is_ascii_uppercase)
}

/// Longest word that is shown whole.
const LONGEST: usize = 80;

/// A word of the user in a message: cut where it is too long to be read.
struct Shown<'a>(&'a OsBytes);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(..LONGEST) {
            Some(start) if self.0.len() > LONGEST => write!(f, "{}...", OsBytes::from(start)),
            _ => self.0.fmt(f),
        }
    }
}

/// A word of the user in a command to be typed.
fn typed(word: &OsBytes) -> String {
    if word.len() > LONGEST { format!("{}", Shown(word)) } else { quoted(word) }
}

/// Options that decide where ranks run.
const PLACING: [&str; 7] = ["-n", "-H", "-f", "--ppn", "--nnodes", "--min-hosts", "--gpus-per-rank"];

/// Puts variables in place of the options of a message.
fn said_so(error: &PlaceError, variables: &[(String, OsBytes)]) -> String {
    let mut text = error.to_string();
    let mut others = Vec::new();
    for (option, name) in variables {
        let named = text.replacen(&format!("{option} "), &format!("{} ", Named(name)), 1);
        // An error may be caused by a value whose option it does not spell.
        if named == text && PLACING.contains(&option.as_str()) {
            others.push(name.to_string());
        }
        text = named;
    }
    if others.is_empty() { text } else { format!("{text} ({} in the environment)", others.join(", ")) }
}

/// The other hosts that report no resources.
fn nor(others: &[String]) -> String {
    const NAMED: usize = 4;
    let named = others.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match others.len() {
        0 => String::new(),
        1..=NAMED => format!(" (nor can be asked: {named})"),
        all => format!(" (nor can be asked: {named} and {} more)", all - NAMED),
    }
}

/// The advice for a path that comes from a variable.
fn from_variable(option: &OsBytes) -> String {
    if is_variable(option) { format!(" of {}", Named(option)) } else { String::new() }
}

/// A first word that only a later version understands.
pub(super) fn refuse_command(word: &OsBytes) -> Result<(), CliError> {
    match word.as_slice() {
        name if planned_options::is_fireworks(name) => Err(CliError::FireWorks { name: word.clone() }),
        name if planned_options::is_command(name) => Err(CliError::Command { name: word.clone() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_user_are_quoted_in_advice() {
        let file = |path: &str| CliError::IsFile { option: "-H".into(), path: path.into() }.hint().unwrap();
        assert_eq!(file("my hosts"), "--hostfile 'my hosts'\n-H 'my hosts:1', if it is a host");
        assert_eq!(file("hosts"), "--hostfile hosts\n-H hosts:1, if it is a host");
        let host = CliError::NoHosts { word: "node[1-2]".into() }.hint().unwrap();
        assert_eq!(host, "rlaunch doctor -H 'node[1-2]'");
    }
}
