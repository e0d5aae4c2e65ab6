//! How many of the ranks that could work do: a tree's last word (NVRx: `world_size_filter`).

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;

/// A function of the number of ranks that could work, which never answers more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// The largest multiple.
    MultipleOf(NonZeroU32),
    /// No more than these.
    AtMost(u32),
    /// The largest power of two.
    PowerOfTwo,
    /// All but these.
    AllBut(u32),
    /// A function of a script.
    Table(Table),
}

/// The values of a function for 0, 1, 2 …
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table(Vec<u32>);

/// A function asks for more ranks than there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("world_size_filter answers {answer} for {of} ranks: it may ask for fewer, and not for more")]
pub struct Grows {
    /// How many there are.
    pub of: u32,
    /// How many it asks for.
    pub answer: u32,
}

impl Filter {
    /// A function, by its values for 0, 1, 2 … The last one stands for all larger worlds.
    ///
    /// # Errors
    /// It asks for more than there are.
    pub fn table(values: Vec<u32>) -> Result<Self, Grows> {
        match values.iter().zip(0..).find(|(answer, of)| **answer > *of) {
            Some((answer, of)) => Err(Grows { of, answer: *answer }),
            None => Ok(Self::Table(Table(values))),
        }
    }

    /// How many work where `could` could.
    #[must_use]
    pub fn of(&self, could: u32) -> u32 {
        match self {
            Self::MultipleOf(n) => could - could % *n,
            Self::AtMost(n) => could.min(*n),
            Self::PowerOfTwo => could.checked_ilog2().map_or(0, |log| 1 << log),
            Self::AllBut(n) => could.saturating_sub(*n),
            Self::Table(Table(values)) => {
                values.get(could as usize).or(values.last()).copied().unwrap_or(could).min(could)
            }
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MultipleOf(n) => write!(f, "multiple={n}"),
            Self::AtMost(n) => write!(f, "cap={n}"),
            Self::PowerOfTwo => f.write_str("pow2"),
            Self::AllBut(n) => write!(f, "spare={n}"),
            Self::Table(_) => f.write_str("a function"),
        }
    }
}
