//! An agent that has to end its node and says nothing: the guardian does it instead.
//!
//! An agent may be stopped, frozen, or stuck in the kernel. While a job runs that does not matter: it may be woken again. But once
//! SIGKILL is due it has to answer, because a user who asked for that must not wait for ever.
//!
//! Without a guardian no other process can end the node, or count it. Then the agent has to be awake to the end. That holds also when its
//! ranks have ended, and the agent waits only for a slow reader of the launcher's. The launcher asks the agent again and again.

use super::notice::{EndingBegan, Notice};
use super::{Cx, JobAction};
use alloc::vec::Vec;
use rlaunch_base::deadlines::Deadlines;
use rlaunch_base::id::NodeId;
use rlaunch_base::patience::Patience;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_node::ToNode;

/// How long an agent of this host may take to say that SIGKILL is on its way.
pub(super) const ANSWER: Span = Span::from_secs(1);
/// How long it may then be silent: more than the 2 s after which it names what the kernel cannot end.
const SILENCE: Span = Span::from_secs(4);
/// How long the network may take besides, both ways, with packets that have to be sent again; never more than half a lease,
/// after which the node ends by itself.
const TRIP: Span = Span::from_secs(10);

/// The agents' silence.
#[derive(Debug)]
pub(super) struct KillWatchdog {
    nodes: Vec<Node>,
    due: Deadlines,
    /// The ending has begun.
    began: bool,
}

impl KillWatchdog {
    pub(super) fn new(spec: &JobSpec) -> Self {
        let trip = Span::from_nanos(spec.settings.hosts.lease.nanos() / 2).min(TRIP);
        let nodes: Vec<Node> = spec.placement.nodes.iter().map(|node| Node::new(node.local, trip)).collect();
        Self { due: Deadlines::new(nodes.len()), nodes, began: false }
    }

    /// Sends the order to end to an agent that arrives while the job is ending.
    pub(super) fn edge_up(&mut self, cx: &Cx<'_>, node: NodeId) {
        let late = self.began;
        self.change(cx, node, |node| {
            if late {
                node.on_ending_began(cx.now, None);
            }
        });
    }

    /// The end of the ranks is due at the end of the grace.
    pub(super) fn on_ending_began(&mut self, cx: &Cx<'_>, began: &EndingBegan) {
        self.began = true;
        self.change_all(cx, |node| node.on_ending_began(cx.now, began.kill_at));
    }

    /// Requires an answer to SIGKILL, whatever the agents were doing.
    pub(super) fn killed(&mut self, cx: &Cx<'_>) {
        self.change_all(cx, |node| node.owes(cx.now, ANSWER));
    }

    /// The same for one node.
    pub(super) fn doomed(&mut self, cx: &Cx<'_>, node: NodeId) {
        self.change(cx, node, |node| node.owes(cx.now, ANSWER));
    }

    /// The agents have credit for all that they have, so they have nothing to wait for.
    pub(super) fn abandoned(&mut self, cx: &Cx<'_>) {
        self.change_all(cx, |node| node.abandoned(cx.now));
    }

    /// A guardian was lost, and SIGKILL was asked for because of it.
    pub(super) fn on_guardian_lost(&mut self, cx: &Cx<'_>, node: NodeId) {
        self.change(cx, node, |node| node.on_guardian_lost(cx.now));
    }

    /// Records the end of its guardian: the agent has most likely ended first, and its last messages are on their way.
    pub(super) fn on_guardian_ended(&mut self, cx: &Cx<'_>, node: NodeId) {
        self.change(cx, node, |node| node.on_guardian_ended(cx.now));
    }

    pub(super) fn on_message(&mut self, cx: &Cx<'_>, node: NodeId) {
        self.change(cx, node, |node| node.on_message(cx.now));
    }

    /// Records that SIGKILL is on its way. By the node's clock the grace has expired; it may have run on while the launcher was
    /// suspended.
    pub(super) fn killing(&mut self, cx: &Cx<'_>, node: NodeId) {
        self.change(cx, node, |node| node.killing(cx.now));
    }

    /// From here on a node may be waiting for our own reader, however long that takes.
    pub(super) fn ranks_over(&mut self, cx: &Cx<'_>, node: NodeId) {
        self.change(cx, node, |node| node.ranks_over(cx.now));
    }

    pub(super) fn all_over(&mut self, cx: &Cx<'_>) {
        self.change_all(cx, |node| node.ranks_over(cx.now));
    }

    /// A rank of this node is started again.
    pub(super) fn on_ranks_cleared(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.ranks_over = false;
        }
    }

    /// Ranks are started again everywhere.
    pub(super) fn reset_for_generation(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.ranks_over = false);
    }

    /// A host is reached again.
    pub(super) fn revive(&mut self, node: NodeId) {
        self.due.set(node, None);
        if let Some(node) = self.nodes.get_mut(node.index()) {
            *node = Node { state: State::Free, ranks_over: false, guardian_lost: false, trip: node.trip };
        }
    }

    pub(super) fn node_over(&mut self, node: NodeId) {
        self.due.set(node, None);
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.state = State::Over;
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        while let Some(id) = self.due.pop(cx.now) {
            let mut what = None;
            self.change(cx, id, |node| what = node.timeout(cx.now));
            match what {
                Some(Due::AskAgain) => {
                    cx.act(JobAction::WakeAgent { node: id });
                    cx.act(JobAction::Send { node: id, msg: ToNode::Kill });
                }
                Some(Due::GiveUp) => cx.notify(Notice::AgentUnresponsive(id)),
                None => {}
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.next()
    }

    fn change(&mut self, cx: &Cx<'_>, id: NodeId, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(id.index()) {
            change(node);
            // An agent that is not there yet owes nothing.
            if cx.facts.hosts.is_awaited(id) && node.state != State::Over {
                node.state = State::Free;
            }
            self.due.set(id, node.deadline());
        }
    }

    fn change_all(&mut self, cx: &Cx<'_>, change: impl Fn(&mut Node)) {
        for id in (0..).map(NodeId::new).take(self.nodes.len()) {
            self.change(cx, id, &change);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The agent owes nothing.
    Free,
    /// An answer is due when this time has expired. Before that only the message that it kills is an answer. The agent's grace began when
    /// it got the order. That was later than the launcher assumes if the host was suspended just then.
    Due(Patience),
    /// An answer is due within this time.
    Owes(Patience),
    /// The agent has answered, and is asked again at this time.
    Rests(Mono),
    /// The agent was given up, or has reported everything.
    Over,
}

/// A step that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// The agent has to be asked again.
    AskAgain,
    /// Nothing is expected of it any more.
    GiveUp,
}

/// The silence of one agent.
#[derive(Debug)]
struct Node {
    state: State,
    ranks_over: bool,
    guardian_lost: bool,
    /// Time that the network may take.
    trip: Span,
}

impl Node {
    const fn new(local: bool, trip: Span) -> Self {
        let trip = if local { Span::ZERO } else { trip };
        Self { state: State::Free, ranks_over: false, guardian_lost: false, trip }
    }

    fn on_ending_began(&mut self, now: Mono, kill_at: Option<Mono>) {
        if !self.ranks_over {
            match (kill_at, self.state) {
                (Some(due), State::Free) => self.state = State::Due(Patience::new(now, due.since(now) + self.trip)),
                (None, State::Free) => self.owes(now, ANSWER),
                (_, State::Due(_) | State::Owes(_) | State::Rests(_) | State::Over) => {}
            }
        }
    }

    fn abandoned(&mut self, now: Mono) {
        match self.state {
            State::Free => self.owes(now, SILENCE),
            State::Due(_) | State::Owes(_) | State::Rests(_) | State::Over => {}
        }
    }

    fn on_guardian_lost(&mut self, now: Mono) {
        self.guardian_lost = true;
        if self.ranks_over {
            self.owes(now, ANSWER);
        }
    }

    fn on_guardian_ended(&mut self, now: Mono) {
        let patience = Patience::new(now, ANSWER + self.trip);
        match self.state {
            State::Owes(earlier) => self.state = State::Owes(patience.max(earlier)),
            State::Free | State::Due(_) | State::Rests(_) | State::Over => {}
        }
    }

    fn on_message(&mut self, now: Mono) {
        match &mut self.state {
            State::Due(grace) => {
                if grace.is_out(now) {
                    self.answered(now);
                }
            }
            State::Owes(_) => self.answered(now),
            State::Free | State::Rests(_) | State::Over => {}
        }
    }

    fn killing(&mut self, now: Mono) {
        match self.state {
            State::Due(_) | State::Owes(_) => self.answered(now),
            State::Free | State::Rests(_) | State::Over => {}
        }
    }

    fn answered(&mut self, now: Mono) {
        if self.guardian_lost && self.ranks_over {
            self.ask_again_later(now);
        } else {
            self.state = State::Owes(Patience::new(now, SILENCE + self.trip));
        }
    }

    fn ranks_over(&mut self, now: Mono) {
        self.ranks_over = true;
        match self.state {
            State::Free | State::Due(_) | State::Owes(_) | State::Rests(_) if self.guardian_lost => {
                self.ask_again_later(now)
            }
            State::Free | State::Due(_) | State::Owes(_) | State::Rests(_) => self.state = State::Free,
            State::Over => {}
        }
    }

    fn timeout(&mut self, now: Mono) -> Option<Due> {
        match &mut self.state {
            State::Due(grace) => {
                if grace.is_out(now) {
                    self.owes(now, ANSWER);
                }
                None
            }
            State::Owes(patience) => {
                let out = patience.is_out(now);
                if out {
                    self.state = State::Over;
                }
                out.then_some(Due::GiveUp)
            }
            State::Rests(until) if *until <= now => {
                self.owes(now, ANSWER);
                Some(Due::AskAgain)
            }
            State::Free | State::Rests(_) | State::Over => None,
        }
    }

    fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Rests(until) => Some(until),
            State::Due(patience) | State::Owes(patience) => Some(patience.deadline()),
            State::Free | State::Over => None,
        }
    }

    /// Schedules the next question to an agent that has answered.
    fn ask_again_later(&mut self, now: Mono) {
        self.state = State::Rests(now + SILENCE);
    }

    fn owes(&mut self, now: Mono, how_long: Span) {
        let patience = Patience::new(now, how_long + self.trip);
        match self.state {
            State::Free | State::Due(_) | State::Rests(_) => self.state = State::Owes(patience),
            State::Owes(earlier) => self.state = State::Owes(patience.min(earlier)),
            State::Over => {}
        }
    }
}
