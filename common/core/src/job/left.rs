//! Hosts that were lost after the start, and what another generation may be without them (`--max-restarts`).
//!
//! A host that was lost in a round, while ranks run that know no rounds, or while they are ended, costs the job no more than a restart,
//! if those that are left are enough: by `--min-world` and `--min-active`, of the command line or of a program that restarts within
//! itself. Where neither was said, and no such program runs, nobody knows whether it can do with fewer ranks, and the job ends.
//!
//! Nothing of the next generation is started before nothing of this one runs any more: a host that is lost has ended its ranks when it
//! says so, or when its lease is over. Until then it counts among those that are not clear. The ranks that are left are numbered anew,
//! in their order, as where hosts could not be had from the start; rank 0 is on the first host that is left, which has chosen a port
//! while it was cleared, and is found by the address at which it was reached. Numbers of processes stay apart by the ranks that were
//! asked for, so that one means the same rank in a generation, whoever is left.
//!
//! A lost host never comes back. The policy of `--assign`, `--spares` and `--spare-hosts` is asked who would work; each generation's
//! first round begins by it again, so that a spare host has the place of the one that was lost.

use super::generations::Why;
use super::notice::{Failure, Notice};
use super::{Cx, JobAction, Parts};
use crate::env::value;
use crate::events::Lost;
use crate::id::{NodeId, Rank};
use crate::place::Placement;
use crate::rank_assign::{self, Keys, Numbers, Source, World};
use crate::report::Fewer;
use crate::spec::JobSpec;
use crate::status::Status;
use crate::time::{HostTime, Mono, Span};
use crate::wire::to_node::ToNode;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The hosts that were lost.
#[derive(Debug)]
pub(super) struct Left {
    spec: Arc<JobSpec>,
    /// Whether nothing of them runs any more, as far as anybody can know.
    gone: BTreeMap<NodeId, bool>,
    /// Some were lost since ranks were placed last.
    fresh: bool,
    /// So many were when the user was told how many ranks are left.
    said: usize,
}

impl Left {
    pub(super) const fn new(spec: Arc<JobSpec>) -> Self {
        Self { spec, gone: BTreeMap::new(), fresh: false, said: 0 }
    }

    pub(super) fn is_gone(&self, node: NodeId) -> bool {
        self.gone.contains_key(&node)
    }

    /// A host is lost; `over`: nothing of it runs.
    pub(super) fn loses(&mut self, node: NodeId, over: bool) {
        if self.gone.insert(node, over).is_none() {
            self.fresh = true;
        }
    }

    fn over(&mut self, node: NodeId) {
        if let Some(over) = self.gone.get_mut(&node) {
            *over = true;
        }
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.gone.keys().copied().collect()
    }

    /// The user is told of all of them.
    pub(super) fn says(&mut self) {
        self.said = self.gone.len();
    }

    /// None was lost after that.
    pub(super) fn is_said(&self) -> bool {
        self.said == self.gone.len()
    }

    /// The user has said how few are enough.
    fn is_bounded(&self) -> bool {
        let limits = &self.spec.rounds.limits;
        limits.min_world.is_some() || limits.min_active.is_some()
    }
}

/// Whatever is still there of a host that the job goes on without has nothing to do any more. Where its agent alone can end it,
/// the agent has to answer.
pub(super) fn dismiss(cx: &mut Cx<'_>, node: NodeId, lost: Lost) {
    cx.act(JobAction::Send { node, msg: ToNode::Kill });
    if matches!(lost, Lost::Guardian | Lost::Init) {
        cx.tell(Notice::Doomed(node));
    }
}

impl Parts {
    /// Whether a generation may have to do without hosts.
    fn may_shrink(&self) -> bool {
        self.left.is_bounded() || self.rounds.is_used()
    }

    /// Where ranks run without the hosts that were lost, and this one, if those are enough.
    fn without(&self, also: Option<NodeId>) -> Option<Placement> {
        if !self.may_shrink() {
            return None;
        }
        let mut gone = self.left.nodes();
        gone.extend(also);
        let placement = self.bringup.left(&gone)?;
        let limits = self.rounds.limits();
        let world = u32::try_from(placement.seats.len()).unwrap_or(u32::MAX);
        let works = working(&self.left.spec, &placement).filter(|works| *works > 0)?;
        let enough = limits.min_world.is_none_or(|least| world >= least);
        (enough && limits.min_active.is_none_or(|least| works >= least)).then_some(placement)
    }

    /// Whether the hosts that are left are too few for another generation.
    pub(super) fn lacks_hosts(&self) -> bool {
        self.left.fresh && self.without(None).is_none()
    }

    /// Whether this host was lost before, and the job goes on without it.
    pub(super) fn is_without(&self, node: NodeId) -> bool {
        self.left.is_gone(node) && !self.generations.is_off()
    }

    /// Whether another generation may: not where all ranks have done their work, and only what they have left is ended.
    fn may_follow(&self) -> bool {
        self.generations.may_follow() && !self.closing.is_all_over()
    }

    /// A part of ours was lost on a host, and that is no matter of rounds; whether the job goes on without the host.
    pub(super) fn goes_on_without(&mut self, cx: &mut Cx<'_>, node: NodeId, lost: Lost, between: (Mono, Mono)) -> bool {
        let local = self.left.spec.placement.nodes.get(node.index()).is_none_or(|node| node.local);
        if local || !self.may_follow() || self.without(Some(node)).is_none() {
            return false;
        }
        dismiss(cx, node, lost);
        self.left.loses(node, self.generations.is_clear(node));
        if !self.generations.is_between() {
            self.clears(cx, self.of_host(node, lost, between));
        }
        true
    }

    /// Rounds do not make good the loss of this host; whether another generation does.
    pub(super) fn follows_loss(&mut self, cx: &mut Cx<'_>, node: NodeId, lost: Lost, between: (Mono, Mono)) -> bool {
        if !self.may_follow() || self.generations.is_between() || self.without(None).is_none() {
            return false;
        }
        self.clears(cx, self.of_host(node, lost, between));
        true
    }

    /// The loss of a host, as that of its first rank.
    fn of_host(&self, node: NodeId, lost: Lost, between: (Mono, Mono)) -> Why {
        let seats = self.rounds.placement().seats.iter().zip((0..).map(Rank::new));
        let rank = seats.filter(|(seat, _)| seat.node == node).map(|(_, rank)| rank).next().unwrap_or(Rank::new(0));
        let (alive, at) = (HostTime(between.0.nanos()), HostTime(between.1.nanos()));
        let failure = Failure {
            rank,
            node,
            status: Status::Lost,
            at: between.1,
            alive_at: between.0,
            seen_after: between.0,
            here: (alive, at),
            asked: false,
        };
        Why { failure, lost: Some(lost) }
    }

    /// All that runs is ended, and another generation may follow; whether somebody was told so.
    pub(super) fn clears(&mut self, cx: &mut Cx<'_>, why: Why) -> bool {
        let (grace, shrinks) = (self.generations.grace(), self.may_shrink());
        let mut nodes = self.bringup.clear(cx, grace, (&self.left.nodes(), shrinks));
        if nodes.is_empty() {
            return false;
        }
        nodes.extend(self.left.gone.iter().filter(|(_, over)| !**over).map(|(node, _)| *node));
        self.verdict.cleared_from(cx.now);
        self.rounds.off(cx.now);
        // A host that is silent is known as lost only then.
        let longer = if shrinks { self.lease.patience() } else { Span::ZERO };
        self.generations.clearing(cx, why, nodes, longer);
        true
    }

    /// A host that is lost has ended; whether it was.
    pub(super) fn lost_is_over(&mut self, cx: &mut Cx<'_>, node: NodeId) -> bool {
        if !self.is_without(node) {
            return false;
        }
        self.left.over(node);
        self.procs.absent(cx, node);
        if let Some(first) = self.generations.cleared(node, 0, 0) {
            self.cleared(cx, &first);
        }
        true
    }

    /// What is left for the next generation, where hosts were lost in this one.
    pub(super) fn fewer(&self, why: &Why) -> Option<Box<Fewer>> {
        let gone = self.left.nodes();
        let placement = self.bringup.left(&gone).filter(|_| self.left.fresh)?;
        let by = why.lost.map(|_| self.log.host(why.failure.node)).unwrap_or_default();
        let ranks = u32::try_from(placement.seats.len()).unwrap_or(u32::MAX);
        Some(Box::new(Fewer { by, without: self.bringup.folded(&gone), ranks }))
    }

    /// Where the ranks of the next generation run, if that changes.
    pub(super) fn place_again(&mut self) -> Option<Arc<Placement>> {
        if !core::mem::take(&mut self.left.fresh) {
            return None;
        }
        self.bringup.left(&self.left.nodes()).map(Arc::new)
    }
}

/// How many ranks would work in the first round; `None`: the policy knows no answer.
fn working(spec: &JobSpec, placement: &Placement) -> Option<u32> {
    let mut world = World::new(u32::try_from(placement.seats.len()).unwrap_or(u32::MAX));
    if let Some(policy) = &spec.rounds.policy {
        rank_assign::assign(policy, &mut world, &[], &Placed { spec, placement }).ok()?;
    }
    Some(world.active_size().unwrap_or_else(|| world.size()))
}

/// What is known of ranks by where they are placed.
struct Placed<'a> {
    spec: &'a JobSpec,
    placement: &'a Placement,
}

impl Keys for Placed<'_> {
    fn value(&self, source: &Source, who: Numbers) -> Option<Cow<'_, str>> {
        match source {
            Source::Host => {
                let seat = self.placement.seats.get(who.initial.index())?;
                Some(Cow::Borrowed(self.placement.nodes.get(seat.node.index())?.host.name.as_str()))
            }
            Source::Env(name) => value(&self.spec.apps.first()?.base.env, name.as_bytes()).map(String::from_utf8_lossy),
            Source::Slice | Source::Rack | Source::Numa | Source::Script(_) => None,
        }
    }
}
