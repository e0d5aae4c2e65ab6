//! The slices of a running job: which of them it has, which hosts are reached again and when, and until when slices are waited for.

use super::Cx;
use super::facts::JobFacts;
use super::notice::Notice;
use crate::events::{Cause, JobNews, Obstacle, SliceNews, SlicesTaken, What};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::deadlines::Deadlines;
use rlaunch_base::id::{AppIndex, NodeId};
use rlaunch_base::machine::{earliest, earliest_of};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::place::Placement;
use rlaunch_plan::slices::{Choice, GROW_AFTER, Growth, SlicePlan, Slot, SlotId, choose, growth};

/// The longest pause before a host is reached again.
const LONGEST: Span = Span::from_secs(60);

/// A host of a slice.
#[derive(Clone, Debug, Default)]
struct SliceHost {
    /// Attempts in a row that failed.
    attempts: u32,
    /// Why it is not ready.
    obstacle: Obstacle,
    /// The command of `--discover` does not print it any more.
    is_drained: bool,
}

/// The slices of a job.
#[derive(Debug)]
pub(in crate::job) struct SliceTable {
    plan: SlicePlan,
    /// The slices of the job, in their order; empty before its first start.
    taken: Vec<SlotId>,
    /// The slices of the start that is being prepared.
    chosen: Vec<SlotId>,
    hosts: Vec<SliceHost>,
    /// When hosts are reached again.
    redials: Deadlines,
    /// State since the last start of ranks. Another start begins with an empty one.
    now: SinceStart,
    /// Something has changed since slices were chosen.
    is_dirty: bool,
    /// Slices of lists that are not used, as the user knows.
    ignored: BTreeSet<String>,
    /// Spreads the pauses of jobs that lost hosts together.
    seed: u64,
}

/// The state since a start of ranks.
#[derive(Debug, Default)]
struct SinceStart {
    /// The time of the start.
    changed: Mono,
    /// Until when slices are waited for, while no rank runs.
    until: Option<Mono>,
    /// That time has come.
    is_expired: bool,
    /// When the job may grow.
    grow_at: Option<Mono>,
    /// The number of slices that could run, as the user knows.
    offered: u32,
    /// The user knows that slices are waited for.
    is_reported: bool,
}

impl SliceTable {
    pub(in crate::job) fn new(plan: SlicePlan, now: Mono, nodes: usize, seed: u64) -> Self {
        let hosts = vec![SliceHost::default(); nodes];
        let since = SinceStart { changed: now, until: Some(now + plan.timeout), ..SinceStart::default() };
        Self {
            plan,
            taken: Vec::new(),
            chosen: Vec::new(),
            hosts,
            redials: Deadlines::new(nodes),
            now: since,
            is_dirty: false,
            ignored: BTreeSet::new(),
            seed,
        }
    }

    pub(in crate::job) const fn plan(&self) -> &SlicePlan {
        &self.plan
    }

    /// The slices have to be looked at.
    pub(in crate::job) const fn touch(&mut self) {
        self.is_dirty = true;
    }

    pub(in crate::job) const fn take_dirty(&mut self) -> bool {
        core::mem::replace(&mut self.is_dirty, false)
    }

    /// Records why a host is not ready. Returns whether that is news.
    pub(in crate::job) fn note(&mut self, node: NodeId, obstacle: Obstacle) -> bool {
        self.touch();
        let Some(host) = self.hosts.get_mut(node.index()) else { return false };
        let is_news = host.obstacle != obstacle;
        host.obstacle = obstacle;
        is_news
    }

    /// A host is ready.
    pub(in crate::job) fn on_ready(&mut self, node: NodeId) {
        self.note(node, Obstacle::Awaited);
        if let Some(host) = self.hosts.get_mut(node.index()) {
            host.attempts = 0;
        }
    }

    /// A host can be reached again after a pause: 1 s, 2 s, up to 60 s, each from 80 % to 120 % of that.
    pub(in crate::job) fn redial_later(&mut self, now: Mono, node: NodeId) {
        let host = self.hosts.get_mut(node.index()).filter(|host| !host.is_drained && !host.obstacle.is_final());
        let Some(host) = host else { return };
        let pause = Span::from_secs(1).doubled(host.attempts, LONGEST);
        host.attempts = host.attempts.saturating_add(1);
        let mixed = self.seed.wrapping_add(u64::from(node.get()) << 8).wrapping_add(host.attempts.into());
        let spread = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 401;
        self.redials.set(node, Some(now + Span::from_nanos(pause.nanos() / 1000 * (800 + spread))));
    }

    /// The same at a given time.
    pub(in crate::job) fn redial_at(&mut self, node: NodeId, at: Mono) {
        self.redials.set(node, Some(at));
    }

    /// A host that is to be reached again now.
    pub(in crate::job) fn take_redial(&mut self, now: Mono) -> Option<NodeId> {
        self.redials.pop(now)
    }

    /// The slots whose hosts are all ready.
    pub(in crate::job) fn up(&self, is_ready: impl Fn(NodeId) -> bool) -> Vec<SlotId> {
        let all = (0..).map(SlotId::new).zip(&self.plan.slots);
        all.filter(|(_, slot)| slot.hosts.iter().all(|node| is_ready(*node))).map(|(id, _)| id).collect()
    }

    /// The first host that can never be ready, where too few slices are left without such hosts.
    pub(in crate::job) fn hopeless(&self) -> Option<(NodeId, &Obstacle)> {
        let of = |node: &NodeId| self.hosts.get(node.index()).map(|host| (*node, &host.obstacle));
        let lost = |(_, obstacle): &(NodeId, &Obstacle)| obstacle.is_final();
        let finals: Vec<_> =
            self.plan.slots.iter().filter_map(|slot| slot.hosts.iter().filter_map(of).find(lost)).collect();
        let rest = self.known_slots().count().saturating_sub(finals.len());
        let is_enough = rest >= self.plan.sizes.smallest() as usize;
        finals.first().copied().filter(|_| !is_enough)
    }

    /// The slots whose slices are known.
    fn known_slots(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        (0..).map(SlotId::new).zip(&self.plan.slots).filter(|(_, slot)| !slot.name.is_empty())
    }

    /// Whether some host could not be had.
    pub(in crate::job) fn has_trouble(&self) -> bool {
        self.hosts.iter().any(|host| host.obstacle != Obstacle::Awaited)
    }

    /// The hosts of known slices, each with its slice and whether it is drained.
    pub(in crate::job) fn known_hosts(&self) -> Vec<(NodeId, &str, bool)> {
        let is_drained = |node: &NodeId| self.hosts.get(node.index()).is_some_and(|host| host.is_drained);
        let mut all = Vec::new();
        for (_, slot) in self.known_slots() {
            all.extend(slot.hosts.iter().map(|node| (*node, slot.name.as_str(), is_drained(node))));
        }
        all
    }

    /// The next slot without a slice gets this one. Returns its hosts; `None`: no slot is left.
    pub(in crate::job) fn name_slot(&mut self, name: &str) -> Option<Vec<NodeId>> {
        let slot = self.plan.slots.iter_mut().find(|slot| slot.name.is_empty())?;
        slot.name = name.into();
        let hosts = slot.hosts.clone();
        self.touch();
        Some(hosts)
    }

    /// Whether a slice of a list is ignored for the first time.
    pub(in crate::job) fn ignore(&mut self, name: &str) -> bool {
        self.ignored.insert(name.into())
    }

    /// The command of `--discover` prints a host, or does not any more.
    pub(in crate::job) fn drain(&mut self, node: NodeId, is_drained: bool) {
        self.touch();
        if let Some(host) = self.hosts.get_mut(node.index()) {
            host.is_drained = is_drained;
        }
        if is_drained {
            self.redials.set(node, None);
        }
    }

    /// The slices for a start of ranks now.
    pub(in crate::job) fn choose(&mut self, now: Mono, up: &[SlotId]) -> Choice {
        let timeout = self.plan.timeout;
        let until = *self.now.until.get_or_insert(now + timeout);
        choose(&self.plan.sizes, up, &self.taken, until <= now)
    }

    /// Until when slices are waited for.
    pub(in crate::job) const fn until(&self) -> Option<Mono> {
        self.now.until
    }

    /// The user reads once that slices are waited for.
    pub(in crate::job) fn report_wait(&mut self, cx: &mut Cx<'_>, up: &[SlotId]) {
        if !core::mem::replace(&mut self.now.is_reported, true) {
            let wanted = if self.taken.is_empty() { self.plan.sizes.largest() } else { len(&self.taken) };
            let within = self.now.until.map_or(Span::ZERO, |until| until.since(cx.now));
            news(cx, SliceNews::Awaited { wanted, up: len(up), within });
        }
    }

    /// The time has expired, and no valid size is up: the job ends.
    pub(in crate::job) fn report_too_few(&self, cx: &mut Cx<'_>, up: &[SlotId], count: u32) {
        for (_, slot) in self.known_slots().filter(|(slot, _)| !up.contains(slot)) {
            let host = |node: &NodeId| Some((*node, &self.hosts.get(node.index())?.obstacle));
            let hosts: Vec<(NodeId, &Obstacle)> = slot.hosts.iter().filter_map(host).collect();
            let known = hosts.iter().find(|(_, why)| **why != Obstacle::Awaited).or(hosts.first());
            if let Some((node, why)) = known {
                let slice = slot.name.as_str().into();
                news(cx, SliceNews::Missing { slice, node: *node, why: Box::new((*why).clone()) });
            }
        }
        cx.notify(Notice::End(Cause::TooFewSlices { asked: self.plan.sizes.as_slice().to_vec(), up: count }));
    }

    fn name(&self, slot: SlotId) -> OsBytes {
        self.plan.slots.get(slot.index()).map(|slot| slot.name.as_str().into()).unwrap_or_default()
    }

    /// The placement of ranks on chosen slices.
    pub(in crate::job) fn place(&mut self, facts: &JobFacts, slots: Vec<SlotId>) -> Arc<Placement> {
        self.chosen = slots;
        Arc::new(facts.place_on(&self.plan.hosts(self.chosen.iter().copied())))
    }

    /// Ranks start on the chosen slices. Returns the record of it.
    pub(in crate::job) fn start(&mut self, now: Mono, up: &[SlotId], placement: &Placement) -> Box<SlicesTaken> {
        self.now = SinceStart { changed: now, ..SinceStart::default() };
        self.touch();
        let first = (0..self.plan.sizes.largest()).map(SlotId::new).collect();
        let expected = if self.taken.is_empty() { first } else { core::mem::take(&mut self.taken) };
        self.taken = core::mem::take(&mut self.chosen);
        let is_news = self.taken != expected;
        Box::new(SlicesTaken {
            slices: self.taken.iter().map(|slot| self.name(*slot)).collect(),
            spares: up.iter().filter(|slot| !self.taken.contains(slot)).map(|slot| self.name(*slot)).collect(),
            wanted_spares: self.plan.spares,
            world_size: placement.world_size(),
            procs: [placement.procs(AppIndex::new(0))].into(),
            is_news,
        })
    }

    /// The slices of the job.
    pub(in crate::job) fn taken(&self) -> &[SlotId] {
        &self.taken
    }

    /// A larger size that the user has not read of yet.
    pub(in crate::job) fn grow(&mut self, now: Mono, up: &[SlotId]) -> Option<u32> {
        let running = len(&self.taken);
        self.now.grow_at = None;
        match growth(&self.plan.sizes, running, len(up), now.since(self.now.changed)) {
            Growth::To(size) => (core::mem::replace(&mut self.now.offered, size) != size).then_some(size),
            Growth::NotYet => {
                self.now.grow_at = Some(self.now.changed + GROW_AFTER);
                None
            }
            Growth::No => {
                self.now.offered = 0;
                None
            }
        }
    }

    /// Time has passed.
    pub(in crate::job) fn timeout(&mut self, now: Mono) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.touch();
        }
        self.now.grow_at = self.now.grow_at.filter(|at| *at > now);
        self.now.is_expired |= self.now.until.is_some_and(|until| until <= now);
    }

    /// When something is due. A pause between two generations has a deadline of its own.
    pub(in crate::job) fn deadline(&self) -> Option<Mono> {
        let start = self.now.until.filter(|_| self.taken.is_empty() && !self.now.is_expired);
        earliest(self.redials.next(), earliest_of([start, self.now.grow_at]))
    }

    /// The job ends: no host is reached again.
    pub(in crate::job) fn stop(&mut self) {
        let nodes = self.hosts.len();
        (self.redials, self.now.until, self.now.grow_at) = (Deadlines::new(nodes), None, None);
    }
}

fn len<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

fn news(cx: &mut Cx<'_>, news: SliceNews) {
    cx.notify(Notice::Log(What::News(JobNews::Slices(news))));
}
