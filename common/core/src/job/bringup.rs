//! From nothing to nodes that start their ranks: what each is sent first, and what it answers.
//!
//! The launcher's own host, where it is the only one, is sent everything at once, without waiting for `Hello`: the answer
//! would cost a round trip before the first rank, and a node that refuses drops the rest. Of several hosts none starts a
//! rank before all are ready: a job that is not complete cannot do its work. Where the user has said how many are enough
//! (`--min-hosts`), all are still waited for, until each is ready or cannot be had; then the ranks of those that cannot are
//! dropped, and nobody has heard of a rank or of the number of ranks before.

use super::notice::Notice;
use super::orders::{self, Orders};
use super::{Cx, HostFailure, JobAction, Setting};
use crate::events::{Cause, What};
use crate::id::{NodeId, Rank};
use crate::os_bytes::OsBytes;
use crate::place::Node;
use crate::report::Sentence;
use crate::spec::JobSpec;
use crate::time::Span;
use crate::travel::Lowered;
use crate::wire::to_node::{Meeting, ToNode};
use crate::wire::to_root::{Hello, Refusal};
use alloc::collections::BTreeMap;
use alloc::format;
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
    /// Its agent was started, and it or another part of ours was lost; the others may be enough.
    Lost,
    /// The job does without it.
    LeftOut,
}

impl State {
    /// It has still to say whether it can be had.
    const fn is_open(&self) -> bool {
        matches!(self, Self::Connecting | Self::Waiting | Self::Up(_))
    }

    /// It cannot be had.
    const fn is_missing(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Failed | Self::Lost)
    }
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
                State::Connecting
                | State::Up(_)
                | State::Ready(_)
                | State::Refused(_)
                | State::Failed
                | State::Lost
                | State::LeftOut => {
                    cx.act(JobAction::Connect { node });
                }
            }
        }
        if self.sole {
            orders.all_ranks(cx);
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
        if self.sole {
            self.tell_port(cx, &hello);
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
            State::Connecting
            | State::Waiting
            | State::Ready(_)
            | State::Refused(_)
            | State::Failed
            | State::Lost
            | State::LeftOut => return,
        }
        self.settle(cx);
    }

    /// A refusal may come after `Hello` too: the node ran into it later, and rolls back. The other nodes are waited for: the
    /// user is told of all that refuse at once.
    pub(super) fn refused(&mut self, cx: &mut Cx<'_>, node: NodeId, why: Refusal) {
        let Some(state) = self.nodes.get_mut(node.index()) else { return };
        match state {
            State::Waiting | State::Up(_) | State::Ready(_) => *state = State::Refused(why.clone()),
            State::Connecting | State::Refused(_) | State::Failed | State::Lost | State::LeftOut => return,
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

    /// A node that was reached takes too long to be ready; true if it was still waited for. No rank was asked for there, so
    /// whatever its agent is doing, nothing of the job has to be counted.
    pub(super) fn late(&mut self, cx: &mut Cx<'_>, node: NodeId, limit: Span) -> bool {
        let Some(state) = self.nodes.get_mut(node.index()).filter(|_| !self.settled) else { return false };
        let awaited = match state {
            State::Waiting => "its agent has started, and is not heard of",
            State::Up(_) => "its agent is still looking for the directory and the program",
            State::Connecting | State::Ready(_) | State::Refused(_) | State::Failed | State::Lost | State::LeftOut => {
                return false;
            }
        };
        *state = State::Failed;
        let why = HostFailure {
            why: format!("not ready within {limit}: {awaited}").into(),
            hint: "see whether a file system hangs there; a longer --connect-timeout".into(),
            ..HostFailure::default()
        };
        cx.tell(Notice::Log(What::HostFailed { node, why }));
        // An agent that hangs does not listen: its guardian ends it.
        cx.act(JobAction::Sever { node });
        self.settle(cx);
        true
    }

    /// A part of ours was lost on a node; true if the job can do without the node. That may be so before the start only, and
    /// the others are waited for then, as if it had not been reached.
    pub(super) fn spares(&mut self, cx: &mut Cx<'_>, node: NodeId) -> bool {
        let enough = self.can_spare();
        let Some(state) = self.nodes.get_mut(node.index()) else { return false };
        match state {
            State::LeftOut => true,
            State::Refused(_) | State::Failed | State::Lost => !self.settled,
            State::Waiting | State::Up(_) | State::Ready(_) if enough => {
                *state = State::Lost;
                self.settle(cx);
                true
            }
            State::Connecting | State::Waiting | State::Up(_) | State::Ready(_) => false,
        }
    }

    /// One host more may be missing.
    fn can_spare(&self) -> bool {
        let rest = self.nodes.iter().filter(|state| !state.is_missing()).count();
        !self.settled && self.orders.as_ref().is_some_and(|orders| orders.least() < rest)
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
                State::Connecting | State::Failed | State::LeftOut => {}
                State::Waiting | State::Up(_) | State::Ready(_) | State::Refused(_) | State::Lost => {
                    cx.act(JobAction::Send { node, msg: msg.clone() });
                }
            }
        }
    }

    /// Once of each it is known whether it can be had.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        if self.settled || self.nodes.iter().any(State::is_open) {
            return;
        }
        self.settled = true;
        let Some(mut orders) = self.orders.take() else { return };
        match self.gather(cx, &mut orders) {
            Ok(()) => self.go(cx, &orders),
            Err(cause) => cx.tell(Notice::End(cause)),
        }
    }

    /// Leaves out who is missing, if the others are enough, or tells why the job cannot start.
    fn gather(&mut self, cx: &mut Cx<'_>, orders: &mut Orders) -> Result<(), Cause> {
        loop {
            let missing: Vec<NodeId> = self.which(State::is_missing).collect();
            let enough = self.nodes.len().saturating_sub(missing.len()) >= orders.least();
            if !enough || !orders.leave_out(&missing) {
                return self.cause().map_or(Ok(()), Err);
            }
            let first = orders.node_of(Rank::new(0));
            let Some(why) = self.no_interface(first, orders) else { return Ok(()) };
            // Rank 0 cannot be found there as asked for: another host may have it.
            if let Some(state) = self.nodes.get_mut(first.index()) {
                *state = State::Refused(why.clone());
            }
            cx.tell(Notice::Log(What::HostRefused { node: first, why }));
            cx.tell(Notice::Absent(first));
        }
    }

    /// Has all who are there start their ranks.
    fn go(&mut self, cx: &mut Cx<'_>, orders: &Orders) {
        if let Some(placement) = orders.fewer() {
            let nodes: Vec<NodeId> = self.which(State::is_missing).collect();
            for node in &nodes {
                if let Some(state) = self.nodes.get_mut(node.index()) {
                    *state = State::LeftOut;
                }
                // Whatever is still there has nothing to do any more.
                cx.act(JobAction::Send { node: *node, msg: ToNode::Kill });
            }
            cx.act(JobAction::Reseat(Arc::clone(placement)));
            cx.tell(Notice::LeftOut { nodes, placement: Arc::clone(placement) });
        }
        self.tell_lowered(cx, orders);
        let (meeting, seen) = self.meeting(orders);
        if let Some(hello) = self.hello_of(orders.node_of(Rank::new(0)).index()) {
            self.tell_port(cx, hello);
        }
        if !seen {
            cx.act(JobAction::Say(Sentence::Unseen { addr: meeting.addr.clone() }));
        }
        orders.meet(cx, &meeting);
    }

    fn which(&self, is: impl Fn(&State) -> bool) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().zip((0..).map(NodeId::new)).filter(move |(state, _)| is(state)).map(|(_, node)| node)
    }

    /// Why the job cannot start.
    fn cause(&self) -> Option<Cause> {
        let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
        let (failed, asked) = (count(self.which(State::is_missing).count()), count(self.nodes.len()));
        let unreachable = |node| Cause::Unreachable { node, failed, asked };
        let gone = self.which(|state| matches!(state, State::Failed | State::Lost)).next();
        let refused = || {
            self.nodes.iter().zip((0..).map(NodeId::new)).find_map(|(state, node)| match state {
                State::Refused(why) => Some(Cause::Refused { node, why: why.clone() }),
                State::Connecting
                | State::Waiting
                | State::Up(_)
                | State::Ready(_)
                | State::Failed
                | State::Lost
                | State::LeftOut => None,
            })
        };
        gone.map(unreachable).or_else(refused)
    }

    /// The host is to be found at an interface that it has not.
    fn no_interface(&self, node: NodeId, orders: &Orders) -> Option<Refusal> {
        let reached = self.hello_of(node.index())?.reached.as_ref()?;
        let lacks = !orders.interface().is_empty() && reached.at.is_empty();
        lacks.then(|| Refusal::NoInterface { name: orders.interface().clone(), has: reached.has.clone() })
    }

    /// A port that is not reserved matters where we have chosen it.
    fn tell_port(&self, cx: &mut Cx<'_>, hello: &Hello) {
        if self.chooses_port && hello.master_port != 0 && !hello.port_reserved {
            cx.act(JobAction::Say(Sentence::PortUnreserved { port: hello.master_port }));
        }
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
        (orders.meeting(addr, orders.pinned_port().or(chosen)), known || !orders.interface().is_empty())
    }

    fn hello_of(&self, n: usize) -> Option<&Hello> {
        match self.nodes.get(n) {
            Some(State::Ready(hello)) => Some(hello),
            Some(
                State::Connecting
                | State::Waiting
                | State::Up(_)
                | State::Refused(_)
                | State::Failed
                | State::Lost
                | State::LeftOut,
            )
            | None => None,
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
