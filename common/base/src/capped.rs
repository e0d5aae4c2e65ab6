//! Collections with a limit in their type: a declared length can neither reserve memory nor pass the limit.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// At most `N` elements. Elements must not be unit-like: five bytes could then declare billions of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capped<T, const N: usize>(Vec<T>);

impl<T, const N: usize> Default for Capped<T, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const N: usize> Capped<T, N> {
    /// The elements.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }

    /// Splits a sequence into collections that fit.
    pub fn chunks(items: impl IntoIterator<Item = T>) -> Vec<Self> {
        let mut chunks = Vec::new();
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            chunks.push(Self(items.by_ref().take(N).collect()));
        }
        chunks
    }
}

impl<T, const N: usize> core::ops::Deref for Capped<T, N> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Serialize, const N: usize> Serialize for Capped<T, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.0.len()))?;
        for item in &self.0 {
            seq.serialize_element(item)?;
        }
        seq.end()
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Capped<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const { assert!(size_of::<T>() > 0, "a capped collection needs elements with a size") };
        deserializer.deserialize_seq(CappedVisitor(PhantomData))
    }
}

/// Reads a list whose length only the frame limits. Serde's own list would reserve up to 1 MiB for a declared length.
pub fn unreserved<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Capped::<T, { usize::MAX }>::deserialize(deserializer).map(Capped::into_vec)
}

struct CappedVisitor<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for CappedVisitor<T, N> {
    type Value = Capped<T, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {N} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            if items.len() == N {
                return Err(A::Error::custom("too many elements"));
            }
            items.push(item);
        }
        Ok(Capped(items))
    }
}
