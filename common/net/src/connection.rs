//! An edge: frames in, frames out, without a task of its own.
//!
//! The driver polls it: everything here is cancel-safe because all state is in the structure. It never stops reading for
//! a slow sink; what a sink holds back is credit.

use crate::frames::{Closed, Frame};
use crate::inbox::Inbox;
use crate::outbox::{Outbox, Overflow};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use rlaunch_base::id::{NodeId, StreamId};
use rlaunch_protocol::stream::turn::Broken;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::codec::{WireMessage, encode};
use rlaunch_protocol::wire::frame::{Flags, HEADER, Lane};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::task::{Context, Poll, ready};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Bytes of messages that may wait when a frame for a store is queued behind them.
const STORE_AHEAD: usize = 256 << 10;

/// An edge, receiving messages of type `M`.
///
/// The type is not a tokio `UnixStream`: that would be woken whenever the other side has read something, for room that is not needed.
/// tokio's pipe ends wait for one direction each, and do nothing that is special to pipes.
#[derive(Debug)]
pub struct Connection<M> {
    /// The half that is read, waiting for something to read.
    pub(crate) reading: Receiver,
    /// The half that is written; `None`: it is the same socket.
    pub(crate) output: Option<File>,
    /// The half that is written, while it is full.
    pub(crate) full: Option<Sender>,
    /// The descriptor for `full`: it must not turn out that none is left when the edge is full for the first time.
    pub(crate) spare: Option<OwnedFd>,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    /// The pipe for the bodies of spliced frames; made for the first of them.
    pub(crate) pipe: Option<(OwnedFd, OwnedFd)>,
    pub(crate) peer: PhantomData<fn() -> M>,
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
            if let Some(frame) = self.inbox.next_frame()? {
                return Poll::Ready(Ok(frame));
            }
            ready!(self.reading.poll_read_ready(cx))?;
            match self.read_once() {
                Ok(0) => return Poll::Ready(self.inbox.end()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// Whether a frame was read that [`Self::poll_recv`] has not returned.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        self.inbox.has_frame()
    }

    /// The next frame of what has come by now; `None`: no more. The kernel is asked, because the runtime may not have asked it
    /// since: for an edge whose other side is known to have ended.
    ///
    /// # Errors
    /// The edge has ended or carries something else. It must not be polled again then.
    pub fn recv_now(&mut self) -> Result<Option<Frame<M>>, Closed> {
        self.inbox.read_frame(&self.reading)
    }

    /// A read. A read of less than was asked for has taken all. Then the runtime is set to wait for more, as a read that finds nothing
    /// would, without that read.
    fn read_once(&mut self) -> io::Result<usize> {
        let Self { reading, inbox, .. } = self;
        let room = inbox.room();
        let most = room.capacity() - room.len();
        let mut short = None;
        let read = reading.try_io(|| match reading.try_read_buf(room) {
            Ok(n) if n > 0 && n < most => {
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
        if self.outbox.is_sealed() {
            // The bytes have to be read to be sealed.
            return Ok(0);
        }
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
            let Self { reading, output, full, outbox, pipe, .. } = self;
            let output = output.as_ref().map_or_else(|| reading.as_fd(), AsFd::as_fd);
            let mut write = || outbox.write_to(output, pipe.as_ref().map(|(outlet, _)| outlet.as_fd()));
            let written = match full {
                Some(full) => {
                    ready!(full.poll_write_ready(cx))?;
                    full.try_io(write)
                }
                None => write(),
            };
            match written {
                Ok(()) => {}
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

    fn output(&self) -> BorrowedFd<'_> {
        self.output.as_ref().map_or_else(|| self.reading.as_fd(), AsFd::as_fd)
    }
}

/// A pipe that holds a frame of 64 KiB and its header; a smaller one where the kernel refuses that, which works too.
fn roomy_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let pipe = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let _smaller = fcntl(&pipe.1, FcntlArg::F_SETPIPE_SZ(128 << 10));
    Ok(pipe)
}

#[cfg(test)]
mod tests;
