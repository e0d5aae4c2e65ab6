//! The exit codes of rlaunch: a public interface. A job's own code (a rank's, or 128 + signal) passes through unchanged.

use serde::{Deserialize, Serialize};

/// The requested output cannot be written. No job ends like this by itself.
pub const UNWRITTEN: u8 = 1;
/// Bad option or value; nothing was started.
pub const USAGE: u8 = 2;
/// A host was taken away and `--preempt-retries` is used up: the same job may succeed later (EX_TEMPFAIL of sysexits.h).
pub const PREEMPTED: u8 = 75;
/// `--timeout` ran out.
pub const TIMEOUT: u8 = 124;
/// The launch failed, a host, agent, guardian or init was lost, or output of a job that succeeded could not be written.
pub const LAUNCH: u8 = 125;
/// The program exists but cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
pub const NOT_FOUND: u8 = 127;

/// How rlaunch itself ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// rlaunch exits with this code.
    Code(u8),
    /// rlaunch dies of this signal (as pid 1, where raising has no effect, it exits with 128 + the signal).
    Signal(crate::signal::Signal),
}

impl Ending {
    /// The code that a shell shows for it.
    #[must_use]
    pub const fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(sig) => sig.exit_code(),
        }
    }
}
