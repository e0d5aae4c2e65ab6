//! The default: an even share of a host's cores for each rank.
//!
//! A share ends at the border of a package, a NUMA node or an L3 group, if that takes no core from the smallest share. Otherwise shares
//! cross borders and differ by one core at most.
//!
//! Ranks are left to the kernel where a fixed share could make them slower.
//!
//! One rank has all CPUs for itself.
//! More ranks than cores are balanced better by the kernel.
//! With a time limit for the container's CPUs (`cpu.max`) the kernel chooses how many CPUs work at a time.
//! Cores of several kinds make no equal shares.

use super::{Host, near};
use crate::topology::{Level, Topology};
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::cpu_set::CpuSet;

/// The units whose borders count, the largest first.
const BORDERS: [Level; 3] = [Level::Package, Level::Numa, Level::L3];

/// For each core the number of the unit that it is in, for each kind of border.
type Home = [usize; 3];

/// The shares of a host's ranks; none: ranks are not bound.
pub(super) fn of(host: Host<'_>) -> Vec<CpuSet> {
    let Host { topology, ranks, has_quota, .. } = host;
    if ranks < 2 || has_quota || topology.is_mixed() {
        return Vec::new();
    }
    near::of(host, None).or_else(|| within(topology, topology.allowed(), ranks as usize)).unwrap_or_default()
}

/// The shares of these CPUs. `None`: there are fewer cores than ranks.
pub(super) fn within(topology: &Topology, cpus: &CpuSet, ranks: usize) -> Option<Vec<CpuSet>> {
    let cores = topology.units_in(Level::Core, cpus);
    if ranks > cores.len() {
        return None;
    }
    let homes = homes(topology, &cores);
    let mut rest = cores.as_slice();
    let take = |size: usize| {
        let (own, others) = rest.split_at_checked(size)?;
        rest = others;
        Some(CpuSet::union(own))
    };
    Some(sizes(&homes, ranks, 0).into_iter().map_while(take).collect())
}

fn homes(topology: &Topology, cores: &[CpuSet]) -> Vec<Home> {
    let units = BORDERS.map(|level| topology.all(level));
    let home = |core: &CpuSet| units.map(|all| all.iter().position(|unit| !unit.and(core).is_empty()).unwrap_or(0));
    cores.iter().map(home).collect()
}

/// How many of these cores each rank gets, in their order; `depth`: the border that is looked at.
fn sizes(cores: &[Home], ranks: usize, depth: usize) -> Vec<usize> {
    let total = cores.len();
    if ranks < 2 {
        return vec![total];
    }
    if depth >= BORDERS.len() {
        let until = |rank: usize| rank.saturating_mul(total) / ranks;
        return (0..ranks).map(|rank| until(rank.saturating_add(1)).saturating_sub(until(rank))).collect();
    }
    let groups: Vec<&[Home]> = cores.chunk_by(|one, next| one.get(depth) == next.get(depth)).collect();
    let within = match groups.len() {
        1 => None,
        count if ranks >= count => by_group(&groups, ranks, depth),
        _ => Some(whole_groups(&groups, ranks)),
    };
    let is_even = |sizes: &Vec<usize>| sizes.iter().all(|size| *size >= total / ranks);
    within.filter(is_even).unwrap_or_else(|| sizes(cores, ranks, depth.saturating_add(1)))
}

/// Each group has some of the ranks, by its cores. `None`: one would have none, or too many.
fn by_group(groups: &[&[Home]], ranks: usize, depth: usize) -> Option<Vec<usize>> {
    let total: usize = groups.iter().map(|group| group.len()).sum();
    let (mut cores, mut placed, mut all) = (0_usize, 0_usize, Vec::new());
    for group in groups {
        cores = cores.saturating_add(group.len());
        let until = ranks.saturating_mul(cores).saturating_add(total / 2) / total.max(1);
        let own = until.saturating_sub(placed);
        if own == 0 || own > group.len() {
            return None;
        }
        all.extend(sizes(group, own, depth.saturating_add(1)));
        placed = until;
    }
    Some(all)
}

/// Each rank has some of the groups.
fn whole_groups(groups: &[&[Home]], ranks: usize) -> Vec<usize> {
    let until = |rank: usize| rank.saturating_mul(groups.len()) / ranks.max(1);
    let own = |rank: usize| groups.get(until(rank)..until(rank.saturating_add(1))).unwrap_or_default();
    (0..ranks).map(|rank| own(rank).iter().map(|group| group.len()).sum()).collect()
}
