//! Sealed streams: the handshake of an edge over TCP or over the streams of srun, and the records that follow it.
//!
//! The handshake is Noise `NNpsk0` with X25519, ChaCha20-Poly1305 and BLAKE2s. A record is its length (u16, little endian) and the sealed
//! bytes with their tag. Records are numbered, so none can be left out, repeated or put elsewhere. The agent's first record is empty: it
//! confirms the handshake.

use crate::frames::Closed;
use bytes::{Buf, BytesMut};
use rlaunch_plan::bootstrap::tcp_hello::{
    AgentFacts, CONFIRMATION, EdgeKeys, FACTS, FIRST_MESSAGE, LAST_WORDS_TAG, SECOND_MESSAGE, last_words_tag,
};
use rlaunch_plan::bootstrap::{PREAMBLE, Preamble};
use rlaunch_protocol::wire::frame::HEADER;
use rlaunch_protocol::wire::guardian_count::{LAST, Last};
use snow::{Builder, HandshakeState, StatelessTransportState};
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Bytes of the tag of a record.
const TAG: usize = 16;
/// Bytes of the length of a record.
const LENGTH: usize = 2;
/// Most bytes in a record: Noise's limit, less the tag.
const MOST: usize = 65_535 - TAG;
/// Sealed bytes after which no more are sealed before some are written.
const AHEAD: usize = 128 << 10;
/// Length of a guardian's last words with their tag.
const LAST_WORDS: usize = HEADER + LAST + LAST_WORDS_TAG;

/// A handshake that has failed: the other side does not know the key, or its bytes were changed.
#[derive(Debug, thiserror::Error)]
#[error("the other side does not know the key of this edge: {0}")]
pub struct SealError(#[from] snow::Error);

/// Both directions of a sealed stream.
#[derive(Debug)]
pub struct Seal {
    pub(crate) opener: Opener,
    pub(crate) sealer: Sealer,
}

/// The agent's side of a handshake.
pub struct AgentHandshake(HandshakeState);

impl fmt::Debug for AgentHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentHandshake(..)")
    }
}

fn builder(keys: &EdgeKeys) -> Result<Builder<'_>, SealError> {
    Ok(Builder::new(PATTERN.parse()?).psk(0, &keys.shared)?.prologue(&keys.prologue)?)
}

impl AgentHandshake {
    /// Begins: the first message.
    ///
    /// # Errors
    /// No random bytes can be had.
    pub fn begin(keys: &EdgeKeys, facts: AgentFacts) -> Result<(Self, [u8; FIRST_MESSAGE]), SealError> {
        let (mut state, mut message) = (builder(keys)?.build_initiator()?, [0; FIRST_MESSAGE]);
        state.write_message(&facts.to_bytes(), &mut message)?;
        Ok((Self(state), message))
    }

    /// Ends: the launcher's answer, with the preamble of this node. Returns the confirmation, which is to be sent before anything else.
    ///
    /// # Errors
    /// The launcher does not know the key.
    pub fn finish(
        mut self,
        keys: &EdgeKeys,
        answer: &[u8; SECOND_MESSAGE],
    ) -> Result<([u8; PREAMBLE], [u8; CONFIRMATION], Seal), SealError> {
        let mut preamble = [0; PREAMBLE];
        self.0.read_message(answer, &mut preamble)?;
        let mut seal = Seal::of(self.0, keys)?;
        let record = seal.sealer.seal(&[]).ok().map(|_| std::mem::take(&mut seal.sealer.sealed));
        let confirmation = record.and_then(|record| record.try_into().ok()).ok_or(SealError(snow::Error::Input))?;
        Ok((preamble, confirmation, seal))
    }
}

/// The launcher's side of a handshake: reads the first message of an agent.
///
/// # Errors
/// The agent does not know the key.
pub fn receive(keys: &EdgeKeys, message: &[u8; FIRST_MESSAGE]) -> Result<(AgentFacts, Received), SealError> {
    let (mut state, mut facts) = (builder(keys)?.build_responder()?, [0; FACTS]);
    state.read_message(message, &mut facts)?;
    let facts = AgentFacts::parse(&facts).ok_or(SealError(snow::Error::Decrypt))?;
    Ok((facts, Received(state)))
}

/// A first message that was read, and waits for its answer.
pub struct Received(HandshakeState);

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Received(..)")
    }
}

impl Received {
    /// The answer, and the stream that follows it. The agent's first record is its confirmation.
    ///
    /// # Errors
    /// No random bytes can be had.
    pub fn answer(mut self, keys: &EdgeKeys, preamble: &Preamble) -> Result<([u8; SECOND_MESSAGE], Seal), SealError> {
        let mut answer = [0; SECOND_MESSAGE];
        self.0.write_message(&preamble.to_bytes(), &mut answer)?;
        Ok((answer, Seal::of(self.0, keys)?))
    }
}

impl Seal {
    /// Reads the agent's confirmation.
    ///
    /// # Errors
    /// The sender has only repeated the first message of an agent.
    pub fn confirm(&mut self, confirmation: &[u8; CONFIRMATION]) -> Result<(), SealError> {
        self.opener.arrived.extend_from_slice(confirmation);
        let is_open = self.opener.open_next(&mut BytesMut::new());
        if is_open { Ok(()) } else { Err(SealError(snow::Error::Decrypt)) }
    }

    fn of(state: HandshakeState, keys: &EdgeKeys) -> Result<Self, SealError> {
        let state = Arc::new(state.into_stateless_transport_mode()?);
        let opener = Opener {
            state: Arc::clone(&state),
            next: 0,
            arrived: BytesMut::new(),
            is_broken: false,
            last_words: keys.last_words,
        };
        Ok(Self { opener, sealer: Sealer { state, next: 0, plain: Vec::new(), sealed: Vec::new(), at: 0 } })
    }
}

/// The incoming direction.
pub(crate) struct Opener {
    state: Arc<StatelessTransportState>,
    /// Number of the next record.
    next: u64,
    /// Bytes that have arrived and were not opened.
    arrived: BytesMut,
    /// A record could not be opened. The guardian's last words may still follow.
    is_broken: bool,
    last_words: [u8; 32],
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("next", &self.next).field("arrived", &self.arrived.len()).finish_non_exhaustive()
    }
}

impl Opener {
    /// Memory for bytes that arrive. After a record that could not be opened only the end of the stream counts.
    pub(crate) fn arrived(&mut self) -> &mut BytesMut {
        if self.is_broken {
            self.arrived.advance(self.arrived.len().saturating_sub(LAST_WORDS));
        }
        &mut self.arrived
    }

    /// Opens the next record onto `plain`; false: it has not arrived as a whole, or is not authentic.
    pub(crate) fn open_next(&mut self, plain: &mut BytesMut) -> bool {
        let Some(length) = self.arrived.first_chunk::<LENGTH>().filter(|_| !self.is_broken) else { return false };
        let length = usize::from(u16::from_le_bytes(*length));
        let Some(record) = self.arrived.get(LENGTH..LENGTH + length) else { return false };
        let held = plain.len();
        plain.resize(held + length, 0);
        let room = plain.get_mut(held..).unwrap_or_default();
        match self.state.read_message(self.next, record, room) {
            Ok(read) => {
                plain.truncate(held + read);
                self.arrived.advance(LENGTH + length);
                self.next += 1;
                true
            }
            Err(error) => {
                tracing::debug!(%error, record = self.next, "a record cannot be opened");
                plain.truncate(held);
                self.is_broken = true;
                false
            }
        }
    }

    /// The end of the stream: the last words of the guardian, which are no record.
    pub(crate) fn end(&mut self) -> Result<Last, Closed> {
        if self.arrived.is_empty() {
            return Err(Closed::Eof);
        }
        let from = self.arrived.len().saturating_sub(LAST_WORDS);
        let (words, tag) =
            self.arrived.get(from..).unwrap_or_default().split_at_checked(HEADER + LAST).unwrap_or_default();
        let is_authentic = blake_eq(&last_words_tag(&self.last_words, words), tag);
        let cut_off = if self.is_broken { Closed::Seal } else { Closed::Truncated };
        Last::at_the_end_of(words).filter(|_| is_authentic).ok_or(cut_off)
    }
}

/// Compares in a time that does not depend on where the tags differ.
fn blake_eq(expected: &[u8; LAST_WORDS_TAG], received: &[u8]) -> bool {
    let differing = expected.iter().zip(received).fold(0, |all, (a, b)| all | (a ^ b));
    received.len() == LAST_WORDS_TAG && std::hint::black_box(differing) == 0
}

/// The outgoing direction.
pub(crate) struct Sealer {
    state: Arc<StatelessTransportState>,
    /// Number of the next record.
    next: u64,
    /// The bytes of the next record, while they are collected.
    plain: Vec<u8>,
    /// Records that wait to be written.
    sealed: Vec<u8>,
    /// Bytes of them that were written.
    at: usize,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("next", &self.next).field("waiting", &self.sealed.len()).finish_non_exhaustive()
    }
}

impl Sealer {
    pub(crate) const fn is_empty(&self) -> bool {
        self.at == self.sealed.len()
    }

    pub(crate) const fn has_room(&self) -> bool {
        self.sealed.len() - self.at < AHEAD
    }

    /// Seals one record of these bytes; returns how many of them it took.
    pub(crate) fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.plain.clear();
        for slice in slices {
            let room = MOST - self.plain.len();
            self.plain.extend_from_slice(slice.get(..slice.len().min(room)).unwrap_or_default());
        }
        let (from, length) = (self.sealed.len(), self.plain.len() + TAG);
        self.sealed.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
        self.sealed.resize(from + LENGTH + length, 0);
        let room = self.sealed.get_mut(from + LENGTH..).unwrap_or_default();
        self.state.write_message(self.next, &self.plain, room).map_err(io::Error::other)?;
        self.next += 1;
        Ok(self.plain.len())
    }

    /// Writes once what the kernel takes.
    pub(crate) fn write_to(&mut self, output: impl AsFd) -> io::Result<()> {
        let rest = self.sealed.get(self.at..).unwrap_or_default();
        self.at += nix::unistd::write(output, rest)?;
        if self.at == self.sealed.len() {
            self.sealed.clear();
            self.at = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
