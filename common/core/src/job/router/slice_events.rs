//! Slices in a running job (`--slices`): what follows when hosts of them come, go and come back.
//!
//! A slice is up while each of its hosts is ready, is not lost and has no warning. Only slices that are up take part in a start of
//! ranks. [`SliceTable`] decides which ones. Hosts of the other slices keep their agents. A host that was lost is reached again after a
//! pause, once nothing of it runs any more.

use super::super::generations::Why;
use super::super::notice::Notice;
use super::super::slices::SliceTable;
use super::super::{Parts, Step};
use crate::events::{Cause, JobNews, Lost, Obstacle, SliceNews, What};
use crate::job::hosts::Loss;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::Span;
use rlaunch_plan::place::Placement;
use rlaunch_plan::slices::{Choice, Grow, SlotId};

/// From look to look at a lost host that the ranks of this generation still name.
const LATER: Span = Span::from_secs(1);

impl Parts {
    /// Whether hosts of slices come and go now: neither does the job end, nor have its ranks done their work.
    pub(in crate::job) fn has_slices(&self) -> bool {
        self.recovery.slices().is_some() && !self.is_over()
    }

    /// Chooses slices after something has changed.
    pub(in crate::job) fn review_slices(&mut self, step: &mut Step<'_>) {
        if !self.recovery.slices_mut().is_some_and(SliceTable::take_dirty) || !self.has_slices() {
            return;
        }
        let up = self.slices_up(step);
        if !self.bringup.has_started() {
            self.choose_first(step, &up);
        } else if self.generations.is_held() {
            self.generations.pause_until(step.now);
        } else if !self.generations.is_between() {
            self.review_growth(step, &up);
        }
    }

    /// The slices that are up.
    fn slices_up(&self, step: &Step<'_>) -> Vec<SlotId> {
        let hosts = &step.facts.hosts;
        let is_ready = |node| self.bringup.is_ready(node) && !hosts.is_lost(node) && hosts.warning(node).is_none();
        self.recovery.slices().map(|slices| slices.up(is_ready)).unwrap_or_default()
    }

    /// Starts the job, once enough slices are up.
    fn choose_first(&mut self, step: &mut Step<'_>, up: &[SlotId]) {
        let Some(slices) = self.recovery.slices_mut() else { return };
        if let Some((node, Obstacle::Refused(why))) = slices.hopeless() {
            let why = why.clone();
            return step.notify(Notice::End(Cause::Refused { node, why }));
        }
        match slices.choose(step.now, up) {
            Choice::Take(slots) => {
                let placement = slices.place(step.facts, slots);
                self.bringup.start_on(&mut step.cx(), Some(placement));
            }
            Choice::Wait => {
                self.bringup.start_on(&mut step.cx(), None);
                if slices.has_trouble() {
                    slices.report_wait(&mut step.cx(), up);
                }
            }
            Choice::TooFew { up: count } => slices.report_too_few(&mut step.cx(), up, count),
        }
    }

    /// Ranks start on the chosen slices.
    pub(super) fn take_slices(&mut self, step: &mut Step<'_>, placement: &Placement) {
        let up = self.slices_up(step);
        let Some(slices) = self.recovery.slices_mut() else { return };
        let taken = slices.start(step.now, &up, placement);
        self.log.write(&mut step.cx(), What::Slices(taken));
    }

    /// The placement of the next generation; `None`: slices are waited for, or the job ends.
    pub(in crate::job) fn next_slices(&mut self, step: &mut Step<'_>) -> Option<Arc<Placement>> {
        let up = self.slices_up(step);
        let slices = self.recovery.slices_mut()?;
        match slices.choose(step.now, &up) {
            Choice::Take(slots) => {
                let placement = slices.place(step.facts, slots);
                self.take_slices(step, &placement);
                return Some(placement);
            }
            Choice::Wait => {
                self.generations.hold(slices.until().unwrap_or(step.now));
                slices.report_wait(&mut step.cx(), &up);
            }
            Choice::TooFew { up: count } => slices.report_too_few(&mut step.cx(), &up, count),
        }
        None
    }

    /// Nothing of a host runs any more: it can be reached again.
    pub(in crate::job) fn slice_host_over(&mut self, step: &mut Step<'_>, node: NodeId) {
        if !self.has_slices() || step.facts.hosts.is_local(node) {
            return;
        }
        // Its agent has ended by itself.
        step.facts.hosts.lose(Loss { node, lost: Lost::AgentEarly, between: (step.now, step.now) }, true);
        self.bringup.lose(node);
        self.redial_later(step, node);
    }

    /// A host is reached again after a pause, unless the ranks have started and are not started again.
    pub(super) fn redial_later(&mut self, step: &Step<'_>, node: NodeId) {
        if !self.has_slices() || (self.bringup.has_started() && !self.bringup.can_start_again()) {
            return;
        }
        if let Some(slices) = self.recovery.slices_mut() {
            slices.touch();
            slices.redial_later(step.now, node);
        }
    }

    /// Hosts are reached again, or something else is due.
    pub(in crate::job) fn slices_timeout(&mut self, step: &mut Step<'_>) {
        if !self.has_slices() {
            return;
        }
        while let Some(node) = self.recovery.slices_mut().and_then(|slices| slices.take_redial(step.now)) {
            let is_named = self.bringup.has_started() && step.facts.is_used(node) && !self.generations.is_pausing();
            if is_named || self.generations.is_clearing() {
                self.recovery.slices_mut().into_iter().for_each(|slices| slices.redial_at(node, step.now + LATER));
            } else {
                self.redial(step, node);
            }
        }
        self.recovery.slices_mut().into_iter().for_each(|slices| slices.timeout(step.now));
    }

    /// Reaches a host again: no part of ours remembers what was there.
    pub(super) fn redial(&mut self, step: &mut Step<'_>, node: NodeId) {
        step.facts.hosts.revive(node);
        self.node_ends.revive(node);
        self.kill_watchdog.revive(node);
        self.lease.revive(node);
        self.startup_deadline.ready(node);
        self.root_cause.revive(node);
        self.bringup.redial(&mut step.cx(), node);
    }

    /// The end of the job has begun, or its ranks have done their work: no host is reached again.
    pub(in crate::job) fn slices_end(&mut self, step: &mut Step<'_>) {
        if let Some(slices) = self.recovery.slices_mut() {
            slices.stop();
            self.bringup.stop_connecting(&mut step.cx());
            self.node_ends.notify_if_counted(&mut step.cx());
        }
    }

    /// More slices are up than run.
    fn review_growth(&mut self, step: &mut Step<'_>, up: &[SlotId]) {
        let Some(slices) = self.recovery.slices_mut() else { return };
        let running = u32::try_from(slices.taken().len()).unwrap_or(u32::MAX);
        let Some(size) = slices.grow(step.now, up) else { return };
        let restarts = slices.plan().grow == Grow::Now
            && !self.generations.is_off()
            && self.bringup.can_start_again()
            // Work that a rank has done is not done again.
            && !self.procs.has_finished_rank();
        step.notify(Notice::Log(What::News(JobNews::Slices(SliceNews::Larger { size, running, restarts }))));
        if restarts {
            self.try_clear(step, Why::Grown { size, running });
        }
    }

    /// Records why a host is not ready. Returns whether that is news.
    pub(in crate::job) fn note_obstacle(&mut self, node: NodeId, obstacle: Obstacle) -> bool {
        self.recovery.slices_mut().is_none_or(|slices| slices.note(node, obstacle))
    }
}
