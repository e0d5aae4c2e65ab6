//! Values of the ranks of a job. Ranks of a world that has ended can be missing, and no number is given twice.

use crate::id::Rank;
use alloc::vec::Vec;
use core::ops::Index;

/// Values by rank, in the order of the ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByRank<T> {
    all: Vec<(Rank, T)>,
    next: u32,
}

impl<T> Default for ByRank<T> {
    fn default() -> Self {
        Self { all: Vec::new(), next: 0 }
    }
}

impl<T> ByRank<T> {
    /// Adds the value of the next rank.
    pub fn push(&mut self, value: T) {
        self.all.push((Rank::new(self.next), value));
        self.next = self.next.saturating_add(1);
    }

    /// Removes ranks.
    pub fn remove(&mut self, is_one: impl Fn(Rank) -> bool) {
        self.all.retain(|(rank, _)| !is_one(*rank));
    }

    /// The number of the next rank that is added.
    #[must_use]
    pub const fn next(&self) -> Rank {
        Rank::new(self.next)
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The value of the rank with this number.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.all.get(self.position(number)?).map(|(_, value)| value)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        let at = self.position(number)?;
        self.all.get_mut(at).map(|(_, value)| value)
    }

    /// The value of the first rank.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    /// The values, in the order of their ranks.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        self.all.iter().map(|(_, value)| value)
    }

    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        self.all.iter_mut().map(|(_, value)| value)
    }

    /// The ranks with their values.
    pub fn with_ranks(&self) -> impl DoubleEndedIterator<Item = (Rank, &T)> + ExactSizeIterator {
        self.all.iter().map(|(rank, value)| (*rank, value))
    }

    /// Ranks in a row: those whose values fulfil none of `is_before` and `is_after`, where the values are in that order.
    pub fn between(&self, is_before: impl Fn(&T) -> bool, is_after: impl Fn(&T) -> bool) -> &[(Rank, T)] {
        let first = self.all.partition_point(|(_, value)| is_before(value));
        let rest = self.all.get(first..).unwrap_or_default();
        rest.get(..rest.partition_point(|(_, value)| !is_after(value))).unwrap_or_default()
    }

    /// The index of a rank in `all`. It is the number of the rank if no rank was removed.
    fn position(&self, number: usize) -> Option<usize> {
        let number = Rank::new(u32::try_from(number).ok()?);
        match self.all.get(number.index()) {
            Some((rank, _)) if *rank == number => Some(number.index()),
            Some(_) | None => self.all.binary_search_by_key(&number, |(rank, _)| *rank).ok(),
        }
    }
}

impl<T> FromIterator<T> for ByRank<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut all = Self::default();
        all.extend(values);
        all
    }
}

impl<'a, T> IntoIterator for &'a ByRank<T> {
    type Item = &'a T;
    type IntoIter = core::iter::Map<core::slice::Iter<'a, (Rank, T)>, fn(&(Rank, T)) -> &T>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter().map(|(_, value)| value)
    }
}

impl<T> Extend<T> for ByRank<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

impl<T> From<Vec<T>> for ByRank<T> {
    fn from(values: Vec<T>) -> Self {
        values.into_iter().collect()
    }
}

impl<T> Index<usize> for ByRank<T> {
    type Output = T;

    #[expect(clippy::expect_used, reason = "as of any index: for callers that know that the rank exists")]
    fn index(&self, number: usize) -> &T {
        self.get(number).expect("a rank of the job")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn ranks_keep_their_numbers_when_others_are_removed() {
        let mut all = ByRank::from(vec!['a', 'b', 'c', 'd']);
        all.remove(|rank| [1, 3].contains(&rank.get()));
        all.push('e');
        let numbered: Vec<(u32, char)> = all.with_ranks().map(|(rank, value)| (rank.get(), *value)).collect();
        assert_eq!(numbered, [(0, 'a'), (2, 'c'), (4, 'e')], "no number is given twice");
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|n| all.get(n).copied()),
            [Some('a'), None, Some('c'), None, Some('e'), None]
        );
        *all.get_mut(2).unwrap() = 'x';
        assert_eq!((all[2], all.len(), all.next()), ('x', 3, Rank::new(5)));
    }
}
