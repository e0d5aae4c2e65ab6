//! Calls of a worker group: the wire between a controller and each of its workers.
//!
//! Version 1. All numbers are little endian. A connection begins with three messages ([`hello`]) that prove to both ends that the other
//! has the secret of the group. Nothing is sent to a stranger, and nothing of a stranger is decoded.
//!
//! Frames follow, in both directions. A frame is a header of 32 bytes, a description, and a body:
//!
//! ```text
//! kind u8 | codec u8 | zero u16 | count u32 | call u64 | description length u32 | zero u32 | body length u64
//! ```
//!
//! The description is a list of texts and a list of parts. A list begins with its number of entries in 32 bits. A text stands after its
//! length in 32 bits. A part is a place in 32 bits, an offset and a length in 64 bits each.
//!
//! A part is a run of bytes: of the body (place 0), or of the controller's shared memory (place 1). The first part is the encoded value.
//! The others are its buffers.
//!
//! ```text
//!  1 call     controller   text 0: the method; the value holds its keyword arguments
//!  2 cancel   controller   the result of this call is not wanted any more
//!  3 credit   controller   `count` more items of this call may be sent
//!  4 arena    controller   text 0: a path to shared memory of `call` bytes
//!  5 end      controller   no more calls: the worker ends
//! 16 return   worker       the result
//! 17 raise    worker       texts: type, message, traceback; the value, if there is one, is the exception
//! 18 item     worker       one item of a generator
//! 19 stop     worker       a generator has no more items
//! 20 free     worker       `call` is the offset of a region of shared memory that is not used any more
//! 21 arena    worker       `count` is 1: the shared memory can be read; 0: it cannot
//! ```
//!
//! A worker answers a call of a kind or codec that it does not know with `raise`.

pub mod hello;
#[cfg(test)]
mod tests;

use super::fields::{Body, Fields, Malformed};
use alloc::vec::Vec;

/// The version of this description.
pub const VERSION: u32 = 1;
/// Length of a header.
pub const HEADER: usize = 32;
/// Longest description.
pub const MAX_DESCRIPTION: usize = 1 << 20;
/// Longest body.
pub const MAX_BODY: u64 = 1 << 40;
/// Parts of a body begin at multiples of this, so that numbers in them are aligned.
pub const ALIGN: u64 = 16;
/// Items of a generator that may be unread.
pub const WINDOW: u32 = 16;
/// Most texts of a description.
const MAX_TEXTS: u32 = 16;

/// A frame that is refused. The connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A header of no known shape.
    #[error("a frame with an unknown header")]
    Header,
    /// A description above the limit.
    #[error("a description of {0} bytes, the limit is {MAX_DESCRIPTION}")]
    Description(u32),
    /// A body above the limit.
    #[error("a body of {0} bytes, the limit is {MAX_BODY}")]
    Body(u64),
    /// A description that is cut, or has parts outside of the body.
    #[error("a malformed description")]
    Malformed,
}

impl From<Malformed> for FrameError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The meaning of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A method is called.
    Call,
    /// A call is not wanted any more.
    Cancel,
    /// More items of a generator may be sent.
    Credit,
    /// Shared memory is announced.
    Arena,
    /// No more calls.
    End,
    /// The result of a call.
    Return,
    /// The exception of a call.
    Raise,
    /// An item of a generator.
    Item,
    /// A generator has no more items.
    Stop,
    /// A region of shared memory is not used any more.
    Free,
    /// Whether shared memory can be read.
    Mapped,
    /// A kind of a later version.
    Unknown(u8),
}

impl Kind {
    /// Every kind of this version.
    pub const ALL: [Self; 11] = [
        Self::Call,
        Self::Cancel,
        Self::Credit,
        Self::Arena,
        Self::End,
        Self::Return,
        Self::Raise,
        Self::Item,
        Self::Stop,
        Self::Free,
        Self::Mapped,
    ];

    /// Its number.
    #[must_use]
    pub const fn raw(self) -> u8 {
        match self {
            Self::Call => 1,
            Self::Cancel => 2,
            Self::Credit => 3,
            Self::Arena => 4,
            Self::End => 5,
            Self::Return => 16,
            Self::Raise => 17,
            Self::Item => 18,
            Self::Stop => 19,
            Self::Free => 20,
            Self::Mapped => 21,
            Self::Unknown(raw) => raw,
        }
    }

    /// The kind of a number.
    #[must_use]
    pub fn from_raw(raw: u8) -> Self {
        Self::ALL.into_iter().find(|kind| kind.raw() == raw).unwrap_or(Self::Unknown(raw))
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The meaning.
    pub kind: Kind,
    /// How values are encoded: a number that both ends agree on.
    pub codec: u8,
    /// A number of items, or a flag.
    pub count: u32,
    /// The number of the call, which the controller has chosen.
    pub call: u64,
    /// Length of the description.
    pub description: u32,
    /// Length of the body.
    pub body: u64,
}

impl Header {
    /// The 32 bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut body = Body::default();
        body.byte(self.kind.raw()).byte(self.codec).byte(0).byte(0).word(self.count).long(self.call);
        body.word(self.description).word(0).long(self.body);
        let mut all = [0; HEADER];
        all.iter_mut().zip(body.0).for_each(|(to, from)| *to = from);
        all
    }

    /// From its bytes, checked against all limits.
    ///
    /// # Errors
    /// An unknown shape, or a length above its limit.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Self, FrameError> {
        let mut fields = Fields(bytes);
        let (kind, codec) = (Kind::from_raw(fields.byte()?), fields.byte()?);
        let zeros = [fields.byte()?, fields.byte()?];
        let (count, call, description) = (fields.word()?, fields.long()?, fields.word()?);
        if zeros != [0, 0] || fields.word()? != 0 {
            return Err(FrameError::Header);
        }
        let header = Self { kind, codec, count, call, description, body: fields.long()? };
        if usize::try_from(description).map_or(true, |len| len > MAX_DESCRIPTION) {
            return Err(FrameError::Description(description));
        }
        if header.body > MAX_BODY {
            return Err(FrameError::Body(header.body));
        }
        Ok(header)
    }
}

/// Place of the bytes of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the body.
    Body,
    /// In the controller's shared memory.
    Arena,
}

/// A run of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The place.
    pub place: Place,
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// Texts and parts of a frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description<'a> {
    /// Texts, by the kind of the frame.
    pub texts: Vec<&'a [u8]>,
    /// The value and its buffers.
    pub parts: Vec<Part>,
}

impl<'a> Description<'a> {
    /// The bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Most have a text and a part at most.
        let mut body = Body(Vec::with_capacity(64));
        body.list(&self.texts).count(self.parts.len());
        for part in &self.parts {
            body.word(u32::from(part.place == Place::Arena)).long(part.offset).long(part.len);
        }
        body.0
    }

    /// From its bytes. Parts of the body lie within it.
    ///
    /// # Errors
    /// It is cut, too long, or has a part outside of the body.
    pub fn parse(bytes: &'a [u8], body: u64) -> Result<Self, FrameError> {
        let mut fields = Fields(bytes);
        let texts = fields.list(Fields::bytes)?;
        if u32::try_from(texts.len()).map_or(true, |len| len > MAX_TEXTS) {
            return Err(FrameError::Malformed);
        }
        let parts = fields.list(|fields| {
            let place = if fields.flag_word()? { Place::Arena } else { Place::Body };
            Ok(Part { place, offset: fields.long()?, len: fields.long()? })
        })?;
        fields.end()?;
        let is_outside = |part: &Part| match (part.place, part.offset.checked_add(part.len)) {
            (_, None) => true,
            (Place::Body, Some(end)) => end > body,
            (Place::Arena, Some(_)) => false,
        };
        if parts.iter().any(is_outside) { Err(FrameError::Malformed) } else { Ok(Self { texts, parts }) }
    }
}

/// Offsets of the parts of a body, and its length: each part begins at a multiple of [`ALIGN`].
#[must_use]
pub fn laid_out(lengths: &[u64]) -> (Vec<u64>, u64) {
    let mut offsets = Vec::with_capacity(lengths.len());
    let mut end = 0_u64;
    for len in lengths {
        let start = end.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX);
        offsets.push(start);
        end = start.saturating_add(*len);
    }
    (offsets, end)
}
