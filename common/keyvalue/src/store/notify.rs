//! The waits that an event ends.

use super::waiters::{Kind, Place};
use super::{Absent, Refusal};
use super::{Answer, Namespace};
use rlaunch_base::id::ClientId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;

/// Most keys that an error names.
const NAMED: usize = 4;

impl Namespace {
    /// A key has a new value.
    pub(super) fn is_set(&mut self, key: &[u8]) {
        if self.pending.is_idle() {
            return;
        }
        for place in self.pending.happened(&mut self.account, Kind::Set, key) {
            self.key_is_there(place);
        }
        self.is_changed(key);
    }

    /// A key has another value, or none any more.
    pub(super) fn is_changed(&mut self, key: &[u8]) {
        if self.pending.is_idle() {
            return;
        }
        for place in self.pending.happened(&mut self.account, Kind::Change, key) {
            if let Some(waiting) = self.pending.remove(&mut self.account, place) {
                let (at, value) = self.kv.state(key);
                self.answer(waiting.ticket, Answer::Changed { at, value });
            }
        }
    }

    /// A queue has one more. A waiter gets it, or is notified: the others would find nothing.
    pub(super) fn is_pushed(&mut self, key: &[u8]) {
        if self.pending.is_idle() {
            return;
        }
        if let Some(place) = self.pending.first(Kind::Item, key) {
            if let Some(item) = self.queues.pop(&mut self.account, key)
                && let Some(waiting) = self.pending.remove(&mut self.account, place)
            {
                self.answer(waiting.ticket, Answer::Value(Some(item)));
            }
            return;
        }
        // A wait for further keys does not end by this one.
        while let Some(place) = self.pending.first(Kind::Set, key) {
            self.pending.happened_for(&mut self.account, Kind::Set, key, place);
            if let Some(client) = self.key_is_there(place) {
                return self.queues.notify(&mut self.account, client, key);
            }
        }
    }

    /// Ends waits for this count at a key.
    pub(super) fn is_gathered(&mut self, key: &[u8], count: i64) {
        for place in self.pending.counted(key, count) {
            if let Some(waiting) = self.pending.remove(&mut self.account, place) {
                self.answer(waiting.ticket, Answer::Done);
            }
        }
    }

    /// Some arrive at a fence; whether it is complete.
    pub(super) fn arrive(&mut self, name: &[u8], all: &RankSet, who: &RankSet) -> Result<bool, Refusal> {
        let complete = self.fences.arrive(&mut self.account, name, all, who)?;
        if complete {
            for place in self.pending.happened(&mut self.account, Kind::Fence, name) {
                if let Some(waiting) = self.pending.remove(&mut self.account, place) {
                    self.answer(waiting.ticket, Answer::Done);
                }
            }
        }
        Ok(complete)
    }

    /// The missing part of a wait.
    pub(super) fn missing(&self, place: Place) -> Absent {
        let kind = self.pending.get(place).map_or(Kind::Set, |waiting| waiting.kind);
        let mut keys = self.pending.missing(place).map(|key| OsBytes::new(key.to_vec()));
        if kind == Kind::Set {
            return Absent::Keys(keys.by_ref().take(NAMED).collect(), self.pending.missing_count(place));
        }
        let key = keys.next().unwrap_or_default();
        match kind {
            Kind::Set | Kind::Change => Absent::Change(key),
            Kind::Item => Absent::Item(key),
            Kind::Count => Absent::Count { key, until: self.pending.get(place).map_or(0, |waiting| waiting.until) },
            Kind::Fence => self.fences.missing(key.as_slice()),
        }
    }

    /// Whom that has woken.
    fn key_is_there(&mut self, place: Place) -> Option<ClientId> {
        let ticket = self.pending.one_less(&mut self.account, place)?.ticket;
        self.answer(ticket, Answer::Done);
        Some(ticket.client)
    }
}
