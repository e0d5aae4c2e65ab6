//! The end of each node: its own count of what is left, or the loss of a part of ours and the guardian's count instead.

use super::notice::Notice;
use super::{CloseReason, Cx, GuardianEnd};
use crate::events::{Cause, Lost, What};
use crate::id::NodeId;
use crate::time::{Mono, Span};
use crate::wire::to_root::Leftover;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// How long a guardian may take to end the containment and count, once the agent is gone.
const RECORD: Span = Span::from_secs(5);

/// Where the count of a node comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The agent will tell.
    Up,
    /// The guardian has ended; the agent, which is still heard of, will tell of that.
    Unguarded,
    /// The agent is gone: the guardian has to tell.
    Waiting,
    /// It was told, or nobody can tell.
    Known,
}

/// The nodes' ends.
#[derive(Debug)]
pub(super) struct Loss {
    nodes: Vec<State>,
    /// Guardians that have to tell before this; the oldest first.
    waiting: VecDeque<(Mono, NodeId)>,
    /// Nodes of which nothing is known.
    unknown: usize,
    /// What is left on the others; `None`: nobody can tell of one.
    left: Option<u32>,
}

impl Loss {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes: vec![State::Up; nodes], waiting: VecDeque::new(), unknown: nodes, left: Some(0) }
    }

    pub(super) fn done(&mut self, cx: &mut Cx<'_>, node: NodeId, left: u32, named: Vec<Leftover>) {
        match self.state(node) {
            State::Up | State::Unguarded => self.known(cx, node, Some(left), named),
            State::Waiting | State::Known => {}
        }
    }

    pub(super) fn init_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        part(cx, node, Lost::Init);
    }

    pub(super) fn guardian_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        part(cx, node, Lost::Guardian);
    }

    /// No agent was ever there, and nothing else of ours.
    pub(super) fn host_failed(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        match self.state(node) {
            State::Up | State::Unguarded | State::Waiting => {
                cx.tell(Notice::Absent(node));
                self.count(cx, node, Some(0));
            }
            State::Known => {}
        }
    }

    pub(super) fn edge_closed(&mut self, cx: &mut Cx<'_>, node: NodeId, why: CloseReason) {
        match self.state(node) {
            State::Up => {
                part(cx, node, Lost::Agent(why));
                self.set(node, State::Waiting);
                self.waiting.push_back((cx.now + RECORD, node));
            }
            State::Unguarded => {
                part(cx, node, Lost::Agent(why));
                self.known(cx, node, None, Vec::new());
            }
            // After `Done` the edge just ends.
            State::Waiting | State::Known => {}
        }
    }

    pub(super) fn guardian_ended(&mut self, cx: &mut Cx<'_>, node: NodeId, end: GuardianEnd) {
        match (self.state(node), end) {
            (State::Known | State::Unguarded, _) => {}
            // A guardian counts only after the agent: the edge's end is on its way and says nothing new.
            (State::Up, GuardianEnd::Record { left, named }) => {
                part(cx, node, Lost::Agent(CloseReason::Eof));
                self.known(cx, node, Some(left), named);
            }
            (State::Up, GuardianEnd::Silent) => self.set(node, State::Unguarded),
            (State::Waiting, GuardianEnd::Record { left, named }) => self.known(cx, node, Some(left), named),
            (State::Waiting, GuardianEnd::Silent) => self.known(cx, node, None, Vec::new()),
        }
    }

    /// A node is not heard of any more, and by now it has ended its ranks.
    pub(super) fn unheard(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        match self.state(node) {
            State::Up | State::Unguarded | State::Waiting => {
                part(cx, node, Lost::Unheard);
                self.known(cx, node, None, Vec::new());
            }
            State::Known => {}
        }
    }

    /// Whoever was to tell something has had time enough.
    pub(super) fn mute(&mut self, cx: &mut Cx<'_>) {
        for (state, node) in self.nodes.clone().into_iter().zip((0..).map(NodeId::new)) {
            match state {
                State::Up | State::Unguarded | State::Waiting => {
                    cx.tell(Notice::Log(What::HostLost { node, lost: Lost::AgentMute }));
                    self.known(cx, node, None, Vec::new());
                }
                State::Known => {}
            }
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        while let Some((_, node)) = self.waiting.pop_front_if(|(at, _)| *at <= cx.now) {
            if self.state(node) == State::Waiting {
                self.known(cx, node, None, Vec::new());
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.waiting.front().filter(|_| self.unknown > 0).map(|(at, _)| *at)
    }

    fn state(&self, node: NodeId) -> State {
        // A node that does not exist has nothing to tell.
        self.nodes.get(node.index()).copied().unwrap_or(State::Known)
    }

    fn set(&mut self, node: NodeId, to: State) {
        if let Some(state) = self.nodes.get_mut(node.index()) {
            *state = to;
        }
    }

    fn known(&mut self, cx: &mut Cx<'_>, node: NodeId, left: Option<u32>, named: Vec<Leftover>) {
        cx.tell(Notice::Log(What::HostDone { node, left, named }));
        cx.tell(Notice::NodeOver(node));
        self.count(cx, node, left);
    }

    fn count(&mut self, cx: &mut Cx<'_>, node: NodeId, left: Option<u32>) {
        self.set(node, State::Known);
        self.unknown = self.unknown.saturating_sub(1);
        self.left = self.left.zip(left).map(|(sum, left)| sum.saturating_add(left));
        if self.unknown == 0 {
            cx.tell(Notice::Counted { left: self.left });
        }
    }
}

fn part(cx: &mut Cx<'_>, node: NodeId, lost: Lost) {
    cx.tell(Notice::Log(What::HostLost { node, lost }));
    cx.tell(Notice::End(Cause::Lost { node, lost }));
}
