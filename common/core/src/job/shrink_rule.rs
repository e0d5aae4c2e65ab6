//! The rule by which a job continues with fewer hosts (`--max-restarts`): whether the hosts that remain are enough for another generation.
//!
//! A lost host costs the job a restart and no more, if the remaining hosts are enough. That holds in a round, while ranks run that know
//! no rounds, and while ranks are ended. The limits are `--min-world` and `--min-active`, of the command line or of a program that
//! restarts within itself. Without a limit, and without such a program, the job ends: the program may not continue with fewer ranks.
//!
//! No process of the next generation starts before the last one of this generation has ended. A lost host has ended its ranks when it
//! reports so, or when its lease has expired. Until then it counts among the hosts that are not clear. The remaining ranks are numbered
//! anew, in their order, as if the lost hosts had been missing from the start. Rank 0 is on the first remaining host. That host has chosen
//! a port while it was cleared, and is found by the address at which it was reached. Numbers of processes differ by the number of
//! requested ranks, so that a number means the same rank throughout a generation.
//!
//! A lost host never comes back. The first round of each generation begins with the policy of `--assign`, `--spares` and `--spare-hosts`.
//! A spare host can thus replace the lost one.

use super::facts::JobFacts;
use super::generations::Why;
use super::hosts::Loss;
use super::notice::{Notice, RankExit};
use super::{Cx, JobAction};
use crate::events::Lost;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::status::Status;
use rlaunch_base::time::HostTime;
use rlaunch_plan::place::Placement;
use rlaunch_plan::rank_assign::{self, Keys, Numbers, Source, World};
use rlaunch_protocol::env::value;
use rlaunch_protocol::rounds::Limits;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_node::ToNode;

/// Facts of other sub-machines on which another generation depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means {
    /// Ranks can be started again, on hosts that have everything for it.
    pub(super) can_start_again: bool,
    /// The program restarts within itself: it can continue with fewer ranks.
    pub(super) has_rounds: bool,
    /// How few ranks are enough.
    pub(super) limits: Limits,
}

impl Means {
    /// Whether ranks may be started again on fewer hosts.
    pub(super) const fn may_shrink(&self) -> bool {
        self.has_rounds || self.limits.min_world.is_some() || self.limits.min_active.is_some()
    }
}

/// The rule.
#[derive(Debug)]
pub(super) struct ShrinkRule {
    spec: Arc<JobSpec>,
}

impl ShrinkRule {
    pub(super) const fn new(spec: Arc<JobSpec>) -> Self {
        Self { spec }
    }

    /// Whether the hosts that are left, without these, are enough for another generation.
    pub(super) fn can_do_without(&self, facts: &JobFacts, means: &Means, also: &[NodeId]) -> bool {
        if !means.may_shrink() {
            return false;
        }
        let mut lost = facts.hosts.list_lost();
        lost.extend(also);
        let Some(placement) = remaining(facts, means, &lost) else { return false };
        let Some(active) = count_active(&self.spec, &placement).filter(|active| *active > 0) else { return false };
        let limits = means.limits;
        limits.min_world.is_none_or(|least| placement.world_size() >= least)
            && limits.min_active.is_none_or(|least| active >= least)
    }
}

/// The placement of the next generation, if hosts were lost in this one.
pub(super) fn next_placement(facts: &JobFacts, means: &Means) -> Option<Placement> {
    if !facts.hosts.has_recent_losses() {
        return None;
    }
    remaining(facts, means, &facts.hosts.list_lost())
}

/// The placement of ranks without these hosts. `None`: a program would have no rank, or ranks are not started again.
fn remaining(facts: &JobFacts, means: &Means, lost: &[NodeId]) -> Option<Placement> {
    if means.can_start_again { facts.placement().without(lost) } else { None }
}

/// Ends the remaining processes of a host that the job continues without. Where its agent alone can end it, the agent has to answer.
pub(super) fn dismiss(cx: &mut Cx<'_>, loss: &Loss) {
    let node = loss.node;
    cx.act(JobAction::Send { node, msg: ToNode::Kill });
    if matches!(loss.lost, Lost::Guardian | Lost::Init) {
        cx.notify(Notice::Doomed(node));
    }
}

/// The loss of a host, as the failure of its first rank.
pub(super) fn why_lost(facts: &JobFacts, loss: Loss) -> Why {
    let Loss { node, lost, between } = loss;
    let rank = facts.placement().ranks_of(node).next().unwrap_or(Rank::new(0));
    let (alive, at) = (HostTime(between.0.nanos()), HostTime(between.1.nanos()));
    let failure = RankExit {
        rank,
        node,
        status: Status::Lost,
        at: between.1,
        alive_at: between.0,
        seen_after: between.0,
        here: (alive, at),
        asked: false,
    };
    Why::Failed { failure, lost: Some(lost) }
}

/// How many ranks would work in the first round; `None`: the policy knows no answer.
fn count_active(spec: &JobSpec, placement: &Placement) -> Option<u32> {
    let mut world = World::new(u32::try_from(placement.ranks.len()).unwrap_or(u32::MAX));
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
                let placed = self.placement.ranks.get(who.initial.index())?;
                Some(Cow::Borrowed(self.placement.nodes.get(placed.node.index())?.host.name.as_str()))
            }
            Source::Env(name) => value(&self.spec.apps.first()?.base.env, name.as_bytes()).map(String::from_utf8_lossy),
            Source::Slice => {
                let placed = self.placement.ranks.get(who.initial.index())?;
                self.placement.slice(placed.node).map(Cow::Borrowed)
            }
            Source::Rack | Source::Numa | Source::Script(_) => None,
        }
    }
}
