//! The one place where a namespace lives, as agents see it: their clients' asks, and which of them keep copies of values.
//!
//! A value that was read is given to that agent's other clients without asking here. No client may get a value that is out of date. So a
//! change of a key waits until all agents that keep its value have confirmed that they dropped it. A suspended agent delays changes of
//! keys that it has read, until it is lost or continues. A value that is written once and then read by all, as addresses are, costs one
//! request of each agent.
//!
//! MPI's machine sends a change and further requests without waiting for the answer. So two kinds of requests wait for earlier changes:
//! changes of the same keys, and arrivals of the same host at fences.

use super::cache::ITSELF;
use super::{Absent, Action, Answer, Ask, Limits, Namespace, Refusal, Seq, Table, Ticket};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use rlaunch_base::id::{ClientId, NodeId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Mono;
use rlaunch_protocol::wire::frozen::client::{MAX_FRAME, Words, write_reply};
use rlaunch_protocol::wire::store::{Down, Up};

/// The limits of a namespace of ours: a request, or an answer, with the longest value is one message.
pub const LIMITS: Limits = Limits { key: 8 << 10, value: 512 << 10, keys: 1 << 20, bytes: 1 << 30, waiting: 1 << 17 };
/// Longest answer: with what stands around it, it is a frame.
pub(super) const LONGEST: usize = MAX_FRAME - 64;

/// A message for an agent; its content is as in [`Down`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToCache {
    /// The answer to one of its clients, and whether it may keep the value.
    Answer(Ticket, bool, Vec<u8>),
    /// The agent must not answer this key from its cache any more.
    Drop(Bytes),
}

impl ToCache {
    /// As it travels.
    #[must_use]
    pub fn down(&self) -> Down<'_> {
        match self {
            Self::Answer(ticket, keep, words) => Down::Answer(*ticket, *keep, words),
            Self::Drop(key) => Down::Drop(key),
        }
    }
}

/// An ask that changes keys of which others keep values, or that follows such an ask.
#[derive(Debug)]
struct Deferred {
    from: (NodeId, Ticket),
    words: Bytes,
    /// Keys that any agent still keeps.
    left: BTreeSet<Bytes>,
    /// All keys that it changes. None: it is an arrival at a fence.
    keys: BTreeSet<Bytes>,
}

impl Deferred {
    fn is_arrival(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether it must not be done before an earlier ask.
    fn follows(&self, earlier: &Self) -> bool {
        match self.is_arrival() {
            true => self.from.0 == earlier.from.0,
            false => !self.keys.is_disjoint(&earlier.keys),
        }
    }
}

/// A namespace, and who asks there.
#[derive(Debug)]
pub struct Owner {
    space: Namespace,
    /// Each client's number here, by its agent's.
    by_node: BTreeMap<NodeId, NodeClients>,
    names: Table<(NodeId, ClientId)>,
    next: u32,
    /// The agents that keep the value of a key. Nodes are kept as ranges, as ranks are: in most cases it is all of them.
    readers: BTreeMap<Bytes, RankSet>,
    /// The agents that have not yet confirmed that they dropped keys which are to change.
    closing: BTreeMap<Bytes, RankSet>,
    /// In the order in which they came.
    deferred: VecDeque<Deferred>,
    /// The number of these that change a key: no agent may keep its value meanwhile, or each of them would wait for ever new readers.
    changing: BTreeMap<Bytes, usize>,
    out: VecDeque<(NodeId, ToCache)>,
    /// Keys that begin like this belong to the owner itself.
    reserved: Option<&'static [u8]>,
    /// Changes of these keys.
    puts: u64,
}

impl Default for Owner {
    fn default() -> Self {
        Self {
            space: Namespace::new(LIMITS),
            by_node: BTreeMap::new(),
            names: Table::default(),
            next: 0,
            readers: BTreeMap::new(),
            closing: BTreeMap::new(),
            deferred: VecDeque::new(),
            changing: BTreeMap::new(),
            out: VecDeque::new(),
            reserved: None,
            puts: 0,
        }
    }
}

/// The clients of one agent.
#[derive(Debug, Default)]
struct NodeClients {
    /// The cache asks for itself, under a number that is no client's.
    itself: Option<ClientId>,
    clients: Table<ClientId>,
}

impl NodeClients {
    fn get(&self, client: ClientId) -> Option<ClientId> {
        if client == ITSELF { self.itself } else { self.clients.get(client).copied() }
    }

    fn insert(&mut self, client: ClientId, own: ClientId) {
        if client == ITSELF {
            self.itself = Some(own);
        } else {
            self.clients.insert(client, own);
        }
    }

    fn remove(&mut self, client: ClientId) -> Option<ClientId> {
        if client == ITSELF { self.itself.take() } else { self.clients.remove(client) }
    }

    /// The numbers that the agent has given.
    fn all(&self) -> Vec<ClientId> {
        self.itself.map(|_| ITSELF).into_iter().chain(self.clients.iter().map(|(client, _)| client)).collect()
    }
}

const fn as_rank(node: NodeId) -> Rank {
    Rank::new(node.get())
}

impl Owner {
    /// The owner of a namespace in which keys that begin like this are its own.
    #[must_use]
    pub fn with_reserved(prefix: &'static [u8]) -> Self {
        Self { reserved: Some(prefix), ..Self::default() }
    }

    /// Changes a key of its own; `None`: it is deleted.
    pub fn put(&mut self, now: Mono, key: &[u8], value: Option<&[u8]>) {
        let ask = value.map_or(Ask::Delete(key), |value| Ask::Set(key, value));
        self.puts = self.puts.wrapping_add(1);
        let from = (NodeId::ROOT, Ticket { client: ITSELF, seq: Seq(self.puts) });
        match self.find_obstacles(from, &ask) {
            None => self.perform(now, from, &ask),
            Some(kept) => self.defer(from, &Words::write(ask), &ask, kept),
        }
        self.send_answers();
    }

    /// Deletes all keys that begin like this.
    pub fn delete_all(&mut self, now: Mono, prefix: &[u8]) {
        for key in self.space.keys(prefix) {
            self.put(now, &key, None);
        }
    }

    /// The first key of the owner's own that a request would change.
    fn reserved_key(&self, ask: &Ask<'_>) -> Option<OsBytes> {
        let prefix = self.reserved?;
        let mut found = None;
        let mut look = |key: &[u8]| {
            if key.starts_with(prefix) {
                found.get_or_insert_with(|| OsBytes::from(key));
            }
        };
        changed(ask, &mut look);
        if let Ask::Push(key, _) | Ask::Pop(key) | Ask::Take { key, .. } = ask {
            look(key);
        }
        found
    }

    /// An agent has said something. Words that are no operation are none of an agent's: nothing is answered.
    pub fn receive(&mut self, now: Mono, node: NodeId, up: Up<'_>) {
        match up {
            Up::Ask(ticket, words) => {
                if let Ok(parsed) = Words::parse(words) {
                    self.ask(now, node, ticket, words, &parsed);
                }
                return;
            }
            Up::Cancel(ticket) => self.cancel(node, ticket),
            Up::Gone(client) => self.gone(node, client),
            Up::Dropped(key) => self.dropped(node, key),
            Up::Lost => self.lost(node),
        }
        self.perform_ready(now);
        self.send_answers();
    }

    /// The same of an ask that was read already.
    pub fn ask(&mut self, now: Mono, node: NodeId, ticket: Ticket, words: &[u8], parsed: &Words<'_>) {
        self.asked(now, (node, ticket), words, &parsed.ask());
        self.send_answers();
    }

    /// The same of an ask of a client on this host, whose answer is given where there is one at once: it need not be written, and read
    /// again. Answers for others come from [`Self::poll_action`].
    #[must_use]
    pub fn ask_here(
        &mut self,
        now: Mono,
        node: NodeId,
        ticket: Ticket,
        words: &[u8],
        parsed: &Words<'_>,
    ) -> Option<Answer> {
        let ask = parsed.ask();
        if let Some(kept) = self.find_obstacles((node, ticket), &ask) {
            self.defer((node, ticket), words, &ask, kept);
            return None;
        }
        let own = Ticket { client: self.client_of(node, ticket.client), ..ticket };
        self.space.ask(now, own, ask);
        let mut said = None;
        while let Some(Action::Answer { ticket: of, answer }) = self.space.poll_action() {
            if of == own { said = Some(fitted(answer)) } else { self.send(of, false, answer) }
        }
        said
    }

    /// Handles the loss of an agent: none of its clients waits, and it keeps no value.
    fn lost(&mut self, node: NodeId) {
        // A client whose first request is deferred has no number here.
        self.withdraw(|ask| ask.from.0 == node);
        let all = self.by_node.get(&node).map(NodeClients::all).unwrap_or_default();
        all.into_iter().for_each(|client| self.gone(node, client));
        self.by_node.remove(&node);
        let keeps = |nodes: &RankSet| nodes.contains(as_rank(node));
        self.readers.retain(|_, nodes| {
            if keeps(nodes) {
                *nodes = without(nodes, node);
            }
            !nodes.is_empty()
        });
        let closing: Vec<Bytes> =
            self.closing.iter().filter(|(_, nodes)| keeps(nodes)).map(|(key, _)| key.clone()).collect();
        closing.iter().for_each(|key| self.dropped(node, key));
    }

    /// A client wants no answer any more. A change that was not done is withdrawn. An arrival at a fence counts, as one that was done does.
    fn cancel(&mut self, node: NodeId, ticket: Ticket) {
        let from = (node, ticket);
        self.withdraw(|ask| ask.from == from && !ask.is_arrival());
        for ask in self.deferred.iter_mut().filter(|ask| ask.from == from) {
            if let Some(words) = without_wait(&ask.words) {
                ask.words = words;
            }
        }
        if let Some(client) = self.known(node, ticket.client) {
            self.space.cancel(Ticket { client, ..ticket });
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        self.space.handle_timeout(now);
        self.send_answers();
    }

    /// When `handle_timeout` wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.space.poll_timeout()
    }

    /// The next message, and the node that it is for.
    #[must_use]
    pub fn poll_action(&mut self) -> Option<(NodeId, ToCache)> {
        self.out.pop_front()
    }

    fn asked(&mut self, now: Mono, from: (NodeId, Ticket), words: &[u8], ask: &Ask<'_>) {
        if let Some(key) = self.reserved_key(ask) {
            let client = self.client_of(from.0, from.1.client);
            return self.send(Ticket { client, ..from.1 }, false, Answer::Refused(Refusal::Reserved { key }));
        }
        match self.find_obstacles(from, ask) {
            None => self.perform(now, from, ask),
            Some(kept) => self.defer(from, words, ask, kept),
        }
    }

    /// Defers a request until no agent keeps these keys any more, and the requests that it follows are done.
    fn defer(&mut self, from: (NodeId, Ticket), words: &[u8], ask: &Ask<'_>, kept: BTreeSet<Bytes>) {
        for key in &kept {
            if let Some(nodes) = self.readers.remove(key) {
                for node in nodes.ranges().flat_map(|(first, last)| first..=last).map(NodeId::new) {
                    self.out.push_back((node, ToCache::Drop(key.clone())));
                }
                self.closing.insert(key.clone(), nodes);
            }
        }
        let mut keys = BTreeSet::new();
        changed(ask, |key| {
            keys.insert(Bytes::copy_from_slice(key));
        });
        for key in &keys {
            *self.changing.entry(key.clone()).or_default() += 1;
        }
        self.deferred.push_back(Deferred { from, words: Bytes::copy_from_slice(words), left: kept, keys });
    }

    /// The keys that a request changes and an agent keeps, or is about to drop. `None`: the request is done at once.
    fn find_obstacles(&self, (node, ticket): (NodeId, Ticket), ask: &Ask<'_>) -> Option<BTreeSet<Bytes>> {
        let mut follows = arrives_for_host(ticket, ask) && self.deferred.iter().any(|earlier| earlier.from.0 == node);
        let mut kept = BTreeSet::new();
        changed(ask, |key| {
            follows |= self.changing.contains_key(key);
            let is_kept = self.readers.get_key_value(key).or_else(|| self.closing.get_key_value(key));
            kept.extend(is_kept.map(|(key, _)| key.clone()));
        });
        (follows || !kept.is_empty()).then_some(kept)
    }

    /// Withdraws deferred requests that are not wanted any more.
    fn withdraw(&mut self, is_it: impl Fn(&Deferred) -> bool) {
        while let Some(ask) = self.deferred.iter().position(&is_it).and_then(|at| self.deferred.remove(at)) {
            self.is_over(&ask);
        }
    }

    /// A deferred ask does not stand between a key and its readers any more.
    fn is_over(&mut self, ask: &Deferred) {
        for key in &ask.keys {
            if let Some(count) = self.changing.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.changing.remove(key);
                }
            }
        }
    }

    fn perform(&mut self, now: Mono, (node, ticket): (NodeId, Ticket), ask: &Ask<'_>) {
        let client = self.client_of(node, ticket.client);
        if let Some(missing) = self.question(ticket, ask) {
            return self.send(Ticket { client, ..ticket }, false, missing);
        }
        self.space.ask(now, Ticket { client, ..ticket }, *ask);
        let keep = match ask {
            Ask::Get(key) => self.keeps(node, &[key]),
            Ask::GetAll(keys) => self.keeps(node, keys),
            Ask::Set(..) | Ask::Add(..) | Ask::Append(..) | Ask::Delete(_) | Ask::CompareSet { .. } => false,
            Ask::Gather { .. } | Ask::SetAll(_) | Ask::Check(_) | Ask::Wait { .. } | Ask::Count => false,
            Ask::List { .. } | Ask::Push(..) | Ask::Pop(_) | Ask::Take { .. } | Ask::Len(_) => false,
            Ask::Watch { .. } | Ask::Fence { .. } | Ask::Arrive { .. } => false,
        };
        while let Some(Action::Answer { ticket: of, answer }) = self.space.poll_action() {
            let keep = keep && of == Ticket { client, ..ticket };
            self.send(of, keep, answer);
        }
    }

    /// A cache asks who is missing at a fence that is not open: the question does not open it.
    fn question(&self, ticket: Ticket, ask: &Ask<'_>) -> Option<Answer> {
        let Ask::Fence { name, all, who, within: Some(within) } = ask else { return None };
        if ticket.client != ITSELF || !who.is_empty() || self.space.is_fence_open(name) {
            return None;
        }
        let missing = Absent::Ranks { name: OsBytes::new(name.to_vec()), missing: (*all).clone() };
        Some(Answer::Refused(Refusal::TimedOut { within: *within, missing }))
    }

    /// An agent may keep values that are there, unless one is about to change.
    fn keeps(&mut self, node: NodeId, keys: &[&[u8]]) -> bool {
        let is_still = |key: &[u8]| !self.closing.contains_key(key) && !self.changing.contains_key(key);
        let is_kept = keys.iter().all(|key| is_still(key) && self.space.get(key).is_some());
        if is_kept {
            for key in keys {
                match self.readers.get_mut(*key) {
                    Some(nodes) => nodes.insert(as_rank(node)),
                    None => {
                        self.readers.insert(Bytes::copy_from_slice(key), [as_rank(node)].into_iter().collect());
                    }
                }
            }
        }
        is_kept
    }

    fn dropped(&mut self, node: NodeId, key: &[u8]) {
        let Some(nodes) = self.closing.get_mut(key) else { return };
        *nodes = without(nodes, node);
        if !nodes.is_empty() {
            return;
        }
        self.closing.remove(key);
        self.deferred.iter_mut().for_each(|ask| {
            ask.left.remove(key);
        });
    }

    /// Does the deferred requests that wait for nothing any more.
    fn perform_ready(&mut self, now: Mono) {
        while let Some(ask) = self.take_ready() {
            self.is_over(&ask);
            if let Ok(parsed) = Words::parse(&ask.words) {
                self.perform(now, ask.from, &parsed.ask());
            }
        }
    }

    fn take_ready(&mut self) -> Option<Deferred> {
        let follows = |at: usize, ask: &Deferred| self.deferred.iter().take(at).any(|earlier| ask.follows(earlier));
        let mut all = self.deferred.iter().enumerate();
        let (at, _) = all.find(|(at, ask)| ask.left.is_empty() && !follows(*at, ask))?;
        self.deferred.remove(at)
    }

    fn client_of(&mut self, node: NodeId, client: ClientId) -> ClientId {
        if let Some(known) = self.known(node, client) {
            return known;
        }
        let own = self.names.free_from(self.next);
        self.next = own.get().wrapping_add(1);
        self.by_node.entry(node).or_default().insert(client, own);
        self.names.insert(own, (node, client));
        own
    }

    fn known(&self, node: NodeId, client: ClientId) -> Option<ClientId> {
        self.by_node.get(&node)?.get(client)
    }

    fn gone(&mut self, node: NodeId, client: ClientId) {
        self.withdraw(|ask| (ask.from.0, ask.from.1.client) == (node, client));
        if let Some(own) = self.by_node.get_mut(&node).and_then(|clients| clients.remove(client)) {
            self.space.gone(own);
            self.send_answers();
            self.names.remove(own);
        }
    }

    fn send_answers(&mut self) {
        while let Some(Action::Answer { ticket, answer }) = self.space.poll_action() {
            self.send(ticket, false, answer);
        }
    }

    fn send(&mut self, ticket: Ticket, keep: bool, answer: Answer) {
        let Some((node, client)) = self.names.get(ticket.client).filter(|(node, _)| *node != NodeId::ROOT) else {
            return;
        };
        let answer = fitted(answer);
        let keep = keep && !matches!(answer, Answer::Refused(_));
        self.out.push_back((*node, ToCache::Answer(Ticket { client: *client, ..ticket }, keep, write_reply(&answer))));
    }
}

/// These nodes, except one.
fn without(nodes: &RankSet, node: NodeId) -> RankSet {
    let only: RankSet = [as_rank(node)].into_iter().collect();
    nodes.without(&only)
}

/// Whether a cache arrives at a fence, for ranks of its host.
fn arrives_for_host(ticket: Ticket, ask: &Ask<'_>) -> bool {
    ticket.client == ITSELF && matches!(ask, Ask::Fence { who, .. } | Ask::Arrive { who, .. } if !who.is_empty())
}

/// The words of an arrival at a fence that does not wait for the others.
fn without_wait(words: &[u8]) -> Option<Bytes> {
    let parsed = Words::parse(words).ok()?;
    let Ask::Fence { name, all, who, .. } = parsed.ask() else { return None };
    Some(Words::write(Ask::Arrive { name, all, who }).into())
}

/// The keys that an ask changes.
fn changed(ask: &Ask<'_>, mut each: impl FnMut(&[u8])) {
    match ask {
        Ask::Set(key, _) | Ask::Add(key, _) | Ask::Append(key, _) | Ask::Delete(key) => each(key),
        Ask::CompareSet { key, .. } | Ask::Gather { key, .. } => each(key),
        Ask::SetAll(pairs) => pairs.iter().for_each(|(key, _)| each(key)),
        Ask::Get(_) | Ask::GetAll(_) | Ask::Check(_) | Ask::Wait { .. } | Ask::Count | Ask::List { .. } => {}
        Ask::Push(..) | Ask::Pop(_) | Ask::Take { .. } | Ask::Len(_) | Ask::Watch { .. } => {}
        Ask::Fence { .. } | Ask::Arrive { .. } => {}
    }
}

/// As much as fits in a message. Of keys the rest is asked for again.
fn fitted(answer: Answer) -> Answer {
    let len = |item: &Bytes| item.len() + 8;
    match answer {
        Answer::Keys(mut keys) => {
            let mut room = LONGEST;
            let fit =
                keys.iter().take_while(|key| room.checked_sub(len(key)).map(|left| room = left).is_some()).count();
            keys.truncate(fit);
            Answer::Keys(keys)
        }
        Answer::Values(values) => {
            let all: usize = values.iter().map(|value| value.as_ref().map_or(8, len)).sum();
            if all > LONGEST {
                return Answer::Refused(Refusal::LongAnswer { len: all, most: LONGEST });
            }
            Answer::Values(values)
        }
        answer @ (Answer::Done | Answer::Missing | Answer::Value(_) | Answer::Number(_)) => answer,
        answer @ (Answer::Compared { .. } | Answer::Changed { .. } | Answer::Refused(_)) => answer,
    }
}

#[cfg(test)]
mod tests;
