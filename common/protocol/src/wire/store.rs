//! The store lane: what agents and the owner of a namespace say to each other, through the launcher's edges. A frame's node is the agent
//! that asks, or is answered.
//!
//! An operation and its answer are as in [`super::frozen::client`], and are not looked into on the way.

use super::codec::{DecodeError, append, decode_borrowed, raw};
use super::frozen::client::Space;
use alloc::vec::Vec;
use rlaunch_base::id::ClientId;
use serde::{Deserialize, Serialize};

/// The number of a request among those of its client: 1, 2, 3 …
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

/// A request, by who asks and under which number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// The client that asks.
    pub client: ClientId,
    /// Its number.
    pub seq: Seq,
}

/// From an agent to an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Up<'a> {
    /// A client of that agent's asks.
    Ask(Ticket, #[serde(serialize_with = "raw")] &'a [u8]),
    /// The client does not want the answer any more.
    Cancel(Ticket),
    /// The client asks no more.
    Gone(ClientId),
    /// A key is not answered from memory any more.
    Dropped(&'a [u8]),
    /// That agent is lost: said by the launcher.
    Lost,
}

/// From an owner to an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Down<'a> {
    /// The answer, and whether it may be given again until [`Down::Drop`] comes for its keys.
    Answer(Ticket, bool, #[serde(serialize_with = "raw")] &'a [u8]),
    /// A key is about to change: it is not to be answered from memory, and that is to be confirmed.
    Drop(&'a [u8]),
    /// The namespace is gone.
    Closed,
}

/// The body of a frame: the generation of the ranks (0: the namespace of the job), then the content. A late frame of one generation must
/// not reach the next.
#[must_use]
pub fn stamped(generation: u32, passage: Passage<'_>) -> Vec<u8> {
    append(Vec::new(), &(generation, passage))
}

/// From the body of a frame.
///
/// # Errors
/// It is nothing that this version says.
pub fn unstamped(bytes: &[u8]) -> Result<(u32, Passage<'_>), DecodeError> {
    decode_borrowed(bytes)
}

/// The content of a frame of the store lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Passage<'a> {
    /// To the owner of a namespace.
    Up(Space, #[serde(borrow)] Up<'a>),
    /// To an agent.
    Down(Space, #[serde(borrow)] Down<'a>),
}
