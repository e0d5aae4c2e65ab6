//! Processes that are started again for ranks whose own have ended (`--respawn`).
//!
//! No round waits for new processes, and their failures cost no round before they have registered. After each process that exits at once
//! the pause is longer ([`rlaunch_base::backoff`]). In the end the rank is given up, and the others continue without it. Where others make progress
//! all the same it may be bad luck, so that it is only waited for, and later: each of its ends and returns costs all of them a round.

use super::membership::Member;
use super::remark::Remark;
use super::{Restart, RestartAction};
use alloc::vec::Vec;
use rlaunch_base::backoff::{self, ALIKE, QUICK, Streak};
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::machine::earliest;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::rank_fault::Fault;

/// Number of further processes that exited soon, while others made progress, after which the next one still starts at once.
const LUCKLESS: u32 = 5;

/// A process that is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// To be requested at this time.
    Pausing(Mono),
    /// Requested, and not known to run.
    Asked,
    /// Runs, and has to register until then.
    Starting(ProcId, Mono),
    /// Has not registered in time, and is being ended.
    Overdue(ProcId),
}

impl Restart {
    /// A process that ended is started again, if that was asked for and it has not failed too often.
    pub(super) fn respawn(&mut self, now: Mono, initial: Rank) {
        let Some(member) = self.membership.members.get_mut(initial.index()) else { return };
        let came = member.joined_at.take();
        let soon = member.entered_at.take().or(came).is_none_or(|entered| now.since(entered) <= QUICK);
        let has_progressed = core::mem::take(&mut member.has_progressed);
        member.failed_starts = (!has_progressed && soon).then(|| Streak::with(member.failed_starts, now));
        member.short_lived = if soon { member.short_lived.saturating_add(1) } else { 0 };
        self.queue_next_process(now, initial);
    }

    fn queue_next_process(&mut self, now: Mono, initial: Rank) {
        if !self.setup.respawn {
            return;
        }
        let member = self.membership.members.get(initial.index());
        let Some(&Member { faults, failed_starts, short_lived: short, .. }) = member else { return };
        if let Some(most) = self.limits.max_rank_faults.filter(|most| faults > *most) {
            let limit = self.fault_limit(most);
            return self.remark(Remark::NotRestarted { initial, faults, limit });
        }
        let tries = failed_starts.map_or(0, |streak| streak.failures);
        if failed_starts.is_some_and(|streak| streak.is_enough(ALIKE, self.setup.give_up_after, now)) {
            return self.remark(Remark::StartsFailed { initial, tries });
        }
        // From 1 s.
        let unlucky = short.checked_sub(LUCKLESS + 1).map_or(0, |more| more + 3);
        let pause = backoff::pause(tries.max(unlucky));
        if pause == Span::ZERO && !self.is_idle() {
            return self.request_process(initial);
        }
        self.comings.insert(initial, Start::Pausing(now + pause));
        if short > LUCKLESS {
            self.remark(Remark::StartDelayed { initial, exits: short, pause });
        }
    }

    fn request_process(&mut self, initial: Rank) {
        self.comings.insert(initial, Start::Asked);
        self.act(RestartAction::Respawn { initial });
    }

    /// Records that the process runs.
    pub(super) fn started(&mut self, now: Mono, initial: Rank, proc: ProcId) {
        if let Some(coming @ Start::Asked) = self.comings.get_mut(&initial) {
            *coming = Start::Starting(proc, now + self.setup.respawn_timeout);
        }
    }

    /// Records the host on which it will run, if any.
    pub(super) fn placed(&mut self, initial: Rank, node: Option<NodeId>) {
        match node {
            Some(node) => self.membership.move_to_node(initial, node),
            None => drop(self.comings.remove(&initial)),
        }
    }

    /// Records that it has registered.
    pub(super) fn on_joined(&mut self, initial: Rank) {
        self.comings.remove(&initial);
    }

    /// A process that is not the one of its rank has ended; if it was to come, another may.
    pub(super) fn on_failed_start(&mut self, now: Mono, initial: Rank, proc: ProcId, status: Status) {
        let last = self.membership.members.get(initial.index()).and_then(|member| member.proc);
        match self.comings.get(&initial) {
            // The process before is not meant: its end may be reported late.
            Some(Start::Asked) if last.is_none_or(|last| last < proc) => {}
            Some(Start::Starting(own, _) | Start::Overdue(own)) if *own == proc => {}
            Some(Start::Asked | Start::Starting(..) | Start::Overdue(_) | Start::Pausing(_)) | None => return,
        }
        self.comings.remove(&initial);
        // A process that could not be started was reported before. After the work most have found that they are too late.
        if status != Status::Lost && !self.is_idle() {
            self.remark(Remark::ExitedEarly { initial, status });
        }
        if let Some(member) = self.membership.members.get_mut(initial.index()) {
            member.failed_starts = Some(Streak::with(member.failed_starts, now));
        }
        self.queue_next_process(now, initial);
    }

    /// Handles the loss of a registered process before the round that it was to join.
    pub(super) fn on_lost_before_round(&mut self, fault: &Fault) {
        self.faults.come_not(&[fault.initial], true);
        self.remark(Remark::FailedEarly { initial: fault.initial, kind: fault.kind });
    }

    /// Moves processes that were to come on a lost host to other hosts.
    pub(super) fn move_to_other_hosts(&mut self, node: NodeId) {
        let here =
            |initial: &Rank| self.membership.members.get(initial.index()).is_some_and(|member| member.node == node);
        let pausing = |coming: &Start| match coming {
            Start::Pausing(_) => true,
            Start::Asked | Start::Starting(..) | Start::Overdue(_) => false,
        };
        let all = self.comings.iter().filter(|(initial, coming)| here(initial) && !pausing(coming));
        let all: Vec<Rank> = all.map(|(initial, _)| *initial).collect();
        all.into_iter().for_each(|initial| self.request_process(initial));
    }

    /// Dismisses processes that come now: they find nothing to do.
    pub(super) fn cancel_starts(&mut self) {
        for (initial, coming) in core::mem::take(&mut self.comings) {
            match coming {
                Start::Asked | Start::Starting(..) | Start::Overdue(_) => self.act(RestartAction::End { initial }),
                Start::Pausing(_) => {}
            }
        }
    }

    pub(super) fn startup_time(&mut self, now: Mono) {
        let due = |coming: &Start| self.deadline(coming).is_some_and(|at| at <= now);
        let due: Vec<(Rank, Start)> = self
            .comings
            .iter()
            .filter(|(_, coming)| due(coming))
            .map(|(initial, coming)| (*initial, *coming))
            .collect();
        for (initial, coming) in due {
            match coming {
                Start::Pausing(_) => self.request_process(initial),
                Start::Starting(proc, _) => {
                    self.comings.insert(initial, Start::Overdue(proc));
                    let within = self.setup.respawn_timeout;
                    self.remark(Remark::RegisteredLate { initial, within });
                    self.act(RestartAction::End { initial });
                }
                Start::Asked | Start::Overdue(_) => {}
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.comings.values().map(|coming| self.deadline(coming)).fold(None, earliest)
    }

    /// Gives processes that were started the whole time to register for a call that begins now.
    pub(super) fn extend_starts(&mut self, now: Mono) {
        let until = now + self.setup.respawn_timeout;
        for coming in self.comings.values_mut() {
            match coming {
                Start::Starting(_, at) => *at = until,
                Start::Asked | Start::Overdue(_) | Start::Pausing(_) => {}
            }
        }
    }

    /// After the work no process is requested until there is another call. A process that has not registered is not ended either: its node
    /// may have answered that the call is done.
    const fn deadline(&self, coming: &Start) -> Option<Mono> {
        match coming {
            Start::Pausing(_) | Start::Starting(..) if self.is_idle() => None,
            Start::Pausing(at) | Start::Starting(_, at) => Some(*at),
            Start::Asked | Start::Overdue(_) => None,
        }
    }
}
