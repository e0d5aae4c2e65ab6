//! The TPU slices of a job, from the facts that its hosts have sent.

use super::orders::Slices;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::place::Placement;
use rlaunch_plan::tpu::{self, SliceHost, TpuFacts};
use rlaunch_protocol::wire::to_root::{Hello, NodeRefusal};

/// The part of each host that has chips.
///
/// # Errors
/// The first host of a slice that cannot be used, and why.
pub(super) fn plan<'a>(
    placement: &Placement,
    hello: impl Fn(NodeId) -> Option<&'a Hello>,
    allow_partial: bool,
    address: impl Fn(NodeId) -> OsBytes,
) -> Result<Slices, (NodeId, NodeRefusal)> {
    let facts = |node| hello(node).and_then(|hello| hello.tpu.as_deref());
    let mut known: Vec<(NodeId, TpuFacts)> = Vec::new();
    for node in placement.used() {
        let Some(facts) = facts(node) else { continue };
        let mut facts = facts.clone();
        if facts.address.is_empty() {
            facts.address = address(node);
        }
        if facts.slice.is_empty() {
            // A host that says no slice is one by itself.
            facts.slice = name(placement, node);
        }
        known.push((node, facts));
    }
    let ranks = |node: NodeId| placement.nodes.get(node.index()).map_or(0, |node| node.ranks);
    let host = |(node, facts): &'_ (NodeId, TpuFacts)| (*node, facts.clone(), ranks(*node));
    let hosts: Vec<(NodeId, TpuFacts, u32)> = known.iter().map(host).collect();
    let hosts: Vec<SliceHost<'_>> =
        hosts.iter().map(|(node, facts, ranks)| SliceHost { node: *node, facts, ranks: *ranks }).collect();
    let first = placement.head();
    match tpu::plan(&hosts, allow_partial) {
        Ok(slices) => Ok(slices.into_iter().collect()),
        Err(error) => Err((first, NodeRefusal::Slices(error))),
    }
}

fn name(placement: &Placement, node: NodeId) -> OsBytes {
    placement.nodes.get(node.index()).map(|node| node.host.name.as_str().into()).unwrap_or_default()
}
