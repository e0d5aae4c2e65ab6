//! The listener, and connections of which it is not known yet whose they are. Nothing is read of them: their bytes wait in the kernel.

use super::authorizer::{Asker, Authorizer};
use crate::clock::now;
use rlaunch_base::capped::Capped;
use rlaunch_base::machine::earliest;
use rlaunch_base::time::{Mono, Span};
use rlaunch_keyvalue::listener::tcpstore::Peer;
use rlaunch_protocol::master_store::Guard as Whom;
use rlaunch_protocol::wire::peer_identity::{Answer, BATCH, Comer, Verdict};
use rlaunch_sys::epoll::ReadySet;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

/// Most connections that are taken at a time.
const BURST: usize = 256;
/// Most of which it is not known whose they are.
const MOST_WAITING: usize = 4096;
/// How long descriptors are left to others where there are none.
const RETRY: Span = Span::from_millis(100);
/// Time that the other host has to answer: the launcher, which passes the answer on, may be suspended for less than a lease.
const PATIENCE: Span = Span::from_secs(60);

/// A connection, and the process that holds its other end.
pub(in crate::edges) type PendingConnection = (TcpStream, Peer);

#[derive(Debug)]
pub(in crate::edges) struct AcceptQueue {
    listener: TcpListener,
    own: SocketAddr,
    /// Addresses of this host.
    here: Vec<IpAddr>,
    /// Whom we serve.
    whom: Whom,
    /// How many connections there may be, and are.
    most: usize,
    held: usize,
    /// By their numbers: where they come from, and until when.
    waiting: BTreeMap<u64, (TcpStream, SocketAddr, Mono)>,
    /// Connections from an address that no host of the job has.
    foreign: BTreeSet<u64>,
    /// How many have come.
    came: u64,
    /// Connections about which another host is still to be asked.
    unasked: Vec<Comer>,
    /// Number of closed connections that no process of the job has made, and the origin of the last.
    refused: (u32, Option<SocketAddr>),
    /// The address of one of these that no host has.
    stray: Option<SocketAddr>,
    /// No descriptor can be had for another connection until one is closed.
    is_full: bool,
    has_room: bool,
    /// When it is tried again whether there are descriptors.
    retry: Option<Mono>,
    token: u64,
}

impl AcceptQueue {
    /// Listens. No other process can listen at that port then, on any address: torch's own server fails to. `most`: so many
    /// connections may be there at a time; the others wait in the kernel.
    pub(in crate::edges) fn open(
        listener: TcpListener,
        whom: Whom,
        most: usize,
        set: &ReadySet,
        token: u64,
    ) -> io::Result<Self> {
        let here = rlaunch_sys::facts::net::addresses().into_iter().map(|(_, ip)| ip).collect();
        Ok(Self { here, ..Self::local(listener, whom, most, set, token)? })
    }

    /// The same at an address that is reached from this host only.
    pub(in crate::edges) fn local(
        listener: TcpListener,
        whom: Whom,
        most: usize,
        set: &ReadySet,
        token: u64,
    ) -> io::Result<Self> {
        set.add(&listener, token)?;
        let own = listener.local_addr()?;
        Ok(Self {
            listener,
            own,
            here: Vec::new(),
            whom,
            most,
            held: 0,
            waiting: BTreeMap::new(),
            foreign: BTreeSet::new(),
            came: 0,
            unasked: Vec::new(),
            refused: (0, None),
            stray: None,
            is_full: false,
            has_room: false,
            retry: None,
            token,
        })
    }

    /// How many connections have come.
    pub(in crate::edges) const fn came(&self) -> u64 {
        self.came
    }

    /// Continues the numbers of the store before: a late answer about one of its connections never matches one that comes here.
    pub(in crate::edges) const fn go_on(&mut self, came: u64) {
        self.came = came;
    }

    /// The address of the listener.
    pub(in crate::edges) const fn own(&self) -> SocketAddr {
        self.own
    }

    /// Whom we serve.
    pub(in crate::edges) const fn whom(&self) -> Whom {
        self.whom
    }

    /// Takes in who has come, as far as it is known whose they are.
    pub(in crate::edges) fn take(&mut self, set: &ReadySet, authorizer: &mut Authorizer) -> Vec<PendingConnection> {
        let mut pending = Vec::new();
        let came = self.accept(set);
        authorizer.expect(came.len());
        for (socket, from) in came {
            let is_here = from.ip().is_loopback() || self.here.contains(&from.ip());
            let judged = match self.whom {
                Whom::Off => Ok(Some(self.anybody())),
                Whom::Hosts if is_here => Ok(Some(self.anybody())),
                Whom::Job if is_here => authorizer.judge(self.own, from).map_err(Some),
                Whom::Job | Whom::Hosts => Err(None),
            };
            match judged {
                Ok(Some(peer)) if is_whole(&socket) => pending.push((socket, peer)),
                // A closed connection need not be reported: it may have been one of the job's.
                Ok(_) if has_left(&socket) => self.left(),
                Ok(_) => self.refuse(from),
                Err(inode) => {
                    self.came = self.came.wrapping_add(1);
                    self.waiting.insert(self.came, (socket, from, now() + PATIENCE));
                    match inode {
                        Some(inode) => authorizer.look_for(Asker::Queue(self.came), inode),
                        None => self.unasked.push(Comer { from: from.into(), number: self.came }),
                    }
                }
            }
        }
        pending
    }

    fn accept(&mut self, set: &ReadySet) -> Vec<(TcpStream, SocketAddr)> {
        let mut came = Vec::new();
        while came.len() < BURST {
            if self.waiting.len().saturating_add(came.len()) >= MOST_WAITING {
                // The others wait in the kernel until it is known of some whose they are.
                self.shut(set);
                break;
            }
            if self.held >= self.most {
                tracing::warn!("the store takes no more than {} connections", self.most);
                self.shut(set);
                break;
            }
            match self.listener.accept() {
                Ok(connection) => {
                    self.held += 1;
                    came.push(connection);
                }
                Err(error) if rlaunch_sys::is_aborted_connection(&error) => {}
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        tracing::warn!(%error, "the store takes no more connections");
                        self.defer(set);
                    }
                    break;
                }
            }
        }
        came
    }

    /// A number for each connection, where it does not matter whose it is.
    const fn anybody(&mut self) -> Peer {
        self.came = self.came.wrapping_add(1);
        Peer(self.came)
    }

    /// Stops accepting until a connection ends.
    fn shut(&mut self, set: &ReadySet) {
        self.is_full = true;
        set.remove(&self.listener);
    }

    /// Stops accepting for a while: descriptors may become free elsewhere. Until then the listener would be ready all the time.
    pub(in crate::edges) fn defer(&mut self, set: &ReadySet) {
        self.shut(set);
        self.retry = Some(now() + RETRY);
    }

    /// Records that a connection was closed: a descriptor is free again.
    pub(in crate::edges) const fn left(&mut self) {
        self.held = self.held.saturating_sub(1);
        self.has_room = true;
    }

    /// Closes connections whose owner was not found in time, and listens again where there is room.
    pub(in crate::edges) fn turn(&mut self, now: Mono, set: &ReadySet) {
        self.expire(now);
        self.reopen(set);
    }

    fn reopen(&mut self, set: &ReadySet) {
        let again = self.retry.take_if(|at| *at <= now()).is_some();
        if (std::mem::take(&mut self.has_room) | again) && self.is_full {
            self.is_full = set.add(&self.listener, self.token).is_err();
            self.retry = self.is_full.then(|| now() + RETRY);
        }
    }

    /// The connections about which another host is to be asked.
    pub(in crate::edges) fn questions(&mut self) -> Vec<Capped<Comer, BATCH>> {
        Capped::chunks(std::mem::take(&mut self.unasked))
    }

    /// Takes the answer of another host. An address that none has may be that of a rank in a network namespace of its own.
    pub(in crate::edges) fn answered(&mut self, answer: &Answer, authorizer: &mut Authorizer) {
        for Verdict { comer, member, foreign } in &*answer.verdicts {
            let asker = Asker::Queue(comer.number);
            let Some((_, from, _)) = self.waiting.get(&comer.number).filter(|_| *foreign) else {
                authorizer.notify(asker, member.map(Peer));
                continue;
            };
            self.foreign.insert(comer.number);
            match self.whom {
                Whom::Job => authorizer.look_inside(asker, *from, self.own),
                Whom::Hosts | Whom::Off => authorizer.notify(asker, None),
            }
        }
    }

    /// Records the owner of a connection.
    pub(in crate::edges) fn record_owner(&mut self, number: u64, peer: Option<Peer>) -> Option<PendingConnection> {
        let (socket, from, _) = self.waiting.remove(&number)?;
        self.has_room = true;
        let is_foreign = self.foreign.remove(&number);
        let peer = peer.filter(|_| is_whole(&socket));
        if peer.is_none() {
            self.refuse(from);
            self.stray = self.stray.or(Some(from).filter(|_| is_foreign));
        }
        let peer = match self.whom {
            Whom::Job => peer?,
            Whom::Hosts | Whom::Off => peer.map(|_| Peer(number))?,
        };
        Some((socket, peer))
    }

    fn refuse(&mut self, from: SocketAddr) {
        tracing::debug!("a connection to the store from {from} is not one of the job's");
        self.refused = (self.refused.0.saturating_add(1), Some(from));
        self.left();
    }

    /// How many were refused since this was asked last, where the last came from, and one of an address that no host has.
    pub(in crate::edges) fn refused(&mut self) -> Option<(u32, SocketAddr, Option<SocketAddr>)> {
        let (count, from) = std::mem::take(&mut self.refused);
        Some((count, from?, self.stray.take()))
    }

    pub(in crate::edges) fn deadline(&self) -> Option<Mono> {
        let until = self.waiting.first_key_value().map(|(_, (_, _, until))| *until);
        earliest(until, self.retry)
    }

    /// Closes connections whose owner was not found in time.
    fn expire(&mut self, now: Mono) {
        // The first was first to come.
        while let Some(entry) = self.waiting.first_entry().filter(|entry| entry.get().2 <= now) {
            self.foreign.remove(entry.key());
            let (_closed, from, _) = entry.remove();
            tracing::warn!("nobody says in time whose a connection to the store from {from} is");
            self.refuse(from);
        }
    }
}

/// Whether a connection was not broken off. The kernel is asked about a pair of addresses. Only while our socket is still connected is
/// the process at the other end the one that has sent the bytes in it. A process that sends, closes, and has another process connect
/// from the same port would speak in its name otherwise.
fn is_whole(socket: &TcpStream) -> bool {
    socket.peer_addr().is_ok()
}

/// Whether the other end has closed it, or broken it off, and left nothing to read.
fn has_left(socket: &TcpStream) -> bool {
    let looked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
    looked.is_ok_and(|len| len == 0) || !is_whole(socket)
}

#[cfg(test)]
mod tests;
