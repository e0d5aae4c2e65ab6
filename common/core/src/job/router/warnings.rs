//! Consequences of the warning that a host is about to be taken away, and the difference between a preemption and a failure.
//!
//! Evidence decides, and never the words of a program. A generation was preempted if a host was warned, or was lost before the failure
//! that was noticed first. Ranks elsewhere fail long before the lease of a lost host expires. The class is decided when every host has
//! reported that its ranks have ended, or is lost.

use super::super::generations::Why;
use super::super::hosts::Loss;
use super::super::notice::RankExit;
use super::super::{Parts, Step, shrink_rule};
use crate::events::{Cause, JobNews, Lost, NoRestart, Obstacle, What};
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::warnings::{Response, WarningSource};
use rlaunch_plan::tpu::SliceError;

impl Parts {
    /// A host is about to be taken away.
    pub(in crate::job) fn warned(&mut self, step: &mut Step<'_>, node: NodeId, source: WarningSource) {
        if !step.facts.hosts.warn(node, source) {
            return;
        }
        let is_ending = self.generations.is_between() || self.is_over();
        self.note_obstacle(node, Obstacle::Warned(source));
        let is_sliced = self.recovery.slices().is_some();
        let is_spare = is_sliced && !(self.bringup.has_started() && step.facts.is_used(node));
        let is_unused = is_spare || step.facts.hosts.is_lost(node) || step.facts.hosts.is_left_out(node);
        let response = match self.generations.response() {
            _ if is_ending || is_unused => Response::Noted,
            // The agent reports the warning of each rank there.
            _ if self.rounds.can_drain(node) => Response::Drains,
            response @ (Response::Ends { .. } | Response::Noted | Response::Drains) => response,
        };
        self.log.write(&mut step.cx(), What::News(JobNews::HostWarned { node, source, response }));
        if let Response::Ends { .. } = response {
            self.end_for_warning(step, node, Lost::Warned(source));
        }
    }

    /// Ends all ranks because of a warning. They are started again without the host, or the job ends.
    fn end_for_warning(&mut self, step: &mut Step<'_>, node: NodeId, lost: Lost) {
        let why = shrink_rule::why_lost(step.facts, Loss { node, lost, between: (step.now, step.now) });
        if !self.can_restart_without(step, &[node]) || !self.try_clear(step, why) {
            let ranks = self.ranks();
            self.ending.end(&mut step.cx(), Cause::Preempted { node, lost }, ranks);
        }
    }

    /// The cause of the end of a job that cannot continue without a host.
    pub(in crate::job) fn loss_cause(&self, step: &Step<'_>, node: NodeId, lost: Lost) -> Cause {
        if step.facts.hosts.is_local(node) {
            return Cause::Lost { node, lost };
        }
        match step.facts.hosts.warning(node) {
            Some(_) => Cause::Preempted { node, lost },
            None => self.generations.cause_of_loss(node, lost),
        }
    }

    /// The reason for the end of this generation, now that every host is clear or lost.
    pub(in crate::job) fn classify(&self, step: &Step<'_>, first: &Why) -> Why {
        let failure: RankExit = match *first {
            Why::Failed { lost: Some(_), .. } => return *first,
            Why::Failed { failure, lost: None } => self.root_cause.root().unwrap_or(failure),
            // A failure that was seen later may have come of the order to end.
            Why::Grown { .. } => match self.root_cause.failed_before_clearing() {
                Some(failure) => failure,
                None => return *first,
            },
        };
        if let Some(loss) = self.root_cause.lost_before_failure(&failure)
            && step.facts.hosts.is_recently_lost(loss.node)
        {
            return shrink_rule::why_lost(step.facts, loss);
        }
        let lost = step.facts.hosts.warning(failure.node).map(Lost::Warned);
        Why::Failed { failure, lost }
    }

    /// Leaves hosts that are about to be taken away out of the next generation. Returns the cause of the job's end, where it cannot do
    /// without them.
    pub(in crate::job) fn leave_warned(&mut self, step: &mut Step<'_>) -> Option<Cause> {
        if self.recovery.slices().is_some() {
            // Its slice is not up. Its agent stays until the host is taken away.
            return None;
        }
        let warned = step.facts.hosts.list_warned();
        let (first, source) = *warned.first()?;
        let nodes: Vec<NodeId> = warned.iter().map(|(node, _)| *node).collect();
        if !self.can_restart_without(step, &nodes) {
            return Some(Cause::Preempted { node: first, lost: Lost::Warned(source) });
        }
        for (node, source) in warned {
            let loss = Loss { node, lost: Lost::Warned(source), between: (step.now, step.now) };
            shrink_rule::dismiss(&mut step.cx(), &loss);
            step.facts.hosts.lose(loss, true);
        }
        None
    }

    /// The cause of the job's end, where hosts were lost and those that remain are no whole TPU slices.
    pub(in crate::job) fn refuse_parts(&self, step: &Step<'_>) -> Option<Cause> {
        self.slice_error(step)?;
        let is_recent = |node: &NodeId| step.facts.hosts.is_recently_lost(*node);
        let node = step.facts.hosts.list_lost().into_iter().find(is_recent)?;
        Some(Cause::Preempted { node, lost: step.facts.hosts.recent_loss(node)?.lost })
    }

    fn slice_error(&self, step: &Step<'_>) -> Option<SliceError> {
        // A job on slices takes whole ones by itself.
        self.bringup.slice_error(&self.recovery.remaining(step.facts, &self.means())?)
    }

    /// Reports why the ranks are not started again, where a job ends because of a preemption.
    pub(in crate::job) fn log_no_restart(&mut self, step: &mut Step<'_>, cause: &Cause) {
        if let Cause::Preempted { node, .. } = cause
            && !self.closing.is_all_over()
        {
            let why = self.why_no_restart(step, *node);
            self.log.write(&mut step.cx(), What::News(JobNews::NotStartedAgain { why }));
        }
    }

    fn why_no_restart(&self, step: &Step<'_>, node: NodeId) -> NoRestart {
        if step.facts.hosts.is_local(node) {
            return NoRestart::OwnHost;
        }
        match self.generations.retries() {
            (false, _) => return NoRestart::NoRetries,
            (true, false) => return NoRestart::UsedUp,
            (true, true) => {}
        }
        if let Some(error) = self.slice_error(step) {
            return NoRestart::Slices { reason: error };
        }
        let placement = step.facts.placement();
        let mut lost = step.facts.hosts.list_lost();
        lost.extend(step.facts.hosts.list_warned().into_iter().map(|(node, _)| node).chain([node]));
        let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
        let (hosts, of) =
            (count(placement.used().filter(|node| !lost.contains(node)).count()), count(placement.used().count()));
        let ranks = placement.without(&lost).map_or(0, |placement| placement.world_size());
        match self.means().may_shrink() {
            true => NoRestart::TooFew { hosts, of, ranks },
            false => NoRestart::NoLimit { hosts, of, ranks },
        }
    }
}
