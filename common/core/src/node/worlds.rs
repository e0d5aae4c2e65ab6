//! The worlds of a node besides the first one: their rendezvous, and those that are being ended while the job continues.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use rlaunch_base::id::WorldId;
use rlaunch_base::machine::earliest_of;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Mono;
use rlaunch_protocol::wire::to_node::{Rendezvous, WorldStart};

/// A world that is being ended.
struct Ending {
    sig: Signal,
    began: Mono,
    /// When its ranks are killed; `None`: they were.
    until: Option<Mono>,
}

struct World {
    start: WorldStart,
    ending: Option<Ending>,
}

/// The worlds.
#[derive(Default)]
pub(super) struct Worlds(BTreeMap<WorldId, World>);

impl Worlds {
    /// A world begins.
    pub(super) fn begin(&mut self, start: WorldStart) {
        self.0.insert(start.world, World { start, ending: None });
    }

    /// The rendezvous of a world; `None`: it is the first one.
    pub(super) fn rendezvous(&self, world: WorldId) -> Option<&Rendezvous> {
        self.0.get(&world).map(|world| &world.start.rendezvous)
    }

    /// Whether a rank has asked for it.
    pub(super) fn is_spawned(&self, world: WorldId) -> bool {
        self.0.get(&world).is_some_and(|world| world.start.is_spawned)
    }

    /// A world is ended. A second order shortens the time that is left and never lengthens it.
    pub(super) fn end(&mut self, world: WorldId, sig: Signal, now: Mono, until: Mono) {
        let Some(world) = self.0.get_mut(&world) else { return };
        match &mut world.ending {
            Some(ending) => {
                ending.sig = sig;
                ending.until = ending.until.map(|before| before.min(until));
            }
            none => *none = Some(Ending { sig, began: now, until: Some(until) }),
        }
    }

    /// The signal for a rank that starts while its world is being ended.
    pub(super) fn signal_for(&self, world: WorldId) -> Option<Signal> {
        let ending = self.0.get(&world)?.ending.as_ref()?;
        Some(if ending.until.is_some() { ending.sig } else { Signal::KILL })
    }

    /// When a world was ordered to end.
    pub(super) fn ended_from(&self, world: WorldId) -> Option<Mono> {
        Some(self.0.get(&world)?.ending.as_ref()?.began)
    }

    /// Worlds whose time has expired.
    pub(super) fn overdue(&mut self, now: Mono) -> Vec<WorldId> {
        let is_due = |world: &mut World| {
            let ending = world.ending.as_mut();
            ending.is_some_and(|ending| ending.until.take_if(|until| *until <= now).is_some())
        };
        self.0.iter_mut().filter_map(|(id, world)| is_due(world).then_some(*id)).collect()
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        earliest_of(self.0.values().map(|world| world.ending.as_ref().and_then(|ending| ending.until)))
    }

    /// All ranks of a world have ended.
    pub(super) fn close(&mut self, world: WorldId) {
        self.0.remove(&world);
    }
}
