//! A step of agents that the scheduler has ended without the job: `scancel JOB.STEP` in Slurm, which sends SIGKILL at once.

use super::{Parts, Step};
use crate::events::{Cause, RanksState};
use crate::id::NodeId;
use crate::signal::Signal;

impl Parts {
    /// The scheduler ends the agents of these hosts. Agents that it has warned before end by themselves. The others are lost: no lease of
    /// theirs is waited for, and nothing is started again.
    pub(super) fn on_step_cancelled(&mut self, step: &mut Step<'_>, nodes: &[NodeId]) {
        let mut is_lost = false;
        for node in nodes {
            is_lost |= self.node_ends.on_step_cancelled(&mut step.cx(), *node);
        }
        if is_lost {
            self.end_with_step(step);
        }
    }

    /// The job ends with its step.
    pub(super) fn end_with_step(&mut self, step: &mut Step<'_>) {
        let Some(scheduler) = self.scheduler_signals.scheduler() else { return };
        let cause = Cause::Scheduler { scheduler, sig: Signal::KILL };
        // News of a loss comes before srun's words about it.
        self.root_cause.on_step_cancelled(cause.clone());
        let ranks = if self.generations.is_pausing() { RanksState::Between } else { RanksState::Running };
        self.ending.end(&mut step.cx(), cause, ranks);
    }
}
