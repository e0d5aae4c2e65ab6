//! Ports and TCPStores of this host for worlds besides the first one. A TCPStore is there if the agent holds it.

use super::tcpstore_listener::{Authorizer, TcpStoreListener, address, most};
use super::{Edges, mpi, sandbox};
use crate::clock::now;
use rlaunch_core::id::{ProcId, WorldId};
use rlaunch_core::machine::earliest_of;
use rlaunch_core::node::{NodeEvent, WorldPlan, WorldStore};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::time::Mono;
use rlaunch_sys::port::Port;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The held resources.
#[derive(Debug, Default)]
pub(super) struct Worlds {
    ports: BTreeMap<WorldId, Port>,
    pub(super) stores: BTreeMap<WorldId, Served>,
    searches: Searches,
}

/// A TCPStore, and the authorizer of its connections.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) listener: TcpStoreListener,
    pub(super) authorizer: Authorizer,
}

impl Worlds {
    /// Lets go of all ports and stores.
    pub(super) fn release(&mut self) {
        self.ports.clear();
        self.stores.clear();
    }

    /// When the next connection is given up of which another host says nothing.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let of = |store: &Served| [store.listener.deadline(), store.authorizer.deadline()];
        earliest_of(self.stores.values().flat_map(of))
    }
}

/// Chooses a port for a world, and holds it.
pub(super) fn reserve(edges: &mut Edges, world: WorldId) {
    let chosen = sandbox::choose_port();
    let port = chosen.inspect_err(|refusal| tracing::warn!(?refusal, "no port can be had for world {world}")).ok();
    let number = port.as_ref().map_or(0, |port| port.number);
    edges.worlds.ports.extend(port.map(|port| (world, port)));
    edges.events.push_back(NodeEvent::WorldReserved { world, port: number });
}

/// Serves a world, before its first rank starts.
pub(super) fn open(edges: &mut Edges, plan: WorldPlan) {
    let WorldPlan { world, namespace, here, store, mpi } = plan;
    edges.store.iter_mut().for_each(|store| store.open_world(world, namespace, here));
    if let Some(layout) = mpi {
        mpi::open_world(edges, world, *layout);
    }
    let Some(store) = store else {
        // A rank holds the store.
        return edges.worlds.ports.get_mut(&world).into_iter().for_each(Port::release);
    };
    match serve(edges, world, &store) {
        Ok(served) => {
            edges.worlds.stores.insert(world, served);
        }
        Err(error) => {
            tracing::debug!(%error, "the store of world {world} cannot be held at {}, port {}", store.addr, store.port);
            let at = OsBytes::from(format!("{}:{}", store.addr, store.port));
            edges.events.push_back(NodeEvent::Unserved { errno: error.raw_os_error().unwrap_or(0), at });
        }
    }
}

fn serve(edges: &mut Edges, world: WorldId, store: &WorldStore) -> io::Result<Served> {
    let WorldStore { addr, port, guard, ranks } = store;
    let at = address(addr, *port)?;
    let chosen = edges.worlds.ports.get_mut(&world).filter(|chosen| chosen.number == *port);
    let listener = chosen.map_or_else(|| rlaunch_sys::port::listen(at), |chosen| chosen.listen(at))?;
    let mut listener = TcpStoreListener::open(listener, *guard, most(edges, *ranks))?;
    // Answers of other hosts name a connection by its number: no two stores give the same.
    listener.number_from(u64::from(world.get()) << 40);
    Ok(Served { listener, authorizer: Authorizer::new(now())? })
}

/// Lets go of all that belongs to a world.
pub(super) fn close(edges: &mut Edges, world: WorldId) {
    edges.worlds.ports.remove(&world);
    edges.worlds.stores.remove(&world);
    mpi::close_world(edges, world);
    edges.ranks.forget_unused_programs();
    edges.store.iter_mut().for_each(|store| store.close_world(world));
}

/// Ranks whose sessions are killed. All that have ended since one look at /proc share the next one, on the `proc` thread.
#[derive(Debug, Default)]
struct Searches {
    wanted: BTreeSet<ProcId>,
    under_way: BTreeSet<ProcId>,
    /// Ranks to be reaped after that: a zombie keeps the number of its session.
    to_reap: BTreeSet<ProcId>,
}

impl Searches {
    /// The ranks of the next look; `None`: one is under way, or none is needed.
    fn next(&self) -> Option<&BTreeSet<ProcId>> {
        (self.under_way.is_empty() && !self.wanted.is_empty()).then_some(&self.wanted)
    }

    fn begin(&mut self) {
        self.under_way = std::mem::take(&mut self.wanted);
    }

    /// The look is over. Returns the ranks that can be reaped now.
    fn end(&mut self) -> BTreeSet<ProcId> {
        self.under_way.clear();
        self.to_reap.extract_if(.., |proc| !self.wanted.contains(proc)).collect()
    }

    /// Whether a rank is reaped later.
    fn defers(&mut self, proc: ProcId) -> bool {
        let is_awaited = self.wanted.contains(&proc) || self.under_way.contains(&proc);
        if is_awaited {
            self.to_reap.insert(proc);
        }
        is_awaited
    }
}

/// Kills everything in the sessions of these ranks.
pub(super) fn kill_sessions(edges: &mut Edges, procs: Vec<ProcId>) {
    edges.worlds.searches.wanted.extend(procs);
    search(edges);
}

fn search(edges: &mut Edges) {
    let Edges { worlds, ranks, proc_searches, watch, .. } = edges;
    let Some(procs) = worlds.searches.next() else { return };
    let leader = |proc: &ProcId| ranks.get(*proc).map(|rank| (rank.pid, Arc::clone(&rank.pidfd)));
    let leaders = procs.iter().filter_map(leader).collect();
    proc_searches.kill_sessions(leaders, |bell| watch.watch_proc_searches(bell));
    worlds.searches.begin();
}

/// Takes in that sessions were killed.
pub(super) fn settle(edges: &mut Edges) {
    if edges.proc_searches.take_killed_sessions() {
        edges.worlds.searches.end().into_iter().for_each(|proc| edges.reap(proc));
    }
    search(edges);
}

/// Whether a rank is reaped only after its session was killed.
pub(super) fn defers_reaping(edges: &mut Edges, proc: ProcId) -> bool {
    edges.worlds.searches.defers(proc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procs(all: impl IntoIterator<Item = u32>) -> BTreeSet<ProcId> {
        all.into_iter().map(ProcId::new).collect()
    }

    #[test]
    fn ranks_that_end_during_a_look_share_the_next_and_are_reaped_after_it() {
        let mut searches = Searches::default();
        assert!(!searches.defers(ProcId::new(0)), "none is searched for");
        searches.wanted.extend(procs([0]));
        assert_eq!(searches.next(), Some(&procs([0])));
        searches.begin();
        for n in 1..100 {
            searches.wanted.insert(ProcId::new(n));
            assert_eq!(searches.next(), None);
        }
        assert!((0..100).all(|n| searches.defers(ProcId::new(n)) && searches.defers(ProcId::new(n))));
        assert_eq!(searches.end(), procs([0]));
        assert_eq!(searches.next(), Some(&procs(1..100)), "one look for all");
        searches.begin();
        assert_eq!((searches.end(), searches.next()), (procs(1..100), None));
        assert!(!searches.defers(ProcId::new(1)));
    }
}
