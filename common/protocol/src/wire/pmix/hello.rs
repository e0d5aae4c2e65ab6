//! The first message of a client, in which it names itself.

use super::{HEADER, Header, Malformed};
use alloc::vec::Vec;

/// Longest hello.
const LONGEST: usize = 64 << 10;
/// Buffers whose values stand without their kinds, and those with them.
const PLAIN: u8 = 1;
const DESCRIBED: u8 = 2;

/// The first message of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// Kind of client: 0 is a process that was started with the variables of a rank.
    pub role: u8,
    /// Its namespace.
    pub nspace: &'a [u8],
    /// Its rank there.
    pub rank: u32,
    /// The version of its library.
    pub version: &'a [u8],
    /// Its buffers have the kinds of values.
    pub is_described: bool,
}

impl<'a> Hello<'a> {
    /// How it begins: the index of a peer that has none. No message of PMI-1 begins so.
    pub const BEGINNING: [u8; 4] = [0xff; 4];

    /// Reads it, and the number of its bytes; `None`: it is not complete.
    ///
    /// # Errors
    /// The bytes are no hello.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [_, _, _, _, _, _, _, _, n0, n1, n2, n3, ..] = *header;
        // The header of this message alone is in the order of the host.
        let len = u32::from_le_bytes([n0, n1, n2, n3]);
        let len = Header::checked(0, len)?.map(|header| header.len).filter(|len| *len <= LONGEST);
        let len = len.ok_or(Malformed::Long(u32::from_le_bytes([n0, n1, n2, n3])))?;
        let Some(body) = rest.get(..len) else { return Ok(None) };
        Ok(Some((Self::body(body)?, HEADER.saturating_add(len))))
    }

    fn body(body: &'a [u8]) -> Result<Self, Malformed> {
        let (_security, rest) = text(body)?;
        let (credential, rest) = word(rest)?;
        let credential = usize::try_from(credential).map_err(|_| Malformed::Short)?;
        let (role, rest) = rest.get(credential..).and_then(<[u8]>::split_first).ok_or(Malformed::Short)?;
        let (nspace, rest) = text(rest)?;
        let (rank, rest) = word(rest)?;
        let (version, rest) = text(rest)?;
        let (_codec, rest) = text(rest)?;
        let is_described = match rest.first() {
            Some(&PLAIN) => false,
            Some(&DESCRIBED) => true,
            Some(other) => return Err(Malformed::Kind(u16::from(*other))),
            None => return Err(Malformed::Short),
        };
        // The names of its data store, and facts about its process, follow. Both are of no use here.
        Ok(Self { role: *role, nspace, rank, version, is_described })
    }

    /// The answer: all is well, and the number that the client has here.
    #[must_use]
    pub fn answer(peer: u32) -> Vec<u8> {
        [0_u32.to_be_bytes(), peer.to_be_bytes()].concat()
    }
}

fn text(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let end = bytes.iter().position(|b| *b == 0).ok_or(Malformed::Short)?;
    let (text, rest) = bytes.split_at_checked(end).ok_or(Malformed::Short)?;
    Ok((text, rest.get(1..).unwrap_or_default()))
}

fn word(bytes: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let (word, rest) = bytes.split_first_chunk().ok_or(Malformed::Short)?;
    Ok((u32::from_be_bytes(*word), rest))
}
