//! The listener for MPI libraries, on 127.0.0.1: connections of ranks, their bytes to the machine and back.
//!
//! The listener is opened before the first rank and costs some microseconds. All else is made for the first connection. No byte of a
//! connection is read before it is known that a process of the job has made it.

mod connection;
mod last_words;
mod noted_files;
mod outcome;
mod rights;
#[cfg(test)]
mod tests;

use super::client_socket::{WRITABLE, client_of};
use super::rank_table::RankOf;
use super::tcpstore_listener::{AcceptQueue, Authorizer, PendingConnection};
use super::{rank_table, store};
use crate::clock::now;
use crate::edges::live_set::LiveSet;
use crate::edges::part::{Base, Part};
use crate::edges::socket_searches::Owner;
use crate::edges::store::Store;
use crate::edges::watch::Source;
use connection::Connection;
use noted_files::NotedFiles;
use outcome::Outcomes;
pub(super) use rights::refused;
use rlaunch_base::id::{ClientId, Rank, WorldId};
use rlaunch_base::machine::earliest_of;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use rlaunch_base::time::Mono;
use rlaunch_core::node::NodeEvent;
use rlaunch_keyvalue::store::{Answer, Refusal, Table};
use rlaunch_mpi::{Action, Broken, Layout, Mpi, Reach};
use rlaunch_protocol::framework::MpiService;
use rlaunch_protocol::master_store::Guard;
use rlaunch_protocol::wire::frozen::client::write_reply;
use rlaunch_protocol::wire::node_news::{MpiNews, NodeNews};
use rlaunch_protocol::wire::order::{Asker, RankOrder};
use rlaunch_sys::guardian::TempFiles;
use rlaunch_sys::{holders, socket};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::task::Context;

/// The token of the listener: above those of all connections.
const LISTENER: u64 = u64::MAX;
/// Read at once.
const CHUNK: usize = 64 << 10;
/// Most that is ready at a time.
const BURST: usize = 256;
/// Rounds before others of this process have their turn.
const ROUNDS: usize = 16;
/// Most connections: a rank has one or two.
const MOST: usize = 16 << 10;

/// The reason for a refused registration.
const USES_MPI: &str =
    "the rank has used MPI, which cannot survive an in-process restart; use --max-restarts, or no MPI";

/// A request for a store.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) reach: Reach,
    pub(super) seq: u64,
    pub(super) words: Vec<u8>,
}

/// The ranks of a world.
#[derive(Debug)]
struct World {
    machine: Mpi,
    outcomes: Outcomes,
    /// Ranks of which a process was refused with words for the user.
    refused: RankSet,
}

/// The listener, its connections, and what they share.
#[derive(Debug)]
pub(super) struct MpiListener {
    queue: AcceptQueue,
    set: LiveSet,
    authorizer: Option<Authorizer>,
    /// Worlds whose ranks are known.
    worlds: BTreeMap<WorldId, World>,
    connections: Table<Connection>,
    last: u32,
    chunk: Vec<u8>,
    /// Requests for the store.
    asks: Vec<(WorldId, Ask)>,
    /// Facts for the launcher.
    news: Vec<NodeNews>,
    /// Orders of ranks.
    orders: Vec<RankOrder>,
    /// Processes of ranks whose start is not reported yet.
    early: Vec<ClientId>,
    /// A look at the libraries of a rank is due.
    is_look_due: bool,
    noted: NotedFiles,
}

/// Listens if that is needed and can be.
pub(super) fn open(base: &Base, service: MpiService) -> Option<Box<MpiListener>> {
    match service {
        // A shell may start a program that has a library.
        MpiService::None | MpiService::Refused => {
            base.temp_files.shm().expect_others();
            return None;
        }
        MpiService::Served | MpiService::Yielding => {}
    }
    match MpiListener::open(base.temp_files) {
        Ok(listener) => Some(Box::new(listener)),
        Err(error) => {
            tracing::warn!(%error, "no listener for MPI programs");
            None
        }
    }
}

impl Part for MpiListener {
    type Action = Box<Layout>;

    /// These ranks are started now; those before are gone.
    fn perform(&mut self, _base: &mut Base, layout: Box<Layout>) {
        let clients: Vec<ClientId> = self.connections.iter().map(|(client, _)| client).collect();
        clients.into_iter().for_each(|client| self.close(client));
        self.worlds.keys().for_each(|world| self.noted.end_world(*world));
        self.worlds.clear();
        self.asks.clear();
        self.open_world(WorldId::new(0), *layout);
    }

    fn poll(&mut self, base: &mut Base, cx: &mut Context<'_>) {
        self.serve(base, cx);
        self.admit_known(base);
        self.serve_early(&base.ranks);
        for world in self.worlds.values_mut() {
            world.machine.handle_timeout(now());
            world.outcomes.overdue(now()).into_iter().for_each(|proc| base.ranks.kill(proc));
        }
        self.perform_all(&base.ranks);
        self.look_for_library(base);
        self.report(base);
    }

    fn deadline(&self) -> Option<Mono> {
        let authorizer = self.authorizer.as_ref().and_then(Authorizer::deadline);
        let worlds = self.worlds.values();
        let worlds = worlds.flat_map(|world| [world.machine.poll_timeout(), world.outcomes.deadline()]);
        earliest_of([self.queue.deadline(), authorizer].into_iter().chain(worlds))
    }
}

impl MpiListener {
    fn open(files: TempFiles) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        listener.set_nonblocking(true)?;
        let set = LiveSet::with_room(BURST)?;
        Ok(Self {
            queue: AcceptQueue::local(listener, Guard::Job, MOST, &set, LISTENER)?,
            set,
            authorizer: None,
            worlds: BTreeMap::new(),
            connections: Table::default(),
            last: 0,
            chunk: Vec::new(),
            asks: Vec::new(),
            news: Vec::new(),
            orders: Vec::new(),
            early: Vec::new(),
            is_look_due: false,
            noted: NotedFiles::new(files),
        })
    }

    /// The port of the listener, on 127.0.0.1.
    pub(super) fn port(&self) -> u16 {
        self.queue.own().port()
    }

    /// The ranks of another world are started now.
    pub(super) fn open_world(&mut self, world: WorldId, mut layout: Layout) {
        layout.session_dir = self.noted.dir_of(&layout.name);
        tracing::debug!("MPI: {} ranks as {}", layout.size(), layout.name);
        self.worlds
            .insert(world, World { machine: Mpi::new(layout), outcomes: Outcomes::default(), refused: RankSet::new() });
    }

    /// The ranks of another world are gone.
    pub(super) fn close_world(&mut self, world: WorldId) {
        let of_world = self.connections.iter().filter(|(_, connection)| connection.world == Some(world));
        let clients: Vec<ClientId> = of_world.map(|(client, _)| client).collect();
        clients.into_iter().for_each(|client| self.close(client));
        self.worlds.remove(&world);
        self.noted.end_world(world);
        self.asks.retain(|(of, _)| *of != world);
    }

    /// The end of a rank as MPI has it: `MPI_Abort` has a code, and a rank that ends in the middle of MPI has failed.
    pub(super) fn status(&mut self, base: &mut Base, rank_of: RankOf, status: Status) -> Status {
        let (number, rank) = rank_of;
        if !self.worlds.get(&number).is_some_and(|world| world.machine.was_used()) {
            return status;
        }
        // Its last message may not be read yet.
        self.look(&base.ranks);
        let Some(world) = self.worlds.get_mut(&number) else { return status };
        let outcome = world.outcomes.end(rank, status, world.machine.is_inside(rank));
        // Facts go before the end of the rank: its stderr may have ended.
        base.events.extend(world.machine.repeated_help().into_iter().map(|news| NodeEvent::News(NodeNews::Mpi(news))));
        if outcome != status && !world.outcomes.has_aborted(rank) {
            let pid = base.ranks.processes_of(rank_of).last().map_or(0, |pid| pid.cast_unsigned());
            base.events.push_back(NodeEvent::News(NodeNews::Mpi(MpiNews::Unfinished { rank, pid })));
        }
        outcome
    }

    /// A rank takes part in rounds from now on. Refused if it has used MPI.
    pub(super) fn register(&mut self, rank: Rank) -> Result<(), &'static str> {
        let Some(World { machine, .. }) = self.worlds.get_mut(&WorldId::new(0)) else { return Ok(()) };
        if machine.has_come(rank) {
            return Err(USES_MPI);
        }
        machine.register(rank);
        Ok(())
    }

    /// Exchanges requests and answers with the store, until there are none.
    pub(super) fn ask(&mut self, mut store: Option<&mut Store>, base: &mut Base) {
        loop {
            let asks = std::mem::take(&mut self.asks);
            let answers = match &mut store {
                Some(store) => {
                    asks.iter().for_each(|(world, ask)| store.ask_for_mpi(*world, ask));
                    store.answers_of_mpi()
                }
                None => {
                    let gone = |(world, ask): &(WorldId, Ask)| {
                        (*world, ask.seq, write_reply(&Answer::Refused(Refusal::Gone)).into())
                    };
                    asks.iter().map(gone).collect()
                }
            };
            if answers.is_empty() {
                return self.report(base);
            }
            for (world, seq, words) in answers {
                self.answer(world, seq, &words);
            }
            self.perform_all(&base.ranks);
        }
    }

    fn serve(&mut self, base: &mut Base, cx: &mut Context<'_>) {
        for _ in 0..ROUNDS {
            let Some(tokens) = self.set.poll(cx) else { return };
            if base.ranks.launching() {
                // The process may be of a rank whose start is not taken in yet.
                rank_table::drain_outcomes(base);
            }
            self.round(tokens, &base.ranks);
        }
        cx.waker().wake_by_ref();
    }

    /// Has a rank of the first world looked at, which may have loaded an MPI library that does not connect.
    fn look_for_library(&mut self, base: &mut Base) {
        let Base { files, watch, ranks, memory, .. } = base;
        if let Some(pid) = ranks.first_process().filter(|_| std::mem::take(&mut self.is_look_due)) {
            files.look_for_library(pid, |bell| watch.add(bell, Source::Files));
        }
        let Some(found) = files.take_library() else { return };
        memory.give_back();
        if let (Some(name), Some(first)) = (found, self.worlds.get_mut(&WorldId::new(0))) {
            first.machine.loaded(OsBytes::new(name));
            self.perform_all(ranks);
        }
    }

    /// Sends the launcher what the machine has found.
    fn report(&mut self, base: &mut Base) {
        base.events.extend(self.news.drain(..).map(NodeEvent::News));
        base.events.extend(self.orders.drain(..).map(|order| NodeEvent::Ordered(Box::new(order))));
    }

    /// Takes in everything that has come until now.
    fn look(&mut self, ranks: &rank_table::Ranks) {
        for _ in 0..ROUNDS {
            let Some(tokens) = self.set.look() else { return };
            self.round(tokens, ranks);
        }
    }

    fn round(&mut self, tokens: Vec<u64>, ranks: &rank_table::Ranks) {
        for token in tokens {
            match token {
                LISTENER => self.accept(),
                token if token & WRITABLE != 0 => self.send(client_of(token)),
                token => self.read(client_of(token), ranks),
            }
            self.perform_all(ranks);
        }
    }

    fn accept(&mut self) {
        if self.authorizer.is_none() {
            self.keep(Authorizer::new(now()));
        }
        let Some(authorizer) = &mut self.authorizer else { return };
        let pending = self.queue.take(&self.set, authorizer);
        self.admit(pending);
    }

    /// Keeps the authorizer. Without one the connections wait in the kernel, and are looked at again after a while.
    fn keep(&mut self, made: io::Result<Authorizer>) {
        match made {
            Ok(authorizer) => self.authorizer = Some(authorizer),
            Err(error) => {
                tracing::warn!(%error, "the kernel cannot be asked whose a connection is");
                self.queue.defer(&self.set);
            }
        }
    }

    /// Lets in those of which it is known by now that they are of the job.
    fn admit_known(&mut self, base: &mut Base) {
        if let Some(authorizer) = &mut self.authorizer {
            let known = authorizer.take_known(Owner::Mpi, base);
            let pending =
                known.into_iter().filter_map(|(asker, peer)| self.queue.record_owner(asker.number()?, peer)).collect();
            self.admit(pending);
        }
        self.queue.turn(now(), &self.set);
        let _strangers = self.queue.refused();
    }

    fn admit(&mut self, pending: Vec<PendingConnection>) {
        for (socket, peer) in pending {
            let ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
            let client = self.connections.free_from(self.last.wrapping_add(1));
            let is_ready = ready.and_then(|()| self.set.add(&socket, u64::from(client.get()))).is_ok();
            if self.worlds.is_empty() || !is_ready {
                self.queue.left();
                continue;
            }
            self.last = client.get();
            self.noted.expect_others();
            self.connections.insert(client, Connection::new(socket, peer));
        }
    }

    fn read(&mut self, client: ClientId, ranks: &rank_table::Ranks) {
        self.chunk.resize(CHUNK, 0);
        let Self { connections, worlds, chunk, .. } = self;
        let Some(connection) = connections.get_mut(client) else { return };
        let came = match socket::recv(&connection.socket, chunk) {
            Ok(0) => return self.close(client),
            Ok(len) => chunk.get(..len).unwrap_or_default(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => return self.close(client),
        };
        if connection.is_ending {
            return;
        }
        let Some((number, world)) = connection.find_world(client, worlds, ranks) else {
            connection.held.extend_from_slice(came);
            return self.wait_for_world(client, ranks);
        };
        let mut is_early = false;
        let (machine, speaks_for) = (&mut world.machine, speaks_for((number, connection.pid()), ranks, &mut is_early));
        if connection.held.is_empty() {
            let used = machine.receive(now(), client, came, speaks_for);
            connection.held.extend_from_slice(came.get(used..).unwrap_or_default());
        } else {
            connection.held.extend_from_slice(came);
            let used = machine.receive(now(), client, &connection.held, speaks_for);
            connection.held.drain(..used.min(connection.held.len()));
        }
        if connection.held.is_empty() {
            connection.held = Vec::new();
        }
        if is_early {
            self.early.push(client);
        }
    }

    /// Serves processes that were faster than the report of their start.
    fn serve_early(&mut self, ranks: &rank_table::Ranks) {
        for client in std::mem::take(&mut self.early) {
            let Some(connection) = self.connections.get_mut(client) else { continue };
            let Some((number, world)) = connection.find_world(client, &mut self.worlds, ranks) else {
                self.wait_for_world(client, ranks);
                continue;
            };
            let mut is_early = false;
            let held = std::mem::take(&mut connection.held);
            let speaks_for = speaks_for((number, connection.pid()), ranks, &mut is_early);
            let used = world.machine.receive(now(), client, &held, speaks_for);
            connection.held.extend_from_slice(held.get(used..).unwrap_or_default());
            if is_early {
                self.early.push(client);
            }
        }
    }

    /// The process is of a rank whose start is not reported yet, or of none.
    fn wait_for_world(&mut self, client: ClientId, ranks: &rank_table::Ranks) {
        match ranks.launching() {
            true => self.early.push(client),
            false => self.close(client),
        }
    }

    /// Does what the machines ask for.
    fn perform_all(&mut self, ranks: &rank_table::Ranks) {
        let numbers: Vec<WorldId> = self.worlds.keys().copied().collect();
        numbers.into_iter().for_each(|world| self.perform_of(world, ranks));
    }

    fn perform_of(&mut self, world: WorldId, ranks: &rank_table::Ranks) {
        while let Some(action) = self.worlds.get_mut(&world).and_then(|world| world.machine.poll_action()) {
            match action {
                Action::Write { client, bytes } => self.write(client, bytes),
                Action::Ask { seq, reach, words } => self.asks.push((world, Ask { reach, seq, words })),
                Action::Order { seq, client, rank, words } => match self.difference(client) {
                    Some(why) => self.answer(world, seq, &refused(Some(rank), &why)),
                    None => {
                        let asker = Asker { client: store::of_mpi(world), seq };
                        self.orders.push(RankOrder { asker, world, rank: Some(rank), words: OsBytes::new(words) });
                    }
                },
                Action::Close { client, why } => {
                    tracing::debug!("an MPI program is disconnected: {why}");
                    if let Broken::Twice(rank) | Broken::InRounds(rank) | Broken::Full(rank, _) = &why
                        && self.is_first_refusal(world, Rank::new(*rank))
                    {
                        ranks.write_stderr((world, Rank::new(*rank)), format!("rlaunch: {why}\n").as_bytes());
                    }
                    self.end(client);
                }
                Action::Abort { rank, code, text } => {
                    tracing::debug!("rank {rank} calls MPI_Abort({code}): {}", String::from_utf8_lossy(&text));
                    let procs = ranks.procs_of((world, rank));
                    self.outcomes_of(world, |outcomes| outcomes.abort(rank, code, procs, now()));
                }
                // The launcher reads ranks of the first world in what is reported about some.
                Action::News(news) if world == WorldId::new(0) || matches!(news, MpiNews::Used { .. }) => {
                    self.news.push(NodeNews::Mpi(news));
                }
                Action::News(news) => tracing::debug!(?news, "MPI in world {world}"),
                // A look finds the libraries of the first world's processes.
                Action::Look => self.is_look_due |= world == WorldId::new(0),
                Action::Log { rank, mut text, help } => {
                    if !text.ends_with(b"\n") {
                        text.push(b'\n');
                    }
                    let is_written = ranks.write_stderr((world, rank), &text);
                    if let (Some(name), Some(world)) = (help, self.worlds.get_mut(&world)) {
                        world.machine.help_written(&name, is_written);
                    }
                }
                Action::Cleanup { client, names } => {
                    if let Some(user) = self.user_of(client) {
                        self.noted.note(world, user, names);
                    }
                }
            }
        }
    }

    /// The machine of a world gets an answer.
    fn answer(&mut self, world: WorldId, seq: u64, words: &[u8]) {
        self.worlds.get_mut(&world).into_iter().for_each(|world| world.machine.answered(now(), seq, words));
    }

    fn is_first_refusal(&mut self, world: WorldId, rank: Rank) -> bool {
        let Some(refused) = self.worlds.get_mut(&world).map(|world| &mut world.refused) else { return false };
        let is_first = !refused.contains(rank);
        refused.insert(rank);
        is_first
    }

    fn outcomes_of(&mut self, world: WorldId, change: impl FnOnce(&mut Outcomes)) {
        if let Some(world) = self.worlds.get_mut(&world) {
            change(&mut world.outcomes);
        }
    }
}

/// Whether a process belongs to a rank. `None`: the rank is being started, and the report of that is on its way.
fn speaks_for<'a>(
    (world, pid): (WorldId, i32),
    ranks: &'a rank_table::Ranks,
    is_early: &'a mut bool,
) -> impl FnMut(Rank) -> Option<bool> + use<'a> {
    let above = i32::try_from(std::process::id()).unwrap_or(0);
    move |rank| {
        let known = ranks.processes_of((world, rank));
        *is_early = known.is_empty() && ranks.is_being_started((world, rank));
        (!*is_early).then(|| holders::belongs_to(pid, &known, above))
    }
}
