//! Places where ranks wait for each other.

use super::Broken;
use crate::id::{ClientId, Rank};
use crate::rank_set::RankSet;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Most fences at which ranks wait at a time, and most of the same ranks and name.
const MOST: usize = 4096;
const MOST_ALIKE: usize = 64;

/// A process that waits: its connection, and by what it knows the answer.
pub(super) type Waiter = (ClientId, u32);

/// Fence of some ranks.
#[derive(Debug, Default)]
struct Fence {
    arrived: RankSet,
    waiters: Vec<Waiter>,
}

/// All fences at which a rank has arrived. A key names the kind, its name, and the ranks that have to come.
#[derive(Debug)]
pub(super) struct Fences<K> {
    open: BTreeMap<(K, RankSet), VecDeque<Fence>>,
}

impl<K: Ord> Default for Fences<K> {
    fn default() -> Self {
        Self { open: BTreeMap::new() }
    }
}

impl<K: Ord> Fences<K> {
    /// A process of a rank arrives. Returns all that wait here, if the ranks of this host (`own`) have all come. A process that comes again
    /// before that waits for the fence after this one.
    ///
    /// # Errors
    /// Too many fences are open.
    pub(super) fn arrive(
        &mut self,
        key: K,
        (all, own): (&RankSet, &RankSet),
        rank: Rank,
        waiter: Waiter,
    ) -> Result<Option<Vec<Waiter>>, Broken> {
        if self.open.len() >= MOST {
            return Err(Broken::Order);
        }
        let key = (key, all.clone());
        let fences = self.open.entry(key).or_default();
        let has_come = |fence: &Fence| fence.waiters.iter().any(|(client, _)| *client == waiter.0);
        let at = fences.iter().position(|fence| !has_come(fence)).unwrap_or(fences.len());
        if at >= MOST_ALIKE {
            return Err(Broken::Order);
        }
        if at == fences.len() {
            fences.push_back(Fence::default());
        }
        let Some(fence) = fences.get_mut(at) else { return Ok(None) };
        fence.arrived.insert(rank);
        fence.waiters.push(waiter);
        if at > 0 || !fence.arrived.covers(own) {
            return Ok(None);
        }
        let complete = fences.pop_front();
        self.open.retain(|_, fences| !fences.is_empty());
        Ok(complete.map(|fence| fence.waiters))
    }

    /// A connection is closed: it waits no more. Its rank has arrived all the same.
    pub(super) fn forget(&mut self, client: ClientId) {
        for fence in self.open.values_mut().flatten() {
            fence.waiters.retain(|(other, _)| *other != client);
        }
    }

    /// Forgets the fences of some kind.
    pub(super) fn retain(&mut self, keeps: impl Fn(&K) -> bool) {
        self.open.retain(|(key, _), _| keeps(key));
    }
}
