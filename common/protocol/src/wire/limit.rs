//! A limit of the store that a client has met on a wire which has no words for it: the connection ends, and the launcher reports the
//! reason.

use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// Most bytes of a key that are reported.
const SHOWN: usize = 64;

/// The limited quantity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The length of a key.
    Key,
    /// The length of a value.
    Value,
    /// Keys that one request names.
    List,
    /// The length of a request.
    Request,
    /// The length of an answer.
    Answer,
    /// Answers that a client does not read, in bytes.
    Unread,
    /// Keys and items of queues.
    Keys,
    /// The bytes of all of them.
    Bytes,
    /// Requests that wait.
    Waits,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Key,
        Self::Value,
        Self::List,
        Self::Request,
        Self::Answer,
        Self::Unread,
        Self::Keys,
        Self::Bytes,
        Self::Waits,
    ];

    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::List => "list",
            Self::Request => "request",
            Self::Answer => "answer",
            Self::Unread => "unread",
            Self::Keys => "keys",
            Self::Bytes => "bytes",
            Self::Waits => "waits",
        }
    }
}

/// That one was met.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Met {
    /// Which.
    pub limit: Limit,
    /// The beginning of the key; empty where none is known.
    pub key: OsBytes,
    /// How much it would have been, or is already.
    pub has: u64,
    /// How much there may be.
    pub most: u64,
}

impl Met {
    /// A limit that was met at a key, or at an unknown one (empty).
    #[must_use]
    pub fn at(limit: Limit, key: &[u8], has: u64, most: u64) -> Self {
        let shown: Vec<u8> = match key.split_at_checked(SHOWN) {
            Some((shown, [_, ..])) => shown.iter().copied().chain(*b"...").collect(),
            _ => key.to_vec(),
        };
        Self { limit, key: OsBytes::new(shown), has, most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_are_shortened() {
        let of = |len| Met::at(Limit::Key, &alloc::vec![b'k'; len], 9, 8).key.as_slice().len();
        assert_eq!((of(0), of(SHOWN), of(SHOWN + 1), of(9000)), (0, SHOWN, SHOWN + 3, SHOWN + 3));
    }

    #[test]
    fn each_has_a_name_of_its_own() {
        let names: alloc::collections::BTreeSet<_> = Limit::ALL.into_iter().map(Limit::name).collect();
        assert_eq!(names.len(), Limit::ALL.len());
    }
}
