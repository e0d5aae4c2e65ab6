//! A guardian's last words: what it could not end, as the last frame on a remote edge.
//!
//! The guardian allocates nothing, so the body has a fixed layout and length. It travels on the control lane under a stream
//! number that no stream has.

use crate::wire::frame::{Flags, HEADER, Header, Lane, parse_header};
use crate::wire::to_root::{Leftover, NAMED};
use alloc::vec::Vec;

/// The stream number in the header of such a frame.
pub const LAST_STREAM: u32 = u32::MAX;
/// Length of its body.
pub const LAST: usize = HEAD + NAMED * ENTRY;

const MAGIC: u32 = 0x6e6c_7267;
const HEAD: usize = 16;
const ENTRY: usize = 4 + 16 + 40;

/// The count of a guardian.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Last {
    /// How many processes still exist.
    pub left: u32,
    /// Whether it ended them because the lease was not renewed in time.
    pub expired: bool,
    /// The first of them.
    pub named: Vec<Leftover>,
}

impl Last {
    /// From the body of a frame: magic u32, left u32, count u32, expired u32, then 16 entries of pid u32, name 16 and wait
    /// channel 40 bytes, NUL-padded.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let word = |at: &[u8]| Some(u32::from_le_bytes(*at.first_chunk::<4>()?));
        let (head, entries) = body.split_at_checked(HEAD)?;
        let [magic, left, count, expired] = head.as_chunks::<4>().0 else { return None };
        if body.len() != LAST || u32::from_le_bytes(*magic) != MAGIC {
            return None;
        }
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?.min(NAMED);
        let entry = |entry: &[u8; ENTRY]| {
            let (pid, names) = entry.split_at(4);
            let (comm, wchan) = names.split_at(16);
            Leftover::padded(word(pid).unwrap_or(0), comm, wchan)
        };
        let named = entries.as_chunks().0.iter().take(count).map(entry).collect();
        Some(Self { left: u32::from_le_bytes(*left), expired: u32::from_le_bytes(*expired) != 0, named })
    }

    /// The last words at the very end of a stream that was cut off inside another frame, because the agent was killed while
    /// it wrote.
    #[must_use]
    pub fn at_the_end_of(stream: &[u8]) -> Option<Self> {
        let (_, body) = stream.split_at_checked(stream.len().checked_sub(LAST)?)?;
        let (_, head) = stream.split_at_checked(stream.len().checked_sub(LAST.saturating_add(HEADER))?)?;
        let header = parse_header(head.first_chunk()?).ok()?;
        let fits = usize::try_from(header.len) == Ok(LAST) && header.is_last_words();
        if fits { Self::parse(body) } else { None }
    }
}

impl Header {
    /// Whether the body is a guardian's last words, and no message.
    #[must_use]
    pub fn is_last_words(&self) -> bool {
        self.lane == Lane::Control && self.flags == Flags::NONE && self.stream == LAST_STREAM
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;
    use rlaunch_base::id::NodeId;

    fn body() -> Vec<u8> {
        let mut body = [MAGIC, 3, 1, 1, 4711].iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        body.extend_from_slice(b"stuck\0\0\0\0\0\0\0\0\0\0\0io_schedule");
        body.resize(LAST, 0);
        body
    }

    fn last() -> Last {
        Last {
            left: 3,
            expired: true,
            named: vec![Leftover { pid: 4711, comm: "stuck".into(), wchan: "io_schedule".into() }],
        }
    }

    #[test]
    fn reads_the_layout() {
        assert_eq!(Last::parse(&body()), Some(last()));
        assert_eq!(Last::parse(&body()[1..]), None);
        assert_eq!(Last::parse(&[0; LAST]), None);
    }

    #[test]
    fn is_found_behind_a_frame_that_was_cut_off() {
        let len = u32::try_from(LAST).unwrap();
        let head = Header { len, lane: Lane::Control, flags: Flags::NONE, node: NodeId::new(2), stream: LAST_STREAM };
        let stream = [b"half a frame", &head.to_bytes()[..], &body()].concat();
        assert_eq!(Last::at_the_end_of(&stream), Some(last()));
        assert_eq!(Last::at_the_end_of(&stream[..stream.len() - 1]), None);
        assert_eq!(Last::at_the_end_of(b""), None);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let _any = (Last::parse(&bytes), Last::at_the_end_of(&bytes));
        }
    }
}
