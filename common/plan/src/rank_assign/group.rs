//! `group(KEY)==N`: groups with too few ranks left are discarded whole (NVRx: `FilterCountGroupedByKey`).

use super::assign_error::AssignError;
use super::draft::Draft;
use super::key::{Key, Keys, Numbers, Owned};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use rlaunch_base::id::Rank;

/// Which ranks belong together, and how many of a group must be healthy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The value that the ranks of a group share; looked up anew in each round.
    pub key: Key,
    /// Groups that stay.
    pub condition: Condition,
}

/// A condition on how many of a group are healthy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// As many.
    Equal(u32),
    /// As many or more.
    AtLeast(u32),
    /// As many or fewer.
    AtMost(u32),
    /// A multiple of it.
    MultipleOf(NonZeroU32),
    /// A number in these ranges, from first to last: a function of a script.
    Among(Vec<(u32, u32)>),
    /// A function of a script, by its values for 0, 1, 2 …
    Table(Vec<bool>),
}

impl Condition {
    pub(super) fn holds(&self, count: u32) -> bool {
        match self {
            Self::Equal(n) => count == *n,
            Self::AtLeast(n) => count >= *n,
            Self::AtMost(n) => count <= *n,
            Self::MultipleOf(n) => count.is_multiple_of(n.get()),
            Self::Among(ranges) => ranges.iter().any(|(first, last)| (*first..=*last).contains(&count)),
            Self::Table(values) => values.get(count as usize).is_some_and(|holds| *holds),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(n) => write!(f, "=={n}"),
            Self::AtLeast(n) => write!(f, ">={n}"),
            Self::AtMost(n) => write!(f, "<={n}"),
            Self::MultipleOf(n) => write!(f, "%{n}"),
            Self::Among(ranges) => {
                f.write_str(" in(")?;
                for ((first, last), at) in ranges.iter().zip(0..) {
                    let comma = if at == 0 { "" } else { "," };
                    if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
                }
                f.write_str(")")
            }
            Self::Table(_) => f.write_str("=FUNCTION"),
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group({}){}", self.key, self.condition)
    }
}

impl Group {
    /// Marks those as gone whose group is not as it must be; a policy that runs later takes them out.
    pub(super) fn apply(&self, draft: &mut Draft, keys: &dyn Keys) -> Result<(), AssignError> {
        let mut groups: BTreeMap<Owned, u32> = BTreeMap::new();
        let mut counts: Vec<u32> = Vec::new();
        let mut of: Vec<Option<u32>> = Vec::with_capacity(draft.ranks.len());
        // Ranks of a group mostly follow each other.
        let mut last: Option<(Owned, u32)> = None;
        for ((&initial, rank), gone) in draft.ranks.iter().zip((0..).map(Rank::new)).zip(&draft.gone) {
            if *gone {
                of.push(None);
                continue;
            }
            let value = self.key.of(Numbers { initial: Rank::new(initial), rank }, keys)?;
            let group = match &last {
                Some((name, group)) if name.is(&value) => *group,
                Some(_) | None => {
                    let name = Owned::from(value);
                    let next = u32::try_from(counts.len()).unwrap_or(u32::MAX);
                    let group = *groups.entry(name.clone()).or_insert(next);
                    if group == next {
                        counts.push(0);
                    }
                    last = Some((name, group));
                    group
                }
            };
            counts.get_mut(group as usize).into_iter().for_each(|count| *count += 1);
            of.push(Some(group));
        }
        let stays: Vec<bool> = counts.iter().map(|count| self.condition.holds(*count)).collect();
        for (gone, group) in draft.gone.iter_mut().zip(of) {
            *gone |= group.is_some_and(|group| !stays.get(group as usize).copied().unwrap_or(true));
        }
        Ok(())
    }
}
