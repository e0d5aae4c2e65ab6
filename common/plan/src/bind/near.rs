//! The cores near the GPUs of each rank.
//!
//! Ranks whose GPUs are near the same CPUs share these evenly. If less than half of an even share of the host's cores remained for a rank,
//! the packages of these CPUs are shared. If that is too little, or if ranks are near a part of the same CPUs, the GPUs do not matter.

use super::{Host, around, blocks, shares};
use crate::topology::Level;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::cpu_set::CpuSet;

/// The CPUs of each rank near its GPUs; `each`: so many units of this kind for every rank. `None`: the GPUs do not matter.
pub(super) fn of(host: Host<'_>, each: Option<(usize, Level)>) -> Option<Vec<CpuSet>> {
    let Host { topology, near, .. } = host;
    if near.is_empty() || near.len() != host.ranks as usize {
        return None;
    }
    let exact: Vec<CpuSet> = near.iter().map(|cpus| cpus.and(topology.allowed())).collect();
    let packages = || exact.iter().map(|cpus| around(topology, Level::Package, cpus)).collect::<Vec<_>>();
    share(host, &exact, each).or_else(|| share(host, &packages(), each))
}

/// Shares each set among the ranks that are near it. `None`: ranks would have too little, or share CPUs.
fn share(host: Host<'_>, sets: &[CpuSet], each: Option<(usize, Level)>) -> Option<Vec<CpuSet>> {
    let Host { topology, .. } = host;
    let least = topology.units(Level::Core).count() / sets.len().max(1) / 2;
    let mut masks = vec![CpuSet::default(); sets.len()];
    let mut taken = CpuSet::default();
    for set in sets.iter().collect::<BTreeSet<_>>() {
        if set.is_empty() || !set.and(&taken).is_empty() {
            return None;
        }
        taken.extend(set);
        let ranks = sets.iter().filter(|own| *own == set).count();
        let parts = match each {
            Some(each) => blocks(topology, set, each, ranks)?,
            None if topology.units_in(Level::Core, set).len() / ranks.max(1) < least => return None,
            None => shares::within(topology, set, ranks)?,
        };
        let own = masks.iter_mut().zip(sets).filter(|(_, own)| *own == set);
        own.zip(parts).for_each(|((mask, _), part)| *mask = part);
    }
    Some(masks)
}
