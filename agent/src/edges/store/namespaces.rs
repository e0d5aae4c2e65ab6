//! The namespaces of the job's store, as this host sees them. Each has a cache here. The owner of a namespace that ranks share is on the
//! host of its rank 0.
//!
//! A request goes to the cache of its namespace, and from there to the owner: here, or by the store lane of our edge to the launcher.
//! The launcher holds the job's namespace, and passes on requests for another agent.

use super::mpi_clients::{of_mpi, of_mpi_in_first};
use crate::clock::now;
use bytes::Bytes;
use rlaunch_base::id::{ClientId, NodeId, Rank, WorldId};
use rlaunch_base::machine::{earliest, earliest_of};
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Mono;
use rlaunch_keyvalue::store::cache::Cache;
use rlaunch_keyvalue::store::owner::Owner;
use rlaunch_keyvalue::store::transit::refuses_more;
use rlaunch_keyvalue::store::{Answer, Refusal, Seq, Ticket};
use rlaunch_plan::place::World;
use rlaunch_protocol::wire::frozen::Malformed;
use rlaunch_protocol::wire::frozen::client::order::LONGEST_ORDER;
use rlaunch_protocol::wire::frozen::client::{ClientFrame, Code, Refused, Space};
use rlaunch_protocol::wire::order::{Asker, RankOrder};
use rlaunch_protocol::wire::store::{Down, Passage, Up, stamped, unstamped};
use rlaunch_protocol::wire::to_node::{WORLD_NAMESPACE, WorldRank};
use std::collections::{BTreeMap, VecDeque};

/// The namespaces, as seen from here.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// The time, as it was read last: once for all that is found at one look.
    pub(super) now: Mono,
    node: NodeId,
    ranks: RankSet,
    job: Cache,
    /// The namespace that the ranks of the first world share.
    first: Shared,
    /// The namespaces of other worlds.
    others: BTreeMap<WorldId, Shared>,
    /// Numbers of other worlds that were ever here: ranges, because most have ended.
    known: RankSet,
    /// Orders of ranks, for the machine.
    pub(super) orders: Vec<RankOrder>,
    /// Clients of other worlds.
    pub(super) worlds: BTreeMap<ClientId, WorldId>,
    /// For the launcher: of which agent, and what.
    pub(super) out: VecDeque<(NodeId, Vec<u8>)>,
    /// Bytes in `out`.
    pub(super) waiting: usize,
    /// Passages of namespaces that have not begun here.
    pub(super) early: Vec<(NodeId, Vec<u8>)>,
    /// For clients.
    pub(super) answers: VecDeque<(Ticket, Bytes)>,
    /// For the machines of MPI: the world of each, the number of its request, and the words.
    pub(super) of_mpi: Vec<(WorldId, u64, Bytes)>,
}

/// The namespace that the ranks of a world share, as seen from here.
#[derive(Debug)]
struct Shared {
    cache: Cache,
    /// Which it is; `None`: none has begun.
    number: Option<u32>,
    /// Its owner, where that is ours.
    home: Option<Owner>,
}

impl Shared {
    fn new(ranks: RankSet) -> Self {
        Self { cache: Cache::new(ranks), number: None, home: None }
    }

    fn poll_timeout(&self) -> Option<Mono> {
        earliest(self.cache.poll_timeout(), self.home.as_ref().and_then(Owner::poll_timeout))
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.cache.handle_timeout(now);
        self.home.iter_mut().for_each(|home| home.handle_timeout(now));
    }
}

impl Namespaces {
    pub(super) fn new(node: NodeId) -> Self {
        Self {
            now: now(),
            node,
            ranks: RankSet::new(),
            job: Cache::new(RankSet::new()),
            first: Shared::new(RankSet::new()),
            others: BTreeMap::new(),
            known: RankSet::new(),
            orders: Vec::new(),
            worlds: BTreeMap::new(),
            out: VecDeque::new(),
            waiting: 0,
            early: Vec::new(),
            answers: VecDeque::new(),
            of_mpi: Vec::new(),
        }
    }

    /// Closes the namespace of the first world, before another one of it begins.
    pub(super) fn close_first(&mut self) {
        self.first.cache.close();
    }

    /// Begins the namespace of the first world.
    pub(super) fn begin_first(&mut self, here: bool, number: u32, ranks: Option<RankSet>) {
        let cache = Cache::new(ranks.unwrap_or_else(|| self.ranks.clone()));
        self.first = Shared { cache, number: Some(number), home: here.then(Owner::default) };
    }

    /// Opens the namespace of another world.
    pub(super) fn open_world(&mut self, world: WorldId, number: u32, here: bool) {
        let shared = Shared { number: Some(number), home: here.then(Owner::default), ..Shared::new(RankSet::new()) };
        self.others.insert(world, shared);
        self.known.insert_range(world.get(), world.get());
        self.worlds.insert(of_mpi(world), world);
    }

    /// Closes the namespace of another world. Its last messages are to be exchanged before it is removed.
    pub(super) fn close_world(&mut self, world: WorldId) {
        if let Some(shared) = self.others.get_mut(&world) {
            shared.cache.close();
        }
        self.first.cache.gone(of_mpi_in_first(world));
    }

    /// Removes the namespace of another world.
    pub(super) fn remove_world(&mut self, world: WorldId) {
        self.others.remove(&world);
        self.worlds.remove(&of_mpi(world));
    }

    /// Adds one of this host's ranks.
    pub(super) fn add_rank(&mut self, WorldRank { world, rank, .. }: WorldRank) {
        if world > WorldId::new(0) {
            self.others.get_mut(&world).into_iter().for_each(|shared| shared.cache.add_rank(rank));
            return;
        }
        self.ranks.insert(rank);
        self.job.add_rank(rank);
        self.first.cache.add_rank(rank);
    }

    /// Removes a client that has left.
    pub(super) fn remove_client(&mut self, client: ClientId) {
        self.job.gone(client);
        self.of(client).into_iter().for_each(|shared| shared.cache.gone(client));
        self.worlds.remove(&client);
    }

    /// When a wait ends.
    pub(super) fn poll_timeout(&self) -> Option<Mono> {
        let others = self.others.values().map(Shared::poll_timeout);
        earliest_of([self.job.poll_timeout(), self.first.poll_timeout()].into_iter().chain(others))
    }

    /// Ends the waits whose time has come.
    pub(super) fn handle_timeout(&mut self, now: Mono) {
        self.now = now;
        self.job.handle_timeout(now);
        self.all().for_each(|shared| shared.handle_timeout(now));
    }

    /// Takes in a passage that the launcher passes on.
    pub(super) fn receive_passage(&mut self, node: NodeId, bytes: &[u8]) {
        match unstamped(bytes) {
            Ok((_, Passage::Down(Space::Job, down))) => self.job.receive(down),
            Ok((number, _)) if self.is_early(number) => self.early.push((node, bytes.to_vec())),
            Ok((number, Passage::Down(Space::Generation, _) | Passage::Up(Space::Generation, _)))
                if self.by_number(number).is_none() =>
            {
                tracing::debug!("something of a store comes too late: generation {number}");
            }
            Ok((number, Passage::Down(Space::Generation, down))) => {
                self.by_number(number).into_iter().for_each(|shared| shared.cache.receive(down));
            }
            Ok((number, Passage::Up(Space::Generation, up))) => self.asked(number, node, up),
            Ok((_, Passage::Up(Space::Job, _))) | Err(_) => tracing::debug!("something of a store is not for us"),
        }
    }

    /// The namespaces that ranks share, of all worlds.
    fn all(&mut self) -> impl Iterator<Item = &mut Shared> {
        std::iter::once(&mut self.first).chain(self.others.values_mut())
    }

    /// The namespace that the world of a client shares; `None`: no rank of that world runs any more. It begins before its first rank.
    fn of(&mut self, client: ClientId) -> Option<&mut Shared> {
        let world = self.worlds.get(&client).copied().unwrap_or(WorldId::new(0));
        self.of_world(world)
    }

    /// The namespace of a world.
    fn of_world(&mut self, world: WorldId) -> Option<&mut Shared> {
        if world == WorldId::new(0) { Some(&mut self.first) } else { self.others.get_mut(&world) }
    }

    fn by_number(&mut self, number: u32) -> Option<&mut Shared> {
        let world = number.checked_sub(WORLD_NAMESPACE).map_or(WorldId::new(0), WorldId::new);
        self.of_world(world).filter(|shared| shared.number == Some(number))
    }

    /// Whether a namespace has not begun here.
    fn is_early(&self, number: u32) -> bool {
        match number.checked_sub(WORLD_NAMESPACE).map(Rank::new) {
            Some(world) => !self.known.contains(world),
            None => self.first.number.is_none_or(|own| own < number),
        }
    }

    /// A client has an order for the job. `refusal`: the answer, if it may order nothing.
    fn order(&mut self, asker: Asker, words: &[u8], refusal: &dyn Fn() -> Option<Vec<u8>>) {
        let refused = if words.len() > LONGEST_ORDER {
            let text = format!("an order of {} bytes is longer than {LONGEST_ORDER}", words.len());
            Some(Refused { code: Code::Limit, within: None, text: text.as_bytes(), hint: b"" }.write())
        } else {
            refusal()
        };
        if let Some(refused) = refused {
            self.answers.push_back((Ticket { client: asker.client, seq: Seq(asker.seq) }, refused.into()));
            return;
        }
        let world = self.worlds.get(&asker.client).copied().unwrap_or(WorldId::new(0));
        self.orders.push(RankOrder { asker, world, rank: None, words: words.into() });
    }

    /// Another agent asks the owner of a namespace.
    fn asked(&mut self, number: u32, node: NodeId, up: Up<'_>) {
        if let Some((ticket, words)) = refuses_more(self.waiting, &up) {
            let refused = Down::Answer(ticket, false, &words);
            return self.send(number, node, Passage::Down(Space::Generation, refused));
        }
        let now = self.now;
        match self.by_number(number).and_then(|shared| shared.home.as_mut()) {
            Some(home) => home.receive(now, node, up),
            None if up == Up::Lost => {}
            // Rank 0 of this generation runs elsewhere: a client would wait for ever.
            None => self.send(number, node, Passage::Down(Space::Generation, Down::Closed)),
        }
    }

    /// A client has said something; the answer, where there is one at once, and to what.
    pub(super) fn receive(
        &mut self,
        client: ClientId,
        frame: &[u8],
        refusal: &dyn Fn() -> Option<Vec<u8>>,
    ) -> Result<Option<(u64, Answer)>, Malformed> {
        match ClientFrame::parse(frame)? {
            ClientFrame::Ask(asked, words) => {
                let ticket = Ticket { client, seq: Seq(asked.seq) };
                let (now, node) = (self.now, self.node);
                if asked.space == Space::Job {
                    // With the secret of a worker group a process runs code in the workers.
                    if words.ask().is_about(World::WORKERS)
                        && let Some(refused) = refusal()
                    {
                        self.answers.push_back((ticket, refused.into()));
                        return Ok(None);
                    }
                    if self.job.ask(now, ticket, asked.words, &words) {
                        self.send(0, node, Passage::Up(Space::Job, Up::Ask(ticket, asked.words)));
                    }
                    return Ok(None);
                }
                let Some(Shared { cache, number, home }) = self.of(client) else {
                    return Ok(Some((asked.seq, Answer::Refused(Refusal::Gone))));
                };
                if let Some(home) = home
                    && cache.is_for_home(client, &words)
                {
                    let said = home.ask_here(now, node, ticket, asked.words, &words);
                    if said.is_none() {
                        cache.waits_at_home(ticket);
                    }
                    return Ok(said.map(|answer| (asked.seq, answer)));
                }
                if cache.ask(now, ticket, asked.words, &words) {
                    let number = number.unwrap_or(0);
                    match home {
                        Some(home) => home.ask(now, node, ticket, asked.words, &words),
                        None => self.send(number, node, Passage::Up(Space::Generation, Up::Ask(ticket, asked.words))),
                    }
                }
            }
            ClientFrame::Order(seq, words) => self.order(Asker { client, seq }, words, refusal),
            ClientFrame::Unknown(unknown) => {
                let ticket = Ticket { client, seq: Seq(unknown.seq) };
                self.answers.push_back((ticket, unknown.reply().into()));
            }
        }
        Ok(None)
    }

    /// Exchanges the messages of all caches and the owners of this host, until there are none.
    pub(super) fn exchange(&mut self) {
        loop {
            let mut has_moved = false;
            while let Some(action) = self.job.poll_action() {
                has_moved = true;
                let Some(up) = action.up() else {
                    self.answers.extend(action.answer());
                    continue;
                };
                self.send(0, self.node, Passage::Up(Space::Job, up));
            }
            has_moved |= self.exchange_in_world(WorldId::new(0));
            // Most jobs have no other world.
            for world in self.others.keys().copied().collect::<Vec<_>>() {
                has_moved |= self.exchange_in_world(world);
            }
            if !has_moved {
                return;
            }
        }
    }

    /// Exchanges the messages of a world's cache and its owner. Returns whether there were any.
    fn exchange_in_world(&mut self, world: WorldId) -> bool {
        let (now, node) = (self.now, self.node);
        let mut has_moved = false;
        // The round in which there is nothing ends it.
        loop {
            let Some(shared) = self.of_world(world) else { return has_moved };
            let number = shared.number.unwrap_or(0);
            if let Some(action) = shared.cache.poll_action() {
                let Some(up) = action.up() else {
                    self.answers.extend(action.answer());
                    continue;
                };
                match &mut shared.home {
                    Some(home) => home.receive(now, node, up),
                    None => self.send(number, node, Passage::Up(Space::Generation, up)),
                }
            } else if let Some((to, message)) = shared.home.as_mut().and_then(Owner::poll_action) {
                if to == node {
                    shared.cache.take(message);
                } else {
                    self.send(number, to, Passage::Down(Space::Generation, message.down()));
                }
            } else {
                return has_moved;
            }
            has_moved = true;
        }
    }

    /// Queues something for the launcher, about the namespace of this number.
    fn send(&mut self, number: u32, node: NodeId, passage: Passage<'_>) {
        let bytes = stamped(number, passage);
        self.waiting += bytes.len();
        self.out.push_back((node, bytes));
    }
}
