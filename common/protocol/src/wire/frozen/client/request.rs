//! The operations, by their numbers.

use super::super::fields::Malformed;
use super::{Ask, Expected, Revision};
use crate::wire::codec::{append, decode_borrowed};
use alloc::vec::Vec;
use rlaunch_base::capped::unreserved;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;
use serde::Deserialize;

/// The number of operations.
pub(super) const KNOWN: u8 = 20;

/// An operation that was read: an [`Ask`], with its variants in the same order, that owns its lists. It borrows the bytes; [`Words::ask`]
/// is what the store takes.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[expect(missing_docs, reason = "as in `Ask`")]
pub enum Words<'a> {
    Get(&'a [u8]),
    GetAll(#[serde(borrow, deserialize_with = "unreserved")] Vec<&'a [u8]>),
    Set(&'a [u8], &'a [u8]),
    SetAll(#[serde(borrow, deserialize_with = "unreserved")] Vec<(&'a [u8], &'a [u8])>),
    Add(&'a [u8], i64),
    Append(&'a [u8], &'a [u8]),
    CompareSet(&'a [u8], #[serde(borrow)] Expected<'a>, &'a [u8]),
    Delete(&'a [u8]),
    Check(#[serde(borrow, deserialize_with = "unreserved")] Vec<&'a [u8]>),
    Wait(#[serde(borrow, deserialize_with = "unreserved")] Vec<&'a [u8]>, Option<Span>),
    Count,
    List(&'a [u8], #[serde(borrow)] Option<&'a [u8]>, usize),
    Push(&'a [u8], &'a [u8]),
    Pop(&'a [u8]),
    Take(&'a [u8], Option<Span>),
    Len(&'a [u8]),
    Watch(&'a [u8], Option<Revision>, Option<Span>),
    Gather(&'a [u8], i64, Option<Span>),
    Fence(&'a [u8], RankSet, RankSet, Option<Span>),
    Arrive(&'a [u8], RankSet, RankSet),
}

impl<'a> Words<'a> {
    /// From its bytes, all of them.
    ///
    /// # Errors
    /// They are no operation.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        decode_borrowed(bytes).map_err(|_| Malformed)
    }

    /// The request for the store.
    #[must_use]
    pub fn ask(&self) -> Ask<'_> {
        match *self {
            Self::Get(key) => Ask::Get(key),
            Self::GetAll(ref keys) => Ask::GetAll(keys),
            Self::Set(key, value) => Ask::Set(key, value),
            Self::SetAll(ref pairs) => Ask::SetAll(pairs),
            Self::Add(key, by) => Ask::Add(key, by),
            Self::Append(key, more) => Ask::Append(key, more),
            Self::CompareSet(key, expected, desired) => Ask::CompareSet { key, expected, desired },
            Self::Delete(key) => Ask::Delete(key),
            Self::Check(ref keys) => Ask::Check(keys),
            Self::Wait(ref keys, within) => Ask::Wait { keys, within },
            Self::Count => Ask::Count,
            Self::List(prefix, after, most) => Ask::List { prefix, after, most },
            Self::Push(key, item) => Ask::Push(key, item),
            Self::Pop(key) => Ask::Pop(key),
            Self::Take(key, within) => Ask::Take { key, within },
            Self::Len(key) => Ask::Len(key),
            Self::Watch(key, since, within) => Ask::Watch { key, since, within },
            Self::Gather(key, until, within) => Ask::Gather { key, until, within },
            Self::Fence(name, ref all, ref who, within) => Ask::Fence { name, all, who, within },
            Self::Arrive(name, ref all, ref who) => Ask::Arrive { name, all, who },
        }
    }

    /// The bytes of an operation.
    #[must_use]
    pub fn write(ask: Ask<'_>) -> Vec<u8> {
        append(Vec::new(), &ask)
    }
}
