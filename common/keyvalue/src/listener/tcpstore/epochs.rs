//! Which of a store's connections see the same keys: those of one epoch. An epoch has one process group at most.
//!
//! A group that is destroyed and made again must not read the addresses of the first. Processes do this at different moments: one may be
//! back before another has left. A store that rank 0 holds dies under ranks that were too early. Here a process that has met the
//! others, has closed all of its connections and begins a new rendezvous is in the next epoch. A new process is there too, if all
//! connections of the group are closed. The others join that epoch when they come back. A process that is still in the one before finds its data.
//! Otherwise keys stay when the last connection closes, as in a store of torch's own. The begin of a rendezvous is known by the first
//! request of torch's client: it adds 1 to `init/` (`initKey_` in `TCPStore.hpp`).

use super::Peer;
use crate::store::{Limits, Namespace};
use alloc::collections::BTreeMap;
use rlaunch_base::id::ClientId;

/// The key to which a client adds when it begins a rendezvous.
pub(super) const MEETS: &[u8] = b"init/";

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Epoch(u64);

#[derive(Debug)]
struct EpochData {
    keys: Namespace,
    /// Connections that see it, and those of them that have asked for something.
    clients: usize,
    asked: usize,
    /// A process has begun to meet the others.
    has_met: bool,
}

/// The newest epoch, and those before it that any process is in.
#[derive(Debug)]
pub(super) struct Epochs {
    limits: Limits,
    spaces: BTreeMap<Epoch, EpochData>,
    /// In which of them a process has begun to meet the others last.
    met: BTreeMap<Peer, Epoch>,
    next: u64,
}

impl Epochs {
    pub(super) const fn new(limits: Limits) -> Self {
        Self { limits, spaces: BTreeMap::new(), met: BTreeMap::new(), next: 0 }
    }

    /// A connection: it sees the newest, as long as nothing else is known of it.
    pub(super) fn enter(&mut self) -> Epoch {
        let newest = self.spaces.last_key_value().map(|(epoch, _)| *epoch);
        let epoch = newest.unwrap_or_else(|| self.after());
        self.count(epoch);
        epoch
    }

    /// Puts a client into an epoch at its first request, and counts it there. `other`: where another one of its process is that has asked;
    /// `meets`: it begins to meet.
    pub(super) fn enter_first(
        &mut self,
        peer: Peer,
        client: ClientId,
        at: Epoch,
        other: Option<Epoch>,
        meets: bool,
    ) -> Epoch {
        let newest = self.spaces.last_key_value();
        let is_over = newest.is_some_and(|(_, space)| space.has_met && space.asked == 0);
        let newest = newest.map_or(at, |(epoch, _)| *epoch);
        let epoch = match other {
            Some(other) => other,
            None if meets && (is_over || self.met.get(&peer) == Some(&newest)) => self.after(),
            None => newest,
        };
        if meets {
            self.met.insert(peer, epoch);
        }
        if epoch != at {
            self.count(epoch);
            self.leave(at, client, false);
        }
        if let Some(space) = self.spaces.get_mut(&epoch) {
            space.asked = space.asked.saturating_add(1);
            space.has_met |= meets;
        }
        epoch
    }

    fn after(&mut self) -> Epoch {
        self.next = self.next.saturating_add(1);
        Epoch(self.next)
    }

    fn count(&mut self, epoch: Epoch) {
        let limits = self.limits;
        let new = || EpochData { keys: Namespace::new(limits), clients: 0, asked: 0, has_met: false };
        let space = self.spaces.entry(epoch).or_insert_with(new);
        space.clients = space.clients.saturating_add(1);
    }

    /// A connection of this epoch is closed. With the last one its keys are forgotten, if there is a newer epoch.
    pub(super) fn leave(&mut self, epoch: Epoch, client: ClientId, has_asked: bool) {
        let Some(space) = self.spaces.get_mut(&epoch) else { return };
        space.keys.gone(client);
        space.clients = space.clients.saturating_sub(1);
        space.asked = space.asked.saturating_sub(usize::from(has_asked));
        let is_used = space.clients > 0;
        if !is_used && self.spaces.last_key_value().is_some_and(|(newest, _)| *newest > epoch) {
            self.spaces.remove(&epoch);
            self.met.retain(|_, met| *met != epoch);
        }
    }

    #[cfg(test)]
    pub(super) fn count_all(&self) -> usize {
        self.spaces.len()
    }

    pub(super) fn keys(&mut self, epoch: Epoch) -> Option<&mut Namespace> {
        self.spaces.get_mut(&epoch).map(|space| &mut space.keys)
    }
}
