//! The wire between a PMIx client and its server. A client of libpmix 3.2 to 5.0 speaks it if the server's address is in
//! `PMIX_SERVER_URI21`. Integers are in network order, and values follow their types.
//!
//! A message is a header of 16 bytes and a buffer. A buffer is a row of packs, each of a count and that many values of one kind. A
//! described buffer has the kinds beside the values. A plain buffer has not.

mod apps;
mod hello;
mod log;
mod read;
mod request;
#[cfg(test)]
mod tests;
mod write;

pub use apps::App;
pub use hello::Hello;
pub use log::{HelpName, LogText};
pub use read::{Proc, RawValue, Reader};
pub use request::{PublicRequest, Request};
pub use write::{GroupForm, Writer};

/// Longest message, and most bytes that a rank may keep.
pub const MAX_MESSAGE: usize = 16 << 20;
/// Bytes of a header.
pub const HEADER: usize = 16;
/// All ranks of a namespace.
pub const ALL_RANKS: u32 = 0xffff_fffe;
/// From here on a number means no single rank.
pub const FIRST_SPECIAL: u32 = 0xffff_fff0;

/// Kinds of values.
#[expect(missing_docs, reason = "the names are those of the wire")]
pub mod kind {
    pub const BOOL: u16 = 1;
    pub const BYTE: u16 = 2;
    pub const STRING: u16 = 3;
    pub const SIZE: u16 = 4;
    pub const INT32: u16 = 9;
    pub const UINT: u16 = 11;
    pub const UINT16: u16 = 13;
    pub const UINT32: u16 = 14;
    pub const UINT64: u16 = 15;
    pub const TIME: u16 = 19;
    pub const STATUS: u16 = 20;
    pub const PROC: u16 = 22;
    pub const APP: u16 = 23;
    pub const INFO: u16 = 24;
    pub const PDATA: u16 = 25;
    pub const BUFFER: u16 = 26;
    pub const BYTE_OBJECT: u16 = 27;
    pub const KVAL: u16 = 28;
    pub const SCOPE: u16 = 32;
    pub const COMMAND: u16 = 34;
    pub const RANK: u16 = 40;
}

/// Answers of a server: `pmix_status_t`.
#[expect(missing_docs, reason = "the names are those of the wire")]
pub mod status {
    pub const SUCCESS: i32 = 0;
    pub const BAD_PARAM: i32 = -27;
    pub const OUT_OF_RESOURCE: i32 = -29;
    pub const NOT_FOUND: i32 = -46;
    pub const NOT_SUPPORTED: i32 = -47;
    pub const JOB_FAILED_TO_LAUNCH: i32 = -181;
}

/// Bytes that are not what a client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The bytes end too early.
    #[error("a message ends in the middle of a value")]
    Short,
    /// A message is too long.
    #[error("a message of {0} bytes is longer than {MAX_MESSAGE}")]
    Long(u32),
    /// There is another kind of value, or another number of them.
    #[error("a value of kind {0} stands where another is needed")]
    Kind(u16),
    /// Values stand in values too deep.
    #[error("values are nested too deep")]
    Deep,
    /// Bytes follow the last value.
    #[error("{0} bytes follow the end of a message")]
    Rest(usize),
}

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// By which the client finds the request that is answered.
    pub tag: u32,
    /// Bytes that follow.
    pub len: usize,
}

impl Header {
    /// Reads it; `None`: it is not complete.
    ///
    /// # Errors
    /// The message is too long.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(([_, _, _, _, t0, t1, t2, t3, n0, n1, n2, n3, ..], _)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        Self::checked(u32::from_be_bytes([*t0, *t1, *t2, *t3]), u32::from_be_bytes([*n0, *n1, *n2, *n3]))
    }

    fn checked(tag: u32, len: u32) -> Result<Option<Self>, Malformed> {
        let fits = usize::try_from(len).ok().filter(|len| *len <= MAX_MESSAGE);
        fits.map(|len| Some(Self { tag, len })).ok_or(Malformed::Long(len))
    }

    /// A message for the client that is `peer` here.
    #[must_use]
    pub fn frame(peer: u32, tag: u32, body: &[u8]) -> alloc::vec::Vec<u8> {
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        [&peer.to_be_bytes()[..], &tag.to_be_bytes(), &len.to_be_bytes(), &[0; 4], body].concat()
    }
}
