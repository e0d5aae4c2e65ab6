//! What names the bytes of a binary: the first 256 bits of BLAKE2b-512.
//!
//! coreutils brings a tool for it (`b2sum`) that needs a third of the time of `sha256sum`, and every host computes it at
//! every launch.

use blake2::{Blake2b512, Digest};
use core::fmt;

/// The hash of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Hash(pub [u8; 32]);

/// A hash that is being computed.
#[derive(Clone, Debug, Default)]
pub struct Hasher(Blake2b512);

impl Hasher {
    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all of them.
    #[must_use]
    pub fn finish(self) -> Hash {
        let mut half = [0; 32];
        for (to, from) in half.iter_mut().zip(self.0.finalize()) {
            *to = from;
        }
        Hash(half)
    }
}

impl Hash {
    /// The hash of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// From 64 hex digits.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (pairs, []) = text.as_chunks::<2>() else { return None };
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let mut out = [0; 32];
        if pairs.len() != out.len() {
            return None;
        }
        for (to, [high, low]) in out.iter_mut().zip(pairs) {
            *to = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(out))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn is_what_b2sum_prints() {
        // printf abc | b2sum
        let abc = "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1";
        assert_eq!(Hash::of(b"abc").to_string(), abc);
        assert_eq!(Hash::parse(abc.as_bytes()), Some(Hash::of(b"abc")));
        assert_eq!(Hash::parse(&abc.as_bytes()[1..]), None);
        assert_eq!(Hash::parse(&[b'g'; 64]), None);
    }
}
