//! The CPUs of ranks before they start: `rlaunch map --report-bindings`.

use crate::cli::{Lookup, Whole};
use crate::view::binding::{cpus_of, decided_there, not_bound};
use rlaunch_core::bind::{Bind, BindTo, Bound, CpuList, Host};
use rlaunch_core::cpu_set::CpuSet;
use rlaunch_core::error::Hint as _;
use rlaunch_core::gpus::{Devices, Gpu, SharedOut};
use rlaunch_core::id::{NodeId, Rank};
use rlaunch_core::node::Processors;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::place::Placement;
use rlaunch_core::topology::{Facts, Level, Topology};
use rlaunch_sys::facts::{self, topology};
use std::ffi::OsString;
use std::fmt::Write as _;

/// A line for each rank; empty if that was not asked for. Another host decides by its own processors.
pub(crate) fn text(whole: &Whole, placement: &Placement, env: Lookup<'_>) -> String {
    let (bind, cores) = (whole.bound(), whole.rank_cpus());
    if !bind.report {
        return String::new();
    }
    let processors = processors();
    let mut text = String::new();
    // This host has one node: its ranks are bound by one decision.
    let mut here = None;
    for (seat, rank) in placement.ranks.iter().zip((0..).map(Rank::new)) {
        let Some(node) = placement.nodes.get(seat.node.index()) else { continue };
        let host = node.host.to_string();
        let decide = || {
            let near = near(whole.gpus, node.ranks, env);
            decided(&of_node(&bind, &cores, placement, seat.node), &processors, node.ranks, &near)
        };
        let line = match node.local {
            true => match here.get_or_insert_with(decide) {
                Ok(bound) => format!("rank {rank} on {host}: {}", line(bound, &processors, seat.local_rank.index())),
                Err(error) => error.clone(),
            },
            false => decided_there(rank, &host),
        };
        // Writing to a String cannot fail.
        writeln!(text, "{line}").unwrap_or_default();
    }
    text
}

/// A rankfile's lists are those of the host's ranks.
fn of_node(bind: &Bind, cores: &[CpuList], placement: &Placement, node: NodeId) -> Bind {
    let own: Vec<CpuList> = placement.ranks_of(node).filter_map(|rank| cores.get(rank.index()).cloned()).collect();
    if own.is_empty() { bind.clone() } else { Bind { to: BindTo::Lists(own), ..bind.clone() } }
}

/// Reads the processors of this host.
pub(crate) fn processors() -> Processors {
    let mut read = topology::processors();
    let (allowed, online) = (std::mem::take(&mut read.allowed), std::mem::take(&mut read.online));
    let topology = Topology::new(&Facts::of(allowed, online, read.groups()));
    Processors { topology, has_quota: topology::has_quota(), gpus: Vec::new() }
}

/// The CPUs near the GPUs of each rank of this host; none: unknown.
fn near(each: Option<u32>, ranks: u32, env: Lookup<'_>) -> Vec<CpuSet> {
    let Some(each) = each else { return Vec::new() };
    let facts::host::Gpus { amd, count } = facts::host::gpus();
    let variable = |name: &str| env(name).map(OsString::into_encoded_bytes);
    let devices = Devices { amd, count };
    let gpu = |gpu: facts::gpus::Gpu| Gpu { uuid: OsBytes::new(gpu.uuid), cpus: gpu.near.into_iter().collect() };
    let gpus: Vec<Gpu> = facts::gpus::gpus(amd).into_iter().map(gpu).collect();
    let seen = devices.seen(variable).unwrap_or_default();
    devices.near(&gpus, SharedOut { seen: &seen, each, ranks }, variable)
}

fn decided(bind: &Bind, processors: &Processors, ranks: u32, near: &[CpuSet]) -> Result<Bound, String> {
    let Processors { topology, has_quota, .. } = processors;
    bind.ranks_of(Host { topology, ranks, has_quota: *has_quota, near }).map_err(|error| {
        let hint = error.hint().map(|hint| format!(" (try: {hint})")).unwrap_or_default();
        format!("{error}{hint}")
    })
}

/// The CPUs of a rank of this host.
fn line(bound: &Bound, processors: &Processors, local_rank: usize) -> String {
    let topology = &processors.topology;
    let mask = bound.masks.get(local_rank);
    let cpus = mask.unwrap_or_else(|| topology.allowed());
    let numbers = |level: Level| {
        let units = topology.all(level).iter().zip(0..);
        units.filter(|(unit, _)| !unit.and(cpus).is_empty()).map(|(_, n)| n).collect::<CpuSet>()
    };
    let list = |set: &CpuSet| OsBytes::from(set.to_string());
    let line = cpus_of(mask.is_some(), &list(cpus), &list(&numbers(Level::Core)), &list(&numbers(Level::Numa)));
    match bound.unbound {
        Some(unbound) => format!("{line}: {}", not_bound(unbound, &"this host".into())),
        None => line,
    }
}
