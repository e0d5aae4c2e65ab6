//! The parts of bodies: little-endian numbers, and bytes after their length of 32 bits.

use alloc::vec::Vec;
use rlaunch_base::time::Span;

/// Bytes that this version does not understand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed")]
pub struct Malformed;

/// The rest of a body.
#[derive(Clone, Copy, Debug)]
pub(in crate::wire) struct Fields<'a>(pub(in crate::wire) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(in crate::wire) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    pub(in crate::wire) fn word(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub(in crate::wire) fn long(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub(in crate::wire) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.word()?).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(in crate::wire) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// A flag in 32 bits.
    pub(in crate::wire) fn flag_word(&mut self) -> Result<bool, Malformed> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(in crate::wire) fn optional<T>(
        &mut self,
        field: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.flag()? { field(self).map(Some) } else { Ok(None) }
    }

    /// Reserves nothing for a number that is only declared.
    pub(in crate::wire) fn list<T>(
        &mut self,
        mut field: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.word()?;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(field(self)?);
        }
        Ok(all)
    }

    /// Nanoseconds; the largest number is no limit.
    pub(in crate::wire) fn within(&mut self) -> Result<Option<Span>, Malformed> {
        Ok(Some(self.long()?).filter(|ns| *ns != u64::MAX).map(Span::from_nanos))
    }

    pub(in crate::wire) const fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// A body that is being written.
#[derive(Debug, Default)]
pub(in crate::wire) struct Body(pub(in crate::wire) Vec<u8>);

impl Body {
    pub(in crate::wire) fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    pub(in crate::wire) fn word(&mut self, word: u32) -> &mut Self {
        self.0.extend_from_slice(&word.to_le_bytes());
        self
    }

    pub(in crate::wire) fn long(&mut self, long: u64) -> &mut Self {
        self.0.extend_from_slice(&long.to_le_bytes());
        self
    }

    /// No body has 4 GiB: bytes longer than a frame are refused before, by both sides.
    pub(in crate::wire) fn count(&mut self, count: usize) -> &mut Self {
        self.word(u32::try_from(count).unwrap_or(u32::MAX))
    }

    pub(in crate::wire) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }

    pub(in crate::wire) fn optional(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        match bytes {
            Some(bytes) => self.byte(1).bytes(bytes),
            None => self.byte(0),
        }
    }

    pub(in crate::wire) fn list(&mut self, all: &[&[u8]]) -> &mut Self {
        self.count(all.len());
        for bytes in all {
            self.bytes(bytes);
        }
        self
    }

    pub(in crate::wire) fn within(&mut self, within: Option<Span>) -> &mut Self {
        self.long(within.map_or(u64::MAX, |within| within.nanos().min(u64::MAX - 1)))
    }
}
