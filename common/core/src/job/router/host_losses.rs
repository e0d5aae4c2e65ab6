//! The loss of a host, and the end of one: whether rounds absorb it, another generation follows, or the job ends.

use super::super::shrink_rule;
use super::{Parts, Step};
use crate::events::Lost;
use crate::id::NodeId;
use crate::time::Mono;

impl Parts {
    /// Whether this host was lost before, and the job continues without it.
    pub(super) fn is_without(&self, step: &Step<'_>, node: NodeId) -> bool {
        step.facts.hosts.is_lost(node) && !self.generations.is_off()
    }

    /// Handles the loss of a part of ours on a host outside of rounds. Returns whether the job continues without the host.
    pub(super) fn try_continue_without(
        &mut self,
        step: &mut Step<'_>,
        node: NodeId,
        lost: Lost,
        between: (Mono, Mono),
    ) -> bool {
        if step.facts.hosts.is_local(node) || !self.may_follow() || !self.can_do_without(step, &[node]) {
            return false;
        }
        shrink_rule::dismiss(&mut step.cx(), node, lost);
        step.facts.hosts.lose(node, lost, between, self.generations.is_clear(node));
        if !self.generations.is_between() {
            self.try_clear(step, shrink_rule::why_lost(step.facts, node, lost, between));
        }
        true
    }

    /// Handles the end of a host. Returns whether the host was lost before.
    pub(super) fn on_lost_host_ended(&mut self, step: &mut Step<'_>, node: NodeId) -> bool {
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

    /// Whether the loss of a part of ours on a host is a matter of rounds.
    pub(super) fn on_host_lost(&mut self, step: &mut Step<'_>, node: NodeId, lost: Lost) -> bool {
        let between = self.lease.between(step.now, node, lost);
        let theirs = self.rounds.on_host_lost(&mut step.cx(), node, lost, between);
        if theirs {
            step.facts.hosts.lose(node, lost, between, false);
        }
        self.apply_round_decisions(step);
        theirs
    }

    /// A node has told what is left, or will not.
    pub(super) fn node_over(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.lease.node_over(node);
        self.kill_watchdog.node_over(node);
        let without = self.rounds.node_over(&mut step.cx(), node);
        if without {
            step.facts.hosts.end(node);
            // Its ranks are placed together, including ranks whose ends were not seen.
            self.procs.absent(&mut step.cx(), node);
        }
        self.apply_round_decisions(step);
        if self.on_lost_host_ended(step, node) || without {
            self.start_queued(step);
        } else if self.on_left_host_over(step, node) {
            // The program that leads the job decides what follows.
        } else {
            self.procs.node_over(&mut step.cx(), node);
        }
        self.slice_host_over(step, node);
    }
}
