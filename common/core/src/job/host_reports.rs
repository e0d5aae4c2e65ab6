//! Facts and notes about the hosts of a job, from their hellos, before ranks start.

use super::Cx;
use super::notice::Notice;
use crate::events::{JobNews, What};
use alloc::collections::BTreeMap;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::hostlist::Chips;
use rlaunch_protocol::travel::Lowered;
use rlaunch_protocol::wire::to_root::Hello;

/// Notes for the user.
pub(super) fn notes<'a, I: Iterator<Item = (NodeId, &'a Hello)>>(cx: &mut Cx<'_>, hellos: impl Fn() -> I) {
    lowered(cx, hellos());
    one_machine(cx, hellos());
}

/// The slices of TPU hosts, where these know them: a policy may ask for them.
pub(super) fn chips<'a>(cx: &mut Cx<'_>, hellos: impl Iterator<Item = (NodeId, &'a Hello)>) {
    let own = |(node, hello): (NodeId, &Hello)| {
        let facts = hello.tpu.as_deref().filter(|facts| !facts.slice.is_empty())?;
        Some((node, Chips::of(&facts.slice.to_string(), facts.worker, facts.chips)))
    };
    let chips: Vec<(NodeId, Chips)> = hellos.filter_map(own).collect();
    if !chips.is_empty() {
        cx.notify(Notice::Chips(chips));
    }
}

/// Machines that are in the list under several names: each of these has ranks that count from 0.
fn one_machine<'a>(cx: &mut Cx<'_>, hellos: impl Iterator<Item = (NodeId, &'a Hello)>) {
    let mut all: BTreeMap<&OsBytes, Vec<NodeId>> = BTreeMap::new();
    for (node, hello) in hellos.filter(|(_, hello)| !hello.machine.is_empty()) {
        all.entry(&hello.machine).or_default().push(node);
    }
    let mut doubles: Vec<Vec<NodeId>> = all.into_values().filter(|nodes| nodes.len() > 1).collect();
    doubles.sort();
    if let Some(nodes) = doubles.first() {
        let more = u32::try_from(doubles.len()).unwrap_or(u32::MAX).saturating_sub(1);
        cx.notify(Notice::Log(What::News(JobNews::OneMachine { nodes: nodes.clone(), more })));
    }
}

/// Limits that did not travel whole: once for all hosts where they ended alike.
fn lowered<'a>(cx: &mut Cx<'_>, hellos: impl Iterator<Item = (NodeId, &'a Hello)>) {
    let mut all: BTreeMap<Lowered, Vec<NodeId>> = BTreeMap::new();
    for (node, hello) in hellos {
        for lowered in &*hello.lowered {
            all.entry(*lowered).or_default().push(node);
        }
    }
    for (lowered, nodes) in all {
        cx.notify(Notice::Log(What::News(JobNews::LimitLowered { lowered, nodes })));
    }
}
