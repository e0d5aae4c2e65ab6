//! Restart options in a job whose program does not use the client: ranks that were to be held back work as all others, and a failed rank
//! is not started again. That is reported once: when a rank has ended and none has registered, or none has for a long time. A host
//! reports that its ranks have registered when all living ones have, so possibly directly after the end of one that has not: that report
//! is waited for.

use super::Rounds;
use crate::events::What;
use crate::job::Cx;
use crate::job::notice::RankExit;
use rlaunch_base::id::Rank;
use rlaunch_base::time::{Mono, Span};
use rlaunch_restart::RoundNote;
use rlaunch_restart::remark::{Remark, Unused};

/// A program that has not registered by then hardly will: importing takes seconds, from a busy file system perhaps tens of them.
const LONG: Span = Span::from_secs(60);
/// Within this a host has said who has registered there, if the rank that has ended was the last that it waited for.
const SOON: Span = Span::from_secs(1);

/// Whether any rank has registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RestartUnused {
    /// Nothing has started.
    Idle,
    /// No rank has registered; at this time that is reported.
    Until(Mono),
    /// No rank had registered when this rank ended; at this time that is reported.
    Ended(Rank, Mono),
    /// A rank has registered, or the report was made.
    Over,
}

impl Rounds {
    /// Ranks have started.
    pub(super) fn ranks_started(&mut self, now: Mono) {
        if self.restart_unused == RestartUnused::Idle {
            let is_asked = !self.spec.rounds.asked.is_empty() && self.spec.apps.len() == 1;
            self.restart_unused = if is_asked { RestartUnused::Until(now + LONG) } else { RestartUnused::Over };
        }
    }

    /// A rank has ended. How those end that are ended says nothing.
    pub(in crate::job) fn on_unused_exit(&mut self, now: Mono, exit: &RankExit) {
        if matches!(self.restart_unused, RestartUnused::Until(_)) && !exit.asked {
            self.restart_unused = RestartUnused::Ended(exit.rank, now + SOON);
        }
    }

    /// Records that a rank has registered, though it may be too late for rounds.
    pub(in crate::job) fn on_registered(&mut self) {
        self.restart_unused = RestartUnused::Over;
    }

    /// When it will be worth a word.
    pub(super) fn unused_deadline(&self) -> Option<Mono> {
        match self.restart_unused {
            RestartUnused::Until(at) if !self.is_off() => Some(at),
            RestartUnused::Ended(_, at) => Some(at),
            RestartUnused::Until(_) | RestartUnused::Idle | RestartUnused::Over => None,
        }
    }

    /// The fact that the options of rounds were not used, if it is known by now, or if the job has ended (`over`). Reported once.
    pub(in crate::job) fn unused_report(&mut self, cx: &Cx<'_>, over: bool) -> Option<What> {
        let now = cx.now;
        let when = match self.restart_unused {
            RestartUnused::Ended(rank, at) if over || at <= now => Unused::Exited(rank),
            RestartUnused::Until(at) if at <= now && !self.is_off() => Unused::Within(LONG),
            RestartUnused::Ended(..) | RestartUnused::Until(_) | RestartUnused::Idle | RestartUnused::Over => {
                return None;
            }
        };
        self.restart_unused = RestartUnused::Over;
        let ranks = cx.facts.placement().world_size();
        let options = self.spec.rounds.asked.clone();
        Some(self.record(cx.facts, RoundNote::Remark(Remark::OptionsUnused { options, when, ranks })))
    }
}
