//! The hash that names the bytes of a binary, and proves a secret: BLAKE3, the cheapest one that cannot be forged. Every launch on other
//! hosts starts with it.

use core::fmt;

/// The hash of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Hash(pub [u8; 32]);

/// A hash that is being computed.
#[derive(Clone, Debug, Default)]
pub struct Hasher(blake3::Hasher);

impl Hasher {
    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all of them.
    #[must_use]
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
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
    fn is_what_b3sum_prints() {
        // printf abc | b3sum
        let abc = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
        assert_eq!(Hash::of(b"abc").to_string(), abc);
        assert_eq!(Hash::parse(abc.as_bytes()), Some(Hash::of(b"abc")));
        assert_eq!(Hash::parse(&abc.as_bytes()[1..]), None);
        assert_eq!(Hash::parse(&[b'g'; 64]), None);
    }
}
