//! The frame header of every edge: 16 bytes, little endian.
//!
//! `len u32 | lane u8 | flags u8 | zero u16 | node u32 | stream u32`. It is checked before anything is allocated.

use rlaunch_base::id::NodeId;

/// Length of a header in bytes.
pub const HEADER: usize = 16;
/// Longest body on the control and store lanes.
pub const MAX_CONTROL: u32 = 1 << 20;
/// Longest body on the data lane.
pub const MAX_DATA: u32 = 64 << 10;

/// Which kind of traffic a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Messages to and from the machines; always first.
    Control,
    /// Straight to the store machine.
    Store,
    /// Raw bytes of a stream.
    Data,
    /// An absolute offset up to which the other side may send data. With a stream and without a body it means that this stream's line was
    /// broken (MORE: the rest of the line waits already).
    Credit,
    /// Heartbeat.
    Beat,
}

impl Lane {
    const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Control),
            2 => Some(Self::Store),
            3 => Some(Self::Data),
            4 => Some(Self::Credit),
            5 => Some(Self::Beat),
            _ => None,
        }
    }

    const fn raw(self) -> u8 {
        match self {
            Self::Control => 1,
            Self::Store => 2,
            Self::Data => 3,
            Self::Credit => 4,
            Self::Beat => 5,
        }
    }

    /// The longest body that a frame of this lane may have.
    #[must_use]
    pub const fn max(self) -> u32 {
        match self {
            Self::Control | Self::Store => MAX_CONTROL,
            Self::Data => MAX_DATA,
            Self::Credit | Self::Beat => 16,
        }
    }
}

/// Flags of a data frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(u8);

impl Flags {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// The line continues in the next frame of this stream: no other bytes may be written between.
    pub const MORE: Self = Self(1);
    /// The last frame of this stream.
    pub const END: Self = Self(2);
    const KNOWN: u8 = 3;

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A parsed header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes that follow.
    pub len: u32,
    /// Kind of traffic.
    pub lane: Lane,
    /// Flags, on the data and credit lanes.
    pub flags: Flags,
    /// The node that the frame comes from or goes to.
    pub node: NodeId,
    /// The stream, on the data lane, and on the credit lane where one is meant; else 0.
    pub stream: u32,
}

/// Why a header is refused. The edge is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// No such lane.
    #[error("frame of unknown lane {0}")]
    Lane(u8),
    /// Flags or the reserved field that this version does not know.
    #[error("frame with unknown flags")]
    Flags,
    /// Longer than its lane allows.
    #[error("frame of {len} bytes where {max} are allowed")]
    TooLong {
        /// Declared length.
        len: u32,
        /// The lane's limit.
        max: u32,
    },
}

impl Header {
    /// The 16 bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER] {
        let [l0, l1, l2, l3] = self.len.to_le_bytes();
        let [n0, n1, n2, n3] = self.node.get().to_le_bytes();
        let [s0, s1, s2, s3] = self.stream.to_le_bytes();
        [l0, l1, l2, l3, self.lane.raw(), self.flags.0, 0, 0, n0, n1, n2, n3, s0, s1, s2, s3]
    }
}

/// Parses and checks a header.
///
/// # Errors
/// An unknown lane or flag, or a length above the lane's limit.
pub const fn parse_header(bytes: &[u8; HEADER]) -> Result<Header, FrameError> {
    let [l0, l1, l2, l3, lane, flags, z0, z1, n0, n1, n2, n3, s0, s1, s2, s3] = *bytes;
    let Some(lane) = Lane::from_raw(lane) else { return Err(FrameError::Lane(lane)) };
    if flags & !Flags::KNOWN != 0 || z0 != 0 || z1 != 0 {
        return Err(FrameError::Flags);
    }
    let len = u32::from_le_bytes([l0, l1, l2, l3]);
    if len > lane.max() {
        return Err(FrameError::TooLong { len, max: lane.max() });
    }
    let node = NodeId::new(u32::from_le_bytes([n0, n1, n2, n3]));
    Ok(Header { len, lane, flags: Flags(flags), node, stream: u32::from_le_bytes([s0, s1, s2, s3]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip() {
        let h = Header { len: 65536, lane: Lane::Data, flags: Flags::MORE, node: NodeId::ROOT, stream: 9 };
        assert_eq!(parse_header(&h.to_bytes()), Ok(h));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        let good =
            Header { len: 16, lane: Lane::Credit, flags: Flags::NONE, node: NodeId::new(0), stream: 0 }.to_bytes();
        let with = |at: usize, v: u8| {
            let mut b = good;
            b[at] = v;
            parse_header(&b)
        };
        assert_eq!(with(4, 0), Err(FrameError::Lane(0)));
        assert_eq!(with(5, 4), Err(FrameError::Flags));
        assert_eq!(with(7, 1), Err(FrameError::Flags));
        assert_eq!(with(0, 17), Err(FrameError::TooLong { len: 17, max: 16 }));
    }
}
