//! Options about devices that one process at a time can use, and `rlaunch clean`.

use super::errors::CliError;
use super::nearest::nearest;
use super::scan::{self, Given};
use super::table::{CLEAN, Id, Takes, options};
use super::values::Lookup;
use super::{help, place, reach, values};
use rlaunch_base::capped::Capped;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::tpu::chips;
use rlaunch_protocol::env::named_chips;
use rlaunch_protocol::guard::devices::{CHIPS, CleanPolicy, DeviceKind, DevicePlan, LIBTPU_LOCK, LOCK_FILES};
use rlaunch_protocol::spec::AppSpec;

options! {
    Devices, "TPU chips (docs/guides/tpu.md)", "tpu";
    Devices ["devices"] One("KIND"): "hosts have TPU chips: auto, tpu or none",
        "auto: if the PCI bus shows one. No rank starts on a",
        "host where another process holds a chip.";
    Clean ["clean-devices"] One("WHICH"): "end which holders of chips: off, stale, own or all",
        "stale: what a dead job of rlaunch has left (default).",
        "own: all of yours, but services and containers.",
        "all: of other users too, for root.";
    LockFiles ["lock-files"] One("LIST"): "lock files to be removed if no process locks them",
        "Default: /tmp/libtpu_lockfile. Paths with commas",
        "between them, or none.";
}

const KINDS: [(&str, DeviceKind); 3] =
    [("auto", DeviceKind::Auto), ("tpu", DeviceKind::Tpu), ("none", DeviceKind::None)];
const POLICIES: [(&str, CleanPolicy); 4] =
    [("off", CleanPolicy::Off), ("stale", CleanPolicy::Stale), ("own", CleanPolicy::Own), ("all", CleanPolicy::All)];

#[derive(Debug, Default)]
pub(super) struct Args {
    kind: Option<DeviceKind>,
    clean: Option<CleanPolicy>,
    lock_files: Option<Vec<OsBytes>>,
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: &Given) -> Result<(), CliError> {
        let (option, value) = (&given.spelled, &given.value);
        match opt {
            Opt::Devices => self.kind = Some(values::choice(option, value, &KINDS)?),
            Opt::Clean => self.clean = Some(policy(option, value)?),
            Opt::LockFiles => self.lock_files = Some(lock_files(option, value)?),
        }
        Ok(())
    }

    /// The preparation of devices by a job.
    pub(super) fn plan(self) -> DevicePlan {
        let paths = self.lock_files.unwrap_or_else(|| vec![OsBytes::from(LIBTPU_LOCK)]);
        DevicePlan {
            kind: self.kind.unwrap_or(DeviceKind::Auto),
            clean: self.clean.unwrap_or_default(),
            lock_files: Capped::chunks(paths).pop().unwrap_or_default(),
            ..DevicePlan::default()
        }
    }
}

/// The chips that all programs name; empty: all chips of a host.
pub(super) fn chips(apps: &[AppSpec]) -> Capped<u32, CHIPS> {
    let named: Vec<Vec<u32>> = apps.iter().map(|app| named_chips(&app.base.env, &app.base.pinned)).collect();
    let all = if named.iter().any(Vec::is_empty) { Vec::new() } else { named.concat() };
    // A list that is too long is no list of chips.
    <[_; 1]>::try_from(Capped::chunks(all)).map_or_else(|_| Capped::default(), |[chips]| chips)
}

/// The strongest policy is never suggested for a word that is none.
fn policy(option: &OsBytes, value: &OsBytes) -> Result<CleanPolicy, CliError> {
    values::choice(option, value, &POLICIES).map_err(|error| match error {
        CliError::Value { option, takes, got, .. } => {
            let meant = nearest(&got, ["off", "stale", "own"].into_iter()).unwrap_or("stale");
            let hint = Some(values::spell(&option, meant).into());
            CliError::Value { option, takes, got, hint }
        }
        other => other,
    })
}

/// Absolute paths, at most [`LOCK_FILES`]; `none`: no path.
fn lock_files(option: &OsBytes, value: &OsBytes) -> Result<Vec<OsBytes>, CliError> {
    if value.eq_ignore_ascii_case(b"none") {
        return Ok(Vec::new());
    }
    let paths: Vec<OsBytes> = value.split(|b| *b == b',').map(OsBytes::from).collect();
    if paths.len() <= LOCK_FILES && paths.iter().all(|path| path.starts_with(b"/")) {
        return Ok(paths);
    }
    Err(CliError::Value {
        option: option.clone(),
        takes: format!("at most {LOCK_FILES} absolute paths, with commas between them, or none").into(),
        got: value.clone(),
        hint: Some(values::spell(option, LIBTPU_LOCK).into()),
    })
}

pub(super) const USAGE: &str = "\
Usage: rlaunch clean [-H LIST] [OPTIONS]

Frees the TPU chips of hosts, as a job does before its ranks are started. Ends
processes that hold a chip, if --clean-devices allows that (default: stale).
Removes the lock file of libtpu. With --dry-run nothing is ended or removed.
The exit code is 0 if no process holds a chip at the end, else 125.

";

/// The help of its `--dry-run`.
pub(super) const DRY_RUN: &str = "show what would be ended or removed";

/// The variable that stands for `--devices`.
const VARIABLE: &str = "RLAUNCH_DEVICES";

/// The command of each host whose chips are free. Other devices have files below /dev/vfio too: the PCI bus shows the chips.
fn free() -> String {
    let ids = (0..=u16::MAX).filter(|device| chips::generation(*device).is_some());
    let known: Vec<String> = ids.map(|device| format!("{:#06x}{device:#06x}", chips::VENDOR)).collect();
    format!(
        "for d in /sys/bus/pci/devices/*; do read v <\"$d/vendor\" && read i <\"$d/device\" && \
         case $v$i in {}) exec echo no process holds a TPU chip;; esac; done 2>/dev/null; \
         echo there is no TPU chip: the PCI bus shows none",
        known.join("|")
    )
}

/// The options of `rlaunch clean`: some of a job's.
pub(super) const CLEAN_OPTIONS: &[Id] = &[
    Id::Place(place::Opt::Hosts),
    Id::Place(place::Opt::Hostfile),
    Id::Place(place::Opt::DryRun),
    Id::Devices(Opt::Devices),
    Id::Devices(Opt::Clean),
    Id::Devices(Opt::LockFiles),
    Id::Reach(reach::Opt::Connect),
    Id::Reach(reach::Opt::Prompt),
    Id::Reach(reach::Opt::Fast),
    Id::Reach(reach::Opt::AgentPath),
    Id::Help(help::Opt::Help),
];

/// The request of `rlaunch clean`.
pub(super) enum Clean {
    /// Its help.
    Help(String),
    /// A job with one short process on each host. `is_trial`: nothing is ended or removed.
    Job { words: Vec<OsBytes>, is_trial: bool },
}

/// Reads the words after `clean`. The words of the job that they stand for: the devices of each host are freed before its process starts.
pub(super) fn clean(words: Vec<OsBytes>, env: Lookup<'_>) -> Result<Clean, CliError> {
    let known = scan::mixed(words.into_iter(), &CLEAN)?;
    if known.given.iter().any(|given| matches!(given.row.id, Id::Help(_))) {
        return Ok(Clean::Help(help::command_named("clean")));
    }
    if let Some(word) = known.argv.first() {
        return Err(CliError::Value {
            option: "rlaunch clean".into(),
            takes: "options only".into(),
            got: word.clone(),
            hint: Some(format!("rlaunch clean -H {word}").into()),
        });
    }
    let is_trial = known.given.iter().any(|given| given.row.id == Id::Place(place::Opt::DryRun));
    let chosen = known.given.iter().rfind(|given| given.row.id == Id::Devices(Opt::Devices));
    let is_chosen = chosen.is_some();
    let chosen = chosen.map(|given| (given.spelled.clone(), given.value.clone()));
    let chosen = chosen.or_else(|| Some((VARIABLE.into(), values::variable(env, VARIABLE)?)));
    let kind = chosen.map(|(option, value)| clean_kind(&option, &value)).transpose()?.unwrap_or("tpu");
    let mut job: Vec<OsBytes> = Vec::new();
    for given in known.given.into_iter().filter(|given| given.row.id != Id::Place(place::Opt::DryRun)) {
        job.push(OsBytes::from(format!("--{}", given.row.shown())));
        job.extend(Some(given.value).filter(|_| !matches!(given.row.takes, Takes::Nothing)));
    }
    if !is_chosen {
        job.push(OsBytes::from(format!("--devices={kind}")));
    }
    // The job has no program that waits for other hosts of a slice.
    job.extend(
        ["--allow-partial", "--ppn", "1", "--stdin", "none", "--prefix", "%h: ", "--", "sh", "-c"].map(OsBytes::from),
    );
    job.push(OsBytes::from(free()));
    Ok(Clean::Job { words: job, is_trial })
}

/// The kind of hosts whose chips are freed. With `none` there would be nothing to do.
fn clean_kind(option: &OsBytes, value: &OsBytes) -> Result<&'static str, CliError> {
    values::choice(option, value, &[("auto", "auto"), ("tpu", "tpu")])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(line: &str) -> Result<(String, bool), String> {
        match clean(line.split_whitespace().map(OsBytes::from).collect(), &|_| None).map_err(|error| error.render())? {
            Clean::Help(text) => Ok((text, false)),
            Clean::Job { words, is_trial } => {
                let words: Vec<String> = words.iter().map(ToString::to_string).collect();
                Ok((words.join(" "), is_trial))
            }
        }
    }

    #[test]
    fn clean_is_a_job_with_one_process_on_each_host() {
        let end = format!("--allow-partial --ppn 1 --stdin none --prefix %h:  -- sh -c {}", free());
        for (line, words, is_trial) in [
            ("", "--devices=tpu", false),
            ("-H n[1-2] --dry-run", "--hosts n[1-2] --devices=tpu", true),
            ("-w n1 --clean-devices=own --devices auto", "--hosts n1 --clean-devices own --devices auto", false),
        ] {
            assert_eq!(cleaned(line), Ok((format!("{words} {end}"), is_trial)), "{line}");
        }
        let help = cleaned("-h").unwrap().0;
        assert!(help.starts_with(USAGE) && help.contains("--dry-run            show what would be ended"), "{help}");
        assert!(cleaned("n1").unwrap_err().contains("rlaunch clean -H n1"));
        assert!(cleaned("--timeout 3").unwrap_err().contains("unknown option"));
    }

    #[test]
    fn clean_takes_only_kinds_of_devices_that_can_be_cleaned() {
        let said = cleaned("--devices none").unwrap_err();
        assert!(said.contains("takes auto or tpu, got 'none'"), "{said}");
        let with = |value: &'static str| clean(Vec::new(), &move |_| Some(value.into()));
        assert!(with("foo").err().unwrap().render().contains("RLAUNCH_DEVICES"));
        let Ok(Clean::Job { words, .. }) = with("auto") else { panic!("no job") };
        assert_eq!(words[0], OsBytes::from("--devices=auto"));
    }

    #[test]
    fn strongest_policy_is_never_suggested() {
        for (value, meant) in [("al", "stale"), ("alll", "stale"), ("ow", "own"), ("stal", "stale")] {
            let said = cleaned(&format!("--clean-devices {value}"));
            let said = said.and_then(|(words, _)| {
                let words = words.split(' ').map(Into::into).collect();
                super::super::parse(words, &|_| None, super::super::NO_FILES)
                    .map(|_| String::new())
                    .map_err(|error| error.render())
            });
            let said = said.unwrap_err();
            assert!(said.ends_with(&format!("  try     --clean-devices {meant}\n")), "{value}: {said}");
        }
        assert!(cleaned("-h").unwrap().0.contains("(default: stale)"));
    }

    #[test]
    fn command_after_options_is_refused_unless_a_program_has_its_name() {
        let env = |name: &str| (name == "PATH").then(|| "/nowhere".into());
        let parse =
            |line: &str| super::super::parse(line.split(' ').map(Into::into).collect(), &env, super::super::NO_FILES);
        let said = parse("--clean-devices all clean --dry-run").err().unwrap().render();
        assert!(said.contains("'clean' is a command of rlaunch") && said.contains("rlaunch clean ..."), "{said}");
        assert!(parse("run --clean-devices all clean").is_ok() && parse("--clean-devices all -- clean").is_ok());
    }

    #[test]
    fn lock_files_are_absolute_paths() {
        let option = OsBytes::from("--lock-files");
        assert_eq!(lock_files(&option, &"none".into()).unwrap(), []);
        assert_eq!(lock_files(&option, &"/a,/b".into()).unwrap(), [OsBytes::from("/a"), "/b".into()]);
        let said = lock_files(&option, &"a".into()).unwrap_err().render();
        assert!(said.contains("--lock-files /tmp/libtpu_lockfile"), "{said}");
    }
}
