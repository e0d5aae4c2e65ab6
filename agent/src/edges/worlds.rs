//! Ports and TCPStores of this host for worlds besides the first one. A TCPStore is there if the agent holds it.

use super::tcpstore_listener::{Authorizer, TcpStoreListener, address, most};
use super::{Edges, mpi, sandbox};
use crate::early::now;
use rlaunch_core::id::{ProcId, WorldId};
use rlaunch_core::machine::earliest_of;
use rlaunch_core::node::{NodeEvent, WorldPlan, WorldStore};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::time::Mono;
use rlaunch_sys::port::Port;
use std::collections::BTreeMap;
use std::io;

/// The held resources.
#[derive(Debug, Default)]
pub(super) struct Worlds {
    ports: BTreeMap<WorldId, Port>,
    pub(super) stores: BTreeMap<WorldId, Served>,
}

/// A TCPStore, and the authorizer of its connections.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) listener: TcpStoreListener,
    pub(super) authorizer: Authorizer,
}

impl Worlds {
    pub(super) fn go_live(&mut self) -> io::Result<()> {
        self.stores.values_mut().try_for_each(|store| store.listener.go_live())
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
    let Some(store) = store else { return };
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

fn serve(edges: &Edges, world: WorldId, store: &WorldStore) -> io::Result<Served> {
    let WorldStore { addr, port, guard, ranks } = store;
    let listener = rlaunch_sys::port::listen(address(addr, *port)?)?;
    let mut listener = TcpStoreListener::open(listener, *guard, most(edges, *ranks))?;
    // Answers of other hosts name a connection by its number: no two stores give the same.
    listener.number_from(u64::from(world.get()) << 40);
    if edges.watch.is_live() {
        listener.go_live()?;
    }
    Ok(Served { listener, authorizer: Authorizer::new(now())? })
}

/// Lets go of all that belongs to a world.
pub(super) fn close(edges: &mut Edges, world: WorldId) {
    edges.worlds.ports.remove(&world);
    edges.worlds.stores.remove(&world);
    mpi::close_world(edges, world);
    edges.store.iter_mut().for_each(|store| store.close_world(world));
}

/// Kills everything in the sessions of these ranks.
pub(super) fn kill_sessions(edges: &Edges, procs: &[ProcId]) {
    let leaders: Vec<i32> = procs.iter().filter_map(|proc| Some(edges.ranks.get(*proc)?.pid)).collect();
    let killed = rlaunch_sys::sessions::kill(&leaders);
    tracing::debug!("SIGKILL to {killed} processes in the sessions of pids {leaders:?}");
}
