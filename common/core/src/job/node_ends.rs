//! The end of each node: its own count of what is left, or the loss of a part of ours and the guardian's count instead.

use super::kill_watchdog::ANSWER;
use super::notice::Notice;
use super::{Cx, GuardianEnd, JobAction};
use crate::events::{CloseReason, Lost, What};
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::deadlines::Deadlines;
use rlaunch_base::id::NodeId;
use rlaunch_base::patience::Patience;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::to_root::Leftover;

/// How long a guardian of this host may take to end the containment and count, once the agent is gone or given up.
const RECORD: Span = Span::from_secs(5);

/// The source of the count of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The agent will report, once there is one.
    Up,
    /// The guardian has ended, and the agent will report that.
    GuardianEnded {
        /// Before this; `None`: it is known that the guardian was lost.
        until: Option<Patience>,
    },
    /// The agent is gone or given up.
    Waiting {
        /// The time by which a part has to report. `None`: before the node's lease ends.
        until: Option<Patience>,
        /// The guardian may.
        guardian: bool,
        /// The agent may after all: its edge has not ended.
        agent: bool,
    },
    /// The count was reported, or no part can report it.
    Known,
}

/// A node's end.
#[derive(Clone, Copy, Debug)]
struct Node {
    state: State,
    /// Whether the guardian's loss was reported.
    guardian_lost: bool,
    /// The number of remaining processes, once known. `None`: it cannot be known.
    left: Option<u32>,
}

/// The nodes' ends.
#[derive(Debug)]
pub(super) struct NodeEnds {
    nodes: Vec<Node>,
    due: Deadlines,
    /// Nodes of which nothing is known.
    unknown: usize,
}

impl NodeEnds {
    pub(super) fn new(nodes: usize) -> Self {
        let node = Node { state: State::Up, guardian_lost: false, left: None };
        Self { due: Deadlines::new(nodes), unknown: nodes, nodes: vec![node; nodes] }
    }

    pub(super) fn done(&mut self, cx: &mut Cx<'_>, node: NodeId, left: u32, named: Vec<Leftover>) {
        match self.state(node) {
            State::Up | State::GuardianEnded { .. } | State::Waiting { .. } => self.known(cx, node, Some(left), named),
            State::Known => {}
        }
    }

    pub(super) fn init_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        cx.notify(Notice::LostSupervisor(node));
        part(cx, node, Lost::Init);
    }

    pub(super) fn on_guardian_lost(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(known) = self.nodes.get_mut(node.index()) else { return };
        if !core::mem::replace(&mut known.guardian_lost, true) {
            cx.notify(Notice::LostSupervisor(node));
            part(cx, node, Lost::Guardian);
            cx.notify(Notice::GuardianLost(node));
        }
        match self.state(node) {
            State::GuardianEnded { .. } => self.set(node, State::GuardianEnded { until: None }),
            State::Up | State::Waiting { .. } | State::Known => {}
        }
    }

    /// A host of which all was known is reached again.
    pub(super) fn revive(&mut self, node: NodeId) {
        if self.state(node) == State::Known {
            self.unknown = self.unknown.saturating_add(1);
        }
        self.set(node, State::Up);
        if let Some(known) = self.nodes.get_mut(node.index()) {
            (known.guardian_lost, known.left) = (false, None);
        }
    }

    /// Nothing is left to be known.
    pub(super) fn notify_if_counted(&self, cx: &mut Cx<'_>) {
        if self.unknown == 0 {
            let left = self.nodes.iter().try_fold(0_u32, |sum, known| Some(sum.saturating_add(known.left?)));
            cx.notify(Notice::Counted { left });
        }
    }

    /// No agent was ever there, and nothing else of ours.
    pub(super) fn host_failed(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        match self.state(node) {
            State::Up | State::GuardianEnded { .. } | State::Waiting { .. } => {
                cx.notify(Notice::Absent(node));
                self.count(cx, node, Some(0));
            }
            State::Known => {}
        }
    }

    /// The job does without a node. No rank was started there, so none remains, whichever part can still count.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        match self.state(node) {
            State::Up | State::GuardianEnded { .. } | State::Waiting { .. } => self.count(cx, node, Some(0)),
            State::Known => {
                if let Some(known) = self.nodes.get_mut(node.index()) {
                    known.left = Some(0);
                }
            }
        }
    }

    pub(super) fn edge_closed(&mut self, cx: &mut Cx<'_>, node: NodeId, why: CloseReason) {
        match self.state(node) {
            State::Up => {
                part(cx, node, Lost::Agent(why));
                // The guardian may not have seen the agent's end, or the agent may live on without its edge.
                self.sever(cx, node, false);
            }
            State::GuardianEnded { .. } => {
                part(cx, node, Lost::Agent(why));
                self.known(cx, node, None, Vec::new());
            }
            State::Waiting { until, guardian: true, .. } => {
                self.set(node, State::Waiting { until, guardian: true, agent: false });
            }
            State::Waiting { guardian: false, .. } => self.known(cx, node, None, Vec::new()),
            // After `Done` the edge just ends.
            State::Known => {}
        }
    }

    pub(super) fn guardian_ended(&mut self, cx: &mut Cx<'_>, node: NodeId, end: GuardianEnd) {
        match (self.state(node), end) {
            (State::Known | State::GuardianEnded { .. }, _) => {}
            // A guardian counts only after the agent: the edge's end is on its way and says nothing new.
            (State::Up, GuardianEnd::Record { left, named }) => {
                part(cx, node, Lost::Agent(CloseReason::Eof));
                self.known(cx, node, Some(left), named);
            }
            (State::Up, GuardianEnd::Silent) => self.await_agent_report(cx, node),
            (State::Up, GuardianEnd::Expired { left, named }) => {
                part(cx, node, Lost::Expired);
                self.known(cx, node, Some(left), named);
            }
            (State::Waiting { .. }, GuardianEnd::Record { left, named } | GuardianEnd::Expired { left, named }) => {
                self.known(cx, node, Some(left), named);
            }
            (State::Waiting { until, agent: true, .. }, GuardianEnd::Silent) => {
                self.set(node, State::Waiting { until, guardian: false, agent: true });
            }
            (State::Waiting { agent: false, .. }, GuardianEnd::Silent) => self.known(cx, node, None, Vec::new()),
        }
    }

    /// Handles a node whose heartbeats are missing and which by now has ended its ranks.
    pub(super) fn on_missed_lease(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        match self.state(node) {
            State::Up | State::GuardianEnded { .. } => {
                part(cx, node, Lost::NoHeartbeat);
                self.known(cx, node, None, Vec::new());
            }
            State::Waiting { .. } => self.known(cx, node, None, Vec::new()),
            State::Known => {}
        }
    }

    /// An agent has to end what is there and does not answer.
    pub(super) fn on_agent_unresponsive(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        match self.state(node) {
            State::Up => {
                part(cx, node, Lost::AgentMute);
                self.sever(cx, node, true);
            }
            // Once the launcher is gone the agent ends everything as soon as it continues.
            State::GuardianEnded { .. } => {
                part(cx, node, Lost::AgentMute);
                self.known(cx, node, None, Vec::new());
            }
            State::Waiting { .. } | State::Known => {}
        }
    }

    /// Continues suspended agents: they have work to do now. On other hosts that is their guardians' business.
    pub(super) fn wake(&self, cx: &mut Cx<'_>) {
        for (known, node) in self.nodes.iter().zip((0..).map(NodeId::new)) {
            if cx.facts.hosts.is_local(node) && known.state != State::Known {
                cx.act(JobAction::WakeAgent { node });
            }
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        while let Some(node) = self.due.pop(cx.now) {
            match self.state(node) {
                State::GuardianEnded { until: Some(mut until) } => {
                    if until.is_out(cx.now) {
                        self.on_guardian_lost(cx, node);
                    } else {
                        self.set(node, State::GuardianEnded { until: Some(until) });
                    }
                }
                State::Waiting { until: Some(mut until), guardian, agent } => {
                    if until.is_out(cx.now) {
                        self.known(cx, node, None, Vec::new());
                    } else {
                        self.set(node, State::Waiting { until: Some(until), guardian, agent });
                    }
                }
                State::Up
                | State::GuardianEnded { until: None }
                | State::Waiting { until: None, .. }
                | State::Known => {}
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.next()
    }

    /// Records that only the agent can end the remaining processes now, so it must not be suspended. Either it has just said `Done`, or
    /// it is about to say that the guardian was lost.
    fn await_agent_report(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        cx.act(JobAction::WakeAgent { node });
        cx.notify(Notice::GuardianEnded(node));
        let guardian_lost = self.nodes.get(node.index()).is_some_and(|known| known.guardian_lost);
        let until = if guardian_lost { None } else { Some(Patience::new(cx.now, ANSWER)) };
        self.set(node, State::GuardianEnded { until });
    }

    /// The guardian ends the node and counts. The guardian of another host may not get the order: then the lease ends the node.
    fn sever(&mut self, cx: &mut Cx<'_>, node: NodeId, agent: bool) {
        cx.act(JobAction::Sever { node });
        let until = cx.facts.hosts.is_local(node).then(|| Patience::new(cx.now, RECORD));
        cx.notify(Notice::Severed(node));
        self.set(node, State::Waiting { until, guardian: true, agent });
    }

    fn state(&self, node: NodeId) -> State {
        // A node that does not exist has nothing to report.
        self.nodes.get(node.index()).map_or(State::Known, |known| known.state)
    }

    fn set(&mut self, node: NodeId, to: State) {
        let until = match to {
            State::GuardianEnded { until } | State::Waiting { until, .. } => until,
            State::Up | State::Known => None,
        };
        self.due.set(node, until.map(|until| until.deadline()));
        if let Some(known) = self.nodes.get_mut(node.index()) {
            known.state = to;
        }
    }

    fn known(&mut self, cx: &mut Cx<'_>, node: NodeId, left: Option<u32>, named: Vec<Leftover>) {
        cx.notify(Notice::Log(What::HostDone { node, left, named }));
        cx.notify(Notice::NodeOver(node));
        self.count(cx, node, left);
    }

    fn count(&mut self, cx: &mut Cx<'_>, node: NodeId, left: Option<u32>) {
        self.set(node, State::Known);
        if let Some(known) = self.nodes.get_mut(node.index()) {
            known.left = left;
        }
        self.unknown = self.unknown.saturating_sub(1);
        self.notify_if_counted(cx);
    }
}

fn part(cx: &mut Cx<'_>, node: NodeId, lost: Lost) {
    cx.notify(Notice::Lost { node, lost });
}
