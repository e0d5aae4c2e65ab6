//! The edges' plain types as the machine's, and back.

use rlaunch_base::errno::{EAGAIN, ENOENT};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::to_root::{Found, Leftover, SpawnError, SpawnStep, Usage};
use rlaunch_sys::children::Named;
use rlaunch_sys::pidfd::{Ended, How};
use rlaunch_sys::spawn::{Failure, Found as Seen, Step};

/// A program that could not be started, or could not be if its turn came, with what is seen of it here.
pub(super) fn failure(failure: Failure, base: Option<&AppBase>) -> SpawnError {
    let step = match failure.step {
        Step::Pipes => SpawnStep::Pipes,
        Step::Clone => SpawnStep::Clone,
        Step::MountProc => SpawnStep::MountProc,
        Step::Session => SpawnStep::Session,
        Step::Streams => SpawnStep::Streams,
        Step::ChangeDir => SpawnStep::ChangeDir,
        Step::Limits => SpawnStep::Limits,
        Step::Exec => SpawnStep::Exec,
    };
    let program = base.and_then(|base| base.argv.iter().next());
    // Of a program that was searched for in vain, its name says more than one of the places where it was not.
    let path = match (step, program) {
        (SpawnStep::Exec, Some(program)) if failure.errno == ENOENT => program.into(),
        _ => OsBytes::new(failure.path),
    };
    let found = match failure.found {
        Seen::Nothing => Found::Nothing,
        Seen::Dir => Found::Dir,
        Seen::Empty => Found::Empty,
        Seen::File => Found::File,
    };
    SpawnError { step, errno: failure.errno, path, found }
}

/// The agent has no room for another rank right now.
pub(super) fn resource(step: SpawnStep) -> SpawnError {
    SpawnError { step, errno: EAGAIN, path: OsBytes::default(), found: Found::Nothing }
}

pub(super) fn status(ended: &Ended) -> Status {
    match ended.how {
        How::Code(code) => Status::Exited(code),
        How::Signal { number, core } => Status::Signaled { sig: Signal::new(number).unwrap_or(Signal::KILL), core },
    }
}

pub(super) fn usage(ended: &Ended) -> Usage {
    Usage { user_us: ended.user_us, system_us: ended.system_us, max_rss_kib: ended.max_rss_kib }
}

/// A process that still exists.
pub(super) fn leftover(named: &Named) -> Leftover {
    Leftover::padded(named.pid.cast_unsigned(), &named.comm, &named.wchan)
}
