//! The listener for the agents of a step: it checks who connects, on a thread of its own, and passes on agents alone.
//!
//! A connection gets as many bytes of memory as the hello and the first message have, for two seconds. Each host's agent is taken once.
//! The listener ends when all hosts are in, and the secret of the step with it.

use rlaunch_core::bootstrap::tcp_hello::{FIRST_MESSAGE, HELLO};
use rlaunch_core::bootstrap::{AgentFacts, EdgeKeys, Hash, Hello, Preamble, Refusal, Secret, StepPreamble};
use rlaunch_core::id::NodeId;
use rlaunch_net::seal::{self, Seal};
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::epoll::{Batch, ReadySet};
use rlaunch_sys::fd;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How long a connection may take to send its hello.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long none is accepted after one could not be, for lack of descriptors.
const AGAIN: Duration = Duration::from_millis(250);
/// Connections at a time that have not sent theirs.
const MOST: usize = 1_024;
/// The same, of one address.
const MOST_OF_ADDRESS: usize = 64;
/// Arrivals that may wait for the machine thread.
const ROOM: usize = 256;
/// Refusals of each kind that are reported.
const REPORTED: u32 = 3;

const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// An agent that has connected, and knows the key of its host.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) node: NodeId,
    pub(super) facts: AgentFacts,
    pub(super) socket: TcpStream,
    pub(super) seal: Seal,
}

/// A connection, and what became of it.
#[derive(Debug)]
pub(super) enum Visit {
    Arrived(Box<Arrival>),
    Refused(IpAddr, Refusal),
}

/// The launcher's side of a listener.
#[derive(Debug)]
pub(super) struct Reception {
    /// The port it listens on.
    pub(super) port: u16,
    /// Rings when an agent has arrived.
    pub(super) bell: Doorbell,
    visits: Receiver<Visit>,
    stop: Doorbell,
}

impl Reception {
    /// Listens for the agents of these hosts, each with what it is sent, on a port of this range.
    ///
    /// # Errors
    /// No port, descriptor or thread can be had.
    pub(super) fn open(
        step: &StepPreamble,
        hosts: BTreeMap<Hash, Preamble>,
        ports: Option<(u16, u16)>,
    ) -> io::Result<Self> {
        let listener = listen(ports)?;
        rlaunch_sys::socket::lengthen_queue(&listener)?;
        listener.set_nonblocking(true)?;
        let (bell, stop, set) = (Doorbell::new()?, Doorbell::new()?, ReadySet::new()?);
        set.add(&listener, LISTENER)?;
        set.add(&stop, STOP)?;
        let (outbox, visits) = sync_channel(ROOM);
        let port = listener.local_addr()?.port();
        let desk = Desk {
            listener,
            set,
            _stop: stop.clone(),
            step: *step,
            hosts: hosts.into_iter().map(|(host, preamble)| (host, Some(preamble))).collect(),
            pending: BTreeMap::new(),
            next: 0,
            paused_until: None,
            refused: BTreeMap::new(),
            outbox,
            bell: bell.clone(),
        };
        rlaunch_sys::thread::permanent("reception", move || desk.run())?;
        Ok(Self { port, bell, visits, stop })
    }

    /// The next agent that has arrived, or the next connection that was refused.
    pub(super) fn next(&self) -> Option<Visit> {
        self.visits.try_recv().ok()
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        self.stop.ring();
    }
}

/// A listener on all addresses of this host.
fn listen(ports: Option<(u16, u16)>) -> io::Result<TcpListener> {
    // The wildcard address of IPv6 takes IPv4 too, where there is IPv6 (ipv6(7), IPV6_V6ONLY).
    let on = |port: u16| {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
    };
    let Some((first, last)) = ports else { return on(0) };
    // Jobs that start at once should not try the same ports.
    let count = u32::from(last - first) + 1;
    let begin = u32::from_ne_bytes(rlaunch_sys::random::bytes()?) % count;
    let nth = |n: u32| first + u16::try_from((begin + n) % count).unwrap_or(0);
    let mut refused = io::Error::from(ErrorKind::AddrInUse);
    for port in (0..count).map(nth) {
        match on(port) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// A connection that has not sent its hello.
struct Pending {
    socket: TcpStream,
    address: IpAddr,
    bytes: [u8; HELLO + FIRST_MESSAGE],
    have: usize,
    until: Instant,
}

/// The thread's side.
struct Desk {
    listener: TcpListener,
    set: ReadySet,
    _stop: Doorbell,
    step: StepPreamble,
    /// By the hash of the name; `None`: its agent is here.
    hosts: BTreeMap<Hash, Option<Preamble>>,
    pending: BTreeMap<u64, Pending>,
    next: u64,
    /// Until when no more are accepted.
    paused_until: Option<Instant>,
    refused: BTreeMap<Refusal, u32>,
    outbox: SyncSender<Visit>,
    bell: Doorbell,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.step.secret = Secret([0; 32]);
        std::hint::black_box(&self.step);
    }
}

impl Desk {
    fn run(mut self) {
        let mut batch = Batch::with_room(64);
        while self.hosts.values().any(Option::is_some) {
            let first = self.pending.values().map(|pending| pending.until).chain(self.paused_until).min();
            let wait = first.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
            fd::readable_within(&[self.set.as_fd(), self.set.as_fd()], wait);
            self.set.ready(&mut batch);
            let tokens: Vec<u64> = batch.tokens().collect();
            for token in tokens {
                match token {
                    STOP => return,
                    LISTENER => self.accept(),
                    token => self.read(token),
                }
            }
            self.expire();
        }
    }

    fn accept(&mut self) {
        while self.pending.len() < MOST {
            let (socket, address) = match self.listener.accept() {
                Ok((socket, peer)) => (socket, peer.ip()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_of_connection(&error) => continue,
                // No descriptor is left: a listener that stays ready must not keep this thread busy.
                Err(_) => return self.pause(AGAIN),
            };
            if self.pending.values().filter(|pending| pending.address == address).count() >= MOST_OF_ADDRESS {
                self.refuse(address, Refusal::TooMany);
                continue;
            }
            let token = self.next;
            self.next += 1;
            let is_ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
            if is_ready.and_then(|()| self.set.add(&socket, token)).is_err() {
                self.refuse(address, Refusal::Ended);
                continue;
            }
            let (bytes, until) = ([0; HELLO + FIRST_MESSAGE], Instant::now() + PATIENCE);
            self.pending.insert(token, Pending { socket, address, bytes, have: 0, until });
            // Mostly it has sent its hello already.
            self.read(token);
        }
        self.pause(PATIENCE);
    }

    fn pause(&mut self, time: Duration) {
        self.set.pause(&self.listener, LISTENER);
        self.paused_until = Some(Instant::now() + time);
    }

    fn read(&mut self, token: u64) {
        let Some(pending) = self.pending.get_mut(&token) else { return };
        let room = pending.bytes.get_mut(pending.have..).unwrap_or_default();
        match pending.socket.read(room) {
            Ok(n @ 1..) => pending.have += n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Ok(0) | Err(_) => return self.close(token, Refusal::Ended),
        }
        let is_foreign = pending.have >= HELLO && self.hello(token).is_none();
        if is_foreign {
            self.close(token, Refusal::Foreign);
        } else if self.pending.get(&token).is_some_and(|pending| pending.have == HELLO + FIRST_MESSAGE) {
            self.shake_hands(token);
        }
    }

    fn hello(&self, token: u64) -> Option<Hello> {
        let hello = Hello::parse(self.pending.get(&token)?.bytes.first_chunk()?)?;
        (hello.job == self.step.job && hello.epoch == self.step.epoch).then_some(hello)
    }

    fn shake_hands(&mut self, token: u64) {
        let Some(hello) = self.hello(token) else { return self.close(token, Refusal::Foreign) };
        let preamble = match self.hosts.get(&hello.host) {
            None => return self.close(token, Refusal::UnknownHost),
            Some(None) => return self.close(token, Refusal::Twice),
            Some(Some(preamble)) => *preamble,
        };
        let Some(mut pending) = self.take(token) else { return };
        let keys = EdgeKeys::derive(&self.step.secret, &hello);
        let Some(first) = pending.bytes.last_chunk::<FIRST_MESSAGE>() else { return };
        let answered = seal::receive(&keys, first).and_then(|(facts, received)| {
            let (answer, seal) = received.answer(&keys, &preamble)?;
            Ok((facts, answer, seal))
        });
        let Ok((facts, answer, seal)) = answered else { return self.refuse(pending.address, Refusal::WrongKey) };
        // The buffer of a new socket takes it whole.
        if pending.socket.write_all(&answer).is_err() {
            return self.refuse(pending.address, Refusal::Ended);
        }
        self.hosts.insert(hello.host, None);
        let arrival = Arrival { node: preamble.node, facts, socket: pending.socket, seal };
        self.tell(Visit::Arrived(Box::new(arrival)));
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let late = self.pending.iter().filter(|(_, pending)| pending.until <= now).map(|(token, _)| *token);
        let late: Vec<u64> = late.collect();
        late.into_iter().for_each(|token| self.close(token, Refusal::Silent));
        if self.paused_until.take_if(|until| *until <= now).is_some() {
            self.set.resume(&self.listener, LISTENER);
        }
    }

    fn take(&mut self, token: u64) -> Option<Pending> {
        let pending = self.pending.remove(&token)?;
        self.set.remove(&pending.socket);
        Some(pending)
    }

    fn close(&mut self, token: u64, why: Refusal) {
        if let Some(pending) = self.take(token) {
            self.refuse(pending.address, why);
        }
    }

    fn refuse(&mut self, address: IpAddr, why: Refusal) {
        let count = self.refused.entry(why).or_default();
        *count = count.saturating_add(1);
        tracing::debug!(%address, ?why, count, "refused a connection to the port for agents");
        if *count <= REPORTED {
            self.tell(Visit::Refused(address.to_canonical(), why));
        }
    }

    fn tell(&self, visit: Visit) {
        if self.outbox.send(visit).is_ok() {
            self.bell.ring();
        }
    }
}

/// An error of the connection that was to be accepted, and not of ours (accept(2)).
fn is_of_connection(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
