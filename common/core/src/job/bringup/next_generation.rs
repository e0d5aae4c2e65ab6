//! Later generations of ranks: the orders for hosts that have run some before.

use super::super::notice::Notice;
use super::super::orders;
use super::super::{Cx, JobAction};
use super::Bringup;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::wire::to_node::{PortPlan, ToNode};

impl Bringup {
    /// Has all hosts of the job end their ranks, and be ready for others. Returns these hosts. `shrinks`: more of them may be lost
    /// meanwhile, so each needs a port for the case that it gets rank 0. Only the first one claims a port that the user gave. On the
    /// others it may be that of another job.
    pub(in crate::job) fn clear(
        &self,
        cx: &mut Cx<'_>,
        grace: Span,
        (gone, shrinks): (&[NodeId], bool),
    ) -> Vec<NodeId> {
        let orders = &self.orders;
        if !self.has_started() || !orders.may_restart() {
            return Vec::new();
        }
        let placement = cx.facts.placement();
        let first = placement.node_of(Rank::new(0));
        let nodes: Vec<NodeId> = placement.used().filter(|node| !gone.contains(node)).collect();
        let head = first.filter(|first| nodes.contains(first)).or_else(|| nodes.first().copied());
        for node in &nodes {
            let has_port = Some(*node) == head || (shrinks && orders.chooses_port());
            let port = if has_port { orders.port_plan() } else { PortPlan::None };
            cx.act(JobAction::Send { node: *node, msg: ToNode::Clear { sig: Signal::TERM, grace, port } });
        }
        nodes
    }

    /// How the user calls these hosts.
    pub(in crate::job) fn folded(&self, nodes: &[NodeId]) -> OsBytes {
        self.orders.folded(nodes)
    }

    /// Ranks can be started again.
    pub(in crate::job) fn can_start_again(&self) -> bool {
        self.has_started() && self.orders.can_start_more()
    }

    /// Whether the devices of all hosts are free for another generation. Has them looked at, and freed.
    pub(in crate::job) fn is_next_free(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.orders.prepares_devices() {
            return true;
        }
        let facts = cx.facts;
        let nodes: Vec<NodeId> = match self.sliced {
            // Each of them may get ranks.
            Some(_) => self.nodes.iter().map(|(node, _)| node).filter(|node| self.is_ready(*node)).collect(),
            None => facts.placement().used().collect(),
        };
        let nodes: Vec<NodeId> = nodes.into_iter().filter(|node| !facts.hosts.is_lost(*node)).collect();
        self.devices.is_next_free(cx, &nodes)
    }

    /// Whether hosts have to answer before another generation.
    pub(in crate::job) const fn is_next_awaited(&self) -> bool {
        self.devices.is_next_awaited()
    }

    /// Has all hosts of the job start their ranks again. The numbers are those of the restart and of the first process. `ports`: new
    /// choices of hosts. `shrinks`: hosts were lost, and the others have fewer ranks.
    pub(in crate::job) fn start_generation(
        &mut self,
        cx: &mut Cx<'_>,
        (restart, first): (u32, u32),
        (ports, namespace): (&BTreeMap<NodeId, u16>, u32),
        shrinks: bool,
    ) {
        let orders = Arc::clone(&self.orders);
        let Some((before, mut rendezvous)) = self.rendezvous.take() else { return };
        if self.sliced.is_some()
            && let Err(cause) = self.plan_slices(cx, &orders)
        {
            return cx.notify(Notice::End(cause));
        }
        let placement = cx.facts.placement();
        cx.act(JobAction::Place(Arc::clone(placement)));
        let head = placement.head();
        rendezvous = orders.rendezvous_of_next_generation(placement, rendezvous);
        // One host alone is met at an address of its own, whatever the others knew it by.
        if head != before || (shrinks && orders::is_together(placement)) || self.is_sole_address(&rendezvous) {
            let addr = match orders.pinned_addr() {
                _ if orders::is_together(placement) => self.sole_addr(&orders, head),
                Some(pinned) => pinned.clone(),
                None => self.address(placement, head),
            };
            rendezvous = self.held(cx, &orders, head, orders.rendezvous(placement, addr, rendezvous.port));
        }
        let chosen = self.learn_ports(ports, head);
        let port = orders.pinned_port().or(chosen).or(rendezvous.port);
        (rendezvous.restart, rendezvous.port, rendezvous.namespace) = (restart, port, namespace);
        cx.act(JobAction::Home { node: head, namespace });
        if let (true, None, Ok(slices)) = (shrinks, &self.sliced, self.slices_of(placement, &orders)) {
            self.slices = slices;
        }
        let new = self.meet(placement);
        orders.send_rendezvous(cx, (placement, &rendezvous), first, &self.slices, |node| new.contains(&node));
        self.rendezvous = Some((head, rendezvous));
    }

    /// The address by which the others find a host, as far as it is known. The first choice is the address by which the host has
    /// found that of rank 0. The second is an address at which it was reached.
    pub(in crate::job) fn address(&self, placement: &Placement, node: NodeId) -> OsBytes {
        let reached = |node| self.known(node).and_then(|hello| hello.reached.as_ref());
        let own = self.probing.own_addr(node).or_else(|| reached(node)?.at.first());
        let known = placement.nodes.get(node.index());
        // Other hosts see this host at the address that they come back to.
        let ours = || placement.used().filter_map(reached).map(|reached| &reached.from).find(|from| !from.is_empty());
        let name = || known.map(|node| OsBytes::from(node.host.name.as_str()));
        let local = known.is_some_and(|node| node.local);
        own.or_else(|| ours().filter(|_| local)).cloned().or_else(name).unwrap_or_default()
    }

    /// Has a node start another process of a rank.
    pub(in crate::job) fn start_one(&self, cx: &mut Cx<'_>, rank: Rank, node: NodeId, proc: ProcId) {
        self.orders.one(cx, node, rank, proc);
    }
}
