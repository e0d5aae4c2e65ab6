//! Ranks of this host that other ranks wait for. After [`AWAITED`] this node sends them to the launcher, once for each round.

use super::{Rounds, State, round_reports};
use crate::node::Cx;
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::Rank;
use rlaunch_base::machine::earliest;
use rlaunch_base::time::Mono;
use rlaunch_protocol::wire::round::{BATCH, RoundUp};
use rlaunch_restart::AWAITED;

/// Whether ranks of this host are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Awaited {
    /// No rank is waited for.
    #[default]
    None,
    /// Ranks are waited for, and the launcher is notified at this time.
    Until(Mono),
    /// The launcher was notified.
    Notified,
}

impl Rounds {
    /// Starts or stops the wait. To be called after each change of the state or of a member.
    pub(super) fn observe_awaited(&mut self, now: Mono) {
        self.awaited = match (self.waits_for_ranks(), self.awaited) {
            (false, _) => Awaited::None,
            (true, Awaited::None) => Awaited::Until(now + AWAITED),
            (true, awaited) => awaited,
        };
    }

    fn waits_for_ranks(&self) -> bool {
        let any_registered = || self.members.values().any(|member| member.session.is_some() && member.part.is_in());
        match self.state {
            State::Gathering => self.sent_terms.is_none() && any_registered() && self.awaited_ranks().next().is_some(),
            State::Interrupting => true,
            State::Running { .. } | State::Reserving | State::Waiting | State::Over | State::Off => false,
        }
    }

    fn awaited_ranks(&self) -> impl Iterator<Item = Rank> {
        let is_awaited = |member: &&super::LocalMember| match self.state {
            State::Gathering => member.is_missing(self.call),
            State::Interrupting => member.part.is_awaited(),
            State::Running { .. } | State::Reserving | State::Waiting | State::Over | State::Off => false,
        };
        self.members.values().filter(is_awaited).map(super::LocalMember::initial)
    }

    pub(super) fn notify_awaited(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.awaited, Awaited::Until(at) if at <= cx.now) {
            return;
        }
        self.awaited = Awaited::Notified;
        let ranks: Vec<Rank> = self.awaited_ranks().collect();
        // The first ranks are enough to find the cause.
        if let Some(ranks) = Capped::<_, BATCH>::chunks(ranks).into_iter().next() {
            round_reports::report_to_launcher(cx, RoundUp::Awaited { ranks });
        }
    }

    pub(super) fn awaited_deadline(&self, other: Option<Mono>) -> Option<Mono> {
        match self.awaited {
            Awaited::Until(at) => earliest(Some(at), other),
            Awaited::None | Awaited::Notified => other,
        }
    }
}
