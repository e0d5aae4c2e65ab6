//! Why ranks cannot be assigned, and what is worth a word although they can.

use super::chain::IllFormed;
use super::key::{Key, Source};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::error::Hint;
use rlaunch_base::id::Rank;
use rlaunch_base::rank_set::RankSet;
use serde::Serialize;

/// Most values that a message lists.
const LISTED: usize = 4;

/// Ranks cannot be assigned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssignError {
    /// A rank is reported as lost that does not exist.
    #[error("there is no rank {rank} to be lost: {}", Ranks(*world))]
    NoSuchRank {
        /// Which.
        rank: Rank,
        /// How many there are.
        world: u32,
    },
    /// A rank has no value for a key.
    #[error("the policy groups ranks by {key}, which is not known of initial rank {initial}")]
    UnknownKey {
        /// The key.
        key: Key,
        /// Whose.
        initial: Rank,
    },
    /// A tree whose root is several.
    #[error("all ranks must share one key at the root of the tree, but they have {count}: {}", Listed { values, count: *count })]
    Roots {
        /// The first few, with who has them.
        values: Vec<(String, RankSet)>,
        /// How many there are.
        count: usize,
    },
    /// A chain that was never checked.
    #[error("{0}")]
    Chain(IllFormed),
    /// The same, of a tree that is not alone.
    #[error("a tree cannot be combined with other policies")]
    TreeAmongOthers,
    /// A tree without layers.
    #[error("a tree has no layer")]
    NoLayer,
    /// A chain without `shift` or `fill`.
    #[error("rank {rank} is gone, and no policy takes it out")]
    NotRenumbered {
        /// The first of them.
        rank: Rank,
    },
}

impl Hint for AssignError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NoSuchRank { .. } | Self::TreeAmongOthers => None,
            Self::UnknownKey { key: Key::Of(Source::Env(name)), .. } => {
                Some(format!("-x {name}, where it is set").into())
            }
            Self::UnknownKey { .. } => Some("a key that every rank has, as host, rank/8 or env:NAME".into()),
            Self::Roots { .. } | Self::NoLayer => {
                Some("key = \"\" in the first layer: it is the root, above all others".into())
            }
            Self::Chain(source) => source.hint(),
            Self::NotRenumbered { .. } => Some("shift or fill, listed before the policies that mark ranks".into()),
        }
    }
}

/// `ranks are 0 to 7`
struct Ranks(u32);

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("none is left"),
            1 => f.write_str("there is rank 0 only"),
            n => write!(f, "the ranks are 0 to {}", n - 1),
        }
    }
}

struct Listed<'a> {
    values: &'a [(String, RankSet)],
    count: usize,
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (value, ranks)) in self.values.iter().take(LISTED).enumerate() {
            write!(f, "{}{value} ({})", if at == 0 { "" } else { ", " }, Some_(ranks))?;
        }
        match self.count.saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The first ranges of a set.
struct Some_<'a>(&'a RankSet);

impl fmt::Display for Some_<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        for (at, (first, last)) in self.0.ranges().take(LISTED).enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        if self.0.ranges().len() > LISTED { f.write_str(",...") } else { Ok(()) }
    }
}

/// Ranks are not numbered in the order of the tree, in which they are numbered from now on: one sentence, however many they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Misplaced {
    /// The first of them in the order of the tree.
    #[serde(rename = "rank")]
    pub first: Rank,
    /// Its place there.
    #[serde(rename = "becomes")]
    pub place: Rank,
    /// How many.
    pub count: u32,
    /// The size of the world.
    #[serde(rename = "world_size")]
    pub world: u32,
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, world, first, place } = self;
        write!(f, "the order of the ranks is not that of the tree, by which {count} of {world} get another number (")?;
        write!(f, "rank {first} becomes {place})")
    }
}
