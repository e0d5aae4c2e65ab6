//! From the order to end all ranks to their next start: one generation ends, and another one begins.

use super::super::generations::Why;
use super::super::notice::RankExit;
use super::super::recovery::Recovery;
use super::super::shrink_rule::Means;
use super::{Parts, Step};
use crate::events::{Cause, Fewer, RanksState};
use alloc::boxed::Box;
use alloc::sync::Arc;
use rlaunch_base::id::Rank;
use rlaunch_base::time::Span;

impl Parts {
    /// Facts that decide what another generation may be.
    pub(super) fn means(&self) -> Means {
        Means {
            can_start_again: self.bringup.can_start_again(),
            has_rounds: self.rounds.is_used(),
            limits: self.rounds.limits(),
        }
    }

    /// Ends all ranks, so that another generation may follow. Returns whether any host was ordered to.
    pub(super) fn try_clear(&mut self, step: &mut Step<'_>, why: Why) -> bool {
        let (grace, shrinks) = (self.generations.grace_for(&why), self.recovery.may_shrink(&self.means()));
        let lost = step.facts.hosts.list_lost();
        let mut nodes = self.bringup.clear(&mut step.cx(), grace, (&lost, shrinks));
        if nodes.is_empty() {
            return false;
        }
        nodes.extend(lost.into_iter().filter(|node| step.facts.hosts.may_still_run(*node)));
        self.root_cause.cleared_from(step.now);
        self.rounds.off(step.now);
        // A host that is silent is known as lost only then.
        let longer = if shrinks { self.lease.patience() } else { Span::ZERO };
        self.generations.clearing(&mut step.cx(), why, nodes, longer);
        true
    }

    /// Nothing runs any more: all that there is to know of this generation is known.
    pub(super) fn cleared(&mut self, step: &mut Step<'_>, first: &Why) {
        let first = self.classify(step, first);
        if let Some(cause) = self.leave_warned(step).or_else(|| self.refuse_parts(step)) {
            return self.ending.end(&mut step.cx(), cause, RanksState::Between);
        }
        let (rank, at) = match first {
            Why::Failed { failure: RankExit { rank, at, .. }, .. } => (rank, at),
            // All ranks had finished when the order to end came.
            Why::Grown { .. } if self.procs.has_all_finished() => {
                return self.ending.end(&mut step.cx(), Cause::Success, RanksState::Between);
            }
            Why::Grown { .. } => (Rank::new(0), step.now),
        };
        let lived = self.procs.started_at(rank).map_or(Span::ZERO, |started| at.since(started));
        let remaining = self.recovery.remaining(step.facts, &self.means());
        let fewer = remaining
            .map(|placement| Box::new(Fewer { without: step.facts.hosts.list_lost(), ranks: placement.world_size() }));
        self.generations.decide(&mut step.cx(), &first, lived, fewer);
    }

    /// Starts all ranks again. The order matters where a comment says why.
    pub(super) fn start_generation(&mut self, step: &mut Step<'_>) {
        if !self.generations.is_pausing() {
            // The job has begun to end at the same moment.
            return;
        }
        if let Some(cause) = self.refuse_parts(step) {
            return self.ending.end(&mut step.cx(), cause, RanksState::Between);
        }
        if !self.bringup.is_next_free(&mut step.cx()) {
            return self.generations.await_devices(step.now);
        }
        // Before the generation begins: from then on its recent losses are losses of an earlier one.
        let is_sliced = matches!(self.recovery, Recovery::Slices(_));
        let placement = match is_sliced {
            true => self.next_slices(step),
            false => self.recovery.remaining(step.facts, &self.means()).map(Arc::new),
        };
        if is_sliced && placement.is_none() {
            return;
        }
        // Before the placement changes: the streams that have ended belong to ranks of the old one.
        self.output.rest(step.facts).for_each(|what| self.log.write(&mut step.cx(), what));
        let Some(pause) = self.generations.end_pause() else { return };
        let (restart, reported, ports) = (pause.restart, pause.reported, pause.ports());
        // Before the new processes: their numbers follow those of the old ones.
        let first = self.procs.next_generation();
        let shrinks = placement.is_some();
        step.facts.begin_generation(restart, placement, first);
        self.log.in_round(None);
        self.procs.begin(step.facts.placement(), first);
        self.root_cause.reset_for_generation();
        self.ending.reset_for_generation();
        self.kill_watchdog.reset_for_generation();
        let namespace = self.rounds.reset_for_generation();
        if shrinks && !is_sliced {
            let (lost, placement) = (step.facts.hosts.list_lost(), Arc::clone(step.facts.placement()));
            // Another host may have been lost in the pause.
            let is_known = reported == lost.len();
            self.log.left_out(&mut step.cx(), lost, &placement, is_known);
        }
        // Last: orders are sent by the new facts.
        self.bringup.start_generation(&mut step.cx(), (restart, first.get()), (&ports, namespace), shrinks);
    }
}
