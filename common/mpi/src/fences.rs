//! Places where ranks wait for each other: one scan for both wires.

use super::remote::{PREFIX, hash};
use super::{Broken, Cx, Layout};
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_protocol::wire::node_news::MpiWire;
use rlaunch_protocol::wire::pmix::GroupForm;

/// Most fences at which ranks wait at a time, and most of the same ranks and name.
const MOST: usize = 4096;
const MOST_ALIKE: usize = 64;
/// Most fences with other hosts or worlds that are counted, by their ranks and names.
const MOST_COUNTED: usize = 1 << 20;

/// A process that waits: its connection, and by what it knows the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub(super) client: ClientId,
    /// The tag of its request, in PMIx.
    pub(super) tag: u32,
    /// Its buffers name the types of their values, in PMIx.
    pub(super) is_described: bool,
    /// How its library reads the answer about a group, in PMIx.
    pub(super) group_form: GroupForm,
}

/// Kind of a fence, with its name.
pub(super) trait Kind: Clone + Ord {
    /// The wire of its processes.
    const WIRE: MpiWire;

    /// Bytes that no other kind has.
    fn bytes(&self) -> Vec<u8>;

    /// Whether ranks of other worlds take part. Then its bytes name the ranks of all worlds.
    fn has_other_worlds(&self) -> bool {
        false
    }
}

/// A fence at which all ranks of this host have arrived.
#[derive(Debug)]
pub(super) struct Met<K> {
    pub(super) kind: K,
    pub(super) all: RankSet,
    pub(super) waiters: Vec<Waiter>,
    /// The number of fences of this kind and these ranks until now, where other hosts or worlds take part. 0: all ranks are here.
    pub(super) count: u64,
}

impl<K: Kind> Met<K> {
    /// The same on all hosts, and another for each fence.
    pub(super) fn hash(&self) -> u64 {
        hash(&[&bytes_of_fence(&self.kind, &self.all)[..], &self.count.to_be_bytes()].concat())
    }

    /// Its name in the store.
    pub(super) fn name(&self) -> String {
        format!("{PREFIX}/fence/{:x}", self.hash())
    }
}

/// Ranks as bytes that no other ranks have.
pub(super) fn bytes_of(ranks: &RankSet) -> Vec<u8> {
    ranks.ranges().flat_map(|(first, last)| [first, last]).flat_map(u32::to_be_bytes).collect()
}

/// The same for all fences of a kind and these ranks, and on all hosts.
fn bytes_of_fence<K: Kind>(kind: &K, all: &RankSet) -> Vec<u8> {
    let ranks = if kind.has_other_worlds() { Vec::new() } else { bytes_of(all) };
    [&kind.bytes()[..], b" ", &ranks].concat()
}

/// Fence of some ranks.
#[derive(Debug, Default)]
struct Fence {
    arrived: RankSet,
    waiters: Vec<Waiter>,
}

/// All fences at which a rank has arrived, and how many there were with other hosts.
#[derive(Debug)]
pub(super) struct Fences<K> {
    open: BTreeMap<(K, RankSet), VecDeque<Fence>>,
    /// By a hash of kind and ranks: a program may make many groups, and each has a name.
    counts: BTreeMap<u64, u64>,
}

impl<K> Default for Fences<K> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), counts: BTreeMap::new() }
    }
}

impl<K: Kind> Fences<K> {
    /// A process of a rank arrives. Returns the fence if the ranks of this host have all come. A process that comes again before that waits
    /// for the fence after this one.
    ///
    /// # Errors
    /// Too many fences are open.
    pub(super) fn arrive(
        &mut self,
        cx: &mut Cx<'_>,
        (kind, all): (K, RankSet),
        rank: Rank,
        waiter: Waiter,
    ) -> Result<Option<Met<K>>, Broken> {
        let is_new = || !self.counts.contains_key(&hash(&bytes_of_fence(&kind, &all)));
        let full = match (self.open.len(), self.counts.len()) {
            (MOST.., _) => Some(MOST),
            (_, MOST_COUNTED..) if is_new() => Some(MOST_COUNTED),
            _ => None,
        };
        let own = cx.layout.own_of(&all);
        cx.init_wait.wait(cx.now, (K::WIRE, &all), rank);
        let mut open = match self.open.entry((kind, all)) {
            Entry::Occupied(open) => open,
            Entry::Vacant(new) => match full {
                Some(most) => return Err(Broken::ManyFences(most)),
                None => new.insert_entry(VecDeque::new()),
            },
        };
        let fences = open.get_mut();
        let has_come = |fence: &Fence| fence.waiters.iter().any(|other| other.client == waiter.client);
        let at = fences.iter().position(|fence| !has_come(fence)).unwrap_or(fences.len());
        if at >= MOST_ALIKE {
            return Err(Broken::ManyFences(MOST_ALIKE));
        }
        if at == fences.len() {
            fences.push_back(Fence::default());
        }
        let Some(fence) = fences.get_mut(at) else { return Ok(None) };
        fence.arrived.insert(rank);
        fence.waiters.push(waiter);
        if at > 0 || !fence.arrived.covers(&own) {
            return Ok(None);
        }
        let key = open.key().clone();
        Ok(self.meet(cx.layout, key))
    }

    /// Ends the first of these fences.
    fn meet(&mut self, layout: &Layout, key: (K, RankSet)) -> Option<Met<K>> {
        let fences = self.open.get_mut(&key)?;
        let waiters = fences.pop_front()?.waiters;
        if fences.is_empty() {
            self.open.remove(&key);
        }
        let (kind, all) = key;
        let is_here = layout.own_of(&all) == all && !kind.has_other_worlds();
        let count = if is_here { 0 } else { self.count(&kind, &all) };
        Some(Met { kind, all, waiters, count })
    }

    /// Whether a process waits at a fence of some kind.
    pub(super) fn has(&self, is_kind: impl Fn(&K) -> bool) -> bool {
        self.open.keys().any(|(kind, _)| is_kind(kind))
    }

    /// Fences of some kind wait for these ranks of this host no more. Returns those at which all others have arrived.
    pub(super) fn excuse(&mut self, layout: &Layout, ranks: &RankSet, is_kind: impl Fn(&K) -> bool) -> Vec<Met<K>> {
        let is_met = |((kind, all), fences): (&(K, RankSet), &VecDeque<Fence>)| {
            let first = fences.front().filter(|_| is_kind(kind))?;
            let awaited = layout.own_of(all).without(ranks);
            first.arrived.covers(&awaited).then(|| (kind.clone(), all.clone()))
        };
        let met: Vec<(K, RankSet)> = self.open.iter().filter_map(is_met).collect();
        met.into_iter().filter_map(|key| self.meet(layout, key)).collect()
    }

    fn count(&mut self, kind: &K, all: &RankSet) -> u64 {
        let count = self.counts.entry(hash(&bytes_of_fence(kind, all))).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// A connection is closed: it waits no more. Its rank has arrived all the same.
    pub(super) fn forget(&mut self, client: ClientId) {
        for fence in self.open.values_mut().flatten() {
            fence.waiters.retain(|other| other.client != client);
        }
    }

    /// Forgets the fences of some kind.
    pub(super) fn retain(&mut self, keeps: impl Fn(&K) -> bool) {
        self.open.retain(|(kind, _), _| keeps(kind));
    }
}
