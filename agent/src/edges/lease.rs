//! The line to a remote guardian, which holds the timer of the lease: an agent that was stopped keeps nothing alive.

use rlaunch_base::signal::Signal;
use rlaunch_core::node::LeaseAction;
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

    /// Sends a change of the lease to the guardian, without waiting. The last one counts.
    pub(super) fn perform(&self, action: &LeaseAction) {
        match action {
            LeaseAction::Until(until) => self.0.renew(until.nanos()),
            LeaseAction::Spare(until) => self.0.spare(until.nanos()),
            LeaseAction::HoldAfterCut(span) => self.0.hold_after_cut(span.nanos()),
        }
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
