//! The listener for the agents of a step: it reads from all who connect, on a thread of its own, and passes on agents alone.
//!
//! `rlaunch_plan::bootstrap::admission` decides who is one. A connection gets as many bytes of memory as the messages of an agent have.
//! The listener ends when all hosts are in, and the secret of the step with it.

use rlaunch_base::id::NodeId;
use rlaunch_base::machine::earliest;
use rlaunch_base::time::{Mono, Span};
use rlaunch_net::seal::{self, Seal};
use rlaunch_plan::bootstrap::tcp_hello::{CONFIRMATION, FIRST_MESSAGE, HELLO};
use rlaunch_plan::bootstrap::{Admission, AgentFacts, Caller, Hash, Preamble, Refusal, Refused, StepPreamble};
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::epoll::{Batch, ReadySet};
use rlaunch_sys::fd;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// How long none is accepted after one could not be, for lack of descriptors.
const AGAIN: Span = Span::from_millis(250);
/// Connections that are accepted before others are read: no flood of them may keep an agent waiting.
const BURST: usize = 64;
/// Arrivals that may wait for the machine thread.
const ROOM: usize = 256;

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
            admission: Admission::new(step, hosts),
            pending: BTreeMap::new(),
            paused_until: None,
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

/// Length of what an agent sends before it is answered.
const GREETING: usize = HELLO + FIRST_MESSAGE;

/// The bytes of a connection that has not shaken hands.
struct Pending {
    socket: TcpStream,
    bytes: [u8; GREETING + CONFIRMATION],
    have: usize,
    /// Once the greeting is answered.
    answered: Option<(AgentFacts, Seal)>,
}

/// The thread's side.
struct Desk {
    listener: TcpListener,
    set: ReadySet,
    _stop: Doorbell,
    admission: Admission,
    pending: BTreeMap<Caller, Pending>,
    /// Until when no more are accepted.
    paused_until: Option<Mono>,
    outbox: SyncSender<Visit>,
    bell: Doorbell,
}

impl Desk {
    fn run(mut self) {
        let mut batch = Batch::with_room(64);
        while self.admission.is_waiting() {
            let first = earliest(self.admission.deadline(), self.paused_until);
            let wait = first.map_or(Duration::from_secs(3600), |at| at.since(now()).duration());
            fd::wait_for_any(&[self.set.as_fd()], Some(wait));
            self.set.ready(&mut batch);
            let tokens: Vec<u64> = batch.tokens().collect();
            for token in tokens {
                match token {
                    STOP => return,
                    LISTENER => self.accept(),
                    token => self.read(Caller::new(token)),
                }
            }
            self.expire();
        }
    }

    fn accept(&mut self) {
        for _ in 0..BURST {
            let (socket, address) = match self.listener.accept() {
                Ok((socket, peer)) => (socket, peer.ip()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if rlaunch_sys::is_aborted_connection(&error) => continue,
                // No descriptor is left: a listener that stays ready must not keep this thread busy.
                Err(_) => return self.pause(AGAIN),
            };
            let caller = self.admission.accept(now(), address);
            let is_ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
            if is_ready.and_then(|()| self.set.add(&socket, caller.get())).is_err() {
                self.refuse(caller, Refusal::Ended);
                continue;
            }
            self.pending.insert(caller, Pending { socket, bytes: [0; _], have: 0, answered: None });
            // Mostly it has sent its hello already.
            self.read(caller);
            if let Some(oldest) = self.admission.surplus() {
                self.refuse(oldest, Refusal::TooMany);
            }
        }
    }

    fn pause(&mut self, time: Span) {
        self.set.pause(&self.listener, LISTENER);
        self.paused_until = Some(now() + time);
    }

    fn read(&mut self, caller: Caller) {
        let Some(pending) = self.pending.get_mut(&caller) else { return };
        // The edge reads the bytes after the confirmation.
        let most = if pending.answered.is_some() { GREETING + CONFIRMATION } else { GREETING };
        let (before, room) = (pending.have, pending.bytes.get_mut(pending.have..most).unwrap_or_default());
        match pending.socket.read(room) {
            Ok(n @ 1..) => pending.have += n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Ok(0) | Err(_) => return self.refuse(caller, Refusal::Ended),
        }
        if before < HELLO
            && let Some(hello) = pending.bytes.first_chunk().filter(|_| pending.have >= HELLO)
            && let Err(why) = self.admission.greet(caller, hello)
        {
            return self.refuse(caller, why);
        }
        let done = match pending.have {
            GREETING => self.answer(caller),
            n if n == GREETING + CONFIRMATION => self.admit(caller),
            _ => return,
        };
        if let Err(why) = done {
            self.refuse(caller, why);
        }
    }

    fn answer(&mut self, caller: Caller) -> Result<(), Refusal> {
        let (keys, preamble) = self.admission.keys(caller)?;
        let pending = self.pending.get_mut(&caller).ok_or(Refusal::Ended)?;
        let first = pending.bytes.get(HELLO..).and_then(|rest| rest.first_chunk()).ok_or(Refusal::Ended)?;
        let answered = seal::receive(&keys, first).and_then(|(facts, received)| {
            let (answer, seal) = received.answer(&keys, &preamble)?;
            Ok((facts, answer, seal))
        });
        let (facts, answer, seal) = answered.map_err(|_| Refusal::WrongKey)?;
        // The buffer of a new socket takes it whole.
        pending.socket.write_all(&answer).map_err(|_| Refusal::Ended)?;
        pending.answered = Some((facts, seal));
        self.admission.answer(now(), caller);
        Ok(())
    }

    fn admit(&mut self, caller: Caller) -> Result<(), Refusal> {
        let pending = self.pending.get_mut(&caller).ok_or(Refusal::Ended)?;
        let (Some((facts, mut seal)), Some(confirmation)) = (pending.answered.take(), pending.bytes.last_chunk())
        else {
            return Err(Refusal::Ended);
        };
        seal.confirm(confirmation).map_err(|_| Refusal::WrongKey)?;
        let node = self.admission.admit(caller)?;
        if let Some(Pending { socket, .. }) = self.take(caller) {
            self.send(Visit::Arrived(Box::new(Arrival { node, facts, socket, seal })));
        }
        Ok(())
    }

    fn expire(&mut self) {
        let now = now();
        self.admission.expired(now).into_iter().for_each(|caller| self.refuse(caller, Refusal::Silent));
        if self.paused_until.take_if(|until| *until <= now).is_some() {
            self.set.resume(&self.listener, LISTENER);
        }
    }

    fn take(&mut self, caller: Caller) -> Option<Pending> {
        let pending = self.pending.remove(&caller)?;
        self.set.remove(&pending.socket);
        Some(pending)
    }

    /// Closes a connection.
    fn refuse(&mut self, caller: Caller, why: Refusal) {
        drop(self.take(caller));
        if let Some(refused) = self.admission.refuse(caller, why) {
            self.report(refused);
        }
    }

    fn report(&self, refused: Refused) {
        let Refused { address, why, is_reported } = refused;
        tracing::debug!(%address, ?why, "refused a connection to the port for agents");
        if is_reported {
            self.send(Visit::Refused(address, why));
        }
    }

    fn send(&self, visit: Visit) {
        if self.outbox.send(visit).is_ok() {
            self.bell.ring();
        }
    }
}

fn now() -> Mono {
    Mono::from_nanos(rlaunch_sys::clock::boottime())
}

#[cfg(test)]
mod tests;
