//! The end of srun, as the reason for the loss of hosts: Slurm ends the step of an srun that has ended, and srun ends with its step.
//!
//! The one rule: a host that is lost within 5 s of the end of the srun that has started its agent is lost for that. The lease of the host
//! is waited for all the same.

use super::CloseReason;
use crate::events::Lost;
use crate::id::NodeId;
use crate::time::{Mono, Span};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The time before and after the end of srun.
const NEAR: Span = Span::from_secs(5);

/// The end of an srun before that of the job.
#[derive(Debug)]
struct SrunEnd {
    at: Mono,
    why: CloseReason,
    /// Hosts whose agents it has started.
    nodes: BTreeSet<NodeId>,
}

/// The ends of sruns, and the hosts that they may explain.
#[derive(Debug)]
pub(super) struct SrunEnds {
    ends: Vec<SrunEnd>,
    /// Hosts whose connection ended as that of a killed agent does.
    lost: BTreeSet<NodeId>,
}

impl SrunEnds {
    pub(super) const fn new() -> Self {
        Self { ends: Vec::new(), lost: BTreeSet::new() }
    }

    /// The srun that has started the agents of these hosts has ended.
    pub(super) fn on_ended(&mut self, at: Mono, nodes: impl IntoIterator<Item = NodeId>, why: CloseReason) {
        self.ends.push(SrunEnd { at, why, nodes: nodes.into_iter().collect() });
    }

    /// A host is lost. Returns how, if srun has ended shortly before.
    pub(super) fn on_lost(&mut self, at: Mono, node: NodeId, lost: Lost) -> Lost {
        if matches!(lost, Lost::Agent(why) if why.may_be_kill()) {
            self.lost.insert(node);
        }
        self.loss_near(at, node).unwrap_or(lost)
    }

    /// The loss by the end of srun that explains what happened on a lost host at that time. srun also ends after agents that have done
    /// their work. So an earlier loss has this reason only if all agents of that srun were lost.
    pub(super) fn loss_near(&self, at: Mono, node: NodeId) -> Option<Lost> {
        let is_reason = |end: &&SrunEnd| {
            let is_near = at.since(end.at).max(end.at.since(at)) <= NEAR;
            is_near && end.nodes.contains(&node) && (at > end.at || end.nodes.is_subset(&self.lost))
        };
        let end = self.ends.iter().find(is_reason).filter(|_| self.lost.contains(&node));
        end.map(|end| Lost::Agent(end.why))
    }

    /// Hosts that were lost for the same end of srun as this host.
    pub(super) fn lost_with(&self, node: NodeId) -> BTreeSet<NodeId> {
        let end = self.ends.iter().find(|end| end.nodes.contains(&node));
        end.map(|end| end.nodes.intersection(&self.lost).copied().collect()).unwrap_or_default()
    }

    /// A host is reached again, by another srun.
    pub(super) fn revive(&mut self, node: NodeId) {
        self.lost.remove(&node);
        self.ends.iter_mut().for_each(|end| end.nodes.retain(|other| *other != node));
    }
}
