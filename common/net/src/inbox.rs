//! The incoming half of an edge, as bytes: sealed ones are opened first.

use crate::frames::{Closed, Frame, take_frame};
use crate::seal::Opener;
use bytes::BytesMut;
use nix::errno::Errno;
use rlaunch_base::id::NodeId;
use rlaunch_protocol::wire::codec::WireMessage;
use rlaunch_protocol::wire::frame::{HEADER, parse_header};
use rlaunch_protocol::wire::guardian_count::Last;
use std::io;
use std::os::fd::AsFd;

use crate::frames::Body;

/// Read at once; several frames of 64 KiB fit.
const CHUNK: usize = 256 << 10;

/// Bytes that have arrived and were not delivered yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Bytes of frames.
    plain: BytesMut,
    /// For a sealed edge.
    opener: Option<Box<Opener>>,
}

impl Inbox {
    /// For a stream of which this was read already.
    pub(crate) fn begun(read: &[u8]) -> Self {
        Self { plain: BytesMut::from(read), opener: None }
    }

    /// The same, of a sealed stream.
    pub(crate) fn sealed(self, mut opener: Opener) -> Self {
        opener.arrived().unsplit(self.plain);
        Self { plain: BytesMut::new(), opener: Some(Box::new(opener)) }
    }

    /// The next frame of what has arrived.
    pub(crate) fn next_frame<M: WireMessage>(&mut self) -> Result<Option<Frame<M>>, Closed> {
        loop {
            if let Some(frame) = take_frame(&mut self.plain)? {
                return Ok(Some(frame));
            }
            if !self.opener.as_mut().is_some_and(|opener| opener.open_next(&mut self.plain)) {
                return Ok(None);
            }
        }
    }

    /// Memory for the next read, of the length that is worth asking for.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        let room = self.opener.as_mut().map_or(&mut self.plain, |opener| opener.arrived());
        // A whole data frame at least once one has begun, a little while all is quiet.
        room.reserve(if room.is_empty() { 64 << 10 } else { CHUNK });
        room
    }

    /// The end of the stream: with the guardian's last words, if they follow a frame that was cut off.
    pub(crate) fn end<M>(&mut self) -> Result<Frame<M>, Closed> {
        let last = match &mut self.opener {
            Some(opener) => opener.end()?,
            None if self.plain.is_empty() => return Err(Closed::Eof),
            None => Last::at_the_end_of(&self.plain).ok_or(Closed::Truncated)?,
        };
        self.plain.clear();
        Ok(Frame { node: NodeId::ROOT, body: Body::Last(last) })
    }

    /// The next frame of what there is to read. `None`: no more, and reading would wait.
    pub(crate) fn read_frame<M: WireMessage>(&mut self, from: &impl AsFd) -> Result<Option<Frame<M>>, Closed> {
        loop {
            if let Some(frame) = self.next_frame()? {
                return Ok(Some(frame));
            }
            let mut chunk = [0u8; 16 << 10];
            match nix::unistd::read(from, &mut chunk) {
                Ok(0) => return self.end().map(Some),
                Ok(n) => self.room().extend_from_slice(chunk.get(..n).unwrap_or_default()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
    }

    /// Whether a whole frame is there, or bytes that are none.
    pub(crate) fn has_frame(&self) -> bool {
        let head = self.plain.first_chunk::<HEADER>().map(parse_header);
        // A header that is refused is an answer too.
        head.is_some_and(|head| {
            head.map_or(true, |h| usize::try_from(h.len).is_ok_and(|len| self.plain.len() >= HEADER + len))
        })
    }
}
