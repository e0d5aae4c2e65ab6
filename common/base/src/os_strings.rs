//! Many strings of the operating system in one allocation: argument lists and environments.
//!
//! Each ends with a NUL, as `execve` takes them. So what comes from a wire costs its own length, however many strings it
//! holds: a vector of vectors takes 24 bytes for an empty string of one.

use crate::os_bytes::OsBytes;
use alloc::vec::Vec;
use core::fmt;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Byte strings without NULs, in their order.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OsStrings(Vec<u8>);

/// The strings, without the NULs that end them.
#[derive(Clone, Debug)]
pub struct Iter<'a>(&'a [u8]);

impl OsStrings {
    /// None, with room for this many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Adds a string. A NUL ends it early: it could only smuggle in another one.
    pub fn push(&mut self, text: &[u8]) {
        self.append(text);
        self.0.push(0);
    }

    /// Adds `name=value`.
    pub fn push_pair(&mut self, name: &[u8], value: &[u8]) {
        self.append(name);
        self.0.push(b'=');
        self.append(value);
        self.0.push(0);
    }

    fn append(&mut self, text: &[u8]) {
        let end = memchr::memchr(0, text).unwrap_or(text.len());
        self.0.extend_from_slice(text.get(..end).unwrap_or_default());
    }

    /// Forgets the strings and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The strings one after another, each ended by a NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The strings.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter(&self.0)
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contains(&self, text: &[u8]) -> bool {
        self.iter().any(|own| own == text)
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (text, rest) = self.0.split_at_checked(memchr::memchr(0, self.0)?)?;
        self.0 = rest.get(1..).unwrap_or_default();
        Some(text)
    }
}

impl<'a> IntoIterator for &'a OsStrings {
    type Item = &'a [u8];
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for OsStrings {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut strings = Self::default();
        items.into_iter().for_each(|item| strings.push(item.as_ref()));
        strings
    }
}

/// How many, and not which: passwords and tokens stand in environments, and Debug is what diagnostics show.
impl fmt::Debug for OsStrings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} strings, {} bytes]", self.iter().count(), self.0.len())
    }
}

/// A list for people; on a wire one string of bytes.
impl Serialize for OsStrings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_seq(self.iter().map(OsBytes::from));
        }
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for OsStrings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = OsBytes::deserialize(deserializer)?.into_vec();
        match bytes.last() {
            None | Some(0) => Ok(Self(bytes)),
            Some(_) => Err(D::Error::custom("a string without an end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn strings_come_out_as_they_went_in() {
        let texts: [&[u8]; 5] = [b"./train", b"", b"\xff=", b"a b", b""];
        let strings: OsStrings = texts.iter().collect();
        assert_eq!(strings.iter().collect::<Vec<_>>(), texts);
        assert!(strings.contains(b"") && strings.contains(b"a b") && !strings.contains(b"a"));
        assert!(!strings.is_empty() && OsStrings::default().is_empty());
        assert_eq!(OsStrings::default().iter().next(), None);
        let bytes = postcard::to_allocvec(&strings).unwrap();
        assert_eq!(postcard::from_bytes::<OsStrings>(&bytes), Ok(strings));
    }

    #[test]
    fn a_nul_smuggles_nothing_in() {
        let mut strings = OsStrings::default();
        strings.push(b"a\0b");
        strings.push_pair(b"N\0x", b"1\0LD_PRELOAD=x");
        assert_eq!(strings.iter().collect::<Vec<_>>(), [&b"a"[..], b"N=1"]);
    }

    #[test]
    fn a_string_without_its_end_is_refused() {
        for cut in [vec![b'a'], vec![b'a', 0, b'b']] {
            let bytes = postcard::to_allocvec(&OsBytes::new(cut)).unwrap();
            assert!(postcard::from_bytes::<OsStrings>(&bytes).is_err());
        }
    }
}
