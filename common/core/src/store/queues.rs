//! Queues: lists that are filled at one end and emptied at the other.

use super::error::Refusal;
use super::kv::Account;
use crate::id::ClientId;
use alloc::collections::{BTreeMap, VecDeque};
use bytes::Bytes;

/// The queues that hold something: one that is empty does not exist.
#[derive(Debug, Default)]
pub(super) struct Queues {
    of: BTreeMap<Bytes, VecDeque<Bytes>>,
    /// Who was told that there is something, and has not asked for anything since.
    told: BTreeMap<ClientId, Bytes>,
}

impl Queues {
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.of.contains_key(key)
    }

    pub(super) fn len(&self, key: &[u8]) -> usize {
        self.of.get(key).map_or(0, VecDeque::len)
    }

    pub(super) fn push(&mut self, account: &mut Account, key: &[u8], item: &[u8]) -> Result<(), Refusal> {
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

    pub(super) fn pop(&mut self, account: &mut Account, key: &[u8]) -> Option<Bytes> {
        let queue = self.of.get_mut(key)?;
        let item = queue.pop_front()?;
        account.give_back(key.len() + item.len());
        if queue.is_empty() {
            self.of.remove(key);
        }
        Some(item)
    }

    /// Whether there was one.
    pub(super) fn delete(&mut self, account: &mut Account, key: &[u8]) -> bool {
        let Some(queue) = self.of.remove(key) else { return false };
        queue.iter().for_each(|item| account.give_back(key.len() + item.len()));
        true
    }

    /// A client is told that there is something. Nobody else is: who comes second would find nothing.
    pub(super) fn tell(&mut self, client: ClientId, key: &Bytes) {
        self.told.insert(client, key.clone());
    }

    /// Of which queue only this client was told.
    pub(super) fn told(&self, client: ClientId) -> Option<&Bytes> {
        if self.told.is_empty() { None } else { self.told.get(&client) }
    }

    /// It does not take it. The queue, if there is still something in it.
    pub(super) fn left_by(&mut self, client: ClientId) -> Option<Bytes> {
        self.told.remove(&client).filter(|key| self.holds(key))
    }
}
