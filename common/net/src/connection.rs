//! One edge: frames in, frames out, without a task of its own.
//!
//! The driver polls it: everything here is cancel-safe because all state is in the structure. It never stops reading for
//! a slow sink; what a sink holds back is credit.

use crate::outbox::{Outbox, Overflow};
use bytes::{Buf, Bytes, BytesMut};
use rlaunch_core::id::{NodeId, StreamId};
use rlaunch_core::wire::beat::Beat;
use rlaunch_core::wire::codec::{WireMessage, decode, encode};
use rlaunch_core::wire::frame::{Flags, FrameError, HEADER, Header, Lane, parse_header};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::task::{Context, Poll, ready};
use tokio::net::UnixStream;

/// Read at once; several frames of 64 KiB fit.
const CHUNK: usize = 256 << 10;

/// A data frame of at most this many bytes gets memory of its own: while it waits for its writer it would hold all that
/// was read with it, and the window counts only what it is itself.
const SMALL: usize = 4 << 10;

/// A frame that was received.
#[derive(Debug)]
pub struct Frame<M> {
    /// The node it comes from or is meant for.
    pub node: NodeId,
    /// What it carries.
    pub body: Body<M>,
}

/// What a frame carries.
#[derive(Debug)]
pub enum Body<M> {
    /// A message to a machine.
    Message(M),
    /// Bytes of a stream.
    Data {
        /// Which stream.
        stream: StreamId,
        /// Whether its line goes on, and whether it ends here.
        flags: Flags,
        /// The bytes.
        bytes: Bytes,
    },
    /// The other side takes data up to this offset.
    Credit(u64),
    /// It is alive.
    Beat(Beat),
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
    #[error("malformed frame: {0}")]
    Frame(#[from] FrameError),
    /// A message that is none, or a lane that this version does not serve.
    #[error("malformed message")]
    Message,
    /// The kernel's error.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
}

/// One edge, receiving messages of type `M`.
#[derive(Debug)]
pub struct Connection<M> {
    io: UnixStream,
    inbox: BytesMut,
    outbox: Outbox,
    peer: PhantomData<fn() -> M>,
}

/// The same before a runtime exists: blocking, on one thread.
#[derive(Debug)]
pub struct Early<M> {
    io: StdStream,
    inbox: BytesMut,
    outbox: Outbox,
    peer: PhantomData<fn() -> M>,
}

impl<M: WireMessage> Early<M> {
    /// Takes a connected stream.
    #[must_use]
    pub fn new(io: StdStream) -> Self {
        Self { io, inbox: BytesMut::new(), outbox: Outbox::default(), peer: PhantomData }
    }

    /// The next frame; waits for it.
    ///
    /// # Errors
    /// The edge has ended or carries something else.
    pub fn recv(&mut self) -> Result<Frame<M>, Closed> {
        loop {
            if let Some(frame) = take_frame(&mut self.inbox)? {
                return Ok(frame);
            }
            let mut chunk = [0u8; 16 << 10];
            match self.io.read(&mut chunk) {
                Ok(0) => return Err(ended(&self.inbox)),
                Ok(n) => self.inbox.extend_from_slice(chunk.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
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

    /// Writes everything queued; waits until the other side has taken it.
    ///
    /// # Errors
    /// The edge has ended.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); 3];
            let n = self.outbox.slices(&mut slices);
            match self.io.write_vectored(slices.get(..n).unwrap_or_default()) {
                Ok(written) => self.outbox.advance(written),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Goes on under a runtime, which must be entered.
    ///
    /// # Errors
    /// The runtime refuses the descriptor.
    pub fn into_connection(self) -> io::Result<Connection<M>> {
        self.io.set_nonblocking(true)?;
        let io = UnixStream::from_std(self.io)?;
        Ok(Connection { io, inbox: self.inbox, outbox: self.outbox, peer: PhantomData })
    }
}

impl<M> AsFd for Connection<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
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
            ready!(self.io.poll_read_ready(cx))?;
            self.inbox.reserve(CHUNK.min(needed(&self.inbox)));
            match self.io.try_read_buf(&mut self.inbox) {
                Ok(0) => return Poll::Ready(Err(ended(&self.inbox))),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
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

    /// Queues a heartbeat.
    ///
    /// # Errors
    /// Too much is waiting.
    pub fn beat(&mut self, node: NodeId, beat: Beat) -> Result<(), Overflow> {
        self.outbox.control(Lane::Beat, node, &beat.to_bytes())
    }

    /// Whether a data frame can be queued. There is one big one at a time: what waits behind it waits in the rank's pipe.
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
            let mut slices = [IoSlice::new(&[]); 3];
            let n = self.outbox.slices(&mut slices);
            match self.io.try_write_vectored(slices.get(..n).unwrap_or_default()) {
                Ok(written) => self.outbox.advance(written),
                Err(e) if e.kind() == ErrorKind::WouldBlock => ready!(self.io.poll_write_ready(cx))?,
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// How much more to ask the kernel for: a whole data frame at least once one has begun, a little while all is quiet.
fn needed(inbox: &BytesMut) -> usize {
    if inbox.is_empty() { 64 << 10 } else { CHUNK }
}

fn ended(inbox: &BytesMut) -> Closed {
    if inbox.is_empty() { Closed::Eof } else { Closed::Truncated }
}

/// Cuts the first frame off `inbox` if it is complete. The header is checked before its body is waited for.
fn take_frame<M: WireMessage>(inbox: &mut BytesMut) -> Result<Option<Frame<M>>, Closed> {
    let Some(head) = inbox.first_chunk::<HEADER>() else { return Ok(None) };
    let Header { len, lane, flags, node, stream } = parse_header(head)?;
    let len = usize::try_from(len).map_err(|_| Closed::Message)?;
    if inbox.len() < HEADER + len {
        inbox.reserve(HEADER + len - inbox.len());
        return Ok(None);
    }
    inbox.advance(HEADER);
    let bytes = inbox.split_to(len);
    let body = match lane {
        Lane::Control => Body::Message(decode(&bytes).map_err(|_| Closed::Message)?),
        Lane::Data => {
            let stream = StreamId::from_raw(stream).ok_or(Closed::Message)?;
            let bytes = if len <= SMALL { Bytes::copy_from_slice(&bytes) } else { bytes.freeze() };
            Body::Data { stream, flags, bytes }
        }
        Lane::Credit => Body::Credit(u64::from_le_bytes(bytes.as_ref().try_into().map_err(|_| Closed::Message)?)),
        Lane::Beat => Body::Beat(Beat::parse(&bytes).ok_or(Closed::Message)?),
        // The store has no home in this version.
        Lane::Store => return Err(Closed::Message),
    };
    Ok(Some(Frame { node, body }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_core::id::{ProcId, Std};
    use rlaunch_core::signal::Signal;
    use rlaunch_core::wire::to_node::ToNode;
    use std::future::poll_fn;

    fn pair() -> (StdStream, StdStream) {
        StdStream::pair().unwrap()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn early_frames_are_not_lost_by_the_change_to_the_runtime() {
        let (a, b) = pair();
        let (mut a, mut b) = (Early::<ToNode>::new(a), Early::<ToNode>::new(b));
        a.send(NodeId::new(0), &ToNode::Kill).unwrap();
        a.send(NodeId::new(0), &ToNode::Signal { sig: Signal::USR1 }).unwrap();
        a.grant(NodeId::new(0), 77).unwrap();
        a.flush().unwrap();
        assert!(matches!(b.recv().unwrap().body, Body::Message(ToNode::Kill)));
        runtime().block_on(async {
            let mut b = b.into_connection().unwrap();
            let next = poll_fn(|cx| b.poll_recv(cx)).await.unwrap();
            assert!(matches!(next.body, Body::Message(ToNode::Signal { sig: Signal::USR1 })));
            assert!(matches!(poll_fn(|cx| b.poll_recv(cx)).await.unwrap().body, Body::Credit(77)));
            drop(a);
            assert!(matches!(poll_fn(|cx| b.poll_recv(cx)).await, Err(Closed::Eof)));
        });
    }

    #[test]
    fn data_arrives_whole_and_in_order() {
        let (a, b) = pair();
        let stream = StreamId::of(ProcId::new(3), Std::Err);
        runtime().block_on(async {
            let mut a = Early::<ToNode>::new(a).into_connection().unwrap();
            let mut b = Early::<ToNode>::new(b).into_connection().unwrap();
            let mut received = Vec::new();
            let mut sent: u8 = 0;
            while received.len() < 20 * 65_536 {
                if a.has_room() && sent < 20 {
                    a.data(NodeId::new(0), stream, Flags::MORE, vec![sent; 65_536]);
                    sent += 1;
                }
                let frame = poll_fn(|cx| {
                    let _written = a.poll_flush(cx)?;
                    match b.poll_recv(cx) {
                        Poll::Ready(frame) => Poll::Ready(frame.map(Some)),
                        Poll::Pending if a.has_room() && sent < 20 => Poll::Ready(Ok(None)),
                        Poll::Pending => Poll::Pending,
                    }
                });
                if let Some(Frame { body: Body::Data { bytes, flags, .. }, .. }) = frame.await.unwrap() {
                    assert!(flags.has(Flags::MORE) && !flags.has(Flags::END));
                    received.extend_from_slice(&bytes);
                }
            }
            let expected: Vec<u8> = (0..20u8).flat_map(|n| std::iter::repeat_n(n, 65_536)).collect();
            assert!(received == expected);
        });
    }

    #[test]
    fn a_small_frame_does_not_hold_what_came_with_it() {
        let (mut a, b) = pair();
        let stream = StreamId::of(ProcId::new(3), Std::Out);
        let mut header =
            Header { len: 1, lane: Lane::Data, flags: Flags::NONE, node: NodeId::ROOT, stream: stream.get() };
        a.write_all(&[&header.to_bytes()[..], b"x"].concat()).unwrap();
        header.len = 8_000;
        a.write_all(&[&header.to_bytes()[..], &[b'y'; 8_000]].concat()).unwrap();
        let mut b = Early::<ToNode>::new(b);
        let Body::Data { bytes: small, .. } = b.recv().unwrap().body else { panic!("no data") };
        let Body::Data { bytes: big, .. } = b.recv().unwrap().body else { panic!("no data") };
        assert_eq!((&small[..], big.len()), (&b"x"[..], 8_000));
        assert!(small.is_unique(), "it shares its memory");
    }

    #[test]
    fn garbage_closes_the_edge() {
        let (mut a, b) = pair();
        a.write_all(&[0xff; 64]).unwrap();
        assert!(matches!(Early::<ToNode>::new(b).recv(), Err(Closed::Frame(_))));
    }

    #[test]
    fn an_end_inside_a_frame_is_told_from_an_end() {
        let (mut a, b) = pair();
        a.write_all(
            &Header { len: 9, lane: Lane::Control, flags: Flags::NONE, node: NodeId::ROOT, stream: 0 }.to_bytes(),
        )
        .unwrap();
        drop(a);
        assert!(matches!(Early::<ToNode>::new(b).recv(), Err(Closed::Truncated)));
    }
}
