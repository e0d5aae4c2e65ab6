//! The front for torch's `TCPStore`: programs that use `env://`, unchanged, from torch 1.13 to 2.15.
//!
//! It answers as torch's own server does, limits and oddities included, for programs have been written against those. It differs where
//! that server is plainly wrong. A comparison that set nothing wakes no waiter. A wait that the client of 1.13 has given up is forgotten,
//! and does not answer the request after it. A counter is a number and nothing else, and does not overflow. A key that is deleted takes
//! its queue along. And nothing may be without end: a request, or its answer, has 64 MiB at most.
//!
//! Keys stay when the last connection closes. A process group that is made again begins with an empty store (`epochs`).

mod epochs;
mod met;
mod reply;
#[cfg(test)]
mod tests;

use crate::store::{Action as Stored, Ask, Expected, Limits, Namespace, Refusal, Seq, Table, Ticket};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use epochs::{Epoch, Epochs, MEETS};
use reply::Reply;
use rlaunch_base::error::Hint;
use rlaunch_base::id::ClientId;
use rlaunch_base::time::Mono;
use rlaunch_protocol::wire::tcpstore_wire::{Dialect, MAGIC, Malformed, Parsed, Request, Strings, answer, parse};

/// Most bytes that wait for a client that does not read.
pub const MAX_UNREAD: usize = 64 << 20;

/// Bytes of a request that has not arrived whole which are free of charge, for each connection.
const FREE_REQUEST: usize = 4 << 10;
/// Bytes of unread answers which are free of charge: one answer, as long as a value may be. A client reads an answer before its next request.
const FREE_ANSWER: usize = 8 << 20;

/// Process that a connection comes from, as its owner distinguishes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Peer(pub u64);

/// Why a connection is closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    /// The bytes are no request.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The client announces another protocol.
    #[error("it speaks protocol {0:#x}, which is none of torch's")]
    OtherProtocol(u32),
    /// The store refuses: there are no words for that on this wire.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The answer to its request is too long.
    #[error("an answer of {0} bytes is longer than {MAX_UNREAD}")]
    LongAnswer(usize),
    /// The client does not read its answers.
    #[error("{0} bytes of answers wait for it")]
    Unread(usize),
    /// The quota has no room for the bytes that are held for the connection.
    #[error(
        "a request that has not arrived whole, or an answer that was not read, does not fit: {used} of {most} bytes are in use"
    )]
    Full {
        /// Bytes in use.
        used: usize,
        /// The limit in bytes.
        most: usize,
    },
}

impl Hint for Broken {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Malformed(malformed) => malformed.hint(),
            Self::OtherProtocol(_) => Some("torch 1.13 and 2.1 to 2.15 are understood".into()),
            Self::Refused(refusal) => refusal.hint(),
            Self::LongAnswer(_) => Some("ask for fewer keys at once".into()),
            Self::Unread(_) => Some("a client reads each answer before it asks on; see whether it is stopped".into()),
            Self::Full { .. } => {
                Some("send fewer large values at once; see whether clients stop in the middle of a request".into())
            }
        }
    }
}

/// An action for the owner of the sockets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send these bytes.
    Write {
        /// To whom.
        client: ClientId,
        /// The bytes follow those that were to be sent before.
        bytes: Vec<u8>,
    },
    /// Close the connection, and say `closed`.
    Close {
        /// Whose.
        client: ClientId,
        /// Why.
        why: Broken,
    },
}

#[derive(Debug)]
struct Session {
    peer: Peer,
    dialect: Option<Dialect>,
    /// Whether it is known which of two dialects with the same begin it is.
    is_dialect_known: bool,
    next: Seq,
    /// Whose keys it sees; and whether that is decided, because it has asked for some.
    epoch: Epoch,
    has_asked: bool,
    /// Requests that wait, in their order, and how they will be answered.
    waits: Vec<(Seq, Reply)>,
    out: Vec<u8>,
    /// Number of bytes that are needed before the next parse.
    needed: usize,
    /// Bytes of a request that has not arrived whole.
    partial: usize,
    /// Bytes of answers that the client has not read.
    unread: usize,
    /// Bytes of both that are charged to the session's namespace.
    charged: usize,
    is_broken: bool,
}

/// The connections of a process, which may be many.
#[derive(Debug, Default)]
struct Process {
    connections: BTreeSet<ClientId>,
    /// The epoch of those connections that have asked, and their number: all are in the same one.
    asked: Option<(Epoch, usize)>,
}

impl Process {
    fn has_asked(&mut self, epoch: Epoch) {
        let (_, count) = self.asked.get_or_insert((epoch, 0));
        *count = count.saturating_add(1);
    }

    fn leave(&mut self, client: ClientId, has_asked: bool) {
        self.connections.remove(&client);
        let asked = self.asked.map(|(epoch, count)| (epoch, count.saturating_sub(usize::from(has_asked))));
        self.asked = asked.filter(|(_, count)| *count > 0);
    }
}

/// A store as torch's clients see it.
#[derive(Debug)]
pub struct TcpStore {
    epochs: Epochs,
    sessions: Table<Session>,
    peers: BTreeMap<Peer, Process>,
    next: u32,
    /// Clients that have bytes to be sent, once each. The last is first: a program that reads the answers to many of its connections in
    /// the order in which it has asked finds all of them when the first one wakes it, and is not woken for each.
    ready: Vec<ClientId>,
    broken: VecDeque<(ClientId, Broken)>,
}

impl TcpStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            epochs: Epochs::new(limits),
            sessions: Table::default(),
            peers: BTreeMap::new(),
            next: 0,
            ready: Vec::new(),
            broken: VecDeque::new(),
        }
    }

    /// A connection.
    pub fn open(&mut self, peer: Peer) -> ClientId {
        let client = self.sessions.free_from(self.next);
        self.next = client.get().wrapping_add(1);
        let session = Session {
            peer,
            dialect: None,
            is_dialect_known: false,
            next: Seq(1),
            epoch: self.epochs.enter(),
            has_asked: false,
            waits: Vec::new(),
            out: Vec::new(),
            needed: 1,
            partial: 0,
            unread: 0,
            charged: 0,
            is_broken: false,
        };
        self.sessions.insert(client, session);
        self.peers.entry(peer).or_default().connections.insert(client);
        client
    }

    /// A connection is closed.
    pub fn closed(&mut self, now: Mono, client: ClientId) {
        let Some(session) = self.sessions.remove(client) else { return };
        if let Some(keys) = self.epochs.keys(session.epoch) {
            let _shrinks = keys.hold(session.charged, 0);
        }
        if let Some(own) = self.peers.get_mut(&session.peer) {
            own.leave(client, session.has_asked);
            if own.connections.is_empty() {
                self.peers.remove(&session.peer);
            }
        }
        self.epochs.leave(session.epoch, client, session.has_asked);
        self.route(now, session.epoch);
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes from a connection: those that were left over, and what has come behind them. How many of them are done with; the rest
    /// is to be given again, when more has come.
    pub fn receive(&mut self, now: Mono, client: ClientId, bytes: &[u8]) -> usize {
        let used = self.take_requests(now, client, bytes);
        self.hold(client, |session| session.partial = bytes.len().saturating_sub(used));
        used
    }

    /// Reports how many bytes of answers wait because the client has not read them.
    pub fn unread(&mut self, client: ClientId, bytes: usize) {
        self.hold(client, |session| session.unread = bytes);
    }

    /// Changes the bytes that are held for a connection, and charges them. A connection for which the quota has no room is closed.
    fn hold(&mut self, client: ClientId, change: impl FnOnce(&mut Session)) {
        let Some(session) = self.sessions.get_mut(client).filter(|session| !session.is_broken) else { return };
        change(session);
        let free = |bytes: usize, free| bytes.saturating_sub(free);
        let wanted = free(session.partial, FREE_REQUEST).saturating_add(free(session.unread, FREE_ANSWER));
        if wanted == session.charged {
            return;
        }
        let Some(keys) = self.epochs.keys(session.epoch) else { return };
        if keys.hold(session.charged, wanted) {
            session.charged = wanted;
        } else {
            let (used, most) = keys.used();
            self.break_off(client, Broken::Full { used, most });
        }
    }

    fn take_requests(&mut self, now: Mono, client: ClientId, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let Some(session) = self.sessions.get(client).filter(|session| !session.is_broken) else {
                return bytes.len();
            };
            if rest.len() < session.needed {
                return used;
            }
            match self.first(now, client, rest) {
                Ok(0) => return used,
                Ok(more) => used += more,
                Err(why) => {
                    self.break_off(client, why);
                    return bytes.len();
                }
            }
        }
    }

    /// The next thing to do.
    #[must_use]
    pub fn poll_action(&mut self) -> Option<Action> {
        while let Some(client) = self.ready.pop() {
            let out = self.sessions.get_mut(client).map(|session| core::mem::take(&mut session.out));
            if let Some(bytes) = out.filter(|out| !out.is_empty()) {
                return Some(Action::Write { client, bytes });
            }
        }
        self.broken.pop_front().map(|(client, why)| Action::Close { client, why })
    }

    /// Handles the first request of some bytes: the number of its bytes, or 0 if it is not complete.
    fn first(&mut self, now: Mono, client: ClientId, bytes: &[u8]) -> Result<usize, Broken> {
        let Some(dialect) = self.dialect(client, bytes) else { return Ok(0) };
        let parsed = parse(dialect, bytes)?;
        let Some(session) = self.sessions.get_mut(client) else { return Ok(0) };
        match parsed {
            Parsed::More(needed) => {
                session.needed = needed;
                Ok(0)
            }
            Parsed::Request(request, used) => {
                session.needed = 1;
                // The request is charged when it is performed, and the session may use another namespace from now on.
                self.hold(client, |session| session.partial = 0);
                // A client has one request under way: one that asks something else has given up to wait. That of 1.13 does not say so.
                if !matches!(request, Request::WatchKey(_)) {
                    self.forget_waits(client);
                }
                self.answer(now, client, request)?;
                Ok(used)
            }
        }
    }

    /// The opcodes that a connection uses. 1.13 and 2.1 begin alike. They part at opcodes 7 and 8, and the first of these decides. Only a
    /// process with 1.13 has a second connection, on which it has sent nothing yet, or watches keys.
    fn dialect(&mut self, client: ClientId, bytes: &[u8]) -> Option<Dialect> {
        let session = self.sessions.get(client)?;
        if session.dialect == Some(Dialect::Validated) {
            return session.dialect;
        }
        let first = *bytes.first()?;
        let (mut dialect, mut is_dialect_known) = (session.dialect, session.is_dialect_known);
        if !is_dialect_known && matches!(first, 7 | 8) {
            let is_watching = self.has_idle_sibling(client, session.peer);
            (dialect, is_dialect_known) = (Some(if is_watching { Dialect::Watching } else { Dialect::Plain }), true);
        }
        if dialect.is_none() {
            dialect = Dialect::detect(bytes);
        }
        let session = self.sessions.get_mut(client)?;
        (session.dialect, session.is_dialect_known) = (dialect, is_dialect_known);
        dialect
    }

    /// Whether the process has another connection that is silent, or one that speaks as 1.13. The watching one itself asks while the
    /// other has spoken long ago.
    fn has_idle_sibling(&self, client: ClientId, peer: Peer) -> bool {
        let own_is_new = self.sessions.get(client).is_some_and(|session| session.dialect.is_none());
        let all = self.peers.get(&peer).into_iter().flat_map(|own| &own.connections);
        let others = all.filter(|other| **other != client);
        let mut others = others.filter_map(|other| self.sessions.get(*other));
        others.any(|other| own_is_new || matches!(other.dialect, None | Some(Dialect::Watching)))
    }

    /// Whose keys a connection sees.
    fn epoch(&mut self, client: ClientId, meets: bool) -> Option<Epoch> {
        let session = self.sessions.get(client)?;
        if session.has_asked {
            return Some(session.epoch);
        }
        let (peer, at) = (session.peer, session.epoch);
        let other = self.peers.get(&peer).and_then(|own| own.asked).map(|(epoch, _)| epoch);
        let unread = core::mem::take(&mut self.sessions.get_mut(client)?.unread);
        self.hold(client, |session| session.unread = 0);
        let epoch = self.epochs.enter_first(peer, client, at, other, meets);
        self.peers.entry(peer).or_default().has_asked(epoch);
        let session = self.sessions.get_mut(client)?;
        (session.epoch, session.has_asked) = (epoch, true);
        self.hold(client, |session| session.unread = unread);
        Some(epoch)
    }

    fn answer(&mut self, now: Mono, client: ClientId, request: Request<'_>) -> Result<(), Broken> {
        let (ask, reply) = match request {
            Request::Validate(MAGIC) => return Ok(()),
            Request::Validate(other) => return Err(Broken::OtherProtocol(other)),
            Request::Ping(nonce) => return self.write(client, |out| answer::pong(out, nonce)),
            Request::Set { key, value } => (Ask::Set(key, value), Reply::Nothing),
            Request::CompareSet { key, expected: b"", desired } => {
                (Ask::CompareSet { key, expected: Expected::AbsentOr(b""), desired }, Reply::Compared(Vec::new()))
            }
            Request::CompareSet { key, expected, desired } => (
                Ask::CompareSet { key, expected: Expected::Value(expected), desired },
                Reply::Compared(expected.to_vec()),
            ),
            Request::Get(key) => (Ask::Get(key), Reply::Value),
            Request::Add(key, by) => (Ask::Add(key, by), Reply::Number),
            Request::Check(strings) => return self.ask(now, client, Ask::Check(&keys(strings)), Reply::Checked),
            Request::Wait(strings) => {
                return self.ask(now, client, Ask::Wait { keys: &keys(strings), within: None }, Reply::Ready);
            }
            Request::CancelWait => {
                if let Some(epoch) = self.epoch(client, false)
                    && let Some(keys) = self.epochs.keys(epoch)
                {
                    keys.pass_on(client);
                    self.route(now, epoch);
                }
                return self.write(client, |out| answer::byte(out, answer::CANCELED));
            }
            Request::GetNumKeys => (Ask::Count, Reply::Number),
            Request::WatchKey(key) => return self.watch(now, client, key),
            Request::Delete(key) => (Ask::Delete(key), Reply::Number),
            Request::Append { key, value } => (Ask::Append(key, value), Reply::Nothing),
            Request::MultiGet(strings) => return self.ask(now, client, Ask::GetAll(&keys(strings)), Reply::Values),
            Request::MultiSet(strings) => {
                let all = keys(strings);
                let pairs: Vec<_> = all.as_chunks::<2>().0.iter().map(|[key, value]| (*key, *value)).collect();
                return self.ask(now, client, Ask::SetAll(&pairs), Reply::Nothing);
            }
            Request::QueuePush { key, value } => (Ask::Push(key, value), Reply::Nothing),
            Request::QueuePop(key) => {
                self.ask(now, client, Ask::Len(key), Reply::Number)?;
                (Ask::Pop(key), Reply::Popped)
            }
            Request::QueueLen(key) => (Ask::Len(key), Reply::Number),
            Request::ListKeys => (Ask::List { prefix: b"", after: None, most: usize::MAX }, Reply::Listed),
            Request::Barrier { key, world_size } => {
                (Ask::Gather { key, until: world_size, within: None }, Reply::Ready)
            }
        };
        self.ask(now, client, ask, reply)
    }

    /// Watches a key: 1.13 is notified of each change, until it closes.
    fn watch(&mut self, now: Mono, client: ClientId, key: &[u8]) -> Result<(), Broken> {
        self.write(client, |out| answer::byte(out, answer::WATCHED))?;
        let epoch = self.epoch(client, false);
        let was = epoch.and_then(|epoch| self.epochs.keys(epoch)?.get(key));
        let reply = Reply::Watched { key: key.to_vec(), was };
        self.ask(now, client, Ask::Watch { key, since: None, within: None }, reply)
    }

    fn ask(&mut self, now: Mono, client: ClientId, ask: Ask<'_>, reply: Reply) -> Result<(), Broken> {
        let meets = matches!(ask, Ask::Add(key, 1) if key == MEETS);
        let Some(epoch) = self.epoch(client, meets) else { return Ok(()) };
        self.submit(now, epoch, client, ask, reply);
        self.route(now, epoch);
        Ok(())
    }

    fn submit(&mut self, now: Mono, epoch: Epoch, client: ClientId, ask: Ask<'_>, reply: Reply) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let Some(keys) = self.epochs.keys(epoch) else { return };
        let ticket = Ticket { client, seq: session.next };
        session.next = Seq(session.next.0.wrapping_add(1));
        session.waits.push((ticket.seq, reply));
        keys.ask(now, ticket, ask);
    }

    /// Routes answers to the clients that have asked, whichever request made them possible.
    fn route(&mut self, now: Mono, epoch: Epoch) {
        while let Some(Stored::Answer { ticket, answer }) = self.epochs.keys(epoch).and_then(Namespace::poll_action) {
            let client = ticket.client;
            let Some(session) = self.sessions.get_mut(client).filter(|session| !session.is_broken) else { continue };
            let Ok(at) = session.waits.binary_search_by_key(&ticket.seq, |(seq, _)| *seq) else { continue };
            let (_, reply) = session.waits.remove(at);
            let mut said = Ok(None);
            let written = self.write(client, |out| said = reply.write(answer, out));
            match written.and(said) {
                Err(why) => self.break_off(client, why),
                Ok(Some((key, was, at))) => {
                    let reply = Reply::Watched { key: key.clone(), was };
                    self.submit(now, epoch, client, Ask::Watch { key: &key, since: Some(at), within: None }, reply);
                }
                Ok(None) => {}
            }
        }
    }

    /// Writes something for a client. A client that does not read its answers is cut off.
    fn write(&mut self, client: ClientId, what: impl FnOnce(&mut Vec<u8>)) -> Result<(), Broken> {
        let Some(session) = self.sessions.get_mut(client) else { return Ok(()) };
        let before = session.out.len();
        what(&mut session.out);
        if session.out.len() > MAX_UNREAD {
            return Err(Broken::Unread(session.out.len()));
        }
        if before == 0 && !session.out.is_empty() {
            self.ready.push(client);
        }
        Ok(())
    }

    /// Forgets the pending requests of this client: they get no answer.
    fn forget_waits(&mut self, client: ClientId) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let Some(keys) = self.epochs.keys(session.epoch) else { return };
        for (seq, _) in session.waits.drain(..) {
            keys.cancel(Ticket { client, seq });
        }
    }

    fn break_off(&mut self, client: ClientId, why: Broken) {
        let Some(session) = self.sessions.get_mut(client).filter(|session| !session.is_broken) else { return };
        session.is_broken = true;
        if matches!(why, Broken::Unread(_)) {
            session.out = Vec::new();
        }
        self.broken.push_back((client, why));
    }
}

fn keys<'a>(strings: Strings<'a>) -> Vec<&'a [u8]> {
    strings.iter().collect()
}
