//! torchrun's options that are not ours by another name: what Python runs, log files, and where ranks meet.

use super::errors::CliError;
use super::python::Said;
use super::scan::{Given, Words};
use super::site::Site;
use super::srun;
use super::table::{Row, options, same};
use super::values::{self, Lookup};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::JobId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::env::Export;
use rlaunch_protocol::logs::{self, Logs, MOST, Which};

options! {
    Torch, "As torchrun (docs/guides/from-torchrun.md)", "torchrun";
    Module -b'm' ["module"] Nothing: "PROGRAM is a module: python3 -u -m PROGRAM",
        "PYTHON_EXEC names another Python.";
    NoPython ["no-python"] Nothing: "PROGRAM is run as it is, whatever it is called",
        "Otherwise python3 -u runs a PROGRAM.py that is not",
        "executable, or any if torchrun's options are used.";
    LogDir ["log-dir"] One("DIR"): "with -t 3: a copy of each rank's output below DIR",
        "With -r 3: there only. On each host the files are in",
        "DIR/ID_HOST/attempt_0/LOCAL_RANK: stdout.log,",
        "stderr.log, error.json. Default: a new one in /tmp.";
    Redirects -b'r' ["redirects"] One("STREAMS"): "streams that only go to files: 3, or 0:1,1:2",
        "1 is stdout, 2 stderr, 3 both; of all local ranks,",
        "or LOCAL_RANK:STREAMS.";
    Tee -b't' ["tee"] One("STREAMS"): "streams that go to files too";
    Filter ["local-ranks-filter"] One("LIST"): "show the output of these local ranks only: 0,1",
        "Files have all of it.";
    MasterAddr ["master-addr"] One("ADDR"): "the same as -x MASTER_ADDR=ADDR, for all programs";
    MasterPort ["master-port"] One("PORT"): "the same as -x MASTER_PORT=PORT",
        "The TCPStore there is the program's then.";
    RunId ["rdzv-id"] One("ID"): "TORCHELASTIC_RUN_ID, and how log directories begin";
}

/// Options of torchrun alone: a user of one of them expects torchrun's behaviour.
const STYLE: &[&str] = &[
    "nproc-per-node",
    "standalone",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "node-rank",
    "master-addr",
    "master-port",
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "logs-specs",
    "signals-to-handle",
    "shutdown-timeout",
    "role",
    "module",
    "no-python",
    "run-path",
    "redirects",
    "tee",
    "local-ranks-filter",
];
const LETTERS: &[&[u8]] = &[b"-m", b"-r", b"-t"];

/// Whether torchrun's options are used.
pub(super) fn is_used(words: &Words) -> bool {
    let given = words.given.iter().map(|given| given.spelled.as_slice());
    given.chain(words.same.iter().map(OsBytes::as_slice)).any(is_style)
}

fn is_style(spelled: &[u8]) -> bool {
    let word = spelled.split(|b| *b == b' ').next().unwrap_or_default();
    let name: &[u8] = word.strip_prefix(b"--").or_else(|| word.strip_prefix(b"-")).unwrap_or_default();
    LETTERS.contains(&word) || STYLE.iter().any(|own| same(own, name))
}

/// PET_NODE_RANK stands for `--node-rank`, and only 0 is taken: any other rank means that rlaunch is started on each host. The variable
/// counts together with torchrun's options, because schedulers set it for every program in a host's container.
pub(super) fn node_rank(parts: &[Words], env: Lookup<'_>) -> Result<(), CliError> {
    const NAMES: [&str; 2] = ["--node-rank", "--node_rank"];
    let is_said = |word: &OsBytes| NAMES.iter().any(|name| word.starts_with(name.as_bytes()));
    let Some(rank) = values::variable(env, "PET_NODE_RANK").filter(|rank| rank.as_slice() != b"0") else {
        return Ok(());
    };
    if parts.iter().flat_map(|part| &part.same).any(is_said) {
        return Ok(());
    }
    let hint = Some("PET_NODE_RANK=0, and -H with all hosts: one rlaunch starts the ranks of all of them".into());
    Err(CliError::NotYet { what: format!("PET_NODE_RANK={rank} (environment)"), hint })
}

/// torchrun's options whose variables stand for one of ours.
const VARIABLES: &[&str] = &[
    "nnodes",
    "nproc-per-node",
    "max-restarts",
    "role",
    "log-dir",
    "redirects",
    "tee",
    "local-ranks-filter",
    "master-addr",
    "master-port",
    "rdzv-id",
    "shutdown-timeout",
];

/// torchrun's variable for an option.
pub(super) fn variable(row: &Row) -> Option<String> {
    let name = row.names.iter().find(|name| VARIABLES.contains(name))?;
    Some(format!("PET_{}", name.replace('-', "_").to_ascii_uppercase()))
}

impl Said {
    pub(super) fn take(&mut self, opt: Opt) {
        match opt {
            Opt::Module => self.module = true,
            Opt::NoPython => self.no_python = true,
            Opt::LogDir | Opt::Redirects | Opt::Tee | Opt::Filter | Opt::MasterAddr | Opt::MasterPort | Opt::RunId => {}
        }
    }

    /// torchrun's flags from its variables, where no option says what the program is: a number that is not 0.
    pub(super) fn fill(&mut self, env: Lookup<'_>) {
        let is_set = |name| values::variable(env, name).is_some_and(|value| value.as_slice() != b"0");
        if !self.module && !self.no_python {
            *self = Self { module: is_set("PET_MODULE"), no_python: is_set("PET_NO_PYTHON"), by_variables: true };
        }
    }
}

impl Opt {
    /// Whether each program has its own.
    pub(super) const fn is_own(self) -> bool {
        matches!(self, Self::Module | Self::NoPython)
    }
}

/// Options of the whole job.
#[derive(Debug, Default)]
pub(crate) struct Args {
    dir: Option<OsBytes>,
    redirects: Which,
    tee: Which,
    shown: Option<Capped<u32, MOST>>,
    addr: Option<OsBytes>,
    port: Option<OsBytes>,
    run_id: Option<OsBytes>,
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: Given) -> Result<(), CliError> {
        let Given { spelled, value, .. } = given;
        match opt {
            Opt::LogDir if !value.is_empty() => self.dir = Some(value),
            Opt::LogDir => return Err(refuse(spelled, value, "a directory", "logs")),
            Opt::Redirects => self.redirects = parse_streams(spelled, value)?,
            Opt::Tee => self.tee = parse_streams(spelled, value)?,
            Opt::Filter if value.is_empty() => self.shown = None,
            Opt::Filter => match logs::shown(&value) {
                Some(shown) => self.shown = Some(shown),
                None => return Err(refuse(spelled, value, "local ranks, separated by commas", "0,1")),
            },
            Opt::MasterAddr if !value.is_empty() => self.addr = Some(value),
            Opt::MasterAddr => return Err(refuse(spelled, value, "an address or a name", "10.0.0.1")),
            Opt::MasterPort => self.port = Some(port(spelled, value)?),
            Opt::RunId => self.run_id = Some(value).filter(|id| !id.is_empty() && id.as_slice() != b"none"),
            Opt::Module | Opt::NoPython => {}
        }
        Ok(())
    }

    /// The variables that torchrun's options set for all programs, before the variables of `-x`.
    pub(super) fn exports(&self) -> Vec<Export> {
        [("MASTER_ADDR", &self.addr), ("MASTER_PORT", &self.port), ("TORCHELASTIC_RUN_ID", &self.run_id)]
            .into_iter()
            .filter_map(|(name, value)| Some(Export::Set { name: name.into(), value: value.clone()? }))
            .collect()
    }

    /// The destinations of the output of this job's ranks; `None`: it is only shown.
    pub(super) fn logs(
        &self,
        job: JobId,
        named: [Option<OsBytes>; 2],
        site: &Site<'_>,
    ) -> Result<Option<Logs>, CliError> {
        const NOWHERE: &[u8] = b"/dev/null";
        let files = !(self.redirects.is_none() && self.tee.is_none());
        if self.dir.is_none() && !files && self.shown.is_none() && named.iter().all(Option::is_none) {
            return Ok(None);
        }
        let id = job.to_string();
        let dir = match &self.dir {
            Some(dir) if dir.as_slice() == NOWHERE => None,
            Some(dir) => Some(absolute(dir, site)?),
            None => files.then(|| format!("/tmp/torchelastic_{id}").into()),
        };
        let run = self.run_id.as_ref().map_or_else(|| id.clone().into(), |run| as_name(run, &id));
        let (redirects, tee) = (self.redirects.clone(), self.tee.clone());
        let (private, shown) = (self.dir.is_none() && files, self.shown.clone());
        Ok(Some(Logs { private, dir, run, redirects, tee, shown, files: named }))
    }

    /// Whether it names files for what ranks write.
    pub(super) fn has_files(&self) -> bool {
        self.dir.is_some() || !(self.redirects.is_none() && self.tee.is_none())
    }
}

/// A name that is one part of a path, and of this job only.
fn as_name(run: &OsBytes, id: &str) -> OsBytes {
    let mut name: Vec<u8> = run.iter().map(|b| if *b == b'/' { b'_' } else { *b }).collect();
    name.push(b'_');
    name.extend(id.bytes().take(8));
    OsBytes::new(name)
}

/// From the directory in which rlaunch was started: hosts and ranks have others.
fn absolute(dir: &OsBytes, site: &Site<'_>) -> Result<OsBytes, CliError> {
    if dir.starts_with(b"/") {
        return Ok(dir.clone());
    }
    match (site.directory)() {
        Some(own) => Ok(OsBytes::new([own.as_slice(), b"/", dir.as_slice()].concat())),
        None => Err(no_directory("--log-dir".into(), dir.clone())),
    }
}

/// A relative path is from a directory that has no name.
pub(super) fn no_directory(option: OsBytes, path: OsBytes) -> CliError {
    refuse(option, path, "a path from the root here, where the current directory has no name", "/var/log/jobs")
}

/// torchrun takes 0 for a port that is free, as rlaunch finds one where none is given.
fn port(option: OsBytes, value: OsBytes) -> Result<OsBytes, CliError> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number: Option<u32> = std::str::from_utf8(&value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    match number {
        Some(port @ 1..=0xffff) => Ok(port.to_string().into()),
        Some(0) => {
            let hint = Some(format!("no {option}: rlaunch finds a port that is free").into());
            Err(CliError::Value { option, takes: "a port, 1 to 65535".into(), got: value, hint })
        }
        Some(_) | None => Err(refuse(option, value, "a port, 1 to 65535", "29500")),
    }
}

fn parse_streams(option: OsBytes, value: OsBytes) -> Result<Which, CliError> {
    let takes = "0 to 3 (1: stdout, 2: stderr, 3: both), or LOCAL_RANK:N,...";
    Which::parse(&value).ok_or_else(|| match srun::time(&value).filter(|_| option.as_slice() == b"-t") {
        Some(limit) => {
            let hint = Some(format!("{limit}\n{}   for log files (torchrun)", values::spell(&option, "3")).into());
            CliError::Value { option, takes: takes.into(), got: value, hint }
        }
        None => refuse(option, value, takes, "3"),
    })
}

fn refuse(option: OsBytes, got: OsBytes, takes: &'static str, like: &str) -> CliError {
    let hint = Some(values::spell(&option, like).into());
    CliError::Value { option, takes: takes.into(), got, hint }
}
