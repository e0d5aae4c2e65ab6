//! The end of the node: its own count of what is left, or the loss of a part of ours and the guardian's count instead.

use super::notice::Notice;
use super::{CloseReason, Cx, GuardianEnd};
use crate::events::{Cause, Lost, What};
use crate::id::NodeId;
use crate::time::{Mono, Span};
use crate::wire::to_root::Leftover;
use alloc::vec::Vec;

/// How long a guardian may take to end the containment and count, once the agent is gone.
const RECORD: Span = Span::from_secs(5);

/// Where the count comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// The agent will tell.
    Up,
    /// The guardian has ended; the agent, which is still heard of, will tell of that.
    Unguarded,
    /// The agent is gone: the guardian has to tell before this.
    Waiting(Mono),
    /// It was told, or nobody can tell.
    Known,
}

/// The node's end.
#[derive(Debug)]
pub(super) struct Loss {
    state: State,
}

impl Loss {
    pub(super) const fn new() -> Self {
        Self { state: State::Up }
    }

    pub(super) fn done(&mut self, cx: &mut Cx<'_>, node: NodeId, left: u32, named: Vec<Leftover>) {
        match self.state {
            State::Up | State::Unguarded => self.known(cx, node, Some(left), named),
            State::Waiting(_) | State::Known => {}
        }
    }

    pub(super) fn init_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.part(cx, node, Lost::Init);
    }

    pub(super) fn guardian_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.part(cx, node, Lost::Guardian);
    }

    pub(super) fn edge_closed(&mut self, cx: &mut Cx<'_>, node: NodeId, why: CloseReason) {
        match self.state {
            State::Up => {
                self.part(cx, node, Lost::Agent(why));
                self.state = State::Waiting(cx.now + RECORD);
            }
            State::Unguarded => {
                self.part(cx, node, Lost::Agent(why));
                self.known(cx, node, None, Vec::new());
            }
            // After `Done` the edge just ends.
            State::Waiting(_) | State::Known => {}
        }
    }

    pub(super) fn guardian_ended(&mut self, cx: &mut Cx<'_>, node: NodeId, end: GuardianEnd) {
        match (&self.state, end) {
            (State::Known | State::Unguarded, _) => {}
            // A guardian counts only after the agent: the edge's end is on its way and says nothing new.
            (State::Up, GuardianEnd::Record { left, named }) => {
                self.part(cx, node, Lost::Agent(CloseReason::Eof));
                self.known(cx, node, Some(left), named);
            }
            (State::Up, GuardianEnd::Silent) => self.state = State::Unguarded,
            (State::Waiting(_), GuardianEnd::Record { left, named }) => self.known(cx, node, Some(left), named),
            (State::Waiting(_), GuardianEnd::Silent) => self.known(cx, node, None, Vec::new()),
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        if let State::Waiting(until) = self.state
            && until <= cx.now
        {
            self.known(cx, super::NODE, None, Vec::new());
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Waiting(until) => Some(until),
            State::Up | State::Unguarded | State::Known => None,
        }
    }

    fn part(&self, cx: &mut Cx<'_>, node: NodeId, lost: Lost) {
        cx.tell(Notice::Log(What::HostLost { node, lost }));
        cx.tell(Notice::End(Cause::Lost { node, lost }));
    }

    fn known(&mut self, cx: &mut Cx<'_>, node: NodeId, left: Option<u32>, named: Vec<Leftover>) {
        self.state = State::Known;
        cx.tell(Notice::Log(What::HostDone { node, left, named }));
        cx.tell(Notice::Counted { left });
    }
}
