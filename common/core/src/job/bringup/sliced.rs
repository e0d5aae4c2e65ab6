//! The bring-up of a job on slices (`--slices`): hosts come and go, also after the start, and ranks start on those that were chosen.

use super::super::orders::LOOPBACK;
use super::super::roster::State;
use super::super::{Cx, JobAction};
use super::Bringup;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use rlaunch_base::id::NodeId;
use rlaunch_plan::hostlist::{Chips, Host};
use rlaunch_plan::place::Placement;
use rlaunch_protocol::wire::to_node::Rendezvous;

/// The knowledge about hosts that come and go.
#[derive(Debug, Default)]
pub(super) struct Sliced {
    /// Hosts that have run ranks since they were reached.
    met: BTreeSet<NodeId>,
    /// The ports that hosts have chosen last.
    ports: BTreeMap<NodeId, u16>,
}

impl Bringup {
    /// Ranks start on these hosts of slices, as soon as they have found each other. `None`: slices are waited for.
    pub(in crate::job) fn start_on(&mut self, cx: &mut Cx<'_>, placement: Option<Arc<Placement>>) {
        if !self.is_decided {
            self.fewer = placement;
            self.decide(cx);
        }
    }

    /// Whether hosts are still waited for.
    pub(super) fn is_open(&self) -> bool {
        match (&self.sliced, &self.fewer) {
            (None, _) => self.nodes.open() > 0,
            (Some(_), None) => true,
            (Some(_), Some(placement)) => !placement.used().all(|node| self.is_ready(node)),
        }
    }

    /// Whether ranks have been started.
    pub(in crate::job) const fn has_started(&self) -> bool {
        self.rendezvous.is_some()
    }

    /// Whether a host can run ranks.
    pub(in crate::job) fn is_ready(&self, node: NodeId) -> bool {
        matches!(self.nodes.get(node), Some(State::Ready(_)))
    }

    /// Whether a host that comes now may get ranks.
    pub(super) const fn takes_hosts(&self) -> bool {
        !self.is_decided || (self.sliced.is_some() && !self.is_ending)
    }

    /// A host of a slice is lost.
    pub(in crate::job) fn lose(&mut self, node: NodeId) {
        self.probing.forget(node);
        if let Some(State::Waiting | State::Up(_) | State::Ready(_)) = self.nodes.get(node) {
            self.nodes.set(node, State::Lost);
        }
    }

    /// The name and the chips of a host that has become known.
    pub(in crate::job) fn name(&mut self, node: NodeId, host: &Host, chips: &Chips) {
        Arc::make_mut(&mut self.orders).name(node, host, chips);
    }

    /// Whether a host is neither there nor being reached.
    pub(in crate::job) fn is_away(&self, node: NodeId) -> bool {
        self.nodes.get(node).is_some_and(State::is_missing)
    }

    /// Reaches a host again.
    pub(in crate::job) fn redial(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if let Some(sliced) = &mut self.sliced {
            sliced.met.remove(&node);
            sliced.ports.remove(&node);
            self.devices.forget(node);
            self.probing.forget(node);
            self.nodes.set(node, State::Connecting);
            cx.act(JobAction::Connect { node });
        }
    }

    /// The MASTER_PORT that a host has chosen.
    pub(super) fn port_of(&self, node: NodeId) -> Option<u16> {
        let chosen = self.sliced.as_ref().and_then(|sliced| sliced.ports.get(&node).copied());
        chosen.or_else(|| self.hello_of(node).map(|hello| hello.master_port).filter(|port| *port != 0))
    }

    /// Takes in the ports that hosts have chosen anew. Returns that of rank 0's host.
    pub(super) fn learn_ports(&mut self, ports: &BTreeMap<NodeId, u16>, head: NodeId) -> Option<u16> {
        let Some(sliced) = &mut self.sliced else { return ports.get(&head).copied() };
        // A host that was reached again since has other ports.
        sliced.ports.extend(ports.iter().filter(|(node, _)| sliced.met.contains(node)));
        self.port_of(head)
    }

    /// Whether the address of a rendezvous is one for a single host, and hosts come and go.
    pub(super) fn is_sole_address(&self, rendezvous: &Rendezvous) -> bool {
        self.sliced.is_some() && rendezvous.addr.as_slice() == LOOPBACK.as_bytes()
    }

    /// The hosts that start ranks now for the first time since they were reached.
    pub(super) fn meet(&mut self, placement: &Placement) -> BTreeSet<NodeId> {
        let Some(sliced) = &mut self.sliced else { return BTreeSet::new() };
        let new: BTreeSet<NodeId> = placement.used().filter(|node| !sliced.met.contains(node)).collect();
        sliced.met.extend(&new);
        new
    }
}
