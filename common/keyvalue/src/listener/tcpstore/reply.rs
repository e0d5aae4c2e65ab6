//! The answers of the store on torch's wire.

use super::{Broken, MAX_UNREAD};
use crate::store::{Answer, Refusal, Revision};
use alloc::vec::Vec;
use bytes::Bytes;
use rlaunch_protocol::wire::tcpstore_wire::answer;

/// How a request is answered.
#[derive(Debug)]
pub(super) enum Reply {
    /// Not at all.
    Nothing,
    /// A value; one that is not there is empty.
    Value,
    /// The values of all.
    Values,
    /// A number.
    Number,
    /// A byte, when what was waited for is there.
    Ready,
    /// A byte: whether it is there.
    Checked,
    /// The value now; where there is none, the one that was expected.
    Compared(Vec<u8>),
    /// The item that was taken, if there was one: its number stands before it already.
    Popped,
    /// Keys.
    Listed,
    /// A key has changed; and then it is watched again.
    Watched {
        /// Which.
        key: Vec<u8>,
        /// Its value before.
        was: Option<Bytes>,
    },
}

/// A key to be watched again: its value, and since when it has it.
pub(super) type Again = (Vec<u8>, Option<Bytes>, Revision);

impl Reply {
    /// Writes it.
    ///
    /// # Errors
    /// The store has refused: on this wire that is the end of the connection.
    pub(super) fn write(self, said: Answer, out: &mut Vec<u8>) -> Result<Option<Again>, Broken> {
        match (self, said) {
            (_, Answer::Refused(refusal)) => return Err(refusal.into()),
            (Self::Nothing, _) => {}
            (Self::Value, Answer::Value(value)) => answer::string(out, &value.unwrap_or_default()),
            (Self::Popped, Answer::Value(value)) => {
                if let Some(value) = value {
                    answer::string(out, &value);
                }
            }
            (Self::Values, Answer::Values(values)) => {
                let each = values.iter().map(|value| value.as_ref().map_or(0, Bytes::len));
                may_be_written(out, each)?;
                values.into_iter().for_each(|value| answer::string(out, &value.unwrap_or_default()));
            }
            (Self::Number, Answer::Number(number)) => answer::number(out, number),
            (Self::Ready | Self::Checked, Answer::Done) => answer::byte(out, answer::READY),
            (Self::Checked, Answer::Missing) => answer::byte(out, answer::NOT_READY),
            (Self::Compared(expected), Answer::Compared { now, .. }) => match now {
                Some(now) => answer::string(out, &now),
                None => answer::string(out, &expected),
            },
            (Self::Listed, Answer::Keys(keys)) => {
                may_be_written(out, keys.iter().map(Bytes::len))?;
                answer::count(out, keys.len());
                keys.iter().for_each(|key| answer::string(out, key));
            }
            (Self::Watched { key, was }, Answer::Changed { at, value }) => {
                changed(out, &key, was.as_deref(), value.as_deref());
                return Ok(Some((key, value, at)));
            }
            // The store answers each request in its own kind: nothing else can come, and nothing else could be sent.
            (
                Self::Value
                | Self::Values
                | Self::Number
                | Self::Ready
                | Self::Checked
                | Self::Compared(_)
                | Self::Popped
                | Self::Listed
                | Self::Watched { .. },
                Answer::Done
                | Answer::Missing
                | Answer::Value(_)
                | Answer::Values(_)
                | Answer::Number(_)
                | Answer::Compared { .. }
                | Answer::Keys(_)
                | Answer::Changed { .. },
            ) => return Err(Refusal::Gone.into()),
        }
        Ok(None)
    }
}

/// Whether so many strings, of these lengths, may be an answer behind what is there.
fn may_be_written(out: &[u8], each: impl Iterator<Item = usize>) -> Result<(), Broken> {
    let len = each.map(|len| len.saturating_add(8)).fold(0, usize::saturating_add);
    let all = len.saturating_add(out.len());
    if len > MAX_UNREAD {
        return Err(Broken::LongAnswer(len));
    }
    if all > MAX_UNREAD { Err(Broken::Unread(all)) } else { Ok(()) }
}

/// News of a key that torch 1.13 watches.
fn changed(out: &mut Vec<u8>, key: &[u8], was: Option<&[u8]>, now: Option<&[u8]>) {
    let what = match (was, now) {
        (_, None) => answer::DELETED,
        (None, Some(_)) => answer::CREATED,
        (Some(_), Some(_)) => answer::UPDATED,
    };
    answer::byte(out, what);
    answer::string(out, key);
    answer::string(out, was.unwrap_or_default());
    answer::string(out, now.unwrap_or_default());
}
