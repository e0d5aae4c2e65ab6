//! Sets of ranks, kept and sent as ranges: the ranks of a host are consecutive, so a set of ten thousand is a few numbers.

use crate::capped::unreserved;
use crate::id::Rank;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of ranks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct RankSet {
    /// First → last of each range. Ranges neither meet nor touch.
    ranges: BTreeMap<u32, u32>,
    len: u64,
}

/// A list of all of them; on a wire, of first and last of each range.
impl Serialize for RankSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_seq(self.ranges().flat_map(|(first, last)| first..=last))
        } else {
            serializer.collect_seq(self.ranges())
        }
    }
}

/// From a wire.
impl<'de> Deserialize<'de> for RankSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ranges: Vec<(u32, u32)> = unreserved(deserializer)?;
        match ranges.iter().all(|(first, last)| first <= last) {
            true => Ok(Self::of(&ranges)),
            false => Err(D::Error::custom("a range that ends before it begins")),
        }
    }
}

impl RankSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new(), len: 0 }
    }

    /// The first `count` ranks: a world of that size.
    #[must_use]
    pub fn world(count: u32) -> Self {
        let mut all = Self::new();
        if let Some(last) = count.checked_sub(1) {
            all.insert_range(0, last);
        }
        all
    }

    /// The set of these ranges: first and last of each.
    #[must_use]
    pub fn of(ranges: &[(u32, u32)]) -> Self {
        let mut all = Self::new();
        ranges.iter().for_each(|(first, last)| all.insert_range(*first, *last));
        all
    }

    /// Adds one.
    pub fn insert(&mut self, rank: Rank) {
        self.insert_range(rank.get(), rank.get());
    }

    /// Adds `first..=last`. Costs as much as there are ranges that it joins.
    pub fn insert_range(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        let (mut from, mut to) = (first, last);
        // A range that begins before us and reaches us, then those that begin within what is covered by then.
        let reach = to.saturating_add(1);
        while let Some((&start, &end)) = self.ranges.range(..=reach).next_back() {
            if end.saturating_add(1) < from {
                break;
            }
            self.ranges.remove(&start);
            self.len -= size(start, end);
            (from, to) = (from.min(start), to.max(end));
        }
        self.ranges.insert(from, to);
        self.len += size(from, to);
    }

    /// Adds all of another set.
    pub fn extend(&mut self, other: &Self) {
        other.ranges.iter().for_each(|(&first, &last)| self.insert_range(first, last));
    }

    /// Whether a rank is in it.
    #[must_use]
    pub fn contains(&self, rank: Rank) -> bool {
        self.holds(rank.get(), rank.get())
    }

    /// Whether all of another set are in it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.ranges.iter().all(|(&first, &last)| self.holds(first, last))
    }

    /// The ranks of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = Self::new();
        for (&first, &last) in &self.ranges {
            let mut from = first;
            let before = other.ranges.range(..first).next_back();
            for (&start, &end) in before.into_iter().chain(other.ranges.range(first..=last)) {
                if let Some(gap) = start.checked_sub(1).filter(|gap| *gap >= from) {
                    rest.insert_range(from, gap);
                }
                from = from.max(end.saturating_add(1));
                if end == u32::MAX {
                    return rest;
                }
            }
            rest.insert_range(from, last);
        }
        rest
    }

    /// How many they are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ranges, in order: first and last of each.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (u32, u32)> {
        self.ranges.iter().map(|(&first, &last)| (first, last))
    }

    fn holds(&self, first: u32, last: u32) -> bool {
        self.ranges.range(..=first).next_back().is_some_and(|(_, &end)| end >= last)
    }
}

fn size(first: u32, last: u32) -> u64 {
    u64::from(last - first) + 1
}

impl FromIterator<Rank> for RankSet {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        let mut set = Self::new();
        ranks.into_iter().for_each(|rank| set.insert(rank));
        set
    }
}

impl fmt::Display for RankSet {
    /// As people write it: `0-3,7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            if first == last { write!(f, "{first}")? } else { write!(f, "{first}-{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn of(ranks: &BTreeSet<u32>) -> RankSet {
        ranks.iter().copied().map(Rank::new).collect()
    }

    fn each(set: &RankSet) -> BTreeSet<u32> {
        set.ranges().flat_map(|(first, last)| first..=last).collect()
    }

    #[test]
    fn rank_set_is_written_as_people_write_it() {
        let set: RankSet = [7, 1, 0, 3, 2].into_iter().map(Rank::new).collect();
        assert_eq!(set.to_string(), "0-3,7");
        assert_eq!((set.len(), set.ranges().len()), (5, 2));
        assert_eq!(RankSet::new().to_string(), "");
        assert_eq!(RankSet::world(0), RankSet::new());
    }

    #[test]
    fn the_last_rank_there_can_be_is_one_like_any_other() {
        let mut all = RankSet::new();
        all.insert_range(0, u32::MAX);
        all.insert_range(5, 4);
        assert_eq!(all.len(), 1 << 32);
        all.insert(Rank::new(u32::MAX));
        assert_eq!(all.to_string(), "0-4294967295");
        assert!(RankSet::world(9).without(&all).is_empty());
        let last: RankSet = [Rank::new(u32::MAX)].into_iter().collect();
        assert_eq!(all.without(&last).to_string(), "0-4294967294");
    }

    proptest! {
        #[test]
        fn rank_set_is_a_set(
            a in prop::collection::btree_set(0u32..40, 0..40),
            b in prop::collection::btree_set(0u32..40, 0..40),
            shuffled in prop::collection::vec(0u32..40, 0..60),
        ) {
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(each(&x), a.clone());
            prop_assert_eq!(x.len(), a.len() as u64);
            let mut both = x.clone();
            both.extend(&y);
            prop_assert_eq!(each(&both), a.union(&b).copied().collect());
            prop_assert_eq!(each(&x.without(&y)), a.difference(&b).copied().collect());
            prop_assert_eq!(x.covers(&y), b.is_subset(&a));
            for rank in 0..41 {
                prop_assert_eq!(x.contains(Rank::new(rank)), a.contains(&rank));
            }
            let again: RankSet = shuffled.iter().copied().map(Rank::new).collect();
            prop_assert_eq!(&again, &of(&shuffled.iter().copied().collect()), "however it came together");
            let edges: Vec<_> = again.ranges().collect();
            prop_assert!(edges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "ranges neither meet nor touch");
        }
    }
}
