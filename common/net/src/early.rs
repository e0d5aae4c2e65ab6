//! An edge outside of a runtime.

use crate::connection::Connection;
use crate::frames::{Closed, Frame};
use crate::halves::Halves;
use crate::inbox::Inbox;
use crate::outbox::{Outbox, Overflow};
use crate::seal::Seal;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rlaunch_base::id::NodeId;
use rlaunch_protocol::wire::codec::{WireMessage, encode};
use rlaunch_protocol::wire::frame::Lane;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::{Duration, Instant};
use tokio::net::unix::pipe::Receiver;

/// An edge before a runtime watches it, or of a process that gets none. Only reading waits: all signals are blocked, and the other side
/// may read nothing.
#[derive(Debug)]
pub struct Early<M> {
    io: Halves,
    inbox: Inbox,
    outbox: Outbox,
    peer: PhantomData<fn() -> M>,
}

impl<M: WireMessage> Early<M> {
    /// Takes a connected stream.
    #[must_use]
    pub fn new(io: impl Into<OwnedFd>) -> Self {
        Self::over(Halves::socket(io))
    }

    /// Takes a connected stream of which this was read already.
    #[must_use]
    pub fn begun(io: StdStream, read: &[u8]) -> Self {
        Self { inbox: Inbox::begun(read), ..Self::new(io) }
    }

    /// The same stream, sealed: after the handshake, and before anything is sent.
    #[must_use]
    pub fn sealed(self, seal: Seal) -> Self {
        let Seal { opener, sealer } = seal;
        Self { inbox: self.inbox.sealed(opener), outbox: Outbox::sealed(sealer), ..self }
    }

    /// Takes a stream in two halves, as sshd gives them: pipes, or sockets. They must be ours alone, because they become
    /// non-blocking.
    #[must_use]
    pub fn from_halves(input: OwnedFd, output: OwnedFd) -> Self {
        Self::over(Halves::two(input, output))
    }

    fn over(io: Halves) -> Self {
        Self { io, inbox: Inbox::default(), outbox: Outbox::default(), peer: PhantomData }
    }

    /// The next frame; waits for it, and writes meanwhile what was queued and not taken.
    ///
    /// # Errors
    /// The edge has ended or carries something else.
    pub fn recv(&mut self) -> Result<Frame<M>, Closed> {
        // Or reading would wait.
        self.io.set_nonblocking()?;
        loop {
            if let Some(frame) = self.inbox.read_frame(self.io.input())? {
                return Ok(frame);
            }
            self.wait(PollFlags::POLLIN, PollTimeout::NONE)?;
            self.flush()?;
        }
    }

    /// Waits for this of the half that is read, and for room in the other if something is queued.
    fn wait(&self, input: PollFlags, time: PollTimeout) -> io::Result<()> {
        let output = if self.outbox.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
        let halves = [(self.io.output().as_fd(), output), (self.io.input().as_fd(), input)];
        // A half that is waited for nothing has hung up or not: that must not end the wait again and again.
        let wanted = halves.into_iter().filter(|(_, wanted)| !wanted.is_empty());
        let mut fds: Vec<PollFd<'_>> = wanted.map(|(fd, flags)| PollFd::new(fd, flags)).collect();
        match poll(&mut fds, time) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
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
            match self.outbox.write_to(self.io.output(), None) {
                Ok(()) => {}
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
            self.wait(PollFlags::empty(), rounded_up(left))?;
        }
        Ok(true)
    }

    /// The same edge under a runtime, which must be entered.
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

/// To whole milliseconds, or the last one would be spent in asking.
fn rounded_up(left: Duration) -> PollTimeout {
    PollTimeout::try_from(left.saturating_add(Duration::from_micros(999))).unwrap_or(PollTimeout::MAX)
}
