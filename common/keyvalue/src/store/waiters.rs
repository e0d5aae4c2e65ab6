//! Requests that wait: for what, for how long, and who is next.
//!
//! Each awaited key is here once, with all of its waiters; they hold its number only. So a thousand ranks that wait for the same thousand
//! keys cost a thousand keys and a million numbers.

use super::quota::Quota;
use super::store_limits::Limits;
use super::{Seq, Ticket};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;
use rlaunch_base::id::ClientId;
use rlaunch_base::time::{Mono, Span};

/// An event of an awaited key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// The key is set, or an item is pushed.
    Set,
    /// The key changes.
    Change,
    /// Something is pushed.
    Item,
    /// The key's count has reached a number.
    Count,
    /// The fence of this name is complete.
    Fence,
}

/// The condition of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Awaited<'a> {
    pub kind: Kind,
    /// The keys, each once.
    pub keys: Vec<&'a [u8]>,
    /// For a count: the awaited number.
    pub until: i64,
}

impl<'a> Awaited<'a> {
    pub(super) fn one(kind: Kind, key: &'a [u8]) -> Self {
        Self { kind, keys: [key].into(), until: 0 }
    }
}

/// The number of something that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct TopicId(u64);

/// Something that is waited for, and by whom.
#[derive(Debug)]
struct Topic {
    kind: Kind,
    key: Bytes,
    places: BTreeSet<Place>,
}

impl Topic {
    const fn cost(key: &[u8]) -> usize {
        Limits::PER_REQUEST + key.len()
    }
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub ticket: Ticket,
    pub kind: Kind,
    pub until: i64,
    /// How long it was to wait, and until when.
    pub within: Option<(Span, Mono)>,
    /// The topics of the wait. Some of it may have come.
    topics: Box<[TopicId]>,
    /// How much of that has not.
    missing: usize,
}

impl Waiting {
    const fn cost(topics: usize) -> usize {
        Limits::PER_REQUEST + topics * Limits::PER_MISSING
    }
}

/// The place of a request among those that wait: who came first has the smaller one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place(u64);

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// The next place, and the next number of a topic.
    next: u64,
    all: BTreeMap<Place, Waiting>,
    places: BTreeMap<Ticket, Place>,
    topics: BTreeMap<TopicId, Topic>,
    ids: BTreeMap<Kind, BTreeMap<Bytes, TopicId>>,
    /// Waits for a count, by the count.
    counts: BTreeSet<(TopicId, i64, Place)>,
    due: BTreeSet<(Mono, Place)>,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn waits(&self, ticket: Ticket) -> bool {
        self.places.contains_key(&ticket)
    }

    /// The charge of one more wait.
    pub(super) fn cost(&self, awaited: &Awaited<'_>) -> usize {
        let new = awaited.keys.iter().filter(|key| self.id(awaited.kind, key).is_none());
        new.map(|key| Topic::cost(key)).fold(Waiting::cost(awaited.keys.len()), usize::saturating_add)
    }

    /// Adds a wait. Whether there is room was asked before.
    pub(super) fn add(
        &mut self,
        account: &mut Quota,
        ticket: Ticket,
        awaited: &Awaited<'_>,
        within: Option<(Span, Mono)>,
    ) {
        let place = Place(self.number());
        let Awaited { kind, until, .. } = *awaited;
        let topics: Box<[TopicId]> = awaited.keys.iter().map(|key| self.join(account, kind, key, place)).collect();
        if kind == Kind::Count {
            self.counts.extend(topics.iter().map(|id| (*id, until, place)));
        }
        if let Some((_, at)) = within {
            self.due.insert((at, place));
        }
        account.hold(Waiting::cost(topics.len()));
        self.places.insert(ticket, place);
        let missing = topics.len();
        self.all.insert(place, Waiting { ticket, kind, until, within, topics, missing });
    }

    pub(super) fn get(&self, place: Place) -> Option<&Waiting> {
        self.all.get(&place)
    }

    /// The missing part of a wait.
    pub(super) fn missing(&self, place: Place) -> impl Iterator<Item = &Bytes> {
        let all = self.all.get(&place).map(|waiting| &*waiting.topics).unwrap_or_default();
        let open = all.iter().filter_map(|id| self.topics.get(id));
        open.filter(move |topic| topic.places.contains(&place)).map(|topic| &topic.key)
    }

    /// How much that is.
    pub(super) fn missing_count(&self, place: Place) -> usize {
        self.all.get(&place).map_or(0, |waiting| waiting.missing)
    }

    /// The first who waits for it.
    pub(super) fn first(&self, kind: Kind, key: &[u8]) -> Option<Place> {
        self.topics.get(&self.id(kind, key)?)?.places.first().copied()
    }

    /// All who wait for it, in the order in which they came: it has happened, and they wait for it no more.
    pub(super) fn happened(&mut self, account: &mut Quota, kind: Kind, key: &[u8]) -> BTreeSet<Place> {
        self.id(kind, key).and_then(|id| self.close(account, id)).map(|topic| topic.places).unwrap_or_default()
    }

    /// The same, of one who waits for it.
    pub(super) fn happened_for(&mut self, account: &mut Quota, kind: Kind, key: &[u8], place: Place) {
        if let Some(id) = self.id(kind, key) {
            self.leave(account, id, place);
        }
    }

    /// All for whom a count is enough.
    pub(super) fn counted(&self, key: &[u8], count: i64) -> Vec<Place> {
        let Some(id) = self.id(Kind::Count, key) else { return Vec::new() };
        let enough = (id, i64::MIN, Place(0))..=(id, count, Place(u64::MAX));
        self.counts.range(enough).map(|(_, _, place)| *place).collect()
    }

    /// Whether no wait exists: most keys that are set are not awaited.
    pub(super) fn is_idle(&self) -> bool {
        self.all.is_empty()
    }

    /// Records that one of its keys is there. It waits no more if that was the last.
    pub(super) fn one_less(&mut self, account: &mut Quota, place: Place) -> Option<Waiting> {
        let waiting = self.all.get_mut(&place)?;
        waiting.missing -= 1;
        if waiting.missing == 0 { self.remove(account, place) } else { None }
    }

    /// Ends a wait.
    pub(super) fn remove(&mut self, account: &mut Quota, place: Place) -> Option<Waiting> {
        let waiting = self.all.remove(&place)?;
        account.release(Waiting::cost(waiting.topics.len()));
        self.places.remove(&waiting.ticket);
        if let Some((_, at)) = waiting.within {
            self.due.remove(&(at, place));
        }
        for id in &waiting.topics {
            if waiting.kind == Kind::Count {
                self.counts.remove(&(*id, waiting.until, place));
            }
            self.leave(account, *id, place);
        }
        Some(waiting)
    }

    pub(super) fn remove_ticket(&mut self, account: &mut Quota, ticket: Ticket) -> Option<Waiting> {
        let place = *self.places.get(&ticket)?;
        self.remove(account, place)
    }

    /// Ends the waits of a client.
    pub(super) fn remove_client(&mut self, account: &mut Quota, client: ClientId) {
        let [first, last] = [0, u64::MAX].map(|number| Ticket { client, seq: Seq(number) });
        let own = first..=last;
        let places: Vec<Place> = self.places.range(own).map(|(_, place)| *place).collect();
        places.into_iter().for_each(|place| drop(self.remove(account, place)));
    }

    /// Returns a wait whose time has expired, if there is one.
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

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn id(&self, kind: Kind, key: &[u8]) -> Option<TopicId> {
        self.ids.get(&kind)?.get(key).copied()
    }

    fn join(&mut self, account: &mut Quota, kind: Kind, key: &[u8], place: Place) -> TopicId {
        let id = self.id(kind, key).unwrap_or_else(|| {
            let (id, key) = (TopicId(self.number()), Bytes::copy_from_slice(key));
            account.hold(Topic::cost(&key));
            self.ids.entry(kind).or_default().insert(key.clone(), id);
            self.topics.insert(id, Topic { kind, key, places: BTreeSet::new() });
            id
        });
        if let Some(topic) = self.topics.get_mut(&id) {
            topic.places.insert(place);
        }
        id
    }

    fn leave(&mut self, account: &mut Quota, id: TopicId, place: Place) {
        let Some(topic) = self.topics.get_mut(&id) else { return };
        topic.places.remove(&place);
        if topic.places.is_empty() {
            self.close(account, id);
        }
    }

    /// Removes a topic without waiters.
    fn close(&mut self, account: &mut Quota, id: TopicId) -> Option<Topic> {
        let topic = self.topics.remove(&id)?;
        if let Some(ids) = self.ids.get_mut(&topic.kind) {
            ids.remove(&topic.key);
        }
        account.release(Topic::cost(&topic.key));
        Some(topic)
    }
}
