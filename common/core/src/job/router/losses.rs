//! Consequences of the loss of a host, of the end of a lost host, and of the failure of a rank, in each kind of [`Recovery`].
//!
//! Rounds come first. Then the job ends, continues under the program that leads it, or starts all ranks again. The ranks start on the hosts
//! that remain, or on slices that are up.

use super::super::generations::{Fate, Why};
use super::super::hosts::Loss;
use super::super::notice::RankExit;
use super::super::recovery::Recovery;
use super::super::rounds::Escalation;
use super::super::{JobAction, shrink_rule};
use super::{Parts, Step};
use crate::events::{JobNews, Lost, Obstacle, RanksState, What};
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, Rank};

impl Parts {
    /// A part of ours was lost on a host.
    pub(super) fn lost(&mut self, step: &mut Step<'_>, node: NodeId, lost: Lost) {
        let lost = self.root_cause.srun_ends.on_lost(step.now, node, self.lease.blame(node, lost));
        self.log.write(&mut step.cx(), What::HostLost { node, lost });
        let loss = Loss { node, lost, between: self.lease.between(step.now, node, lost) };
        if self.is_lost_without_ranks(step, loss) || self.is_without(step, node) || self.is_lost_in_rounds(step, loss) {
            return;
        }
        match &self.recovery {
            Recovery::Lead if self.can_leave_to_lead(step, node) => self.leave_to_lead(step, loss),
            Recovery::Remaining(_) | Recovery::Slices(_) if self.can_restart_without(step, &[node]) => {
                self.restart_without(step, loss);
            }
            Recovery::EndJob | Recovery::Lead | Recovery::Remaining(_) | Recovery::Slices(_) => {
                self.end_for_loss(step, loss);
            }
        }
    }

    /// Handles the loss of a host that has no ranks: before the ranks start, or outside of the slices that the job has taken. Returns
    /// whether the host has none.
    fn is_lost_without_ranks(&mut self, step: &mut Step<'_>, loss: Loss) -> bool {
        let node = loss.node;
        if !self.has_slices() || step.facts.hosts.is_local(node) {
            let is_left_out = self.bringup.try_start_without(&mut step.cx(), node);
            if is_left_out {
                self.forget(step, node);
            }
            return is_left_out;
        }
        self.note_obstacle(node, Obstacle::Lost(loss.lost));
        self.bringup.lose(node);
        if !self.bringup.has_started() {
            step.act(JobAction::Sever { node });
            self.forget(step, node);
            self.redial_later(step, node);
            return true;
        }
        let is_unused = !step.facts.is_used(node);
        if is_unused {
            shrink_rule::dismiss(&mut step.cx(), &loss);
            step.facts.hosts.lose(loss, true);
        }
        is_unused
    }

    /// Whether this host was lost before, and the job continues without it.
    fn is_without(&self, step: &Step<'_>, node: NodeId) -> bool {
        self.worlds.is_without(node) || (step.facts.hosts.is_lost(node) && !self.generations.is_off())
    }

    /// Whether the loss of a host is a matter of rounds.
    fn is_lost_in_rounds(&mut self, step: &mut Step<'_>, loss: Loss) -> bool {
        let is_absorbed = self.rounds.on_host_lost(&mut step.cx(), loss);
        if is_absorbed {
            step.facts.hosts.lose(loss, false);
        }
        self.apply_round_decisions(step);
        is_absorbed
    }

    /// Whether the program that leads the job can continue without a host: none of its ranks runs there.
    fn can_leave_to_lead(&self, step: &Step<'_>, node: NodeId) -> bool {
        !self.is_over()
            && self.bringup.awaited().is_none()
            && !step.facts.hosts.is_local(node)
            && !self.worlds.lead_runs_on(step.facts, &self.procs, node)
    }

    /// Ends the ranks of a lost host. The program that leads the job decides what follows.
    fn leave_to_lead(&mut self, step: &mut Step<'_>, loss: Loss) {
        let Loss { node, lost, .. } = loss;
        shrink_rule::dismiss(&mut step.cx(), &loss);
        step.facts.hosts.lose(loss, false);
        self.log.write(&mut step.cx(), What::News(JobNews::LeadContinues { node, lost }));
        self.worlds.leave_out(node);
        let placement = step.facts.placement();
        let open: Vec<Rank> = placement.ranks_of(node).filter(|rank| self.procs.is_open(step.facts, *rank)).collect();
        open.iter().for_each(|rank| self.ended_ranks.on_host_lost(&mut step.cx(), *rank, node));
        self.worlds.on_host_lost(&mut step.cx(), &mut self.procs, node, &open);
    }

    /// Whether all ranks can be started again without these hosts.
    pub(super) fn can_restart_without(&self, step: &Step<'_>, nodes: &[NodeId]) -> bool {
        !nodes.iter().any(|node| step.facts.hosts.is_local(*node))
            && self.generations.may_follow()
            // Ranks that have done their work do not do it again.
            && !self.closing.is_all_over()
            && self.recovery.can_do_without(step.facts, &self.means(), nodes)
    }

    /// Ends all ranks. They are started again without a lost host.
    fn restart_without(&mut self, step: &mut Step<'_>, loss: Loss) {
        self.root_cause.lost(loss);
        shrink_rule::dismiss(&mut step.cx(), &loss);
        step.facts.hosts.lose(loss, self.generations.is_clear(loss.node));
        if !self.generations.is_between() {
            self.try_clear(step, shrink_rule::why_lost(step.facts, loss));
        }
    }

    /// Ends the job.
    fn end_for_loss(&mut self, step: &mut Step<'_>, loss: Loss) {
        self.root_cause.lost(loss);
        let cause = self.loss_cause(step, loss.node, loss.lost);
        self.ending.end(&mut step.cx(), cause, RanksState::Running);
    }

    /// The consequence of a fault that rounds could not absorb.
    pub(super) fn on_rounds_given_up(&mut self, step: &mut Step<'_>, escalation: Option<Escalation>) {
        match escalation {
            Some(Escalation::RankFailed(failure)) => {
                self.root_cause.decided(failure);
                self.failed(step, failure);
            }
            Some(Escalation::RankLeft(failure)) => {
                self.root_cause.decided(failure);
                self.rounds.await_exit(failure, step.now + self.generations.grace());
            }
            Some(Escalation::HostLost(loss)) => {
                if !self.generations.is_between() && self.can_restart_without(step, &[]) {
                    self.root_cause.lost(loss);
                    self.try_clear(step, shrink_rule::why_lost(step.facts, loss));
                } else {
                    self.end_for_loss(step, loss);
                }
            }
            None => {}
        }
    }

    /// A rank ended with something else than exit 0: the job ends, or this generation of its ranks does.
    pub(super) fn failed(&mut self, step: &mut Step<'_>, failure: RankExit) {
        self.root_cause.failed(failure);
        let may_be_lost = step.facts.has_other_hosts() || step.facts.hosts.warning(failure.node).is_some();
        let clears = match self.generations.fate(&failure, may_be_lost) {
            Fate::Known => return,
            Fate::Ends => false,
            Fate::Clears => {
                let lacks_hosts = step.facts.hosts.has_recent_losses()
                    && !self.recovery.can_do_without(step.facts, &self.means(), &[]);
                !lacks_hosts && self.try_clear(step, Why::Failed { failure, lost: None })
            }
        };
        if !clears {
            // The class of the failure is the same with and without a restart.
            let warned = step.facts.hosts.warning(failure.node).filter(|_| !failure.asked);
            let lost = warned.map(|source| (failure.node, Lost::Warned(source)));
            self.ending.failed(&mut step.cx(), &failure, lost, self.root_cause.is_forwarded(&failure));
        }
    }

    /// A host has reported what is left, or will not.
    pub(super) fn node_over(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.lease.node_over(node);
        self.kill_watchdog.node_over(node);
        let is_without = self.rounds.node_over(&mut step.cx(), node) || self.is_without(step, node);
        if is_without {
            step.facts.hosts.end(node);
            // Its ranks are placed together, including ranks whose ends were not seen.
            self.procs.absent(&mut step.cx(), node);
        }
        self.apply_round_decisions(step);
        if !is_without {
            self.procs.node_over(&mut step.cx(), node);
        } else if let Some(first) = self.generations.cleared(node, 0, 0) {
            self.cleared(step, &first);
        }
        self.slice_host_over(step, node);
    }
}
