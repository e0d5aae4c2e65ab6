//! From the failure of a rank to the next start of all of them (`--max-restarts`), or to the end of the job.
//!
//! All hosts are ordered to end their ranks, and report when none is left: two generations never run at once. Then it is known which rank
//! was the first, and with that whether, and after which pause, they are started again.

use super::Cx;
use super::notice::{Notice, RankExit};
use super::recovery::{seed, starts_again};
use crate::events::{Cause, Fewer, JobNews, Lost, RestartCause, What};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::patience::Patience;
use rlaunch_base::time::{Mono, Span};
use rlaunch_base::warnings::{OnWarning, Response, WarningPlan};
use rlaunch_protocol::restarts::{Decision, History};
use rlaunch_protocol::spec::JobSpec;

/// How much longer than the grace hosts may take to be clear. An agent that needs more is suspended, or cannot end its ranks: then the
/// job ends, and all of its processes with it.
const CLEARING: Span = Span::from_secs(10);

/// From look to look whether hosts whose devices are awaited are there.
const DEVICES: Span = Span::from_secs(1);

/// The cause of the end of a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// A rank failed, or its host was lost.
    Failed {
        /// The failure of the rank; of the first on a host that was lost.
        failure: RankExit,
        /// How the host was lost.
        lost: Option<Lost>,
    },
    /// More slices are up than the job runs on (`--grow now`).
    Grown {
        /// The larger valid size.
        size: u32,
        /// The size of the job.
        running: u32,
    },
}

impl Why {
    /// The same in the event log.
    const fn record(&self) -> RestartCause {
        match *self {
            Self::Failed { failure: RankExit { rank, node, status, .. }, lost } => {
                RestartCause::Failed { rank, node, status, lost }
            }
            Self::Grown { size, running } => RestartCause::Grown { size, running },
        }
    }
}

/// The consequence of the failure of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// The job's end, as far as this is concerned.
    Ends,
    /// All others are ended and started again.
    Clears,
    /// Nothing: they are being ended already.
    Known,
}

/// The state of the generations.
#[derive(Debug)]
enum State {
    /// Ranks run, or are being started.
    Running,
    /// The ranks are being ended.
    Clearing(Clearing),
    /// Nothing runs, and another generation follows.
    Pausing(Pause),
    /// The job ends, or begins no other generation whatever happens.
    Off,
}

#[derive(Debug)]
struct Clearing {
    /// The cause that was reported first.
    first: Why,
    /// The hosts that are not clear yet, and for each whether only output is waited for.
    open: BTreeMap<NodeId, bool>,
    /// Nodes that are clear, each with the port that it has chosen for the next generation, or 0.
    clear: BTreeMap<NodeId, u16>,
    /// A node where something is left that cannot be ended.
    left: Option<NodeId>,
    until: Patience,
}

/// The pause before another generation.
#[derive(Debug)]
pub(super) struct Pause {
    until: Mono,
    /// The pause is longer than it had to be.
    is_held: bool,
    /// The number of the generation.
    pub(super) restart: u32,
    /// Nodes on which nothing runs, each with the port that it has chosen, or 0.
    clear: BTreeMap<NodeId, u16>,
    /// The number of lost hosts that the user knows of.
    pub(super) reported: usize,
}

impl Pause {
    /// The ports that hosts have chosen.
    pub(super) fn ports(self) -> BTreeMap<NodeId, u16> {
        self.clear.into_iter().filter(|(_, port)| *port > 0).collect()
    }
}

/// The generations.
#[derive(Debug)]
pub(super) struct Generations {
    history: History,
    grace: Span,
    warnings: WarningPlan,
    state: State,
}

impl Generations {
    pub(super) fn new(spec: &JobSpec) -> Self {
        Self {
            history: History::new(spec.settings.restarts, seed(spec)),
            grace: spec.settings.ending.grace,
            warnings: spec.settings.warnings.clone(),
            state: if starts_again(spec) { State::Running } else { State::Off },
        }
    }

    /// How long ranks have from the request to end to SIGKILL.
    pub(super) const fn grace(&self) -> Span {
        self.grace
    }

    /// The time from SIGTERM to SIGKILL for that reason.
    pub(super) const fn grace_for(&self, why: &Why) -> Span {
        if let Why::Failed { lost: Some(Lost::Warned(_)), .. } = why { self.warnings.grace } else { self.grace }
    }

    /// The consequence of a warning for a job without rounds.
    pub(super) const fn response(&self) -> Response {
        match self.warnings.on_warning {
            OnWarning::Term => Response::Ends { grace: self.warnings.grace },
            OnWarning::Note => Response::Noted,
        }
    }

    /// The cause of the end of a job that ends with this. `held_by`: the node that has not ended its ranks.
    fn cause(&self, why: &Why, held_by: Option<NodeId>) -> Cause {
        match *why {
            Why::Failed { failure: RankExit { node, .. }, lost: Some(lost) } => self.cause_of_loss(node, lost),
            Why::Failed { failure: RankExit { rank, status, .. }, lost: None } => Cause::Rank { rank, status },
            Why::Grown { .. } => Cause::Lost { node: held_by.unwrap_or(NodeId::new(0)), lost: Lost::AgentMute },
        }
    }

    /// The cause of the end of a job that ends with the loss of a host. A loss for which retries were asked for is a preemption.
    pub(super) const fn cause_of_loss(&self, node: NodeId, lost: Lost) -> Cause {
        let is_used_up = self.history.had_retries() && !self.history.has_more_retries();
        if matches!(lost, Lost::Warned(_)) || is_used_up {
            Cause::Preempted { node, lost }
        } else {
            Cause::Lost { node, lost }
        }
    }

    /// Whether retries after preemptions were asked for, and whether any is left.
    pub(super) const fn retries(&self) -> (bool, bool) {
        (self.history.had_retries(), self.history.has_more_retries())
    }

    /// A rank has failed. `may_be_lost`: a host may be lost without our knowledge, and the failure may come of that.
    pub(super) fn fate(&self, failure: &RankExit, may_be_lost: bool) -> Fate {
        let has_more = self.history.has_more() || (may_be_lost && self.history.has_more_retries());
        match self.state {
            // Its agent ends the node: that is no failure of the rank.
            State::Running if has_more && !failure.asked => Fate::Clears,
            State::Running | State::Off => Fate::Ends,
            State::Clearing(_) | State::Pausing(_) => Fate::Known,
        }
    }

    /// Whether another generation may follow this one after the loss of a host.
    pub(super) const fn may_follow(&self) -> bool {
        match self.state {
            State::Running => self.history.has_more_retries(),
            State::Clearing(_) | State::Pausing(_) => true,
            State::Off => false,
        }
    }

    /// Whether the job ends, or never had another generation.
    pub(super) const fn is_off(&self) -> bool {
        matches!(self.state, State::Off)
    }

    /// Whether nothing runs on a node any more that could have to be ended.
    pub(super) fn is_clear(&self, node: NodeId) -> bool {
        match &self.state {
            State::Clearing(Clearing { clear, .. }) | State::Pausing(Pause { clear, .. }) => clear.contains_key(&node),
            State::Running | State::Off => false,
        }
    }

    /// Begins to clear these nodes: they were ordered to end their ranks, or are lost and have not. Some may take longer by the given
    /// time.
    pub(super) fn clearing(&mut self, cx: &mut Cx<'_>, first: Why, nodes: Vec<NodeId>, longer: Span) {
        let open = nodes.into_iter().map(|node| (node, false)).collect();
        let grace = self.grace_for(&first);
        let until = Patience::new(cx.now, grace + CLEARING + longer);
        self.state = State::Clearing(Clearing { first, open, clear: BTreeMap::new(), left: None, until });
        cx.notify(Notice::Log(What::Clearing { why: first.record(), grace }));
    }

    /// Between two generations: the ranks are being ended, or a pause precedes the next start. No exit of a rank is waited for.
    pub(super) const fn is_between(&self) -> bool {
        match self.state {
            State::Clearing(_) | State::Pausing(_) => true,
            State::Running | State::Off => false,
        }
    }

    /// Nothing runs anywhere.
    pub(super) const fn is_pausing(&self) -> bool {
        matches!(self.state, State::Pausing(_))
    }

    /// Ranks are being ended.
    pub(super) const fn is_clearing(&self) -> bool {
        matches!(self.state, State::Clearing(_))
    }

    /// Lengthens the pause: hosts are waited for, until then at most.
    pub(super) fn hold(&mut self, until: Mono) {
        if let State::Pausing(pause) = &mut self.state {
            (pause.until, pause.is_held) = (until, true);
        }
    }

    /// Lengthens the pause: devices are being freed. Hosts may be lost meanwhile.
    pub(super) fn await_devices(&mut self, now: Mono) {
        self.pause_until(now + DEVICES);
    }

    /// Whether the pause is longer only because hosts are waited for.
    pub(super) const fn is_held(&self) -> bool {
        matches!(self.state, State::Pausing(Pause { is_held: true, .. }))
    }

    /// The pause ends at that time, if there is one.
    pub(super) fn pause_until(&mut self, at: Mono) {
        if let State::Pausing(pause) = &mut self.state {
            pause.until = at;
        }
    }

    /// A node only waits for our reader.
    pub(super) fn draining(&mut self, node: NodeId) {
        if let State::Clearing(clearing) = &mut self.state
            && let Some(drains) = clearing.open.get_mut(&node)
        {
            *drains = true;
        }
    }

    /// A node is clear, or as clear as it can be made; the first failure once all are.
    pub(super) fn cleared(&mut self, node: NodeId, left: u32, port: u16) -> Option<Why> {
        let State::Clearing(clearing) = &mut self.state else { return None };
        clearing.open.remove(&node)?;
        clearing.clear.insert(node, port);
        clearing.left = clearing.left.or(Some(node).filter(|_| left > 0));
        clearing.open.is_empty().then_some(clearing.first)
    }

    /// All nodes are clear, and by now this is known to be the first; so long its rank had run. `fewer`: the ranks that are left, where
    /// hosts were lost.
    pub(super) fn decide(&mut self, cx: &mut Cx<'_>, first: &Why, lived: Span, fewer: Option<Box<Fewer>>) {
        let State::Clearing(Clearing { left, clear, .. }) = &self.state else { return };
        let (left, clear) = (*left, clear.clone());
        let end = Notice::End(self.cause(first, left));
        if left.is_some() {
            cx.notify(Notice::Log(What::News(JobNews::NotClear)));
            return cx.notify(end);
        }
        let decision = match *first {
            Why::Failed { lost: Some(_), .. } => self.history.preempted(lived),
            Why::Failed { failure: RankExit { rank, status, .. }, lost: None } => {
                self.history.ended(rank, status, lived)
            }
            Why::Grown { .. } => self.history.grown(),
        };
        match decision {
            Decision::Again { restart, delay } => {
                let (until, reported) = (cx.now + delay, cx.facts.hosts.list_lost().len());
                self.state = State::Pausing(Pause { until, is_held: false, restart, clear, reported });
                cx.notify(Notice::Log(What::Restart { restart, why: first.record(), lived, delay, fewer }));
            }
            Decision::Stuck { rank, alike } => {
                cx.notify(Notice::Log(What::News(JobNews::NoProgress { rank, alike })));
                cx.notify(end);
            }
            Decision::UsedUp => cx.notify(end),
        }
    }

    /// Ends the pause, if there is one: another generation begins.
    pub(super) fn end_pause(&mut self) -> Option<Pause> {
        match core::mem::replace(&mut self.state, State::Running) {
            State::Pausing(pause) => Some(pause),
            other @ (State::Running | State::Clearing(_) | State::Off) => {
                self.state = other;
                None
            }
        }
    }

    /// The job ends; nodes whose ranks are waited for no more.
    pub(super) fn on_ending_began(&mut self) -> Vec<NodeId> {
        match core::mem::replace(&mut self.state, State::Off) {
            State::Clearing(Clearing { open, clear, .. }) => {
                let drains = open.into_iter().filter(|(_, drains)| *drains).map(|(node, _)| node);
                clear.into_keys().chain(drains).collect()
            }
            State::Pausing(Pause { clear, .. }) => clear.into_keys().collect(),
            State::Running | State::Off => Vec::new(),
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        match &mut self.state {
            State::Clearing(clearing) => {
                if clearing.is_awaited() && clearing.until.is_out(cx.now) {
                    let (first, late) = (clearing.first, clearing.late());
                    cx.notify(Notice::End(self.cause(&first, late)));
                }
            }
            State::Pausing(pause) => {
                if pause.until <= cx.now {
                    cx.notify(Notice::StartGeneration);
                }
            }
            State::Running | State::Off => {}
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match &self.state {
            State::Clearing(clearing) => clearing.is_awaited().then(|| clearing.until.deadline()),
            State::Pausing(pause) => Some(pause.until),
            State::Running | State::Off => None,
        }
    }
}

impl Clearing {
    /// The first node that has still to end its ranks.
    fn late(&self) -> Option<NodeId> {
        self.open.iter().find(|(_, drains)| !**drains).map(|(node, _)| *node)
    }

    /// A node has still to end its ranks: who waits for our reader may do so for ever.
    fn is_awaited(&self) -> bool {
        self.open.values().any(|drains| !drains)
    }
}
