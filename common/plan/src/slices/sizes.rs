//! The number of slices of a job: the valid sizes, which slots are taken, and when a job may grow.

use super::slots::SlotId;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use rlaunch_base::time::Span;

/// Time from the last start or change until a job may grow.
pub const GROW_AFTER: Span = Span::from_secs(60);

/// Valid numbers of slices (`--slices 2,4,8`): in ascending order, and at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes(Vec<u32>);

/// Sizes that no job can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizesError {
    /// The list is empty.
    #[error("the list of sizes is empty")]
    Empty,
    /// 0, or less.
    #[error("a job cannot have {got} slices")]
    TooSmall {
        /// The value.
        got: i64,
    },
    /// More than there are slots.
    #[error("{size} slices are wanted, and the hosts form {slots}")]
    TooLarge {
        /// The wanted number.
        size: u32,
        /// The number of slots.
        slots: u32,
    },
}

impl Sizes {
    /// Sizes in any order. A repeated one counts once.
    ///
    /// # Errors
    /// There is none, one is below 1, or one is above the number of slots.
    pub fn new(values: &[i64], slots: u32) -> Result<Self, SizesError> {
        let mut sizes = Vec::new();
        for got in values {
            match u32::try_from(*got) {
                Ok(size @ 1..) if size <= slots => sizes.push(size),
                Ok(size @ 1..) => return Err(SizesError::TooLarge { size, slots }),
                Ok(0) | Err(_) if *got > 0 => return Err(SizesError::TooLarge { size: u32::MAX, slots }),
                Ok(0) | Err(_) => return Err(SizesError::TooSmall { got: *got }),
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() { Err(SizesError::Empty) } else { Ok(Self(sizes)) }
    }

    /// The largest of them.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.0.last().copied().unwrap_or(1)
    }

    /// The smallest of them.
    #[must_use]
    pub fn smallest(&self) -> u32 {
        self.0.first().copied().unwrap_or(1)
    }

    /// The largest one for which so many slices are enough.
    #[must_use]
    pub fn fit(&self, up: u32) -> Option<u32> {
        self.0.iter().rev().find(|size| **size <= up).copied()
    }

    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }
}

/// Slices for the next start of ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Slices to take, in this order: the first has rank 0.
    Take(Vec<SlotId>),
    /// More may still come up.
    Wait,
    /// No valid size is as small as that.
    TooFew {
        /// The number of slices that are up.
        up: u32,
    },
}

/// Chooses slices for a start. `up`: slots whose slices are up. `before`: the slices that the job had, in their order; none at its
/// first start.
///
/// A slice that is up keeps its place, and a spare one takes the place of a slice that is not. The job has at least the size that it had,
/// and at first the largest one, unless the time to wait has expired.
#[must_use]
pub fn choose(sizes: &Sizes, up: &[SlotId], before: &[SlotId], is_expired: bool) -> Choice {
    let up: BTreeSet<SlotId> = up.iter().copied().collect();
    let count = u32::try_from(up.len()).unwrap_or(u32::MAX);
    let had = u32::try_from(before.len()).unwrap_or(u32::MAX);
    let wanted = if before.is_empty() { sizes.largest() } else { had };
    match sizes.fit(count) {
        Some(size) if size >= wanted || is_expired => Choice::Take(take(size as usize, &up, before)),
        None if is_expired => Choice::TooFew { up: count },
        Some(_) | None => Choice::Wait,
    }
}

/// The slices that stay where they were, with spare ones in the places between and after them.
fn take(size: usize, up: &BTreeSet<SlotId>, before: &[SlotId]) -> Vec<SlotId> {
    let had: BTreeSet<SlotId> = before.iter().copied().collect();
    let mut spares = up.difference(&had).copied();
    let place = |slot: &SlotId| if up.contains(slot) { Some(*slot) } else { spares.next() };
    let mut taken: Vec<SlotId> = before.iter().filter_map(place).collect();
    taken.extend(spares);
    taken.truncate(size);
    taken
}

/// Whether a job may have more slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// The job may have this number of slices, which are up.
    To(u32),
    /// The last start or change is not [`GROW_AFTER`] ago.
    NotYet,
    /// No larger valid size is up.
    No,
}

/// Whether a job that runs on so many slices may have more. `up`: slices that are up, also those of the job.
#[must_use]
pub fn growth(sizes: &Sizes, running: u32, up: u32, since: Span) -> Growth {
    match sizes.fit(up) {
        Some(size) if size > running && since >= GROW_AFTER => Growth::To(size),
        Some(size) if size > running => Growth::NotYet,
        Some(_) | None => Growth::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slots(ids: &[u32]) -> Vec<SlotId> {
        ids.iter().copied().map(SlotId::new).collect()
    }

    fn chosen(valid: &[i64], up: &[u32], before: &[u32], is_expired: bool) -> Choice {
        choose(&Sizes::new(valid, 99).unwrap(), &slots(up), &slots(before), is_expired)
    }

    #[test]
    fn sizes_are_refused_that_no_job_can_have() {
        for (valid, error) in [
            (&[][..], SizesError::Empty),
            (&[0, 4], SizesError::TooSmall { got: 0 }),
            (&[-1], SizesError::TooSmall { got: -1 }),
            (&[2, 5], SizesError::TooLarge { size: 5, slots: 4 }),
            (&[1 << 40], SizesError::TooLarge { size: u32::MAX, slots: 4 }),
        ] {
            assert_eq!(Sizes::new(valid, 4), Err(error), "{valid:?}");
        }
        assert_eq!(Sizes::new(&[4, 2, 2], 4).unwrap().as_slice(), [2, 4]);
    }

    #[test]
    fn spare_slice_replaces_a_lost_one_and_others_keep_their_place() {
        for (valid, up, before, is_expired, expected) in [
            (&[4][..], &[0, 2, 3, 4][..], &[0, 1, 2, 3][..], false, Some(&[0, 4, 2, 3][..])),
            (&[4], &[1, 2, 3, 4], &[0, 1, 2, 3], false, Some(&[4, 1, 2, 3])),
            (&[4], &[0, 1, 2, 3, 4], &[0, 4, 2, 3], false, Some(&[0, 4, 2, 3])),
            (&[4], &[0, 2, 3], &[0, 1, 2, 3], false, None),
            (&[2, 4], &[0, 2, 3], &[0, 1, 2, 3], false, None),
            (&[2, 4], &[0, 2, 3], &[0, 1, 2, 3], true, Some(&[0, 2])),
            (&[2, 4], &[0, 1, 2, 3], &[1, 2], false, Some(&[1, 2, 0, 3])),
            (&[2, 4], &[0, 2, 3], &[0, 1], false, Some(&[0, 2])),
        ] {
            let expected = expected.map_or(Choice::Wait, |ids| Choice::Take(slots(ids)));
            assert_eq!(chosen(valid, up, before, is_expired), expected, "{up:?} after {before:?}");
        }
        assert_eq!(chosen(&[2, 4], &[2], &[0, 1], true), Choice::TooFew { up: 1 });
    }

    proptest! {
        #[test]
        fn choice_is_a_valid_size_of_slices_that_are_up_and_keeps_the_order(
            valid in proptest::collection::vec(1i64..9, 1..4),
            up in proptest::collection::btree_set(0u32..12, 0..12),
            before in proptest::collection::btree_set(0u32..12, 0..9),
            is_expired: bool,
        ) {
            let sizes = Sizes::new(&valid, 12).unwrap();
            let (up, before): (Vec<u32>, Vec<u32>) = (up.into_iter().collect(), before.into_iter().collect());
            let Choice::Take(taken) = choose(&sizes, &slots(&up), &slots(&before), is_expired) else { return Ok(()) };
            prop_assert!(sizes.as_slice().contains(&u32::try_from(taken.len()).unwrap()));
            prop_assert!(taken.iter().all(|slot| up.contains(&slot.get())));
            let once: BTreeSet<SlotId> = taken.iter().copied().collect();
            prop_assert_eq!(once.len(), taken.len());
            if taken.len() >= before.len() {
                for (place, slot) in before.iter().enumerate().filter(|(_, slot)| up.contains(slot)) {
                    prop_assert_eq!(taken[place].get(), *slot, "a slice that is up keeps its place");
                }
            }
        }
    }
}
