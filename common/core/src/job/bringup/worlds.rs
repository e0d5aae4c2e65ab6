//! The start of the worlds besides the first one.

use super::super::{Cx, JobAction, master_addr, orders};
use super::Bringup;
use alloc::boxed::Box;
use alloc::sync::Arc;
use rlaunch_base::id::{AppIndex, NodeId, ProcId, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::to_node::{Rendezvous, WORLD_NAMESPACE, WorldStart};

impl Bringup {
    /// The only node waits for the order to finish, because more ranks may follow.
    pub(in crate::job) const fn expect_more(&mut self) {
        self.ends_by_itself = false;
    }

    /// Ranks may be started again.
    pub(in crate::job) fn starts_again(&self) -> bool {
        self.orders.starts_again()
    }

    /// Sends a program of a world to the hosts of its ranks.
    pub(in crate::job) fn send_program(&self, cx: &mut Cx<'_>, world: WorldId, app: AppIndex, base: &AppBase) {
        let placement = Arc::clone(cx.facts.placement());
        let only = placement.only(world);
        let is_there = |node: NodeId| only.ranks.iter().any(|placed| placed.node == node && placed.app == app);
        only.used().filter(|node| is_there(*node)).for_each(|node| self.orders.send_program(cx, node, app, base));
    }

    /// Starts the ranks of a world besides the first one; the process of its rank 0 would have the number `first` if it were rank 0 of the
    /// job. `origin`: a rank has asked for the world; not empty: by its MPI library.
    pub(in crate::job) fn start_world(
        &self,
        cx: &mut Cx<'_>,
        world: WorldId,
        port: u16,
        (first, origin): (ProcId, Option<&OsBytes>),
    ) {
        let orders = &self.orders;
        let placement = Arc::clone(cx.facts.placement());
        let only = placement.only(world);
        let head = only.head();
        let addr = match &self.rendezvous {
            _ if orders::is_together(&only) => orders::LOOPBACK.into(),
            // A first world on one host has met at the address that only that host has.
            Some((first, rendezvous))
                if *first == head && rendezvous.addr.as_slice() != orders::LOOPBACK.as_bytes() =>
            {
                rendezvous.addr.clone()
            }
            Some(_) | None => self.address(&placement, head),
        };
        let namespace = WORLD_NAMESPACE.saturating_add(world.get());
        let wants_store = placement.worlds.get(world).is_some_and(|world| world.agent_store);
        let agent_store = wants_store && master_addr::is_of(&addr, self.known(head));
        let mut rendezvous = Rendezvous { agent_store, namespace, ..orders.rendezvous_of(&only, addr, Some(port)) };
        if let Some(origin) = origin.filter(|origin| !origin.is_empty()) {
            rendezvous.mpi = Some(Box::new(orders::Orders::mpi_layout(&only, origin.clone())));
        }
        cx.act(JobAction::Home { node: head, namespace });
        orders.send_world(cx, &WorldStart { world, rendezvous, is_spawned: origin.is_some() }, first);
    }
}
