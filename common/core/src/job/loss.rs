//! The end of the node: its own count of what is left, or the loss of a part of ours and the guardian's count instead.

use super::mute::ANSWER;
use super::notice::Notice;
use super::{CloseReason, Cx, GuardianEnd, JobAction, NODE};
use crate::events::{Cause, Lost, What};
use crate::id::NodeId;
use crate::patience::Patience;
use crate::time::{Mono, Span};
use crate::wire::to_root::Leftover;
use alloc::vec::Vec;

/// How long a guardian may take to end the containment and count, once the agent is gone or given up.
const RECORD: Span = Span::from_secs(5);

/// Where the count comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// The agent will tell.
    Up,
    /// The guardian has ended; the agent will tell of that.
    Unguarded {
        /// Before this; `None`: it is known that the guardian was lost.
        until: Option<Patience>,
    },
    /// The agent is gone or given up.
    Waiting {
        /// Somebody has to tell before this.
        until: Patience,
        /// The guardian may.
        guardian: bool,
        /// The agent may after all: its edge has not ended.
        agent: bool,
    },
    /// It was told, or nobody can tell.
    Known,
}

/// The node's end.
#[derive(Debug)]
pub(super) struct Loss {
    state: State,
    /// The guardian's loss was told.
    unguarded: bool,
}

impl Loss {
    pub(super) const fn new() -> Self {
        Self { state: State::Up, unguarded: false }
    }

    pub(super) fn done(&mut self, cx: &mut Cx<'_>, node: NodeId, left: u32, named: Vec<Leftover>) {
        match self.state {
            State::Up | State::Unguarded { .. } | State::Waiting { .. } => self.known(cx, node, Some(left), named),
            State::Known => {}
        }
    }

    pub(super) fn init_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        cx.tell(Notice::Bereft);
        self.part(cx, node, Lost::Init);
    }

    pub(super) fn guardian_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if !core::mem::replace(&mut self.unguarded, true) {
            cx.tell(Notice::Bereft);
            self.part(cx, node, Lost::Guardian);
            cx.tell(Notice::Unguarded);
        }
        match self.state {
            State::Unguarded { .. } => self.state = State::Unguarded { until: None },
            State::Up | State::Waiting { .. } | State::Known => {}
        }
    }

    pub(super) fn edge_closed(&mut self, cx: &mut Cx<'_>, node: NodeId, why: CloseReason) {
        match self.state {
            State::Up => {
                self.part(cx, node, Lost::Agent(why));
                // The guardian may not have seen the agent's end, or the agent may live on without its edge.
                cx.act(JobAction::Sever { node });
                self.state = State::Waiting { until: Patience::new(cx.now, RECORD), guardian: true, agent: false };
            }
            State::Unguarded { .. } => {
                self.part(cx, node, Lost::Agent(why));
                self.known(cx, node, None, Vec::new());
            }
            State::Waiting { until, guardian: true, .. } => {
                self.state = State::Waiting { until, guardian: true, agent: false };
            }
            State::Waiting { guardian: false, .. } => self.known(cx, node, None, Vec::new()),
            // After `Done` the edge just ends.
            State::Known => {}
        }
    }

    pub(super) fn guardian_ended(&mut self, cx: &mut Cx<'_>, node: NodeId, end: GuardianEnd) {
        match (&self.state, end) {
            (State::Known | State::Unguarded { .. }, _) => {}
            // A guardian counts only after the agent: the edge's end is on its way and says nothing new.
            (State::Up, GuardianEnd::Record { left, named }) => {
                self.part(cx, node, Lost::Agent(CloseReason::Eof));
                self.known(cx, node, Some(left), named);
            }
            (State::Up, GuardianEnd::Silent) => self.left_alone(cx, node),
            (State::Waiting { .. }, GuardianEnd::Record { left, named }) => self.known(cx, node, Some(left), named),
            (State::Waiting { until, agent: true, .. }, GuardianEnd::Silent) => {
                self.state = State::Waiting { until: *until, guardian: false, agent: true };
            }
            (State::Waiting { agent: false, .. }, GuardianEnd::Silent) => self.known(cx, node, None, Vec::new()),
        }
    }

    /// Now the agent is the only one who can end what is there, so it must not stand still. Either it has just said
    /// `Done`, or it is about to say that the guardian was lost.
    fn left_alone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        cx.act(JobAction::Rouse { node });
        let until = if self.unguarded { None } else { Some(Patience::new(cx.now, ANSWER)) };
        self.state = State::Unguarded { until };
    }

    /// The agent has to end what is there and does not answer.
    pub(super) fn mute(&mut self, cx: &mut Cx<'_>) {
        match self.state {
            State::Up => {
                self.part(cx, NODE, Lost::AgentMute);
                cx.act(JobAction::Sever { node: NODE });
                self.state = State::Waiting { until: Patience::new(cx.now, RECORD), guardian: true, agent: true };
            }
            // Once we are gone it ends everything as soon as it goes on.
            State::Unguarded { .. } => {
                self.part(cx, NODE, Lost::AgentMute);
                self.known(cx, NODE, None, Vec::new());
            }
            State::Waiting { .. } | State::Known => {}
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        match &mut self.state {
            State::Unguarded { until: Some(until) } => {
                if until.is_out(cx.now) {
                    self.guardian_lost(cx, NODE);
                }
            }
            State::Waiting { until, .. } => {
                if until.is_out(cx.now) {
                    self.known(cx, NODE, None, Vec::new());
                }
            }
            State::Up | State::Unguarded { until: None } | State::Known => {}
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Unguarded { until } => until.map(|until| until.deadline()),
            State::Waiting { until, .. } => Some(until.deadline()),
            State::Up | State::Known => None,
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
