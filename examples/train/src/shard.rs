//! The one rule by which a row of things is cut between ranks, used for batches, for the held-out images and for the chunks of the ring.

use std::ops::Range;

/// The part of `0..len` that belongs to `rank`: parts are contiguous, in order of rank, and differ by at most one in length.
///
/// Parts are empty when there are more ranks than things, which every caller can bear: an empty part adds nothing to a sum.
pub(crate) fn shard(len: usize, rank: usize, size: usize) -> Range<usize> {
    let (share, rest) = (len / size, len % size);
    let start = rank * share + rank.min(rest);
    start..start + share + usize::from(rank < rest)
}

#[cfg(test)]
mod tests {
    use super::shard;

    #[test]
    fn shards_cover_everything_once_and_evenly() {
        for size in 1..9 {
            for len in 0..40 {
                let parts: Vec<_> = (0..size).map(|rank| shard(len, rank, size)).collect();
                let joined: Vec<usize> = parts.iter().cloned().flatten().collect();
                assert_eq!(joined, (0..len).collect::<Vec<_>>(), "{len} among {size}");
                let longest = parts.iter().map(|p| p.len()).max().unwrap();
                let shortest = parts.iter().map(|p| p.len()).min().unwrap();
                assert!(longest - shortest <= 1, "{len} among {size}: {parts:?}");
            }
        }
    }
}
