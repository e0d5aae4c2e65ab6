//! A client's frame, as an agent reads it. The agent may be the older of the two: it refuses operations that it does not know, and
//! continues.

use super::order::ORDER;
use super::reply::{Code, Refused};
use super::request::{self, Words};
use super::{ASK, Asked, Space};
use crate::wire::frozen::fields::{Fields, Malformed};
use alloc::format;
use alloc::vec::Vec;

/// A whole frame of a client's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientFrame<'a> {
    /// An ask, and its operation.
    Ask(Asked<'a>, Words<'a>),
    /// An order: its number and its words.
    Order(u64, &'a [u8]),
    /// Something of a later version than this.
    Unknown(Unknown),
}

/// A part that this version does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The client's number; 0 where the frame has none.
    pub seq: u64,
    part: Part,
    number: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Kind,
    Space,
    Operation,
}

impl Unknown {
    /// The bytes of the answer.
    #[must_use]
    pub fn reply(&self) -> Vec<u8> {
        let what = match self.part {
            Part::Kind => "messages of kind",
            Part::Space => "the space",
            Part::Operation => "the operation",
        };
        let text = format!("this version does not know {what} {}", self.number);
        Refused { code: Code::Unsupported, within: None, text: text.as_bytes(), hint: b"" }.write()
    }
}

impl<'a> ClientFrame<'a> {
    /// From a whole frame.
    ///
    /// # Errors
    /// It is none: it has no kind, or does not hold what this version knows that it has to.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(frame);
        let _len = fields.word()?;
        let kind = fields.byte()?;
        if kind == ORDER {
            return Ok(Self::Order(fields.long()?, fields.0));
        }
        if kind != ASK {
            let seq = fields.long().unwrap_or(0);
            return Ok(Self::Unknown(Unknown { seq, part: Part::Kind, number: kind }));
        }
        let (seq, space, mut words) = (fields.long()?, fields.byte()?, Fields(fields.0));
        let op = words.byte()?;
        let unknown = |part, number| Ok(Self::Unknown(Unknown { seq, part, number }));
        match Space::from_raw(space) {
            Err(Malformed) => unknown(Part::Space, space),
            Ok(_) if op >= request::KNOWN => unknown(Part::Operation, op),
            Ok(space) => Ok(Self::Ask(Asked { seq, space, words: fields.0 }, Words::parse(fields.0)?)),
        }
    }
}
