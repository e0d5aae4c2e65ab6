//! A step of agents that the scheduler has ended without the job: `scancel JOB.STEP` in Slurm, which sends SIGKILL at once.

use super::{Parts, Step};
use crate::bootstrap::srun_messages::StepEndReason;
use crate::events::{Cause, RanksState};
use crate::id::NodeId;
use crate::signal::Signal;
use alloc::vec::Vec;

impl Parts {
    /// The scheduler ends the agents of these hosts. Agents that it has warned before end by themselves. The others are lost: no lease of
    /// theirs is waited for, and nothing is started again.
    pub(super) fn on_step_cancelled(&mut self, step: &mut Step<'_>, nodes: &[NodeId], why: StepEndReason) {
        let now = step.now;
        self.root_cause.on_step_reason(why);
        let recent: Vec<NodeId> =
            nodes.iter().copied().filter(|node| self.node_ends.is_closed_recently(*node, now)).collect();
        let mut is_lost = false;
        for node in nodes {
            is_lost |= self.node_ends.on_step_cancelled(&mut step.cx(), *node);
        }
        if is_lost {
            self.end_with_step(step, recent);
        } else if let Some(cause) = self.killed_step() {
            // Hosts that were lost for that may have been counted before.
            self.root_cause.on_step_cancelled(now, cause, recent);
        }
        self.finish_if_explained(step);
    }

    /// The report waits for the reason of a loss no more, if that is known.
    pub(super) fn finish_if_explained(&mut self, step: &mut Step<'_>) {
        if self.root_cause.reason_by(step.facts).is_none() {
            self.closing.on_reason(&mut step.cx());
        }
    }

    fn killed_step(&self) -> Option<Cause> {
        self.scheduler_signals.scheduler().map(|scheduler| Cause::Scheduler { scheduler, sig: Signal::KILL, why: None })
    }

    /// The job ends with its step, by which these hosts were lost.
    pub(super) fn end_with_step(&mut self, step: &mut Step<'_>, lost: impl IntoIterator<Item = NodeId>) {
        let Some(cause) = self.killed_step() else { return };
        // News of a loss comes before srun's words about it.
        self.root_cause.on_step_cancelled(step.now, cause.clone(), lost);
        let ranks = if self.generations.is_pausing() { RanksState::Between } else { RanksState::Running };
        self.ending.end(&mut step.cx(), cause, ranks);
    }
}
