//! The CPUs of ranks before they start: `rlaunch map --report-bindings`.

use crate::cli::{Lookup, Whole};
use crate::view::binding::{cpus_of, decided_there, not_bound};
use rlaunch_base::cpu_set::CpuSet;
use rlaunch_base::error::Hint as _;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::node::Processors;
use rlaunch_plan::bind::{Bind, Bound, Host};
use rlaunch_plan::gpus::{Devices, Gpu, SharedOut};
use rlaunch_plan::place::Placement;
use rlaunch_plan::topology::{Facts, Level, Topology};
use rlaunch_sys::facts::{self, topology};
use std::ffi::OsString;
use std::fmt::Write as _;

/// A line for each rank, and one line if ranks cannot be bound; empty if that was not asked for. Another host decides by its own processors.
pub(crate) fn text(whole: &Whole, placement: &Placement, env: Lookup<'_>) -> String {
    let mut text = String::new();
    each(whole, placement, env, |rank, host, found| {
        let line = match found {
            Some(Ok(binding)) => format!("rank {rank} on {host}: {}", binding.line()),
            // The ranks of this host are bound together.
            Some(Err(error)) if text.ends_with(&format!("{error}\n")) => return,
            Some(Err(error)) => error.clone(),
            None => decided_there(rank, host),
        };
        // Writing to a String cannot fail.
        writeln!(text, "{line}").unwrap_or_default();
    });
    text
}

/// The same as a member of the line for programs. `null`: another host decides.
pub(crate) fn json(whole: &Whole, placement: &Placement, env: Lookup<'_>) -> Option<serde_json::Value> {
    let mut all = Vec::new();
    each(whole, placement, env, |rank, _, found| {
        all.push(match found {
            Some(Ok(binding)) => {
                let cpus = binding.cpus().to_string();
                serde_json::json!({ "rank": rank.get(), "bound": binding.mask().is_some(), "cpus": cpus })
            }
            Some(Err(error)) => serde_json::json!({ "rank": rank.get(), "error": error }),
            None => serde_json::json!({ "rank": rank.get(), "bound": null, "cpus": null }),
        });
    });
    whole.bound().report.then_some(all.into())
}

/// The CPUs of a rank of this host.
struct Binding<'a> {
    bound: &'a Bound,
    processors: &'a Processors,
    local_rank: usize,
}

/// Passes on each rank with its host, and its CPUs if this host decides; nothing if that was not asked for.
fn each(
    whole: &Whole,
    placement: &Placement,
    env: Lookup<'_>,
    mut show: impl FnMut(Rank, &str, Option<Result<Binding<'_>, &String>>),
) {
    let (bind, cores) = (whole.bound(), whole.rank_cpus(placement));
    if !bind.report {
        return;
    }
    let processors = processors();
    // This host has one node: its ranks are bound by one decision.
    let mut here = None;
    for (rank, placed) in placement.ranks.with_ranks() {
        let Some(node) = placement.nodes.get(placed.node.index()) else { continue };
        let host = node.host.to_string();
        let decide = || {
            let near = near(whole.gpus, node.ranks, env);
            decided(&bind.of_ranks(&cores, placement.ranks_of(placed.node)), &processors, node.ranks, &near)
        };
        let found = node.local.then(|| here.get_or_insert_with(decide).as_ref());
        let (processors, local_rank) = (&processors, placed.local_rank.index());
        show(rank, &host, found.map(|found| found.map(|bound| Binding { bound, processors, local_rank })));
    }
}

/// Reads the processors of this host.
pub(crate) fn processors() -> Processors {
    let (lists, groups) = topology::processors().into_parts();
    let topology = Topology::new(&Facts::of(lists, groups));
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

impl Binding<'_> {
    fn mask(&self) -> Option<&CpuSet> {
        self.bound.masks.get(self.local_rank)
    }

    fn cpus(&self) -> &CpuSet {
        self.mask().unwrap_or_else(|| self.processors.topology.allowed())
    }

    fn line(&self) -> String {
        let cpus = self.cpus();
        let list = |set: &CpuSet| OsBytes::from(set.to_string());
        let [cores, numa] = [Level::Core, Level::Numa].map(|level| self.processors.topology.numbers_in(level, cpus));
        let line = cpus_of(self.mask().is_some(), &list(cpus), &list(&cores), &list(&numa));
        match self.bound.unbound {
            Some(unbound) => format!("{line}: {}", not_bound(unbound, &"this host".into())),
            None => line,
        }
    }
}
