//! Messages as bytes: postcard, with a rest refused.

use alloc::vec::Vec;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
    match postcard::take_from_bytes::<M>(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(DecodeError::Trailing(rest.len())),
        Err(_) => Err(DecodeError::Malformed),
    }
}
