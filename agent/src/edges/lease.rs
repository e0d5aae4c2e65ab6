//! The line to a remote guardian, which holds the timer of the lease: an agent that was stopped keeps nothing alive.

use rlaunch_core::signal::Signal;
use rlaunch_core::time::{Mono, Span};
use rlaunch_sys::guardian;
use std::os::fd::{AsFd, BorrowedFd};

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

    /// This host shuts down: until then the end of the connection does not end the ranks.
    pub fn spare(&self, until: Mono) {
        self.0.spare(until.nanos());
    }

    /// After the end of the connection the guardian waits for so long.
    pub fn hold_after_cut(&self, span: Span) {
        self.0.hold_after_cut(span.nanos());
    }

    /// Signals that the guardian was sent; `None`: it has ended.
    pub(super) fn signals(&self) -> Option<impl Iterator<Item = Signal>> {
        self.0.signals().map(|numbers| numbers.into_iter().filter_map(Signal::new))
    }
}

impl AsFd for LeaseLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
