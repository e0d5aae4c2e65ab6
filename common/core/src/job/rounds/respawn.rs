//! From the wish for another process of a rank to its start.
//!
//! A number names one process for ever, so the news of the one before has to be here first: its end is. Its agent has the new one wait
//! until the old one is reaped.

use super::Rounds;
use crate::id::{NodeId, ProcId, Rank};
use crate::job::procs::End;
use crate::job::{Cx, JobAction, Parts};
use crate::restart::{RestartEvent, RoundNote};
use crate::status::Status;
use crate::wire::capped::Capped;
use crate::wire::round::RoundDown;
use crate::wire::to_node::ToNode;
use crate::wire::to_root::Started;
use alloc::vec::Vec;

/// What its end is called if it could not be started.
const NOT_STARTED: Status = Status::Exited(127);

impl Rounds {
    /// A process of this rank is wanted.
    pub(super) fn wants(&mut self, initial: Rank) {
        self.wanted.insert(initial);
    }

    /// It is not, or not any more.
    pub(super) fn wants_no(&mut self, cx: &mut Cx<'_>, initial: Rank) {
        self.wanted.remove(&initial);
        if let Some((proc, node)) = self.coming.get(&initial) {
            self.unwanted.insert(*proc);
            let msg = RoundDown::End { ranks: Capped::chunks([initial]).pop().unwrap_or_default() };
            cx.act(JobAction::Send { node: *node, msg: ToNode::Round(msg) });
        }
    }

    /// Whether this process is one that was started again, and has not registered.
    fn is_coming(&self, initial: Rank, proc: ProcId) -> bool {
        self.coming.get(&initial).is_some_and(|(own, _)| *own == proc)
    }
}

impl Parts<'_> {
    /// Starts whoever is wanted, and can be: the process before has ended, and its host is there.
    pub(in crate::job) fn start_wanted(&mut self, cx: &mut Cx<'_>) {
        if self.rounds.wanted.is_empty() || self.rounds.off || self.generations.is_between() {
            return;
        }
        let place = |initial: &Rank| {
            let node = self.procs.node_of_rank(*initial)?;
            (self.procs.end_of(*initial) == End::Seen && !self.rounds.is_gone(node)).then_some((*initial, node))
        };
        let ready: Vec<(Rank, NodeId)> = self.rounds.wanted.iter().filter_map(place).collect();
        for (initial, node) in ready {
            self.rounds.wanted.remove(&initial);
            self.start_anew(cx, initial, node);
        }
    }

    /// Starts another process of a rank, on this node, that has the program and knows where ranks meet: the one before has ended, or
    /// is lost with its host.
    pub(in crate::job) fn start_anew(&mut self, cx: &mut Cx<'_>, initial: Rank, node: NodeId) {
        let Some(proc) = self.procs.anew(initial, node) else { return };
        self.mute.ranks_again(node);
        self.rounds.coming.insert(initial, (proc, node));
        self.bringup.start_one(cx, initial, node, proc);
    }

    /// Processes have started.
    pub(in crate::job) fn started_anew(&mut self, cx: &mut Cx<'_>, procs: &[Started]) {
        self.rounds.ranks_started(cx.now);
        if self.rounds.coming.is_empty() {
            return;
        }
        let generation = self.log.generation();
        for Started { proc, pid, .. } in procs {
            let initial = self.procs.rank_of(*proc);
            if self.rounds.is_coming(initial, *proc) {
                if let Some(round) = self.rounds.round() {
                    self.rounds.note(cx, generation, RoundNote::Again { round, initial, pid: *pid });
                }
                self.rounds.tell(cx.now, RestartEvent::Started { initial, proc: *proc });
            }
        }
        self.settle_rounds(cx);
    }

    /// Whether a process that cannot be started costs nobody anything: it was to come for one that has ended.
    pub(in crate::job) fn is_spare(&self, proc: ProcId) -> bool {
        self.rounds.is_coming(self.procs.rank_of(proc), proc)
    }

    /// It could not be started.
    pub(in crate::job) fn not_started(&mut self, cx: &mut Cx<'_>, proc: ProcId) {
        let initial = self.procs.rank_of(proc);
        self.rounds.coming.remove(&initial);
        let event = RestartEvent::Ended { initial, proc, status: NOT_STARTED, at: cx.now };
        self.rounds.tell(cx.now, event);
        self.settle_rounds(cx);
    }
}
