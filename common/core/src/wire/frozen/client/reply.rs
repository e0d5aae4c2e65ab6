//! The answer to a request.

use super::super::fields::{Body, Fields, Malformed};
use crate::error::Hint as _;
use crate::store::{Answer, Refusal};
use crate::time::Span;
use alloc::string::ToString as _;
use alloc::vec::Vec;

/// Why something was not done, in kinds that a program can tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The condition did not come true in time.
    TimedOut,
    /// The namespace is gone, with the host that it lived on, or with its generation.
    Gone,
    /// A limit would be passed.
    Limit,
    /// A value is no number, or would be too large a one.
    Number,
    /// A fence with other participants, or a participant that takes no part.
    Fence,
    /// The agent is of a version that does not know it.
    Unsupported,
    /// Anything else.
    Other,
}

impl Code {
    const fn raw(self) -> u8 {
        match self {
            Self::Other => 0,
            Self::TimedOut => 1,
            Self::Gone => 2,
            Self::Limit => 3,
            Self::Number => 4,
            Self::Fence => 5,
            Self::Unsupported => 6,
        }
    }

    /// A code of a later version becomes a general one.
    const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::TimedOut,
            2 => Self::Gone,
            3 => Self::Limit,
            4 => Self::Number,
            5 => Self::Fence,
            6 => Self::Unsupported,
            _ => Self::Other,
        }
    }

    const fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::TimedOut { .. } => Self::TimedOut,
            Refusal::Gone => Self::Gone,
            Refusal::LongKey { .. }
            | Refusal::LongValue { .. }
            | Refusal::LongAnswer { .. }
            | Refusal::ManyKeys { .. }
            | Refusal::Full { .. }
            | Refusal::ManyWaiting { .. }
            | Refusal::FullOfWaits { .. }
            | Refusal::FullOfAnswers { .. }
            | Refusal::ManyKept { .. }
            | Refusal::Behind { .. }
            | Refusal::Unread { .. } => Self::Limit,
            Refusal::NoNumber { .. } | Refusal::Overflow { .. } => Self::Number,
            Refusal::OtherFence { .. } | Refusal::NoParticipant { .. } => Self::Fence,
            Refusal::Stale | Refusal::Reserved { .. } => Self::Other,
        }
    }
}

/// That something was not done, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused<'a> {
    /// The kind.
    pub code: Code,
    /// How long it was waited for, if it was.
    pub within: Option<Span>,
    /// In words: what is missing, after a wait.
    pub text: &'a [u8],
    /// The advice; may be empty.
    pub hint: &'a [u8],
}

impl Refused<'_> {
    /// Its bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut body = Body::default();
        body.byte(9).byte(self.code.raw()).within(self.within).bytes(self.text).bytes(self.hint);
        body.0
    }
}

/// An answer that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// As [`Answer::Done`].
    Done,
    /// As [`Answer::Missing`].
    Missing,
    /// As [`Answer::Value`].
    Value(Option<&'a [u8]>),
    /// As [`Answer::Values`].
    Values(Vec<Option<&'a [u8]>>),
    /// As [`Answer::Number`].
    Number(i64),
    /// As [`Answer::Compared`].
    Compared(bool, Option<&'a [u8]>),
    /// As [`Answer::Keys`].
    Keys(Vec<&'a [u8]>),
    /// As [`Answer::Changed`]: the revision and the value.
    Changed(u64, Option<&'a [u8]>),
    /// The request was not done.
    Refused(Refused<'a>),
}

impl<'a> Reply<'a> {
    /// From its bytes, all of them.
    ///
    /// # Errors
    /// They are no answer.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut all = Fields(bytes);
        let value = |all: &mut Fields<'a>| all.optional(Fields::bytes);
        let reply = match all.byte()? {
            1 => Self::Done,
            2 => Self::Missing,
            3 => Self::Value(value(&mut all)?),
            4 => Self::Values(all.list(value)?),
            5 => Self::Number(all.signed()?),
            6 => Self::Compared(all.flag()?, value(&mut all)?),
            7 => Self::Keys(all.list(Fields::bytes)?),
            8 => Self::Changed(all.long()?, value(&mut all)?),
            9 => Self::Refused(Refused {
                code: Code::from_raw(all.byte()?),
                within: all.within()?,
                text: all.bytes()?,
                hint: all.bytes()?,
            }),
            _ => return Err(Malformed),
        };
        all.end()?;
        Ok(reply)
    }
}

/// How long the common answers are, to the byte: what has no room to spare is handed on without a copy.
fn len(answer: &Answer) -> usize {
    match answer {
        Answer::Done | Answer::Missing => 1,
        Answer::Number(_) => 9,
        Answer::Value(value) => value.as_ref().map_or(2, |value| value.len().saturating_add(6)),
        Answer::Values(_) | Answer::Compared { .. } | Answer::Keys(_) | Answer::Changed { .. } => 32,
        Answer::Refused(_) => 128,
    }
}

/// The bytes of an answer.
#[must_use]
pub fn write(answer: &Answer) -> Vec<u8> {
    let mut body = Body(Vec::with_capacity(len(answer)));
    put(&mut body, answer);
    body.0
}

/// The frame of an answer, behind what is to be sent before: the same bytes as by way of [`write`], but what is asked most is not copied.
pub fn put_reply_frame(out: &mut Vec<u8>, seq: u64, answer: &Answer) {
    match answer {
        Answer::Done | Answer::Missing | Answer::Number(_) | Answer::Value(_) => {
            let mut body = Body(core::mem::take(out));
            super::put_answer_head(&mut body, seq, len(answer));
            put(&mut body, answer);
            *out = body.0;
        }
        Answer::Values(_) | Answer::Compared { .. } | Answer::Keys(_) | Answer::Changed { .. } | Answer::Refused(_) => {
            super::put_answer_frame(out, seq, &write(answer));
        }
    }
}

fn put(body: &mut Body, answer: &Answer) {
    match answer {
        Answer::Done => body.byte(1),
        Answer::Missing => body.byte(2),
        Answer::Value(value) => body.byte(3).optional(value.as_deref()),
        Answer::Values(values) => {
            body.byte(4).count(values.len());
            values.iter().fold(body, |body, value| body.optional(value.as_deref()))
        }
        Answer::Number(number) => body.byte(5).signed(*number),
        Answer::Compared { set, now } => body.byte(6).byte(u8::from(*set)).optional(now.as_deref()),
        Answer::Keys(keys) => {
            body.byte(7).count(keys.len());
            keys.iter().fold(body, |body, key| body.bytes(key))
        }
        Answer::Changed { at, value } => body.byte(8).long(at.0).optional(value.as_deref()),
        Answer::Refused(refusal) => refused(body, refusal),
    };
}

fn refused<'b>(body: &'b mut Body, refusal: &Refusal) -> &'b mut Body {
    let (within, text) = if let Refusal::TimedOut { within, missing } = refusal {
        // How long it was for the client, its agent knows.
        (Some(*within), missing.to_string())
    } else {
        (None, refusal.to_string())
    };
    let hint = refusal.hint().unwrap_or_default();
    let refused = Refused { code: Code::of(refusal), within, text: text.as_bytes(), hint: hint.as_bytes() };
    body.0.extend(refused.write());
    body
}
