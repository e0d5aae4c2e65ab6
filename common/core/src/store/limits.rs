//! How much a namespace may hold.

/// Limits of one namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest key in bytes.
    pub key: usize,
    /// Longest value in bytes.
    pub value: usize,
    /// Most keys, items of queues, and open fences.
    pub keys: usize,
    /// Most bytes: those of keys and values, and [`Limits::PER_ITEM`] for each.
    pub bytes: usize,
    /// Most requests that wait at the same time.
    pub waiting: usize,
}

impl Limits {
    /// What a key or an item of a queue is charged beside its bytes, about what it costs.
    pub const PER_ITEM: usize = 128;
}

impl Default for Limits {
    /// Key and value as long as torch's TCPStore takes them (8 KiB, 8 MiB: `TCPStoreLibUvBackend.cpp` of torch 2.15), and room for
    /// what 10,000 ranks write to find each other.
    fn default() -> Self {
        Self { key: 8 << 10, value: 8 << 20, keys: 1 << 20, bytes: 1 << 30, waiting: 1 << 17 }
    }
}
