//! Events of the job's other sub-machines that concern rounds.

use super::{Rounds, Up, failing, host_of};
use crate::events::{Cause, Lost};
use crate::id::{NodeId, ProcId, Rank};
use crate::job::ending::Ranks;
use crate::job::notice::Failure;
use crate::job::{Parts, Step};
use crate::os_bytes::OsBytes;
use crate::rank_set::RankSet;
use crate::restart::detect::UNKILLABLE;
use crate::restart::fault::FaultKind;
use crate::restart::{RestartEvent, RoundNote};
use crate::time::Mono;
use crate::wire::round::{Enrolled, RoundUp};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Rounds {
    /// A rank that has left has not ended in its time: it is ended with the others.
    fn left_too_late(&mut self, now: Mono) -> Option<Failure> {
        self.now.leaving.take_if(|(_, until)| *until <= now).map(|(failure, _)| failure)
    }
}

impl Parts {
    /// A node speaks of rounds. Messages about another generation, or about another host's ranks, are dropped.
    pub(in crate::job) fn round(&mut self, step: &mut Step<'_>, node: NodeId, up: RoundUp) {
        if matches!(up, RoundUp::Joined { .. } | RoundUp::Refused { .. } | RoundUp::Awaited { .. }) {
            self.rounds.is_heard();
        }
        if self.generations.is_between() || self.rounds.now.off {
            return;
        }
        let current = |ranks: Vec<Enrolled>| {
            let own = |one: &Enrolled| self.procs.is_current(step.facts, node, one.initial, one.proc);
            ranks.into_iter().filter(own).collect::<Vec<_>>()
        };
        let event = match up {
            RoundUp::Joined { ranks, .. } if self.rounds.spec.apps.len() > 1 => {
                if !current(ranks.into_vec()).is_empty() {
                    self.rounds.refuse(&mut step.cx(), node);
                }
                return;
            }
            RoundUp::Joined { call, ranks, terms } => {
                let ranks = current(ranks.into_vec());
                if ranks.is_empty() {
                    return;
                }
                self.rounds.begin(step.now, step.facts, &self.bringup);
                ranks.iter().for_each(|one| self.rounds.comes(one.initial, one.proc));
                RestartEvent::Joined { node, call, ranks, terms }
            }
            RoundUp::Fault { round, fault, at } => {
                if step.facts.placement().node_of(fault.initial) != Some(node) {
                    return;
                }
                if fault.kind == FaultKind::Warned {
                    // Nothing is wrong with it yet.
                    let ranks = [fault.initial].into_iter().collect();
                    self.rounds.tell(step.now, RestartEvent::Warned { ranks });
                    return self.settle_rounds(step);
                }
                let seen = self.procs.when(node, at).min(step.now);
                self.rounds.saw(fault.initial, at, seen);
                let event = RestartEvent::Fault { round, fault, at: seen };
                self.rounds.left_early(&event);
                event
            }
            RoundUp::Ready { round, ranks, last, port, pinged } => {
                let ranks = current(ranks.into_vec());
                RestartEvent::Ready { node, round, ranks, last, port, pinged }
            }
            RoundUp::Returned { round, ranks: _ } => RestartEvent::Returned { node, round },
            RoundUp::Alone { round, initial } => RestartEvent::Alone { node, round, initial },
            RoundUp::Awaited { ranks } => {
                let own = |rank: &Rank| step.facts.placement().node_of(*rank) == Some(node);
                let ranks: RankSet = ranks.into_vec().into_iter().filter(own).collect();
                if self.rounds.now.machine.is_none() {
                    return self.rounds.log_unregistered(&mut step.cx(), ranks);
                }
                RestartEvent::Awaited { node, ranks }
            }
            RoundUp::Stuck { proc } => return self.is_stuck(step, node, proc),
            RoundUp::Refused { text } => return self.rounds.refused(&mut step.cx(), text),
        };
        self.rounds.tell(step.now, event);
        self.settle_rounds(step);
    }

    /// A process cannot be ended. It is not waited for any more, but nothing takes its place before it has ended.
    fn is_stuck(&mut self, step: &mut Step<'_>, node: NodeId, proc: ProcId) {
        let Some(initial) = step.facts.placement().rank_of(proc) else { return };
        if !self.procs.is_stuck(&mut step.cx(), node, proc) {
            return;
        }
        let on = host_of(step.facts, initial);
        let on = if on.is_empty() { String::new() } else { format!(" on {on}") };
        let text = format!(
            "the process of initial rank {initial}{on} still exists {UNKILLABLE} after SIGKILL: the kernel cannot end it now (a device or a file system does not answer), and the others go on without it"
        );
        self.rounds.note(&mut step.cx(), RoundNote::Policy { text: OsBytes::from(text) });
        self.settle_rounds(step);
    }

    /// A process has ended.
    pub(in crate::job) fn exited(&mut self, step: &mut Step<'_>, proc: ProcId, failure: Failure) {
        self.rounds.ends_unheard(step.now, &failure);
        let theirs = self.rounds.ended(step.now, proc, &failure);
        self.settle_rounds(step);
        match self.rounds.now.leaving.map(|(left, _)| left) {
            Some(left) if left.rank == failure.rank => {
                self.rounds.now.leaving = None;
                let left = if failure.asked { left } else { Failure { status: failing(failure.status), ..failure } };
                self.verdict.refined(left);
                self.failed(step, left);
            }
            // There is no round for them to go on with: that they end comes of it.
            Some(_) if !theirs && !failure.status.is_success() => self.verdict.failed(failure),
            Some(_) => {}
            None if !theirs && !failure.status.is_success() => self.failed(step, failure),
            None => {}
        }
    }

    /// Whether the loss of a part of ours on a host is a matter of rounds.
    pub(in crate::job) fn loses(&mut self, step: &mut Step<'_>, node: NodeId, lost: Lost) -> bool {
        let between = self.lease.between(step.now, node, lost);
        let theirs = self.rounds.loses(&mut step.cx(), node, lost, between);
        if theirs {
            step.facts.hosts.lose(node, lost, between, false);
        }
        self.settle_rounds(step);
        theirs
    }

    /// A node has told what is left, or will not.
    pub(in crate::job) fn node_over(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.lease.node_over(node);
        self.mute.node_over(node);
        let without = self.rounds.node_over(&mut step.cx(), node);
        if without {
            step.facts.hosts.end(node);
            // Its ranks are placed together, including ranks whose ends were not seen.
            self.procs.absent(&mut step.cx(), node);
        }
        self.settle_rounds(step);
        if self.lost_is_over(step, node) || without {
            self.start_wanted(step);
        } else {
            self.procs.node_over(&mut step.cx(), node);
        }
    }

    /// Does what rounds ask for. A loss that rounds cannot absorb has its ordinary consequence.
    pub(in crate::job) fn settle_rounds(&mut self, step: &mut Step<'_>) {
        let up = self.rounds.settle(&mut step.cx());
        self.log.in_round(self.rounds.round());
        self.rounds.say_unheard(&mut step.cx(), false);
        self.gives_up(step, up);
        if let Some(failure) = self.rounds.left_too_late(step.now) {
            self.failed(step, failure);
        }
        self.start_wanted(step);
        self.rounds.dismiss_late(&mut step.cx(), self.procs.open());
    }

    /// No process is left.
    pub(in crate::job) fn nobody_left(&mut self, step: &mut Step<'_>) {
        let up = self.rounds.nobody_left(&mut step.cx());
        self.gives_up(step, up);
    }

    fn gives_up(&mut self, step: &mut Step<'_>, up: Option<Up>) {
        match up {
            Some(Up::Rank(failure)) => {
                self.verdict.decided(failure);
                self.failed(step, failure);
            }
            Some(Up::Left(failure)) => {
                self.verdict.decided(failure);
                self.rounds.now.leaving = Some((failure, step.now + self.generations.grace()));
            }
            Some(Up::Host(node, lost, between)) => {
                self.verdict.lost(node, lost, between);
                if self.follows_loss(step, node, lost, between) {
                    return;
                }
                self.ending.end(&mut step.cx(), Cause::Lost { node, lost }, Ranks::Run);
            }
            None => {}
        }
    }
}
