//! Messages as bytes: postcard, with a rest refused.

use alloc::vec::Vec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

/// A message of one direction of an edge.
pub trait WireMessage: Serialize + DeserializeOwned {}

/// Why a body is refused. The edge is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not a message of this direction, cut short, or above a limit.
    #[error("malformed message")]
    Malformed,
    /// Bytes after the message.
    #[error("{0} bytes after the message")]
    Trailing(usize),
}

/// The bytes of a message.
#[must_use]
pub fn encode<M: WireMessage>(message: &M) -> Vec<u8> {
    // Writing to a vector cannot fail, and our messages hold nothing that postcard cannot write.
    postcard::to_allocvec(message).unwrap_or_default()
}

/// A message from its bytes. Allocates at most a small multiple of the input.
///
/// # Errors
/// Anything that `encode` does not produce.
pub fn decode<M: WireMessage>(body: &[u8]) -> Result<M, DecodeError> {
    decode_borrowed(body)
}

/// The same of a message that borrows the bytes.
pub fn decode_borrowed<'a, M: Deserialize<'a>>(body: &'a [u8]) -> Result<M, DecodeError> {
    match postcard::take_from_bytes::<M>(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(DecodeError::Trailing(rest.len())),
        Err(_) => Err(DecodeError::Malformed),
    }
}

/// Writes a message after these bytes.
pub fn append<M: Serialize>(bytes: Vec<u8>, message: &M) -> Vec<u8> {
    // As in `encode`, nothing fails.
    postcard::to_extend(message, bytes).unwrap_or_default()
}

/// Ends a frame: its first four bytes become the length of the rest, in 32 bits.
pub(super) fn set_length(frame: &mut [u8]) {
    if let Some((length, rest)) = frame.split_first_chunk_mut::<4>() {
        *length = u32::try_from(rest.len()).unwrap_or(u32::MAX).to_le_bytes();
    }
}

/// Bytes that are written in one piece. Serde writes each byte of a slice alone, which is slow for long values.
#[derive(Debug)]
pub(crate) struct Raw<'a>(pub(crate) &'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Writes a field as [`Raw`].
pub fn raw<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    Raw(bytes).serialize(serializer)
}
