//! The bytes that wait to be written on an edge: control messages in bounded bytes, which go first, and one data frame.

use crate::seal::Sealer;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::uio::writev;
use rlaunch_base::id::{NodeId, StreamId};
use rlaunch_protocol::wire::frame::{Flags, HEADER, Header, Lane};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

/// Most bytes of control messages that may wait. The other side always reads; more means that it is stuck.
const CONTROL_LIMIT: usize = 64 << 20;

/// A data frame of at most this many bytes is copied after the messages, so that many small ones are one write.
const SMALL: usize = 8 << 10;
/// Bytes of messages and small data frames that are collected before they must be written.
const COLLECT: usize = 64 << 10;

/// The other side does not read its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the other side does not read its messages")]
pub struct Overflow;

/// The outgoing half of an edge, as bytes.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    control: Vec<u8>,
    control_at: usize,
    data: Option<DataFrame>,
    spare: Vec<u8>,
    /// For a sealed edge.
    sealer: Option<Box<Sealer>>,
}

#[derive(Debug)]
struct DataFrame {
    head: [u8; HEADER],
    body: Body,
    /// Bytes of head and body that were written.
    at: usize,
}

#[derive(Debug)]
enum Body {
    Bytes(Vec<u8>),
    /// Bytes in the edge's pipe, after the header if that is there too.
    Piped {
        len: usize,
        head: bool,
    },
}

impl DataFrame {
    fn len(&self) -> usize {
        HEADER
            + match &self.body {
                Body::Bytes(bytes) => bytes.len(),
                Body::Piped { len, .. } => *len,
            }
    }
}

/// A header whose length fits, since bodies are checked before.
fn header(lane: Lane, flags: Flags, node: NodeId, stream: u32, len: usize) -> [u8; HEADER] {
    Header { len: u32::try_from(len).unwrap_or(u32::MAX), lane, flags, node, stream }.to_bytes()
}

impl Outbox {
    /// For a sealed stream.
    pub(crate) fn sealed(sealer: Sealer) -> Self {
        Self { sealer: Some(Box::new(sealer)), ..Self::default() }
    }

    /// Whether what is written is sealed: then all of it has to be in our memory.
    pub(crate) const fn is_sealed(&self) -> bool {
        self.sealer.is_some()
    }

    /// Writes once what the kernel takes. `pipe` holds the bodies of spliced frames.
    pub(crate) fn write_to(&mut self, output: impl AsFd, pipe: Option<BorrowedFd<'_>>) -> io::Result<()> {
        if let Some(mut sealer) = self.sealer.take() {
            let sealed = self.seal(&mut sealer).and_then(|()| sealer.write_to(output));
            self.sealer = Some(sealer);
            return sealed;
        }
        let written = match (self.pipe_is_next(), pipe) {
            (Some(left), Some(outlet)) => splice(outlet, None, output, None, left, SpliceFFlags::SPLICE_F_NONBLOCK)?,
            (Some(_), None) | (None, _) => {
                let mut slices = [IoSlice::new(&[]); 3];
                let n = self.slices(&mut slices);
                writev(output, slices.get(..n).unwrap_or_default())?
            }
        };
        self.advance(written);
        Ok(())
    }

    /// Seals what waits, in the order in which it would be written, as far as there is room for it.
    fn seal(&mut self, sealer: &mut Sealer) -> io::Result<()> {
        while sealer.has_room() && !self.is_plain_empty() {
            let mut slices = [IoSlice::new(&[]); 3];
            let n = self.slices(&mut slices);
            let taken = sealer.seal(slices.get(..n).unwrap_or_default())?;
            self.advance(taken);
        }
        Ok(())
    }

    /// Queues a message on the control, credit or beat lane.
    pub(crate) fn control(&mut self, lane: Lane, node: NodeId, body: &[u8]) -> Result<(), Overflow> {
        if self.waiting() + body.len() > CONTROL_LIMIT {
            return Err(Overflow);
        }
        self.control.extend_from_slice(&header(lane, Flags::NONE, node, 0, body.len()));
        self.control.extend_from_slice(body);
        Ok(())
    }

    /// Queues a frame without a body, about a stream.
    pub(crate) fn mark(&mut self, lane: Lane, flags: Flags, node: NodeId, stream: StreamId) -> Result<(), Overflow> {
        if self.waiting() > CONTROL_LIMIT {
            return Err(Overflow);
        }
        self.control.extend_from_slice(&header(lane, flags, node, stream.get(), 0));
        Ok(())
    }

    /// Bytes of messages that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.control.len().saturating_sub(self.control_at)
    }

    /// Whether a data frame can be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.data.is_none() && self.control.len() < COLLECT
    }

    /// Whether a data frame waits that messages may overtake.
    pub(crate) fn has_data(&self) -> bool {
        self.data.is_some()
    }

    /// Takes a data frame; only if there is room.
    pub(crate) fn data(&mut self, node: NodeId, stream: StreamId, flags: Flags, body: Vec<u8>) {
        let head = header(Lane::Data, flags, node, stream.get(), body.len());
        if body.len() <= SMALL {
            self.control.extend_from_slice(&head);
            self.control.extend_from_slice(&body);
            self.spare = body;
            return;
        }
        self.data = Some(DataFrame { head, body: Body::Bytes(body), at: 0 });
    }

    /// The header of a frame that is to lie in the edge's pipe.
    pub(crate) fn piped_header(node: NodeId, stream: StreamId, len: usize) -> [u8; HEADER] {
        header(Lane::Data, Flags::NONE, node, stream.get(), len)
    }

    /// Takes a data frame whose body lies in the edge's pipe, and perhaps its header; only if there is room.
    pub(crate) fn piped(&mut self, head: [u8; HEADER], head_too: bool, len: usize) {
        self.data = Some(DataFrame { head, body: Body::Piped { len, head: head_too }, at: 0 });
    }

    /// How much of the edge's pipe has to be written next, before anything of `slices`.
    pub(crate) fn pipe_is_next(&self) -> Option<usize> {
        let frame = self.data.as_ref()?;
        let next = match &frame.body {
            Body::Piped { head: true, .. } => frame.at > 0 || self.control_at == self.control.len(),
            Body::Piped { head: false, .. } => frame.at >= HEADER,
            Body::Bytes(_) => false,
        };
        next.then(|| frame.len() - frame.at)
    }

    /// The memory of the last data frame, empty, for the next one.
    pub(crate) fn spare(&mut self) -> Vec<u8> {
        let mut spare = std::mem::take(&mut self.spare);
        spare.clear();
        spare
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.is_plain_empty() && self.sealer.as_ref().is_none_or(|sealer| sealer.is_empty())
    }

    const fn is_plain_empty(&self) -> bool {
        self.control_at == self.control.len() && self.data.is_none()
    }

    /// Returns the next write: a data frame that has begun is finished first, else control, then data.
    pub(crate) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>; 3]) -> usize {
        let control = self.control.get(self.control_at..).unwrap_or_default();
        let mut n = 0;
        let mut add = |bytes: &'a [u8]| {
            if !bytes.is_empty() {
                out[n] = IoSlice::new(bytes);
                n += 1;
            }
        };
        let Some(frame) = &self.data else {
            add(control);
            return n;
        };
        let begun = frame.at > 0;
        if !begun {
            add(control);
        }
        let head = frame.head.get(frame.at..).unwrap_or_default();
        match &frame.body {
            Body::Bytes(body) => {
                add(head);
                add(body.get(frame.at.saturating_sub(HEADER)..).unwrap_or_default());
            }
            // The bytes in the pipe come between.
            Body::Piped { head: true, .. } => return n,
            Body::Piped { head: false, .. } => {
                add(head);
                return n;
            }
        }
        if begun {
            add(control);
        }
        n
    }

    /// Notes that `n` bytes of `slices`, or of the pipe where that was next, were written.
    pub(crate) fn advance(&mut self, mut n: usize) {
        let begun = self.data.as_ref().is_some_and(|frame| frame.at > 0);
        if begun {
            n = self.advance_data(n);
            self.advance_control(n);
        } else {
            n = self.advance_control(n);
            self.advance_data(n);
        }
    }

    fn advance_control(&mut self, n: usize) -> usize {
        let taken = n.min(self.control.len() - self.control_at);
        self.control_at += taken;
        if self.control_at == self.control.len() {
            self.control_at = 0;
            self.control.clear();
            if self.control.capacity() > 64 << 10 {
                self.control = Vec::new();
            }
        }
        n - taken
    }

    fn advance_data(&mut self, n: usize) -> usize {
        let Some(frame) = &mut self.data else { return n };
        let len = frame.len();
        let taken = n.min(len - frame.at);
        frame.at += taken;
        if frame.at == len
            && let Some(DataFrame { body: Body::Bytes(body), .. }) = self.data.take()
        {
            self.spare = body;
        }
        n - taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::id::{ProcId, Std};

    fn written(outbox: &mut Outbox, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); 3];
            let n = outbox.slices(&mut slices);
            let bytes: Vec<u8> = slices[..n].iter().flat_map(|s| s.iter().copied()).take(step).collect();
            all.extend_from_slice(&bytes);
            outbox.advance(bytes.len());
        }
        all
    }

    #[test]
    fn control_overtakes_data_but_never_splits_a_frame() {
        for step in [1, 7, 16, 17, 1000] {
            let mut outbox = Outbox::default();
            let stream = StreamId::of(ProcId::new(1), Std::Out);
            let body = vec![b'd'; SMALL + 1];
            outbox.data(NodeId::new(0), stream, Flags::NONE, body.clone());
            outbox.control(Lane::Control, NodeId::ROOT, b"ctl").unwrap();
            let all = written(&mut outbox, step);
            let control_first = [&header(Lane::Control, Flags::NONE, NodeId::ROOT, 0, 3)[..], b"ctl"].concat();
            let data = [&header(Lane::Data, Flags::NONE, NodeId::new(0), stream.get(), body.len())[..], &body].concat();
            assert_eq!(all, [control_first.clone(), data.clone()].concat(), "step {step}");

            outbox.data(NodeId::new(0), stream, Flags::NONE, body.clone());
            outbox.advance(3);
            outbox.control(Lane::Control, NodeId::ROOT, b"ctl").unwrap();
            assert_eq!(written(&mut outbox, step), [&data[3..], &control_first].concat(), "step {step}");
        }
    }

    #[test]
    fn piped_body_follows_its_header() {
        for (step, head_too) in
            [(1, false), (7, false), (16, false), (17, false), (1000, false), (5, true), (1000, true)]
        {
            for begun in [0, 1, HEADER, HEADER + 1] {
                let mut outbox = Outbox::default();
                let stream = StreamId::of(ProcId::new(1), Std::Out);
                let mut all = Vec::new();
                let head = Outbox::piped_header(NodeId::new(0), stream, 40);
                let mut pipe = [if head_too { &head[..] } else { &[] }, &[b'p'; 40]].concat();
                outbox.piped(head, head_too, 40);
                write(&mut outbox, &mut pipe, begun, step, &mut all);
                outbox.control(Lane::Control, NodeId::ROOT, b"ctl").unwrap();
                write(&mut outbox, &mut pipe, usize::MAX, step, &mut all);
                let control = [&header(Lane::Control, Flags::NONE, NodeId::ROOT, 0, 3)[..], b"ctl"].concat();
                let data = [&head[..], &[b'p'; 40]].concat();
                let expected = if begun == 0 { [control, data].concat() } else { [data, control].concat() };
                assert_eq!(all, expected, "step {step}, {begun} bytes before");
            }
        }
    }

    /// Writes at most `most` bytes, `step` at a time.
    fn write(outbox: &mut Outbox, pipe: &mut Vec<u8>, most: usize, step: usize, all: &mut Vec<u8>) {
        let end = all.len().saturating_add(most);
        while !outbox.is_empty() && all.len() < end {
            let step = step.min(end - all.len());
            let bytes: Vec<u8> = match outbox.pipe_is_next() {
                Some(left) => {
                    assert_eq!(left, pipe.len());
                    pipe.drain(..left.min(step)).collect()
                }
                None => {
                    let mut slices = [IoSlice::new(&[]); 3];
                    let n = outbox.slices(&mut slices);
                    slices[..n].iter().flat_map(|s| s.iter().copied()).take(step).collect()
                }
            };
            assert!(!bytes.is_empty(), "nothing to write, but not empty");
            outbox.advance(bytes.len());
            all.extend(bytes);
        }
    }

    #[test]
    fn small_frames_are_one_write_and_stay_in_order() {
        let mut outbox = Outbox::default();
        let stream = StreamId::of(ProcId::new(1), Std::Out);
        let frame = |body: &[u8]| {
            [&header(Lane::Data, Flags::NONE, NodeId::new(0), stream.get(), body.len())[..], body].concat()
        };
        outbox.data(NodeId::new(0), stream, Flags::NONE, b"one".to_vec());
        outbox.data(NodeId::new(0), stream, Flags::NONE, b"two".to_vec());
        assert!(outbox.has_room() && !outbox.has_data());
        let mut slices = [IoSlice::new(&[]); 3];
        assert_eq!(outbox.slices(&mut slices), 1);
        assert_eq!(slices[0].to_vec(), [frame(b"one"), frame(b"two")].concat());
        while outbox.has_room() {
            outbox.data(NodeId::new(0), stream, Flags::NONE, vec![0; SMALL]);
        }
        assert!(outbox.control.len() < COLLECT + 2 * SMALL);
    }

    #[test]
    fn a_peer_that_does_not_read_is_noticed() {
        let mut outbox = Outbox::default();
        let body = vec![0; 1 << 20];
        let taken = (0..100).take_while(|_| outbox.control(Lane::Control, NodeId::ROOT, &body).is_ok()).count();
        assert!((50..=64).contains(&taken), "{taken}");
    }
}
