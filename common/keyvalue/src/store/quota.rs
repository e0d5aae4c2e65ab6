//! How much a namespace holds.

use super::Refusal;
use super::store_limits::Limits;
use rlaunch_base::os_bytes::OsBytes;

/// How much is held, against the limits: of values, queues, fences, and of requests that wait, together.
#[derive(Debug)]
pub(super) struct Quota {
    limits: Limits,
    items: usize,
    bytes: usize,
}

impl Quota {
    pub(super) const fn new(limits: Limits) -> Self {
        Self { limits, items: 0, bytes: 0 }
    }

    pub(super) fn key_fits(&self, key: &[u8]) -> Result<(), Refusal> {
        let most = self.limits.key;
        if key.len() > most { Err(Refusal::LongKey { len: key.len(), most }) } else { Ok(()) }
    }

    /// Whether a value of so many bytes may stand at a key.
    pub(super) fn value_fits(&self, key: &[u8], len: usize) -> Result<(), Refusal> {
        self.key_fits(key)?;
        let most = self.limits.value;
        if len > most { Err(Refusal::LongValue { key: OsBytes::new(key.to_vec()), len, most }) } else { Ok(()) }
    }

    /// Whether there is room for so many things more, of so many bytes in all; `freed` are given back for it.
    pub(super) fn has_room(&self, key: &[u8], things: usize, bytes: usize, freed: usize) -> Result<(), Refusal> {
        let named = || OsBytes::new(key.to_vec());
        if self.items.saturating_add(things) > self.limits.keys {
            return Err(Refusal::ManyKeys { key: named(), most: self.limits.keys });
        }
        let used = self.bytes.saturating_sub(freed);
        let asked = bytes.saturating_add(things.saturating_mul(Limits::PER_ITEM));
        // A change that needs no more than before is done even where notices of items in queues have gone above the limit.
        if asked > freed && used.saturating_add(asked) > self.limits.bytes {
            return Err(Refusal::Full { key: named(), used: self.bytes, most: self.limits.bytes });
        }
        Ok(())
    }

    /// Charges one more entry of this many bytes.
    pub(super) fn take(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes += bytes + Limits::PER_ITEM;
    }

    /// Gives one entry back.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.items -= 1;
        self.bytes -= bytes + Limits::PER_ITEM;
    }

    /// Charges the new length of an entry.
    pub(super) fn resize(&mut self, old: usize, new: usize) {
        self.bytes = self.bytes - old + new;
    }

    /// Whether so many bytes more fit.
    pub(super) const fn fits(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= self.limits.bytes
    }

    /// Bytes of what is no thing by itself: a request that waits, a notice of an item in a queue.
    pub(super) fn hold(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Gives held bytes back.
    pub(super) fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// The present use, and the limit.
    pub(super) const fn used(&self) -> (usize, usize) {
        (self.bytes, self.limits.bytes)
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    #[cfg(test)]
    pub(super) const fn held(&self) -> (usize, usize) {
        (self.items, self.bytes)
    }
}
