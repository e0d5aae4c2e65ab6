//! Our own listener: a unix socket at which ranks, and what they start, ask the job's store. [`namespaces`] answers them.

mod client;
mod mpi_clients;
mod namespaces;
#[cfg(test)]
mod tests;

pub(super) use mpi_clients::of_mpi;

use super::Link;
use super::mpi::Ask;
use super::sessions::Newcomer;
use crate::clock::now;
use crate::edges::live_set::LiveSet;
use crate::edges::part::{Base, Part};
use bytes::Bytes;
use client::{Client, HANG_UP, Parted, WRITABLE};
use mpi_clients::{of_mpi_in_first, world_of_mpi};
use namespaces::Namespaces;
use rlaunch_base::id::{ClientId, NodeId, WorldId};
use rlaunch_base::machine::earliest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::node::{NodeEvent, StoreAction};
use rlaunch_keyvalue::store::buffers::BufferQuota;
use rlaunch_keyvalue::store::cache::ITSELF;
use rlaunch_keyvalue::store::{Answer, Refusal, Seq, Table, Ticket};
use rlaunch_mpi::Reach;
use rlaunch_net::Connection;
use rlaunch_protocol::wire::frozen::client::{Asked, MAX_FRAME, Space, write_reply};
use rlaunch_protocol::wire::order::{Asker, RankOrder};
use rlaunch_protocol::wire::to_node::WorldRank;
use rlaunch_sys::facts::error_file;
use rlaunch_sys::guardian::TempFiles;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::task::Context;

const LISTENER: u64 = u64::MAX;
/// Bytes of the length of a frame.
const LENGTH: usize = 4;
/// Read at once.
const CHUNK: usize = 64 << 10;
/// Most that is ready at a time.
const BURST: usize = 256;
/// Rounds before others of this process have their turn.
const ROUNDS: usize = 16;
/// Descriptors that are not for clients, and clients that there may be in any case.
const OTHERS: usize = 256;
const LEAST: usize = 16;
/// How long descriptors are left to others where there are none.
const RETRY: Span = Span::from_millis(100);
/// Bytes that wait for the launcher before clients are not read any more.
const AHEAD: usize = 4 << 20;
/// Most bytes that are held for all clients together: incomplete requests and unread answers.
const MOST_BUFFERED: usize = 512 << 20;

/// The listener and the namespaces that it serves.
#[derive(Debug)]
pub(super) struct Store {
    listener: UnixListener,
    set: LiveSet,
    chunk: Vec<u8>,
    clients: Table<Client>,
    buffers: BufferQuota,
    last: u32,
    /// No descriptor can be had for another client until one leaves.
    is_full: bool,
    /// When it is tried again whether there are some.
    retry: Option<Mono>,
    /// How many clients leave enough descriptors for ranks and for the other listener.
    most: usize,
    /// Clients that turned out to be processes that take part in rounds.
    newcomers: Vec<Newcomer>,
    /// Clients that are not read because too much waits for the launcher.
    held: Vec<ClientId>,
    namespaces: Namespaces,
}

/// Listens. Returns also the path of the socket. A job can do without.
pub(super) fn open(base: &Base) -> Option<(Store, OsBytes)> {
    // Its answers must not wait for a file server, and a logout must not take it from a job that continues.
    let dir =
        Some(error_file::lasting_dir()).filter(|dir| error_file::is_near(dir)).unwrap_or_else(|| b"/tmp".to_vec());
    let (_, descriptors) = base.origin.nofile_limits();
    let most = usize::try_from(descriptors).unwrap_or(usize::MAX).saturating_sub(OTHERS) / 2;
    let opened = Store::open(base.node, base.temp_files, Path::new(OsStr::from_bytes(&dir)), most.max(LEAST));
    opened.inspect_err(|error| tracing::debug!(%error, "there is no socket for clients of the store")).ok()
}

impl Part for Store {
    type Action = StoreAction;

    fn perform(&mut self, _base: &mut Base, action: StoreAction) {
        match action {
            StoreAction::Open { here, number, ranks } => self.begin(here, number, ranks),
            StoreAction::OrderDone { asker, reply } => self.order_done(asker, &reply),
        }
    }

    /// Serves clients that have sent requests.
    fn poll(&mut self, base: &mut Base, cx: &mut Context<'_>) {
        if self.deadline().is_some_and(|at| at <= now()) {
            self.handle_timeout();
        }
        self.look(cx);
        self.send(&mut base.link);
        base.events.extend(self.orders().into_iter().map(|order| NodeEvent::Ordered(Box::new(order))));
    }

    /// When a wait ends.
    fn deadline(&self) -> Option<Mono> {
        earliest(self.namespaces.poll_timeout(), self.retry)
    }
}

impl Store {
    fn open(node: NodeId, temp_files: TempFiles, dir: &Path, most: usize) -> io::Result<(Self, OsBytes)> {
        let (listener, path) = rlaunch_sys::unix::listen(dir, |path| temp_files.note(path))?;
        let set = LiveSet::with_room(BURST)?;
        set.add(&listener, LISTENER)?;
        let store = Self {
            listener,
            set,
            chunk: Vec::new(),
            clients: Table::default(),
            buffers: BufferQuota::new(MOST_BUFFERED),
            last: 0,
            is_full: false,
            retry: None,
            most,
            newcomers: Vec::new(),
            held: Vec::new(),
            namespaces: Namespaces::new(node),
        };
        Ok((store, OsBytes::new(path.into_os_string().into_vec())))
    }

    /// Sets the owner of the namespace that ranks share now: these, or all that are started here. It is a new one.
    pub(super) fn begin(&mut self, here: bool, number: u32, ranks: Option<RankSet>) {
        self.namespaces.now = now();
        self.namespaces.close_first();
        self.exchange();
        self.namespaces.begin_first(here, number, ranks);
        self.receive_early();
    }

    /// Opens the namespace of another world.
    pub(super) fn open_world(&mut self, world: WorldId, number: u32, here: bool) {
        self.namespaces.now = now();
        self.namespaces.open_world(world, number, here);
        self.receive_early();
    }

    /// None of the ranks of this world runs any more.
    pub(super) fn close_world(&mut self, world: WorldId) {
        self.namespaces.now = now();
        self.namespaces.close_world(world);
        self.exchange();
        self.namespaces.remove_world(world);
    }

    /// Adds one of this host's ranks.
    pub(super) fn add_rank(&mut self, world_rank: WorldRank) {
        self.namespaces.add_rank(world_rank);
    }

    /// Takes in a passage that the launcher passes on.
    pub(super) fn receive_passage(&mut self, node: NodeId, bytes: &[u8]) {
        self.namespaces.now = now();
        self.namespaces.receive_passage(node, bytes);
        self.exchange();
    }

    /// Takes in the passages that came before their namespace. Other hosts may have begun before this one.
    fn receive_early(&mut self) {
        let early = std::mem::take(&mut self.namespaces.early);
        early.into_iter().for_each(|(node, bytes)| self.receive_passage(node, &bytes));
    }

    /// Takes in what has come, as much as is fair to others.
    fn look(&mut self, cx: &mut Context<'_>) {
        for _ in 0..ROUNDS {
            let Some(tokens) = self.set.poll(cx) else { return };
            self.round(tokens);
        }
        cx.waker().wake_by_ref();
    }

    fn round(&mut self, tokens: Vec<u64>) {
        self.namespaces.now = now();
        for token in tokens {
            match token {
                LISTENER => self.accept(),
                token if token & HANG_UP != 0 => self.part(client_of(token), &Parted::Left),
                token => self.turn(client_of(token), token & WRITABLE == 0),
            }
        }
        self.exchange();
    }

    fn accept(&mut self) {
        for _ in 0..BURST {
            if self.clients.len() >= self.most {
                tracing::warn!("the store takes no more than {} clients", self.most);
                return self.shut();
            }
            match self.listener.accept() {
                Ok((socket, _)) => {
                    // Root can look at everything, and is accepted. Our own client does not use the socket of another user, as root either.
                    let user = rlaunch_sys::unix::user_of(&socket);
                    if !user.is_ok_and(|user| user == 0 || user == rlaunch_sys::facts::host::user().0) {
                        tracing::debug!("somebody else has come to our socket");
                        continue;
                    }
                    let id = self.number();
                    if let Ok(client) = Client::new(socket, u64::from(id.get()), &self.set) {
                        self.clients.insert(id, client);
                    }
                }
                Err(error) if rlaunch_sys::is_aborted_connection(&error) => {}
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        tracing::warn!(%error, "the store takes no more clients");
                        self.shut();
                        // Descriptors may become free elsewhere. Until then the listener would be ready all the time.
                        self.retry = Some(now() + RETRY);
                    }
                    return;
                }
            }
        }
    }

    /// Stops accepting until a client leaves.
    fn shut(&mut self) {
        self.is_full = true;
        self.set.remove(&self.listener);
    }

    fn reopen(&mut self) {
        self.retry = None;
        if std::mem::take(&mut self.is_full) {
            self.is_full = self.set.add(&self.listener, LISTENER).is_err();
            self.retry = self.is_full.then(|| now() + RETRY);
        }
    }

    /// Returns the number for a new client: no number is given twice in a long time, and that of the caches themselves never.
    fn number(&mut self) -> ClientId {
        let mut id = self.clients.free_from(self.last.wrapping_add(1));
        if id == ITSELF || world_of_mpi(id).is_some() {
            id = self.clients.free_from(1);
        }
        self.last = id.get();
        id
    }

    fn turn(&mut self, id: ClientId, is_readable: bool) {
        let read = if is_readable { self.read(id) } else { Ok(()) };
        if let Err(parted) = read.and_then(|()| self.serve(id)) {
            self.part(id, &parted);
        }
    }

    /// Takes in what a client says. An ask that came by itself, as most do, is done from where it was read.
    fn read(&mut self, id: ClientId) -> Result<(), Parted> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(()) };
        // Not before: most jobs have no client, and the memory would be cleared before the first rank starts.
        self.chunk.resize(CHUNK, 0);
        let len = client.read(&mut self.chunk)?;
        match self.chunk.get(..len) {
            None | Some([]) => Ok(()),
            Some(frame) => {
                if let Some((seq, answer)) = self.namespaces.receive(id, frame, &|| client.refusal())? {
                    client.reply(seq, &answer);
                }
                Ok(())
            }
        }
    }

    /// Whatever a client has asked and was not begun.
    fn serve(&mut self, id: ClientId) -> Result<(), Parted> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(()) };
        loop {
            while let Some(frame) = client.frame()? {
                if let Some(world) = client.announces(&frame) {
                    self.namespaces.worlds.insert(id, world);
                    continue;
                }
                if client.registers(&frame) {
                    self.hand_over(id, frame);
                    return Ok(());
                }
                let said = self.namespaces.receive(id, &frame, &|| client.refusal())?;
                client.done(frame);
                said.iter().for_each(|(seq, answer)| client.reply(*seq, answer));
            }
            let hold = self.namespaces.waiting > AHEAD;
            if hold {
                self.held.push(id);
            }
            client.flush(&self.set, hold)?;
            client.charge(&mut self.buffers)?;
            // After it has taken its answers, its next request has its turn.
            if hold || !client.has_more() {
                return Ok(());
            }
        }
    }

    /// Hands over a client that takes part in rounds; it uses the store by other connections.
    fn hand_over(&mut self, id: ClientId, register: Vec<u8>) {
        let Some(client) = self.clients.remove(id) else { return };
        client.release(&mut self.buffers);
        let world = self.namespaces.worlds.remove(&id);
        self.newcomers.push(client.hand_over(&self.set, register, world));
        self.reopen();
    }

    /// The machine of MPI of a world asks.
    pub(super) fn ask_for_mpi(&mut self, world: WorldId, Ask { reach, seq, words }: &Ask) {
        self.namespaces.now = now();
        let frame = Asked { seq: *seq, space: Space::Generation, words }.to_frame();
        let client = match reach {
            Reach::World => of_mpi(world),
            Reach::Job => of_mpi_in_first(world),
        };
        let len = frame.len().saturating_sub(LENGTH);
        let answer = if len > MAX_FRAME {
            // An edge to the owner takes no such message. It would be closed, and the host lost.
            Some(Answer::Refused(Refusal::LongValue { key: OsBytes::default(), len, most: MAX_FRAME }))
        } else {
            self.namespaces.receive(client, &frame, &|| None).ok().flatten().map(|(_, answer)| answer)
        };
        if let Some(answer) = answer {
            self.namespaces.of_mpi.push((world, *seq, write_reply(&answer).into()));
        }
        self.exchange();
    }

    /// Returns the answers for the machines of MPI.
    pub(super) fn answers_of_mpi(&mut self) -> Vec<(WorldId, u64, Bytes)> {
        std::mem::take(&mut self.namespaces.of_mpi)
    }

    /// Returns the orders of ranks.
    fn orders(&mut self) -> Vec<RankOrder> {
        let mut orders = std::mem::take(&mut self.namespaces.orders);
        for order in &mut orders {
            order.rank = self.clients.get(order.asker.client).and_then(Client::rank);
        }
        orders
    }

    /// The answer to an order, of a client or of a machine of MPI.
    pub(super) fn order_done(&mut self, asker: Asker, reply: &[u8]) {
        let ticket = Ticket { client: asker.client, seq: Seq(asker.seq) };
        self.namespaces.now = now();
        self.namespaces.answers.push_back((ticket, Bytes::copy_from_slice(reply)));
        self.exchange();
    }

    /// Returns the clients that take part in rounds.
    pub(super) fn newcomers(&mut self) -> Vec<Newcomer> {
        std::mem::take(&mut self.newcomers)
    }

    fn part(&mut self, id: ClientId, parted: &Parted) {
        let Some(client) = self.clients.remove(id) else { return };
        let why = match parted {
            Parted::Left => None,
            Parted::Wrong(why) => {
                tracing::debug!("a client of the store is let go: {why}");
                Some(&**why)
            }
        };
        client.release(&mut self.buffers);
        client.part(&self.set, why);
        self.namespaces.remove_client(id);
        self.reopen();
    }

    /// Exchanges the messages of all caches and the owner, until there are none.
    fn exchange(&mut self) {
        loop {
            self.namespaces.exchange();
            if self.namespaces.answers.is_empty() {
                return;
            }
            while let Some((ticket, words)) = self.namespaces.answers.pop_front() {
                if let Some(world) = world_of_mpi(ticket.client) {
                    self.namespaces.of_mpi.push((world, ticket.seq.0, words));
                    continue;
                }
                let Some(client) = self.clients.get_mut(ticket.client) else { continue };
                client.answer(ticket.seq.0, &words);
                self.turn(ticket.client, false);
            }
        }
    }

    /// Gives the launcher what it has room for.
    fn send(&mut self, link: &mut Link) {
        let Some(link) = link else { return };
        while link.has_store_room()
            && let Some((node, bytes)) = self.namespaces.out.pop_front()
        {
            self.namespaces.waiting = self.namespaces.waiting.saturating_sub(bytes.len());
            // It has room: the limit is far away.
            let _room = link.store(node, &bytes);
        }
        if self.namespaces.waiting <= AHEAD && !self.held.is_empty() {
            self.namespaces.now = now();
            std::mem::take(&mut self.held).into_iter().for_each(|id| self.turn(id, false));
        }
    }

    fn handle_timeout(&mut self) {
        let now = now();
        self.namespaces.handle_timeout(now);
        if self.retry.is_some_and(|at| at <= now) {
            self.reopen();
        }
        self.exchange();
    }

    /// Whether more could be queued at once: the kernel took all that was, so nothing else wakes us.
    pub(super) fn has_more(&self, link: &Link) -> bool {
        !self.namespaces.out.is_empty() && link.as_ref().is_some_and(Connection::has_store_room)
    }
}

fn client_of(token: u64) -> ClientId {
    ClientId::new(u32::try_from(token & (WRITABLE - 1)).unwrap_or(0))
}
