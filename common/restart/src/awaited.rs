//! Ranks that the other ranks wait for. After 10 s these ranks are named, once for each round.
//!
//! A host reports the ranks of its own that it waits for. If a host has reported none, all of its awaited ranks are named.

use super::membership::{Host, MemberState};
use super::{Phase, Restart, RoundNote};
use alloc::collections::BTreeMap;
use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::machine::earliest;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::{Mono, Span};
use serde::Serialize;

/// Time that ranks wait for another rank before that rank is named.
pub const AWAITED: Span = Span::from_secs(10);
/// Time that the launcher then waits for the reports of its hosts.
const REPORTS: Span = Span::from_secs(1);

/// The step that awaited ranks have not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Step {
    /// Register.
    #[serde(rename = "registration")]
    Register,
    /// Leave the function, in which a planned round interrupts each rank at its next ping.
    #[serde(rename = "ping")]
    Yield,
    /// Leave the function after an interrupt.
    #[serde(rename = "exit")]
    Leave,
}

/// The ranks that are waited for now.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    due: Option<Mono>,
    is_logged: bool,
    /// Ranks reported by hosts.
    reports: BTreeMap<NodeId, RankSet>,
}

impl Awaited {
    /// Starts the wait, unless it has started.
    pub(super) fn begin(&mut self, now: Mono) {
        if self.due.is_none() && !self.is_logged {
            self.due = Some(now + AWAITED + REPORTS);
        }
    }

    /// Ends the wait.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.due
    }
}

impl Restart {
    /// Records the ranks that a host has waited for.
    pub(super) fn on_awaited(&mut self, now: Mono, node: NodeId, ranks: RankSet) {
        let waits = match self.phase {
            Phase::Gathering | Phase::Draining { .. } => true,
            Phase::Running | Phase::Waiting(_) | Phase::CallEnded(_) => false,
        };
        if waits && !self.awaited.is_logged {
            self.awaited.reports.insert(node, ranks);
            self.awaited.due = earliest(self.awaited.due, Some(now + REPORTS));
        }
    }

    /// Names the ranks that are waited for, if the time has come.
    pub(super) fn log_awaited(&mut self, now: Mono) {
        if self.awaited.due.take_if(|due| *due <= now).is_none() {
            return;
        }
        let (step, is_awaited): (Step, fn(&Host) -> bool) = match self.phase {
            Phase::Gathering => (Step::Register, |_| true),
            Phase::Draining { urgent: false } => (Step::Yield, |host| host.interrupt_sent && !host.answered),
            Phase::Draining { urgent: true } => (Step::Leave, |host| host.interrupt_sent && !host.answered),
            Phase::Running | Phase::Waiting(_) | Phase::CallEnded(_) => return,
        };
        let mut ranks = RankSet::new();
        for (node, host) in &self.membership.hosts {
            // The ranks of a suspected host are waited for until its lease expires. That is reported separately.
            if host.lost || host.suspected || !is_awaited(host) {
                continue;
            }
            let report = self.awaited.reports.get(node);
            let named = |rank: &Rank| report.is_none_or(|report| report.contains(*rank));
            host.ranks
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
            Step::Register => self.is_known(initial) && self.membership.state_of(initial) != Some(MemberState::Joining),
            Step::Yield | Step::Leave => self.membership.state_of(initial) == Some(MemberState::Active),
        }
    }
}
