//! An edge: frames in, frames out, without a task of its own.
//!
//! The driver polls it: everything here is cancel-safe because all state is in the structure. It never stops reading for
//! a slow sink; what a sink holds back is credit.

use crate::halves::Halves;
use crate::outbox::{Outbox, Overflow};
use bytes::{Buf, Bytes, BytesMut};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::uio::writev;
use rlaunch_core::id::{NodeId, StreamId};
use rlaunch_core::stream::turn::Broken;
use rlaunch_core::wire::beat::Beat;
use rlaunch_core::wire::codec::{WireMessage, decode, encode};
use rlaunch_core::wire::frame::{Flags, FrameError, HEADER, Header, Lane, parse_header};
use rlaunch_core::wire::guardian_count::Last;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Read at once; several frames of 64 KiB fit.
const CHUNK: usize = 256 << 10;

/// Bytes of messages that may wait when a frame for a store is queued behind them.
const STORE_AHEAD: usize = 256 << 10;

/// How much is kept of what is no frame.
const SHOWN: usize = 64;

/// A data frame of at most this many bytes gets memory of its own: while it waits for its writer it would hold all that
/// was read with it, and the window counts only what it is itself.
const SMALL: usize = 4 << 10;

/// A frame that was received.
#[derive(Debug)]
pub struct Frame<M> {
    /// The node it comes from or is meant for.
    pub node: NodeId,
    /// The content.
    pub body: Body<M>,
}

/// The content of a frame.
#[derive(Debug)]
pub enum Body<M> {
    /// A message to a machine.
    Message(M),
    /// Bytes of a stream.
    Data {
        /// Which stream.
        stream: StreamId,
        /// Whether its line continues, and whether it ends here.
        flags: Flags,
        /// The bytes.
        bytes: Bytes,
    },
    /// The other side takes data up to this offset.
    Credit(u64),
    /// The other side has broken a line.
    Broken(Broken),
    /// A heartbeat.
    Beat(Beat),
    /// Something for a store, of the agent that asks or is answered.
    Store(Bytes),
    /// The last words of a remote guardian, whose agent ended without counting.
    Last(Last),
}

/// Why an edge has ended.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The other side closed it.
    #[error("the other side closed the connection")]
    Eof,
    /// The other side closed it inside a frame.
    #[error("the connection ended inside a frame")]
    Truncated,
    /// A frame that is none.
    #[error("malformed frame: {error}")]
    Frame {
        /// The error in it.
        error: FrameError,
        /// How it begins: 64 bytes at most.
        begins: Vec<u8>,
    },
    /// A message that is none, or a lane that this version does not serve.
    #[error("malformed message")]
    Message,
    /// The kernel's error.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
}

/// An edge, receiving messages of type `M`.
///
/// The type is not a tokio `UnixStream`: that would be woken whenever the other side has read something, for room that is not needed.
/// tokio's pipe ends wait for one direction each, and do nothing that is special to pipes.
#[derive(Debug)]
pub struct Connection<M> {
    /// The half that is read, waiting for something to read.
    reading: Receiver,
    /// The half that is written; `None`: it is the same socket.
    output: Option<File>,
    /// The half that is written, while it is full.
    full: Option<Sender>,
    /// The descriptor for `full`: it must not turn out that none is left when the edge is full for the first time.
    spare: Option<OwnedFd>,
    inbox: BytesMut,
    outbox: Outbox,
    /// The pipe for the bodies of spliced frames; made for the first of them.
    pipe: Option<(OwnedFd, OwnedFd)>,
    peer: PhantomData<fn() -> M>,
}

/// The same before a runtime exists, on one thread. Only reading waits: all signals are blocked then, and the other side may
/// read nothing.
#[derive(Debug)]
pub struct Early<M> {
    io: Halves,
    inbox: BytesMut,
    outbox: Outbox,
    peer: PhantomData<fn() -> M>,
}

impl<M: WireMessage> Early<M> {
    /// Takes a connected stream.
    #[must_use]
    pub fn new(io: StdStream) -> Self {
        Self::over(Halves::socket(io))
    }

    /// Takes a connected stream of which this was read already.
    #[must_use]
    pub fn begun(io: StdStream, read: &[u8]) -> Self {
        let mut early = Self::new(io);
        early.inbox.extend_from_slice(read);
        early
    }

    /// Takes a stream in two halves, as sshd gives them: pipes, or sockets. They must be ours alone, because they become
    /// non-blocking.
    #[must_use]
    pub fn from_halves(input: OwnedFd, output: OwnedFd) -> Self {
        Self::over(Halves::two(input, output))
    }

    fn over(io: Halves) -> Self {
        Self { io, inbox: BytesMut::new(), outbox: Outbox::default(), peer: PhantomData }
    }

    /// The next frame; waits for it, and writes meanwhile what was queued and not taken.
    ///
    /// # Errors
    /// The edge has ended or carries something else.
    pub fn recv(&mut self) -> Result<Frame<M>, Closed> {
        loop {
            if let Some(frame) = self.next(None, None)? {
                return Ok(frame);
            }
        }
    }

    /// The same for a caller that has something else to do after this time, or when there is something to read beside the edge. `None`:
    /// nothing had come by then.
    ///
    /// # Errors
    /// The edge has ended or carries something else.
    pub fn recv_beside(&mut self, beside: &impl AsFd, time: Option<Duration>) -> Result<Option<Frame<M>>, Closed> {
        self.next(Some(beside.as_fd()), time)
    }

    fn next(&mut self, beside: Option<BorrowedFd<'_>>, time: Option<Duration>) -> Result<Option<Frame<M>>, Closed> {
        let until = time.map(|time| Instant::now() + time);
        // Or reading would wait.
        self.io.set_nonblocking()?;
        loop {
            let frame = read_frame(self.io.input(), &mut self.inbox)?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if frame.is_some() || left.is_some_and(|left| left.is_zero()) {
                return Ok(frame);
            }
            if self.wait(PollFlags::POLLIN, beside, left.map_or(PollTimeout::NONE, rounded_up))? {
                return Ok(None);
            }
            self.flush()?;
        }
    }

    /// Waits for this of the half that is read, for room in the other if something is queued, and for something to read
    /// beside them: whether there is.
    fn wait(&self, input: PollFlags, beside: Option<BorrowedFd<'_>>, time: PollTimeout) -> io::Result<bool> {
        let output = if self.outbox.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
        let halves = [(self.io.output().as_fd(), output), (self.io.input().as_fd(), input)];
        // A half that is waited for nothing has hung up or not: that must not end the wait again and again.
        let wanted = halves.into_iter().filter(|(_, wanted)| !wanted.is_empty());
        let beside = beside.map(|fd| (fd, PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> =
            beside.into_iter().chain(wanted).map(|(fd, flags)| PollFd::new(fd, flags)).collect();
        match poll(&mut fds, time) {
            Ok(_) => Ok(beside.is_some() && fds.first().and_then(PollFd::any).unwrap_or(false)),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether `recv` would not wait.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        let head = self.inbox.first_chunk::<HEADER>().map(parse_header);
        // A header that is refused is an answer too.
        head.is_some_and(|head| {
            head.map_or(true, |h| usize::try_from(h.len).is_ok_and(|len| self.inbox.len() >= HEADER + len))
        })
    }

    /// Queues a message.
    ///
    /// # Errors
    /// Too much is waiting.
    pub fn send<W: WireMessage>(&mut self, node: NodeId, message: &W) -> Result<(), Overflow> {
        self.outbox.control(Lane::Control, node, &encode(message))
    }

    /// Queues a grant of credit.
    ///
    /// # Errors
    /// Too much is waiting.
    pub fn grant(&mut self, node: NodeId, up_to: u64) -> Result<(), Overflow> {
        self.outbox.control(Lane::Credit, node, &up_to.to_le_bytes())
    }

    /// Queues a heartbeat.
    ///
    /// # Errors
    /// Too much is waiting.
    pub fn beat(&mut self, node: NodeId, beat: Beat) -> Result<(), Overflow> {
        self.outbox.control(Lane::Beat, node, &beat.to_bytes())
    }

    /// Writes what the kernel takes without waiting; whether that was all. The rest stays queued, for `recv` and for the
    /// connection under a runtime.
    ///
    /// # Errors
    /// The edge has ended.
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.outbox.is_empty() {
            return Ok(true);
        }
        self.io.set_nonblocking()?;
        while !self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); 3];
            let n = self.outbox.slices(&mut slices);
            match self.io.output().write_vectored(slices.get(..n).unwrap_or_default()) {
                Ok(written) => self.outbox.advance(written),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// The same for last words: waits for a while until the other side has taken all.
    ///
    /// # Errors
    /// The edge has ended.
    pub fn flush_within(&mut self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        while !self.flush()? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.wait(PollFlags::empty(), None, rounded_up(left))?;
        }
        Ok(true)
    }

    /// Goes on under a runtime, which must be entered.
    ///
    /// # Errors
    /// No descriptor is left, or the runtime refuses it. The edge comes back with that, so that the peer can be notified.
    pub fn into_connection(self) -> Result<Connection<M>, (Box<Self>, io::Error)> {
        let duplicate = || {
            self.io.set_nonblocking()?;
            let spare = OwnedFd::from(self.io.output().try_clone()?);
            Ok((Receiver::from_owned_fd_unchecked(self.io.input().try_clone()?.into())?, Some(spare)))
        };
        let (reading, spare) = match duplicate() {
            Ok(both) => both,
            Err(error) => return Err((Box::new(self), error)),
        };
        // A launcher holds thousands of edges: what is read needs no second descriptor.
        let Self { io, inbox, outbox, peer } = self;
        Ok(Connection { reading, output: io.into_output(), full: None, spare, inbox, outbox, pipe: None, peer })
    }
}

impl<M> AsFd for Connection<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reading.as_fd()
    }
}

impl<M: WireMessage> Connection<M> {
    /// The next frame.
    ///
    /// # Errors
    /// The edge has ended or carries something else. It must not be polled again then: an ended stream is always ready.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame<M>, Closed>> {
        loop {
            if let Some(frame) = take_frame(&mut self.inbox)? {
                return Poll::Ready(Ok(frame));
            }
            ready!(self.reading.poll_read_ready(cx))?;
            match self.read_once() {
                Ok(0) => return Poll::Ready(ended(&mut self.inbox)),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// The next frame of what has come by now; `None`: no more. The kernel is asked, because the runtime may not have asked it
    /// since: for an edge whose other side is known to have ended.
    ///
    /// # Errors
    /// The edge has ended or carries something else. It must not be polled again then.
    pub fn recv_now(&mut self) -> Result<Option<Frame<M>>, Closed> {
        read_frame(&self.reading, &mut self.inbox)
    }

    /// A read. A read of less than was asked for has taken all. Then the runtime is set to wait for more, as a read that finds nothing
    /// would, without that read.
    fn read_once(&mut self) -> io::Result<usize> {
        let Self { reading, inbox, .. } = self;
        inbox.reserve(CHUNK.min(needed(inbox)));
        let room = inbox.capacity() - inbox.len();
        let mut short = None;
        let read = reading.try_io(|| match reading.try_read_buf(inbox) {
            Ok(n) if n > 0 && n < room => {
                short = Some(n);
                Err(ErrorKind::WouldBlock.into())
            }
            other => other,
        });
        short.map_or(read, Ok)
    }

    /// Queues a message.
    ///
    /// # Errors
    /// Too much is waiting: the other side does not read.
    pub fn send<W: WireMessage>(&mut self, node: NodeId, message: &W) -> Result<(), Overflow> {
        self.outbox.control(Lane::Control, node, &encode(message))
    }

    /// Queues a grant of credit.
    ///
    /// # Errors
    /// Too much is waiting.
    pub fn grant(&mut self, node: NodeId, up_to: u64) -> Result<(), Overflow> {
        self.outbox.control(Lane::Credit, node, &up_to.to_le_bytes())
    }

    /// Ends what we write; what the other side writes is still read.
    ///
    /// # Errors
    /// The stream has ended already.
    pub fn shut_write(&self) -> io::Result<()> {
        let copy = self.output().try_clone_to_owned()?;
        StdStream::from(copy).shutdown(Shutdown::Write)
    }

    /// Queues the news of a line that was broken.
    ///
    /// # Errors
    /// Too much is waiting.
    pub fn broken(&mut self, node: NodeId, broken: Broken) -> Result<(), Overflow> {
        let Broken { stream, waits } = broken;
        self.outbox.mark(Lane::Credit, if waits { Flags::MORE } else { Flags::NONE }, node, stream)
    }

    /// Queues a heartbeat.
    ///
    /// # Errors
    /// Too much is waiting.
    pub fn beat(&mut self, node: NodeId, beat: Beat) -> Result<(), Overflow> {
        self.outbox.control(Lane::Beat, node, &beat.to_bytes())
    }

    /// Queues a frame for a store: of the agent that asks, or is answered.
    ///
    /// # Errors
    /// Too much is waiting.
    pub fn store(&mut self, node: NodeId, body: &[u8]) -> Result<(), Overflow> {
        self.outbox.control(Lane::Store, node, body)
    }

    /// Whether a frame for a store can be queued without keeping messages waiting for long.
    #[must_use]
    pub fn has_store_room(&self) -> bool {
        self.outbox.waiting() < STORE_AHEAD
    }

    /// Whether a data frame can be queued. There is one big one at a time: the next bytes wait in the rank's pipe.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.outbox.has_room()
    }

    /// Whether a data frame waits that messages queued now would overtake.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.outbox.has_data()
    }

    /// Queues a data frame of at most 64 KiB. Only if there is room.
    pub fn data(&mut self, node: NodeId, stream: StreamId, flags: Flags, body: Vec<u8>) {
        self.outbox.data(node, stream, flags, body);
    }

    /// Moves what the pipe `from` holds, `len` bytes as it says, into a data frame, without copying it. Returns how much that
    /// was; 0: no frame. Only if there is room.
    ///
    /// # Errors
    /// `from` holds nothing (`EAGAIN`); no descriptor is left for a pipe of ours. Nothing was taken then.
    pub fn splice(&mut self, node: NodeId, stream: StreamId, from: impl AsFd, len: usize) -> io::Result<usize> {
        let (outlet, inlet) = match &mut self.pipe {
            Some(pipe) => pipe,
            none => none.insert(roomy_pipe()?),
        };
        // After its header, so that both are one write for the waiting reader.
        let head = Outbox::piped_header(node, stream, len);
        nix::unistd::write(&*inlet, &head)?;
        let moved = splice(from, None, &*inlet, None, len, SpliceFFlags::SPLICE_F_NONBLOCK);
        if moved == Ok(len) {
            self.outbox.piped(head, true, len);
            return Ok(len);
        }
        // The header is wrong: the pages of `from` are less full than ours can hold, or it was not as it said.
        nix::unistd::read(&*outlet, &mut [0; HEADER])?;
        let n = moved?;
        if n > 0 {
            self.outbox.piped(Outbox::piped_header(node, stream, n), false, n);
        }
        Ok(n)
    }

    /// Empty memory for the next data frame, with the room of the last one.
    pub fn spare(&mut self) -> Vec<u8> {
        self.outbox.spare()
    }

    /// Whether nothing is left to write.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Writes what the kernel takes. Ready once nothing is left.
    ///
    /// # Errors
    /// The edge has ended.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            if let Some(full) = &self.full {
                ready!(full.poll_write_ready(cx))?;
            }
            let written = match &self.full {
                Some(full) => full.try_io(|| self.write_once()),
                None => self.write_once(),
            };
            match written {
                Ok(written) => self.outbox.advance(written),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if self.full.is_none() {
                        let spare = self.spare.take().map_or_else(|| self.output().try_clone_to_owned(), Ok)?;
                        self.full = Some(Sender::from_owned_fd_unchecked(spare)?);
                    }
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        if let Some(full) = self.full.take() {
            self.spare = full.into_nonblocking_fd().ok();
        }
        Poll::Ready(Ok(()))
    }

    fn write_once(&self) -> io::Result<usize> {
        if let (Some(left), Some((outlet, _))) = (self.outbox.pipe_is_next(), &self.pipe) {
            return Ok(splice(outlet, None, self.output(), None, left, SpliceFFlags::SPLICE_F_NONBLOCK)?);
        }
        let mut slices = [IoSlice::new(&[]); 3];
        let n = self.outbox.slices(&mut slices);
        Ok(writev(self.output(), slices.get(..n).unwrap_or_default())?)
    }

    fn output(&self) -> BorrowedFd<'_> {
        self.output.as_ref().map_or_else(|| self.reading.as_fd(), AsFd::as_fd)
    }
}

/// To whole milliseconds, or the last one would be spent in asking.
fn rounded_up(left: Duration) -> PollTimeout {
    PollTimeout::try_from(left.saturating_add(Duration::from_micros(999))).unwrap_or(PollTimeout::MAX)
}

/// A pipe that holds a frame of 64 KiB and its header; a smaller one where the kernel refuses that, which works too.
fn roomy_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let pipe = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let _smaller = fcntl(&pipe.1, FcntlArg::F_SETPIPE_SZ(128 << 10));
    Ok(pipe)
}

/// How much more to ask the kernel for: a whole data frame at least once one has begun, a little while all is quiet.
fn needed(inbox: &BytesMut) -> usize {
    if inbox.is_empty() { 64 << 10 } else { CHUNK }
}

/// The end of the stream: with the guardian's last words, if they follow a frame that was cut off.
fn ended<M>(inbox: &mut BytesMut) -> Result<Frame<M>, Closed> {
    if inbox.is_empty() {
        return Err(Closed::Eof);
    }
    let Some(last) = Last::at_the_end_of(inbox) else { return Err(Closed::Truncated) };
    inbox.clear();
    Ok(Frame { node: NodeId::ROOT, body: Body::Last(last) })
}

/// The next frame of what there is to read. `None`: no more, and reading would wait.
fn read_frame<M: WireMessage>(from: &impl AsFd, inbox: &mut BytesMut) -> Result<Option<Frame<M>>, Closed> {
    loop {
        if let Some(frame) = take_frame(inbox)? {
            return Ok(Some(frame));
        }
        let mut chunk = [0u8; 16 << 10];
        match nix::unistd::read(from, &mut chunk) {
            Ok(0) => return ended(inbox).map(Some),
            Ok(n) => inbox.extend_from_slice(chunk.get(..n).unwrap_or_default()),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(e) => return Err(io::Error::from(e).into()),
        }
    }
}

/// Cuts the first frame off `inbox` if it is complete. The header is checked before its body is waited for.
fn take_frame<M: WireMessage>(inbox: &mut BytesMut) -> Result<Option<Frame<M>>, Closed> {
    let Some(head) = inbox.first_chunk::<HEADER>() else { return Ok(None) };
    let header = parse_header(head)
        .map_err(|error| Closed::Frame { error, begins: inbox.iter().take(SHOWN).copied().collect() })?;
    let Header { len, lane, flags, node, stream } = header;
    let len = usize::try_from(len).map_err(|_| Closed::Message)?;
    if inbox.len() < HEADER + len {
        inbox.reserve(HEADER + len - inbox.len());
        return Ok(None);
    }
    inbox.advance(HEADER);
    let bytes = inbox.split_to(len);
    let body = match lane {
        Lane::Control if header.is_last_words() => Body::Last(Last::parse(&bytes).ok_or(Closed::Message)?),
        Lane::Control => Body::Message(decode(&bytes).map_err(|_| Closed::Message)?),
        Lane::Data => {
            let stream = StreamId::from_raw(stream).ok_or(Closed::Message)?;
            let bytes = if len <= SMALL { Bytes::copy_from_slice(&bytes) } else { bytes.freeze() };
            Body::Data { stream, flags, bytes }
        }
        Lane::Credit if len == 0 => {
            let stream = StreamId::from_raw(stream).ok_or(Closed::Message)?;
            Body::Broken(Broken { stream, waits: flags.has(Flags::MORE) })
        }
        Lane::Credit => Body::Credit(u64::from_le_bytes(bytes.as_ref().try_into().map_err(|_| Closed::Message)?)),
        Lane::Beat => Body::Beat(Beat::parse(&bytes).ok_or(Closed::Message)?),
        Lane::Store => Body::Store(bytes.freeze()),
    };
    Ok(Some(Frame { node, body }))
}

#[cfg(test)]
mod tests;
