//! Consequences of the warning that a host is about to be taken away, and the difference between a preemption and a failure.
//!
//! Evidence decides, and never the words of a program. A generation was preempted if a host was warned, or was lost before the failure
//! that was noticed first. Ranks elsewhere fail long before the lease of a lost host is over. So the class is decided when every host has
//! reported that its ranks have ended, or is lost.

use super::super::generations::Why;
use super::super::notice::RankExit;
use super::super::slices::Obstacle;
use super::super::{Parts, Step, shrink_rule};
use crate::events::{Cause, JobNews, Lost, What};
use crate::id::NodeId;
use crate::warnings::{Response, WarningSource};
use alloc::vec::Vec;

impl Parts {
    /// A host is about to be taken away.
    pub(in crate::job) fn warned(&mut self, step: &mut Step<'_>, node: NodeId, source: WarningSource) {
        if !step.facts.hosts.warn(node, source) {
            return;
        }
        let is_ending = self.generations.is_between() || self.closing.is_all_over() || self.ending.has_begun();
        self.note_obstacle(node, Obstacle::Warned(source));
        let is_spare = self.slices.is_some() && !(self.bringup.has_started() && step.facts.is_used(node));
        let is_unused = is_spare || step.facts.hosts.is_lost(node) || step.facts.hosts.is_left_out(node);
        let response = match self.generations.response() {
            _ if is_ending || is_unused => Response::Noted,
            // The agent reports the warning of each rank there.
            _ if self.rounds.can_drain(node) => Response::Drains,
            response @ (Response::Ends(_) | Response::Noted | Response::Drains) => response,
        };
        self.log.write(&mut step.cx(), What::News(JobNews::HostWarned { node, source, response }));
        if let Response::Ends(_) = response {
            self.end_for_warning(step, node, Lost::Warned(source));
        }
    }

    /// Ends all ranks because of a warning. They are started again without the host, or the job ends.
    fn end_for_warning(&mut self, step: &mut Step<'_>, node: NodeId, lost: Lost) {
        let follows = !step.facts.hosts.is_local(node) && self.may_follow() && self.can_do_without(step, &[node]);
        let why = shrink_rule::why_lost(step.facts, node, lost, (step.now, step.now));
        if !follows || !self.try_clear(step, why) {
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
        if first.lost.is_some() {
            return *first;
        }
        let failure: RankExit = self.root_cause.root().unwrap_or(first.failure);
        if let Some((node, lost, between)) = self.root_cause.lost_before_failure(&failure)
            && step.facts.hosts.is_recently_lost(node)
        {
            return shrink_rule::why_lost(step.facts, node, lost, between);
        }
        let lost = step.facts.hosts.warning(failure.node).map(Lost::Warned);
        Why { failure, lost }
    }

    /// Leaves hosts that are about to be taken away out of the next generation. Returns the cause of the job's end, where it cannot do
    /// without them.
    pub(in crate::job) fn leave_warned(&mut self, step: &mut Step<'_>) -> Option<Cause> {
        if self.slices.is_some() {
            // Its slice is not up. Its agent stays until the host is taken away.
            return None;
        }
        let warned = step.facts.hosts.list_warned();
        let (first, source) = *warned.first()?;
        let nodes: Vec<NodeId> = warned.iter().map(|(node, _)| *node).collect();
        let is_needed = nodes.iter().any(|node| step.facts.hosts.is_local(*node));
        if is_needed || !self.shrink_rule.can_do_without(step.facts, &self.means(), &nodes) {
            return Some(Cause::Preempted { node: first, lost: Lost::Warned(source) });
        }
        for (node, source) in warned {
            let lost = Lost::Warned(source);
            shrink_rule::dismiss(&mut step.cx(), node, lost);
            step.facts.hosts.lose(node, lost, (step.now, step.now), true);
        }
        None
    }
}
