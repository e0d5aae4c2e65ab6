//! Rounds on the client's wire: what a process that restarts a function within itself and the agent of its host say to each other.
//!
//! A connection whose first frame is [`Said::Register`] is the process's *session*: it is about rounds only, from then on until it
//! ends, and its end is the end of that process's part. Kinds of frames, as in the parent module, begin at 16. An agent answers a kind
//! that it does not know by a frame of kind [`UNSUPPORTED`], with that kind; a client drops what it does not know.

use super::super::fields::{Body, Fields, Malformed};
use crate::id::{Rank, Round};
use crate::os_bytes::OsBytes;
use crate::rank_assign::Mode;
use crate::restart::rank_fault::{Fault, FaultKind, Leave};
use crate::signal::Signal;
use crate::status::Status;
use crate::time::Span;
use alloc::vec::Vec;

/// The kind of an agent's frame that names a kind it does not know.
pub const UNSUPPORTED: u8 = 16;

/// A message of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// The process takes part, under these terms (`restart::terms`): names and values. The answer is the first `Begin`, or `Dismissed`.
    Register(Vec<(OsBytes, OsBytes)>),
    /// Its function has failed in this round.
    Fault(Round, OsBytes),
    /// The process is out of its function, cleaned up and healthy; with the present values of its keys.
    Ready(Round, Vec<OsBytes>),
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

/// A message of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A round begins.
    Begin(Begin),
    /// Leave the function of this round; in a planned round where it says that it can be, or when this time is over.
    Interrupt(Round, Fault, Option<Span>),
    /// The work is done: the call returns.
    Finish(Round),
    /// The process takes no part any more.
    Dismissed(Dismissal, OsBytes),
    /// The agent does not know this kind of frame.
    Unsupported(u8),
}

/// Why a process takes no part any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dismissal {
    /// The policy does not want it.
    Discarded,
    /// No round is possible any more: the job's ordinary rule holds.
    GivenUp,
    /// The process cannot take part with its terms.
    Refused,
}

/// A round, for one process.
#[derive(Clone, PartialEq, Eq, Debug)]
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

impl Said {
    /// From a whole frame.
    ///
    /// # Errors
    /// It is none that a client writes. The kind, where only that is not known.
    pub fn parse(frame: &[u8]) -> Result<Self, Unread> {
        let mut all = Fields(frame);
        let _len = all.word()?;
        let said = match all.byte()? {
            17 => Self::Register(all.list(|pair| Ok((owned(pair)?, owned(pair)?)))?),
            18 => Self::Fault(round(&mut all)?, owned(&mut all)?),
            19 => Self::Ready(round(&mut all)?, all.list(owned)?),
            20 => Self::Returned(round(&mut all)?),
            21 => Self::Leave(leave(&mut all)?, owned(&mut all)?),
            22 => Self::Alive(round(&mut all)?, all.flag()?),
            23 => Self::Section(round(&mut all)?, all.within()?),
            24 => Self::Hooks(round(&mut all)?, all.flag()?),
            kind => return Err(Unread::Kind(kind)),
        };
        all.end()?;
        Ok(said)
    }

    /// Whether a frame is one of a session's: the first of it decides what a connection is for.
    #[must_use]
    pub fn is_register(frame: &[u8]) -> bool {
        frame.get(4) == Some(&17)
    }

    /// As a frame.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        framed(|body| match self {
            Self::Register(terms) => {
                body.byte(17).count(terms.len());
                terms.iter().fold(body, |body, (name, value)| body.bytes(name).bytes(value));
            }
            Self::Fault(round, text) => {
                body.byte(18).word(round.get()).bytes(text);
            }
            Self::Ready(round, keys) => {
                body.byte(19).word(round.get()).count(keys.len());
                keys.iter().fold(body, |body, key| body.bytes(key));
            }
            Self::Returned(round) => {
                body.byte(20).word(round.get());
            }
            Self::Leave(why, text) => {
                body.byte(21).byte(leave_raw(*why)).bytes(text);
            }
            Self::Alive(round, pinged) => {
                body.byte(22).word(round.get()).byte(u8::from(*pinged));
            }
            Self::Section(round, span) => {
                body.byte(23).word(round.get()).within(*span);
            }
            Self::Hooks(round, run) => {
                body.byte(24).word(round.get()).byte(u8::from(*run));
            }
        })
    }
}

impl Heard {
    /// From a whole frame.
    ///
    /// # Errors
    /// It is none that an agent writes. The kind, where only that is not known.
    pub fn parse(frame: &[u8]) -> Result<Self, Unread> {
        let mut all = Fields(frame);
        let _len = all.word()?;
        let heard = match all.byte()? {
            UNSUPPORTED => Self::Unsupported(all.byte()?),
            17 => Self::Begin(Begin {
                round: round(&mut all)?,
                rank: rank(&mut all)?,
                world_size: all.word()?,
                active_rank: all.optional(rank)?,
                active_world_size: all.word()?,
                initial_rank: rank(&mut all)?,
                initial_world_size: all.word()?,
                fault: all.optional(fault)?,
                env: all.list(|pair| Ok((owned(pair)?, pair.optional(owned)?)))?,
            }),
            18 => Self::Interrupt(round(&mut all)?, fault(&mut all)?, all.within()?),
            19 => Self::Finish(round(&mut all)?),
            20 => Self::Dismissed(dismissal(&mut all)?, owned(&mut all)?),
            kind => return Err(Unread::Kind(kind)),
        };
        all.end()?;
        Ok(heard)
    }

    /// As a frame.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        framed(|body| match self {
            Self::Unsupported(kind) => {
                body.byte(UNSUPPORTED).byte(*kind);
            }
            Self::Begin(begin) => put_begin(body, begin),
            Self::Interrupt(round, fault, within) => {
                body.byte(18).word(round.get());
                put_fault(body, fault);
                body.within(*within);
            }
            Self::Finish(round) => {
                body.byte(19).word(round.get());
            }
            Self::Dismissed(why, text) => {
                let raw = match why {
                    Dismissal::Discarded => 0,
                    Dismissal::GivenUp => 1,
                    Dismissal::Refused => 2,
                };
                body.byte(20).byte(raw).bytes(text);
            }
        })
    }
}

/// Why a frame was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unread {
    /// Its kind is not known here.
    #[error("frames of kind {0} are not known")]
    Kind(u8),
    /// The body does not fit its kind.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

fn framed(write: impl FnOnce(&mut Body)) -> Vec<u8> {
    let mut body = Body::default();
    write(&mut body);
    let mut frame = Body::default();
    frame.count(body.0.len());
    frame.0.extend_from_slice(&body.0);
    frame.0
}

fn put_begin(body: &mut Body, begin: &Begin) {
    body.byte(17).word(begin.round.get()).word(begin.rank.get()).word(begin.world_size);
    match begin.active_rank {
        Some(rank) => body.byte(1).word(rank.get()),
        None => body.byte(0),
    };
    body.word(begin.active_world_size).word(begin.initial_rank.get()).word(begin.initial_world_size);
    match &begin.fault {
        Some(fault) => put_fault(body.byte(1), fault),
        None => {
            body.byte(0);
        }
    }
    body.count(begin.env.len());
    for (name, value) in &begin.env {
        body.bytes(name).optional(value.as_ref().map(|value| value.as_slice()));
    }
}

/// The kind, a number that belongs to it, and the text.
fn put_fault(body: &mut Body, fault: &Fault) {
    let (kind, status) = match fault.kind {
        FaultKind::Exception => (0, None),
        FaultKind::Hang => (1, None),
        FaultKind::Ended(status) => (2, Some(status)),
        FaultKind::Overdue(status) => (3, Some(status)),
        FaultKind::Left(Leave::BaseException) => (4, None),
        FaultKind::Left(Leave::Abort) => (5, None),
        FaultKind::Left(Leave::Unhealthy) => (6, None),
        FaultKind::HostLost => (7, None),
        FaultKind::Warned => (8, None),
        FaultKind::Joined => (9, None),
    };
    body.word(fault.initial.get()).byte(kind).bytes(&fault.text);
    put_status(body, status);
}

/// As waitpid(2) separates them: the kind, and the code or signal; a third kind is an unknown status.
fn put_status(body: &mut Body, status: Option<Status>) {
    match status {
        None | Some(Status::Lost) => body.byte(0).byte(0),
        Some(Status::Exited(code)) => body.byte(1).byte(code),
        Some(Status::Signaled { sig, core }) => body.byte(if core { 3 } else { 2 }).byte(sig.get()),
    };
}

fn fault(all: &mut Fields<'_>) -> Result<Fault, Malformed> {
    let (initial, kind, text) = (rank(all)?, all.byte()?, owned(all)?);
    let status = match (all.byte()?, all.byte()?) {
        (0, _) => Status::Lost,
        (1, code) => Status::Exited(code),
        (how @ (2 | 3), sig) => Status::Signaled { sig: Signal::new(sig).ok_or(Malformed)?, core: how == 3 },
        _ => return Err(Malformed),
    };
    let kind = match kind {
        0 => FaultKind::Exception,
        1 => FaultKind::Hang,
        2 => FaultKind::Ended(status),
        3 => FaultKind::Overdue(status),
        4 => FaultKind::Left(Leave::BaseException),
        5 => FaultKind::Left(Leave::Abort),
        6 => FaultKind::Left(Leave::Unhealthy),
        7 => FaultKind::HostLost,
        8 => FaultKind::Warned,
        9 => FaultKind::Joined,
        _ => return Err(Malformed),
    };
    Ok(Fault { initial, kind, text })
}

const fn leave_raw(why: Leave) -> u8 {
    match why {
        Leave::BaseException => 0,
        Leave::Abort => 1,
        Leave::Unhealthy => 2,
    }
}

fn leave(all: &mut Fields<'_>) -> Result<Leave, Malformed> {
    match all.byte()? {
        0 => Ok(Leave::BaseException),
        1 => Ok(Leave::Abort),
        2 => Ok(Leave::Unhealthy),
        _ => Err(Malformed),
    }
}

fn dismissal(all: &mut Fields<'_>) -> Result<Dismissal, Malformed> {
    match all.byte()? {
        0 => Ok(Dismissal::Discarded),
        1 => Ok(Dismissal::GivenUp),
        2 => Ok(Dismissal::Refused),
        _ => Err(Malformed),
    }
}

fn owned(all: &mut Fields<'_>) -> Result<OsBytes, Malformed> {
    Ok(OsBytes::from(all.bytes()?))
}

fn rank(all: &mut Fields<'_>) -> Result<Rank, Malformed> {
    Ok(Rank::new(all.word()?))
}

fn round(all: &mut Fields<'_>) -> Result<Round, Malformed> {
    Ok(Round::new(all.word()?))
}
