//! Ranks that run, that could not be started, and that are started in place of others.

use super::super::JobAction;
use super::super::orders::is_together;
use super::{Parts, Step};
use crate::events::Tried;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_protocol::wire::to_root::{SpawnError, SpawnStep, Started};

impl Parts {
    /// Ranks run.
    pub(super) fn started(&mut self, step: &mut Step<'_>, node: NodeId, procs: &[Started]) {
        self.procs.started(&mut step.cx(), node, procs);
        for started in procs {
            self.output.started(&mut step.cx(), started.proc);
            self.ended_ranks.on_started(&mut step.cx(), started.proc, started.pid);
            self.worlds.on_started(&mut step.cx(), started.proc);
        }
        if self.rounds.started(&mut step.cx(), procs) {
            self.apply_round_decisions(step);
        }
    }

    /// A rank could not be started.
    pub(super) fn spawn_failed(&mut self, step: &mut Step<'_>, node: NodeId, proc: ProcId, error: SpawnError) {
        let is_respawn = self.rounds.is_respawn(step.facts, proc);
        let tried = match is_respawn {
            true => Tried::Again { several_hosts: !is_together(step.facts.placement()) },
            false => Tried::First,
        };
        let lacks_gpus = error.step == SpawnStep::Gpus;
        let is_spawned = self.worlds.on_not_started(&mut step.cx(), (node, proc), &error);
        let matters = !is_respawn && !is_spawned && !self.generations.is_between();
        self.procs.spawn_failed(&mut step.cx(), node, proc, error, tried, matters);
        self.ended_ranks.on_not_started(&mut step.cx(), proc, node);
        self.on_process_over(step, proc);
        if is_respawn {
            self.not_started(step, proc, lacks_gpus);
        }
    }

    /// A process has ended, or will not be started.
    pub(super) fn on_process_over(&mut self, step: &mut Step<'_>, proc: ProcId) {
        let placement = step.facts.placement();
        let Some(rank) = placement.rank_of(proc) else { return };
        // A rank of a lost host had ended before.
        if !placement.node_of(rank).is_some_and(|node| self.worlds.is_without(node)) {
            self.worlds.on_rank_over(&mut step.cx(), rank);
        }
    }

    /// Starts queued processes that can start.
    pub(super) fn start_queued(&mut self, step: &mut Step<'_>) {
        if self.generations.is_between() {
            return;
        }
        let [here, elsewhere] = self.rounds.take_startable(step.facts, &self.procs);
        if !here.is_empty() {
            self.start_anew(step, here);
        }
        self.start_elsewhere(step, elsewhere);
    }

    /// Starts ranks of lost hosts where there is room.
    pub(super) fn start_elsewhere(&mut self, step: &mut Step<'_>, homeless: Vec<(Rank, NodeId)>) {
        if homeless.is_empty() {
            return;
        }
        let room = self.rounds.find_room(&step.cx(), homeless);
        step.facts.place(Arc::new(room.placement));
        self.start_anew(step, room.placed);
        if !room.nowhere.is_empty() {
            let lost = self.bringup.folded(&room.lost);
            self.rounds.note_no_room(&mut step.cx(), &room.nowhere, &lost);
        }
    }

    /// Starts another process of each of these ranks, on hosts that have the program and know where ranks meet: the one before has
    /// ended, or is lost with its host.
    pub(super) fn start_anew(&mut self, step: &mut Step<'_>, ranks: Vec<(Rank, NodeId)>) {
        let mut started = Vec::new();
        for (initial, node) in ranks {
            let Some(proc) = self.procs.anew(step.facts, initial) else { continue };
            step.facts.add_process(proc, initial);
            self.kill_watchdog.on_ranks_cleared(node);
            self.rounds.on_asked(initial, node, proc);
            started.push((initial, node, proc));
        }
        step.act(JobAction::Place(Arc::clone(step.facts.placement())));
        for (initial, node, proc) in started {
            self.bringup.start_one(&mut step.cx(), initial, node, proc);
        }
    }

    /// Another process of a rank could not be started.
    pub(super) fn not_started(&mut self, step: &mut Step<'_>, proc: ProcId, lacks_gpus: bool) {
        let Some(initial) = step.facts.placement().rank_of(proc) else { return };
        let is_over = self.generations.is_between();
        let elsewhere = self.rounds.on_not_started(&mut step.cx(), &self.procs, (initial, proc), (lacks_gpus, is_over));
        self.start_elsewhere(step, elsewhere.into_iter().collect());
        self.apply_round_decisions(step);
    }
}
