//! The listener, and connections of which it is not known yet whose they are. Nothing is read of them: their bytes wait in the kernel.

use super::guard::Guard;
use crate::early::now;
use rlaunch_core::front::tcpstore::Peer;
use rlaunch_core::time::{Mono, Span};
use rlaunch_core::wire::capped::Capped;
use rlaunch_core::wire::whose::{Answer, BATCH, Comer, Verdict};
use rlaunch_sys::epoll::ReadySet;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Most connections that are taken at a time.
const BURST: usize = 256;
/// Most of which another host was asked.
const MOST_WAITING: usize = 4096;
/// How long that host may take to answer: the launcher, which passes it on, may stand still for less than a lease.
const PATIENCE: Span = Span::from_secs(60);

/// A connection, and the process that holds its other end.
pub(super) type Guest = (TcpStream, Peer);

#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    own: SocketAddr,
    /// By their numbers: where they come from, and until when.
    waiting: BTreeMap<u64, (TcpStream, SocketAddr, Mono)>,
    /// How many have come.
    came: u64,
    /// Those of which another host is still to be asked.
    unasked: Vec<Comer>,
    /// How many were closed that nobody of the job has made, and where the last came from.
    refused: (u32, Option<SocketAddr>),
    /// No descriptor can be had for another connection until one is closed.
    is_full: bool,
    has_room: bool,
    token: u64,
}

impl Door {
    /// Listens. Nobody else can at that port then, on any address: so torch's own server fails to.
    pub(super) fn open(address: SocketAddr, set: &ReadySet, token: u64) -> io::Result<Self> {
        let listener = rlaunch_sys::port::listen(address)?;
        set.add(&listener, token)?;
        let own = listener.local_addr()?;
        Ok(Self {
            listener,
            own,
            waiting: BTreeMap::new(),
            came: 0,
            unasked: Vec::new(),
            refused: (0, None),
            is_full: false,
            has_room: false,
            token,
        })
    }

    /// Where it listens.
    pub(super) const fn own(&self) -> SocketAddr {
        self.own
    }

    /// Takes in who has come, as far as it is known whose they are.
    pub(super) fn take(&mut self, set: &ReadySet, guard: &mut Guard) -> Vec<Guest> {
        let came = self.accept(set);
        let from: Vec<SocketAddr> = came.iter().map(|(_, from)| *from).collect();
        let verdicts = guard.judge(self.own, &from);
        let mut guests = Vec::new();
        for ((socket, from), verdict) in came.into_iter().zip(verdicts) {
            match verdict {
                Some(peer) => guests.push((socket, peer)),
                // From an address of this host; or the queue is full.
                None if from.ip() == self.own.ip() || from.ip().is_loopback() || self.waiting.len() >= MOST_WAITING => {
                    self.refuse(from);
                }
                None => {
                    self.came = self.came.wrapping_add(1);
                    self.waiting.insert(self.came, (socket, from, now() + PATIENCE));
                    self.unasked.push(Comer { from: from.into(), number: self.came });
                }
            }
        }
        guests
    }

    fn accept(&mut self, set: &ReadySet) -> Vec<(TcpStream, SocketAddr)> {
        let mut came = Vec::new();
        while came.len() < BURST {
            match self.listener.accept() {
                Ok(connection) => came.push(connection),
                Err(error) => {
                    if rlaunch_sys::is_shortage(&error) {
                        tracing::warn!(%error, "the store takes no more connections");
                        self.is_full = true;
                        set.remove(&self.listener);
                    }
                    break;
                }
            }
        }
        came
    }

    /// Somebody was closed: a descriptor is free again.
    pub(super) const fn left(&mut self) {
        self.has_room = true;
    }

    /// Listens again, where there is room.
    pub(super) fn reopen(&mut self, set: &ReadySet) {
        if std::mem::take(&mut self.has_room) && self.is_full {
            self.is_full = set.add(&self.listener, self.token).is_err();
        }
    }

    /// Of which connections another host is to be asked.
    pub(super) fn questions(&mut self) -> Vec<Capped<Comer, BATCH>> {
        Capped::chunks(std::mem::take(&mut self.unasked))
    }

    /// What another host has said.
    pub(super) fn answered(&mut self, answer: &Answer) -> Vec<Guest> {
        let guest = |verdict: &Verdict| {
            let (socket, from, _) = self.waiting.remove(&verdict.comer.number)?;
            match verdict.member {
                Some(member) => Some((socket, Peer(member))),
                None => {
                    self.refuse(from);
                    None
                }
            }
        };
        answer.verdicts.iter().filter_map(guest).collect()
    }

    fn refuse(&mut self, from: SocketAddr) {
        tracing::debug!("a connection to the store from {from} is not one of the job's");
        self.refused = (self.refused.0.saturating_add(1), Some(from));
        self.left();
    }

    /// How many were refused since this was asked last, and where the last came from.
    pub(super) fn refused(&mut self) -> Option<(u32, SocketAddr)> {
        let (count, from) = std::mem::take(&mut self.refused);
        Some((count, from?))
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.waiting.first_key_value().map(|(_, (_, _, until))| *until)
    }

    /// Closes those of which nobody has said in time whose they are.
    pub(super) fn expire(&mut self, now: Mono) {
        // The first was first to come.
        while let Some(entry) = self.waiting.first_entry().filter(|entry| entry.get().2 <= now) {
            let (_closed, from, _) = entry.remove();
            tracing::warn!("nobody says in time whose a connection to the store from {from} is");
            self.refuse(from);
        }
    }
}
