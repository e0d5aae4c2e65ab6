//! Sets of CPUs by their numbers, written as the kernel writes them: `0-3,8`.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Largest number of a CPU: kernels are built for 8,192 at most.
pub const LARGEST: u32 = 65_535;

/// A set of CPUs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CpuSet {
    /// Bit `n % 64` of word `n / 64` is CPU `n`; the last word is not 0.
    words: Vec<u64>,
}

/// Why a text is no list of CPUs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CpuListError {
    /// A part of it is neither a number nor a range.
    #[error("{0:?} is no number and no range of numbers")]
    NoNumber(String),
    /// `3-1`.
    #[error("the range {0} ends before it begins")]
    Backwards(String),
    /// More than there can be.
    #[error("{0} is larger than {LARGEST}")]
    TooLarge(String),
    /// `0-65535,0-65535`
    #[error("it has more than {} numbers", LARGEST + 1)]
    TooMany,
}

impl CpuSet {
    /// The set of this CPU alone.
    #[must_use]
    pub fn of(cpu: u32) -> Self {
        [cpu].into_iter().collect()
    }

    /// The set of a list such as `0-3,8`.
    ///
    /// # Errors
    /// The text is no such list.
    pub fn parse(text: &str) -> Result<Self, CpuListError> {
        numbers(text).map(|all| all.into_iter().collect())
    }

    /// Adds a CPU; one that no kernel has is left out.
    pub fn insert(&mut self, cpu: u32) {
        if cpu > LARGEST {
            return;
        }
        let at = (cpu / 64) as usize;
        if self.words.len() <= at {
            self.words.resize(at.saturating_add(1), 0);
        }
        if let Some(word) = self.words.get_mut(at) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Whether a CPU is in it.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get((cpu / 64) as usize).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// The number of its CPUs.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Its CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let of_word = |(at, word): (u32, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at.saturating_mul(64).saturating_add(bit))
        };
        (0..).zip(&self.words).flat_map(of_word)
    }

    /// The CPUs that both sets have.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::trimmed(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// The CPUs of this set that the other does not have.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let excluded = other.words.iter().copied().chain(core::iter::repeat(0));
        Self::trimmed(self.words.iter().zip(excluded).map(|(a, b)| a & !b).collect())
    }

    /// Adds all CPUs of another set.
    pub fn extend(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(own, more)| *own |= more);
    }

    /// The CPUs of all these sets.
    #[must_use]
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        sets.into_iter().for_each(|set| all.extend(set));
        all
    }

    /// Its bits, as `sched_setaffinity` takes them.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    fn trimmed(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }
}

/// The numbers of a list such as `0-3,8`, in its order.
///
/// # Errors
/// The text is no such list.
pub fn numbers(text: &str) -> Result<Vec<u32>, CpuListError> {
    let number = |word: &str| {
        if word.is_empty() || !word.bytes().all(|b| b.is_ascii_digit()) {
            return Err(CpuListError::NoNumber(word.into()));
        }
        word.parse::<u32>().ok().filter(|n| *n <= LARGEST).ok_or_else(|| CpuListError::TooLarge(word.into()))
    };
    let range = |part: &str| match part.split_once('-') {
        None => number(part).map(|n| n..=n),
        Some((first, last)) => match (number(first)?, number(last)?) {
            (first, last) if first <= last => Ok(first..=last),
            _ => Err(CpuListError::Backwards(part.into())),
        },
    };
    let mut all = vec![];
    for part in text.split(',') {
        let part = range(part.trim())?;
        // A short text must not cost much memory.
        if all.len().saturating_add(part.clone().count()) > LARGEST as usize + 1 {
            return Err(CpuListError::TooMany);
        }
        all.extend(part);
    }
    Ok(all)
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&last.saturating_add(1)) {
                last = next;
            }
            if first == last { write!(f, "{comma}{first}") } else { write!(f, "{comma}{first}-{last}") }?;
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, shown) in
            [("0", "0"), ("0-3,8", "0-3,8"), ("8, 0-3", "0-3,8"), ("0,1,2,130", "0-2,130"), ("5-5", "5")]
        {
            assert_eq!(CpuSet::parse(text).map(|set| set.to_string()).as_deref(), Ok(shown), "{text}");
        }
        for (text, error) in [
            ("", "\"\" is no number and no range of numbers"),
            ("1-", "\"\" is no number and no range of numbers"),
            ("a", "\"a\" is no number and no range of numbers"),
            ("+1", "\"+1\" is no number and no range of numbers"),
            ("3-1", "the range 3-1 ends before it begins"),
            ("99999999999", "99999999999 is larger than 65535"),
            ("0-70000", "70000 is larger than 65535"),
            ("0-65535,0", "it has more than 65536 numbers"),
        ] {
            assert_eq!(CpuSet::parse(text).map_err(|error| error.to_string()), Err(error.into()), "{text}");
        }
    }

    #[test]
    fn sets_are_joined_and_cut() {
        let set = |text| CpuSet::parse(text).unwrap();
        let (a, b) = (set("0-3,200"), set("2-5"));
        assert_eq!((a.and(&b), a.without(&b), b.without(&a)), (set("2,3"), set("0,1,200"), set("4,5")));
        assert_eq!(CpuSet::union([&a, &b]), set("0-5,200"));
        assert_eq!((a.len(), a.contains(200), a.contains(201), a.words().len()), (5, true, false, 4));
        assert_eq!(a.and(&set("7")), CpuSet::default(), "no word is left");
        assert!(CpuSet::default().is_empty() && CpuSet::default().to_string().is_empty());
        assert_eq!(CpuSet::of(3), set("3"));
    }
}
