//! Time in which the launcher was suspended: stopped, asleep, or not scheduled. No lease is renewed in it.
//!
//! The launcher looks at the clock at each event, and at least as often as nodes send heartbeats. If much more time has passed, and the
//! lease of a healthy node ended in it, the launcher caused the loss of that node.

use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::beat::Beat;

/// The begin and the end of a suspension.
#[derive(Clone, Copy, Debug)]
struct SuspendedFor {
    from: Mono,
    to: Mono,
}

/// The looks at the clock, and what was missed in between.
#[derive(Debug)]
pub(super) struct SuspendDetector {
    lease: Span,
    /// From beat to beat.
    every: Span,
    looked: Mono,
    last: Option<SuspendedFor>,
    /// By node, the time in which its lease ended.
    starved: Vec<Option<SuspendedFor>>,
}

impl SuspendDetector {
    pub(super) fn new(lease: Span, nodes: usize) -> Self {
        Self { lease, every: Beat::every(lease), looked: Mono::default(), last: None, starved: vec![None; nodes] }
    }

    /// Looks at the clock, before anything else is done with an event. `contacts`: by node, the time of its last message. `None`: the node
    /// has no lease.
    pub(super) fn observe_clock(&mut self, now: Mono, contacts: impl Iterator<Item = Option<Mono>> + Clone) {
        let from = core::mem::replace(&mut self.looked, now);
        // While any node has a lease, a look is due for every beat. A look that is late by as much again did not happen.
        if now.since(from) < self.every + self.every || contacts.clone().all(|contact| contact.is_none()) {
            return;
        }
        // A process that continues for a moment only is still suspended.
        let from = self.last.filter(|last| from <= last.to + self.every).map_or(from, |last| last.from);
        let gap = SuspendedFor { from, to: now };
        let (lease, every) = (self.lease, self.every);
        self.last = Some(gap);
        for (starved, contact) in self.starved.iter_mut().zip(contacts) {
            if contact.is_some_and(|contact| gap.ends(contact, lease, every)) {
                *starved = Some(gap);
            }
        }
    }

    /// A node that says something when we have long continued has not died of that.
    pub(super) fn beat(&mut self, node: NodeId, beat: Beat) {
        if let Some(starved) = self.starved.get_mut(node.index()) {
            *starved = starved.filter(|gap| beat.echo <= (gap.to + self.every).nanos());
        }
    }

    /// A host is reached again.
    pub(super) fn revive(&mut self, node: NodeId) {
        self.starved.iter_mut().skip(node.index()).take(1).for_each(|starved| *starved = None);
    }

    /// For how long the launcher was suspended when a node's lease ended.
    pub(super) fn was_suspended(&self, node: NodeId) -> Option<Span> {
        let gap = (*self.starved.get(node.index())?)?;
        Some(gap.to.since(gap.from))
    }

    /// The next look.
    pub(super) fn deadline(&self) -> Mono {
        self.looked + self.every
    }
}

impl SuspendedFor {
    /// Whether the lease of a node whose last message came at that time ended in the suspension.
    fn ends(self, last_contact: Mono, lease: Span, every: Span) -> bool {
        // A node that had long been silent is lost for a reason of its own. A node that has only just connected may be slow to send.
        let well = self.from <= last_contact + Span::from_nanos(lease.nanos() / 2);
        // Its last message came at most one beat before, and an answer that is sent now may come too late.
        well && last_contact.max(self.from - every) + lease <= self.to + every
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId::new(0);

    fn at(second: u64) -> Mono {
        Mono::from_nanos(second * 1_000_000_000)
    }

    fn observe_clock(still: &mut SuspendDetector, second: u64, contact: u64) {
        still.observe_clock(at(second), [Some(at(contact))].into_iter());
    }

    fn new() -> SuspendDetector {
        let mut still = SuspendDetector::new(Span::from_secs(30), 1);
        // No look is due before some node has a lease.
        still.observe_clock(at(1_000), [None].into_iter());
        still
    }

    #[test]
    fn short_wake_up_is_part_of_the_suspension() {
        let mut still = new();
        for second in [1_020, 1_021, 1_040] {
            observe_clock(&mut still, second, 1_000);
        }
        assert_eq!(still.was_suspended(NODE), Some(Span::from_secs(40)));
        let mut still = new();
        for second in [1_020, 1_021, 1_022, 1_040] {
            observe_clock(&mut still, second, 1_000);
        }
        assert_eq!(still.was_suspended(NODE), None, "it had time to say something");
    }

    #[test]
    fn a_node_that_had_long_been_silent_is_lost_for_a_reason_of_its_own() {
        let stood = |silent: u64| {
            let mut still = new();
            (1_000..=1_000 + silent).for_each(|second| observe_clock(&mut still, second, 1_000));
            observe_clock(&mut still, 1_060, 1_000);
            still.was_suspended(NODE)
        };
        assert_eq!(stood(15), Some(Span::from_secs(45)), "its first word may take as long");
        assert_eq!(stood(16), None);
    }

    #[test]
    fn beat_made_after_the_suspension_shows_that_the_node_lives() {
        let mut still = new();
        observe_clock(&mut still, 1_040, 1_000);
        let made = |still: &mut SuspendDetector, second| still.beat(NODE, Beat { own: 1, echo: at(second).nanos() });
        made(&mut still, 1_041);
        assert_eq!(still.was_suspended(NODE), Some(Span::from_secs(40)), "it may just have been killed");
        made(&mut still, 1_042);
        assert_eq!(still.was_suspended(NODE), None);
    }
}
