//! The hosts of a pool, in slot order, and the choice among them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::id::{HoldId, JobId, NodeId};
use rlaunch_base::time::Mono;
use rlaunch_protocol::wire::frozen::pool::Need;

/// The connection to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    /// ssh opens it for the first time.
    Opening,
    Up,
    Lost,
}

/// The use of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// No job has it, and nothing of a job is left.
    None,
    /// The job of this connection has it.
    Held(HoldId),
    /// Processes of this job may be left.
    Emptying(JobId),
}

/// The state of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostState {
    /// The pool dials the host for the first time.
    Reaching,
    /// A job can have it.
    Free,
    /// The job of this connection has it.
    Held(HoldId),
    /// Processes of this job may be left.
    Emptying(JobId),
    /// The host leaves the pool: no new job can have it.
    Draining,
    /// Its connection has ended, or could not be made.
    Lost,
    /// The host has a warning: its cloud is about to take it away.
    Warned,
}

/// The state of a slice as a whole: of the states of its hosts the one that keeps it from jobs the longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SliceState {
    /// A job can have it.
    Free,
    /// Hosts of it have left the pool.
    Incomplete,
    /// A host has a warning.
    Warned,
    /// A host leaves the pool.
    Draining,
    /// A host is dialled for the first time.
    Reaching,
    /// Processes of a job may be left.
    Emptying,
    /// A job has it, or a host of it.
    Held,
    /// A host is lost.
    Lost,
}

impl SliceState {
    const fn of(host: HostState) -> Self {
        match host {
            HostState::Reaching => Self::Reaching,
            HostState::Free => Self::Free,
            HostState::Held(_) => Self::Held,
            HostState::Emptying(_) => Self::Emptying,
            HostState::Draining => Self::Draining,
            HostState::Lost => Self::Lost,
            HostState::Warned => Self::Warned,
        }
    }
}

/// A host of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolHost {
    pub(super) slots: u32,
    slice: Option<u32>,
    link: Link,
    used: Use,
    is_warned: bool,
    is_draining: bool,
    /// When a pool that ends waits no longer for the end of the last job there.
    empty_by: Mono,
}

impl PoolHost {
    /// Its state. Of several the one that keeps it from jobs the longest.
    #[must_use]
    pub const fn state(&self) -> HostState {
        match (self.link, self.used) {
            (Link::Lost, _) => HostState::Lost,
            (_, Use::Held(hold)) => HostState::Held(hold),
            (_, Use::Emptying(job)) => HostState::Emptying(job),
            (Link::Opening, Use::None) => HostState::Reaching,
            (Link::Up, Use::None) if self.is_draining => HostState::Draining,
            (Link::Up, Use::None) if self.is_warned => HostState::Warned,
            (Link::Up, Use::None) => HostState::Free,
        }
    }

    /// The connection of the job that has it.
    #[must_use]
    pub const fn holder(&self) -> Option<HoldId> {
        match self.used {
            Use::Held(hold) => Some(hold),
            Use::None | Use::Emptying(_) => None,
        }
    }

    /// The job of which processes may be left.
    #[must_use]
    pub const fn last_job(&self) -> Option<JobId> {
        match self.used {
            Use::Emptying(job) => Some(job),
            Use::None | Use::Held(_) => None,
        }
    }

    /// Whether a job could have it if no other had it.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        matches!(self.link, Link::Up) && !self.is_warned && !self.is_draining
    }

    /// Whether it gets no new job, and leaves when it is empty.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Whether it has a warning.
    #[must_use]
    pub const fn is_warned(&self) -> bool {
        self.is_warned
    }

    /// Its slice, by its slot.
    #[must_use]
    pub const fn slice(&self) -> Option<u32> {
        self.slice
    }

    /// Whether it stays in the pool.
    pub(super) const fn stays(&self) -> bool {
        !self.is_draining
    }

    pub(super) const fn is_free(&self) -> bool {
        self.is_usable() && matches!(self.used, Use::None)
    }

    /// Whether a job can have it once these have ended and it is empty.
    pub(super) fn is_free_after(&self, ending: &[HoldId]) -> bool {
        self.is_usable() && self.holder().is_none_or(|hold| ending.contains(&hold))
    }
}

/// Hosts by their slots. A slot is never given to another host.
#[derive(Debug)]
pub(super) struct HostTable {
    hosts: BTreeMap<NodeId, PoolHost>,
    next: u32,
    /// Hosts of a slice: all have as many. A slice with fewer has lost some, by `drain` or `remove`.
    slice_size: usize,
}

impl HostTable {
    pub(super) const fn new() -> Self {
        Self { hosts: BTreeMap::new(), next: 0, slice_size: 0 }
    }

    pub(super) fn add(&mut self, slots: u32, slice: Option<u32>) -> NodeId {
        if !self.has_slices() {
            self.slice_size = 0;
        }
        let node = NodeId::new(self.next);
        self.next = self.next.saturating_add(1);
        let (link, used) = (Link::Opening, Use::None);
        let (is_warned, is_draining, empty_by) = (false, false, Mono::from_nanos(0));
        self.hosts.insert(node, PoolHost { slots, slice, link, used, is_warned, is_draining, empty_by });
        self.slice_size =
            self.slice_size.max(self.hosts.values().filter(|host| slice.is_some() && host.slice == slice).count());
        node
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&PoolHost> {
        self.hosts.get(&node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &PoolHost)> {
        self.hosts.iter().map(|(node, host)| (*node, host))
    }

    /// Its connection is open. Returns the job of which something may be left there.
    pub(super) fn on_up(&mut self, node: NodeId) -> Option<JobId> {
        let host = self.hosts.get_mut(&node)?;
        host.link = Link::Up;
        host.last_job()
    }

    pub(super) fn on_lost(&mut self, node: NodeId) {
        if let Some(host) = self.hosts.get_mut(&node) {
            host.link = Link::Lost;
        }
    }

    pub(super) fn on_warned(&mut self, node: NodeId, is_warned: bool) {
        if let Some(host) = self.hosts.get_mut(&node) {
            host.is_warned = is_warned;
        }
    }

    pub(super) fn on_empty(&mut self, node: NodeId, job: JobId) {
        if let Some(host) = self.hosts.get_mut(&node).filter(|host| host.used == Use::Emptying(job)) {
            host.used = Use::None;
        }
    }

    pub(super) fn drain(&mut self, node: NodeId) {
        if let Some(host) = self.hosts.get_mut(&node) {
            host.is_draining = true;
        }
    }

    pub(super) fn hold(&mut self, nodes: &[NodeId], hold: HoldId) {
        for node in nodes {
            if let Some(host) = self.hosts.get_mut(node) {
                host.used = Use::Held(hold);
            }
        }
    }

    /// The job of a connection has ended. Returns its hosts that can be asked whether they are empty.
    pub(super) fn on_closed(&mut self, hold: HoldId, job: JobId, empty_by: Mono) -> Vec<NodeId> {
        let mut asked = Vec::new();
        for (node, host) in self.hosts.iter_mut().filter(|(_, host)| host.holder() == Some(hold)) {
            (host.used, host.empty_by) = (Use::Emptying(job), empty_by);
            if host.link == Link::Up {
                asked.push(*node);
            }
        }
        asked
    }

    /// The pool ends. Hosts that are not empty have so long; with `is_now`, no longer.
    pub(super) fn on_end(&mut self, empty_by: Mono, is_now: bool) {
        for host in self.hosts.values_mut() {
            host.empty_by = if is_now { empty_by } else { host.empty_by.max(empty_by) };
        }
    }

    /// When the first host leaves that is not empty yet, if the pool ends.
    pub(super) fn empty_by(&self) -> Option<Mono> {
        self.hosts.values().filter(|host| host.last_job().is_some()).map(|host| host.empty_by).min()
    }

    /// Hosts that leave now: those that are being drained and are empty. When the pool ends, at this time, all that are empty, lost, or late,
    /// each with the job of which processes may be left.
    pub(super) fn leaving(&mut self, ending: Option<Mono>) -> Vec<(NodeId, Option<JobId>)> {
        let leaves = |host: &PoolHost| match (host.used, ending) {
            (Use::None, _) => ending.is_some() || host.is_draining,
            // A host that may still hold something is named for as long as the pool lives.
            (Use::Held(_), _) | (Use::Emptying(_), None) => false,
            (Use::Emptying(_), Some(now)) => host.link != Link::Up || host.empty_by <= now,
        };
        let leaving = self.hosts.iter().filter(|(_, host)| leaves(host));
        let all: Vec<_> = leaving.map(|(node, host)| (*node, host.last_job())).collect();
        for (node, _) in &all {
            self.hosts.remove(node);
        }
        all
    }

    /// The connections of jobs, in the order of their first slots.
    pub(super) fn holders(&self) -> Vec<HoldId> {
        let mut all = Vec::new();
        for hold in self.hosts.values().filter_map(PoolHost::holder) {
            if !all.contains(&hold) {
                all.push(hold);
            }
        }
        all
    }

    pub(super) fn has_slices(&self) -> bool {
        self.hosts.values().any(|host| host.slice.is_some())
    }

    /// The number of hosts, or slices, that can be used, and of all.
    pub(super) fn counts(&self, is_slices: bool) -> (u32, u32) {
        let (usable, all) = match is_slices {
            true => (self.slices(PoolHost::is_usable).len(), self.slices(|_| true).len()),
            false => (self.hosts.values().filter(|host| host.is_usable()).count(), self.hosts.len()),
        };
        (u32::try_from(usable).unwrap_or(u32::MAX), u32::try_from(all).unwrap_or(u32::MAX))
    }

    /// The slices, each with the state that keeps it from jobs the longest.
    pub(super) fn slice_states(&self) -> BTreeMap<u32, SliceState> {
        let mut all: BTreeMap<u32, (SliceState, usize)> = BTreeMap::new();
        for host in self.hosts.values() {
            let Some(slice) = host.slice else { continue };
            let state = SliceState::of(host.state());
            let (of_slice, count) = all.entry(slice).or_insert((SliceState::Free, 0));
            (*of_slice, *count) = ((*of_slice).max(state), count.saturating_add(1));
        }
        let whole = |(state, count): (SliceState, usize)| {
            let has_all = count >= self.slice_size;
            if state == SliceState::Free && !has_all { SliceState::Incomplete } else { state }
        };
        all.into_iter().map(|(slice, found)| (slice, whole(found))).collect()
    }

    /// Whole slices of which all hosts are candidates.
    fn slices(&self, is_candidate: impl Fn(&PoolHost) -> bool) -> BTreeSet<u32> {
        let mut candidates: BTreeMap<u32, usize> = BTreeMap::new();
        for host in self.hosts.values().filter(|host| is_candidate(host)) {
            host.slice.into_iter().for_each(|slice| *candidates.entry(slice).or_default() += 1);
        }
        candidates.into_iter().filter(|(_, count)| *count == self.slice_size).map(|(slice, _)| slice).collect()
    }

    /// The hosts for a need, of those that are candidates.
    pub(super) fn choose(&self, need: &Need, is_candidate: impl Fn(&PoolHost) -> bool) -> Option<Vec<NodeId>> {
        self.choose_of(need, is_candidate, PoolHost::is_usable)
    }

    /// The same, where `is_usable` hosts are all that there are.
    pub(super) fn choose_of(
        &self,
        need: &Need,
        is_candidate: impl Fn(&PoolHost) -> bool,
        is_usable: impl Fn(&PoolHost) -> bool,
    ) -> Option<Vec<NodeId>> {
        let candidates: Vec<(NodeId, &PoolHost)> = self.iter().filter(|(_, host)| is_candidate(host)).collect();
        let is_all = || candidates.len() == self.hosts.values().filter(|host| is_usable(host)).count();
        let first = |count: usize| candidates.iter().take(count).map(|(node, _)| *node).collect::<Vec<_>>();
        match need {
            Need::All => (!candidates.is_empty() && is_all()).then(|| first(candidates.len())),
            Need::Hosts(count) => {
                let count = usize::try_from(*count).ok().filter(|count| *count <= candidates.len())?;
                Some(first(count))
            }
            Need::Ranks(count) => {
                let mut slots = 0_u32;
                let enough = candidates.iter().position(|(_, host)| {
                    slots = slots.saturating_add(host.slots);
                    slots >= *count
                });
                match enough {
                    Some(at) => Some(first(at.saturating_add(1))),
                    // More ranks than all hosts have slots: the placement decides.
                    None => (!candidates.is_empty() && is_all()).then(|| first(candidates.len())),
                }
            }
            Need::Slices(sizes) => {
                let up = self.slices(&is_candidate);
                let size = sizes.iter().copied().filter(|size| *size > 0 && *size as usize <= up.len()).max()?;
                let taken: BTreeSet<u32> = up.into_iter().take(size as usize).collect();
                let is_taken = |host: &PoolHost| host.slice.is_some_and(|slice| taken.contains(&slice));
                Some(candidates.iter().filter(|(_, host)| is_taken(host)).map(|(node, _)| *node).collect())
            }
        }
    }
}
