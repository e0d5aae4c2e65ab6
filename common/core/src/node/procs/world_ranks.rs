//! The ranks of worlds besides the first one: their start, and their end while the job continues.

use super::{Procs, State};
use crate::id::WorldId;
use crate::node::{Cx, NodeAction};
use crate::signal::Signal;
use crate::time::Span;
use crate::wire::to_node::{Delta, WorldStart};
use crate::wire::to_root::{Exited, ToRoot};
use alloc::vec::Vec;

impl Procs {
    /// A world besides the first one begins: its ranks follow.
    pub(in crate::node) fn on_world(&mut self, cx: &mut Cx<'_>, world: WorldStart) {
        self.last = false;
        self.worlds.begin(world);
        self.report(cx);
    }

    /// Takes the ranks of a world besides the first one.
    pub(in crate::node) fn on_world_queue(&mut self, cx: &mut Cx<'_>, deltas: Vec<Delta>, last: bool) {
        let is_spawned = |delta: &Delta| self.worlds.is_spawned(delta.seat.world);
        let after: Vec<_> = deltas.iter().filter(|delta| is_spawned(delta)).map(|delta| (delta.proc, None)).collect();
        self.on_queue(cx, deltas, last, &after);
    }

    /// Ends the ranks of a world. Ranks that were not started never will be.
    pub(in crate::node) fn on_end_world(&mut self, cx: &mut Cx<'_>, world: WorldId, sig: Signal, grace: Span) {
        self.worlds.end(world, sig, cx.now, cx.now + grace);
        let (table, queue) = (&mut self.table, &mut self.queue);
        queue.retain(|delta| {
            let is_dropped = delta.seat.world == world;
            if is_dropped && let Some(proc) = table.get_mut(&delta.proc) {
                proc.state = State::Failed;
                cx.act(NodeAction::ToRoot(ToRoot::NotStarted { proc: delta.proc }));
            }
            !is_dropped
        });
        for (&proc, entry) in self.table.iter().filter(|(_, entry)| entry.world == world) {
            match entry.state {
                State::Running => cx.act(NodeAction::Signal { proc, sig }),
                // What an exited rank has left is in its session as long as the rank is a zombie.
                State::Ended => cx.act(NodeAction::KillSession { proc }),
                State::Queued | State::Spawning(_) | State::Reaped | State::Failed => {}
            }
        }
        self.report(cx);
    }

    /// All ranks of a world have ended: its programs are dropped.
    pub(in crate::node) fn on_close_world(&mut self, cx: &mut Cx<'_>, world: WorldId) {
        self.worlds.close(world);
        cx.act(NodeAction::CloseWorld { world });
    }

    /// The time of a world that is being ended is over.
    pub(super) fn kill_world(&self, cx: &mut Cx<'_>, world: WorldId) {
        for (&proc, entry) in self.table.iter().filter(|(_, entry)| entry.world == world) {
            if matches!(entry.state, State::Running | State::Ended) {
                cx.act(NodeAction::KillSession { proc });
            }
        }
    }

    /// Whether a rank has ended after its world was ordered to end.
    pub(super) fn is_ended_with_world(&self, exited: &Exited) -> bool {
        let world = self.table.get(&exited.proc).map(|proc| proc.world);
        let began = world.and_then(|world| self.worlds.ended_from(world));
        began.is_some_and(|began| exited.at > began.host_time())
    }
}
