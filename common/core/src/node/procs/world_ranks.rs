//! The ranks of worlds besides the first one: their start, and their end while the job continues.

use super::{Proc, Procs, State};
use crate::node::{Cx, NodeAction};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, ProcId, WorldId};
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_protocol::wire::to_node::{Delta, WorldStart};
use rlaunch_protocol::wire::to_root::{Exited, ToRoot};

impl Procs {
    /// A world besides the first one begins: its ranks follow.
    pub(in crate::node) fn on_world(&mut self, cx: &mut Cx<'_>, world: WorldStart) {
        self.last = false;
        self.worlds.begin(world);
        self.report(cx);
    }

    /// Takes the ranks of a world besides the first one.
    pub(in crate::node) fn on_world_queue(&mut self, cx: &mut Cx<'_>, deltas: Vec<Delta>, last: bool) {
        let is_spawned = |delta: &Delta| self.worlds.is_spawned(delta.world_rank.world);
        let after: Vec<_> = deltas.iter().filter(|delta| is_spawned(delta)).map(|delta| (delta.proc, None)).collect();
        self.on_queue(cx, deltas, last, &after);
    }

    /// Ends the ranks of a world. Ranks that were not started never will be.
    pub(in crate::node) fn on_end_world(&mut self, cx: &mut Cx<'_>, world: WorldId, sig: Signal, grace: Span) {
        self.worlds.end(world, sig, cx.now, cx.now + grace);
        let (table, queue) = (&mut self.table, &mut self.queue);
        queue.retain(|delta| {
            let is_dropped = delta.world_rank.world == world;
            if is_dropped && let Some(proc) = table.get_mut(&delta.proc) {
                proc.state = State::Failed;
                cx.act(NodeAction::ToRoot(ToRoot::NotStarted { proc: delta.proc }));
            }
            !is_dropped
        });
        let is_running = |entry: &Proc| entry.world == world && matches!(entry.state, State::Running);
        for (&proc, _) in self.table.iter().filter(|(_, entry)| is_running(entry)) {
            cx.act(NodeAction::Signal { proc, sig });
        }
        // A session can be found by its rank as long as the rank is a zombie.
        self.kill_sessions(cx, world, |state| matches!(state, State::Ended));
        self.report(cx);
    }

    /// All ranks of a world have ended. If a rank has asked for the world, processes in the sessions of its ranks are killed, and its
    /// programs are dropped: they are returned.
    pub(in crate::node) fn on_close_world(&mut self, cx: &mut Cx<'_>, world: WorldId) -> BTreeSet<AppIndex> {
        let is_spawned = self.worlds.is_spawned(world);
        if is_spawned || self.worlds.ended_from(world).is_some() {
            self.kill_sessions(cx, world, |state| matches!(state, State::Ended));
        }
        let own = self.table.iter().filter(|(_, entry)| entry.world == world);
        let (over, programs): (Vec<ProcId>, BTreeSet<AppIndex>) = own.map(|(id, entry)| (*id, entry.app)).unzip();
        let programs = if is_spawned { programs } else { BTreeSet::new() };
        self.worlds.close(world);
        let (closed, held) = core::mem::take(&mut self.held).into_iter().partition(|proc| self.is_of(*proc, world));
        self.held = held;
        let closed: BTreeSet<ProcId> = closed;
        closed.into_iter().for_each(|proc| self.reap(cx, proc));
        over.into_iter().for_each(|proc| self.forget(proc));
        self.apps.retain(|app, _| !programs.contains(app));
        cx.act(NodeAction::CloseWorld { world });
        programs
    }

    /// Drops a process of a closed world of which nothing more can come: worlds begin and end as long as the job runs.
    pub(super) fn forget(&mut self, proc: ProcId) {
        let is_finished = |entry: &Proc| match entry.state {
            State::Reaped => !entry.out_open && !entry.err_open,
            State::Failed => true,
            State::Queued | State::Spawning(_) | State::Running | State::Ended => false,
        };
        let is_closed = |world| world > WorldId::new(0) && self.worlds.rendezvous(world).is_none();
        if self.table.get(&proc).is_some_and(|entry| is_finished(entry) && is_closed(entry.world)) {
            self.table.remove(&proc);
            self.after.remove(&proc);
        }
    }

    /// The number of processes that are known.
    #[cfg(test)]
    pub(in crate::node) fn known(&self) -> [usize; 3] {
        [self.table.len(), self.after.len(), self.apps.len()]
    }

    /// Kills the ranks of a world whose time to end has expired, at once. The search for remaining processes takes its time.
    pub(super) fn kill_world(&self, cx: &mut Cx<'_>, world: WorldId) {
        self.signal_each(cx, Signal::KILL, |proc| self.is_of(proc, world));
        self.kill_sessions(cx, world, |state| matches!(state, State::Running | State::Ended));
    }

    fn kill_sessions(&self, cx: &mut Cx<'_>, world: WorldId, is_one: impl Fn(&State) -> bool) {
        let of = |(proc, entry): (&ProcId, &Proc)| (entry.world == world && is_one(&entry.state)).then_some(*proc);
        let procs: Vec<ProcId> = self.table.iter().filter_map(of).collect();
        if !procs.is_empty() {
            cx.act(NodeAction::KillSessions { procs });
        }
    }

    fn is_of(&self, proc: ProcId, world: WorldId) -> bool {
        self.table.get(&proc).is_some_and(|entry| entry.world == world)
    }

    /// Whether a rank that could be reaped waits for the end of its world: an order to end that ends its session too.
    pub(super) fn is_held_back(&mut self, proc: ProcId) -> bool {
        let world = self.table.get(&proc).map(|entry| entry.world);
        let is_held = self.ending.is_none() && world.is_some_and(|world| self.worlds.rendezvous(world).is_some());
        if is_held {
            self.held.insert(proc);
        }
        is_held
    }

    /// Whether a rank has ended after its world was ordered to end.
    pub(super) fn is_ended_with_world(&self, exited: &Exited) -> bool {
        let world = self.table.get(&exited.proc).map(|proc| proc.world);
        let began = world.and_then(|world| self.worlds.ended_from(world));
        began.is_some_and(|began| exited.at > began.host_time())
    }
}
