//! The order of a start: the caller's settings are read first, guardian and agent are forked before anything big exists,
//! and only then is the command line understood.

use crate::cli::{self, Command, Plan, Verbosity};
use crate::driver;
use crate::edges::{Edges, Setup};
use rlaunch_core::exit::{self, Ending};
use rlaunch_core::id::JobId;
use rlaunch_core::job::{Job, Setting};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::spec::StdinPlan;
use rlaunch_core::time::{Mono, WallNs};
use rlaunch_sys::fd::{self, Kind};
use rlaunch_sys::guardian::{self, Role};
use rlaunch_sys::origin::{self, Origin};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// When rlaunch was started.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    pub(crate) mono: Mono,
    pub(crate) wall: WallNs,
}

/// Everything, from the first instruction to the exit code.
pub(crate) fn run() -> u8 {
    let began =
        Began { mono: Mono::from_nanos(rlaunch_sys::clock::boottime()), wall: WallNs(rlaunch_sys::clock::wall()) };
    let origin = match origin::capture() {
        Ok(origin) => origin,
        Err(error) => return fail(&format!("cannot open /dev/null: {error}")),
    };
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if !cli::is_job(&args) {
        return without_job(args);
    }
    match guardian::split(&origin) {
        Ok(Role::Agent { edge, guardian }) => {
            rlaunch_agent::run(rlaunch_agent::Seat { edge, guardian, lease: None, origin })
        }
        Ok(Role::Launcher { edge, lifeline }) => launch(args, began, &origin, edge, lifeline),
        Err(error) => fail(&format!("cannot start the guardian of the job: {error}")),
    }
}

/// A first word that starts nothing: help, version, a mistake.
fn without_job(args: Vec<OsString>) -> u8 {
    match cli::parse(args, &|name| std::env::var_os(name)) {
        Ok(Command::Help(text) | Command::Version(text)) => {
            // A reader that closes early has what it wanted.
            write_all(1, text.as_bytes()).map_or(1, |()| 0)
        }
        Ok(Command::Run(_)) => fail("this command line starts a job where none was expected"),
        Err(error) => refuse(&error),
    }
}

/// The launcher's part. A mistake just exits: the lifeline's end is the guardian's end, and the agent's.
fn launch(args: Vec<OsString>, began: Began, origin: &Origin, edge: OwnedFd, lifeline: OwnedFd) -> u8 {
    let plan = match cli::parse(args, &|name| std::env::var_os(name)) {
        Ok(Command::Run(run)) => match rlaunch_sys::random::bytes() {
            Ok(id) => run.into_plan(JobId(id), origin::environment()),
            Err(error) => return fail(&format!("cannot get random bytes for the job's name: {error}")),
        },
        Ok(Command::Help(text) | Command::Version(text)) => {
            return write_all(1, text.as_bytes()).map_or(1, |()| 0);
        }
        Err(error) => return refuse(&error),
    };
    notes(&plan);
    match job(plan, began, origin, edge, lifeline) {
        Ok(Ending::Code(code)) => code,
        Ok(Ending::Signal(sig)) => {
            rlaunch_sys::signals::die_of(sig.get());
            sig.exit_code()
        }
        Err(error) => fail(&format!("{error:#}")),
    }
}

fn job(mut plan: Plan, began: Began, origin: &Origin, edge: OwnedFd, lifeline: OwnedFd) -> anyhow::Result<Ending> {
    if fd::kind(0).is_ok_and(|kind| kind == Kind::Null) {
        // The rank gets /dev/null itself: the same bytes, without a pipe.
        Arc::make_mut(&mut plan.job).stdin = StdinPlan::None;
    }
    let trace = diagnostics(plan.presentation.verbosity);
    let setting = Setting {
        version: OsBytes::from(env!("CARGO_PKG_VERSION")),
        host: OsBytes::new(rlaunch_sys::facts::host::hostname()),
        trace,
    };
    let job = Job::new(began.mono, began.wall, &plan.job, &setting);
    let setup = Setup { edge, lifeline, plan: &plan, origin };
    driver::run(job, Edges::new(setup)?)
}

/// Diagnostics for us, off by default: `RLAUNCH_LOG`, or `-vv`. Returns what the agents are to do.
fn diagnostics(verbosity: Verbosity) -> OsBytes {
    let wanted = std::env::var_os("RLAUNCH_LOG").map(OsString::into_encoded_bytes).unwrap_or_default();
    let filter = match verbosity {
        Verbosity::Debug if wanted.is_empty() => b"debug".to_vec(),
        Verbosity::Quiet | Verbosity::Normal | Verbosity::Verbose | Verbosity::Debug => wanted,
    };
    if !filter.is_empty() {
        rlaunch_net::diagnostics::start(&filter);
    }
    OsBytes::new(filter)
}

/// What is worth a line before anything is started.
fn notes(plan: &Plan) {
    if plan.presentation.verbosity == Verbosity::Quiet {
        return;
    }
    if !plan.presentation.n_given {
        say("rlaunch: no -n given: starting 1 rank\n");
    }
    for name in &plan.absent {
        say(&format!("rlaunch: -x {name}: not set here, so the ranks do not get it\n"));
    }
}

fn refuse(error: &cli::CliError) -> u8 {
    say(&error.render());
    error.exit_code()
}

fn fail(what: &str) -> u8 {
    say(&format!("error: {what}\n"));
    exit::LAUNCH
}

fn say(text: &str) {
    // Where stderr is closed the exit code has to do.
    let _closed = write_all(2, text.as_bytes());
}

fn write_all(to: i32, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match fd::write(to, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
