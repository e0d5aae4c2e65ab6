//! The line to a remote guardian, which holds the timer of the lease: an agent that was stopped keeps nothing alive.

use rlaunch_core::time::Mono;
use rlaunch_sys::guardian;

/// The line on which the guardian gets the time that the job may continue.
#[derive(Debug)]
pub struct LeaseLine(guardian::LeaseLine);

impl LeaseLine {
    /// Takes the agent's end of the line.
    #[must_use]
    pub const fn new(line: guardian::LeaseLine) -> Self {
        Self(line)
    }

    /// The job may continue until then; the last word counts. Never waits.
    pub fn renew(&self, until: Mono) {
        self.0.renew(until.nanos());
    }
}
