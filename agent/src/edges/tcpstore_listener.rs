//! The listener at MASTER_PORT where it is ours: connections of torch's clients, their bytes to the listener and back.
//!
//! One set of descriptors for all of them, beside the runtime's: a task for each would cost more than what it is asked. Nothing is read of
//! a connection before it is known whose it is; until then its bytes wait in the kernel.

mod accept_queue;
mod authorizer;
mod silent_connections;

use super::client_socket;
use super::client_socket::{WRITABLE, client_of};
use crate::clock::now;
use crate::edges::live_set::LiveSet;
pub(super) use accept_queue::{AcceptQueue, PendingConnection};
pub(super) use authorizer::Authorizer;
pub(super) use authorizer::{Asker, Look, Looked};
use rlaunch_base::id::{ClientId, NodeId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use rlaunch_core::node::NodeEvent;
use rlaunch_keyvalue::listener::tcpstore::{Action, Broken, MAX_UNREAD, Peer, TcpStore};
use rlaunch_keyvalue::store::{Limits, Table};
use rlaunch_protocol::master_store::Guard as Whom;
use rlaunch_protocol::wire::limit::{Limit, Met};
use rlaunch_protocol::wire::peer_identity::{Answer, Comer, End, Question};
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::socket;
pub(super) use silent_connections::SilentConnections;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::task::Context;

/// The token of the listener: above those of all connections.
const LISTENER: u64 = u64::MAX;
/// Read at once.
const CHUNK: usize = 64 << 10;
/// Most that is ready at a time.
const BURST: usize = 256;
/// Descriptors that are not for connections: those of the ranks, three each, and what else this process needs.
const OTHERS: usize = 256;
const OF_RANK: usize = 4;
/// Share of all descriptors that may be connections of stores that are gone: one part in this many.
pub(super) const SILENT: u64 = 4;
/// Connections that there may be in any case.
const LEAST: usize = 16;
/// Rounds before others of this process have their turn.
const ROUNDS: usize = 16;

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    /// A byte has come.
    has_spoken: bool,
    /// The beginning of a request.
    held: Vec<u8>,
    /// Bytes that the client has not taken, and the copy of the descriptor that shows when it can. Nothing is read meanwhile.
    unsent: Vec<u8>,
    room: Option<OwnedFd>,
}

/// The listener, its connections, and what they share.
#[derive(Debug)]
pub(super) struct TcpStoreListener {
    store: TcpStore,
    queue: AcceptQueue,
    set: LiveSet,
    connections: Table<Connection>,
    /// Whether a process of the job has connected, and the machine knows of it.
    was_used: bool,
    reported: bool,
    /// Limits that were met since the machine was last notified of them: how often.
    met: BTreeMap<Limit, (Met, u32)>,
    chunk: Vec<u8>,
}

/// How many connections leave enough descriptors for everything else.
pub(super) fn most(origin: &Origin, ranks: u32) -> usize {
    let (_, limit) = origin.nofile_limits();
    let ranks = (ranks as usize).saturating_mul(OF_RANK);
    usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(OTHERS.saturating_add(ranks)).max(LEAST)
}

pub(super) fn address(addr: &OsBytes, port: u16) -> io::Result<SocketAddr> {
    let ip: Option<IpAddr> = std::str::from_utf8(addr).ok().and_then(|text| text.parse().ok());
    // An IPv4 address that stands in one of IPv6 is one of IPv4, as those are who come from there.
    ip.map(|ip| SocketAddr::new(ip.to_canonical(), port)).ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))
}

impl TcpStoreListener {
    pub(super) fn open(listener: TcpListener, whom: Whom, most: usize) -> io::Result<Self> {
        let set = LiveSet::with_room(BURST)?;
        Ok(Self {
            store: TcpStore::new(Limits::default()),
            queue: AcceptQueue::open(listener, whom, most, &set, LISTENER)?,
            set,
            connections: Table::default(),
            was_used: false,
            reported: false,
            met: BTreeMap::new(),
            chunk: vec![0; CHUNK],
        })
    }

    /// The numbers of its connections begin here.
    pub(super) const fn number_from(&mut self, first: u64) {
        self.queue.go_on(first);
    }

    /// When the next connection is given up of which another host says nothing.
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.queue.deadline()
    }

    /// Takes in what the last look has found.
    fn round(&mut self, tokens: Vec<u64>, authorizer: &mut Authorizer) {
        for token in tokens {
            match token {
                LISTENER => {
                    let pending = self.queue.take(&self.set, authorizer);
                    self.admit(pending);
                }
                token if token & WRITABLE != 0 => self.send(client_of(token)),
                token => self.read(client_of(token)),
            }
            // A client that is answered first continues while we read the others.
            self.perform();
        }
    }

    fn admit(&mut self, pending: Vec<PendingConnection>) {
        self.was_used |= !pending.is_empty();
        for (socket, peer) in pending {
            let ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
            let client = self.store.open(peer);
            if ready.and_then(|()| self.set.add(&socket, u64::from(client.get()))).is_err() {
                self.store.closed(now(), client);
                self.queue.left();
                continue;
            }
            let connection = Connection { socket, has_spoken: false, held: Vec::new(), unsent: Vec::new(), room: None };
            self.connections.insert(client, connection);
        }
    }

    fn read(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get_mut(client) else { return };
        let came = match socket::recv(&connection.socket, &mut self.chunk) {
            Ok(0) => return self.close(client),
            Ok(len) => {
                connection.has_spoken = true;
                self.chunk.get(..len).unwrap_or_default()
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => return self.close(client),
        };
        if connection.held.is_empty() {
            let used = self.store.receive(now(), client, came);
            connection.held.extend_from_slice(came.get(used..).unwrap_or_default());
        } else {
            connection.held.extend_from_slice(came);
            let used = self.store.receive(now(), client, &connection.held);
            connection.held.drain(..used.min(connection.held.len()));
            if connection.held.is_empty() {
                // It may have been 64 MiB.
                connection.held = Vec::new();
            }
        }
    }

    /// Does what the listener asks for.
    fn perform(&mut self) {
        while let Some(action) = self.store.poll_action() {
            match action {
                Action::Write { client, bytes } => self.write(client, bytes),
                Action::Close { client, why } => {
                    tracing::debug!("a client of the store is closed: {why}");
                    self.meet(&why);
                    self.close(client);
                }
            }
        }
    }

    fn write(&mut self, client: ClientId, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(client) else { return };
        if connection.unsent.is_empty() {
            connection.unsent = bytes;
            return self.send(client);
        }
        let len = connection.unsent.len().saturating_add(bytes.len());
        if len > MAX_UNREAD {
            tracing::debug!("a client of the store does not read its answers");
            self.meet(&Broken::Unread(len));
            return self.close(client);
        }
        connection.unsent.extend(bytes);
        self.store.unread(client, len);
    }

    fn meet(&mut self, why: &Broken) {
        if let Some(met) = why.met() {
            let (last, count) = self.met.entry(met.limit).or_insert_with(|| (met.clone(), 0));
            (*last, *count) = (met, count.saturating_add(1));
        }
    }

    /// Writes what can be written. A client that takes nothing is not read from.
    fn send(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get_mut(client) else { return };
        let Ok(sent) = client_socket::send(&connection.socket, &connection.unsent) else { return self.close(client) };
        if sent < connection.unsent.len() {
            connection.unsent.drain(..sent);
        } else {
            connection.unsent = Vec::new();
        }
        let unread = connection.unsent.len();
        if connection.turn(&self.set, client).is_err() {
            return self.close(client);
        }
        self.store.unread(client, unread);
    }

    fn close(&mut self, client: ClientId) {
        let Some(connection) = self.connections.remove(client) else { return };
        self.set.remove(&connection.socket);
        connection.room.iter().for_each(|room| self.set.remove(room));
        self.store.closed(now(), client);
        self.queue.left();
    }
}

impl Connection {
    fn turn(&mut self, set: &ReadySet, client: ClientId) -> io::Result<()> {
        client_socket::watch(set, client, &self.socket, &mut self.room, !self.unsent.is_empty())
    }
}

/// Results of a look at the stores.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) events: Vec<NodeEvent>,
    pub(super) questions: Vec<Question>,
    /// Answers for other hosts.
    pub(super) hosts: Vec<(NodeId, Comer, Option<Peer>)>,
}

impl TcpStoreListener {
    /// Serves clients that have sent requests.
    pub(super) fn serve(&mut self, authorizer: &mut Authorizer, cx: &mut Context<'_>) {
        for _ in 0..ROUNDS {
            let Some(tokens) = self.set.poll(cx) else { return };
            self.round(tokens, authorizer);
        }
        cx.waker().wake_by_ref();
    }

    /// Lets in or closes those of which it is known by now whose they are; answers for other hosts.
    pub(super) fn admit_known(&mut self, known: Vec<(Asker, Option<Peer>)>) -> Vec<(NodeId, Comer, Option<Peer>)> {
        let (mut pending, mut asked) = (Vec::new(), Vec::new());
        for (asker, peer) in known {
            match asker {
                Asker::Queue(number) => pending.extend(self.queue.record_owner(number, peer)),
                Asker::Host(node, comer) => asked.push((node, comer, peer)),
            }
        }
        if !pending.is_empty() {
            self.admit(pending);
            self.perform();
        }
        asked
    }

    /// Another host has answered.
    pub(super) fn answered(&mut self, answer: &Answer, authorizer: &mut Authorizer) {
        self.queue.answered(answer, authorizer);
    }

    /// Ends it. Returns how many connections came, and those that were silent.
    pub(super) fn end(self) -> (u64, impl Iterator<Item = TcpStream>) {
        let silent = self.connections.into_values().filter(|connection| !connection.has_spoken);
        (self.queue.came(), silent.map(|connection| connection.socket))
    }

    /// Adds what others have to know.
    pub(super) fn report(&mut self, asker: NodeId, news: &mut News) {
        self.queue.turn(now(), &self.set);
        if self.was_used && !std::mem::replace(&mut self.reported, true) {
            news.events.push(NodeEvent::StoreUsed);
        }
        if let Some((count, from, foreign)) = self.queue.refused() {
            let text = |from: SocketAddr| OsBytes::from(from.to_string());
            let foreign = foreign.map(|from| OsBytes::from(from.ip().to_string()));
            news.events.push(NodeEvent::StoreRefused { from: text(from), count, foreign });
        }
        let met = std::mem::take(&mut self.met).into_values();
        news.events.extend(met.map(|(met, count)| NodeEvent::StoreLimit { met, count }));
        let (to, guard) = (End::from(self.queue.own()), self.queue.whom());
        let questions = self.queue.questions().into_iter().map(|comers| Question { asker, to, comers, guard });
        news.questions.extend(questions);
    }
}
