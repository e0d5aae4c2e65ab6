//! The store lane: what agents and the owner of a namespace say to each other, through the launcher's edges. A frame's node is the agent
//! that asks, or is answered.
//!
//! An operation and its answer are as in [`super::frozen::client`], and are not looked into on the way.

use super::frozen::Malformed;
use super::frozen::client::Space;
use super::frozen::fields::{Body, Fields};
use crate::id::ClientId;
use crate::store::{Seq, Ticket};
use alloc::vec::Vec;

/// From an agent to an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Up<'a> {
    /// A client of that agent's asks.
    Ask(Ticket, &'a [u8]),
    /// The client does not want the answer any more.
    Cancel(Ticket),
    /// The client asks no more.
    Gone(ClientId),
    /// This key is not answered from memory any more.
    Dropped(&'a [u8]),
    /// That agent is lost: said by the launcher.
    Lost,
}

/// From an owner to an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Down<'a> {
    /// The answer, and whether it may be given again until [`Down::Drop`] comes for its keys.
    Answer(Ticket, bool, &'a [u8]),
    /// This key is about to change: it is not to be answered from memory, and that is to be confirmed.
    Drop(&'a [u8]),
    /// The namespace is gone.
    Closed,
}

/// The body of a frame: before what it carries, of which generation of ranks that is (0 of the job's namespace). A late frame of one
/// generation must not reach the next.
#[must_use]
pub fn stamped(generation: u32, passage: Passage<'_>) -> Vec<u8> {
    let mut bytes = passage.to_bytes();
    bytes.splice(0..0, generation.to_le_bytes());
    bytes
}

/// From the body of a frame.
///
/// # Errors
/// It is nothing that this version says.
pub fn unstamped(bytes: &[u8]) -> Result<(u32, Passage<'_>), Malformed> {
    let (generation, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    Ok((u32::from_le_bytes(*generation), Passage::parse(rest)?))
}

/// The content of a frame of the store lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage<'a> {
    /// To the owner of a namespace.
    Up(Space, Up<'a>),
    /// To an agent.
    Down(Space, Down<'a>),
}

impl<'a> Passage<'a> {
    /// From the body of a frame.
    ///
    /// # Errors
    /// It is nothing that this version says.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut all = Fields(bytes);
        let (kind, space) = (all.byte()?, Space::from_raw(all.byte()?)?);
        let ticket = |all: &mut Fields<'a>| Ok(Ticket { client: ClientId::new(all.word()?), seq: Seq(all.long()?) });
        let passage = match kind {
            1 => return Ok(Self::Up(space, Up::Ask(ticket(&mut all)?, all.0))),
            2 => Self::Up(space, Up::Cancel(ticket(&mut all)?)),
            3 => Self::Up(space, Up::Gone(ClientId::new(all.word()?))),
            4 => return Ok(Self::Up(space, Up::Dropped(all.0))),
            8 => Self::Up(space, Up::Lost),
            5 => return Ok(Self::Down(space, Down::Answer(ticket(&mut all)?, all.flag()?, all.0))),
            6 => return Ok(Self::Down(space, Down::Drop(all.0))),
            7 => Self::Down(space, Down::Closed),
            _ => return Err(Malformed),
        };
        all.end()?;
        Ok(passage)
    }

    /// The body of a frame.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut body = Body::default();
        let mut begin = |kind: u8, space: Space, rest: usize| {
            body.0.reserve_exact(rest.saturating_add(16));
            body.byte(kind).byte(space.raw());
        };
        let (ticket, keep, rest): (Option<Ticket>, Option<bool>, &[u8]) = match self {
            Self::Up(space, Up::Ask(ticket, words)) => {
                begin(1, space, words.len());
                (Some(ticket), None, words)
            }
            Self::Up(space, Up::Cancel(ticket)) => {
                begin(2, space, 0);
                (Some(ticket), None, &[])
            }
            Self::Up(space, Up::Gone(client)) => {
                begin(3, space, 0);
                body.word(client.get());
                (None, None, &[])
            }
            Self::Up(space, Up::Dropped(key)) => {
                begin(4, space, key.len());
                (None, None, key)
            }
            Self::Up(space, Up::Lost) => {
                begin(8, space, 0);
                (None, None, &[])
            }
            Self::Down(space, Down::Answer(ticket, keep, words)) => {
                begin(5, space, words.len());
                (Some(ticket), Some(keep), words)
            }
            Self::Down(space, Down::Drop(key)) => {
                begin(6, space, key.len());
                (None, None, key)
            }
            Self::Down(space, Down::Closed) => {
                begin(7, space, 0);
                (None, None, &[])
            }
        };
        if let Some(ticket) = ticket {
            body.word(ticket.client.get()).long(ticket.seq.0);
        }
        if let Some(keep) = keep {
            body.byte(u8::from(keep));
        }
        body.0.extend_from_slice(rest);
        body.0
    }
}
