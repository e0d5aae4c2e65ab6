//! The hosts of all programs together: each once, in the order in which they were given, with what is taken of them.

use super::ranking::Mapped;
use super::{AppRequest, Here, Layout, Node, Note, PlaceError, Request};
use crate::hostlist::{Chips, Entry, Host};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, LocalRank};

/// A host.
struct Place {
    host: Host,
    local: bool,
    slots: u32,
    max: u32,
    /// Its ranks.
    used: u32,
    /// The slots that they take.
    taken: u32,
    /// The slots of a rank of the program that was placed here last, or that has named this host.
    per_rank: u32,
    chips: Option<Chips>,
}

impl Place {
    const fn new(host: Host, local: bool, slots: u32, per_rank: u32) -> Self {
        Self { host, local, slots, max: u32::MAX, used: 0, taken: 0, per_rank, chips: None }
    }

    /// Ranks of so many slots that it has room for.
    fn free(&self, per_rank: u32) -> u32 {
        if self.used == 0 { ranks_on(self.slots, per_rank) } else { self.slots.saturating_sub(self.taken) / per_rank }
    }

    /// The ranks that it takes before it is oversubscribed.
    fn ranks(&self) -> u32 {
        match self.taken.checked_sub(self.slots) {
            _ if self.slots == u32::MAX => u32::MAX,
            Some(over) => self.used.saturating_sub(over.div_ceil(self.per_rank)),
            None => self.used.saturating_add(self.free(self.per_rank)),
        }
    }

    /// Gives ranks their slots. The first rank of a host that has fewer takes all of them.
    fn take(&mut self, ranks: u32, per_rank: u32) {
        let first = if self.used == 0 { per_rank.min(self.slots.max(1)) } else { per_rank };
        let others = ranks.saturating_sub(1).saturating_mul(per_rank);
        if ranks > 0 {
            self.taken = self.taken.saturating_add(first).saturating_add(others);
            self.used = self.used.saturating_add(ranks);
            self.per_rank = per_rank;
        }
    }

    fn units(&self, layout: &Layout) -> u32 {
        if self.local { layout.units_here } else { layout.units.get(&self.host).copied().unwrap_or(layout.units_here) }
    }
}

/// Ranks for which so many slots are enough; a host that was given has room for one.
fn ranks_on(slots: u32, per_rank: u32) -> u32 {
    (slots / per_rank.max(1)).max(slots.min(1))
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
            let slots = if *cpus == 0 { u32::MAX } else { *cpus };
            hosts.places = vec![Place::new(Host::named(name), true, slots, 1)];
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
                    hosts.places.push(Place::new(entry.host.clone(), local, 0, app.per_rank()));
                }
                let slots = slots(entry, app);
                let or_one = |slots: Option<u32>| slots.unwrap_or_else(|| app.per_rank());
                own.entry(at).and_modify(|sum| *sum = Some(or_one(*sum).saturating_add(or_one(slots)))).or_insert_with(
                    || {
                        order.push(at);
                        slots
                    },
                );
                if let Some(place) = hosts.places.get_mut(at) {
                    place.max = place.max.min(entry.max_slots.unwrap_or(u32::MAX));
                    place.chips = place.chips.take().or_else(|| entry.chips.clone());
                }
            }
            for (at, slots) in &own {
                if let Some(place) = hosts.places.get_mut(*at) {
                    place.slots = place.slots.max(slots.unwrap_or_else(|| app.per_rank()));
                }
            }
            hosts.implicit &= order.is_empty();
            hosts.own.push(order.into_iter().map(|at| (at, own.get(&at).copied().flatten())).collect());
        }
        hosts
    }

    /// The hosts that a program may use, in its order. All numbers are ranks of this program.
    pub(super) fn views(&self, (index, app): (AppIndex, &AppRequest), layout: &Layout) -> Vec<View> {
        let each = app.per_rank();
        let view = |at: usize, own: Option<u32>| {
            let place = self.places.get(at)?;
            let free = place.free(each);
            let weight = ranks_on(own.unwrap_or(place.slots), each).max(1);
            let free = own.map_or(free, |own| free.min(ranks_on(own, each)));
            let (room, used) = (place.max.saturating_sub(place.used), place.taken.div_ceil(each));
            Some(View { at, free, room, used, weight, units: place.units(layout) })
        };
        match self.own.get(index.index()) {
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
    pub(super) fn take_listed(
        &mut self,
        list: &[Host],
        app: &AppRequest,
        here: &Here,
    ) -> Result<Vec<(usize, LocalRank)>, PlaceError> {
        let mut taken = Vec::new();
        for host in list {
            let is_it = |place: &Place| place.host == *host || (place.local && here.is(host));
            let at = self.places.iter().position(is_it);
            let at = at.ok_or_else(|| PlaceError::NotOfTheJob { host: host.clone() })?;
            if let Some(place) = self.places.get_mut(at) {
                taken.push((at, LocalRank::new(place.used)));
                place.take(1, app.per_rank());
            }
        }
        Ok(taken)
    }

    pub(super) fn take(&mut self, counts: &[(usize, u32)], app: &AppRequest) {
        for (at, n) in counts {
            if let Some(place) = self.places.get_mut(*at) {
                place.take(*n, app.per_rank());
            }
        }
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// The hosts that have ranks, or all of them, with their indices here.
    pub(super) fn nodes(&self, keeps_all: bool) -> Vec<(usize, Node)> {
        let used = self.places.iter().enumerate().filter(|(_, place)| keeps_all || place.used > 0);
        let node = |place: &Place| {
            let (host, chips) = (place.host.clone(), place.chips.clone());
            Node { host, local: place.local, slots: place.ranks(), ranks: place.used, chips }
        };
        used.map(|(at, place)| (at, node(place))).collect()
    }

    /// The first host with more ranks than slots, and how many others there are.
    pub(super) fn oversubscribed(&self) -> Option<Note> {
        let mut over = self.places.iter().filter(|place| place.used > place.ranks());
        let first = over.next()?;
        Some(Note::Oversubscribed {
            host: first.host.clone(),
            ranks: first.used,
            slots: first.ranks(),
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

impl AppRequest {
    /// The slots that each rank takes.
    fn per_rank(&self) -> u32 {
        self.slots_per_rank.max(1)
    }
}

/// The slots that a list gives a host. Where the list has none, `--ppn` has ranks.
fn slots(entry: &Entry, app: &AppRequest) -> Option<u32> {
    let of_ranks = |ranks: u32| Some(ranks.saturating_mul(app.per_rank()));
    match (entry.slots, app.ppn) {
        (Some(ranks), _) if app.counted => of_ranks(ranks),
        (Some(slots), _) => Some(slots),
        (None, Some(ppn)) => of_ranks(ppn.max(entry.named)),
        (None, None) if entry.named > 1 => of_ranks(entry.named),
        (None, None) => None,
    }
}
