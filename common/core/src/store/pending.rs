//! Requests that wait: for what, for how long, and who is next.

use super::Ticket;
use crate::id::ClientId;
use crate::time::{Mono, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;

/// What a request waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    /// Keys that nobody has set yet.
    Keys(BTreeSet<Bytes>),
    /// A change of a key.
    Change(Bytes),
    /// Something in a queue.
    Item(Bytes),
    /// A count at a key.
    Count(Bytes, i64),
    /// A fence to be complete.
    Fence(Bytes),
}

/// What can happen that requests wait for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Topic {
    /// A key is set, or something is pushed.
    Set(Bytes),
    /// A key changes.
    Change(Bytes),
    /// Something is pushed.
    Item(Bytes),
    /// So many are counted at a key.
    Count(Bytes, i64),
    /// A fence is complete.
    Fence(Bytes),
}

impl Awaited {
    fn topics(&self) -> Vec<Topic> {
        match self {
            Self::Keys(keys) => keys.iter().cloned().map(Topic::Set).collect(),
            Self::Change(key) => [Topic::Change(key.clone())].into(),
            Self::Item(key) => [Topic::Item(key.clone())].into(),
            Self::Count(key, until) => [Topic::Count(key.clone(), *until)].into(),
            Self::Fence(name) => [Topic::Fence(name.clone())].into(),
        }
    }
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub ticket: Ticket,
    pub awaited: Awaited,
    /// How long it was to wait, and until when.
    pub within: Option<(Span, Mono)>,
}

/// The place of a request among those that wait: who came first has the smaller one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place(u64);

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Pending {
    next: u64,
    all: BTreeMap<Place, Waiting>,
    places: BTreeMap<Ticket, Place>,
    on: BTreeMap<Topic, BTreeSet<Place>>,
    due: BTreeSet<(Mono, Place)>,
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn waits(&self, ticket: Ticket) -> bool {
        self.places.contains_key(&ticket)
    }

    pub(super) fn add(&mut self, waiting: Waiting) {
        let place = Place(self.next);
        self.next += 1;
        for topic in waiting.awaited.topics() {
            self.on.entry(topic).or_default().insert(place);
        }
        if let Some((_, at)) = waiting.within {
            self.due.insert((at, place));
        }
        self.places.insert(waiting.ticket, place);
        self.all.insert(place, waiting);
    }

    /// The first who waits for it.
    pub(super) fn first(&self, topic: &Topic) -> Option<Place> {
        self.on.get(topic)?.first().copied()
    }

    /// All who wait for it, in the order in which they came.
    pub(super) fn on(&self, topic: &Topic) -> Vec<Place> {
        self.on.get(topic).map(|places| places.iter().copied().collect()).unwrap_or_default()
    }

    /// All for whom a count is enough.
    pub(super) fn counted(&self, key: &Bytes, count: i64) -> Vec<Place> {
        let enough = Topic::Count(key.clone(), i64::MIN)..=Topic::Count(key.clone(), count);
        self.on.range(enough).flat_map(|(_, places)| places.iter().copied()).collect()
    }

    /// Whether anybody waits at all: most of what is set is waited for by nobody.
    pub(super) fn is_idle(&self) -> bool {
        self.all.is_empty()
    }

    /// One of the keys it waits for is there; whether that was the last.
    pub(super) fn key_is_set(&mut self, place: Place, key: &Bytes) -> bool {
        self.forget_topic(&Topic::Set(key.clone()), place);
        let Some(waiting) = self.all.get_mut(&place) else { return false };
        match &mut waiting.awaited {
            Awaited::Keys(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
            Awaited::Change(_) | Awaited::Item(_) | Awaited::Count(..) | Awaited::Fence(_) => false,
        }
    }

    /// It waits no more.
    pub(super) fn remove(&mut self, place: Place) -> Option<Waiting> {
        let waiting = self.all.remove(&place)?;
        self.places.remove(&waiting.ticket);
        if let Some((_, at)) = waiting.within {
            self.due.remove(&(at, place));
        }
        for topic in waiting.awaited.topics() {
            self.forget_topic(&topic, place);
        }
        Some(waiting)
    }

    pub(super) fn remove_ticket(&mut self, ticket: Ticket) -> Option<Waiting> {
        let place = *self.places.get(&ticket)?;
        self.remove(place)
    }

    /// Those of a client wait no more.
    pub(super) fn remove_client(&mut self, client: ClientId) {
        let own = Ticket::first_of(client)..=Ticket::last_of(client);
        let places: Vec<Place> = self.places.range(own).map(|(_, place)| *place).collect();
        places.into_iter().for_each(|place| drop(self.remove(place)));
    }

    /// One whose time is over, if there is one.
    pub(super) fn overdue(&self, now: Mono) -> Option<Place> {
        self.due.first().filter(|(at, _)| *at <= now).map(|(_, place)| *place)
    }

    pub(super) fn next_due(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The first of all that wait.
    pub(super) fn any(&self) -> Option<Place> {
        self.all.first_key_value().map(|(place, _)| *place)
    }

    fn forget_topic(&mut self, topic: &Topic, place: Place) {
        if let Some(places) = self.on.get_mut(topic) {
            places.remove(&place);
            if places.is_empty() {
                self.on.remove(topic);
            }
        }
    }
}
