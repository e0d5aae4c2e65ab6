//! Calls of a worker group: which workers are called, with which part of the data, and which results are returned.
//!
//! The rules and the sentences are those of NeMo-RL's `RayWorkerGroup`. One difference is intended: a call is validated whole before the
//! first worker is called, where upstream notices some errors half way.

pub mod workers;

use crate::sharding::{ErrorClass, Listed, NamedSharding, ShardingError};
use alloc::string::String;
use alloc::vec::Vec;

/// A call that is refused: no worker is called.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DispatchError {
    /// Sharded data need a layout.
    #[error("Sharding annotations must be provided to use sharded data distribution")]
    NoSharding,
    /// An axis that the layout does not have.
    #[error("Axis '{axis}' not found in sharding annotations. Valid axes: {valid}")]
    UnknownAxis {
        /// The name that was given.
        axis: String,
        /// Names of the layout.
        valid: Listed,
    },
    /// Axes of which the data are split and repeated.
    #[error("Axes cannot be both sharded and replicated: {{{0}}}")]
    Overlap(String),
    /// The data are shorter than an axis.
    #[error("list index out of range")]
    ShortData,
    /// The data are not one value for each worker.
    #[error(
        "data length should be equal to the number of workers: data length = {data}, number of workers = {workers}"
    )]
    Workers {
        /// Values that were given.
        data: usize,
        /// Workers of the group.
        workers: usize,
    },
    /// The data are more than one value for each worker that is called.
    #[error(
        "data length should be equal to the number of workers started: data length = {data}, number of workers started = {started}"
    )]
    Started {
        /// Values that were given.
        data: usize,
        /// Workers that would be called.
        started: usize,
    },
    /// A worker has no coordinates.
    #[error(transparent)]
    Sharding(#[from] ShardingError),
}

impl DispatchError {
    /// The exception that upstream raises.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::NoSharding | Self::UnknownAxis { .. } | Self::Overlap(_) => ErrorClass::Value,
            Self::ShortData => ErrorClass::Index,
            Self::Workers { .. } | Self::Started { .. } => ErrorClass::Assertion,
            Self::Sharding(error) => error.class(),
        }
    }
}

/// The part of the data that one worker gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Share {
    /// The data at these indices, one for each sharded axis; without an index, the data whole.
    Slice(Vec<usize>),
    /// No data: a call with `None`, for a worker on a free axis.
    Dummy,
}

/// A call of one worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The number of the worker in its group.
    pub worker: usize,
    /// The part of the data.
    pub share: Share,
}

/// All calls, in the order in which they are sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Which workers are called with which part.
    pub calls: Vec<Call>,
    /// Workers whose result is returned, if they are called.
    pub return_from: Vec<usize>,
}

impl Plan {
    /// Positions in `calls` of the results that are returned, in order.
    #[must_use]
    pub fn returned(&self) -> Vec<usize> {
        // Both lists are in the order of the workers.
        let position = |worker: &usize| self.calls.binary_search_by_key(worker, |call| call.worker).ok();
        self.return_from.iter().filter_map(position).collect()
    }
}

/// Options of a sharded call, as upstream names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sharded<'a> {
    /// Axes by which the data are split, in the order of their nesting.
    pub in_sharded_axes: &'a [&'a str],
    /// Axes on which all workers get the same.
    pub replicate_on_axes: &'a [&'a str],
    /// Axes on which all results are the same: that of coordinate 0 is returned.
    pub output_is_replicated: &'a [&'a str],
    /// Whether workers on free axes are called with `None`.
    pub dummy_calls: bool,
    /// Sizes of the data on the sharded axes; `None`: the caller checks.
    pub data: Option<&'a [usize]>,
}

impl Sharded<'_> {
    fn check(&self, sharding: &NamedSharding) -> Result<(), DispatchError> {
        for axis in self.in_sharded_axes.iter().chain(self.replicate_on_axes) {
            if sharding.axis_index(axis).is_err() {
                let valid = Listed(sharding.names().to_vec());
                return Err(DispatchError::UnknownAxis { axis: (*axis).into(), valid });
            }
        }
        let mut both: Vec<&str> =
            self.in_sharded_axes.iter().copied().filter(|axis| self.replicate_on_axes.contains(axis)).collect();
        both.sort_unstable();
        both.dedup();
        if !both.is_empty() {
            let quoted: Vec<String> = both.iter().map(|axis| alloc::format!("'{axis}'")).collect();
            return Err(DispatchError::Overlap(quoted.join(", ")));
        }
        Ok(())
    }

    /// The plan for this number of workers.
    ///
    /// # Errors
    /// An axis is unknown or used for two things, a worker has no coordinates, or the data are too short.
    pub fn plan(&self, sharding: Option<&NamedSharding>, workers: usize) -> Result<Plan, DispatchError> {
        let sharding = sharding.ok_or(DispatchError::NoSharding)?;
        self.check(sharding)?;
        let is_in = |axes: &[&str]| -> Vec<bool> {
            sharding.names().iter().map(|name| axes.contains(&name.as_str())).collect()
        };
        let (sharded, replicated) = (is_in(self.in_sharded_axes), is_in(self.replicate_on_axes));
        let free: Vec<bool> = sharded.iter().zip(&replicated).map(|(a, b)| !a && !b).collect();
        let once = is_in(self.output_is_replicated);
        let mut split: Vec<usize> = Vec::with_capacity(self.in_sharded_axes.len());
        for axis in self.in_sharded_axes {
            split.push(sharding.axis_index(axis)?);
        }
        let mut plan = Plan::default();
        let mut coords: Vec<usize> = Vec::with_capacity(free.len());
        for worker in 0..workers {
            coords.clear();
            coords.extend(sharding.coords(i64::try_from(worker).unwrap_or(i64::MAX))?);
            let is_off = |axes: &[bool]| axes.iter().zip(&coords).any(|(is_in, coord)| *is_in && *coord != 0);
            let is_free = is_off(&free);
            if !is_free && !is_off(&once) {
                plan.return_from.push(worker);
            }
            if !is_free {
                let slice: Vec<usize> = split.iter().filter_map(|axis| coords.get(*axis).copied()).collect();
                if self.data.is_some_and(|data| !slice.iter().zip(data).all(|(at, size)| at < size)) {
                    return Err(DispatchError::ShortData);
                }
                plan.calls.push(Call { worker, share: Share::Slice(slice) });
            } else if self.dummy_calls {
                plan.calls.push(Call { worker, share: Share::Dummy });
            }
        }
        Ok(plan)
    }
}

/// Workers with coordinate 0 on each of these axes. Axes that the layout does not have are ignored; without a layout all are called.
fn started(sharding: Option<&NamedSharding>, workers: usize, only: &[&str]) -> Result<Vec<usize>, DispatchError> {
    let mut all = Vec::with_capacity(workers);
    for worker in 0..workers {
        let runs = match sharding {
            Some(sharding) => sharding.is_axis_zero(i64::try_from(worker).unwrap_or(i64::MAX), only)?,
            None => true,
        };
        if runs {
            all.push(worker);
        }
    }
    Ok(all)
}

/// The plan of a call with the same data for all: every result is returned.
///
/// # Errors
/// A worker has no coordinates.
pub fn single_data(
    sharding: Option<&NamedSharding>,
    workers: usize,
    run_rank_0_only_axes: &[&str],
) -> Result<Plan, DispatchError> {
    let called = started(sharding, workers, run_rank_0_only_axes)?;
    let calls = called.iter().map(|worker| Call { worker: *worker, share: Share::Slice(Vec::new()) }).collect();
    Ok(Plan { calls, return_from: called })
}

/// The plan of a call with one value for each called worker: a share is the index of its value.
///
/// # Errors
/// A worker has no coordinates, or there are more or fewer values than called workers.
pub fn multiple_data(
    sharding: Option<&NamedSharding>,
    workers: usize,
    run_rank_0_only_axes: Option<&[&str]>,
    data: usize,
) -> Result<Plan, DispatchError> {
    if run_rank_0_only_axes.is_none() && data != workers {
        return Err(DispatchError::Workers { data, workers });
    }
    let called = started(sharding, workers, run_rank_0_only_axes.unwrap_or_default())?;
    if data < called.len() {
        return Err(DispatchError::ShortData);
    }
    if data > called.len() {
        return Err(DispatchError::Started { data, started: called.len() });
    }
    let share = |(at, worker): (usize, &usize)| Call { worker: *worker, share: Share::Slice(alloc::vec![at]) };
    Ok(Plan { calls: called.iter().enumerate().map(share).collect(), return_from: called })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square() -> NamedSharding {
        let names = ["dp", "tp"].map(String::from).to_vec();
        NamedSharding::new(alloc::vec![2, 2], alloc::vec![0, 1, 2, 3], names).unwrap()
    }

    #[test]
    fn axis_that_is_listed_twice_splits_the_data_twice() {
        let twice = Sharded { in_sharded_axes: &["dp", "dp"], replicate_on_axes: &["tp"], ..Sharded::default() };
        let plan = twice.plan(Some(&square()), 4).unwrap();
        assert_eq!(plan.calls.last().unwrap().share, Share::Slice(alloc::vec![1, 1]));
    }

    #[test]
    fn short_data_are_refused_before_the_first_call() {
        let short = Sharded { in_sharded_axes: &["dp"], data: Some(&[1]), ..Sharded::default() };
        let error = short.plan(Some(&square()), 4).unwrap_err();
        assert_eq!((error.class(), error.class().name()), (ErrorClass::Index, "IndexError"));
    }

    #[test]
    fn group_without_a_layout_calls_all_workers() {
        assert_eq!(single_data(None, 3, &["tp"]).unwrap().return_from, [0, 1, 2]);
        assert_eq!(multiple_data(None, 3, None, 3).unwrap().calls.len(), 3);
        assert_eq!(multiple_data(None, 3, None, 2), Err(DispatchError::Workers { data: 2, workers: 3 }));
        assert_eq!(Sharded::default().plan(None, 3), Err(DispatchError::NoSharding));
    }
}
