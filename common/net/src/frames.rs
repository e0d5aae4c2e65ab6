//! Frames as an edge delivers them, and how they are cut off the bytes that have arrived.

use bytes::{Buf, Bytes, BytesMut};
use rlaunch_base::id::{NodeId, StreamId};
use rlaunch_protocol::stream::turn::Broken;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::codec::{WireMessage, decode};
use rlaunch_protocol::wire::frame::{Flags, FrameError, HEADER, Header, Lane, parse_header};
use rlaunch_protocol::wire::guardian_count::Last;
use std::io;

/// How much is kept of what is no frame.
const SHOWN: usize = 64;

/// A data frame of at most this many bytes gets memory of its own. While it waits for its writer it would hold all that was read with it.
/// The window counts its own bytes alone.
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
    /// A sealed record that was not written by the other side, or was changed on its way.
    #[error("a record on the connection is not authentic")]
    Seal,
    /// The kernel's error.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Cuts the first frame off `inbox` if it is complete. The header is checked before its body is waited for.
pub(crate) fn take_frame<M: WireMessage>(inbox: &mut BytesMut) -> Result<Option<Frame<M>>, Closed> {
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
