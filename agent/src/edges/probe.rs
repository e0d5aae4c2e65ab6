//! Connections by which agents find out at which of its addresses they reach the one of rank 0's host, before it is known where ranks
//! meet. Their messages are core's (`wire::probe`).
//!
//! All of it is one set of descriptors inside the one of `watch`, so it works before there is a runtime. Connections are bounded: their
//! number, and one message of each. A call whose connection was closed without an answer is made again: strangers may have opened too many.
//! Nothing of it is left when it is over: the store, or rank 0, listens there next.

use super::Edges;
use rlaunch_core::errno::EPROTO;
use rlaunch_core::node::NodeEvent;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::unproven::Unproven;
use rlaunch_core::wire::capped::Capped;
use rlaunch_core::wire::probe::{ANSWER, ASK, Asked, Caller, Heard, Key, NONCE, Place, answer};
use rlaunch_core::wire::to_root::ADDRESSES;
use rlaunch_sys::epoll::{Batch, ReadySet};
use rlaunch_sys::timer::Timer;
use rlaunch_sys::{approach, port, random, socket};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Tokens below this are numbers of places that are tried. Listeners follow, and then pending connections.
const LISTENER: u64 = 1 << 32;
const PENDING: u64 = 1 << 33;
/// Handled at a time, and so taken in.
const BURST: usize = 64;
/// Silent connections that are held in any case, and as many that were answered.
const LEAST: usize = 64;
/// Tries of a call. The pause doubles from one to the next, from 2 ms to 256 ms: 3 s in all.
const TRIES: u32 = 18;

/// Nothing, most of the time.
#[derive(Default)]
pub(super) struct Probes(Option<Open>);

struct Open {
    set: ReadySet,
    batch: Batch,
    /// The key that we prove.
    key: Key,
    listeners: Vec<(TcpListener, SocketAddr)>,
    pending: Unproven<PendingProbe>,
    calls: BTreeMap<u32, Call>,
}

/// A connection of an agent that tries whether it reaches this host.
struct PendingProbe {
    socket: TcpStream,
    /// The address.
    at: SocketAddr,
    /// `None`: it has its answer.
    asked: Option<Asked>,
}

/// A place that we try.
struct Call {
    at: SocketAddr,
    key: Key,
    tries: u32,
    state: Try,
}

enum Try {
    /// The connection, and once it is made: its end that waits for the answer.
    Open(TcpStream, Option<Caller>),
    /// The connection was closed without an answer.
    Pausing(Timer),
}

impl Open {
    fn new() -> io::Result<Self> {
        Ok(Self {
            set: ReadySet::new()?,
            batch: Batch::with_room(BURST),
            key: Key::default(),
            listeners: Vec::new(),
            pending: Unproven::new(LEAST),
            calls: BTreeMap::new(),
        })
    }

    fn listen(&mut self, addr: &OsBytes, port: u16) -> io::Result<u16> {
        let at = approach::address(addr, port).ok_or(ErrorKind::InvalidInput)?;
        let listener = port::listen(at)?;
        socket::lengthen_queue(&listener)?;
        self.set.add(&listener, LISTENER | self.listeners.len() as u64)?;
        let own = listener.local_addr()?;
        self.listeners.push((listener, own));
        Ok(own.port())
    }

    fn accept(&mut self, number: usize) {
        for _ in 0..BURST {
            let Some((listener, at)) = self.listeners.get(number) else { return };
            let (came, at) = (listener.accept(), *at);
            match came {
                Ok((socket, _)) => {
                    let ready = socket.set_nonblocking(true).and_then(|()| approach::abort_at_end(&socket));
                    let pending = self.pending.add(PendingProbe { socket, at, asked: Some(Asked::default()) });
                    let Some(probe) = self.pending.get(pending) else { return };
                    match ready.and_then(|()| self.set.add(&probe.socket, PENDING | pending)) {
                        // An agent has mostly sent its message already.
                        Ok(()) => self.receive(pending),
                        Err(_) => self.dismiss(pending),
                    }
                    self.pending.surplus().into_iter().for_each(|oldest| self.dismiss(oldest));
                }
                Err(error) if rlaunch_sys::is_aborted_connection(&error) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) if self.dismiss_first() => {}
                Err(error) => {
                    // The listener would be ready all the time, and the agent would do nothing else.
                    tracing::warn!(%error, "no other host can try {at} any more");
                    return self.listeners.get(number).into_iter().for_each(|(listener, _)| self.set.remove(listener));
                }
            }
        }
    }

    /// Closes the oldest connection. False: there is none.
    fn dismiss_first(&mut self) -> bool {
        let first = self.pending.oldest();
        first.into_iter().for_each(|first| self.dismiss(first));
        first.is_some()
    }

    fn look(&mut self, events: &mut VecDeque<NodeEvent>) {
        if self.set.ready(&mut self.batch) == 0 {
            return;
        }
        let tokens: Vec<u64> = self.batch.tokens().collect();
        for token in tokens {
            match token {
                PENDING.. => self.receive(token & !PENDING),
                LISTENER.. => self.accept(usize::try_from(token & !LISTENER).unwrap_or(usize::MAX)),
                number => {
                    let event = u32::try_from(number).ok().and_then(|number| self.called(number));
                    events.extend(event.inspect(|event| tracing::debug!("{event:?}")));
                }
            }
        }
    }

    fn dismiss(&mut self, number: u64) {
        if let Some(probe) = self.pending.remove(number) {
            self.set.remove(&probe.socket);
        }
    }

    fn receive(&mut self, number: u64) {
        let Some(probe) = self.pending.get_mut(number) else { return };
        let (stays, is_answered) = (probe.hear(&self.key), probe.asked.is_none());
        if is_answered {
            self.pending.set_answered(number);
        }
        if !stays {
            self.dismiss(number);
        }
    }

    fn call(&mut self, place: &Place, key: Key) -> io::Result<()> {
        let at = approach::address(&place.addr, place.port).ok_or(ErrorKind::InvalidInput)?;
        let call = Call { at, key, tries: 1, state: begin(&self.set, place.number, at)? };
        self.calls.insert(place.number, call);
        Ok(())
    }

    /// The outcome; `None`: nothing yet.
    fn called(&mut self, number: u32) -> Option<NodeEvent> {
        let call = self.calls.get_mut(&number)?;
        let done = match call.step(&self.set, number) {
            Ok(None) => return None,
            Ok(Some(by)) => NodeEvent::Reached { number, by },
            Err(error) => unreached(number, &error),
        };
        if let Some(call) = self.calls.remove(&number) {
            call.state.forget(&self.set);
        }
        Some(done)
    }
}

/// Begins to connect.
fn begin(set: &ReadySet, number: u32, at: SocketAddr) -> io::Result<Try> {
    let socket = approach::begin(at)?;
    set.add_writable(&socket, number.into())?;
    Ok(Try::Open(socket, None))
}

impl PendingProbe {
    /// Takes in what has come; false if that was all.
    fn hear(&mut self, key: &Key) -> bool {
        let mut bytes = [0; ASK + 1];
        let came = match self.socket.read(&mut bytes) {
            Ok(0) => return false,
            Ok(len) => bytes.get(..len).unwrap_or_default(),
            Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        // No message may follow it.
        let Some(asked) = &mut self.asked else { return false };
        match asked.hear(key, self.at, came) {
            Heard::Part => true,
            Heard::Nonsense => {
                tracing::debug!("somebody who is no agent of the job has come to {}", self.at);
                false
            }
            Heard::Proven(nonce) => {
                self.asked = None;
                let own = random::bytes::<NONCE>();
                own.and_then(|own| self.socket.write_all(&answer(key, self.at, &nonce, &own))).is_ok()
            }
        }
    }
}

impl Call {
    /// Goes on; by which address of ours it was reached, if it was.
    fn step(&mut self, set: &ReadySet, number: u32) -> io::Result<Option<IpAddr>> {
        let result = match &mut self.state {
            Try::Open(socket, asked @ None) => {
                let caller = Caller::new(self.key.clone(), self.at, random::bytes::<NONCE>()?);
                let sent = ask(set, number, socket, &caller);
                *asked = Some(caller);
                sent.map(|()| None)
            }
            Try::Open(socket, Some(caller)) => hear(socket, caller),
            Try::Pausing(_) => {
                self.enter(set, begin(set, number, self.at)?);
                Ok(None)
            }
        };
        match result {
            Err(error) if is_closed(&error) && self.tries < TRIES => {
                let timer = Timer::after(Duration::from_millis(1 << self.tries.min(8)))?;
                set.add(&timer, number.into())?;
                self.tries += 1;
                self.enter(set, Try::Pausing(timer));
                Ok(None)
            }
            result => result,
        }
    }

    fn enter(&mut self, set: &ReadySet, state: Try) {
        std::mem::replace(&mut self.state, state).forget(set);
    }
}

impl Try {
    fn forget(&self, set: &ReadySet) {
        match self {
            Self::Open(socket, _) => set.remove(socket),
            Self::Pausing(timer) => set.remove(timer),
        }
    }
}

/// Sends the message, if the connection is made.
fn ask(set: &ReadySet, number: u32, socket: &mut TcpStream, caller: &Caller) -> io::Result<()> {
    socket.take_error()?.map_or(Ok(()), Err)?;
    set.remove(socket);
    set.add(socket, number.into())?;
    socket.write_all(&caller.ask())
}

/// Reads the answer.
fn hear(socket: &mut TcpStream, caller: &mut Caller) -> io::Result<Option<IpAddr>> {
    let mut bytes = [0; ANSWER + 1];
    let came = match socket.read(&mut bytes) {
        Ok(len @ 1..) => bytes.get(..len).unwrap_or_default(),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(None),
        Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
        Err(error) => return Err(error),
    };
    match caller.hear(came) {
        Heard::Part => Ok(None),
        Heard::Nonsense => Err(io::Error::from_raw_os_error(EPROTO)),
        Heard::Proven(()) => Ok(Some(socket.local_addr()?.ip())),
    }
}

/// The other end has closed the connection. A refused connection is none.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

fn unreached(number: u32, error: &io::Error) -> NodeEvent {
    let errno = error.raw_os_error().filter(|errno| *errno != 0).unwrap_or(EPROTO);
    NodeEvent::Unreached { number, errno }
}

/// Waits for agents of other hosts at these addresses of ours, at this port where it is free. Returns the ports; 0: we do not.
pub(super) fn listen(edges: &mut Edges, key: Key, at: &[OsBytes], port: u16, nodes: u32) -> Capped<u16, ADDRESSES> {
    let ports = match open(edges) {
        Ok(open) => {
            // All of them may come at once.
            open.key = key;
            open.pending.set_most(LEAST.max(2 * nodes as usize));
            let mut listen = |addr| {
                let opened = open.listen(addr, port).or_else(|_taken| open.listen(addr, 0));
                opened.inspect_err(|error| tracing::debug!(%error, "no other host can try {addr}")).unwrap_or(0)
            };
            at.iter().map(&mut listen).collect()
        }
        Err(error) => {
            tracing::debug!(%error, "no other host can try to reach this one");
            vec![0; at.len()]
        }
    };
    Capped::chunks(ports).pop().unwrap_or_default()
}

/// Tries a place.
pub(super) fn call(edges: &mut Edges, place: &Place, key: Key) {
    let begun = open(edges).and_then(|open| open.call(place, key));
    if let Err(error) = begun {
        edges.events.push_back(unreached(place.number, &error));
    }
}

fn open(edges: &mut Edges) -> io::Result<&mut Open> {
    match edges.probes.0 {
        Some(ref mut open) => Ok(open),
        None => {
            let open = Open::new()?;
            edges.watch.watch_probes(&open.set)?;
            Ok(edges.probes.0.insert(open))
        }
    }
}

/// Takes in all that is ready.
pub(super) fn look(edges: &mut Edges) {
    let Some(open) = &mut edges.probes.0 else { return };
    open.look(&mut edges.events);
}

/// Ends the probing.
pub(super) fn end(edges: &mut Edges) {
    if let Some(open) = edges.probes.0.take() {
        edges.watch.forget_probes(&open.set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    struct Rig {
        open: Open,
        port: u16,
        events: VecDeque<NodeEvent>,
    }

    impl Rig {
        fn new(most: usize) -> Self {
            let mut open = Open { pending: Unproven::new(most), ..Open::new().unwrap() };
            let port = open.listen(&"127.0.0.1".into(), 0).unwrap();
            Self { open, port, events: VecDeque::new() }
        }

        fn connect(&self) -> TcpStream {
            TcpStream::connect(("127.0.0.1", self.port)).unwrap()
        }

        fn serve_until(&mut self, is_done: impl Fn(&Open) -> bool) {
            let until = Instant::now() + Duration::from_secs(20);
            while !is_done(&self.open) {
                assert!(Instant::now() < until, "too late");
                self.open.look(&mut self.events);
                std::thread::sleep(Duration::from_micros(100));
            }
        }

        /// Serves all that is ready. False: something stays ready.
        fn becomes_idle(&mut self) -> bool {
            (0..100).any(|_| {
                self.open.look(&mut self.events);
                self.open.set.ready(&mut self.open.batch) == 0
            })
        }
    }

    #[test]
    fn connection_that_stops_at_any_byte_is_served_and_waited_for() {
        let mut rig = Rig::new(9);
        for value in [0, 1, b'r', 0x7f, 0x80, 0xff] {
            for count in 0..=2 * ASK {
                let mut probe = rig.connect();
                probe.write_all(&vec![value; count]).unwrap();
                assert!(rig.becomes_idle(), "{count} times {value}");
                drop(probe);
                assert!(rig.becomes_idle());
            }
        }
        assert!(rig.open.pending.iter().count() <= 9 && rig.events.is_empty());
    }

    #[test]
    fn listener_that_cannot_accept_is_shut() {
        let mut rig = Rig::new(9);
        let _waiting = rig.connect();
        // A socket that is always ready and accepts nothing, like a listener without free descriptors.
        let bound = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(bound.local_addr().unwrap()).unwrap();
        let (mut far, at) = bound.accept().unwrap();
        far.write_all(b"x").unwrap();
        near.peek(&mut [0]).unwrap();
        rig.open.set.add(&near, LISTENER | 1).unwrap();
        rig.open.listeners.push((TcpListener::from(std::os::fd::OwnedFd::from(near)), at));
        assert!(rig.becomes_idle(), "the listener stays ready");
        assert_eq!(rig.open.pending.iter().count(), 0, "the connection has made room");
        let _next = rig.connect();
        assert!(rig.becomes_idle());
        assert_eq!(rig.open.pending.iter().count(), 1, "other listeners stay open");
        near = rig.connect();
        drop(near);
        assert!(rig.becomes_idle());
    }

    #[test]
    fn agent_is_answered_while_a_stranger_opens_many_connections() {
        let mut rig = Rig::new(4);
        let at = SocketAddr::from(([127, 0, 0, 1], rig.port));
        let strangers: Vec<_> = (0..20).map(|_| rig.connect()).collect();
        let mut agent = rig.connect();
        let caller = Caller::new(Key::default(), at, [1; NONCE]);
        agent.write_all(&caller.ask()).unwrap();
        let others: Vec<_> = (0..20).map(|_| rig.connect()).collect();
        assert!(rig.becomes_idle());
        agent.set_nonblocking(true).unwrap();
        let mut caller = caller;
        assert!(matches!(hear(&mut agent, &mut caller), Ok(Some(_))), "the agent is answered");
        let pending = &rig.open.pending;
        assert!(
            pending.iter().any(|(number, _)| pending.is_answered(number)),
            "the connection of the agent stays open"
        );
        assert!(pending.iter().count() <= 5 && strangers.len() + others.len() == 40);
    }

    #[test]
    fn call_is_made_again_when_its_connection_was_closed_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut rig = Rig::new(9);
        let place = Place { number: 7, addr: "127.0.0.1".into(), port: at.port() };
        rig.open.call(&place, Key::default()).unwrap();
        for closes in [true, true, true, false] {
            let (mut came, _) = listener.accept().unwrap();
            if closes {
                approach::abort_at_end(&came).unwrap();
                drop(came);
                // Until the call pauses, and until it is made again.
                rig.serve_until(|open| matches!(open.calls[&7].state, Try::Pausing(_)));
                rig.serve_until(|open| matches!(open.calls[&7].state, Try::Open(..)));
                continue;
            }
            rig.serve_until(|open| matches!(open.calls[&7].state, Try::Open(_, Some(_))));
            let mut asked = [0; ASK];
            came.read_exact(&mut asked).unwrap();
            let Heard::Proven(nonce) = Asked::default().hear(&Key::default(), at, &asked) else { panic!("no proof") };
            came.write_all(&answer(&Key::default(), at, &nonce, &[2; NONCE])).unwrap();
            rig.serve_until(|open| open.calls.is_empty());
        }
        assert!(matches!(rig.events.pop_front(), Some(NodeEvent::Reached { number: 7, .. })));
        // A call that was never answered fails after its last try.
        rig.open.call(&place, Key::default()).unwrap();
        rig.open.calls.get_mut(&7).unwrap().tries = TRIES;
        drop(listener.accept().unwrap());
        rig.serve_until(|open| open.calls.is_empty());
        assert!(matches!(rig.events.pop_front(), Some(NodeEvent::Unreached { number: 7, .. })));
    }
}
