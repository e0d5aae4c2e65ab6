//! Fates of ranks that were not the first cause.

use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;

/// The fate of a rank that was not the first cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Became {
    /// Had exited with 0 before.
    Finished,
    /// Failed by itself too.
    Failed(Status),
    /// Ended after this signal of ours, by it or in peace.
    Stopped(Signal),
    /// Ended like this after we sent a signal, and may have done so anyway.
    After(Status, Signal),
    /// Needed SIGKILL.
    Killed,
    /// A program of the job had ordered its group to end.
    GroupEnded,
    /// Ended together with the lost part.
    TakenAlong,
    /// Was never started.
    NeverStarted,
    /// Ran at the last report, and no process remains on its host.
    Ended,
    /// An agent that is gone may have started it; nothing is left.
    EndedOrNeverStarted,
    /// Ran at the last report, or may have been started, and was not counted.
    NoContact,
}
