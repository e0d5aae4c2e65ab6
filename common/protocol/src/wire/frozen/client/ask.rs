//! The requests of a client to a namespace, and the answers.

use super::refusal::Refusal;
use crate::wire::codec::{Raw, raw};
use alloc::vec::Vec;
use bytes::Bytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;
use serde::{Deserialize, Serialize, Serializer};

/// When something last changed in a namespace: each change has the next number. 0 is before the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Revision(pub u64);

/// The expected state for compare-and-set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Expected<'a> {
    /// The key does not exist.
    Absent,
    /// The key has this value.
    Value(#[serde(serialize_with = "raw")] &'a [u8]),
    /// The key does not exist, or has this value.
    AbsentOr(#[serde(serialize_with = "raw")] &'a [u8]),
}

impl Ask<'_> {
    /// Whether it is about a value at a key that begins like this. The names of keys are listed for everybody.
    #[must_use]
    pub fn is_about(&self, prefix: &[u8]) -> bool {
        match self {
            Self::Get(key)
            | Self::Set(key, _)
            | Self::Add(key, _)
            | Self::Append(key, _)
            | Self::CompareSet { key, .. }
            | Self::Delete(key)
            | Self::Push(key, _)
            | Self::Pop(key)
            | Self::Take { key, .. }
            | Self::Len(key)
            | Self::Watch { key, .. }
            | Self::Gather { key, .. } => key.starts_with(prefix),
            Self::GetAll(keys) | Self::Check(keys) | Self::Wait { keys, .. } => {
                keys.iter().any(|key| key.starts_with(prefix))
            }
            Self::SetAll(pairs) => pairs.iter().any(|(key, _)| key.starts_with(prefix)),
            Self::Count | Self::List { .. } | Self::Fence { .. } | Self::Arrive { .. } => false,
        }
    }
}

/// A request. It borrows what it is about: what is only looked up is never copied. The wire has the variants in this order; new ones come
/// last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Ask<'a> {
    /// The value of a key.
    Get(&'a [u8]),
    /// The values of several, of one moment.
    GetAll(&'a [&'a [u8]]),
    /// Gives a key a value.
    Set(&'a [u8], #[serde(serialize_with = "raw")] &'a [u8]),
    /// Gives several keys values, or, where one is refused, none.
    SetAll(#[serde(serialize_with = "pairs")] &'a [(&'a [u8], &'a [u8])]),
    /// Adds to a number in decimal; a key that does not exist counts as 0.
    Add(&'a [u8], i64),
    /// Adds to the end of a value; a key that does not exist counts as empty.
    Append(&'a [u8], #[serde(serialize_with = "raw")] &'a [u8]),
    /// Sets a key if it is as expected.
    CompareSet {
        /// Which.
        key: &'a [u8],
        /// As it must be.
        expected: Expected<'a>,
        /// The new value.
        #[serde(serialize_with = "raw")]
        desired: &'a [u8],
    },
    /// Removes a key, its queue included.
    Delete(&'a [u8]),
    /// Whether all keys exist. A queue that holds something exists.
    Check(&'a [&'a [u8]]),
    /// Is answered when each of the keys has existed.
    Wait {
        /// Which.
        keys: &'a [&'a [u8]],
        /// Or after this time.
        within: Option<Span>,
    },
    /// How many keys there are; queues and keys of rlaunch are not counted.
    Count,
    /// Keys that begin so, in order, after one of them, as many as asked for.
    List {
        /// How they begin.
        prefix: &'a [u8],
        /// The last one of the part before.
        after: Option<&'a [u8]>,
        /// At most so many.
        most: usize,
    },
    /// Puts something at the end of a queue.
    Push(&'a [u8], #[serde(serialize_with = "raw")] &'a [u8]),
    /// Takes the first of a queue, if there is one.
    Pop(&'a [u8]),
    /// Takes the first of a queue, when there is one.
    Take {
        /// Which.
        key: &'a [u8],
        /// Or gives up after this time.
        within: Option<Span>,
    },
    /// How long a queue is.
    Len(&'a [u8]),
    /// Is answered when a key is not any more as it was at a revision.
    Watch {
        /// Which.
        key: &'a [u8],
        /// The revision of the answer before; 0: as long as there is no such key. `None`: the present revision.
        since: Option<Revision>,
        /// Or after this time.
        within: Option<Span>,
    },
    /// Counts one more at a key, and is answered when so many have been counted: a barrier without names.
    Gather {
        /// Which; its value is the count, in decimal.
        key: &'a [u8],
        /// Until there are so many.
        until: i64,
        /// Or until this time has passed. The count stays.
        within: Option<Span>,
    },
    /// Is answered when all participants have arrived.
    Fence {
        /// Its name; when it is complete, the name is free for the next one.
        name: &'a [u8],
        /// The ranks that have to come. The same for all who do.
        all: &'a RankSet,
        /// The ranks that come with this request. To arrive twice counts once.
        who: &'a RankSet,
        /// Or after this time. Ranks that have arrived stay so.
        within: Option<Span>,
    },
    /// Arrives at a fence and does not wait for it: for those who are dead.
    Arrive {
        /// Its name.
        name: &'a [u8],
        /// The ranks that have to come.
        all: &'a RankSet,
        /// The ranks that come with this request.
        who: &'a RankSet,
    },
}

impl Ask<'_> {
    /// Whether it is about what is in this queue.
    pub fn asks_for_item(&self, queue: &[u8]) -> bool {
        match self {
            Self::Pop(key) | Self::Take { key, .. } | Self::Len(key) => *key == queue,
            Self::Get(_) | Self::GetAll(_) | Self::Check(_) | Self::Count | Self::List { .. } | Self::Delete(_) => {
                false
            }
            Self::Set(..) | Self::SetAll(_) | Self::Add(..) | Self::Append(..) | Self::CompareSet { .. } => false,
            Self::Push(..) | Self::Wait { .. } | Self::Watch { .. } | Self::Gather { .. } => false,
            Self::Fence { .. } | Self::Arrive { .. } => false,
        }
    }
}

/// Keys and values that are written in one piece each.
fn pairs<S: Serializer>(pairs: &[(&[u8], &[u8])], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(pairs.iter().map(|(key, value)| (Raw(key), Raw(value))))
}

/// The answer to a request. The wire has the variants in this order; new ones come last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Answer {
    /// The request was done, or its condition has come true.
    Done,
    /// Not all keys exist (`Check`).
    Missing,
    /// A value, or that there is none.
    Value(Option<Bytes>),
    /// Values, in the order in which they were asked for.
    Values(Vec<Option<Bytes>>),
    /// The new number, or how many.
    Number(i64),
    /// The present value of the key.
    Compared {
        /// Whether it is what was desired.
        set: bool,
        /// Its value now.
        now: Option<Bytes>,
    },
    /// Keys, in order.
    Keys(Vec<Bytes>),
    /// The present value of a watched key.
    Changed {
        /// To be given with the next watch.
        at: Revision,
        /// Its value; `None`: it is gone.
        value: Option<Bytes>,
    },
    /// The request was not done.
    Refused(Refusal),
}
