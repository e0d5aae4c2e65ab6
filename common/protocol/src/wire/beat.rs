//! A heartbeat: two readings of clocks, on a lane of its own.
//!
//! A node says what its clock shows, and the launcher's clock as it must be now, judged by the last beat from there. The
//! launcher repeats the node's reading and adds its own. Either side learns by it that the other one lives; the node, until
//! when it may; the launcher, how far the clocks are apart.

use rlaunch_base::time::Span;

/// From beat to beat, where the lease is long enough for it.
const EVERY: Span = Span::from_secs(1);

/// Two clock readings, `CLOCK_BOOTTIME` in nanoseconds; 0: not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// The sender's clock.
    pub own: u64,
    /// The receiver's clock, as far as the sender knows it.
    pub echo: u64,
}

impl Beat {
    /// From one beat of a node to its next: several in a lease, some may be lost or late.
    #[must_use]
    pub fn every(lease: Span) -> Span {
        EVERY.min(Span::from_nanos(lease.nanos() / 4))
    }

    /// The body of its frame: both numbers, little endian.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        let [a, b, c, d, e, f, g, h] = self.own.to_le_bytes();
        let [i, j, k, l, m, n, o, p] = self.echo.to_le_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }

    /// From the body of a frame; `None` where it has another length.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (own, echo) = body.split_first_chunk::<8>()?;
        Some(Self { own: u64::from_le_bytes(*own), echo: u64::from_le_bytes(echo.try_into().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_numbers_survive_and_nothing_else_is_taken() {
        let beat = Beat { own: 0x0102_0304_0506_0708, echo: u64::MAX - 1 };
        assert_eq!(Beat::parse(&beat.to_bytes()), Some(beat));
        for len in [0, 8, 15, 17] {
            assert_eq!(Beat::parse(&[1; 32][..len]), None, "{len} bytes");
        }
    }
}
