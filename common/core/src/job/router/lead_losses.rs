//! The loss of a host in a job that a program leads: its ranks have ended, and that program decides what follows.

use super::super::shrink_rule;
use super::{Parts, Step};
use crate::events::{JobNews, Lost, What};
use crate::id::{NodeId, Rank};
use alloc::vec::Vec;

impl Parts {
    /// Handles the loss of a part of ours on a host. Returns whether the job continues without the host.
    pub(super) fn try_leave_to_lead(&mut self, step: &mut Step<'_>, node: NodeId, lost: Lost) -> bool {
        if self.worlds.is_without(node) {
            return true;
        }
        let is_over = self.ending.has_begun() || self.closing.is_all_over() || self.bringup.awaited().is_some();
        if is_over
            || step.facts.hosts.is_local(node)
            || self.worlds.lead_runs_on(&step.cx(), &self.procs, node) != Some(false)
        {
            return false;
        }
        let between = self.lease.between(step.now, node, lost);
        shrink_rule::dismiss(&mut step.cx(), node, lost);
        step.facts.hosts.lose(node, lost, between, false);
        self.log.write(&mut step.cx(), What::News(JobNews::LeadContinues { node, lost }));
        self.worlds.leave_out(node);
        let placement = step.facts.placement();
        let open: Vec<Rank> = placement.ranks_of(node).filter(|rank| self.procs.is_open(step.facts, *rank)).collect();
        open.iter().for_each(|rank| self.ended_ranks.on_host_lost(&mut step.cx(), *rank, node));
        self.worlds.on_host_lost(&mut step.cx(), &mut self.procs, node, &open);
        true
    }

    /// All that was on a host has ended. Returns whether the job continues without it.
    pub(super) fn on_left_host_over(&mut self, step: &mut Step<'_>, node: NodeId) -> bool {
        if !self.worlds.is_without(node) {
            return false;
        }
        step.facts.hosts.end(node);
        self.procs.absent(&mut step.cx(), node);
        true
    }
}
