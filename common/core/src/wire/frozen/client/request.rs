//! The operations, by their numbers.

use super::super::fields::{Body, Fields, Malformed};
use crate::rank_set::RankSet;
use crate::store::{Ask, Expected, Revision};
use crate::time::Span;
use alloc::vec::Vec;

/// The numbers of all operations.
pub(super) const KNOWN: core::ops::RangeInclusive<u8> = 1..=20;

/// An operation that was read. It borrows the bytes; [`Words::ask`] is what the store takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Words<'a> {
    /// An operation that needs nothing more than bytes.
    Plain(Ask<'a>),
    /// `GetAll`.
    GetAll(Vec<&'a [u8]>),
    /// `SetAll`.
    SetAll(Vec<(&'a [u8], &'a [u8])>),
    /// `Check`.
    Check(Vec<&'a [u8]>),
    /// `Wait`.
    Wait(Vec<&'a [u8]>, Option<Span>),
    /// `Fence`: name, all, who, and for how long.
    Fence(&'a [u8], RankSet, RankSet, Option<Span>),
    /// `Arrive`: name, all, who.
    Arrive(&'a [u8], RankSet, RankSet),
}

impl<'a> Words<'a> {
    /// From its bytes, all of them.
    ///
    /// # Errors
    /// They are no operation.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut all = Fields(bytes);
        let op = all.byte()?;
        let words = read(op, &mut all)?;
        all.end()?;
        Ok(words)
    }

    /// The request for the store.
    #[must_use]
    pub fn ask(&self) -> Ask<'_> {
        match self {
            Self::Plain(ask) => *ask,
            Self::GetAll(keys) => Ask::GetAll(keys),
            Self::SetAll(pairs) => Ask::SetAll(pairs),
            Self::Check(keys) => Ask::Check(keys),
            Self::Wait(keys, within) => Ask::Wait { keys, within: *within },
            Self::Fence(name, all, who, within) => Ask::Fence { name, all, who, within: *within },
            Self::Arrive(name, all, who) => Ask::Arrive { name, all, who },
        }
    }

    /// The bytes of an operation.
    #[must_use]
    pub fn write(ask: Ask<'_>) -> Vec<u8> {
        let mut body = Body::default();
        write(&mut body, ask);
        body.0
    }
}

fn read<'a>(op: u8, all: &mut Fields<'a>) -> Result<Words<'a>, Malformed> {
    let keys = |all: &mut Fields<'a>| all.list(Fields::bytes);
    Ok(match op {
        2 => Words::GetAll(keys(all)?),
        4 => Words::SetAll(all.list(|pair| Ok((pair.bytes()?, pair.bytes()?)))?),
        9 => Words::Check(keys(all)?),
        10 => Words::Wait(keys(all)?, all.within()?),
        19 => Words::Fence(all.bytes()?, all.ranks()?, all.ranks()?, all.within()?),
        20 => Words::Arrive(all.bytes()?, all.ranks()?, all.ranks()?),
        op => Words::Plain(plain(op, all)?),
    })
}

fn plain<'a>(op: u8, all: &mut Fields<'a>) -> Result<Ask<'a>, Malformed> {
    Ok(match op {
        1 => Ask::Get(all.bytes()?),
        3 => Ask::Set(all.bytes()?, all.bytes()?),
        5 => Ask::Add(all.bytes()?, all.signed()?),
        6 => Ask::Append(all.bytes()?, all.bytes()?),
        7 => Ask::CompareSet { key: all.bytes()?, expected: expected(all)?, desired: all.bytes()? },
        8 => Ask::Delete(all.bytes()?),
        11 => Ask::Count,
        12 => {
            let (prefix, after) = (all.bytes()?, all.optional(Fields::bytes)?);
            Ask::List { prefix, after, most: usize::try_from(all.word()?).unwrap_or(usize::MAX) }
        }
        13 => Ask::Push(all.bytes()?, all.bytes()?),
        14 => Ask::Pop(all.bytes()?),
        15 => Ask::Take { key: all.bytes()?, within: all.within()? },
        16 => Ask::Len(all.bytes()?),
        17 => Ask::Watch { key: all.bytes()?, since: all.optional(Fields::long)?.map(Revision), within: all.within()? },
        18 => Ask::Gather { key: all.bytes()?, until: all.signed()?, within: all.within()? },
        _ => return Err(Malformed),
    })
}

fn expected<'a>(all: &mut Fields<'a>) -> Result<Expected<'a>, Malformed> {
    Ok(match all.byte()? {
        0 => Expected::Absent,
        1 => Expected::Value(all.bytes()?),
        2 => Expected::AbsentOr(all.bytes()?),
        _ => return Err(Malformed),
    })
}

fn write(body: &mut Body, ask: Ask<'_>) {
    match ask {
        Ask::Get(key) => body.byte(1).bytes(key),
        Ask::GetAll(keys) => body.byte(2).list(keys),
        Ask::Set(key, value) => body.byte(3).bytes(key).bytes(value),
        Ask::SetAll(pairs) => {
            body.byte(4).count(pairs.len());
            pairs.iter().fold(body, |body, (key, value)| body.bytes(key).bytes(value))
        }
        Ask::Add(key, by) => body.byte(5).bytes(key).signed(by),
        Ask::Append(key, more) => body.byte(6).bytes(key).bytes(more),
        Ask::CompareSet { key, expected, desired } => {
            body.byte(7).bytes(key);
            match expected {
                Expected::Absent => body.byte(0),
                Expected::Value(value) => body.byte(1).bytes(value),
                Expected::AbsentOr(value) => body.byte(2).bytes(value),
            }
            .bytes(desired)
        }
        Ask::Delete(key) => body.byte(8).bytes(key),
        Ask::Check(keys) => body.byte(9).list(keys),
        Ask::Wait { keys, within } => body.byte(10).list(keys).within(within),
        Ask::Count => body.byte(11),
        Ask::List { prefix, after, most } => body.byte(12).bytes(prefix).optional(after).count(most),
        Ask::Push(key, item) => body.byte(13).bytes(key).bytes(item),
        Ask::Pop(key) => body.byte(14).bytes(key),
        Ask::Take { key, within } => body.byte(15).bytes(key).within(within),
        Ask::Len(key) => body.byte(16).bytes(key),
        Ask::Watch { key, since, within } => {
            body.byte(17).bytes(key);
            match since {
                Some(since) => body.byte(1).long(since.0),
                None => body.byte(0),
            }
            .within(within)
        }
        Ask::Gather { key, until, within } => body.byte(18).bytes(key).signed(until).within(within),
        Ask::Fence { name, all, who, within } => body.byte(19).bytes(name).ranks(all).ranks(who).within(within),
        Ask::Arrive { name, all, who } => body.byte(20).bytes(name).ranks(all).ranks(who),
    };
}
