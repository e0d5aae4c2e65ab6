//! An agent's part of a namespace that lives elsewhere, or beside it: what its clients ask is answered here where that can be, and passed on
//! where it cannot, so that the owner sees hosts and not ranks.
//!
//! Values that were read are kept until the owner reports that they change. Several clients that ask for the same key, or wait for it, are
//! one asker to the owner. The owner is notified of a fence when all of this host's ranks have come, or after a moment. It can then name
//! missing ranks.

mod cache_fences;
mod cache_waits;

use super::owner::{LONGEST, ToCache};
use super::{Answer, Ask, Refusal, Seq, Table, Ticket};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use cache_fences::Fences;
use cache_waits::Waits;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::frozen::client::{Refused, Reply, Words, write_reply};
use rlaunch_protocol::wire::store::{Down, Up};

/// By whom a cache asks for itself: clients are numbered from 1.
pub const ITSELF: ClientId = ClientId::new(0);
/// How many bytes of values are kept.
const KEPT: usize = 64 << 20;

/// An action of a cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CacheAction {
    /// Ask the owner.
    Ask(Ticket, Vec<u8>),
    /// The owner need not answer any more.
    Cancel(Ticket),
    /// A client asks no more.
    Gone(ClientId),
    /// A key is not kept any more.
    Dropped(Bytes),
    /// Send a client the words of an answer.
    Answer(Ticket, Bytes),
}

impl CacheAction {
    /// The message for the owner; `None`: it is for a client.
    #[must_use]
    pub fn up(&self) -> Option<Up<'_>> {
        match self {
            Self::Ask(ticket, words) => Some(Up::Ask(*ticket, words)),
            Self::Cancel(ticket) => Some(Up::Cancel(*ticket)),
            Self::Gone(client) => Some(Up::Gone(*client)),
            Self::Dropped(key) => Some(Up::Dropped(key)),
            Self::Answer(..) => None,
        }
    }

    /// The answer for a client; `None`: it is for the owner.
    #[must_use]
    pub fn answer(self) -> Option<(Ticket, Bytes)> {
        match self {
            Self::Answer(ticket, words) => Some((ticket, words)),
            Self::Ask(..) | Self::Cancel(_) | Self::Gone(_) | Self::Dropped(_) => None,
        }
    }
}

/// A request of the cache itself to the owner.
#[derive(Debug)]
enum Flight {
    /// The value of a key.
    Get(Bytes),
    /// Values.
    GetAll(Vec<Bytes>, Ticket),
    /// That a key exists.
    Wait(Bytes),
    /// That a fence is complete.
    Fence(Bytes),
    /// The ranks that are missing at a fence, for a client whose wait has timed out.
    Missing(Bytes, Ticket, Span),
    /// Something that needs no answer.
    Quiet,
}

/// Clients that ask for the value of a key.
#[derive(Debug, Default)]
struct Getting {
    /// For whom the owner was asked.
    asked: Vec<Ticket>,
    /// Clients that came later: the answer on its way may be older than their requests. They are asked for together, next.
    later: Vec<Ticket>,
}

/// The place where a client's request waits.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// For the owner, of which it was asked as it is; or for what the cache has asked for it alone.
    Home,
    /// With those who ask for the value of a key.
    Get(Bytes),
    /// With those who wait for a key.
    Wait(Bytes),
    /// With those who have come to a fence.
    Fence(Bytes),
}

/// A check that is due at its time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// A client that waits for a key.
    Wait(Bytes, Ticket),
    /// A client that waits at a fence.
    Fence(Bytes, Ticket),
    /// Arrivals at a fence that the owner does not know of.
    Notify(Bytes),
}

/// A namespace, as seen from one host.
#[derive(Debug)]
pub struct Cache {
    /// The ranks of this host.
    ranks: RankSet,
    kept: BTreeMap<Bytes, Bytes>,
    kept_bytes: usize,
    gets: BTreeMap<Bytes, Getting>,
    waits: Waits,
    fences: Fences,
    flying: BTreeMap<Seq, Flight>,
    last: Seq,
    due: BTreeSet<(Mono, Due)>,
    /// Requests of clients without an answer: most clients have one at a time.
    clients: Table<Vec<(Seq, Place)>>,
    is_closed: bool,
    out: VecDeque<CacheAction>,
}

impl Cache {
    /// For a host with these ranks.
    #[must_use]
    pub fn new(ranks: RankSet) -> Self {
        Self {
            ranks,
            kept: BTreeMap::new(),
            kept_bytes: 0,
            gets: BTreeMap::new(),
            waits: Waits::default(),
            fences: Fences::default(),
            flying: BTreeMap::new(),
            last: Seq(0),
            due: BTreeSet::new(),
            clients: Table::default(),
            is_closed: false,
            out: VecDeque::new(),
        }
    }

    /// Adds one of this host's ranks.
    pub fn add_rank(&mut self, rank: Rank) {
        self.ranks.insert(rank);
    }

    /// A client asks: `words` are what was read as `parsed`. Returns whether the caller is to send the owner exactly this request, now. A
    /// request that has to wait for its turn, or has to be rewritten, comes from [`Self::poll_action`].
    #[must_use]
    pub fn ask(&mut self, now: Mono, ticket: Ticket, words: &[u8], parsed: &Words<'_>) -> bool {
        self.opened(ticket, Place::Home);
        if self.is_closed {
            self.refuse(ticket, Refusal::Gone);
            return false;
        }
        let pass_on = match parsed.ask() {
            Ask::Get(key) => {
                self.get(ticket, key);
                false
            }
            Ask::GetAll(keys) => {
                self.get_all(ticket, keys);
                false
            }
            Ask::Check(keys) if keys.iter().all(|key| self.kept.contains_key(*key)) => {
                self.answer(ticket, &Answer::Done);
                false
            }
            Ask::Wait { keys, within } => !self.wait(now, ticket, keys, within),
            Ask::Fence { name, all, who, within } => !self.fence(now, ticket, name, (all, who), within),
            Ask::Check(_) | Ask::Set(..) | Ask::SetAll(_) | Ask::Add(..) | Ask::Append(..) => true,
            Ask::CompareSet { .. } | Ask::Delete(_) | Ask::Count | Ask::List { .. } | Ask::Push(..) => true,
            Ask::Pop(_) | Ask::Take { .. } | Ask::Len(_) | Ask::Watch { .. } | Ask::Gather { .. } => true,
            Ask::Arrive { .. } => true,
        };
        if pass_on && !self.out.is_empty() {
            self.out.push_back(CacheAction::Ask(ticket, words.to_vec()));
            return false;
        }
        pass_on
    }

    /// Whether a client's ask is one that an owner beside us may be given at once: there is nothing here that could answer it, or that it
    /// has to wait for. Where the owner does not answer it at once either, [`Self::waits_at_home`] follows.
    pub fn is_for_home(&mut self, client: ClientId, parsed: &Words<'_>) -> bool {
        let is_direct = match parsed.ask() {
            Ask::Set(..) | Ask::SetAll(_) | Ask::Add(..) | Ask::Append(..) | Ask::CompareSet { .. } => true,
            Ask::Delete(_) | Ask::Count | Ask::List { .. } | Ask::Push(..) | Ask::Pop(_) | Ask::Len(_) => true,
            Ask::Get(_) | Ask::GetAll(_) | Ask::Check(_) | Ask::Wait { .. } | Ask::Fence { .. } => false,
            Ask::Take { .. } | Ask::Watch { .. } | Ask::Gather { .. } | Ask::Arrive { .. } => false,
        };
        // The owner has to be notified when its client is gone.
        is_direct && !self.is_closed && self.out.is_empty() && self.clients.get_or(client, Vec::new).is_some()
    }

    /// The owner will answer that later.
    pub fn waits_at_home(&mut self, ticket: Ticket) {
        self.opened(ticket, Place::Home);
    }

    /// A client asks something, which waits there.
    fn opened(&mut self, ticket: Ticket, place: Place) {
        let Some(asks) = self.clients.get_or(ticket.client, Vec::new) else { return };
        match asks.iter_mut().find(|(seq, _)| *seq == ticket.seq) {
            Some((_, at)) => *at = place,
            None => asks.push((ticket.seq, place)),
        }
    }

    /// Whether the request still waits for an answer.
    fn is_open(&self, ticket: Ticket) -> bool {
        self.clients.get(ticket.client).is_some_and(|asks| asks.iter().any(|(seq, _)| *seq == ticket.seq))
    }

    /// A client asks no more.
    pub fn gone(&mut self, client: ClientId) {
        let Some(asks) = self.clients.remove(client) else { return };
        for (ticket, place) in asks.into_iter().map(|(seq, place)| (Ticket { client, seq }, place)) {
            match place {
                Place::Home => {}
                Place::Get(key) => {
                    if let Some(getting) = self.gets.get_mut(&key) {
                        getting.later.retain(|other| *other != ticket);
                    }
                }
                Place::Wait(key) => {
                    self.leave_wait(&key, ticket);
                }
                Place::Fence(name) => self.leave_fence(&name, ticket),
            }
        }
        if !self.is_closed {
            self.out.push_back(CacheAction::Gone(client));
        }
    }

    /// The owner has said something.
    pub fn receive(&mut self, down: Down<'_>) {
        match down {
            Down::Answer(ticket, keep, words) if ticket.client == ITSELF => self.landed(ticket.seq, keep, words),
            Down::Answer(ticket, _, words) => self.pass(ticket, Bytes::copy_from_slice(words)),
            Down::Drop(key) => {
                self.forget(key);
                self.out.push_back(CacheAction::Dropped(Bytes::copy_from_slice(key)));
            }
            Down::Closed => self.close(),
        }
    }

    /// The owner is beside us, and says it without a copy.
    pub fn take(&mut self, message: ToCache) {
        match message {
            ToCache::Answer(ticket, _, words) if ticket.client != ITSELF => self.pass(ticket, words.into()),
            ToCache::Answer(..) | ToCache::Drop(_) => self.receive(message.down()),
        }
    }

    /// Handles the loss of the owner: all waiting requests and all later ones get that as their answer.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.kept.clear();
        self.kept_bytes = 0;
        self.gets.clear();
        self.flying.clear();
        self.waits = Waits::default();
        self.fences = Fences::default();
        self.due.clear();
        let of = |(client, asks): (ClientId, &Vec<(Seq, Place)>)| {
            asks.iter().map(move |(seq, _)| Ticket { client, seq: *seq }).collect::<Vec<_>>()
        };
        let open: Vec<Ticket> = self.clients.iter().flat_map(of).collect();
        open.into_iter().for_each(|ticket| self.refuse(ticket, Refusal::Gone));
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            match self.due.pop_first() {
                Some((_, Due::Wait(key, ticket))) => self.waited_enough(&key, ticket),
                Some((_, Due::Fence(name, ticket))) => self.fence_late(&name, ticket),
                Some((_, Due::Notify(name))) => self.notify_owner(&name),
                None => {}
            }
        }
    }

    /// When `handle_timeout` wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next thing to do.
    #[must_use]
    pub fn poll_action(&mut self) -> Option<CacheAction> {
        self.out.pop_front()
    }

    fn get(&mut self, ticket: Ticket, key: &[u8]) {
        if let Some(value) = self.kept.get(key) {
            let answer = Answer::Value(Some(value.clone()));
            return self.answer(ticket, &answer);
        }
        self.opened(ticket, Place::Get(Bytes::copy_from_slice(key)));
        match self.gets.get_mut(key) {
            Some(getting) => getting.later.push(ticket),
            None => self.get_for(Bytes::copy_from_slice(key), alloc::vec![ticket]),
        }
    }

    fn get_for(&mut self, key: Bytes, asked: Vec<Ticket>) {
        self.fly(&Ask::Get(&key), Flight::Get(key.clone()));
        self.gets.insert(key, Getting { asked, later: Vec::new() });
    }

    /// Handles the owner's answer to a read.
    fn got(&mut self, key: &Bytes, reply: &Bytes) {
        let Some(Getting { asked, later }) = self.gets.remove(key) else { return };
        asked.into_iter().for_each(|ticket| self.pass(ticket, reply.clone()));
        match self.kept.get(key).cloned() {
            Some(value) => {
                later.into_iter().for_each(|ticket| self.answer(ticket, &Answer::Value(Some(value.clone()))))
            }
            None if later.is_empty() => {}
            None => self.get_for(key.clone(), later),
        }
    }

    fn get_all(&mut self, ticket: Ticket, keys: &[&[u8]]) {
        let kept: Option<Vec<Option<Bytes>>> = keys.iter().map(|key| self.kept.get(*key).cloned().map(Some)).collect();
        let fits = |values: &Vec<Option<Bytes>>| {
            values.iter().flatten().map(|value| value.len() + 8).sum::<usize>() <= LONGEST
        };
        // A request that does not fit is refused by the owner.
        if let Some(values) = kept.filter(fits) {
            return self.answer(ticket, &Answer::Values(values));
        }
        let flight = Flight::GetAll(keys.iter().map(|key| Bytes::copy_from_slice(key)).collect(), ticket);
        self.fly(&Ask::GetAll(keys), flight);
    }

    /// Asks the owner, for ourselves.
    fn fly(&mut self, ask: &Ask<'_>, flight: Flight) -> Seq {
        self.last.0 += 1;
        self.flying.insert(self.last, flight);
        let ticket = Ticket { client: ITSELF, seq: self.last };
        self.out.push_back(CacheAction::Ask(ticket, Words::write(*ask)));
        self.last
    }

    fn cancel(&mut self, seq: Seq) {
        if self.flying.remove(&seq).is_some() {
            self.out.push_back(CacheAction::Cancel(Ticket { client: ITSELF, seq }));
        }
    }

    /// The owner has answered us.
    fn landed(&mut self, seq: Seq, keep: bool, words: &[u8]) {
        let reply = Reply::parse(words);
        let reply_bytes = Bytes::copy_from_slice(words);
        match self.flying.remove(&seq) {
            Some(Flight::Get(key)) => {
                if let (true, Ok(Reply::Value(Some(value)))) = (keep, &reply) {
                    self.keep(&key, value);
                }
                self.got(&key, &reply_bytes);
            }
            Some(Flight::GetAll(keys, ticket)) => {
                if let (true, Ok(Reply::Values(values))) = (keep, &reply) {
                    for (key, value) in keys.iter().zip(values) {
                        value.iter().for_each(|value| self.keep(key, value));
                    }
                }
                self.pass(ticket, reply_bytes);
            }
            Some(Flight::Wait(key)) => self.wait_over(&key, &reply_bytes),
            Some(Flight::Fence(name)) => self.fence_over(&name, &reply_bytes),
            Some(Flight::Missing(name, ticket, within)) => {
                let words = rewritten(&reply, within).unwrap_or(reply_bytes);
                self.fence_missed(&name, ticket, words);
            }
            Some(Flight::Quiet) | None => {}
        }
    }

    fn keep(&mut self, key: &Bytes, value: &[u8]) {
        if self.kept_bytes.saturating_add(value.len()) > KEPT {
            // A key that is read again comes back.
            self.kept.clear();
            self.kept_bytes = 0;
        }
        let old = self.kept.insert(key.clone(), Bytes::copy_from_slice(value));
        self.kept_bytes += key.len() + value.len();
        self.kept_bytes -= old.map_or(0, |old| key.len() + old.len());
    }

    fn forget(&mut self, key: &[u8]) {
        if let Some(old) = self.kept.remove(key) {
            self.kept_bytes -= key.len() + old.len();
        }
    }

    fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.answer(ticket, &Answer::Refused(refusal));
    }

    fn answer(&mut self, ticket: Ticket, answer: &Answer) {
        self.pass(ticket, write_reply(answer).into());
    }

    fn pass(&mut self, ticket: Ticket, words: Bytes) {
        // An answer may come late, after its client has gone, or was notified of the end of the namespace.
        let asks = self.clients.get_mut(ticket.client);
        let open = asks.and_then(|asks| Some((asks.iter().position(|(seq, _)| *seq == ticket.seq)?, asks)));
        if let Some((at, asks)) = open {
            asks.swap_remove(at);
            self.out.push_back(CacheAction::Answer(ticket, words));
        }
    }
}

/// A waiter on this host.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    ticket: Ticket,
    /// For how long, and until when.
    limit: Option<(Span, Mono)>,
}

impl Waiter {
    fn new(now: Mono, ticket: Ticket, within: Option<Span>) -> Self {
        Self { ticket, limit: within.map(|within| (within, now + within)) }
    }

    /// The entry of this waiter in the list of due checks.
    fn due(&self, due: fn(Bytes, Ticket) -> Due, name: &Bytes) -> Option<(Mono, Due)> {
        self.limit.map(|(_, until)| (until, due(name.clone(), self.ticket)))
    }
}

/// The request to the owner was for the missing ranks, without the time of the wait.
fn rewritten(reply: &Result<Reply<'_>, rlaunch_protocol::wire::frozen::Malformed>, within: Span) -> Option<Bytes> {
    let Ok(Reply::Refused(refused)) = reply else { return None };
    let within = refused.within.map(|_| within);
    Some(Refused { within, ..*refused }.write().into())
}
