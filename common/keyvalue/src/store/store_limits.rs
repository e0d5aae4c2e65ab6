//! How much a namespace may hold.

use rlaunch_base::rank_set::RankSet;

/// Limits of one namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest key in bytes.
    pub key: usize,
    /// Longest value in bytes.
    pub value: usize,
    /// Most keys, items of queues, and open fences.
    pub keys: usize,
    /// Most bytes: those of keys and values, [`Limits::PER_ITEM`] for each, and requests that wait, as below.
    pub bytes: usize,
    /// Most requests that wait at the same time.
    pub waiting: usize,
}

impl Limits {
    /// The charge of a key, an item of a queue or a fence, beside its bytes: about its real cost.
    pub const PER_ITEM: usize = 128;
    /// The charge of a waiting request, and of each awaited key (once, with its bytes).
    pub const PER_REQUEST: usize = 256;
    /// The charge of a waiting request for each key that was missing.
    pub const PER_MISSING: usize = 32;
    /// The charge of each range of a set of ranks.
    pub const PER_RANGE: usize = 24;
    /// Longest number in decimal.
    pub(super) const NUMBER: usize = 20;

    /// The charge of a set of ranks.
    pub(super) fn of_ranks(set: &RankSet) -> usize {
        set.ranges().len().saturating_mul(Self::PER_RANGE)
    }
}

impl Default for Limits {
    /// Key and value as long as torch's TCPStore takes them (8 KiB, 8 MiB: `TCPStoreLibUvBackend.cpp` of torch 2.15), and room for
    /// what 10,000 ranks write to find each other.
    fn default() -> Self {
        Self { key: 8 << 10, value: 8 << 20, keys: 1 << 20, bytes: 1 << 30, waiting: 1 << 17 }
    }
}
