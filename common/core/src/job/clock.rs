//! Times of other hosts as ours, with what is not known about them.

use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::{HostTime, Mono, Span, WallNs};

/// The two clocks of a job's records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) start: Mono,
    pub(super) wall: WallNs,
}

impl Clock {
    /// Since the job's start.
    pub(super) const fn since(self, at: Mono) -> Span {
        at.since(self.start)
    }
}

/// Two clocks run apart by one part in this many, at most: NTP slews each of them by 500 millionths (adjtimex(2)). Leases
/// allow for more, because ranks live by them; here that would only blur what is known.
const APART: u64 = 1000;

/// By how much two clocks may have run apart in so many nanoseconds.
pub(super) const fn apart(nanos: u64) -> Span {
    Span::from_nanos(nanos.div_ceil(APART))
}

/// How a host's clock differs from ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Offset {
    /// Its reading at the moment at which ours was `ours`.
    pub(super) host_clock: u64,
    /// Ours.
    pub(super) launcher_clock: u64,
    /// By how much this may be wrong, either way.
    pub(super) error: Span,
}

/// The hosts' clocks. That of the launcher's own host is the launcher's.
#[derive(Debug)]
pub(super) struct Offsets(Vec<Offset>);

impl Offsets {
    pub(super) fn new(nodes: usize) -> Self {
        Self(vec![Offset::default(); nodes])
    }

    pub(super) fn set(&mut self, node: NodeId, offset: Offset) {
        if let Some(known) = self.0.get_mut(node.index()) {
            *known = offset;
        }
    }

    /// A moment of a host on our clock, as well as it is known.
    pub(super) fn ours(&self, node: NodeId, at: HostTime) -> Mono {
        let Offset { host_clock, launcher_clock, .. } = self.0.get(node.index()).copied().unwrap_or_default();
        Mono::from_nanos(if at.0 >= host_clock {
            launcher_clock.saturating_add(at.0 - host_clock)
        } else {
            launcher_clock.saturating_sub(host_clock - at.0)
        })
    }

    /// A moment of a host on our clock: it lies surely between these two.
    pub(super) fn between(&self, node: NodeId, at: HostTime) -> (Mono, Mono) {
        let offset = self.0.get(node.index()).copied().unwrap_or_default();
        // That of our own host is ours.
        let apart = if offset == Offset::default() { Span::ZERO } else { apart(offset.host_clock.abs_diff(at.0)) };
        let (ours, error) = (self.ours(node, at), offset.error + apart);
        (ours - error, ours + error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_booted_later_has_a_smaller_clock() {
        let mut offsets = Offsets::new(2);
        let node = NodeId::new(1);
        offsets.set(node, Offset { host_clock: 50, launcher_clock: 1_000, error: Span::from_nanos(7) });
        let ours = |at| offsets.ours(node, HostTime(at)).nanos();
        assert_eq!((ours(50), ours(60), ours(40)), (1_000, 1_010, 990));
        let between = |at| offsets.between(node, HostTime(at));
        assert_eq!((between(55).0.nanos(), between(65).1.nanos()), (997, 1_023));
        assert_eq!(between(2_000_050).1.nanos(), 2_001_000 + 7 + 2_000, "the longer ago, the less is known");
        assert_eq!(offsets.between(NodeId::new(0), HostTime(60)).1.nanos(), 60);
        assert_eq!(offsets.ours(NodeId::new(0), HostTime(60)).nanos(), 60, "the launcher's own host");
    }
}
