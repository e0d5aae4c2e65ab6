//! The contract between a state machine and its driver: the real edges, or the simulator.

use crate::time::Mono;
use alloc::collections::VecDeque;

/// A state machine without I/O. Transitions are total: every (state, event) pair is answered, none fails, none panics.
pub trait Machine {
    /// An event of the machine.
    type Event;
    /// An action for the driver.
    type Action;

    /// Takes one event.
    fn handle(&mut self, now: Mono, event: Self::Event);
    /// Advances the machine to this time. Idempotent: an early or spurious call does nothing.
    fn handle_timeout(&mut self, now: Mono);
    /// The next thing to do; drained to `None` after every call above.
    #[must_use]
    fn poll_action(&mut self) -> Option<Self::Action>;
    /// When `handle_timeout` wants to be called next.
    #[must_use]
    fn poll_timeout(&self) -> Option<Mono>;
}

/// Context of a sub-machine: the time, a queue for actions, a queue for notices to its siblings, and the facts that it shares with them.
pub struct Cx<'a, A, N, F = ()> {
    /// The time of the event.
    pub now: Mono,
    /// Actions, in order.
    pub out: &'a mut VecDeque<A>,
    /// Notices for the other sub-machines; routed by the owner until none is left.
    pub notice: &'a mut VecDeque<N>,
    /// Facts that all of them read and only their owner changes.
    pub facts: &'a F,
}

impl<A, N, F> Cx<'_, A, N, F> {
    /// Asks the driver for something.
    pub fn act(&mut self, action: A) {
        self.out.push_back(action);
    }
    /// Queues a notice for the siblings.
    pub fn notify(&mut self, notice: N) {
        self.notice.push_back(notice);
    }
}

/// The earlier of two deadlines.
#[must_use]
pub fn earliest(a: Option<Mono>, b: Option<Mono>) -> Option<Mono> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (Some(t), None) | (None, Some(t)) => Some(t),
        (None, None) => None,
    }
}

/// The earliest of all deadlines of a machine or a driver: one list, so that none is left out.
#[must_use]
pub fn earliest_of(deadlines: impl IntoIterator<Item = Option<Mono>>) -> Option<Mono> {
    deadlines.into_iter().flatten().min()
}
