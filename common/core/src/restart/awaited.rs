//! Ranks that the others wait for: after 10 s they are named, once for each round.
//!
//! A host reports the ranks that it waits for itself. Of a host that has reported none, all ranks are named that are still waited for.

use super::crew::{Host, Part};
use super::{Phase, Restart, RoundNote};
use crate::id::{NodeId, Rank};
use crate::machine::earliest;
use crate::rank_set::RankSet;
use crate::time::{Mono, Span};
use alloc::collections::BTreeMap;

/// How long ranks wait for another rank before that is named.
pub const AWAITED: Span = Span::from_secs(10);
/// How long the launcher then waits for the reports of its hosts.
const REPORTS: Span = Span::from_secs(1);

/// What ranks are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// They have not registered.
    Register,
    /// They have not left their function, in which a planned round interrupts them at their next ping.
    Yield,
    /// They have not left their function, although they were interrupted.
    Leave,
}

/// The ranks that are waited for now.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    due: Option<Mono>,
    is_logged: bool,
    /// What hosts have reported.
    reports: BTreeMap<NodeId, RankSet>,
}

impl Awaited {
    /// Ranks begin to wait for others, unless they did already.
    pub(super) fn begin(&mut self, now: Mono) {
        if self.due.is_none() && !self.is_logged {
            self.due = Some(now + AWAITED + REPORTS);
        }
    }

    /// Nothing is waited for any more.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.due
    }
}

impl Restart {
    /// A host has waited for these ranks of its own.
    pub(super) fn on_awaited(&mut self, now: Mono, node: NodeId, ranks: RankSet) {
        let waits = match self.phase {
            Phase::Gathering | Phase::Draining { .. } => true,
            Phase::Running | Phase::Waiting(_) | Phase::Over(_) => false,
        };
        if waits && !self.awaited.is_logged {
            self.awaited.reports.insert(node, ranks);
            self.awaited.due = earliest(self.awaited.due, Some(now + REPORTS));
        }
    }

    /// Names the ranks that are waited for, if that is due.
    pub(super) fn log_awaited(&mut self, now: Mono) {
        if self.awaited.due.take_if(|due| *due <= now).is_none() {
            return;
        }
        let (step, is_awaited): (Step, fn(&Host) -> bool) = match self.phase {
            Phase::Gathering => (Step::Register, |_| true),
            Phase::Draining { urgent: false } => (Step::Yield, |host| host.asked && !host.answered),
            Phase::Draining { urgent: true } => (Step::Leave, |host| host.asked && !host.answered),
            Phase::Running | Phase::Waiting(_) | Phase::Over(_) => return,
        };
        let mut ranks = RankSet::new();
        for (node, host) in &self.crew.hosts {
            // What is left of a host that is not heard of is waited for until its lease expires, which is reported on its own.
            if host.lost || host.missed || !is_awaited(host) {
                continue;
            }
            let report = self.awaited.reports.get(node);
            let named = |rank: &Rank| report.is_none_or(|report| report.contains(*rank));
            host.crew
                .iter()
                .filter(|rank| self.is_waited_for(step, **rank) && named(rank))
                .for_each(|r| ranks.insert(*r));
        }
        if !ranks.is_empty() {
            self.awaited.is_logged = true;
            self.note(RoundNote::Awaited { round: self.round(), step, ranks });
        }
    }

    fn is_waited_for(&self, step: Step, initial: Rank) -> bool {
        match step {
            Step::Register => self.is_known(initial) && self.crew.part(initial) != Some(Part::Waiting),
            Step::Yield | Step::Leave => self.crew.part(initial) == Some(Part::In),
        }
    }
}
