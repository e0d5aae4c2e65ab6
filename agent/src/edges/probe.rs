//! Agents test which addresses of rank 0's host they can reach, before MASTER_ADDR is chosen. The agent of that host sends a key to each
//! process that connects, and reads nothing (`wire::probe`).
//!
//! All of it is one set of descriptors inside the one of `watch`, so it works before there is a runtime. At most [`HELD`] connections of
//! others are open. A call whose connection was closed without a key is made again: a packet was lost, or strangers opened too many.
//! Nothing is left of the test at its end: the store, or rank 0, listens there next.

use crate::edges::part::{Base, Part, PartName};
use rlaunch_base::capped::Capped;
use rlaunch_base::errno::EPROTO;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::node::{NodeEvent, ProbeAction};
use rlaunch_protocol::wire::probe::{KEY, Key, Place};
use rlaunch_protocol::wire::to_root::ADDRESSES;
use rlaunch_sys::epoll::{Batch, ReadySet};
use rlaunch_sys::{approach, port};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

/// Tokens below this are numbers of places that are tried. Listeners follow.
const LISTENER: u64 = 1 << 32;
/// Handled at a time, and so taken in.
const BURST: usize = 64;
/// Connections that stay open after the key was sent, so that a lost packet is sent again.
const HELD: usize = 128;
/// Tries of a call.
const TRIES: u32 = 16;

/// Nothing, most of the time.
#[derive(Default)]
pub(super) struct Probes(Option<Open>);

struct Open {
    set: ReadySet,
    batch: Batch,
    /// Each listener with the key of its place.
    listeners: Vec<(TcpListener, Key)>,
    /// Connections to which the key was sent, the oldest first.
    answered: VecDeque<TcpStream>,
    calls: BTreeMap<u32, Call>,
}

/// A place that we try.
struct Call {
    at: SocketAddr,
    key: Key,
    socket: TcpStream,
    /// The bytes that came from there.
    came: Vec<u8>,
    tries: u32,
}

impl Open {
    fn new() -> io::Result<Self> {
        Ok(Self {
            set: ReadySet::new()?,
            batch: Batch::with_room(BURST),
            listeners: Vec::new(),
            answered: VecDeque::new(),
            calls: BTreeMap::new(),
        })
    }

    fn listen(&mut self, key: &Key, addr: &OsBytes, port: u16) -> io::Result<u16> {
        let listener = port::listen(approach::address(addr, port).ok_or(ErrorKind::InvalidInput)?)?;
        self.set.add(&listener, LISTENER | self.listeners.len() as u64)?;
        let port = listener.local_addr()?.port();
        self.listeners.push((listener, key.at(addr, port)));
        Ok(port)
    }

    fn accept(&mut self, number: usize) {
        let Some((listener, key)) = self.listeners.get(number) else { return };
        for _ in 0..BURST {
            match listener.accept() {
                Ok((mut socket, _)) => {
                    // A key fits into a new connection. Where the kernel has no memory for it, the host calls again.
                    let ready = socket.set_nonblocking(true).and_then(|()| approach::abort_at_end(&socket));
                    let sent = ready.and_then(|()| socket.write_all(key.bytes()));
                    self.answered.extend(sent.ok().map(|()| socket));
                    if self.answered.len() > HELD {
                        self.answered.pop_front();
                    }
                }
                Err(error) if rlaunch_sys::is_aborted_connection(&error) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) if self.answered.pop_front().is_some() => {}
                Err(error) => {
                    // The listener would be ready all the time, and the agent would do nothing else.
                    tracing::warn!(%error, "no other host can try an address of this host any more");
                    return self.set.remove(listener);
                }
            }
        }
    }

    fn look(&mut self, events: &mut VecDeque<NodeEvent>) {
        if self.set.ready(&mut self.batch) == 0 {
            return;
        }
        let tokens: Vec<u64> = self.batch.tokens().collect();
        for token in tokens {
            match u32::try_from(token) {
                Ok(number) => {
                    events.extend(self.called(number).inspect(|event| tracing::debug!("{event:?}")));
                }
                Err(_) => self.accept(usize::try_from(token & !LISTENER).unwrap_or(usize::MAX)),
            }
        }
    }

    fn call(&mut self, place: Place) -> io::Result<()> {
        let at = approach::address(&place.addr, place.port).ok_or(ErrorKind::InvalidInput)?;
        let socket = approach::begin(at)?;
        self.set.add(&socket, place.number.into())?;
        self.calls.insert(place.number, Call { at, key: place.key, socket, came: Vec::new(), tries: 1 });
        Ok(())
    }

    /// The outcome; `None`: nothing yet.
    fn called(&mut self, number: u32) -> Option<NodeEvent> {
        let call = self.calls.get_mut(&number)?;
        let result = match call.receive() {
            Err(error) if is_closed(&error) && call.tries < TRIES => call.again(&self.set, number).map(|()| None),
            result => result,
        };
        let event = probed(number, result.transpose()?);
        self.set.remove(&self.calls.remove(&number)?.socket);
        Some(event)
    }
}

impl Call {
    /// Reads bytes. Returns the address of this host, once the other end has proved that it is rank 0's agent.
    fn receive(&mut self) -> io::Result<Option<IpAddr>> {
        let mut bytes = [0; KEY];
        match self.socket.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => self.came.extend(bytes.iter().take(len)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        match self.came.len() < KEY {
            true => Ok(None),
            false if self.key.is(&self.came) => Ok(Some(self.socket.local_addr()?.ip())),
            false => Err(io::Error::from_raw_os_error(EPROTO)),
        }
    }

    /// Begins to connect again.
    fn again(&mut self, set: &ReadySet, number: u32) -> io::Result<()> {
        set.remove(&self.socket);
        self.socket = approach::begin(self.at)?;
        set.add(&self.socket, number.into())?;
        self.came.clear();
        self.tries += 1;
        Ok(())
    }
}

/// The other end has closed the connection. A refused connection is none.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

fn probed(number: u32, found: io::Result<IpAddr>) -> NodeEvent {
    let errno = |error: io::Error| error.raw_os_error().filter(|errno| *errno != 0).unwrap_or(EPROTO);
    NodeEvent::Probed { number, found: found.map_err(errno) }
}

impl Part for Probes {
    type Action = ProbeAction;

    fn perform(&mut self, base: &mut Base, action: ProbeAction) {
        match action {
            ProbeAction::Call(place) => {
                let number = place.number;
                if let Err(error) = self.open(base).and_then(|open| open.call(place)) {
                    base.events.push_back(probed(number, Err(error)));
                }
            }
            ProbeAction::End => {
                if let Some(open) = self.0.take() {
                    base.watch.set.remove(&open.set);
                }
            }
        }
    }

    fn ready(&mut self, base: &mut Base) {
        if let Some(open) = &mut self.0 {
            open.look(&mut base.events);
        }
    }
}

impl Probes {
    /// Waits for agents of other hosts at these addresses of ours, at this port where it is free. Returns the ports; 0: we do not.
    pub(super) fn listen(&mut self, base: &Base, key: &Key, at: &[OsBytes], port: u16) -> Capped<u16, ADDRESSES> {
        let mut listen = |addr| {
            let open = self.open(base)?;
            open.listen(key, addr, port).or_else(|_taken| open.listen(key, addr, 0))
        };
        let ports = at.iter().map(|addr| {
            listen(addr).inspect_err(|error| tracing::debug!(%error, "no other host can try {addr}")).unwrap_or(0)
        });
        Capped::chunks(ports).pop().unwrap_or_default()
    }

    fn open(&mut self, base: &Base) -> io::Result<&mut Open> {
        match self.0 {
            Some(ref mut open) => Ok(open),
            None => {
                let open = Open::new()?;
                base.watch.add_part(&open.set, PartName::Probes)?;
                Ok(self.0.insert(open))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    struct Rig {
        open: Open,
        place: Place,
        events: VecDeque<NodeEvent>,
    }

    impl Rig {
        /// An agent that listens, and tries nothing yet.
        fn new() -> Self {
            let (mut open, addr) = (Open::new().unwrap(), OsBytes::from("127.0.0.1"));
            let port = open.listen(&Key::default(), &addr, 0).unwrap();
            let key = Key::default().at(&addr, port);
            Self { open, place: Place { number: 7, addr, port, key }, events: VecDeque::new() }
        }

        fn connect(&self) -> TcpStream {
            TcpStream::connect(("127.0.0.1", self.place.port)).unwrap()
        }

        /// Serves until the call has an outcome.
        fn outcome(&mut self) -> NodeEvent {
            let until = Instant::now() + Duration::from_secs(20);
            loop {
                self.open.look(&mut self.events);
                if let Some(event) = self.events.pop_front() {
                    assert!(self.open.calls.is_empty());
                    return event;
                }
                assert!(Instant::now() < until, "too late");
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

    fn reached() -> NodeEvent {
        NodeEvent::Probed { number: 7, found: Ok([127, 0, 0, 1].into()) }
    }

    fn missed(errno: i32) -> NodeEvent {
        NodeEvent::Probed { number: 7, found: Err(errno) }
    }

    #[test]
    fn agent_is_reached_while_strangers_open_many_connections() {
        let mut rig = Rig::new();
        // Half of the strangers write something; no stranger closes its connection.
        let strangers: Vec<_> = (0..2 * HELD).map(|_| rig.connect()).collect();
        strangers.iter().step_by(2).for_each(|mut stranger| stranger.write_all(&[0; 100]).unwrap());
        rig.open.call(rig.place.clone()).unwrap();
        let _others: Vec<_> = (0..2 * HELD).map(|_| rig.connect()).collect();
        assert_eq!(rig.outcome(), reached());
        assert!(rig.becomes_idle());
        assert_eq!(rig.open.answered.len(), HELD);
    }

    #[test]
    fn place_is_not_reached_if_another_process_listens_there() {
        let mut rig = Rig::new();
        let good = rig.place.clone();
        rig.open.call(Place { key: Key::default().at(&good.addr, 1), ..good }).unwrap();
        assert_eq!(rig.outcome(), missed(EPROTO), "the agent of another host");
        let closed = { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() };
        rig.open.call(Place { port: closed, ..rig.place.clone() }).unwrap();
        let NodeEvent::Probed { number: 7, found: Err(errno) } = rig.outcome() else { panic!("reached") };
        assert_eq!(io::Error::from_raw_os_error(errno).kind(), ErrorKind::ConnectionRefused);
        // Nothing else begins a connection, and one without a key is no answer.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        rig.open.call(Place { port: silent.local_addr().unwrap().port(), ..rig.place.clone() }).unwrap();
        let (mut came, _) = silent.accept().unwrap();
        came.write_all(&rig.place.key.bytes()[1..]).unwrap();
        assert!(rig.becomes_idle() && rig.events.is_empty());
        came.write_all(&[0; 9]).unwrap();
        assert_eq!(rig.outcome(), missed(EPROTO));
    }

    #[test]
    fn listener_that_cannot_accept_is_shut() {
        let mut rig = Rig::new();
        let _waiting = rig.connect();
        // A socket that is always ready and accepts nothing, like a listener without free descriptors.
        let bound = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(bound.local_addr().unwrap()).unwrap();
        let (mut far, _) = bound.accept().unwrap();
        far.write_all(b"x").unwrap();
        near.peek(&mut [0]).unwrap();
        rig.open.set.add(&near, LISTENER | 1).unwrap();
        rig.open.listeners.push((TcpListener::from(std::os::fd::OwnedFd::from(near)), Key::default()));
        assert!(rig.becomes_idle(), "the listener stays ready");
        assert_eq!(rig.open.answered.len(), 0, "the connection has made room");
        let _next = rig.connect();
        assert!(rig.becomes_idle());
        assert_eq!(rig.open.answered.len(), 1, "other listeners stay open");
    }

    #[test]
    fn call_is_made_again_when_its_connection_was_closed_without_a_key() {
        let mut rig = Rig::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place { port: listener.local_addr().unwrap().port(), ..rig.place.clone() };
        rig.open.call(place.clone()).unwrap();
        for tries in 2..5 {
            let (came, _) = listener.accept().unwrap();
            approach::abort_at_end(&came).unwrap();
            drop(came);
            while rig.open.calls[&7].tries < tries {
                rig.open.look(&mut rig.events);
            }
        }
        let (mut came, _) = listener.accept().unwrap();
        for part in place.key.bytes().chunks(5) {
            assert!(rig.becomes_idle() && rig.events.is_empty());
            came.write_all(part).unwrap();
        }
        assert_eq!(rig.outcome(), reached());
        // A call that was never answered fails after its last try.
        rig.open.call(place).unwrap();
        rig.open.calls.get_mut(&7).unwrap().tries = TRIES;
        drop(listener.accept().unwrap());
        assert_eq!(rig.outcome(), missed(EPROTO));
    }
}
