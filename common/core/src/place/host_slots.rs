//! The hosts of all programs together: each once, in the order in which they were given, with what is taken of them.

use super::ranking::Mapped;
use super::{Here, Layout, Node, Note, PlaceError, Request};
use crate::hostlist::{Chips, Entry, Host};
use crate::id::LocalRank;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A host.
pub(super) struct Place {
    host: Host,
    local: bool,
    pub(super) slots: u32,
    pub(super) max: u32,
    pub(super) used: u32,
    chips: Option<Chips>,
}

impl Place {
    fn units(&self, layout: &Layout) -> u32 {
        if self.local { layout.units_here } else { layout.units.get(&self.host).copied().unwrap_or(layout.units_here) }
    }
}

impl Layout {
    /// Ranks for which so many slots are enough; a host that was given has room for one.
    fn slots(&self, given: u32) -> u32 {
        (given / self.slots_per_rank.max(1)).max(given.min(1))
    }
}

/// A host as one program sees it.
#[derive(Clone, Copy)]
pub(super) struct View {
    /// Which.
    pub(super) at: usize,
    /// Slots that the program may use before it oversubscribes the host.
    pub(super) free: u32,
    /// The most ranks that it can have.
    pub(super) room: u32,
    /// The slots that other programs use there.
    pub(super) used: u32,
    /// How much the host takes, beside others.
    pub(super) weight: u32,
    /// Its units that take turns.
    pub(super) units: u32,
}

/// All hosts.
pub(super) struct Hosts {
    places: Vec<Place>,
    /// For each program with hosts of its own: which, and the slots that it was given there.
    own: Vec<Vec<(usize, Option<u32>)>>,
    /// Whether no host was named.
    pub(super) implicit: bool,
}

/// Two names of this machine are one host.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Here,
    Named(&'a Host),
}

impl Hosts {
    pub(super) fn of(request: &Request) -> Result<Self, PlaceError> {
        one_guess(request)?;
        let mut hosts = Self::merged(request);
        if hosts.implicit {
            let Here { name, cpus } = &request.here;
            let slots = if *cpus == 0 { u32::MAX } else { request.layout.slots(*cpus) };
            hosts.places =
                vec![Place { host: Host::named(name), local: true, slots, max: u32::MAX, used: 0, chips: None }];
        }
        if let Some(nodes) = request.nnodes {
            let have = u32::try_from(hosts.places.len()).unwrap_or(u32::MAX);
            if have < nodes.min {
                return Err(PlaceError::TooFewHosts { wanted: nodes.min, have });
            }
            hosts.places.truncate(nodes.max as usize);
        }
        Ok(hosts)
    }

    fn merged(request: &Request) -> Self {
        let mut index: BTreeMap<Key<'_>, usize> = BTreeMap::new();
        let mut hosts = Self { places: Vec::new(), own: Vec::new(), implicit: true };
        for app in &request.apps {
            // Slots of one list are summed, also where it names this machine in two ways; of two lists the larger counts.
            let mut own: BTreeMap<usize, Option<u32>> = BTreeMap::new();
            let mut order = Vec::new();
            for entry in &app.hosts {
                let local = !request.carries_all && request.here.is(&entry.host);
                let key = if local { Key::Here } else { Key::Named(&entry.host) };
                let at = *index.entry(key).or_insert(hosts.places.len());
                if at == hosts.places.len() {
                    let host = entry.host.clone();
                    hosts.places.push(Place { host, local, slots: 0, max: u32::MAX, used: 0, chips: None });
                }
                let slots = slots(entry, app.ppn, &request.layout);
                own.entry(at)
                    .and_modify(|sum| *sum = Some(sum.unwrap_or(1).saturating_add(slots.unwrap_or(1))))
                    .or_insert_with(|| {
                        order.push(at);
                        slots
                    });
                if let Some(place) = hosts.places.get_mut(at) {
                    place.max = place.max.min(entry.max_slots.unwrap_or(u32::MAX));
                    place.chips = place.chips.take().or_else(|| entry.chips.clone());
                }
            }
            for (at, slots) in &own {
                if let Some(place) = hosts.places.get_mut(*at) {
                    place.slots = place.slots.max(slots.unwrap_or(1));
                }
            }
            hosts.implicit &= order.is_empty();
            hosts.own.push(order.into_iter().map(|at| (at, own.get(&at).copied().flatten())).collect());
        }
        hosts
    }

    /// The hosts that the program with this index may use, in its order.
    pub(super) fn views(&self, app: usize, layout: &Layout) -> Vec<View> {
        let view = |at: usize, own: Option<u32>| {
            let place = self.places.get(at)?;
            let free = place.slots.saturating_sub(place.used);
            let weight = own.unwrap_or(place.slots).max(1);
            let (free, room) = (own.map_or(free, |own| free.min(own)), place.max.saturating_sub(place.used));
            Some(View { at, free, room, used: place.used, weight, units: place.units(layout) })
        };
        match self.own.get(app) {
            Some(own) if !own.is_empty() => own.iter().filter_map(|(at, slots)| view(*at, *slots)).collect(),
            Some(_) | None => (0..self.places.len()).filter_map(|at| view(at, None)).collect(),
        }
    }

    /// The ranks that a program is to have on each host, with the units that take turns there.
    pub(super) fn mapped(&self, counts: &[(usize, u32)], layout: &Layout) -> Vec<Mapped> {
        let of = |(host, count): &(usize, u32)| {
            let place = self.places.get(*host)?;
            Some(Mapped { host: *host, first: place.used, count: *count, units: place.units(layout) })
        };
        counts.iter().filter_map(of).collect()
    }

    /// A rank for each host of a list; returns host and local rank of each.
    pub(super) fn take_listed(&mut self, list: &[Host], here: &Here) -> Result<Vec<(usize, LocalRank)>, PlaceError> {
        let mut taken = Vec::new();
        for host in list {
            let is_it = |place: &Place| place.host == *host || (place.local && here.is(host));
            let at = self.places.iter().position(is_it);
            let at = at.ok_or_else(|| PlaceError::NotOfTheJob { host: host.clone() })?;
            if let Some(place) = self.places.get_mut(at) {
                taken.push((at, LocalRank::new(place.used)));
                place.used = place.used.saturating_add(1);
            }
        }
        Ok(taken)
    }

    pub(super) fn take(&mut self, counts: &[(usize, u32)]) {
        for (at, n) in counts {
            if let Some(place) = self.places.get_mut(*at) {
                place.used = place.used.saturating_add(*n);
            }
        }
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// The hosts that have ranks, or all of them, with their indices here.
    pub(super) fn nodes(&self, keeps_all: bool) -> Vec<(usize, Node)> {
        let used = self.places.iter().enumerate().filter(|(_, place)| keeps_all || place.used > 0);
        used.map(|(at, Place { host, local, slots, used, chips, .. })| {
            (at, Node { host: host.clone(), local: *local, slots: *slots, ranks: *used, chips: chips.clone() })
        })
        .collect()
    }

    /// The first host with more ranks than slots, and how many others there are.
    pub(super) fn oversubscribed(&self) -> Option<Note> {
        let mut over = self.places.iter().filter(|place| place.used > place.slots);
        let first = over.next()?;
        Some(Note::Oversubscribed {
            host: first.host.clone(),
            ranks: first.used,
            slots: first.slots,
            processors: self.implicit,
            others: u32::try_from(over.count()).unwrap_or(u32::MAX),
        })
    }
}

/// `node1.a` and `node1.b` are two machines, and where this one is called `node1` only one of them can be meant by it.
fn one_guess(request: &Request) -> Result<(), PlaceError> {
    if request.carries_all {
        return Ok(());
    }
    let mut guessed =
        request.apps.iter().flat_map(|app| &app.hosts).filter_map(|entry| request.here.guessed(&entry.host));
    let Some(first) = guessed.next() else { return Ok(()) };
    match guessed.find(|name| !name.eq_ignore_ascii_case(first)) {
        Some(second) => {
            let own = request.here.name.clone();
            Err(PlaceError::TwoHere { own, first: first.into(), second: second.into() })
        }
        None => Ok(()),
    }
}

/// The slots that a list gives a host. Where it says nothing, `--ppn` does.
fn slots(entry: &Entry, ppn: Option<u32>, layout: &Layout) -> Option<u32> {
    match (entry.slots, ppn) {
        (Some(slots), _) => Some(layout.slots(slots)),
        (None, Some(ppn)) => Some(ppn.max(entry.named)),
        (None, None) if entry.named > 1 => Some(entry.named),
        (None, None) => None,
    }
}
