//! The listener for MPI libraries, on 127.0.0.1: connections of ranks, their bytes to the machine and back.
//!
//! The listener is opened before the first rank and costs some microseconds. All else is made for the first connection. No byte of a
//! connection is read before it is known that a process of the job has made it.

mod outcome;

use super::client_socket::{WRITABLE, client_of};
use super::tcpstore_listener::{AcceptQueue, Authorizer, PendingConnection};
use super::{Edges, client_socket, rank_table};
use crate::early::now;
use outcome::Outcomes;
use rlaunch_core::id::{ClientId, ProcId, Rank};
use rlaunch_core::machine::earliest_of;
use rlaunch_core::master_store::Guard;
use rlaunch_core::mpi::{Action, Broken, Layout, MAX_UNREAD, Mpi};
use rlaunch_core::node::NodeEvent;
use rlaunch_core::status::Status;
use rlaunch_core::store::{Answer, Refusal, Table};
use rlaunch_core::time::Mono;
use rlaunch_core::wire::frozen::client::write_reply;
use rlaunch_core::wire::node_news::NodeNews;
use rlaunch_sys::epoll::{Batch, ReadySet};
use rlaunch_sys::{holders, socket};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

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

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    /// The process that has made it.
    pid: i32,
    /// The beginning of a message.
    held: Vec<u8>,
    /// Bytes that the client has not taken, and the copy of the descriptor that shows when it can. Nothing is read meanwhile.
    unsent: Vec<u8>,
    room: Option<OwnedFd>,
    /// No more is read; it is closed when its client has taken everything.
    is_ending: bool,
}

/// The listener, its connections, and what they share.
#[derive(Debug)]
pub(super) struct MpiListener {
    queue: AcceptQueue,
    set: Arc<ReadySet>,
    live: Option<AsyncFd<Arc<ReadySet>>>,
    batch: Batch,
    authorizer: Option<Authorizer>,
    /// `None`: the ranks are not known yet.
    machine: Option<Mpi>,
    connections: Table<Connection>,
    chunk: Vec<u8>,
    outcomes: Outcomes,
    /// Requests for the store.
    asks: Vec<(u64, Vec<u8>)>,
    /// Facts for the launcher.
    news: Vec<NodeNews>,
    /// Processes of ranks whose start is not reported yet.
    early: Vec<ClientId>,
}

/// Listens; the port, where that can be.
pub(super) fn open(edges: &mut Edges) -> Option<u16> {
    let opened = MpiListener::open().and_then(|mut listener| {
        if edges.watch.is_live() {
            listener.go_live()?;
        }
        Ok(listener)
    });
    match opened {
        Ok(listener) => {
            let port = listener.queue.own().port();
            edges.mpi = Some(Box::new(listener));
            Some(port)
        }
        Err(error) => {
            tracing::warn!(%error, "no listener for MPI programs");
            None
        }
    }
}

/// These ranks are started now; those before are gone.
pub(super) fn begin(edges: &mut Edges, layout: Layout) {
    if let Some(listener) = &mut edges.mpi {
        tracing::debug!("MPI: {} ranks as {}", layout.size(), layout.name);
        let clients: Vec<ClientId> = listener.connections.iter().map(|(client, _)| client).collect();
        clients.into_iter().for_each(|client| listener.close(client));
        listener.machine = Some(Mpi::new(layout));
        listener.outcomes = Outcomes::default();
        listener.asks.clear();
        // Answers that the ranks before have not got.
        edges.store.iter_mut().for_each(|store| drop(store.answers_of_mpi()));
    }
}

/// The end of a rank as MPI has it: `MPI_Abort` has a code, and a rank that ends in the middle of MPI has failed.
pub(super) fn status(edges: &mut Edges, rank: Rank, status: Status) -> Status {
    let Edges { mpi: Some(listener), ranks, .. } = edges else { return status };
    if !listener.machine.as_ref().is_some_and(Mpi::was_used) {
        return status;
    }
    if matches!(status, Status::Exited(0)) {
        // Its last message may not be read yet.
        listener.look(ranks);
    }
    let is_inside = listener.machine.as_ref().is_some_and(|machine| machine.is_inside(rank));
    let outcome = listener.outcomes.end(rank, status, is_inside);
    if outcome != status && !listener.outcomes.has_aborted(rank) {
        let words = format!("rlaunch: rank {rank} exited after MPI_Init and before MPI_Finalize\n");
        ranks.write_stderr(rank, words.as_bytes());
    }
    outcome
}

impl MpiListener {
    fn open() -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        listener.set_nonblocking(true)?;
        let set = Arc::new(ReadySet::new()?);
        Ok(Self {
            queue: AcceptQueue::local(listener, Guard::Job, MOST, &set, LISTENER)?,
            set,
            live: None,
            batch: Batch::with_room(BURST),
            authorizer: None,
            machine: None,
            connections: Table::default(),
            chunk: Vec::new(),
            outcomes: Outcomes::default(),
            asks: Vec::new(),
            news: Vec::new(),
            early: Vec::new(),
        })
    }

    pub(super) fn go_live(&mut self) -> io::Result<()> {
        self.live = Some(rlaunch_net::ready::readable(Arc::clone(&self.set))?);
        Ok(())
    }

    /// Takes in everything that has come until now.
    fn look(&mut self, ranks: &rank_table::Ranks) {
        for _ in 0..ROUNDS {
            if self.set.ready(&mut self.batch) == 0 {
                return;
            }
            self.round(ranks);
        }
    }

    fn round(&mut self, ranks: &rank_table::Ranks) {
        let tokens: Vec<u64> = self.batch.tokens().collect();
        for token in tokens {
            match token {
                LISTENER => self.accept(),
                token if token & WRITABLE != 0 => self.send(client_of(token)),
                token => self.read(client_of(token), ranks),
            }
            self.perform(ranks);
        }
    }

    fn accept(&mut self) {
        if self.authorizer.is_none() {
            match Authorizer::new(now()) {
                Ok(authorizer) => self.authorizer = Some(authorizer),
                Err(error) => {
                    tracing::warn!(%error, "the kernel cannot be asked whose a connection is");
                    self.set.remove(self.queue.listener());
                    return;
                }
            }
        }
        let Some(authorizer) = &mut self.authorizer else { return };
        let pending = self.queue.take(&self.set, authorizer);
        self.admit(pending);
    }

    /// Lets in those of which it is known by now that they are of the job.
    fn settle(&mut self) {
        let Some(authorizer) = &mut self.authorizer else { return };
        let settled = authorizer.settle(now);
        let pending =
            settled.into_iter().filter_map(|(asker, peer)| self.queue.settled(asker.number()?, peer)).collect();
        self.admit(pending);
        self.queue.turn(now(), &self.set);
        let _strangers = self.queue.refused();
    }

    fn admit(&mut self, pending: Vec<PendingConnection>) {
        for (socket, peer) in pending {
            let Some(machine) = &mut self.machine else {
                self.queue.left();
                continue;
            };
            let ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
            let client = machine.open();
            if ready.and_then(|()| self.set.add(&socket, u64::from(client.get()))).is_err() {
                machine.closed(client);
                self.queue.left();
                continue;
            }
            let pid = i32::try_from(peer.0 >> 32).unwrap_or(0);
            let (held, unsent) = (Vec::new(), Vec::new());
            self.connections.insert(client, Connection { socket, pid, held, unsent, room: None, is_ending: false });
        }
    }

    fn read(&mut self, client: ClientId, ranks: &rank_table::Ranks) {
        self.chunk.resize(CHUNK, 0);
        let Self { connections, machine: Some(machine), chunk, .. } = self else { return };
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
        let mut is_early = false;
        let speaks_for = speaks_for(connection.pid, ranks, &mut is_early);
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
            let (Some(machine), Some(connection)) = (&mut self.machine, self.connections.get_mut(client)) else {
                continue;
            };
            let mut is_early = false;
            let held = std::mem::take(&mut connection.held);
            let used = machine.receive(now(), client, &held, speaks_for(connection.pid, ranks, &mut is_early));
            connection.held.extend_from_slice(held.get(used..).unwrap_or_default());
            if is_early {
                self.early.push(client);
            }
        }
    }

    /// Does what the machine asks for.
    fn perform(&mut self, ranks: &rank_table::Ranks) {
        while let Some(action) = self.machine.as_mut().and_then(Mpi::poll_action) {
            match action {
                Action::Write { client, bytes } => self.write(client, bytes),
                Action::Ask { seq, words } => self.asks.push((seq, words)),
                Action::Close { client, why } => {
                    tracing::debug!("an MPI program is disconnected: {why}");
                    if let Broken::Twice(rank) | Broken::InRounds(rank) = &why {
                        ranks.write_stderr(Rank::new(*rank), format!("rlaunch: {why}\n").as_bytes());
                    }
                    self.end(client);
                }
                Action::Abort { rank, code, text } => {
                    tracing::debug!("rank {rank} calls MPI_Abort({code}): {}", String::from_utf8_lossy(&text));
                    self.outcomes.abort(rank, code, ranks.procs_of(rank), now());
                }
                Action::News(news) => self.news.push(news),
                Action::Log { rank, mut text } => {
                    if !text.ends_with(b"\n") {
                        text.push(b'\n');
                    }
                    ranks.write_stderr(rank, &text);
                }
                Action::Cleanup { rank, path } => self.outcomes.clean_up(rank, path),
            }
        }
    }

    fn write(&mut self, client: ClientId, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(client) else { return };
        if connection.unsent.is_empty() {
            connection.unsent = bytes;
            return self.send(client);
        }
        if connection.unsent.len().saturating_add(bytes.len()) > MAX_UNREAD {
            return self.close(client);
        }
        connection.unsent.extend(bytes);
    }

    /// Writes what can be written. A client that takes nothing is not read from.
    fn send(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get_mut(client) else { return };
        let mut sent = 0;
        while let Some(rest @ [_, ..]) = connection.unsent.get(sent..) {
            match socket::send(&connection.socket, rest) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.close(client),
            }
        }
        connection.unsent.drain(..sent);
        let is_done = connection.is_ending && connection.unsent.is_empty();
        if is_done || connection.turn(&self.set, client).is_err() {
            self.close(client);
        }
    }

    /// Closes a connection after what was to be sent.
    fn end(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get_mut(client) else { return };
        connection.is_ending = true;
        if connection.unsent.is_empty() {
            self.close(client);
        }
    }

    fn close(&mut self, client: ClientId) {
        let Some(connection) = self.connections.remove(client) else { return };
        self.set.remove(&connection.socket);
        connection.room.iter().for_each(|room| self.set.remove(room));
        if let Some(machine) = &mut self.machine {
            machine.closed(client);
        }
        self.queue.left();
    }
}

/// Whether a process belongs to a rank. `None`: the rank is being started, and the report of that is on its way.
fn speaks_for<'a>(
    pid: i32,
    ranks: &'a rank_table::Ranks,
    is_early: &'a mut bool,
) -> impl FnMut(Rank) -> Option<bool> + use<'a> {
    let above = i32::try_from(std::process::id()).unwrap_or(0);
    move |rank| {
        let known = ranks.processes_of(rank);
        *is_early = known.is_empty() && ranks.is_being_started(rank);
        (!*is_early).then(|| holders::belongs_to(pid, &known, above))
    }
}

impl Connection {
    fn turn(&mut self, set: &ReadySet, client: ClientId) -> io::Result<()> {
        client_socket::watch(set, client, &self.socket, &mut self.room, !self.unsent.is_empty())
    }
}

/// Serves MPI libraries that have sent something.
pub(super) fn poll(edges: &mut Edges, cx: &mut Context<'_>) {
    if edges.mpi.is_none() {
        return;
    }
    serve(edges, cx);
    let Edges { mpi: Some(listener), ranks, .. } = edges else { return };
    listener.settle();
    listener.serve_early(ranks);
    listener.machine.iter_mut().for_each(|machine| machine.handle_timeout(now()));
    listener.perform(ranks);
    for proc in listener.outcomes.overdue(now()) {
        ranks.kill(proc);
    }
    ask_store(edges);
    report(edges);
}

/// Sends the launcher what the machine has found.
fn report(edges: &mut Edges) {
    let Edges { mpi: Some(listener), events, .. } = edges else { return };
    events.extend(listener.news.drain(..).map(NodeEvent::News));
}

/// A rank takes part in rounds from now on. Refused if it has used MPI.
pub(super) fn register(edges: &mut Edges, rank: Rank) -> Result<(), &'static str> {
    let Some(machine) = edges.mpi.as_mut().and_then(|listener| listener.machine.as_mut()) else { return Ok(()) };
    if machine.has_come(rank) {
        return Err(USES_MPI);
    }
    machine.register(rank);
    Ok(())
}

/// Exchanges requests and answers with the store, until there are none.
pub(super) fn ask_store(edges: &mut Edges) {
    let Edges { mpi: Some(listener), store, ranks, .. } = edges else { return };
    loop {
        let asks = std::mem::take(&mut listener.asks);
        let answers = match store {
            Some(store) => {
                asks.iter().for_each(|(seq, words)| store.ask_for_mpi(*seq, words));
                store.answers_of_mpi()
            }
            None => asks.iter().map(|(seq, _)| (*seq, write_reply(&Answer::Refused(Refusal::Gone)).into())).collect(),
        };
        if answers.is_empty() {
            return;
        }
        for (seq, words) in answers {
            listener.machine.iter_mut().for_each(|machine| machine.answered(now(), seq, &words));
        }
        listener.perform(ranks);
    }
}

fn serve(edges: &mut Edges, cx: &mut Context<'_>) {
    for _ in 0..ROUNDS {
        let Edges { mpi: Some(listener), .. } = edges else { return };
        let Some(live) = &listener.live else { return };
        let Poll::Ready(Ok(mut ready)) = live.poll_read_ready(cx) else { return };
        if listener.set.ready(&mut listener.batch) == 0 {
            ready.clear_ready();
            continue;
        }
        if edges.ranks.launching() {
            // The process may be of a rank whose start is not taken in yet.
            rank_table::drain_outcomes(edges);
        }
        let Edges { mpi: Some(listener), ranks, .. } = edges else { return };
        listener.round(ranks);
    }
    cx.waker().wake_by_ref();
}

/// When something is due.
pub(super) fn deadline(edges: &Edges) -> Option<Mono> {
    let listener = edges.mpi.as_ref()?;
    let authorizer = listener.authorizer.as_ref().and_then(Authorizer::deadline);
    let machine = listener.machine.as_ref().and_then(Mpi::poll_timeout);
    earliest_of([listener.queue.deadline(), authorizer, listener.outcomes.deadline(), machine])
}

/// A rank is gone: files that its library has left are removed.
pub(super) fn reaped(edges: &mut Edges, proc: ProcId) {
    let Edges { mpi: Some(listener), ranks, .. } = edges else { return };
    let files = ranks.number_of(proc).map(|rank| listener.outcomes.files_of(rank)).unwrap_or_default();
    for path in files {
        if let Err(error) = rlaunch_sys::leftover_file::remove(&path) {
            tracing::debug!(%error, "{} stays", String::from_utf8_lossy(&path));
        }
    }
}
