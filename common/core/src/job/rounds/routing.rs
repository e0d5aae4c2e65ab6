//! Events of the job's other sub-machines that concern rounds.

use super::{Phase, Rounds, failing, host_of};
use crate::job::Cx;
use crate::job::bringup::Bringup;
use crate::job::notice::RankExit;
use crate::job::proc_table::Procs;
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Mono;
use rlaunch_protocol::rank_fault::FaultKind;
use rlaunch_protocol::wire::round::{Enrolled, RoundUp};
use rlaunch_restart::remark::Remark;
use rlaunch_restart::{RestartEvent, RoundNote};

/// Effect of a message about rounds on the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::job) enum RoundEffect {
    /// Nothing.
    Nothing,
    /// The machine of rounds may have decided something.
    News,
    /// SIGKILL does not end this process.
    Stuck(ProcId),
}

impl Rounds {
    /// A rank that has left has not ended in its time: it is ended with the others.
    pub(in crate::job) fn left_too_late(&mut self, now: Mono) -> Option<RankExit> {
        self.now.leaving.take_if(|(_, until)| *until <= now).map(|(failure, _)| failure)
    }

    /// A rank has left of its own will: no other round follows, and its process has until then to exit by itself.
    pub(in crate::job) const fn await_exit(&mut self, failure: RankExit, until: Mono) {
        self.now.leaving = Some((failure, until));
    }

    /// Whether a rank has left, and its exit is awaited.
    pub(in crate::job) const fn awaits_exit(&self) -> bool {
        self.now.leaving.is_some()
    }

    /// The failure of the rank that had left, if it is this one that has exited. A failure with which it has exited by itself counts.
    pub(in crate::job) fn take_left(&mut self, exit: &RankExit) -> Option<RankExit> {
        let (left, _) = self.now.leaving.take_if(|(left, _)| left.rank == exit.rank)?;
        Some(if exit.asked { left } else { RankExit { status: failing(exit.status), ..*exit } })
    }

    /// Whether the job ends, or all ranks do: no round follows.
    pub(in crate::job) const fn is_off(&self) -> bool {
        matches!(self.now.phase, Phase::Off(_))
    }

    /// A node speaks of rounds. Messages about another host's ranks are dropped.
    pub(in crate::job) fn on_message(
        &mut self,
        cx: &mut Cx<'_>,
        (procs, bringup): (&Procs, &Bringup),
        node: NodeId,
        up: RoundUp,
    ) -> RoundEffect {
        let current = |ranks: Vec<Enrolled>| {
            let own = |one: &Enrolled| procs.is_current(cx.facts, node, one.initial, one.proc);
            ranks.into_iter().filter(own).collect::<Vec<_>>()
        };
        let event = match up {
            RoundUp::Joined { ranks, .. } if self.spec.apps.len() > 1 => {
                if !current(ranks.into_vec()).is_empty() {
                    self.refuse(cx, node);
                }
                return RoundEffect::Nothing;
            }
            RoundUp::Joined { call, ranks, terms } => {
                let ranks = current(ranks.into_vec());
                if ranks.is_empty() {
                    return RoundEffect::Nothing;
                }
                self.begin(cx.now, cx.facts, bringup);
                ranks.iter().for_each(|one| self.on_joined(one.initial, one.proc));
                RestartEvent::Joined { node, call, ranks, terms }
            }
            RoundUp::Fault { fault, .. } if cx.facts.placement().node_of(fault.initial) != Some(node) => {
                return RoundEffect::Nothing;
            }
            RoundUp::Fault { fault, .. } if fault.kind == FaultKind::Warned => {
                // Nothing is wrong with it yet.
                RestartEvent::Warned { ranks: [fault.initial].into_iter().collect() }
            }
            RoundUp::Fault { round, fault, at } => {
                let seen = procs.when(node, at).min(cx.now);
                self.record_fault_time(fault.initial, at, seen);
                let event = RestartEvent::Fault { round, fault, at: seen };
                self.left_early(&event);
                event
            }
            RoundUp::Ready { round, ranks, last, port, pinged } => {
                let ranks = current(ranks.into_vec());
                RestartEvent::Ready { node, round, ranks, last, port, pinged }
            }
            RoundUp::Returned { round, ranks: _ } => RestartEvent::Returned { node, round },
            RoundUp::Alone { round, initial } => RestartEvent::Alone { node, round, initial },
            RoundUp::Awaited { ranks } => {
                let own = |rank: &Rank| cx.facts.placement().node_of(*rank) == Some(node);
                let ranks: RankSet = ranks.into_vec().into_iter().filter(own).collect();
                if self.now.phase.machine().is_none() {
                    self.log_unregistered(cx, ranks);
                    return RoundEffect::Nothing;
                }
                RestartEvent::Awaited { node, ranks }
            }
            RoundUp::Stuck { proc } => return RoundEffect::Stuck(proc),
            RoundUp::Refused { text } => {
                self.refused(cx, text);
                return RoundEffect::Nothing;
            }
        };
        self.notify(cx.now, event);
        RoundEffect::News
    }

    /// Reports a process that cannot be ended. It is not waited for any more, but nothing takes its place before it has ended.
    pub(in crate::job) fn note_stuck(&mut self, cx: &mut Cx<'_>, initial: Rank) {
        let host = host_of(cx.facts, initial);
        self.note(cx, RoundNote::Remark(Remark::Stuck { initial, host }));
    }
}
