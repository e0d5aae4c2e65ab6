//! The answer to a request.

use super::super::fields::Malformed;
use super::{Answer, Refusal};
use crate::wire::codec::{append, decode_borrowed};
use alloc::string::ToString as _;
use alloc::vec::Vec;
use rlaunch_base::capped::unreserved;
use rlaunch_base::error::Hint as _;
use rlaunch_base::time::Span;
use serde::{Deserialize, Serialize, Serializer};

/// Reason why a request was not done, in kinds that a program can distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    /// Anything else, or of a later version.
    #[serde(other)]
    Other,
}

impl Code {
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
            | Refusal::Behind { .. }
            | Refusal::Unread { .. } => Self::Limit,
            Refusal::NoNumber { .. } | Refusal::Overflow { .. } => Self::Number,
            Refusal::OtherFence { .. } | Refusal::NoParticipant { .. } => Self::Fence,
            Refusal::Reserved { .. } => Self::Other,
        }
    }
}

/// That something was not done, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
        append(Vec::new(), &Reply::Refused(*self))
    }
}

/// An answer that was read: an [`Answer`], with its variants in the same order, that borrows the bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply<'a> {
    /// As [`Answer::Done`].
    Done,
    /// As [`Answer::Missing`].
    Missing,
    /// As [`Answer::Value`].
    Value(#[serde(borrow)] Option<&'a [u8]>),
    /// As [`Answer::Values`].
    Values(#[serde(borrow, deserialize_with = "unreserved")] Vec<Option<&'a [u8]>>),
    /// As [`Answer::Number`].
    Number(i64),
    /// As [`Answer::Compared`].
    Compared(bool, #[serde(borrow)] Option<&'a [u8]>),
    /// As [`Answer::Keys`].
    Keys(#[serde(borrow, deserialize_with = "unreserved")] Vec<&'a [u8]>),
    /// As [`Answer::Changed`]: the revision and the value.
    Changed(u64, #[serde(borrow)] Option<&'a [u8]>),
    /// The request was not done.
    Refused(#[serde(borrow)] Refused<'a>),
}

impl<'a> Reply<'a> {
    /// From its bytes, all of them.
    ///
    /// # Errors
    /// They are no answer.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        decode_borrowed(bytes).map_err(|_| Malformed)
    }
}

/// The bytes of an answer.
#[must_use]
pub fn write(answer: &Answer) -> Vec<u8> {
    append(Vec::new(), answer)
}

/// As [`Refused`].
impl Serialize for Refusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (within, text) = if let Self::TimedOut { within, missing } = self {
            // How long it was for the client, its agent knows.
            (Some(*within), missing.to_string())
        } else {
            (None, self.to_string())
        };
        let hint = self.hint().unwrap_or_default();
        let refused = Refused { code: Code::of(self), within, text: text.as_bytes(), hint: hint.as_bytes() };
        refused.serialize(serializer)
    }
}
