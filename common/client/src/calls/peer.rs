//! One connection between a controller and a worker: frames in, frames out, without waiting.

use super::plain;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send, sendmsg};
use rlaunch_protocol::wire::frozen::calls::{Description, FrameError, HEADER, Header};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Bytes of a body that are reserved before any of them has come.
const RESERVED: u64 = 64 << 20;
/// Bytes that are read of one connection before the others have their turn.
const TURN: usize = 16 << 20;

/// The socket of a connection.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).read(buffer),
            Stream::Tcp(stream) => (&mut &*stream).read(buffer),
        }
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).read_to_end(buffer),
            Stream::Tcp(stream) => (&mut &*stream).read_to_end(buffer),
        }
    }
}

impl Stream {
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    /// Sends as much as there is room for. A closed connection is an error, and no signal.
    pub(super) fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            let socket = self.as_fd().as_raw_fd();
            let sent = match slices {
                [all] => send(socket, all, flags),
                _ => sendmsg::<()>(socket, slices, &[], flags, None),
            };
            match sent {
                Ok(sent) => return Ok(sent),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(0),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// A frame that has come.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) description: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// The end of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Closed {
    /// The other end has closed it, or its process has exited.
    #[error("the connection was closed")]
    End,
    /// The connection has failed.
    #[error("the connection has failed: {0}")]
    Io(#[from] io::Error),
    /// The other end sends what is no frame.
    #[error("the other end sent {0}")]
    Frame(#[from] FrameError),
}

/// The frame that is coming in.
#[derive(Debug, Default)]
struct Incoming {
    head: Vec<u8>,
    header: Option<Header>,
    description: Vec<u8>,
    body: Vec<u8>,
}

/// Moves up to `missing` bytes to the end of a part.
fn fill(part: &mut Vec<u8>, bytes: &mut &[u8], missing: usize) {
    let (now, later) = bytes.split_at(missing.min(bytes.len()));
    part.extend_from_slice(now);
    *bytes = later;
}

impl Incoming {
    /// Bytes of the body that have not come.
    fn body_missing(&self) -> usize {
        let whole = self.header.map_or(0, |header| usize::try_from(header.body).unwrap_or(usize::MAX));
        whole.saturating_sub(self.body.len())
    }

    fn description_missing(&self) -> usize {
        let whole = self.header.map_or(0, |header| usize::try_from(header.description).unwrap_or(usize::MAX));
        whole.saturating_sub(self.description.len())
    }

    /// Takes in bytes, and gives frames that are whole.
    fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<Frame>) -> Result<(), FrameError> {
        loop {
            let Some(header) = self.header else {
                let missing = HEADER.saturating_sub(self.head.len());
                fill(&mut self.head, &mut bytes, missing);
                let Some(head) = self.head.first_chunk::<HEADER>().filter(|_| self.head.len() == HEADER) else {
                    return Ok(());
                };
                let header = Header::parse(head)?;
                self.head.clear();
                self.header = Some(header);
                // Room for the description too: both are handed on together.
                let room = header.body.min(RESERVED).saturating_add(u64::from(header.description)).saturating_add(1);
                self.body.reserve_exact(usize::try_from(room).unwrap_or_default());
                self.description.reserve_exact(usize::try_from(header.description).unwrap_or_default());
                continue;
            };
            let missing = self.description_missing();
            fill(&mut self.description, &mut bytes, missing);
            if self.description_missing() == 0 {
                let missing = self.body_missing();
                fill(&mut self.body, &mut bytes, missing);
            }
            if self.description_missing() > 0 || self.body_missing() > 0 {
                return Ok(());
            }
            let description = std::mem::take(&mut self.description);
            if plain::parse(&description, header.body).is_none() {
                Description::parse(&description, header.body)?;
            }
            self.header = None;
            out.push(Frame { header, description, body: std::mem::take(&mut self.body) });
        }
    }
}

/// Bytes that wait until there is room for them: the same frame for several peers is there once.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) sent: usize,
}

/// A connection between controller and worker.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) stream: Arc<Stream>,
    /// The process at the other end, if it is on this host: a child of it may hold the connection open.
    pub(super) process: Option<OwnedFd>,
    incoming: Incoming,
    pub(super) outgoing: VecDeque<Waiting>,
    /// Whether room is waited for.
    pub(super) is_watched_for_room: bool,
}

impl Peer {
    pub(super) fn new(stream: Stream, process: Option<OwnedFd>) -> Self {
        Self {
            stream: Arc::new(stream),
            process,
            incoming: Incoming::default(),
            outgoing: VecDeque::new(),
            is_watched_for_room: false,
        }
    }

    /// Bytes that came before this was a connection of calls.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<Frame>) -> Result<(), Closed> {
        Ok(self.incoming.feed(bytes, out)?)
    }

    /// Reads what there is.
    pub(super) fn read(&mut self, scratch: &mut [u8], out: &mut Vec<Frame>) -> Result<(), Closed> {
        let mut came = 0_usize;
        while came < TURN {
            let missing = if self.incoming.description_missing() == 0 { self.incoming.body_missing() } else { 0 };
            if missing > scratch.len() {
                let part = missing.min(TURN);
                self.incoming.body.reserve(part);
                let before = self.incoming.body.len();
                let read = (&*self.stream).take(part as u64).read_to_end(&mut self.incoming.body);
                came = came.saturating_add(self.incoming.body.len() - before);
                match read {
                    Ok(read) if read < part => return Err(Closed::End),
                    Ok(_) => self.incoming.feed(&[], out)?,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(ended(error)),
                }
                continue;
            }
            match (&*self.stream).read(scratch) {
                Ok(0) => return Err(Closed::End),
                Ok(read) => {
                    came = came.saturating_add(read);
                    self.incoming.feed(scratch.get(..read).unwrap_or_default(), out)?;
                    if read < scratch.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ended(error)),
            }
        }
        Ok(())
    }

    /// Sends what waits. Whether anything was sent.
    pub(super) fn flush(&mut self) -> Result<bool, Closed> {
        let mut has_sent = false;
        while let Some(waiting) = self.outgoing.front_mut() {
            let rest = waiting.bytes.get(waiting.sent..).unwrap_or_default();
            if rest.is_empty() {
                self.outgoing.pop_front();
                continue;
            }
            match self.stream.send(&[IoSlice::new(rest)]).map_err(ended)? {
                0 => return Ok(has_sent),
                sent => {
                    waiting.sent += sent;
                    has_sent = true;
                }
            }
        }
        Ok(has_sent)
    }
}

/// A reset is the end of the other process as well.
fn ended(error: io::Error) -> Closed {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected => Closed::End,
        _ => Closed::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_protocol::wire::frozen::calls::{Kind, Part, Place};

    fn frame(body: &[u8]) -> Vec<u8> {
        let part = Part { place: Place::Body, offset: 0, len: body.len() as u64 };
        let description = Description { texts: vec![b"method"], parts: vec![part] }.to_bytes();
        let header = Header {
            kind: Kind::Call,
            codec: 0,
            count: 0,
            call: 7,
            description: u32::try_from(description.len()).unwrap(),
            body: body.len() as u64,
        };
        [&header.to_bytes()[..], &description, body].concat()
    }

    #[test]
    fn frames_cut_at_every_byte_are_put_together() {
        let two = [frame(b"first"), frame(b"")].concat();
        for cut in 0..=two.len() {
            let (mut incoming, mut out) = (Incoming::default(), Vec::new());
            incoming.feed(&two[..cut], &mut out).unwrap();
            incoming.feed(&two[cut..], &mut out).unwrap();
            let bodies: Vec<&[u8]> = out.iter().map(|frame| frame.body.as_slice()).collect();
            assert_eq!(bodies, [&b"first"[..], b""], "cut at {cut}");
        }
    }

    #[test]
    fn large_frame_comes_through_a_socket_whole() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut sender, mut receiver) = (Peer::new(Stream::Unix(near), None), Peer::new(Stream::Unix(far), None));
        receiver.stream.set_nonblocking().unwrap();
        let body: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        sender.outgoing.push_back(Waiting { bytes: Arc::new(frame(&body)), sent: 0 });
        let (mut scratch, mut out) = (vec![0; 64 << 10], Vec::new());
        while out.is_empty() {
            sender.flush().unwrap();
            receiver.read(&mut scratch, &mut out).unwrap();
        }
        assert!(out[0].body == body);
        drop(sender);
        assert!(matches!(receiver.read(&mut scratch, &mut out), Err(Closed::End)));
    }

    #[test]
    fn bytes_that_are_no_frame_close_the_connection() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut peer = Peer::new(Stream::Unix(far), None);
        std::io::Write::write_all(&mut &near, &[0xff; HEADER]).unwrap();
        let error = peer.read(&mut [0; 100], &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Closed::Frame(_)), "{error}");
    }
}
