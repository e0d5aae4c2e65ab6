//! Who is woken by what has happened.

use super::error::{Absent, Refusal};
use super::pending::{Awaited, Place, Topic};
use super::{Answer, Namespace};
use crate::id::ClientId;
use crate::os_bytes::OsBytes;
use crate::rank_set::RankSet;
use alloc::vec::Vec;
use bytes::Bytes;

/// Most keys that an error names.
const NAMED: usize = 4;

impl Namespace {
    /// A key has a new value.
    pub(super) fn is_set(&mut self, key: &[u8]) {
        if self.pending.is_idle() {
            return;
        }
        let key = Bytes::copy_from_slice(key);
        for place in self.pending.on(&Topic::Set(key.clone())) {
            self.key_is_there(place, &key);
        }
        self.is_changed(&key);
    }

    /// A key has another value, or none any more.
    pub(super) fn is_changed(&mut self, key: &[u8]) {
        if self.pending.is_idle() {
            return;
        }
        for place in self.pending.on(&Topic::Change(Bytes::copy_from_slice(key))) {
            if let Some(waiting) = self.pending.remove(place) {
                let (at, value) = self.kv.state(key);
                self.answer(waiting.ticket, Answer::Changed { at, value });
            }
        }
    }

    /// A queue has one more. One gets it, or is told of it: the others would find nothing.
    pub(super) fn is_pushed(&mut self, key: &[u8]) {
        if self.pending.is_idle() {
            return;
        }
        let key = Bytes::copy_from_slice(key);
        if let Some(place) = self.pending.first(&Topic::Item(key.clone())) {
            if let Some(item) = self.queues.pop(&mut self.account, &key)
                && let Some(waiting) = self.pending.remove(place)
            {
                self.answer(waiting.ticket, Answer::Value(Some(item)));
            }
            return;
        }
        // One that waits for other keys too is not woken by this one.
        while let Some(place) = self.pending.first(&Topic::Set(key.clone())) {
            if let Some(client) = self.key_is_there(place, &key) {
                return self.queues.tell(client, &key);
            }
        }
    }

    /// So many have been counted at a key.
    pub(super) fn is_gathered(&mut self, key: &[u8], count: i64) {
        for place in self.pending.counted(&Bytes::copy_from_slice(key), count) {
            if let Some(waiting) = self.pending.remove(place) {
                self.answer(waiting.ticket, Answer::Done);
            }
        }
    }

    /// Some arrive at a fence; whether it is complete.
    pub(super) fn arrive(&mut self, name: &[u8], all: &RankSet, who: &RankSet) -> Result<bool, Refusal> {
        let complete = self.fences.arrive(&mut self.account, name, all, who)?;
        if complete {
            for place in self.pending.on(&Topic::Fence(Bytes::copy_from_slice(name))) {
                if let Some(waiting) = self.pending.remove(place) {
                    self.answer(waiting.ticket, Answer::Done);
                }
            }
        }
        Ok(complete)
    }

    /// What did not come.
    pub(super) fn missing(&self, awaited: &Awaited) -> Absent {
        let named = |key: &Bytes| OsBytes::new(key.to_vec());
        match awaited {
            Awaited::Keys(keys) => Absent::Keys(keys.iter().take(NAMED).map(named).collect::<Vec<_>>(), keys.len()),
            Awaited::Change(key) => Absent::Change(named(key)),
            Awaited::Item(key) => Absent::Item(named(key)),
            Awaited::Count(key, until) => Absent::Count { key: named(key), until: *until },
            Awaited::Fence(name) => self.fences.missing(name),
        }
    }

    /// Whom that has woken.
    fn key_is_there(&mut self, place: Place, key: &Bytes) -> Option<ClientId> {
        if !self.pending.key_is_set(place, key) {
            return None;
        }
        let ticket = self.pending.remove(place)?.ticket;
        self.answer(ticket, Answer::Done);
        Some(ticket.client)
    }
}
