//! The last message of a guardian on the lifeline: a fixed number of bytes, so that nothing is parsed or allocated.

use crate::children::Named;

/// Most processes that a record names.
const NAMES: usize = 16;
const HEAD: usize = 16;
const ENTRY: usize = 4 + 16 + 40;
const MAGIC: u32 = 0x6e6c_7267;

/// Length of a record in bytes.
pub(super) const RECORD: usize = HEAD + NAMES * ENTRY;

/// The processes that still existed after the guardian had ended the containment.
#[derive(Clone, Debug)]
pub struct Record {
    /// How many processes.
    pub left: u32,
    /// The first of them.
    pub named: Vec<Named>,
}

/// The message of a guardian.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    /// How many processes still exist.
    pub(super) left: u32,
    /// Whether it ended them because the lease was not renewed.
    pub(super) expired: bool,
    /// The first of them.
    pub(super) named: &'a [Named],
}

/// Length of the frame that carries a record: a header of 16 bytes goes before it.
pub(super) const FRAME: usize = 16 + RECORD;

/// A record as the last frame of a remote edge: the control lane (1), and a stream number that no stream has. The layout is
/// that of `rlaunch_protocol::wire::frame`; a test of the launcher, which knows both, compares them.
pub(super) fn frame(node: u32, record: &[u8; RECORD]) -> [u8; FRAME] {
    let mut out = [0; FRAME];
    out[..4].copy_from_slice(&u32::try_from(RECORD).unwrap_or(0).to_le_bytes());
    out[4] = 1;
    out[8..12].copy_from_slice(&node.to_le_bytes());
    out[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    out[16..].copy_from_slice(record);
    out
}

/// A record as a remote guardian writes it, for tests of its reader.
#[must_use]
pub fn example_frame(node: u32, left: u32, expired: bool, named: &[Named]) -> Vec<u8> {
    let mut record = [0; RECORD];
    write(Words { left, expired, named }, &mut record);
    frame(node, &record).to_vec()
}

/// The bytes of a record, in a buffer of the caller's.
pub(super) fn write(words: Words<'_>, out: &mut [u8; RECORD]) {
    let Words { left, expired, named } = words;
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        out[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&MAGIC.to_le_bytes());
    put(&left.to_le_bytes());
    put(&u32::try_from(named.len().min(NAMES)).unwrap_or(0).to_le_bytes());
    put(&u32::from(expired).to_le_bytes());
    for name in named.iter().take(NAMES) {
        put(&name.pid.to_le_bytes());
        put(&name.comm);
        put(&name.wchan);
    }
}

impl Record {
    /// Reads the bytes that a guardian wrote; `None` where they are none.
    pub(super) fn parse(bytes: &[u8; RECORD]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?));
        if word(0)? != MAGIC {
            return None;
        }
        let count = usize::try_from(word(8)?).ok()?.min(NAMES);
        let named = (0..count).filter_map(|i| {
            let entry = bytes.get(HEAD + i * ENTRY..HEAD + (i + 1) * ENTRY)?;
            Some(Named {
                pid: i32::from_le_bytes(*entry.first_chunk::<4>()?),
                comm: *entry.get(4..)?.first_chunk::<16>()?,
                wchan: *entry.get(20..)?.first_chunk::<40>()?,
            })
        });
        Some(Self { left: word(4)?, named: named.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let named = [Named { pid: 7, comm: *b"stuck\0\0\0\0\0\0\0\0\0\0\0", wchan: [b'w'; 40] }];
        let mut bytes = [0; RECORD];
        write(Words { left: 3, expired: false, named: &named }, &mut bytes);
        let record = Record::parse(&bytes).unwrap();
        assert_eq!((record.left, record.named[0].pid, record.named[0].comm), (3, 7, named[0].comm));
        assert!(Record::parse(&[0; RECORD]).is_none());
    }
}
