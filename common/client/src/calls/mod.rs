//! Calls between a controller and the workers of its groups: all connections of a process, at one epoll.
//!
//! No thread runs here. The thread that asks for the next event waits at the epoll, reads all connections that have something, and sends
//! what waits for room. Any thread may send at the same time.

mod answers;
mod attach;
mod listener;
mod peer;
pub(crate) mod plain;
pub(crate) mod record;

use crate::kernel::Bell;
use crate::{Error, Store};
use listener::{Listener, Proof, is_shortage};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
pub(crate) use peer::Frame;
use peer::{Closed, Peer, Stream, Waiting};
use record::Record;
use rlaunch_protocol::wire::frozen::calls::{Description, Header, Kind, Part, Place, laid_out};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const SCRATCH: usize = 64 << 10;
/// Bytes of a frame that is put together before it is sent: a copy costs less than slices do in each call of the kernel.
const SMALL: usize = 1 << 10;
/// How long a sender waits for a reader that takes nothing: after that the bytes wait without it.
const STALLED: Duration = Duration::from_millis(100);
/// Connections that one wake-up of the epoll serves.
const EVENTS: usize = 64;

/// The subject of an event of the epoll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Peer(u32),
    Process(u32),
    Pending(u64),
    Unix,
    Tcp,
    Bell,
}

impl Token {
    const fn raw(self) -> u64 {
        match self {
            Self::Peer(peer) => (peer as u64) << 3,
            Self::Process(peer) => (peer as u64) << 3 | 1,
            Self::Pending(number) => number << 3 | 2,
            Self::Unix => 3,
            Self::Tcp => 4,
            Self::Bell => 5,
        }
    }

    const fn from_raw(raw: u64) -> Self {
        let number = raw >> 3;
        match raw & 7 {
            #[expect(clippy::cast_possible_truncation, reason = "made from 32 bits above")]
            0 => Self::Peer(number as u32),
            #[expect(clippy::cast_possible_truncation, reason = "made from 32 bits above")]
            1 => Self::Process(number as u32),
            2 => Self::Pending(number),
            3 => Self::Unix,
            4 => Self::Tcp,
            _ => Self::Bell,
        }
    }
}

/// Something that happened on a connection.
#[derive(Debug)]
pub(crate) enum Event {
    /// A controller has connected.
    Opened(u32),
    /// A frame has come.
    Frame(u32, Frame),
    /// The connection has ended, for this reason.
    Closed(u32, String),
}

/// A part of a frame that is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sent<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Bytes of the shared memory: offset and length.
    Arena(u64, u64),
}

/// A frame that is sent, without its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) kind: Kind,
    pub(crate) codec: u8,
    pub(crate) count: u32,
    pub(crate) call: u64,
    pub(crate) texts: &'a [&'a [u8]],
}

/// A connection to a worker.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    pub(crate) peer: u32,
    pub(crate) record: Record,
    /// Whether the worker is on this host.
    pub(crate) is_near: bool,
}

/// All connections of a process.
#[derive(Debug)]
pub(crate) struct Calls {
    epoll: Epoll,
    /// Rung for events that a sender has read: the thread that waits for events is to take them.
    bell: Bell,
    /// Threads that wait for events.
    waiting: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    peers: Vec<Option<Peer>>,
    listener: Option<Listener>,
    inbox: VecDeque<Event>,
    scratch: Vec<u8>,
}

impl Calls {
    pub(crate) fn new() -> io::Result<Self> {
        let (epoll, bell) = (Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?, Bell::new()?);
        epoll.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN, Token::Bell.raw()))?;
        let inner = Inner { peers: Vec::new(), listener: None, inbox: VecDeque::new(), scratch: vec![0; SCRATCH] };
        Ok(Self { epoll, bell, waiting: AtomicUsize::new(0), inner: Mutex::new(inner) })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable when there is an event, or something to send.
    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }

    fn watch(&self, what: impl AsFd, token: Token) -> io::Result<()> {
        Ok(self.epoll.add(what, EpollEvent::new(EpollFlags::EPOLLIN, token.raw()))?)
    }

    /// Begins to serve as a worker of a group: it can be found in the job's store from now on. With `is_far` it listens for other hosts too.
    pub(crate) fn serve(&self, store: &Store, group: &str, mut identity: Record, is_far: bool) -> Result<(), Error> {
        let secret = record::secret(store, group)?;
        let (listener, at) = Listener::open(secret, identity.rank, is_far)?;
        self.watch(&listener.unix, Token::Unix)?;
        if let Some(tcp) = &listener.tcp {
            self.watch(tcp, Token::Tcp)?;
        }
        self.inner().listener = Some(listener);
        (identity.machine, identity.unix, identity.tcp) = (at.machine, at.unix, at.tcp);
        identity.publish(store, group)
    }

    fn add(&self, inner: &mut Inner, mut stream: Stream, process: Option<OwnedFd>, first: &[u8]) -> io::Result<u32> {
        stream.set_nonblocking()?;
        let number = u32::try_from(inner.peers.len()).unwrap_or(u32::MAX);
        self.watch(&stream, Token::Peer(number))?;
        if let Some(process) = &process {
            self.watch(process, Token::Process(number))?;
        }
        if let Stream::Tcp(tcp) = &mut stream {
            let _slow = tcp.set_nodelay(true);
        }
        let mut peer = Peer::new(stream, process);
        let mut frames = Vec::new();
        let fed = peer.feed(first, &mut frames);
        inner.peers.push(Some(peer));
        inner.inbox.extend(frames.into_iter().map(|frame| Event::Frame(number, frame)));
        if let Err(closed) = fed {
            self.close_with(inner, number, &closed);
        }
        Ok(number)
    }

    fn close_with(&self, inner: &mut Inner, number: u32, why: &Closed) {
        let Some(place) = inner.peers.get_mut(number as usize) else { return };
        if let Some(peer) = place.take() {
            // Closing a descriptor takes it out of the set, if no forked child has it.
            let _gone = self.epoll.delete(&peer.stream);
            if let Some(process) = &peer.process {
                let _gone = self.epoll.delete(process);
            }
            inner.inbox.push_back(Event::Closed(number, why.to_string()));
        }
    }

    /// Closes a connection, without an event.
    pub(crate) fn close(&self, number: u32) {
        let mut inner = self.inner();
        let has_been = inner.inbox.len();
        self.close_with(&mut inner, number, &Closed::End);
        inner.inbox.truncate(has_been);
    }

    /// The next event; `None`: none came in time, or a signal did.
    pub(crate) fn next(&self, within: Option<Duration>) -> io::Result<Option<Event>> {
        self.await_events(within, |inbox| !inbox.is_empty())?;
        Ok(self.inner().inbox.pop_front())
    }

    /// Waits until enough events have come, at most for so long. A signal ends the wait. Events that have come wait for others only a moment.
    fn await_events(&self, within: Option<Duration>, is_enough: impl Fn(&VecDeque<Event>) -> bool) -> io::Result<()> {
        let mut until = within.map(|within| Instant::now() + within);
        let mut has_some = false;
        loop {
            let expires = {
                let mut inner = self.inner();
                if is_enough(&inner.inbox) {
                    return Ok(());
                }
                if !has_some && !inner.inbox.is_empty() {
                    has_some = true;
                    let soon = Instant::now() + answers::MOMENT;
                    until = Some(until.map_or(soon, |until| until.min(soon)));
                }
                inner.listener.as_mut().and_then(|listener| self.expire(listener))
            };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = [left, expires].into_iter().flatten().min();
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let turned = self.turn(timeout, true);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let Some(has_come) = turned? else { return Ok(()) };
            if !has_come && left.is_some_and(|left| expires.is_none_or(|expires| left <= expires)) {
                return Ok(());
            }
        }
    }

    /// Waits once at the epoll, and serves what is ready. Whether anything was; `None`: a signal came. The bell is for threads that take
    /// events.
    fn turn(&self, within: Option<Duration>, takes_events: bool) -> io::Result<Option<bool>> {
        let mut events = [EpollEvent::empty(); EVENTS];
        // Rounded up: else the last part of a millisecond would be spent awake.
        let millis = within.map(|within| i32::try_from(within.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let timeout =
            millis.map_or(EpollTimeout::NONE, |millis| EpollTimeout::try_from(millis).unwrap_or(EpollTimeout::MAX));
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut inner = self.inner();
        if takes_events && events.iter().take(count).any(|event| event.data() == Token::Bell.raw()) {
            self.bell.clear();
        }
        for event in events.iter().take(count) {
            self.on_ready(&mut inner, Token::from_raw(event.data()), event.events());
        }
        Ok(Some(count > 0))
    }

    fn on_ready(&self, inner: &mut Inner, token: Token, flags: EpollFlags) {
        match token {
            Token::Peer(number) => self.on_peer(inner, number, flags),
            Token::Process(number) => {
                // Bytes that it had sent before its end are read first.
                self.on_peer(inner, number, EpollFlags::EPOLLIN);
                self.close_with(inner, number, &Closed::End);
            }
            Token::Unix | Token::Tcp => {
                let Some(listener) = &mut inner.listener else { return };
                let number = match listener.accept(token == Token::Tcp) {
                    Ok(number) => number,
                    Err(error) if is_shortage(&error) => return self.pause(listener),
                    Err(_) => return,
                };
                let watched = listener.get(number).map(|pending| self.watch(&pending.stream, Token::Pending(number)));
                if !matches!(watched, Some(Ok(()))) {
                    listener.take(number);
                }
                // A controller has mostly sent its first message already.
                self.on_pending(inner, number);
                if let Some(listener) = &mut inner.listener {
                    listener.drop_surplus();
                }
            }
            Token::Pending(number) => self.on_pending(inner, number),
            Token::Bell => {}
        }
    }

    /// Pauses the listening sockets after a shortage. Else a connection that waits would keep this process busy.
    fn pause(&self, listener: &mut Listener) {
        listener.pause();
        self.watch_listener(listener, EpollFlags::empty());
    }

    /// Does what is due at the listening sockets. Returns the time until more is.
    fn expire(&self, listener: &mut Listener) -> Option<Duration> {
        if listener.resume() {
            self.watch_listener(listener, EpollFlags::EPOLLIN);
        }
        listener.expire()
    }

    fn watch_listener(&self, listener: &Listener, flags: EpollFlags) {
        let _absent = self.epoll.modify(&listener.unix, &mut EpollEvent::new(flags, Token::Unix.raw()));
        if let Some(tcp) = &listener.tcp {
            let _absent = self.epoll.modify(tcp, &mut EpollEvent::new(flags, Token::Tcp.raw()));
        }
    }

    fn on_peer(&self, inner: &mut Inner, number: u32, flags: EpollFlags) {
        let Inner { peers, inbox, scratch, .. } = inner;
        let Some(Some(peer)) = peers.get_mut(number as usize) else { return };
        let mut frames = Vec::new();
        let mut result = Ok(());
        if flags.intersects(EpollFlags::EPOLLOUT) {
            result = self.flush(number, peer).map(|_| ());
        }
        if result.is_ok() && flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            result = peer.read(scratch, &mut frames);
        }
        inbox.extend(frames.into_iter().map(|frame| Event::Frame(number, frame)));
        if let Err(closed) = result {
            self.close_with(inner, number, &closed);
        }
    }

    /// Sends what waits, and waits for room where there is none. Whether anything was sent.
    fn flush(&self, number: u32, peer: &mut Peer) -> Result<bool, Closed> {
        let has_sent = peer.flush()?;
        let needs_room = !peer.outgoing.is_empty();
        if needs_room != peer.is_watched_for_room {
            let flags = if needs_room { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            self.epoll
                .modify(&peer.stream, &mut EpollEvent::new(flags, Token::Peer(number).raw()))
                .map_err(io::Error::from)?;
            peer.is_watched_for_room = needs_room;
        }
        Ok(has_sent)
    }

    fn on_pending(&self, inner: &mut Inner, number: u64) {
        let Some(listener) = &mut inner.listener else { return };
        match listener.read(number) {
            Proof::Part => {}
            Proof::Refused => drop(listener.take(number)),
            Proof::Proven(first) => {
                let Some(pending) = listener.take(number) else { return };
                let _absent = self.epoll.delete(&pending.stream);
                if inner.peers.iter().any(Option::is_some) {
                    refuse(&pending.stream);
                } else if let Ok(peer) = self.add(inner, pending.stream, None, &[]) {
                    inner.inbox.push_back(Event::Opened(peer));
                    // The first frames may have come with the proof.
                    let Some(Some(opened)) = inner.peers.get_mut(peer as usize) else { return };
                    let mut frames = Vec::new();
                    let fed = opened.feed(&first, &mut frames);
                    inner.inbox.extend(frames.into_iter().map(|frame| Event::Frame(peer, frame)));
                    if let Err(closed) = fed {
                        self.close_with(inner, peer, &closed);
                    }
                }
            }
        }
    }

    /// Sends a frame with at most one text, which is in its head, and at most one part.
    pub(crate) fn post(&self, peers: &[u32], head: Head<'_>, part: &[u8]) -> Result<(), Error> {
        let text = head.texts.first().copied().unwrap_or_default();
        let Some(bytes) = plain::frame(&head, text, part, SMALL) else {
            let parts: &[Sent<'_>] = if part.is_empty() { &[] } else { &[Sent::Bytes(part)] };
            return self.send(peers, head, parts);
        };
        if self.send_now(peers, &[IoSlice::new(&bytes)]) {
            self.drain(peers)?;
        }
        Ok(())
    }

    /// Sends a frame to several peers. Bytes for which a peer has no room wait. The caller waits as long as any peer takes bytes.
    pub(crate) fn send(&self, peers: &[u32], head: Head<'_>, parts: &[Sent<'_>]) -> Result<(), Error> {
        let lengths: Vec<u64> = parts.iter().map(|part| part.body_len()).collect();
        let (offsets, body) = laid_out(&lengths);
        let described = parts.iter().zip(&offsets).map(|(part, offset)| part.described(*offset)).collect();
        let description = Description { texts: head.texts.to_vec(), parts: described }.to_bytes();
        let described = u32::try_from(description.len()).map_err(|_| Error::TooLong(description.len()))?;
        let Head { kind, codec, count, call, .. } = head;
        let header = Header { kind, codec, count, call, description: described, body };
        let first = header.to_bytes();
        Header::parse(&first).map_err(|_| Error::TooLong(description.len()))?;
        let mut slices = Vec::with_capacity(3 + 2 * parts.len());
        slices.extend([IoSlice::new(&first), IoSlice::new(&description)]);
        let mut end = 0;
        for (part, offset) in parts.iter().zip(&offsets) {
            if let Sent::Bytes(bytes) = part {
                slices.extend([IoSlice::new(padding(offset - end)), IoSlice::new(bytes)]);
                end = offset + bytes.len() as u64;
            }
        }
        // Parts in shared memory at the end may leave a gap.
        slices.push(IoSlice::new(padding(body - end)));
        if self.send_now(peers, &slices) {
            self.drain(peers)?;
        }
        Ok(())
    }

    /// Sends what there is room for, and keeps the rest. Whether any is left.
    fn send_now(&self, peers: &[u32], slices: &[IoSlice<'_>]) -> bool {
        let whole: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut kept: Option<Arc<Vec<u8>>> = None;
        let mut has_rest = false;
        let mut inner = self.inner();
        for number in peers {
            let Some(Some(peer)) = inner.peers.get_mut(*number as usize) else { continue };
            // The kernel takes at most 1,024 slices at a time.
            let sent = match peer.outgoing.is_empty() && slices.len() <= 1024 {
                true => peer.stream.send(slices),
                false => Ok(0),
            };
            let result = match sent {
                Ok(sent) if sent == whole => continue,
                Ok(sent) => {
                    let bytes = Arc::clone(kept.get_or_insert_with(|| Arc::new(joined(slices, whole))));
                    peer.outgoing.push_back(Waiting { bytes, sent });
                    has_rest = true;
                    self.flush(*number, peer).map(|_| ())
                }
                // The reason of the end is found when the connection is read.
                Err(_) => Ok(()),
            };
            if let Err(closed) = result {
                self.close_with(&mut inner, *number, &closed);
                self.bell.ring();
            }
        }
        has_rest
    }

    /// Waits until these peers have taken what is for them, or none of them takes anything.
    fn drain(&self, peers: &[u32]) -> io::Result<()> {
        let left = |inner: &Inner| -> usize {
            let waiting = peers.iter().filter_map(|number| inner.peers.get(*number as usize)?.as_ref());
            waiting.flat_map(|peer| &peer.outgoing).map(|waiting| waiting.bytes.len() - waiting.sent).sum()
        };
        let mut before = left(&self.inner());
        let mut since = Instant::now();
        while before > 0 && since.elapsed() < STALLED {
            if self.turn(Some(STALLED), false)?.is_none() {
                break;
            }
            if self.waiting.load(Ordering::Relaxed) > 0 {
                self.ring();
            }
            let now = left(&self.inner());
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        self.ring();
        Ok(())
    }

    /// Wakes a thread that waits for events, if there are any.
    fn ring(&self) {
        if !self.inner().inbox.is_empty() {
            self.bell.ring();
        }
    }
}

impl Sent<'_> {
    const fn body_len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Arena(..) => 0,
        }
    }

    const fn described(&self, offset: u64) -> Part {
        match *self {
            Self::Bytes(bytes) => Part { place: Place::Body, offset, len: bytes.len() as u64 },
            Self::Arena(offset, len) => Part { place: Place::Arena, offset, len },
        }
    }
}

/// All of these bytes.
fn joined(slices: &[IoSlice<'_>], len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
    bytes
}

/// Zeros between two parts.
fn padding(len: u64) -> &'static [u8] {
    const ZEROS: [u8; 16] = [0; 16];
    ZEROS.get(..usize::try_from(len).unwrap_or_default()).unwrap_or_default()
}

/// The answer to a second controller.
fn refuse(stream: &Stream) {
    let text: &[u8] = b"the worker has a controller already: only one process at a time can call a group";
    let description = Description { texts: vec![b"Refused", text, b""], parts: Vec::new() }.to_bytes();
    let len = u32::try_from(description.len()).unwrap_or_default();
    let header = Header { kind: Kind::Raise, codec: 0, count: 0, call: 0, description: len, body: 0 };
    let _gone = stream.send(&[IoSlice::new(&header.to_bytes()), IoSlice::new(&description)]);
}

impl AsFd for Calls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

#[cfg(test)]
mod tests;
