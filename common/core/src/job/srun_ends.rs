//! The end of srun, as the reason for the loss of hosts: Slurm ends the step of an srun that has ended, and srun ends with its step.
//!
//! The one rule: if a host is lost within 5 s of the end of the srun that has started its agent, that end is the reason. The lease of the
//! host is waited for all the same.

use crate::events::{CloseReason, Lost};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::{Mono, Span};

/// The time before and after the end of srun.
const NEAR: Span = Span::from_secs(5);

/// The end of an srun before that of the job.
#[derive(Debug)]
struct SrunEnd {
    at: Mono,
    why: CloseReason,
    /// Hosts whose agents it has started, without those that were lost long before.
    nodes: BTreeSet<NodeId>,
}

/// The loss of a host.
#[derive(Debug)]
struct Loss {
    at: Mono,
    /// Whether its connection ended as that of a killed agent does.
    may_be_kill: bool,
}

/// The ends of sruns, and the hosts that they may explain.
#[derive(Debug, Default)]
pub(super) struct SrunEnds {
    ends: Vec<SrunEnd>,
    lost: BTreeMap<NodeId, Loss>,
}

impl SrunEnds {
    /// The srun that has started the agents of these hosts has ended.
    pub(super) fn on_ended(&mut self, at: Mono, nodes: impl IntoIterator<Item = NodeId>, why: CloseReason) {
        let is_concerned = |node: &NodeId| self.lost.get(node).is_none_or(|loss| is_near(at, loss.at));
        let nodes = nodes.into_iter().filter(is_concerned).collect();
        self.ends.push(SrunEnd { at, why, nodes });
    }

    /// A host is lost. Returns how, if srun has ended shortly before.
    pub(super) fn on_lost(&mut self, at: Mono, node: NodeId, lost: Lost) -> Lost {
        let loss = self.lost.entry(node).or_insert(Loss { at, may_be_kill: false });
        loss.may_be_kill |= matches!(lost, Lost::Agent(why) if why.may_be_kill());
        self.loss_near(at, node).unwrap_or(lost)
    }

    /// The loss by the end of srun that explains what happened on a lost host at that time. The command srun also ends after agents that
    /// have done their work. An earlier loss thus has this reason only if all agents of that srun were lost.
    pub(super) fn loss_near(&self, at: Mono, node: NodeId) -> Option<Lost> {
        let is_reason = |end: &&SrunEnd| {
            let all_lost = || end.nodes.iter().all(|node| self.may_be_killed(*node));
            is_near(at, end.at) && end.nodes.contains(&node) && (at > end.at || all_lost())
        };
        let end = self.ends.iter().find(is_reason).filter(|_| self.may_be_killed(node));
        end.map(|end| Lost::Agent(end.why))
    }

    fn may_be_killed(&self, node: NodeId) -> bool {
        self.lost.get(&node).is_some_and(|loss| loss.may_be_kill)
    }

    /// Hosts that were lost for the same end of srun as this host; `None`: its srun has started no other agent.
    pub(super) fn lost_with(&self, node: NodeId) -> Option<BTreeSet<NodeId>> {
        let end = self.ends.iter().find(|end| end.nodes.contains(&node))?;
        let is_lost =
            |node: &NodeId| self.lost.get(node).is_some_and(|loss| loss.may_be_kill && is_near(loss.at, end.at));
        Some(end.nodes.iter().copied().filter(is_lost).collect())
    }

    /// A host is reached again, by another srun.
    pub(super) fn revive(&mut self, node: NodeId) {
        self.lost.remove(&node);
        self.ends.iter_mut().for_each(|end| end.nodes.retain(|other| *other != node));
    }
}

/// Whether one thing may have happened because of the other.
fn is_near(one: Mono, other: Mono) -> bool {
    one.since(other).max(other.since(one)) <= NEAR
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_plan::bootstrap::{CarrierEnd, CarrierKind};

    #[test]
    fn hosts_lost_at_another_time_are_no_part_of_the_end_of_srun() {
        let [long_before, before, end, after, long_after] = [100, 498, 500, 502, 600].map(at);
        let why = CloseReason::Carrier(CarrierKind::Srun, CarrierEnd::Code(137));
        let killed = Lost::Agent(CloseReason::Eof);
        for first in [killed, Lost::AgentMute] {
            let mut ends = SrunEnds::default();
            ends.on_lost(long_before, NodeId::new(0), first);
            ends.on_lost(before, NodeId::new(1), killed);
            ends.on_ended(end, (0..4).map(NodeId::new), why);
            assert_eq!(ends.on_lost(after, NodeId::new(2), killed), Lost::Agent(why));
            assert_eq!(ends.loss_near(before, NodeId::new(1)), None, "host 3 lives");
            assert_eq!(ends.on_lost(long_after, NodeId::new(3), killed), killed);
            assert_eq!(ends.loss_near(before, NodeId::new(1)), Some(Lost::Agent(why)));
            assert_eq!(ends.lost_with(NodeId::new(1)), Some([1, 2].map(NodeId::new).into()));
            assert_eq!(ends.lost_with(NodeId::new(0)), None);
        }
    }

    fn at(seconds: u64) -> Mono {
        Mono::default() + Span::from_secs(seconds)
    }
}
