//! The processors of a host as a tree: packages, NUMA nodes, L3 groups, cores, hardware threads.
//!
//! The facts come from the kernel as sets of CPUs, and may be incomplete or overlap. Here each unit ends at the border of the unit
//! above, and a unit that the kernel does not name is as large as the unit above. Offline CPUs are in no unit. CPUs that the host has
//! and that this process may not use stay in the tree: users count cores through the whole host.

#[cfg(test)]
pub(crate) mod tests;

use alloc::vec::Vec;
use rlaunch_base::cpu_set::CpuSet;
use serde::{Deserialize, Serialize};

/// A kind of unit, the largest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// A package: what is in one socket.
    Package,
    /// The CPUs that are nearest to one part of the memory.
    Numa,
    /// The CPUs that share an L3 cache.
    L3,
    /// A core.
    Core,
    /// A hardware thread: what the kernel calls a CPU.
    Hwthread,
}

impl Level {
    /// All of them, the largest first.
    pub const ALL: [Self; 5] = [Self::Package, Self::Numa, Self::L3, Self::Core, Self::Hwthread];

    /// Its word in options.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::Numa => "numa",
            Self::L3 => "l3",
            Self::Core => "core",
            Self::Hwthread => "hwthread",
        }
    }
}

/// The facts about a host's processors, as its kernel names them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// CPUs that this process may use.
    pub allowed: CpuSet,
    /// CPUs that run.
    pub online: CpuSet,
    /// CPUs of each package.
    pub packages: Vec<CpuSet>,
    /// CPUs of each NUMA node.
    pub numa_nodes: Vec<CpuSet>,
    /// The kernel's numbers of these nodes; none: unknown.
    pub numa_numbers: Vec<u32>,
    /// CPUs that share an L3 cache.
    pub l3_groups: Vec<CpuSet>,
    /// CPUs of each core.
    pub cores: Vec<CpuSet>,
    /// CPUs of each kind, where the host has several: cores for performance and cores for efficiency.
    pub kinds: Vec<CpuSet>,
}

impl Facts {
    /// The facts from numbers. Lists: the CPUs that may be used, the CPUs that run, and the kernel's numbers of the NUMA nodes. Groups: the
    /// CPUs of each package, NUMA node, L3 group, core and kind.
    #[must_use]
    pub fn of([allowed, online, numa_numbers]: [Vec<u32>; 3], groups: [Vec<Vec<u32>>; 5]) -> Self {
        let set = |cpus: Vec<u32>| cpus.into_iter().collect::<CpuSet>();
        let [packages, numa_nodes, l3_groups, cores, kinds] =
            groups.map(|all| all.into_iter().map(set).collect::<Vec<_>>());
        let (allowed, online) = (set(allowed), set(online));
        Self { allowed, online, packages, numa_nodes, numa_numbers, l3_groups, cores, kinds }
    }
}

/// The tree of a host's processors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    allowed: CpuSet,
    packages: Vec<CpuSet>,
    numa_nodes: Vec<CpuSet>,
    l3_groups: Vec<CpuSet>,
    cores: Vec<CpuSet>,
    threads: Vec<CpuSet>,
    /// The kernel's number and the CPUs of each NUMA node.
    memory: Vec<(u32, CpuSet)>,
    is_mixed: bool,
}

impl Topology {
    /// The tree of these facts.
    #[must_use]
    pub fn new(facts: &Facts) -> Self {
        // Without facts about CPUs those that may be used are all that is known.
        let online = if facts.online.is_empty() { facts.allowed.clone() } else { facts.online.clone() };
        let allowed = facts.allowed.and(&online);
        let packages = split(&[online], &facts.packages);
        let numa_nodes = split(&packages, &facts.numa_nodes);
        let l3_groups = split(&numa_nodes, &facts.l3_groups);
        let cores = if facts.cores.is_empty() { singles(&l3_groups) } else { split(&l3_groups, &facts.cores) };
        let threads = singles(&cores);
        let kinds = facts.kinds.iter().filter(|kind| !kind.and(&allowed).is_empty()).count();
        let memory = facts.numa_numbers.iter().copied().zip(facts.numa_nodes.iter().cloned()).collect();
        Self { allowed, packages, numa_nodes, l3_groups, cores, threads, memory, is_mixed: kinds > 1 }
    }

    /// CPUs without any structure: each is a core.
    #[must_use]
    pub fn flat(allowed: CpuSet) -> Self {
        Self::new(&Facts { allowed, ..Facts::default() })
    }

    /// The same host for a job that must not use these CPUs.
    #[must_use]
    pub fn without(&self, cpus: &CpuSet) -> Self {
        Self { allowed: self.allowed.without(cpus), ..self.clone() }
    }

    /// CPUs that this process may use.
    #[must_use]
    pub const fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// All units of a kind that the host has, in the order of the tree.
    #[must_use]
    pub fn all(&self, level: Level) -> &[CpuSet] {
        match level {
            Level::Package => &self.packages,
            Level::Numa => &self.numa_nodes,
            Level::L3 => &self.l3_groups,
            Level::Core => &self.cores,
            Level::Hwthread => &self.threads,
        }
    }

    /// The numbers of the units of a kind that have some of these CPUs. NUMA nodes have the kernel's numbers where these are known. Other
    /// units are counted through the host, in the order of the tree.
    #[must_use]
    pub fn numbers_in(&self, level: Level, cpus: &CpuSet) -> CpuSet {
        let has_some = |unit: &CpuSet| !unit.and(cpus).is_empty();
        if level == Level::Numa && !self.memory.is_empty() {
            return self.memory.iter().filter(|(_, node)| has_some(node)).map(|(number, _)| *number).collect();
        }
        self.all(level).iter().zip(0..).filter(|(unit, _)| has_some(unit)).map(|(_, number)| number).collect()
    }

    /// The units of a kind with CPUs that may be used, and only these CPUs of them.
    pub fn units(&self, level: Level) -> impl Iterator<Item = CpuSet> + '_ {
        self.all(level).iter().map(|unit| unit.and(&self.allowed)).filter(|unit| !unit.is_empty())
    }

    /// The units of a kind within these CPUs, as far as they may be used.
    #[must_use]
    pub fn units_in(&self, level: Level, within: &CpuSet) -> Vec<CpuSet> {
        self.units(level).map(|unit| unit.and(within)).filter(|unit| !unit.is_empty()).collect()
    }

    /// How many units of a kind may be used.
    #[must_use]
    pub fn count(&self, level: Level) -> u32 {
        u32::try_from(self.units(level).count()).unwrap_or(u32::MAX)
    }

    /// The kernel's number of the NUMA node that has all these CPUs. `None`: CPUs of several nodes, or the only node of the host.
    #[must_use]
    pub fn memory_of(&self, cpus: &CpuSet) -> Option<u32> {
        let has_all = |(_, node): &&(u32, CpuSet)| !cpus.is_empty() && cpus.without(node).is_empty();
        self.memory.iter().find(has_all).filter(|_| self.memory.len() > 1).map(|(number, _)| *number)
    }

    /// How many CPUs of the host run, whether they may be used or not.
    #[must_use]
    pub fn count_online(&self) -> u32 {
        u32::try_from(self.threads.len()).unwrap_or(u32::MAX)
    }

    /// Whether cores of several kinds may be used: equal shares of them do not work equally fast.
    #[must_use]
    pub const fn is_mixed(&self) -> bool {
        self.is_mixed
    }
}

/// The parts of each unit in the order of their first CPU. CPUs in no part are one part together.
fn split(units: &[CpuSet], parts: &[CpuSet]) -> Vec<CpuSet> {
    let of_unit = |unit: &CpuSet| {
        let mut rest = unit.clone();
        let mut own = Vec::new();
        for part in parts {
            let part = part.and(&rest);
            rest = rest.without(&part);
            own.push(part);
        }
        own.push(rest);
        own.retain(|part| !part.is_empty());
        own.sort_by_key(|part| part.iter().next());
        own
    };
    units.iter().flat_map(of_unit).collect()
}

fn singles(units: &[CpuSet]) -> Vec<CpuSet> {
    units.iter().flat_map(|unit| unit.iter().map(CpuSet::of)).collect()
}
