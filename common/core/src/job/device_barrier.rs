//! The devices of all hosts before ranks are started, as the launcher sees them.
//!
//! Each host looks for holders first. Only after all hosts have looked, and could start their ranks, hosts are ordered to end holders. No
//! process is ended for a job that cannot start, and no rank is started while a host is not free.

use super::{Cx, JobAction};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_protocol::guard::devices::DeviceStep;
use rlaunch_protocol::wire::to_node::ToNode;

#[derive(Debug, Default)]
pub(super) struct DeviceBarrier {
    /// Hosts that have not answered an order.
    open: BTreeSet<NodeId>,
    /// Hosts with holders that have to be ended.
    held: BTreeSet<NodeId>,
    /// Hosts that have looked for the generation to come; `None`: it was not asked for.
    looked: Option<BTreeSet<NodeId>>,
}

impl DeviceBarrier {
    /// A host has looked, or has ended holders.
    pub(super) fn on_answer(&mut self, node: NodeId, held: bool) {
        self.open.remove(&node);
        if held {
            self.held.insert(node);
        }
        if let Some(looked) = &mut self.looked {
            looked.insert(node);
        }
    }

    /// Has these hosts look before another generation of ranks. Returns whether the devices of all are free.
    pub(super) fn is_next_free(&mut self, cx: &mut Cx<'_>, nodes: &[NodeId]) -> bool {
        let looked = self.looked.get_or_insert_default();
        for node in nodes.iter().filter(|node| !looked.contains(node) && self.open.insert(**node)) {
            self.held.remove(node);
            cx.act(JobAction::Send { node: *node, msg: ToNode::Devices(DeviceStep::Look) });
        }
        if !nodes.iter().all(|node| looked.contains(node)) || !self.is_free(cx, nodes) {
            return false;
        }
        self.looked = None;
        true
    }

    /// Whether the devices of these hosts are free. All have looked. Has holders ended where there are any.
    pub(super) fn is_free(&mut self, cx: &mut Cx<'_>, nodes: &[NodeId]) -> bool {
        for node in nodes {
            if self.held.remove(node) {
                self.open.insert(*node);
                cx.act(JobAction::Send { node: *node, msg: ToNode::Devices(DeviceStep::Free) });
            }
        }
        !nodes.iter().any(|node| self.open.contains(node))
    }

    /// Whether hosts have to answer before another generation of ranks.
    pub(super) const fn is_next_awaited(&self) -> bool {
        self.looked.is_some()
    }

    /// The hosts that have not answered.
    pub(super) fn awaited(&self) -> Vec<NodeId> {
        self.open.iter().copied().collect()
    }

    /// A host was reached again: its agent has no order.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.open.remove(&node);
        self.held.remove(&node);
        if let Some(looked) = &mut self.looked {
            looked.remove(&node);
        }
    }
}
