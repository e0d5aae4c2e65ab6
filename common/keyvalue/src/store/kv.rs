//! Keys and their values, within the limits.

use super::Refusal;
use super::quota::Quota;
use super::store_limits::Limits;
use super::{Expected, Revision};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};
use core::ops::Bound;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::ended::RESERVED;

#[derive(Debug)]
struct Entry {
    value: Bytes,
    changed: Revision,
}

/// The keys that have values.
#[derive(Debug, Default)]
pub(super) struct Kv {
    entries: BTreeMap<Bytes, Entry>,
    last: Revision,
}

impl Kv {
    pub(super) fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.entries.get(key).map(|entry| entry.value.clone())
    }

    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// When a key last changed, if it is there; and its value.
    pub(super) fn state(&self, key: &[u8]) -> (Revision, Option<Bytes>) {
        self.entries.get(key).map_or((Revision::default(), None), |entry| (entry.changed, Some(entry.value.clone())))
    }

    /// The number of keys. Keys of rlaunch are not counted, as they are not listed.
    pub(super) fn len(&self) -> usize {
        let reserved = self.with_prefix(RESERVED, Bound::Included(RESERVED)).count();
        self.entries.len().saturating_sub(reserved)
    }

    pub(super) fn set(&mut self, account: &mut Quota, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.may_set(account, &[(key, value)])?;
        self.put(account, key, Bytes::copy_from_slice(value));
        Ok(())
    }

    /// All or none.
    pub(super) fn set_all(&mut self, account: &mut Quota, pairs: &[(&[u8], &[u8])]) -> Result<(), Refusal> {
        self.may_set(account, pairs)?;
        pairs.iter().for_each(|(key, value)| self.put(account, key, Bytes::copy_from_slice(value)));
        Ok(())
    }

    /// Counted as if none were there twice: that may refuse what would just fit, never the other way round.
    fn may_set(&self, account: &Quota, pairs: &[(&[u8], &[u8])]) -> Result<(), Refusal> {
        let (mut things, mut bytes, mut freed) = (0, 0usize, 0);
        for (key, value) in pairs {
            account.value_fits(key, value.len())?;
            match self.entries.get(*key) {
                Some(old) if pairs.len() == 1 => {
                    bytes = bytes.saturating_add(value.len());
                    freed = old.value.len();
                }
                Some(_) => bytes = bytes.saturating_add(value.len()),
                None => {
                    things += 1;
                    bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
                }
            }
            account.has_room(key, things, bytes, freed)?;
        }
        Ok(())
    }

    fn put(&mut self, account: &mut Quota, key: &[u8], value: Bytes) {
        self.last.0 += 1;
        let len = value.len();
        let changed = self.last;
        match self.entries.get_mut(key) {
            Some(entry) => {
                account.resize(entry.value.len(), len);
                *entry = Entry { value, changed };
            }
            None => {
                account.take(key.len() + len);
                self.entries.insert(Bytes::copy_from_slice(key), Entry { value, changed });
            }
        }
    }

    /// The number at a key.
    pub(super) fn count(&self, key: &[u8]) -> Result<i64, Refusal> {
        let no_number = || Refusal::NoNumber { key: OsBytes::new(key.to_vec()) };
        self.entries.get(key).map_or(Ok(0), |entry| number(&entry.value).ok_or_else(no_number))
    }

    /// The sum, written in decimal as torch's TCPStore writes it.
    pub(super) fn add(&mut self, account: &mut Quota, key: &[u8], by: i64) -> Result<i64, Refusal> {
        let mut digits = Digits::default();
        let Some(entry) = self.entries.get_mut(key) else {
            self.set(account, key, digits.of(by))?;
            return Ok(by);
        };
        let named = || OsBytes::new(key.to_vec());
        let old = number(&entry.value).ok_or_else(|| Refusal::NoNumber { key: named() })?;
        let new = old.checked_add(by).ok_or_else(|| Refusal::Overflow { key: named() })?;
        let text = digits.of(new);
        account.value_fits(key, text.len())?;
        account.has_room(key, 0, text.len(), entry.value.len())?;
        account.resize(entry.value.len(), text.len());
        self.last.0 += 1;
        *entry = Entry { value: Bytes::copy_from_slice(text), changed: self.last };
        Ok(new)
    }

    /// How long the value is then. Many small pieces cost what they are long, not what there was before.
    pub(super) fn append(&mut self, account: &mut Quota, key: &[u8], more: &[u8]) -> Result<usize, Refusal> {
        let Some(entry) = self.entries.get_mut(key) else {
            self.set(account, key, more)?;
            return Ok(more.len());
        };
        let (old, len) = (entry.value.len(), entry.value.len().saturating_add(more.len()));
        account.value_fits(key, len)?;
        account.has_room(key, 0, more.len(), 0)?;
        let mut value =
            core::mem::take(&mut entry.value).try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        value.extend_from_slice(more);
        self.last.0 += 1;
        *entry = Entry { value: value.freeze(), changed: self.last };
        account.resize(old, len);
        Ok(len)
    }

    /// Whether it was set.
    pub(super) fn compare_set(
        &mut self,
        account: &mut Quota,
        key: &[u8],
        expected: Expected<'_>,
        desired: &[u8],
    ) -> Result<bool, Refusal> {
        let now = self.entries.get(key).map(|entry| &entry.value[..]);
        let fits = match (expected, now) {
            (Expected::Absent | Expected::AbsentOr(_), None) => true,
            (Expected::Absent, Some(_)) | (Expected::Value(_), None) => false,
            (Expected::Value(value) | Expected::AbsentOr(value), Some(now)) => value == now,
        };
        if fits {
            self.set(account, key, desired)?;
        }
        Ok(fits)
    }

    /// Whether it was there.
    pub(super) fn delete(&mut self, account: &mut Quota, key: &[u8]) -> bool {
        let Some((key, entry)) = self.entries.remove_entry(key) else { return false };
        account.give_back(key.len() + entry.value.len());
        self.last.0 += 1;
        true
    }

    /// The keys with this prefix, at most so many. Keys of rlaunch are listed only for a prefix of rlaunch.
    pub(super) fn list(&self, prefix: &[u8], after: Option<&[u8]>, most: usize) -> Vec<Bytes> {
        let from = match after.filter(|after| *after >= prefix) {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        let is_shown = |key: &&Bytes| prefix.starts_with(RESERVED) || !key.starts_with(RESERVED);
        self.with_prefix(prefix, from).filter(is_shown).take(most).cloned().collect()
    }

    /// The keys with this prefix, in order. The first one is not before `from`, which is not before the prefix.
    fn with_prefix(&self, prefix: &[u8], from: Bound<&[u8]>) -> impl Iterator<Item = &Bytes> {
        let begun = self.entries.range::<[u8], _>((from, Bound::Unbounded));
        begun.map(|(key, _)| key).take_while(move |key| key.starts_with(prefix))
    }
}

/// A number as `Add` takes it.
fn number(text: &[u8]) -> Option<i64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// Room for a number in decimal: `Add` is what rendezvous does most, so it allocates nothing but the value.
#[derive(Default)]
struct Digits {
    room: [u8; Limits::NUMBER],
}

impl Digits {
    fn of(&mut self, number: i64) -> &[u8] {
        let mut rest = number.unsigned_abs();
        let mut at = self.room.len();
        loop {
            at -= 1;
            self.room[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            self.room[at] = b'-';
        }
        &self.room[at..]
    }
}
