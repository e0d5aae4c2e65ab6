//! An agent that has to end its node and says nothing: the guardian does it instead.
//!
//! An agent may be stopped, frozen, or stuck in the kernel. While a job runs that is nobody's business: it may be woken
//! again. But once SIGKILL is due it has to answer, because a user who asked for that must not wait for ever.

use super::Cx;
use super::deadlines::Deadlines;
use super::notice::{Began, Notice};
use super::patience::Patience;
use crate::id::NodeId;
use crate::spec::JobSpec;
use crate::time::{Mono, Span};
use alloc::vec::Vec;

/// How long an agent of this host may take to say that SIGKILL is on its way.
pub(super) const ANSWER: Span = Span::from_secs(1);
/// How long it may then be silent: more than the 2 s after which it names what the kernel cannot end.
const SILENCE: Span = Span::from_secs(4);
/// How long the network may take besides, both ways, with packets that have to be sent again; never more than half a lease,
/// after which the node ends by itself.
const TRIP: Span = Span::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The agent does not exist yet.
    Absent,
    /// The agent owes nothing.
    Free,
    /// It will owe a word from here on: what it said before is no answer.
    Due(Mono),
    /// It owes a word, for as long as this lasts.
    Owes(Patience),
    /// It was given up, or has told everything.
    Over,
}

/// The agents' silence.
#[derive(Debug)]
pub(super) struct Mute {
    nodes: Vec<Node>,
    due: Deadlines,
    /// The ending has begun; SIGKILL is due then, or was sent.
    began: Option<Option<Mono>>,
}

impl Mute {
    pub(super) fn new(spec: &JobSpec) -> Self {
        let trip = Span::from_nanos(spec.lease.nanos() / 2).min(TRIP);
        let nodes: Vec<Node> = spec.placement.nodes.iter().map(|node| Node::new(node.local, trip)).collect();
        Self { due: Deadlines::new(nodes.len()), nodes, began: None }
    }

    pub(super) fn edge_up(&mut self, cx: &Cx<'_>, node: NodeId) {
        let began = self.began;
        self.change(node, |node| node.edge_up(cx.now, began));
    }

    /// The end of the ranks is due at the end of the grace.
    pub(super) fn began(&mut self, cx: &Cx<'_>, began: &Began) {
        self.began = Some(began.kill_at);
        self.change_all(|node| node.began(cx.now, began.kill_at));
    }

    /// It has to be answered whatever the agents were doing.
    pub(super) fn killed(&mut self, cx: &Cx<'_>) {
        self.change_all(|node| node.owes(cx.now, ANSWER));
    }

    /// The same for one node.
    pub(super) fn doomed(&mut self, cx: &Cx<'_>, node: NodeId) {
        self.change(node, |node| node.owes(cx.now, ANSWER));
    }

    /// The agents have credit for all that they have, so they have nothing to wait for.
    pub(super) fn abandoned(&mut self, cx: &Cx<'_>) {
        self.change_all(|node| node.abandoned(cx.now));
    }

    pub(super) fn heard(&mut self, cx: &Cx<'_>, node: NodeId) {
        self.change(node, |node| node.heard(cx.now));
    }

    /// From here on a node may be waiting for our own reader, however long that takes.
    pub(super) fn ranks_over(&mut self, node: NodeId) {
        self.change(node, Node::ranks_over);
    }

    pub(super) fn all_over(&mut self) {
        self.change_all(Node::ranks_over);
    }

    pub(super) fn node_over(&mut self, node: NodeId) {
        self.change(node, |node| node.state = State::Over);
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        while let Some(id) = self.due.pop(cx.now) {
            let mut mute = false;
            self.change(id, |node| mute = node.timeout(cx.now));
            if mute {
                cx.tell(Notice::Mute(id));
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.next()
    }

    fn change(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(id.index()) {
            change(node);
            self.due.set(id, node.deadline());
        }
    }

    fn change_all(&mut self, change: impl Fn(&mut Node)) {
        for id in (0..).map(NodeId::new).take(self.nodes.len()) {
            self.change(id, &change);
        }
    }
}

/// One agent's silence.
#[derive(Debug)]
struct Node {
    state: State,
    ranks_over: bool,
    /// What the network may take.
    trip: Span,
}

impl Node {
    const fn new(local: bool, trip: Span) -> Self {
        let (state, trip) = if local { (State::Free, Span::ZERO) } else { (State::Absent, trip) };
        Self { state, ranks_over: false, trip }
    }

    /// An agent that comes too late is told at once to end.
    fn edge_up(&mut self, now: Mono, began: Option<Option<Mono>>) {
        match self.state {
            State::Absent => self.state = State::Free,
            State::Free | State::Due(_) | State::Owes(_) | State::Over => {}
        }
        if began.is_some() {
            self.began(now, None);
        }
    }

    fn began(&mut self, now: Mono, kill_at: Option<Mono>) {
        if !self.ranks_over {
            match (kill_at, self.state) {
                (Some(due), State::Free) => self.state = State::Due(due),
                (None, State::Free) => self.owes(now, ANSWER),
                (_, State::Absent | State::Due(_) | State::Owes(_) | State::Over) => {}
            }
        }
    }

    fn abandoned(&mut self, now: Mono) {
        match self.state {
            State::Free => self.owes(now, SILENCE),
            State::Absent | State::Due(_) | State::Owes(_) | State::Over => {}
        }
    }

    fn heard(&mut self, now: Mono) {
        match self.state {
            State::Due(since) if since > now => {}
            State::Due(_) | State::Owes(_) => self.state = State::Owes(Patience::new(now, SILENCE + self.trip)),
            State::Absent | State::Free | State::Over => {}
        }
    }

    fn ranks_over(&mut self) {
        self.ranks_over = true;
        match self.state {
            State::Free | State::Due(_) | State::Owes(_) => self.state = State::Free,
            State::Absent | State::Over => {}
        }
    }

    /// Whether nothing is expected of it any more.
    fn timeout(&mut self, now: Mono) -> bool {
        match &mut self.state {
            State::Due(since) if *since <= now => self.owes(now, ANSWER),
            State::Owes(patience) => {
                if patience.is_out(now) {
                    self.state = State::Over;
                    return true;
                }
            }
            State::Absent | State::Free | State::Due(_) | State::Over => {}
        }
        false
    }

    fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Due(since) => Some(since),
            State::Owes(patience) => Some(patience.deadline()),
            State::Absent | State::Free | State::Over => None,
        }
    }

    fn owes(&mut self, now: Mono, how_long: Span) {
        let patience = Patience::new(now, how_long + self.trip);
        match self.state {
            State::Free | State::Due(_) => self.state = State::Owes(patience),
            State::Owes(earlier) => self.state = State::Owes(patience.min(earlier)),
            State::Absent | State::Over => {}
        }
    }
}
