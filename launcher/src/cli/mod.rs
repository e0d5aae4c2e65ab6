//! The command line: from words to a job, or to one clear error.
//!
//! Pure: the caller's environment is asked through a function, and nothing is printed here.

mod env;
mod errors;
mod faults;
mod help;
mod later;
mod nearest;
mod output;
mod run;
mod scan;
mod table;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use errors::CliError;
pub(crate) use output::{Events, Verbosity};
pub(crate) use values::Lookup;

use rlaunch_core::env::{Base, Export, base};
use rlaunch_core::id::JobId;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::spec::{AppBase, AppSpec, Contain, JobSpec, OnFailure, Placement, StdinPlan};
use rlaunch_core::time::Span;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use table::Id;

/// What the user wants.
#[derive(Debug)]
pub(crate) enum Command {
    /// A job.
    Run(Box<Run>),
    /// This text on stdout, and nothing else.
    Help(String),
    /// This text on stdout, and nothing else.
    Version(String),
}

/// A job as it was asked for.
#[derive(Debug)]
pub(crate) struct Run {
    /// `-n`.
    pub(crate) n: Option<u32>,
    /// Program and arguments, byte for byte.
    pub(crate) argv: Vec<OsBytes>,
    /// `--wdir`.
    pub(crate) wdir: Option<OsBytes>,
    /// `-x` and `-genv`, in their order.
    pub(crate) exports: Vec<Export>,
    /// `-l` or `--prefix`: the format of the prefix.
    pub(crate) label: Option<OsBytes>,
    /// `--stdin`.
    pub(crate) stdin: StdinPlan,
    /// `--contain`.
    pub(crate) contain: Contain,
    /// `--on-failure`.
    pub(crate) on_failure: OnFailure,
    /// `--grace`.
    pub(crate) grace: Span,
    /// `--timeout`.
    pub(crate) timeout: Option<Span>,
    /// What concerns only the launcher.
    pub(crate) presentation: Presentation,
}

/// What the launcher shows, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Presentation {
    /// `-v`, `-q`.
    pub(crate) verbosity: Verbosity,
    /// `--events`.
    pub(crate) events: Option<Events>,
    /// There was a `-n`; without one, one rank is started and a note says so.
    pub(crate) n_given: bool,
}

/// Whether these words (without the command's own name) ask for a job, by the first of them alone: what decides whether
/// guardian and agent are forked before anything is parsed.
pub(crate) fn is_job(args: &[OsString]) -> bool {
    let first = args.first().map(|word| word.as_encoded_bytes());
    first.is_some_and(|word| {
        !matches!(word, b"-h" | b"--help" | b"-V" | b"--version" | b"help") && !later::is_command(word)
    })
}

/// Reads a command line, without the command's own name.
///
/// # Errors
/// It is not one, or asks for what this version does not do; nothing was started.
pub(crate) fn parse(args: Vec<OsString>, env: Lookup<'_>) -> Result<Command, CliError> {
    let mut words: Vec<OsBytes> = args.into_iter().map(|word| OsBytes::new(word.into_vec())).collect();
    let first = words.first().ok_or(CliError::Nothing)?;
    let long_form = first.as_slice() == b"run";
    if long_form {
        words.remove(0);
    } else if first.as_slice() == b"help" {
        return Ok(Command::Help(help::full()));
    } else {
        errors::refuse_command(first)?;
    }
    let scan::Words { given, argv, after_dashes } = scan::split(words.into_iter())?;

    let asked = given.iter().find_map(|given| match given.row.id {
        Id::Help(opt) => Some((opt, given.spelled.as_slice() == b"-h")),
        Id::Run(_) | Id::Env(_) | Id::Output(_) | Id::Faults(_) => None,
    });
    match asked {
        Some((help::Opt::Help, true)) => return Ok(Command::Help(help::brief())),
        Some((help::Opt::Help, false)) => return Ok(Command::Help(help::full())),
        Some((help::Opt::Version, _)) => return Ok(Command::Version(help::version())),
        None => {}
    }
    if argv.is_empty() {
        return Err(CliError::NoProgram);
    }
    if !(long_form && after_dashes) && argv.iter().any(|word| word.as_slice() == b":") {
        return Err(CliError::SeveralPrograms);
    }
    collect(given, argv, env).map(|run| Command::Run(Box::new(run)))
}

fn collect(given: Vec<scan::Given>, argv: Vec<OsBytes>, env: Lookup<'_>) -> Result<Run, CliError> {
    let mut what = run::Args::default();
    let mut variables = env::Args::default();
    let mut output = output::Args::default();
    let mut faults = faults::Args::default();
    for given in given {
        match given.row.id {
            Id::Run(opt) => what.take(opt, given)?,
            Id::Env(opt) => variables.take(opt, given)?,
            Id::Output(opt) => output.take(opt, given)?,
            Id::Faults(opt) => faults.take(opt, given)?,
            Id::Help(_) => {}
        }
    }
    output.fill(env)?;
    faults.fill(env)?;
    Ok(Run {
        n: what.n,
        argv,
        wdir: what.wdir,
        exports: variables.exports,
        label: output.label(),
        stdin: output.stdin(),
        contain: faults.contain(),
        on_failure: faults.on_failure(),
        grace: faults.grace(),
        timeout: faults.timeout(),
        presentation: Presentation { verbosity: output.verbosity, events: output.events, n_given: what.n.is_some() },
    })
}

/// A job, ready for the job machine.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The job.
    pub(crate) job: Arc<JobSpec>,
    /// What the launcher shows of it.
    pub(crate) presentation: Presentation,
    /// What `-x` asked for and the caller's environment does not have: each is worth a note.
    pub(crate) absent: Vec<OsBytes>,
}

/// `--lease` where it is not given.
const LEASE: Span = Span::from_secs(30);

impl Run {
    /// The job that this is, with the caller's environment: entries as the kernel gave them, also those that are not
    /// `NAME=value`.
    pub(crate) fn into_plan<'a>(self, job: JobId, caller: impl IntoIterator<Item = &'a [u8]>) -> Plan {
        let Base { env, pinned, absent } = base(caller, &self.exports);
        let base = AppBase { argv: self.argv, env, pinned, wdir: self.wdir };
        let apps = vec![AppSpec { procs: self.n.unwrap_or(1), base }];
        let job = JobSpec {
            job,
            placement: Placement::here(&apps, OsBytes::default()),
            lease: LEASE,
            apps,
            contain: self.contain,
            on_failure: self.on_failure,
            grace: self.grace,
            timeout: self.timeout,
            label: self.label,
            stdin: self.stdin,
        };
        Plan { job: Arc::new(job), presentation: self.presentation, absent }
    }
}
