//! Slices in a running job (`--slices`): what follows when hosts of them come, go and come back.
//!
//! A slice is up while each of its hosts is ready, is not lost and has no warning. Only slices that are up take part in a start of
//! ranks. [`SliceTable`] decides which ones. Hosts of the other slices keep their agents. A host that was lost is reached again after a
//! pause, once nothing of it runs any more.

use super::super::generations::Why;
use super::super::notice::Notice;
use super::super::slices::SliceTable;
use super::super::{JobAction, Parts, Step, shrink_rule};
use crate::events::{Cause, JobNews, Lost, Obstacle, RanksState, SliceNews, SlicesTaken, What};
use crate::id::{AppIndex, NodeId};
use crate::os_bytes::OsBytes;
use crate::place::Placement;
use crate::slices::{Choice, Grow, SlotId};
use crate::time::Span;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// From look to look at a lost host that the ranks of this generation still name.
const LATER: Span = Span::from_secs(1);

/// The placement for the next start of ranks.
pub(in crate::job) enum Next {
    /// The same hosts, as far as they are there: the job has no slices.
    Unsliced,
    /// The hosts of these slices.
    Slices(Arc<Placement>),
    /// None: slices are waited for, or the job ends.
    Held,
}

impl Parts {
    /// Whether hosts of slices come and go now: neither does the job end, nor have its ranks done their work.
    pub(in crate::job) fn has_slices(&self) -> bool {
        self.slices.is_some() && !self.ending.has_begun() && !self.closing.is_all_over()
    }

    /// Chooses slices after something has changed.
    pub(in crate::job) fn review_slices(&mut self, step: &mut Step<'_>) {
        if !self.slices.as_mut().is_some_and(SliceTable::take_dirty) || !self.has_slices() {
            return;
        }
        let up = self.slices_up(step);
        if !self.bringup.has_started() {
            self.choose_first(step, &up);
        } else if self.generations.is_held() {
            self.generations.end_hold(step.now);
        } else if !self.generations.is_between() {
            self.review_growth(step, &up);
        }
    }

    /// The slices that are up.
    fn slices_up(&self, step: &Step<'_>) -> Vec<SlotId> {
        let hosts = &step.facts.hosts;
        let is_ready = |node| self.bringup.is_ready(node) && !hosts.is_lost(node) && hosts.warning(node).is_none();
        self.slices.as_ref().map(|slices| slices.up(is_ready)).unwrap_or_default()
    }

    /// Starts the job, once enough slices are up.
    fn choose_first(&mut self, step: &mut Step<'_>, up: &[SlotId]) {
        let Some(slices) = &mut self.slices else { return };
        if let Some((node, Obstacle::Refused(why))) = slices.hopeless() {
            let why = why.clone();
            return step.notify(Notice::End(Cause::Refused { node, why }));
        }
        match slices.choose(step.now, up) {
            Choice::Take(slots) => {
                let placement = placement(slices, step, &slots);
                self.bringup.start_on(&mut step.cx(), Some((slots, placement)));
            }
            Choice::Wait => {
                self.bringup.start_on(&mut step.cx(), None);
                let has_trouble = slices.has_trouble();
                self.report_wait(step, up, has_trouble);
            }
            Choice::TooFew { up: count } => self.too_few(step, up, count),
        }
    }

    /// The user reads once that slices are waited for.
    fn report_wait(&mut self, step: &mut Step<'_>, up: &[SlotId], is_worth: bool) {
        let Some(slices) = self.slices.as_mut().filter(|_| is_worth) else { return };
        if slices.take_report() {
            let (wanted, up) = (slices.wanted(), u32::try_from(up.len()).unwrap_or(u32::MAX));
            let within = slices.rest(step.now);
            step.notify(Notice::Log(What::News(JobNews::Slices(SliceNews::Awaited { wanted, up, within }))));
        }
    }

    /// The time is over, and no valid size is up.
    fn too_few(&mut self, step: &mut Step<'_>, up: &[SlotId], count: u32) {
        let Some(slices) = &self.slices else { return };
        for (slot, node, why) in slices.missing(up) {
            let slice = slice_name(slices, slot);
            step.notify(Notice::Log(What::News(JobNews::Slices(SliceNews::Missing {
                slice,
                node,
                why: Box::new(why),
            }))));
        }
        let asked = slices.plan().sizes.as_slice().to_vec();
        step.notify(Notice::End(Cause::TooFewSlices { asked, up: count }));
    }

    /// Ranks have been placed on slices for the first time.
    pub(in crate::job) fn slices_started(
        &mut self,
        step: &mut Step<'_>,
        slots: Vec<SlotId>,
        placement: Arc<Placement>,
    ) {
        step.facts.place(Arc::clone(&placement));
        self.procs.left_out(step.facts);
        self.log_slices(step, slots, &placement);
    }

    fn log_slices(&mut self, step: &mut Step<'_>, slots: Vec<SlotId>, placement: &Placement) {
        let up = self.slices_up(step);
        let Some(slices) = &mut self.slices else { return };
        let before = slices.start(step.now, slots);
        let taken = slices.taken();
        let spares = up.iter().filter(|slot| !taken.contains(slot)).map(|slot| slice_name(slices, *slot)).collect();
        let is_first = before.is_empty();
        let first: Vec<SlotId> = (0..slices.plan().sizes.largest()).map(SlotId::new).collect();
        let is_news = if is_first { taken != first.as_slice() } else { taken != before.as_slice() };
        let record = SlicesTaken {
            slices: taken.iter().map(|slot| slice_name(slices, *slot)).collect(),
            spares,
            wanted_spares: slices.plan().spares,
            world_size: placement.world_size(),
            procs: [placement.procs(AppIndex::new(0))].into(),
            is_news,
        };
        self.log.write(&mut step.cx(), What::Slices(Box::new(record)));
    }

    /// The placement of the next generation.
    pub(in crate::job) fn next_slices(&mut self, step: &mut Step<'_>) -> Next {
        if self.slices.is_none() {
            return Next::Unsliced;
        }
        let up = self.slices_up(step);
        let Some(slices) = &mut self.slices else { return Next::Unsliced };
        match slices.choose(step.now, &up) {
            Choice::Take(slots) => {
                let placement = placement(slices, step, &slots);
                self.log_slices(step, slots, &placement);
                Next::Slices(placement)
            }
            Choice::Wait => {
                let until = slices.until().unwrap_or(step.now);
                self.generations.hold(until);
                self.report_wait(step, &up, true);
                Next::Held
            }
            Choice::TooFew { up: count } => {
                self.too_few(step, &up, count);
                Next::Held
            }
        }
    }

    /// Handles the loss of a part of ours on a host of a slice. Returns whether that is done with it.
    pub(in crate::job) fn slice_host_lost(&mut self, step: &mut Step<'_>, node: NodeId, lost: Lost) -> bool {
        if !self.has_slices() || step.facts.hosts.is_local(node) {
            return false;
        }
        if let Some(slices) = &mut self.slices {
            slices.note(node, Obstacle::Lost(lost));
        }
        self.bringup.lose(node);
        let between = self.lease.between(step.now, node, lost);
        if !self.bringup.has_started() {
            step.act(JobAction::Sever { node });
            self.forget(step, node);
            self.redial_later(step, node);
            return true;
        }
        if !step.facts.is_used(node) {
            // Nothing of the job runs there.
            shrink_rule::dismiss(&mut step.cx(), node, lost);
            step.facts.hosts.lose(node, lost, between, true);
            return true;
        }
        if step.facts.hosts.is_lost(node) || self.on_host_lost(step, node, lost) {
            return true;
        }
        self.root_cause.lost(node, lost, between);
        if !self.may_follow() {
            let cause = self.loss_cause(step, node, lost);
            self.ending.end(&mut step.cx(), cause, RanksState::Running);
            return true;
        }
        shrink_rule::dismiss(&mut step.cx(), node, lost);
        step.facts.hosts.lose(node, lost, between, self.generations.is_clear(node));
        if !self.generations.is_between() {
            self.try_clear(step, shrink_rule::why_lost(step.facts, node, lost, between));
        }
        true
    }

    /// Nothing of a host runs any more: it can be reached again.
    pub(in crate::job) fn slice_host_over(&mut self, step: &mut Step<'_>, node: NodeId) {
        if !self.has_slices() || step.facts.hosts.is_local(node) {
            return;
        }
        // Its agent has ended by itself.
        step.facts.hosts.lose(node, Lost::AgentEarly, (step.now, step.now), true);
        self.bringup.lose(node);
        self.redial_later(step, node);
    }

    /// A host was not reached.
    pub(in crate::job) fn slice_host_failed(&mut self, step: &mut Step<'_>, node: NodeId) {
        if self.has_slices() {
            self.redial_later(step, node);
        }
    }

    pub(super) fn redial_later(&mut self, step: &Step<'_>, node: NodeId) {
        let can_start = !self.bringup.has_started() || self.bringup.can_start_again();
        if let Some(slices) = self.slices.as_mut().filter(|_| can_start) {
            slices.touch();
            slices.redial_later(step.now, node);
        }
    }

    /// Hosts are reached again, or something else is due.
    pub(in crate::job) fn slices_timeout(&mut self, step: &mut Step<'_>) {
        if !self.has_slices() {
            return;
        }
        while let Some(node) = self.slices.as_mut().and_then(|slices| slices.take_redial(step.now)) {
            let is_named = self.bringup.has_started() && step.facts.is_used(node) && !self.generations.is_pausing();
            if is_named || self.generations.is_clearing() {
                self.slices.iter_mut().for_each(|slices| slices.redial_at(node, step.now + LATER));
            } else {
                self.redial(step, node);
            }
        }
        self.slices.iter_mut().for_each(|slices| slices.timeout(step.now));
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
        if let Some(slices) = &mut self.slices {
            slices.stop();
            self.bringup.stop_connecting(&mut step.cx());
            self.node_ends.notify_if_counted(&mut step.cx());
        }
    }

    /// More slices are up than run.
    fn review_growth(&mut self, step: &mut Step<'_>, up: &[SlotId]) {
        let Some(slices) = &mut self.slices else { return };
        let running = u32::try_from(slices.taken().len()).unwrap_or(u32::MAX);
        let Some(size) = slices.grow(step.now, up) else { return };
        let restarts = slices.plan().grow == Grow::Now && self.can_grow();
        step.notify(Notice::Log(What::News(JobNews::Slices(SliceNews::Larger { size, running, restarts }))));
        if restarts {
            self.try_clear(step, Why::Grown { size, running });
        }
    }

    /// Whether ranks can be ended and started again for more slices. Work that a rank has done is not done again.
    fn can_grow(&self) -> bool {
        !self.generations.is_off() && self.bringup.can_start_again() && !self.procs.has_finished_rank()
    }

    /// Whether another generation may do without hosts, and with which others.
    pub(in crate::job) fn can_do_without(&self, step: &Step<'_>, also: &[NodeId]) -> bool {
        self.slices.is_some() || self.shrink_rule.can_do_without(step.facts, &self.means(), also)
    }

    /// Whether a generation may have other hosts than the one before.
    pub(in crate::job) fn may_shrink(&self) -> bool {
        self.slices.is_some() || self.shrink_rule.may_shrink(&self.means())
    }

    /// Records why a host is not ready. Returns whether that is news.
    pub(in crate::job) fn note_obstacle(&mut self, node: NodeId, obstacle: Obstacle) -> bool {
        self.slices.as_mut().is_none_or(|slices| slices.note(node, obstacle))
    }
}

fn slice_name(slices: &SliceTable, slot: SlotId) -> OsBytes {
    slices.plan().slots.get(slot.index()).map(|slot| slot.name.as_str().into()).unwrap_or_default()
}

/// The ranks of these slices.
fn placement(slices: &SliceTable, step: &Step<'_>, slots: &[SlotId]) -> Arc<Placement> {
    let hosts = slices.plan().hosts(slots.iter().copied());
    Arc::new(step.facts.place_on(&hosts))
}
