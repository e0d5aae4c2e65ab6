//! What the job's other parts have to do with rounds.

use super::{Up, failing};
use crate::events::{Cause, Lost};
use crate::id::{NodeId, ProcId, Rank};
use crate::job::ending::Ranks;
use crate::job::notice::Failure;
use crate::job::{Cx, Parts};
use crate::os_bytes::OsBytes;
use crate::rank_set::RankSet;
use crate::restart::detect::UNKILLABLE;
use crate::restart::fault::FaultKind;
use crate::restart::{RestartEvent, RoundNote};
use crate::wire::round::{Enrolled, RoundUp};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Parts<'_> {
    /// A node speaks of rounds. What is of another generation, or of another host's ranks, is nobody's business.
    pub(in crate::job) fn round(&mut self, cx: &mut Cx<'_>, node: NodeId, up: RoundUp) {
        if matches!(up, RoundUp::Joined { .. } | RoundUp::Refused { .. } | RoundUp::Awaited { .. }) {
            self.rounds.is_heard();
        }
        if self.generations.is_between() || self.rounds.off {
            return;
        }
        let current = |ranks: Vec<Enrolled>| {
            let own = |one: &Enrolled| self.procs.is_current(node, one.initial, one.proc);
            ranks.into_iter().filter(own).collect::<Vec<_>>()
        };
        let event = match up {
            RoundUp::Joined { ranks, .. } if self.rounds.spec.apps.len() > 1 => {
                if !current(ranks.into_vec()).is_empty() {
                    self.rounds.refuse(cx, node);
                }
                return;
            }
            RoundUp::Joined { call, ranks, terms } => {
                let ranks = current(ranks.into_vec());
                if ranks.is_empty() {
                    return;
                }
                self.rounds.begin(cx.now, self.bringup);
                ranks.iter().for_each(|one| self.rounds.comes(one.initial, one.proc));
                RestartEvent::Joined { node, call, ranks, terms }
            }
            RoundUp::Fault { round, fault, at } => {
                if self.procs.node_of_rank(fault.initial) != Some(node) {
                    return;
                }
                if fault.kind == FaultKind::Warned {
                    // Nothing is wrong with it yet.
                    let ranks = [fault.initial].into_iter().collect();
                    self.rounds.tell(cx.now, RestartEvent::Warned { ranks });
                    return self.settle_rounds(cx);
                }
                let seen = self.procs.when(node, at).min(cx.now);
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
                let own = |rank: &Rank| self.procs.node_of_rank(*rank) == Some(node);
                let ranks: RankSet = ranks.into_vec().into_iter().filter(own).collect();
                if self.rounds.machine.is_none() {
                    return self.rounds.log_unregistered(cx, self.log.generation(), ranks);
                }
                RestartEvent::Awaited { node, ranks }
            }
            RoundUp::Stuck { proc } => return self.is_stuck(cx, node, proc),
            RoundUp::Refused { text } => return self.rounds.refused(cx, self.log.generation(), text),
        };
        self.rounds.tell(cx.now, event);
        self.settle_rounds(cx);
    }

    /// A process cannot be ended. It is not waited for any more, but nothing takes its place before it has ended.
    fn is_stuck(&mut self, cx: &mut Cx<'_>, node: NodeId, proc: ProcId) {
        let initial = self.procs.rank_of(proc);
        if !self.procs.is_stuck(cx, node, proc) {
            return;
        }
        let on = self.rounds.host(initial);
        let on = if on.is_empty() { String::new() } else { format!(" on {on}") };
        let text = format!(
            "the process of initial rank {initial}{on} still exists {UNKILLABLE} after SIGKILL: the kernel cannot end it now (a device or a file system does not answer), and the others go on without it"
        );
        self.rounds.note(cx, self.log.generation(), RoundNote::Policy { text: OsBytes::from(text) });
        self.settle_rounds(cx);
    }

    /// A process has ended.
    pub(in crate::job) fn exited(&mut self, cx: &mut Cx<'_>, proc: ProcId, failure: Failure) {
        self.rounds.ends_unheard(cx.now, &failure);
        let theirs = self.rounds.ended(cx.now, proc, &failure);
        self.settle_rounds(cx);
        match self.rounds.leaving.map(|(left, _)| left) {
            Some(left) if left.rank == failure.rank => {
                self.rounds.leaving = None;
                let left = if failure.asked { left } else { Failure { status: failing(failure.status), ..failure } };
                self.verdict.refined(left);
                self.failed(cx, left);
            }
            // There is no round for them to go on with: that they end comes of it.
            Some(_) if !theirs && !failure.status.is_success() => self.verdict.failed(failure),
            Some(_) => {}
            None if !theirs && !failure.status.is_success() => self.failed(cx, failure),
            None => {}
        }
    }

    /// One that has left has not ended in its time: it is ended with the others.
    fn leaves_too_late(&mut self, cx: &mut Cx<'_>) {
        if let Some((failure, _)) = self.rounds.leaving.take_if(|(_, until)| *until <= cx.now) {
            self.failed(cx, failure);
        }
    }

    /// Whether the loss of a part of ours on a host is a matter of rounds.
    pub(in crate::job) fn loses(&mut self, cx: &mut Cx<'_>, node: NodeId, lost: Lost) -> bool {
        let between = self.lease.between(cx.now, node, lost);
        let theirs = self.rounds.loses(cx, node, lost, between);
        if theirs {
            self.left.loses(node, false);
        }
        self.settle_rounds(cx);
        theirs
    }

    /// A node has told what is left, or will not.
    pub(in crate::job) fn node_over(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.lease.node_over(node);
        self.mute.node_over(node);
        let without = self.rounds.node_over(cx.now, node);
        if without {
            self.rounds.over.insert(node);
            // Its ranks are placed together, those too whose ends nobody has seen.
            self.procs.absent(cx, node);
        }
        self.settle_rounds(cx);
        if self.lost_is_over(cx, node) || without {
            self.start_wanted(cx);
        } else {
            self.procs.node_over(cx, node);
        }
    }

    /// Does what rounds ask for. What they do not make good is what it would have been without them.
    pub(in crate::job) fn settle_rounds(&mut self, cx: &mut Cx<'_>) {
        let up = self.rounds.settle(cx, self.log.generation());
        self.log.in_round(self.rounds.round());
        self.says_unheard(cx, false);
        self.gives_up(cx, up);
        self.leaves_too_late(cx);
        self.start_wanted(cx);
        self.dismiss_late(cx);
    }

    /// Says that what was asked of rounds was asked in vain, if it was.
    pub(in crate::job) fn says_unheard(&mut self, cx: &mut Cx<'_>, over: bool) {
        if let Some(note) = self.rounds.say_unheard(cx.now, over) {
            self.rounds.note(cx, self.log.generation(), note);
        }
    }

    /// No process is left.
    pub(in crate::job) fn nobody_left(&mut self, cx: &mut Cx<'_>) {
        let up = self.rounds.nobody_left(cx, self.log.generation());
        self.gives_up(cx, up);
    }

    fn gives_up(&mut self, cx: &mut Cx<'_>, up: Option<Up>) {
        match up {
            Some(Up::Rank(failure)) => {
                self.verdict.decided(failure);
                self.failed(cx, failure);
            }
            Some(Up::Left(failure)) => {
                self.verdict.decided(failure);
                self.rounds.leaving = Some((failure, cx.now + self.generations.grace()));
            }
            Some(Up::Host(node, lost, between)) => {
                self.verdict.lost(node, lost, between);
                if self.follows_loss(cx, node, lost, between) {
                    return;
                }
                self.ending.end(cx, Cause::Lost { node, lost }, Ranks::Run);
            }
            None => {}
        }
    }
}
