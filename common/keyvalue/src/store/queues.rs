//! Queues: lists that are filled at one end and emptied at the other.

use super::Refusal;
use super::quota::Quota;
use super::store_limits::Limits;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use bytes::Bytes;
use rlaunch_base::id::ClientId;

/// The queues that hold something: one that is empty does not exist.
#[derive(Debug, Default)]
pub(super) struct Queues {
    of: BTreeMap<Bytes, VecDeque<Bytes>>,
    /// Clients that were notified of an item, and have not asked for anything since.
    notified: BTreeMap<ClientId, BTreeSet<Bytes>>,
}

impl Queues {
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.of.contains_key(key)
    }

    pub(super) fn len(&self, key: &[u8]) -> usize {
        self.of.get(key).map_or(0, VecDeque::len)
    }

    pub(super) fn push(&mut self, account: &mut Quota, key: &[u8], item: &[u8]) -> Result<(), Refusal> {
        account.value_fits(key, item.len())?;
        account.has_room(key, 1, key.len() + item.len(), 0)?;
        account.take(key.len() + item.len());
        let item = Bytes::copy_from_slice(item);
        match self.of.get_mut(key) {
            Some(queue) => queue.push_back(item),
            None => drop(self.of.insert(Bytes::copy_from_slice(key), VecDeque::from([item]))),
        }
        Ok(())
    }

    pub(super) fn pop(&mut self, account: &mut Quota, key: &[u8]) -> Option<Bytes> {
        let queue = self.of.get_mut(key)?;
        let item = queue.pop_front()?;
        account.give_back(key.len() + item.len());
        if queue.is_empty() {
            self.of.remove(key);
        }
        Some(item)
    }

    /// Whether there was one.
    pub(super) fn delete(&mut self, account: &mut Quota, key: &[u8]) -> bool {
        let Some(queue) = self.of.remove(key) else { return false };
        queue.iter().for_each(|item| account.give_back(key.len() + item.len()));
        true
    }

    /// Notifies one client of an item: a second client would find nothing.
    pub(super) fn notify(&mut self, account: &mut Quota, client: ClientId, key: &[u8]) {
        if self.notified.entry(client).or_default().insert(Bytes::copy_from_slice(key)) {
            account.hold(Limits::PER_ITEM + key.len());
        }
    }

    /// The queues of which only this client was notified.
    pub(super) fn notified(&self, client: ClientId) -> Option<&BTreeSet<Bytes>> {
        if self.notified.is_empty() { None } else { self.notified.get(&client) }
    }

    /// Returns the queues that still have items although the client does not fetch them.
    pub(super) fn left_by(&mut self, account: &mut Quota, client: ClientId) -> BTreeSet<Bytes> {
        let mut left = self.notified.remove(&client).unwrap_or_default();
        left.iter().for_each(|key| account.release(Limits::PER_ITEM + key.len()));
        left.retain(|key| self.holds(key));
        left
    }
}
