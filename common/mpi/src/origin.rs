//! The origin of a world that an MPI program has started: the words of its library for the new ranks.

use super::pmi1::Keys;
use super::pmix::Parent;
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;

const PMI_1: u8 = 1;
const PMIX: u8 = 2;

/// The origin of a world. On its way to the hosts of the world it is bytes that only MPI machines read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// A program of PMI-1: keys that the new ranks find in their space.
    Keys(Keys),
    /// A program of PMIx: the rank that has started the new ones.
    Parent(Parent),
}

impl Origin {
    /// Its bytes; never empty.
    #[must_use]
    pub(super) fn write(&self) -> OsBytes {
        let mut bytes = Vec::new();
        match self {
            Self::Keys(keys) => {
                bytes.push(PMI_1);
                for part in keys.iter().flat_map(|(key, value)| [key, &b"\0"[..], value, b"\n"]) {
                    bytes.extend_from_slice(part);
                }
            }
            Self::Parent(Parent { world, rank }) => {
                bytes.push(PMIX);
                bytes.extend(rank.to_be_bytes());
                bytes.extend_from_slice(world);
            }
        }
        OsBytes::new(bytes)
    }

    /// From its bytes; `None`: an MPI program has not started the world.
    #[must_use]
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (of, lines) = bytes.split_first()?;
        if *of == PMIX {
            let (rank, world) = lines.split_first_chunk()?;
            return Some(Self::Parent(Parent { world: world.to_vec(), rank: u32::from_be_bytes(*rank) }));
        }
        if *of != PMI_1 {
            return None;
        }
        let pair = |line: &[u8]| {
            let at = line.iter().position(|b| *b == 0)?;
            let (key, value) = line.split_at_checked(at)?;
            Some((key.to_vec(), value.get(1..)?.to_vec()))
        };
        Some(Self::Keys(lines.split(|b| *b == b'\n').filter_map(pair).collect()))
    }
}
