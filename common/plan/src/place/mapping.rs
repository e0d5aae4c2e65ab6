//! How many ranks of a program each host gets.

use super::host_slots::{Hosts, View};
use super::{AppRequest, By, Note, PlaceError, Request};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use rlaunch_base::id::AppIndex;

/// The hosts of a program and its ranks there, in the order of the hosts. Hosts without ranks may be among them.
pub(super) fn counts(
    request: &Request,
    hosts: &Hosts,
    app: &AppRequest,
    index: AppIndex,
    notes: &mut Vec<Note>,
) -> Result<Vec<(usize, u32)>, PlaceError> {
    let views = hosts.views((index, app), &request.layout);
    let width = u32::try_from(views.len()).unwrap_or(u32::MAX);
    if width == 0 {
        return Err(PlaceError::NoHost { app: index, nodes: hosts.count() });
    }
    let mut rows: Vec<Row> = views.iter().map(|view| Row::new(view, app.per_node(view))).collect();
    let n = match (app.n, app.ppn) {
        (Some(n), _) => n,
        (None, _) if app.counted => rows.iter().fold(0u32, |sum, row| sum.saturating_add(row.room)),
        (None, Some(ppn)) => ppn.saturating_mul(width),
        (None, None) if hosts.implicit => {
            notes.push(Note::OneRank(index));
            1
        }
        (None, None) => match views.iter().fold(0u32, |sum, view| sum.saturating_add(view.free.min(view.room))) {
            0 => return Err(PlaceError::NoSlot { app: index }),
            sum => sum,
        },
    };
    check(n, app, &rows)?;
    // `--nnodes` asks for so many hosts: all of them get ranks, as far as their slots go.
    let map_by = app.map_by.unwrap_or(request.map_by);
    let left = match (map_by, request.nnodes) {
        (By::Unit(_), _) if request.layout.span => deal_units(&mut rows, n),
        (By::Slot | By::Unit(_), None) => fill(&mut rows, n),
        (By::Slot | By::Unit(_), Some(_)) | (By::Node, _) => deal(&mut rows, n, |row| row.free),
    };
    match map_by {
        By::Slot | By::Unit(_) => overload(&mut rows, left),
        By::Node => {
            deal(&mut rows, left, |row| row.room);
        }
    }
    Ok(rows.iter().map(|row| (row.at, row.count)).collect())
}

impl AppRequest {
    /// The number for each host, if it is given.
    fn per_node(&self, view: &View) -> Option<u32> {
        if self.counted { Some(view.weight) } else { self.ppn }
    }
}

/// A host while it is being filled.
struct Row {
    at: usize,
    count: u32,
    /// Up to here it is not oversubscribed.
    free: u32,
    /// Never more than this.
    room: u32,
    /// The slots that other programs use there.
    used: u32,
    weight: u32,
    units: u32,
}

impl Row {
    /// `--ppn` is what a host gets, whatever its slots are.
    fn new(view: &View, ppn: Option<u32>) -> Self {
        let room = ppn.map_or(view.room, |ppn| ppn.min(view.room));
        let free = ppn.map_or(view.free, |ppn| ppn).min(room);
        Self { at: view.at, count: 0, free, room, used: view.used, weight: view.weight, units: view.units }
    }
}

fn check(n: u32, app: &AppRequest, rows: &[Row]) -> Result<(), PlaceError> {
    if n > super::MOST_RANKS {
        return Err(PlaceError::TooMany);
    }
    let hosts = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    if let Some(ppn) = app.ppn.filter(|ppn| u64::from(*ppn) * u64::from(hosts) < u64::from(n)) {
        return Err(PlaceError::PerNode { n, ppn, hosts });
    }
    let room = rows.iter().fold(0u32, |sum, row| sum.saturating_add(row.room));
    if app.counted && room < n {
        return Err(PlaceError::Counted { n, room });
    }
    if room < n { Err(PlaceError::Max { n, room }) } else { Ok(()) }
}

/// Fills one host after the other. Returns what has no slot.
fn fill(rows: &mut [Row], n: u32) -> u32 {
    rows.iter_mut().fold(n, |left, row| {
        row.count = row.free.min(left);
        left.saturating_sub(row.count)
    })
}

/// Deals one to each host in turn, up to its limit. Returns what is left when all are full.
fn deal(rows: &mut [Row], n: u32, limit: impl Fn(&Row) -> u32) -> u32 {
    let mut left = n;
    let mut open: Vec<&mut Row> = rows.iter_mut().collect();
    while left > 0 && !open.is_empty() {
        open.retain(|row| row.count < limit(row));
        for row in open.iter_mut().take(left as usize) {
            row.count = row.count.saturating_add(1);
            left = left.saturating_sub(1);
        }
    }
    left
}

/// Deals to each host in turn as many as it has units, up to its slots. Returns what is left when all are full.
fn deal_units(rows: &mut [Row], n: u32) -> u32 {
    let mut left = n;
    while left > 0 && rows.iter().any(|row| row.count < row.free) {
        for row in rows.iter_mut() {
            let own = row.units.max(1).min(row.free.saturating_sub(row.count)).min(left);
            row.count = row.count.saturating_add(own);
            left = left.saturating_sub(own);
        }
    }
    left
}

/// Ranks beyond the slots: each goes where the load on a slot is then least, the first host where that is equal.
fn overload(rows: &mut [Row], n: u32) {
    let mut heap: BinaryHeap<Load> = BinaryHeap::new();
    if n > 0 {
        heap.extend(rows.iter().enumerate().filter(|(_, row)| row.count < row.room).map(|(at, row)| Load::of(at, row)));
    }
    for _ in 0..n {
        let Some(Load { at, .. }) = heap.pop() else { return };
        let Some(row) = rows.get_mut(at) else { return };
        row.count = row.count.saturating_add(1);
        if row.count < row.room {
            heap.push(Load::of(at, row));
        }
    }
}

/// A host with one rank more. The greatest is the one that bears it best.
#[derive(PartialEq, Eq)]
struct Load {
    at: usize,
    ranks: u64,
    weight: u64,
}

impl Load {
    fn of(at: usize, row: &Row) -> Self {
        Self { at, ranks: u64::from(row.used) + u64::from(row.count) + 1, weight: u64::from(row.weight) }
    }
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> Ordering {
        // ranks / weight, the other way round; both numbers are below 2^32.
        let (own, others) = (self.ranks * other.weight, other.ranks * self.weight);
        others.cmp(&own).then(other.at.cmp(&self.at))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
