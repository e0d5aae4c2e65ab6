//! Processors and GPUs of this host: the kernel's facts become the tree by which ranks are bound.

use rlaunch_base::cpu_set::CpuSet;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::node::Processors;
use rlaunch_plan::bind::{Bind, Host};
use rlaunch_plan::gpus::{Devices, Gpu};
use rlaunch_plan::topology::{Facts, Level, Topology};
use rlaunch_sys::abstract_name;
use rlaunch_sys::facts::{gpus, topology};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;

/// Reads them. Without `devices` the GPUs do not matter.
pub(super) fn processors(devices: Option<Devices>) -> Processors {
    let (lists, groups) = topology::processors().into_parts();
    let topology = Topology::new(&Facts::of(lists, groups));
    let gpu = |gpu: gpus::Gpu| Gpu { uuid: OsBytes::new(gpu.uuid), cpus: gpu.near.into_iter().collect() };
    let gpus = devices.map(|devices| gpus::gpus(devices.amd).into_iter().map(gpu).collect()).unwrap_or_default();
    Processors { topology, has_quota: topology::has_quota(), gpus }
}

/// The beginning of the names of cores.
const NAME: &str = "rlaunch-core-";

/// Cores that this job has taken. Each is an abstract unix name, which the kernel drops with this process.
pub(super) type Cores = BTreeMap<u32, OwnedFd>;

/// Takes cores for the ranks: those that no other job of rlaunch has taken, if there are enough. Else jobs share. Any user can take the name
/// of a core. Ranks that divide all free cores therefore leave none to another user: they would get fewer.
///
/// With GPUs no cores are left out: ranks get the cores near to their GPUs.
pub(super) fn take_cores(processors: &mut Processors, bind: &Bind, ranks: u32) -> Cores {
    let mut held = Cores::new();
    if !processors.gpus.is_empty() {
        return held;
    }
    let whole = processors.topology.clone();
    let host = Host { topology: &whole, ranks, has_quota: processors.has_quota, near: &[] };
    let mut taken = CpuSet::default();
    let mut free = whole.clone();
    loop {
        let Ok(bound) = bind.ranks_of(Host { topology: &free, ..host }) else { return held };
        let own = CpuSet::union(&bound.masks);
        let cores: Vec<&CpuSet> = free.all(Level::Core).iter().filter(|core| !core.and(&own).is_empty()).collect();
        let (before, mut in_use) = (taken.len(), Vec::new());
        for core in &cores {
            let Some(first) = core.iter().next().filter(|first| !held.contains_key(first)) else { continue };
            let name = format!("{NAME}{first}");
            match abstract_name::hold(&name) {
                Ok(name) => drop(held.insert(first, name)),
                Err(error) if error.kind() == ErrorKind::AddrInUse => in_use.push((name, *core)),
                // This host allows no such names, or there is no descriptor left: jobs do not know each other's cores.
                Err(_) => return held,
            }
        }
        // Once for all cores: the names of another user, which do not count, may be many.
        let names = match bind.cores {
            None if !in_use.is_empty() => abstract_name::held(NAME).unwrap_or_default(),
            None | Some(_) => Vec::new(),
        };
        in_use.retain(|(name, _)| bind.cores.is_some() || names.contains(name));
        in_use.into_iter().for_each(|(_, core)| taken.extend(core));
        if taken.len() == before {
            held.retain(|cpu, _| cores.iter().any(|core| core.contains(*cpu)));
            // No core is left for others, with these names or without.
            if own == *whole.allowed() {
                held.clear();
            }
            processors.topology = free;
            return held;
        }
        let Some(rest) = bind.beside(host, &taken) else { return held };
        free = rest;
    }
}
