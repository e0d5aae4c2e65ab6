//! Why a request is refused.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;

/// Why a request was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A key is too long.
    #[error("a key of {len} bytes is longer than {most}")]
    LongKey {
        /// Its length.
        len: usize,
        /// The longest there may be.
        most: usize,
    },
    /// A value is too long, or would become so.
    #[error("the value of '{key}' would have {len} bytes; the longest may have {most}")]
    LongValue {
        /// The key.
        key: OsBytes,
        /// Its length.
        len: usize,
        /// The longest there may be.
        most: usize,
    },
    /// The result does not fit in one answer.
    #[error("the answer would have {len} bytes; the longest may have {most}")]
    LongAnswer {
        /// Its length.
        len: usize,
        /// The longest there may be.
        most: usize,
    },
    /// There are too many keys, items of queues, and fences.
    #[error("there is no room for '{key}': {most} keys and items of queues are here")]
    ManyKeys {
        /// The one that is too many.
        key: OsBytes,
        /// How many there may be.
        most: usize,
    },
    /// All values together are too long.
    #[error("'{key}' does not fit: {used} of {most} bytes are in use")]
    Full {
        /// The key.
        key: OsBytes,
        /// The present use.
        used: usize,
        /// The limit.
        most: usize,
    },
    /// Too many requests wait.
    #[error("{most} requests wait already")]
    ManyWaiting {
        /// How many may.
        most: usize,
    },
    /// There is no room for a request that waits.
    #[error("there is no room to wait for '{key}'{}: {used} of {most} bytes are in use", more_keys(*.more))]
    FullOfWaits {
        /// For which key.
        key: OsBytes,
        /// How many others it would wait for.
        more: usize,
        /// The present use.
        used: usize,
        /// The limit.
        most: usize,
    },
    /// The value is no number.
    #[error("the value of '{key}' is no decimal number of 64 bits")]
    NoNumber {
        /// The key.
        key: OsBytes,
    },
    /// The number would be too large.
    #[error("the number at '{key}' would be larger than 64 bits can hold")]
    Overflow {
        /// The key.
        key: OsBytes,
    },
    /// Only rlaunch itself changes this key.
    #[error("'{key}' cannot be changed: keys that begin with rlaunch/ are rlaunch's own")]
    Reserved {
        /// The key.
        key: OsBytes,
    },
    /// The fence is one of others.
    #[error("the fence '{name}' is open for ranks {open}, not for {asked}")]
    OtherFence {
        /// Its name.
        name: OsBytes,
        /// For whom it is open.
        open: RankSet,
        /// For whom it was asked for.
        asked: RankSet,
    },
    /// A rank arrives that does not take part.
    #[error("ranks {who} do not take part in the fence '{name}'")]
    NoParticipant {
        /// Its name.
        name: OsBytes,
        /// The ranks that do not take part.
        who: RankSet,
    },
    /// The condition did not come true in time.
    #[error("after {within}: {missing}")]
    TimedOut {
        /// How long it was waited for.
        within: Span,
        /// The missing part of the condition.
        missing: Absent,
    },
    /// Too much waits for the agent of the host on which the namespace lives.
    #[error("{waiting} bytes wait already for the host on which this space lives")]
    Behind {
        /// How many.
        waiting: usize,
    },
    /// Too many answers wait for the host of who asks.
    #[error("{waiting} bytes of answers wait already for the host that asks")]
    Unread {
        /// How many.
        waiting: usize,
    },
    /// The namespace is gone, with the host that it lived on or because it was closed.
    #[error("the namespace is gone")]
    Gone,
}

/// The part of a condition that did not come true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Absent {
    /// Keys that were not set: the first of them, and their number.
    Keys(Vec<OsBytes>, usize),
    /// The queue stayed empty.
    Item(OsBytes),
    /// The key has not changed.
    Change(OsBytes),
    /// The count is too small.
    Count {
        /// At which key.
        key: OsBytes,
        /// How many there should have been.
        until: i64,
    },
    /// Ranks have not arrived at a fence.
    Ranks {
        /// The fence.
        name: OsBytes,
        /// The ranks that have not arrived.
        missing: RankSet,
    },
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(first, count) => {
                f.write_str("nobody has set ")?;
                for (at, key) in first.iter().enumerate() {
                    write!(f, "{}'{key}'", if at > 0 { ", " } else { "" })?;
                }
                match count.saturating_sub(first.len()) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::Item(key) => write!(f, "the queue '{key}' is empty"),
            Self::Change(key) => write!(f, "'{key}' has not changed"),
            Self::Count { key, until } => write!(f, "the count at '{key}' has not come to {until}"),
            Self::Ranks { name, missing } if missing.len() == 1 => {
                write!(f, "rank {missing} has not arrived at the fence '{name}'")
            }
            Self::Ranks { name, missing } => write!(f, "ranks {missing} have not arrived at the fence '{name}'"),
        }
    }
}

impl Hint for Refusal {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::LongKey { .. } | Self::LongValue { .. } => {
                Some("large data belongs in a file or a tensor, and its path in the store".into())
            }
            Self::LongAnswer { .. } => Some("ask for fewer keys at a time".into()),
            Self::ManyKeys { .. } | Self::Full { .. } => Some("delete keys that nobody reads any more".into()),
            Self::Behind { .. } => {
                Some("ask again later, or let fewer ranks write long values at the same time".into())
            }
            Self::Unread { .. } => Some("ask again later, or read fewer long values at the same time".into()),
            Self::ManyWaiting { .. } => Some("wait for several keys with one request".into()),
            Self::FullOfWaits { .. } => {
                Some("wait for fewer keys at a time, or delete those that nobody reads any more".into())
            }
            Self::NoNumber { .. } | Self::Overflow { .. } => Some("one key for numbers, another for text".into()),
            Self::OtherFence { .. } => Some("all who come to a fence name the same participants".into()),
            Self::Reserved { .. } => Some("another name for the key".into()),
            Self::NoParticipant { .. } | Self::TimedOut { .. } | Self::Gone => None,
        }
    }
}

fn more_keys(more: usize) -> String {
    if more > 0 { format!(" and {more} more") } else { String::new() }
}
