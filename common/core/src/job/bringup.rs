//! From nothing to nodes that start their ranks: what each is sent first, and what it answers.
//!
//! The launcher's own host, where it is the only one, is sent everything at once, without waiting for `Hello`: the answer
//! would cost a round trip before the first rank, and a node that refuses drops the rest. Of several hosts none starts a
//! rank before all are ready: a job that is not complete cannot do its work.

use super::notice::Notice;
use super::orders::{self, Orders};
use super::{Cx, HostFailure, JobAction, Setting};
use crate::events::{Cause, What};
use crate::id::{NodeId, Rank};
use crate::os_bytes::OsBytes;
use crate::place::Node;
use crate::report::Sentence;
use crate::spec::JobSpec;
use crate::travel::Lowered;
use crate::wire::to_node::{Meeting, ToNode};
use crate::wire::to_root::{Hello, Refusal};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What is known of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// Its agent is being started.
    Connecting,
    /// It was told of the job.
    Waiting,
    /// It has introduced itself.
    Up(Hello),
    /// It could start its ranks.
    Ready(Hello),
    /// It cannot do what was asked for.
    Refused(Refusal),
    /// Its agent could not be started.
    Failed,
}

/// The bring-up of all nodes.
#[derive(Debug)]
pub(super) struct Bringup {
    /// `None`: everything was ordered.
    orders: Option<Orders>,
    nodes: Vec<State>,
    sole: bool,
    /// A node has to choose the port: then it matters whether it could reserve it.
    chooses_port: bool,
    /// Ranks were asked for, or never will be.
    settled: bool,
}

impl Bringup {
    pub(super) fn new(spec: Arc<JobSpec>, setting: &Setting) -> Self {
        let state = |node: &Node| if node.local { State::Waiting } else { State::Connecting };
        let nodes = spec.placement.nodes.iter().map(state).collect();
        let orders = Orders::new(spec, setting);
        let chooses_port = orders.chooses_port();
        Self { nodes, sole: orders.is_sole(), orders: Some(orders), chooses_port, settled: false }
    }

    pub(super) fn start(&mut self, cx: &mut Cx<'_>) {
        let Some(orders) = &self.orders else { return };
        for (state, node) in self.nodes.iter().zip((0..).map(NodeId::new)) {
            match state {
                State::Waiting => orders.begin(cx, node),
                State::Connecting | State::Up(_) | State::Ready(_) | State::Refused(_) | State::Failed => {
                    cx.act(JobAction::Connect { node });
                }
            }
        }
        if self.sole {
            orders.ranks(cx, NodeId::new(0));
            self.settled = true;
            self.orders = None;
        }
    }

    /// The edge to a node's agent is there.
    pub(super) fn edge_up(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if let Some(state @ State::Connecting) = self.nodes.get_mut(node.index()) {
            *state = State::Waiting;
            match &self.orders {
                Some(orders) if !self.settled => orders.begin(cx, node),
                // It came too late: the job ends, and so does the node.
                Some(_) | None => cx.act(JobAction::Send { node, msg: ToNode::Kill }),
            }
        }
    }

    pub(super) fn hello(&mut self, cx: &mut Cx<'_>, node: NodeId, hello: Hello) {
        // Said twice, or after a refusal: it changes nothing.
        let Some(state @ State::Waiting) = self.nodes.get_mut(node.index()) else { return };
        *state = State::Up(hello.clone());
        if self.chooses_port && hello.master_port != 0 && !hello.port_reserved {
            cx.act(JobAction::Say(Sentence::PortUnreserved { port: hello.master_port }));
        }
        if !hello.note.is_empty() && !hello.usual {
            cx.act(JobAction::Say(Sentence::Tier { tier: hello.tier, note: hello.note.clone() }));
        }
        cx.tell(Notice::Log(What::HostReady { node, hello }));
    }

    pub(super) fn ready(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(state) = self.nodes.get_mut(node.index()) else { return };
        match state {
            State::Up(hello) => *state = State::Ready(hello.clone()),
            State::Connecting | State::Waiting | State::Ready(_) | State::Refused(_) | State::Failed => return,
        }
        self.settle(cx);
    }

    /// A refusal may come after `Hello` too: the node ran into it later, and rolls back. The other nodes are waited for: the
    /// user is told of all that refuse at once.
    pub(super) fn refused(&mut self, cx: &mut Cx<'_>, node: NodeId, why: Refusal) {
        let Some(state) = self.nodes.get_mut(node.index()) else { return };
        match state {
            State::Waiting | State::Up(_) | State::Ready(_) => *state = State::Refused(why.clone()),
            State::Connecting | State::Refused(_) | State::Failed => return,
        }
        cx.tell(Notice::Log(What::HostRefused { node, why: why.clone() }));
        if self.settled {
            return cx.tell(Notice::End(Cause::Refused { node, why }));
        }
        self.settle(cx);
        // It counts what is left, and nobody waits for its ranks.
        cx.tell(Notice::Absent(node));
    }

    /// A node's agent could not be started. The others are waited for: the user is told of all that fail at once.
    pub(super) fn failed(&mut self, cx: &mut Cx<'_>, node: NodeId, why: HostFailure) {
        if let Some(state @ State::Connecting) = self.nodes.get_mut(node.index()) {
            *state = State::Failed;
            cx.tell(Notice::Log(What::HostFailed { node, why }));
            self.settle(cx);
        }
    }

    /// The ending has begun: no rank will be started.
    pub(super) fn began(&mut self, cx: &mut Cx<'_>) {
        self.settled = true;
        for (state, node) in self.nodes.iter_mut().zip((0..).map(NodeId::new)) {
            if *state == State::Connecting {
                cx.act(JobAction::GiveUp { node });
            }
        }
    }

    /// Tells every node that can hear it. The only one knows by itself that its ranks have ended.
    pub(super) fn broadcast(&self, cx: &mut Cx<'_>, msg: &ToNode) {
        if self.sole && *msg == ToNode::Finish {
            return;
        }
        for (state, node) in self.nodes.iter().zip((0..).map(NodeId::new)) {
            match state {
                State::Connecting | State::Failed => {}
                State::Waiting | State::Up(_) | State::Ready(_) | State::Refused(_) => {
                    cx.act(JobAction::Send { node, msg: msg.clone() });
                }
            }
        }
    }

    /// Once all are ready, or one cannot be had and the others have said what they can.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        let waiting = |state: &State| matches!(state, State::Connecting | State::Waiting | State::Up(_));
        if self.settled || self.nodes.iter().any(waiting) {
            return;
        }
        if let Some(cause) = self.cause() {
            self.settled = true;
            return cx.tell(Notice::End(cause));
        }
        self.settled = true;
        let Some(orders) = self.orders.take() else { return };
        self.tell_lowered(cx, &orders);
        let (meeting, seen) = self.meeting(&orders);
        if !seen {
            cx.act(JobAction::Say(Sentence::Unseen { addr: meeting.addr.clone() }));
        }
        for node in (0..).map(NodeId::new).take(self.nodes.len()) {
            cx.act(JobAction::Send { node, msg: ToNode::Meet(meeting.clone()) });
            orders.ranks(cx, node);
        }
    }

    /// Why the job cannot start, if it cannot.
    fn cause(&self) -> Option<Cause> {
        let is_missing = |state: &&State| matches!(state, State::Failed | State::Refused(_));
        let missing = count(self.nodes.iter().filter(is_missing));
        let nodes = || self.nodes.iter().zip((0..).map(NodeId::new));
        let failed = nodes().find(|(state, _)| matches!(state, State::Failed));
        let refused = nodes().find_map(|(state, node)| match state {
            State::Refused(why) => Some(Cause::Refused { node, why: why.clone() }),
            State::Connecting | State::Waiting | State::Up(_) | State::Ready(_) | State::Failed => None,
        });
        let unreachable = |(_, node)| Cause::Unreachable { node, failed: missing, asked: count(self.nodes.iter()) };
        failed.map(unreachable).or(refused)
    }

    /// Rank 0's host, as the others reach it: by the address by which we do. Where it is ours, by one of its own from which
    /// they see us come. False: none of them has seen it there, because they are behind somebody.
    fn meeting(&self, orders: &Orders) -> (Meeting, bool) {
        let first = orders.node_of(Rank::new(0));
        let hello = self.hello_of(first.index());
        let chosen = hello.map(|hello| hello.master_port).filter(|port| *port != 0);
        let own: &[OsBytes] = hello.and_then(|hello| hello.reached.as_ref()).map_or(&[], |reached| &*reached.at);
        let from = |n: usize| Some(&self.hello_of(n)?.reached.as_ref()?.from);
        let seen = || (0..self.nodes.len()).filter(|n| *n != first.index()).filter_map(from);
        let is_seen = |addr: &&OsBytes| seen().any(|from| from == *addr);
        let from_outside = orders.is_local(first) && seen().any(|from| !is_loopback(from));
        let (addr, known) = match own.iter().find(is_seen) {
            Some(addr) if from_outside => (Some(addr), true),
            Some(_) | None => (own.first().or_else(|| seen().next()), !from_outside || own.is_empty()),
        };
        let addr = addr.cloned().unwrap_or_else(|| orders::LOOPBACK.into());
        (Meeting { addr, port: orders.pinned_port().or(chosen) }, known || orders.names_interface())
    }

    fn hello_of(&self, n: usize) -> Option<&Hello> {
        match self.nodes.get(n) {
            Some(State::Ready(hello)) => Some(hello),
            Some(State::Connecting | State::Waiting | State::Up(_) | State::Refused(_) | State::Failed) | None => None,
        }
    }

    /// Limits that did not travel whole: once for all hosts where they ended alike.
    fn tell_lowered(&self, cx: &mut Cx<'_>, orders: &Orders) {
        let mut all: BTreeMap<Lowered, Vec<NodeId>> = BTreeMap::new();
        for node in (0..).map(NodeId::new).take(self.nodes.len()) {
            for lowered in self.hello_of(node.index()).into_iter().flat_map(|hello| &*hello.lowered) {
                all.entry(*lowered).or_default().push(node);
            }
        }
        for (lowered, nodes) in all {
            let hosts = orders.folded(&nodes);
            cx.act(JobAction::Say(Sentence::Lowered { lowered, hosts }));
        }
    }
}

fn is_loopback(addr: &OsBytes) -> bool {
    addr.starts_with(b"127.") || addr.as_slice() == b"::1"
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    items.fold(0, |sum, _| sum.saturating_add(1))
}
