//! Hosts that were lost after the start, and what another generation may be without them (`--max-restarts`).
//!
//! A host that was lost in a round, while ranks run that know no rounds, or while they are ended, costs the job no more than a restart,
//! if those that are left are enough: by `--min-world` and `--min-active`, of the command line or of a program that restarts within
//! itself. Without such a limit, and without such a program, it is not known whether the program can continue with fewer ranks: the job
//! ends.
//!
//! No process of the next generation starts before the last one of this generation has ended. A lost host has ended its ranks when it
//! reports so, or when its lease has expired. Until then it counts among the hosts that are not clear. The remaining ranks are numbered
//! anew, in their order, as if the hosts could not be had from the start. Rank 0 is on the first remaining host. That host has chosen a
//! port while it was cleared, and is found by the address at which it was reached. Numbers of processes differ by the number of requested
//! ranks, so that a number means the same rank throughout a generation.
//!
//! A lost host never comes back. The policy of `--assign`, `--spares` and `--spare-hosts` is asked who would work; each generation's
//! first round begins by it again, so that a spare host has the place of the one that was lost.

use super::facts::JobFacts;
use super::generations::Why;
use super::notice::{Failure, Notice};
use super::{Cx, JobAction, Parts, Step};
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
use alloc::string::String;
use alloc::sync::Arc;

/// What the user knows of hosts that were lost.
#[derive(Debug)]
pub(super) struct Left {
    spec: Arc<JobSpec>,
    /// So many were lost when the user was told how many ranks remain.
    said: usize,
}

impl Left {
    pub(super) const fn new(spec: Arc<JobSpec>) -> Self {
        Self { spec, said: 0 }
    }

    /// Records that the user knows of all of them.
    pub(super) fn says(&mut self, facts: &JobFacts) {
        self.said = facts.hosts.list_lost().len();
    }

    /// None was lost after that.
    pub(super) fn is_said(&self, facts: &JobFacts) -> bool {
        self.said == facts.hosts.list_lost().len()
    }

    /// The user has said how few are enough.
    fn is_bounded(&self) -> bool {
        let limits = &self.spec.rounds.limits;
        limits.min_world.is_some() || limits.min_active.is_some()
    }
}

/// Ends the remaining processes of a host that the job continues without. Where its agent alone can end it, the agent has to answer.
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

    /// The placement of ranks without the lost hosts, and without this one, if the rest is enough.
    fn without(&self, facts: &JobFacts, also: Option<NodeId>) -> Option<Placement> {
        if !self.may_shrink() {
            return None;
        }
        let mut gone = facts.hosts.list_lost();
        gone.extend(also);
        let placement = self.remaining(facts, &gone)?;
        let limits = self.rounds.limits();
        let world = placement.world_size();
        let works = working(&self.left.spec, &placement).filter(|works| *works > 0)?;
        let enough = limits.min_world.is_none_or(|least| world >= least);
        (enough && limits.min_active.is_none_or(|least| works >= least)).then_some(placement)
    }

    /// The placement of ranks without these hosts. `None`: a program would have no rank, or ranks are not started again.
    fn remaining(&self, facts: &JobFacts, lost: &[NodeId]) -> Option<Placement> {
        if self.bringup.can_start_again() { facts.placement().without(lost) } else { None }
    }

    /// Whether the hosts that are left are too few for another generation.
    pub(super) fn lacks_hosts(&self, facts: &JobFacts) -> bool {
        facts.hosts.has_recent_losses() && self.without(facts, None).is_none()
    }

    /// Whether this host was lost before, and the job continues without it.
    pub(super) fn is_without(&self, step: &Step<'_>, node: NodeId) -> bool {
        step.facts.hosts.is_lost(node) && !self.generations.is_off()
    }

    /// Whether another generation may: not where all ranks have done their work, and only what they have left is ended.
    fn may_follow(&self) -> bool {
        self.generations.may_follow() && !self.closing.is_all_over()
    }

    /// Handles the loss of a part of ours on a host outside of rounds; whether the job continues without the host.
    pub(super) fn goes_on_without(
        &mut self,
        step: &mut Step<'_>,
        node: NodeId,
        lost: Lost,
        between: (Mono, Mono),
    ) -> bool {
        if step.facts.hosts.is_local(node) || !self.may_follow() || self.without(step.facts, Some(node)).is_none() {
            return false;
        }
        dismiss(&mut step.cx(), node, lost);
        step.facts.hosts.lose(node, lost, between, self.generations.is_clear(node));
        if !self.generations.is_between() {
            self.clears(step, of_host(step.facts, node, lost, between));
        }
        true
    }

    /// Rounds do not make good the loss of this host; whether another generation does.
    pub(super) fn follows_loss(
        &mut self,
        step: &mut Step<'_>,
        node: NodeId,
        lost: Lost,
        between: (Mono, Mono),
    ) -> bool {
        if !self.may_follow() || self.generations.is_between() || self.without(step.facts, None).is_none() {
            return false;
        }
        self.clears(step, of_host(step.facts, node, lost, between));
        true
    }

    /// Ends all ranks, so that another generation may follow; whether any host was ordered to.
    pub(super) fn clears(&mut self, step: &mut Step<'_>, why: Why) -> bool {
        let (grace, shrinks) = (self.generations.grace(), self.may_shrink());
        let lost = step.facts.hosts.list_lost();
        let mut nodes = self.bringup.clear(&mut step.cx(), grace, (&lost, shrinks));
        if nodes.is_empty() {
            return false;
        }
        nodes.extend(lost.into_iter().filter(|node| step.facts.hosts.may_still_run(*node)));
        self.verdict.cleared_from(step.now);
        self.rounds.off(step.now);
        // A host that is silent is known as lost only then.
        let longer = if shrinks { self.lease.patience() } else { Span::ZERO };
        self.generations.clearing(&mut step.cx(), why, nodes, longer);
        true
    }

    /// A host that is lost has ended; whether it was.
    pub(super) fn lost_is_over(&mut self, step: &mut Step<'_>, node: NodeId) -> bool {
        if !self.is_without(step, node) {
            return false;
        }
        step.facts.hosts.end(node);
        self.procs.absent(&mut step.cx(), node);
        if let Some(first) = self.generations.cleared(node, 0, 0) {
            self.cleared(step, &first);
        }
        true
    }

    /// The remaining hosts for the next generation, where hosts were lost in this one.
    pub(super) fn fewer(&self, facts: &JobFacts, why: &Why) -> Option<Box<Fewer>> {
        let gone = facts.hosts.list_lost();
        let placement = self.remaining(facts, &gone).filter(|_| facts.hosts.has_recent_losses())?;
        let by = why.lost.map(|_| self.log.host(why.failure.node)).unwrap_or_default();
        let ranks = placement.world_size();
        Some(Box::new(Fewer { by, without: self.bringup.folded(&gone), ranks }))
    }

    /// The placement of the next generation, if it changes.
    pub(super) fn place_again(&self, facts: &JobFacts) -> Option<Arc<Placement>> {
        if !facts.hosts.has_recent_losses() {
            return None;
        }
        self.remaining(facts, &facts.hosts.list_lost()).map(Arc::new)
    }
}

/// The loss of a host, as that of its first rank.
fn of_host(facts: &JobFacts, node: NodeId, lost: Lost, between: (Mono, Mono)) -> Why {
    let rank = facts.placement().ranks_of(node).next().unwrap_or(Rank::new(0));
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

/// How many ranks would work in the first round; `None`: the policy knows no answer.
fn working(spec: &JobSpec, placement: &Placement) -> Option<u32> {
    let mut world = World::new(u32::try_from(placement.seats.len()).unwrap_or(u32::MAX));
    if let Some(policy) = &spec.rounds.policy {
        rank_assign::assign(policy, &mut world, &[], &Placed { spec, placement }).ok()?;
    }
    Some(world.active_size().unwrap_or_else(|| world.size()))
}

/// Facts about ranks by their placement.
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
