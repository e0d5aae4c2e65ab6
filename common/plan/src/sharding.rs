//! Workers on named axes: the coordinates of each worker in a layout of any number of dimensions.
//!
//! Names, results and sentences are those of NeMo-RL's `NamedSharding`. Two differences are intended: coordinates are computed once, and
//! an axis name that occurs twice is refused.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Most dimensions of a layout: NumPy's own limit.
const MAX_DIMENSIONS: usize = 64;

/// A list of texts as Python writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed(pub Vec<String>);

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, name) in self.0.iter().enumerate() {
            let quote = if name.contains('\'') && !name.contains('"') { '"' } else { '\'' };
            f.write_str(if at == 0 { "" } else { ", " })?;
            write!(f, "{quote}{name}{quote}")?;
        }
        f.write_str("]")
    }
}

/// Numbers as Python writes a list of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbers(pub Vec<i64>);

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "[{}]", words.join(", "))
    }
}

/// The class of Python's exceptions that upstream raises for an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorClass {
    /// `ValueError`
    Value,
    /// `IndexError`
    Index,
    /// `AssertionError`
    Assertion,
}

impl ErrorClass {
    /// Its name in Python.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Value => "ValueError",
            Self::Index => "IndexError",
            Self::Assertion => "AssertionError",
        }
    }
}

/// A layout or a question about it that is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShardingError {
    /// Another number of names than of dimensions.
    #[error("Number of dimensions in layout ({dimensions}) must match the number of names ({names}).")]
    Dimensions {
        /// Dimensions of the layout.
        dimensions: usize,
        /// Names that were given.
        names: usize,
    },
    /// More dimensions than NumPy has.
    #[error("a layout has at most {MAX_DIMENSIONS} dimensions, got {0}")]
    TooManyDimensions(usize),
    /// The shape does not describe the ranks.
    #[error("a layout of shape {shape} does not hold {ranks} ranks")]
    Shape {
        /// The sizes of the axes.
        shape: Numbers,
        /// Ranks that were given.
        ranks: usize,
    },
    /// Ranks that occur more than once.
    #[error("Duplicate ranks found in layout: {0}")]
    DuplicateRanks(Numbers),
    /// Names that occur more than once.
    #[error("Duplicate axis names found: {0}")]
    DuplicateNames(Listed),
    /// A rank that has no coordinates.
    #[error("Worker ID {0} not found in sharding layout.")]
    UnknownWorker(i64),
    /// An axis that the layout does not have.
    #[error("Invalid axis name: '{name}'. Valid names are: {valid}")]
    UnknownAxis {
        /// The name that was asked for.
        name: String,
        /// Names of the layout.
        valid: Listed,
    },
    /// A coordinate outside of its axis.
    #[error("Index {index} is out of bounds for axis '{axis}' with size {size}")]
    OutOfBounds {
        /// The coordinate.
        index: i64,
        /// Name of the axis.
        axis: String,
        /// Size of the axis.
        size: usize,
    },
}

impl ShardingError {
    /// The exception that upstream raises.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::OutOfBounds { .. } => ErrorClass::Index,
            Self::Dimensions { .. }
            | Self::TooManyDimensions(_)
            | Self::Shape { .. }
            | Self::DuplicateRanks(_)
            | Self::DuplicateNames(_)
            | Self::UnknownWorker(_)
            | Self::UnknownAxis { .. } => ErrorClass::Value,
        }
    }
}

/// The ranks at chosen coordinates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selected {
    /// Every axis was chosen: one rank.
    Rank(i64),
    /// The layout of the axes that are left.
    Part(NamedSharding),
}

/// An arrangement of ranks with named axes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedSharding {
    names: Vec<String>,
    sizes: Vec<usize>,
    /// All ranks, the last axis first.
    ranks: Vec<i64>,
    /// Position of each rank in `ranks`.
    positions: BTreeMap<i64, usize>,
    /// Distance of neighbours on each axis.
    strides: Vec<usize>,
}

impl NamedSharding {
    /// A layout from the sizes of its axes and its ranks, the last axis varying first.
    ///
    /// # Errors
    /// Sizes, names and ranks do not agree, or a name or rank occurs twice.
    pub fn new(sizes: Vec<usize>, ranks: Vec<i64>, names: Vec<String>) -> Result<Self, ShardingError> {
        if sizes.len() > MAX_DIMENSIONS {
            return Err(ShardingError::TooManyDimensions(sizes.len()));
        }
        if sizes.iter().try_fold(1_usize, |all, size| all.checked_mul(*size)) != Some(ranks.len()) {
            let shape = Numbers(sizes.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect());
            return Err(ShardingError::Shape { shape, ranks: ranks.len() });
        }
        if sizes.len() != names.len() {
            return Err(ShardingError::Dimensions { dimensions: sizes.len(), names: names.len() });
        }
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        let mut twice: Vec<i64> =
            sorted.iter().zip(sorted.iter().skip(1)).filter(|(a, b)| a == b).map(|(a, _)| *a).collect();
        twice.dedup();
        if !twice.is_empty() {
            return Err(ShardingError::DuplicateRanks(Numbers(twice)));
        }
        let is_repeated = |(at, name): &(usize, &String)| names.iter().take(*at).any(|earlier| earlier == *name);
        let repeated: Vec<String> =
            names.iter().enumerate().filter(is_repeated).map(|(_, name)| name.clone()).collect();
        if !repeated.is_empty() {
            return Err(ShardingError::DuplicateNames(Listed(repeated)));
        }
        let mut strides: Vec<usize> = Vec::with_capacity(sizes.len());
        let mut stride = 1_usize;
        for size in sizes.iter().rev() {
            strides.push(stride);
            stride = stride.saturating_mul(*size);
        }
        strides.reverse();
        let positions = ranks.iter().enumerate().map(|(at, rank)| (*rank, at)).collect();
        Ok(Self { names, sizes, ranks, positions, strides })
    }

    /// The names of the axes, from the outermost.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The sizes of the axes, in the order of the names.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// All ranks, the last axis varying first.
    #[must_use]
    pub fn ranks(&self) -> &[i64] {
        &self.ranks
    }

    /// The number of an axis.
    ///
    /// # Errors
    /// There is no such axis.
    pub fn axis_index(&self, name: &str) -> Result<usize, ShardingError> {
        let unknown = || ShardingError::UnknownAxis { name: name.into(), valid: Listed(self.names.clone()) };
        self.names.iter().position(|known| known == name).ok_or_else(unknown)
    }

    /// The coordinates of a worker, in the order of the axes.
    ///
    /// # Errors
    /// The worker is not in the layout.
    pub fn coords(&self, worker: i64) -> Result<impl Iterator<Item = usize> + '_, ShardingError> {
        let at = *self.positions.get(&worker).ok_or(ShardingError::UnknownWorker(worker))?;
        // A stride is zero in an empty layout only, and that has no workers.
        Ok(self.strides.iter().zip(&self.sizes).map(move |(stride, size)| at / (*stride).max(1) % (*size).max(1)))
    }

    /// Whether a worker has coordinate 0 on each of these axes. Axes that the layout does not have count as 0.
    ///
    /// # Errors
    /// The worker is not in the layout.
    pub fn is_axis_zero(&self, worker: i64, axes: &[&str]) -> Result<bool, ShardingError> {
        let mut named = self.names.iter().zip(self.coords(worker)?);
        Ok(named.all(|(name, coord)| coord == 0 || !axes.contains(&name.as_str())))
    }

    /// All ranks at these coordinates, in order; none if a coordinate is outside of its axis.
    ///
    /// # Errors
    /// There is no such axis.
    pub fn ranks_by_coord(&self, coords: &[(&str, i64)]) -> Result<Vec<i64>, ShardingError> {
        match self.chosen(coords) {
            Ok(chosen) => {
                let mut ranks = self.at(&chosen);
                ranks.sort_unstable();
                Ok(ranks)
            }
            Err(ShardingError::OutOfBounds { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The rank, or the layout of the other axes, at these coordinates.
    ///
    /// # Errors
    /// There is no such axis, or a coordinate is outside of it.
    pub fn select(&self, coords: &[(&str, i64)]) -> Result<Selected, ShardingError> {
        let chosen = self.chosen(coords)?;
        let ranks = self.at(&chosen);
        if let (true, Some(rank)) = (chosen.iter().all(Option::is_some), ranks.first()) {
            return Ok(Selected::Rank(*rank));
        }
        let is_left = |at: &usize| chosen.get(*at).is_some_and(Option::is_none);
        let left: Vec<usize> = (0..self.names.len()).filter(is_left).collect();
        let names = left.iter().filter_map(|at| self.names.get(*at).cloned()).collect();
        let sizes = left.iter().filter_map(|at| self.sizes.get(*at).copied()).collect();
        Self::new(sizes, ranks, names).map(Selected::Part)
    }

    /// The coordinate of each axis that was chosen.
    fn chosen(&self, coords: &[(&str, i64)]) -> Result<Vec<Option<usize>>, ShardingError> {
        let mut chosen = alloc::vec![None; self.names.len()];
        for (name, index) in coords {
            let axis = self.axis_index(name)?;
            let size = self.sizes.get(axis).copied().unwrap_or_default();
            let at = usize::try_from(*index).ok().filter(|at| *at < size);
            let at = at.ok_or_else(|| ShardingError::OutOfBounds { index: *index, axis: (*name).into(), size })?;
            if let Some(place) = chosen.get_mut(axis) {
                *place = Some(at);
            }
        }
        Ok(chosen)
    }

    /// Ranks at chosen coordinates, in the order of the layout.
    fn at(&self, chosen: &[Option<usize>]) -> Vec<i64> {
        let axes: Vec<(usize, usize, usize)> = chosen
            .iter()
            .zip(self.strides.iter().zip(&self.sizes))
            .filter_map(|(at, (stride, size))| at.map(|at| (at, (*stride).max(1), (*size).max(1))))
            .collect();
        let is_chosen = |at: usize| axes.iter().all(|(coord, stride, size)| at / stride % size == *coord);
        self.ranks.iter().enumerate().filter(|(at, _)| is_chosen(*at)).map(|(_, rank)| *rank).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharding(sizes: &[usize], names: &[&str]) -> Result<NamedSharding, ShardingError> {
        let ranks = (0..sizes.iter().product::<usize>()).map(|rank| i64::try_from(rank).unwrap()).collect();
        NamedSharding::new(sizes.to_vec(), ranks, names.iter().map(|name| (*name).into()).collect())
    }

    #[test]
    fn coordinates_are_those_of_the_layout() {
        let all = sharding(&[2, 3, 4], &["dp", "pp", "tp"]).unwrap();
        let coords = |worker| all.coords(worker).map(|coords| coords.collect::<Vec<_>>());
        assert_eq!(coords(0).unwrap(), [0, 0, 0]);
        assert_eq!(coords(23).unwrap(), [1, 2, 3]);
        assert_eq!(coords(6).unwrap(), [0, 1, 2]);
        assert_eq!(coords(24), Err(ShardingError::UnknownWorker(24)));
        assert_eq!(all.ranks_by_coord(&[("dp", 1), ("tp", 0)]).unwrap(), [12, 16, 20]);
        assert_eq!(all.ranks_by_coord(&[("dp", 2)]).unwrap(), [0_i64; 0]);
        assert_eq!(all.select(&[("dp", 1), ("pp", 2), ("tp", 3)]), Ok(Selected::Rank(23)));
        assert!(all.is_axis_zero(4, &["dp", "tp", "absent"]).unwrap());
        assert!(!all.is_axis_zero(4, &["pp"]).unwrap());
    }

    #[test]
    fn layout_with_a_repeated_name_or_rank_is_refused() {
        let names = sharding(&[1, 2], &["tp", "tp"]).unwrap_err();
        assert_eq!(names.to_string(), "Duplicate axis names found: ['tp']");
        let ranks = NamedSharding::new(alloc::vec![4], alloc::vec![3, 1, 3, 1], alloc::vec!["tp".into()]).unwrap_err();
        assert_eq!(ranks.to_string(), "Duplicate ranks found in layout: [1, 3]");
    }

    #[test]
    fn layout_that_its_shape_does_not_describe_is_refused() {
        let made = |sizes: &[usize], ranks| NamedSharding::new(sizes.to_vec(), ranks, alloc::vec!["a".into()]);
        assert!(matches!(made(&[3], alloc::vec![0]), Err(ShardingError::Shape { .. })));
        assert!(matches!(made(&[usize::MAX, 3], alloc::vec![0]), Err(ShardingError::Shape { .. })));
        assert!(matches!(made(&[1, 1], alloc::vec![0]), Err(ShardingError::Dimensions { .. })));
        assert!(matches!(made(&[1; 65], alloc::vec![0]), Err(ShardingError::TooManyDimensions(65))));
        // NumPy's scalar: no axis, one rank.
        assert!(NamedSharding::new(Vec::new(), alloc::vec![7], Vec::new()).is_ok());
        // An axis of size 0 has no ranks.
        assert_eq!(made(&[0], Vec::new()).unwrap().ranks_by_coord(&[("a", 0)]).unwrap(), [0_i64; 0]);
    }
}
