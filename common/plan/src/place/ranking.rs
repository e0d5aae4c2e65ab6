//! The numbers of ranks: which of the ranks that were mapped to hosts has which number.

use super::{AppRequest, By, PlaceError, RankBy, Request};
use crate::hostlist::Host;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, LocalRank};

/// The ranks of a program that were mapped to a host.
pub(super) struct Mapped {
    /// Which host.
    pub(super) host: usize,
    /// The first of them.
    pub(super) first: u32,
    /// How many.
    pub(super) count: u32,
    /// Units of the host that take turns.
    pub(super) units: u32,
}

/// The order that was asked for, or that the mapping has.
pub(super) fn of(request: &Request, app: &AppRequest) -> Result<RankBy, PlaceError> {
    let map_by = app.map_by.unwrap_or(request.map_by);
    let by_units = matches!(map_by, By::Unit(_));
    match request.rank_by {
        Some(RankBy::Fill | RankBy::Span) if !by_units => Err(PlaceError::NoUnits),
        Some(by) => Ok(by),
        None => Ok(match map_by {
            By::Slot => RankBy::Slot,
            By::Node => RankBy::Node,
            By::Unit(_) if request.layout.span => RankBy::Span,
            By::Unit(_) => RankBy::Fill,
        }),
    }
}

/// Host and local rank of each rank of a program, in the order of its ranks.
pub(super) fn numbered(mapped: &[Mapped], by: RankBy) -> Vec<(usize, LocalRank)> {
    // Ranks of a queue follow each other. With turns each queue gives one at a time.
    let (queues, in_turn): (Vec<VecDeque<_>>, bool) = match by {
        RankBy::Slot => (mapped.iter().map(|one| one.queue(0, 1)).collect(), false),
        RankBy::Node => (mapped.iter().map(|one| one.queue(0, 1)).collect(), true),
        RankBy::Fill => (mapped.iter().flat_map(Mapped::queues).collect(), false),
        RankBy::Span => (mapped.iter().flat_map(Mapped::queues).collect(), true),
    };
    if !in_turn {
        return queues.into_iter().flatten().collect();
    }
    let (mut left, mut order) = (queues, vec![]);
    while !left.is_empty() {
        left.retain(|queue| !queue.is_empty());
        order.extend(left.iter_mut().filter_map(VecDeque::pop_front));
    }
    order
}

impl Mapped {
    /// The ranks of each unit.
    fn queues(&self) -> Vec<VecDeque<(usize, LocalRank)>> {
        let units = self.units.clamp(1, self.first.saturating_add(self.count).max(1));
        (0..units).map(|unit| self.queue(unit, units)).collect()
    }

    /// The ranks of one unit of so many.
    fn queue(&self, unit: u32, units: u32) -> VecDeque<(usize, LocalRank)> {
        let own = (self.first..self.first.saturating_add(self.count)).filter(|n| n % units.max(1) == unit);
        own.map(|n| (self.host, LocalRank::new(n))).collect()
    }
}

/// The hosts of a program's ranks from a list for the whole job, and the rest of it.
pub(super) fn listed<'a>(
    app: &AppRequest,
    index: AppIndex,
    list: &'a [Host],
) -> Result<(&'a [Host], &'a [Host]), PlaceError> {
    let n = app.n.map_or(list.len(), |n| n as usize);
    let lines = u32::try_from(list.len()).unwrap_or(u32::MAX);
    let too_few = PlaceError::TooFewLines { app: index, n: app.n.unwrap_or(1), lines };
    if n == 0 { Err(too_few) } else { list.split_at_checked(n).ok_or(too_few) }
}
