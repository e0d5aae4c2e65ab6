//! Rounds on the client's wire: what a process that restarts a function within itself and the agent of its host say to each other.
//!
//! A connection whose first frame is [`ClientMessage::Register`] is the process's *session*: it is about rounds only, from then on until it
//! ends, and its end is the end of that process's part. A frame is as in the parent module, of kind 16. Its body is a message as postcard
//! writes it. An agent answers a message that it does not know by [`AgentMessage::Unsupported`]; a client drops such messages.

use super::super::fields::Malformed;
use crate::rank_fault::{Fault, Leave};
use crate::wire::codec::{append, decode_borrowed, set_length};
use alloc::vec::Vec;
use rlaunch_base::capped::unreserved;
use rlaunch_base::id::{Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::rank_assign::Mode;
use serde::{Deserialize, Serialize};

/// The kind of all frames of a session.
const SESSION: u8 = 16;

/// A message of a process. New ones come last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientMessage {
    /// The process takes part, under these terms (`restart::terms`): names and values. The answer is the first `Begin`, or `Dismissed`.
    Register(#[serde(deserialize_with = "unreserved")] Vec<(OsBytes, OsBytes)>),
    /// Its function has failed in this round.
    Fault(Round, OsBytes),
    /// The process is out of its function, cleaned up and healthy; with the present values of its keys.
    Ready(Round, #[serde(deserialize_with = "unreserved")] Vec<OsBytes>),
    /// Its function has returned.
    Returned(Round),
    /// The process takes no part any more, for this reason.
    Leave(Leave, OsBytes),
    /// The process has made progress: by running bytecode, or, with the flag, by the program's own `ping`.
    Alive(Round, bool),
    /// From now on it may be silent for so long (`None`: for ever), until it says otherwise by a span of zero: its own limits again.
    Section(Round, Option<Span>),
    /// Hooks of its program begin to run where nothing else is looked at, or have come to their end.
    Hooks(Round, bool),
}

/// A message of an agent. New ones come last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AgentMessage {
    /// A round begins.
    Begin(Begin),
    /// The process has to leave the function of this round: in a planned round where the function allows it, or after this time.
    Interrupt(Round, Fault, Option<Span>),
    /// The work is done: the call returns.
    Finish(Round),
    /// The process takes no part any more.
    Dismissed(Dismissal, OsBytes),
    /// The agent does not know this kind of frame, or the message with this number.
    Unsupported(u8),
}

/// Why a process takes no part any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Dismissal {
    /// The policy does not want it.
    Discarded,
    /// No round is possible any more: the job's ordinary rule holds.
    GivenUp,
    /// The process cannot take part with its terms.
    Refused,
}

/// A round, for one process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Which.
    pub round: Round,
    /// Its number among the healthy ones.
    pub rank: Rank,
    /// How many these are.
    pub world_size: u32,
    /// Its number among those that work; `None`: it waits in reserve.
    pub active_rank: Option<Rank>,
    /// How many these are.
    pub active_world_size: u32,
    /// The number that it keeps.
    pub initial_rank: Rank,
    /// How many processes there were first.
    pub initial_world_size: u32,
    /// The fault that ended the round before; `None`: it is the first.
    pub fault: Option<Fault>,
    /// Variables of the round, and those that are not to be set.
    #[serde(deserialize_with = "unreserved")]
    pub env: Vec<(OsBytes, Option<OsBytes>)>,
}

impl Begin {
    /// The role of the process.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.active_rank {
            Some(_) => Mode::Active,
            None => Mode::Inactive,
        }
    }
}

impl ClientMessage {
    /// The number of messages.
    const KNOWN: u8 = 8;

    /// From a whole frame.
    ///
    /// # Errors
    /// It is none that a client writes. The kind, where only that is not known.
    pub fn parse(frame: &[u8]) -> Result<Self, Unread> {
        parse(frame, Self::KNOWN)
    }

    /// Whether a frame is one of a session's: the first of it decides what a connection is for.
    #[must_use]
    pub fn is_register(frame: &[u8]) -> bool {
        frame.get(4..6) == Some(&[SESSION, 0])
    }

    /// As a frame.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        to_frame(self)
    }
}

impl AgentMessage {
    /// The number of messages.
    const KNOWN: u8 = 5;

    /// From a whole frame.
    ///
    /// # Errors
    /// It is none that an agent writes. The kind, where only that is not known.
    pub fn parse(frame: &[u8]) -> Result<Self, Unread> {
        parse(frame, Self::KNOWN)
    }

    /// As a frame.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        to_frame(self)
    }
}

/// Why a frame was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unread {
    /// Its kind, or the number of its message, is not known here.
    #[error("frames of kind {0} are not known")]
    Kind(u8),
    /// The body does not fit its kind.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

fn to_frame(message: &impl Serialize) -> Vec<u8> {
    let mut frame = append([0, 0, 0, 0, SESSION].into(), message);
    set_length(&mut frame);
    frame
}

fn parse<'a, M: Deserialize<'a>>(frame: &'a [u8], known: u8) -> Result<M, Unread> {
    let (kind, message) = frame.get(4..).and_then(<[u8]>::split_first).ok_or(Malformed)?;
    match message.first() {
        _ if *kind != SESSION => Err(Unread::Kind(*kind)),
        Some(number) if *number >= known => Err(Unread::Kind(*number)),
        _ => Ok(decode_borrowed(message).map_err(|_| Malformed)?),
    }
}
