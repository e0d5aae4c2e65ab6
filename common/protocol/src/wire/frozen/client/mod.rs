//! The conversation between a program of the job and the agent of its host, on a unix socket: the store, for now.
//!
//! Version 1. Numbers of hellos and frames are little endian; operations and answers are encoded by postcard. Each side begins with 16
//! bytes: `rlaunch\n`, the version, and a word: the client's is the rank it speaks for (2^32 - 1: none), the agent's is 0. An agent that
//! does not know the client's version says its own and closes. Frames follow: the length of the rest in 32 bits, a kind, and a body. A
//! client asks one thing at a time on a connection, as kind 1; the answer is of kind 1, too. Other errors are sent in a frame of kind 2, a
//! text, before the agent closes. A kind, a namespace or an operation that the agent does not know is refused (`Code::Unsupported`), and
//! the connection continues: later versions add some. The answer to another kind has the number that stands where an ask has its own, or 0.
//!
//! A frame of kind 3 is an order of a rank to its job ([`order`]); its answer is that of an ask.
//! A client of another world than the first one begins with a frame of kind 4: the number of its world, 32 bits.
//!
//! An ask is its number, 64 bits, counted from 1; the namespace (0: the job's, 1: this generation's); an operation; and what that needs. An
//! answer is the number, and what became of it.

mod ask;
mod client_frame;
pub mod client_round;
pub mod order;
mod refusal;
mod reply;
mod request;
#[cfg(test)]
mod tests;

use super::fields::{Body, Fields, Malformed};
use crate::wire::codec::{append, set_length};
use alloc::vec::Vec;
pub use ask::{Answer, Ask, Expected, Revision};
pub use client_frame::{ClientFrame, Unknown};
pub use refusal::{Absent, Refusal};
pub use reply::{Code, Refused, Reply, write as write_reply};
pub use request::Words;
use rlaunch_base::id::WorldId;
use serde::{Deserialize, Serialize};

/// How both sides begin.
pub const MAGIC: [u8; 8] = *b"rlaunch\n";
/// The version of this description.
pub const VERSION: u32 = 1;
/// How long a beginning is.
pub const HELLO: usize = 16;
/// Longest frame, without its length: with what is added on the way to another host it still is a message of ours.
pub const MAX_FRAME: usize = (1 << 20) - 64;
/// The rank in messages of a client that has none.
pub const NO_RANK: u32 = u32::MAX;

const ASK: u8 = 1;
const ANSWER: u8 = 1;
const BYE: u8 = 2;
/// A client says which world it belongs to. It gets no answer.
const WORLD: u8 = 4;
/// Length, kind and number.
const HEAD: usize = 4 + 1 + 8;

/// Which of the namespaces in which names mean something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Space {
    /// The job's: it outlives every host but the launcher's.
    Job,
    /// That of this generation of processes, or of this round.
    Generation,
}

impl Space {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Job, Self::Generation];

    pub(in crate::wire) const fn raw(self) -> u8 {
        match self {
            Self::Job => 0,
            Self::Generation => 1,
        }
    }

    pub(in crate::wire) const fn from_raw(raw: u8) -> Result<Self, Malformed> {
        match raw {
            0 => Ok(Self::Job),
            1 => Ok(Self::Generation),
            _ => Err(Malformed),
        }
    }
}

/// The beginning that one side writes.
#[must_use]
pub fn hello(word: u32) -> [u8; HELLO] {
    let mut all = [0; HELLO];
    let parts = MAGIC.into_iter().chain(VERSION.to_le_bytes()).chain(word.to_le_bytes());
    all.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    all
}

/// The frame of a client that belongs to another world than the first one. It comes before all other frames.
#[must_use]
pub fn world_frame(world: WorldId) -> Vec<u8> {
    let mut body = Body::default();
    body.count(5).byte(WORLD).word(world.get());
    body.0
}

/// The world that such a frame names; `None`: it is another frame.
#[must_use]
pub fn parse_world(frame: &[u8]) -> Option<WorldId> {
    let mut fields = Fields(frame);
    let is_it = fields.word().is_ok_and(|len| len == 5) && fields.byte() == Ok(WORLD);
    let world = fields.word().ok().filter(|_| is_it)?;
    fields.end().is_ok().then_some(WorldId::new(world))
}

/// Version and word of the other side's beginning.
///
/// # Errors
/// It is none of rlaunch.
pub fn parse_hello(bytes: &[u8; HELLO]) -> Result<(u32, u32), Malformed> {
    let mut fields = Fields(bytes.strip_prefix(&MAGIC).ok_or(Malformed)?);
    Ok((fields.word()?, fields.word()?))
}

/// How long the first frame is with its length, if that is there.
///
/// # Errors
/// It is longer than a frame may be.
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(len) = bytes.first_chunk::<4>() else { return Ok(None) };
    let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| Malformed)?;
    if len > MAX_FRAME { Err(Malformed) } else { Ok(Some(len.saturating_add(4))) }
}

/// A request of a client: its number, its namespace, and the operation, as [`Words`] read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked<'a> {
    /// The client's number.
    pub seq: u64,
    /// The namespace.
    pub space: Space,
    /// The operation.
    pub words: &'a [u8],
}

impl<'a> Asked<'a> {
    /// From a whole frame.
    ///
    /// # Errors
    /// It is none that a client writes.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(frame);
        let _len = fields.word()?;
        if fields.byte()? != ASK {
            return Err(Malformed);
        }
        Ok(Self { seq: fields.long()?, space: Space::from_raw(fields.byte()?)?, words: fields.0 })
    }

    /// As a frame.
    #[must_use]
    pub fn to_frame(self) -> Vec<u8> {
        let mut body = Body(Vec::with_capacity(HEAD.saturating_add(1).saturating_add(self.words.len())));
        body.count(10usize.saturating_add(self.words.len())).byte(ASK).long(self.seq).byte(self.space.raw());
        body.0.extend_from_slice(self.words);
        body.0
    }
}

/// The frame of an answer, of what [`write_reply`] has made.
#[must_use]
pub fn answer_frame(seq: u64, words: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    put_answer_frame(&mut frame, seq, words);
    frame
}

/// Appends the frame of an answer to `out`.
pub fn put_answer_frame(out: &mut Vec<u8>, seq: u64, words: &[u8]) {
    let begin = put_answer_head(out, seq);
    out.extend_from_slice(words);
    set_length(out.get_mut(begin..).unwrap_or_default());
}

/// Appends the frame of an answer to `out`, without a copy of its bytes (as [`write_reply`] makes).
pub fn put_reply_frame(out: &mut Vec<u8>, seq: u64, answer: &Answer) {
    let begin = put_answer_head(out, seq);
    *out = append(core::mem::take(out), answer);
    set_length(out.get_mut(begin..).unwrap_or_default());
}

/// Writes the bytes before an answer, without its length. Returns the offset of the frame.
fn put_answer_head(out: &mut Vec<u8>, seq: u64) -> usize {
    let begin = out.len();
    out.extend([0, 0, 0, 0, ANSWER].into_iter().chain(seq.to_le_bytes()));
    begin
}

/// The frame that says why the connection is closed.
#[must_use]
pub fn bye_frame(why: &str) -> Vec<u8> {
    let mut body = Body::default();
    body.count(why.len().saturating_add(1)).byte(BYE);
    body.0.extend_from_slice(why.as_bytes());
    body.0
}

/// A message of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromAgent<'a> {
    /// The answer to the ask of this number.
    Answer(u64, Reply<'a>),
    /// The agent closes, for this reason.
    Bye(&'a [u8]),
}

impl<'a> FromAgent<'a> {
    /// From a whole frame.
    ///
    /// # Errors
    /// It is none that an agent writes.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(frame);
        let _len = fields.word()?;
        match fields.byte()? {
            ANSWER => Ok(Self::Answer(fields.long()?, Reply::parse(fields.0)?)),
            BYE => Ok(Self::Bye(fields.0)),
            _ => Err(Malformed),
        }
    }
}
