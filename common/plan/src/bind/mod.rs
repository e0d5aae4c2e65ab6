//! Which CPUs each rank of a host may use: a pure decision about the host's [`Topology`] and the options of the job.
//!
//! Ranks are bound by their local rank, which is the order in which they were mapped to the host. A placement that maps ranks to units
//! below the host (`--map-by numa`) therefore needs no further word to the agent: both compute the same unit from the local rank.

mod beside;
mod bind_error;
mod near;
mod news;
mod shares;
#[cfg(test)]
mod tests;

pub use bind_error::BindError;
pub use news::BindingNews;

use crate::topology::{Level, Topology};
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::cpu_set::CpuSet;
use rlaunch_base::id::Rank;
use serde::{Deserialize, Serialize};

/// `--bind-to`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum BindTo {
    /// The default: each rank has an even share of the cores.
    #[default]
    Share,
    /// Ranks may use all CPUs that rlaunch may use.
    None,
    /// Each rank has a unit of this kind.
    Unit(Level),
    /// The CPUs of each local rank; the list begins again where there are more ranks.
    Lists(Vec<CpuList>),
}

/// CPUs as the user names them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CpuList {
    /// By the kernel's numbers.
    Cpus(Vec<u32>),
    /// Cores, counted through the host.
    Cores(Vec<u32>),
    /// Cores, counted within a package.
    OfPackage {
        /// The package.
        package: u32,
        /// Its cores.
        cores: Vec<u32>,
    },
    /// A number of cores, after the cores of the ranks before it. A kind of unit widens them to whole units of it.
    Next(u32, Option<Level>),
}

/// How the ranks of a host are spread over its units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Spread {
    /// In blocks of equal size, one for each unit.
    #[default]
    Blocks,
    /// Each unit gets a rank in turn.
    Deal(Level),
    /// As many to a unit as it has cores, then to the next.
    Fill,
    /// Each unit gets this number of ranks.
    Each(u32, Level),
}

/// The options about binding.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bind {
    /// `--bind-to`.
    pub to: BindTo,
    /// `--map-by`, as far as it is about units below a host.
    pub spread: Spread,
    /// `--cpus-per-rank`: cores of each rank.
    pub cores: Option<u32>,
    /// The CPUs that a scheduler counts for each task: cores or hardware threads, by its configuration.
    pub task_cpus: Option<u32>,
    /// Hardware threads are counted, not cores.
    pub threads: bool,
    /// `--report-bindings`.
    pub report: bool,
}

/// The CPUs of the ranks of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bound {
    /// By local rank; none: ranks are not bound.
    pub masks: Vec<CpuSet>,
    /// Why they are not, where the user has asked for units.
    pub unbound: Option<Unbound>,
}

/// Ranks that were to have a unit each, and are more than there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unbound {
    /// Ranks of the host.
    pub ranks: u32,
    /// Units that may be used.
    pub units: u32,
    /// Their kind.
    #[serde(rename = "unit")]
    pub level: Level,
}

/// A host, as far as binding is about it.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Its processors.
    pub topology: &'a Topology,
    /// Its ranks.
    pub ranks: u32,
    /// Its ranks get less time than their CPUs have.
    pub has_quota: bool,
    /// The CPUs near the GPUs of each rank, by local rank; none: unknown.
    pub near: &'a [CpuSet],
}

impl Bind {
    /// The fewest CPUs of a host with so many ranks for which its topology is needed; `None`: it never is.
    #[must_use]
    pub fn least_cpus(&self, ranks: u32) -> Option<u32> {
        match (&self.to, self.spread) {
            _ if self.report => Some(0),
            (BindTo::None, _) => None,
            (BindTo::Share, Spread::Blocks | Spread::Fill) if self.cores.or(self.task_cpus).is_none() => {
                Some(ranks).filter(|n| *n > 1)
            }
            (BindTo::Share | BindTo::Unit(_) | BindTo::Lists(_), _) => Some(0),
        }
    }

    /// The CPUs of each rank of a host.
    ///
    /// # Errors
    /// The host has fewer cores than were asked for, or a core that was named cannot be used.
    pub fn ranks_of(&self, host: Host<'_>) -> Result<Bound, BindError> {
        let Host { topology, ranks, .. } = host;
        let bound = |masks| Ok(Bound { masks, unbound: None });
        if ranks == 0 || topology.allowed().is_empty() {
            return bound(Vec::new());
        }
        match (&self.to, self.spread, self.cores) {
            (BindTo::None, _, _) => bound(Vec::new()),
            (BindTo::Lists(lists), _, _) => {
                let mut left = self.counted_units(topology);
                let masks = lists.iter().map(|list| match list {
                    CpuList::Next(each, unit) => {
                        let cores = next_of(&mut left, *each).ok_or_else(|| self.too_few_in_all(host, lists))?;
                        Ok(unit.map_or_else(|| cores.clone(), |unit| around(topology, unit, &cores)))
                    }
                    CpuList::Cpus(_) | CpuList::Cores(_) | CpuList::OfPackage { .. } => list.mask(topology),
                });
                let masks = masks.collect::<Result<Vec<_>, _>>()?;
                bound(masks.into_iter().cycle().take(ranks as usize).collect())
            }
            (BindTo::Share | BindTo::Unit(_), _, Some(each)) => bound(self.packed(host, each)?),
            (BindTo::Unit(level), _, None) => Ok(self.units(host, *level)),
            (BindTo::Share, Spread::Deal(level) | Spread::Each(_, level), None) => Ok(self.units(host, level)),
            (BindTo::Share, Spread::Blocks | Spread::Fill, None) => {
                bound(self.of_tasks(host).unwrap_or_else(|| shares::of(host)))
            }
        }
    }

    /// The CPUs that a scheduler counts for each task: cores where all ranks find so many, else the cores of so many hardware threads.
    /// `None`: it counts none, there are fewer, or ranks are better left to the kernel.
    fn of_tasks(&self, host: Host<'_>) -> Option<Vec<CpuSet>> {
        let Host { topology, ranks, has_quota, .. } = host;
        let cpus = self.task_cpus.filter(|_| !has_quota && !topology.is_mixed())?.max(1);
        let threads = (topology.count(Level::Hwthread) / topology.count(Level::Core).max(1)).max(1);
        let of = |cores: u32| {
            let each = (cores as usize, Level::Core);
            near::of(host, Some(each)).or_else(|| blocks(topology, topology.allowed(), each, ranks as usize))
        };
        of(cpus).or_else(|| of(cpus.div_ceil(threads)))
    }

    /// A unit for each rank.
    fn units(&self, host: Host<'_>, level: Level) -> Bound {
        let Host { topology, ranks, .. } = host;
        let place = match self.spread {
            Spread::Deal(place) | Spread::Each(_, place) => place,
            Spread::Blocks | Spread::Fill => level,
        };
        let objects: Vec<CpuSet> = topology.units(place).collect();
        let mut used = vec![0_usize; objects.len()];
        let mut masks = Vec::new();
        for at in self.positions(topology, &objects, ranks) {
            let (Some(object), Some(before)) = (objects.get(at), used.get_mut(at)) else { continue };
            // A unit within the object is one rank's alone; of a larger one ranks may share.
            let mask = match level {
                Level::Core | Level::Hwthread => topology.units_in(level, object).into_iter().nth(*before),
                Level::Package | Level::Numa | Level::L3 if level > place => {
                    let own = topology.units_in(level, object);
                    own.get(*before % own.len().max(1)).cloned()
                }
                Level::Package | Level::Numa | Level::L3 => Some(around(topology, level, object)),
            };
            *before = before.saturating_add(1);
            match mask {
                Some(mask) => masks.push(mask),
                None => {
                    let unbound = Some(Unbound { ranks, units: topology.count(level), level });
                    return Bound { masks: Vec::new(), unbound };
                }
            }
        }
        Bound { masks, unbound: None }
    }

    /// The unit of each rank.
    fn positions(&self, topology: &Topology, objects: &[CpuSet], ranks: u32) -> Vec<usize> {
        let (count, ranks) = (objects.len().max(1), ranks as usize);
        match self.spread {
            Spread::Deal(_) => (0..ranks).map(|n| n % count).collect(),
            Spread::Each(each, _) => (0..ranks).map(|n| n / (each.max(1) as usize) % count).collect(),
            Spread::Blocks => {
                let size = |at: usize| ranks / count + usize::from(at < ranks % count);
                (0..count).flat_map(|at| (0..size(at)).map(move |_| at)).collect()
            }
            Spread::Fill => {
                let unit = self.counted();
                let size = |object| topology.units_in(unit, object).len();
                let once: Vec<usize> =
                    objects.iter().enumerate().flat_map(|(at, object)| (0..size(object)).map(move |_| at)).collect();
                once.into_iter().cycle().take(ranks).collect()
            }
        }
    }

    /// Each rank gets this number of cores, side by side. No rank's cores cross the border of an L3 group, a NUMA node or a package where all
    /// ranks find room without that.
    fn packed(&self, host: Host<'_>, each: u32) -> Result<Vec<CpuSet>, BindError> {
        let Host { topology, ranks, .. } = host;
        let unit = self.counted();
        let (size, wanted) = (each.max(1) as usize, ranks as usize);
        let too_few = || self.too_few(host, each);
        let masks = match self.spread {
            Spread::Deal(place @ (Level::Package | Level::Numa | Level::L3))
            | Spread::Each(_, place @ (Level::Package | Level::Numa | Level::L3)) => {
                let objects: Vec<CpuSet> = topology.units(place).collect();
                let mut left: Vec<_> =
                    objects.iter().map(|object| chunks(topology, object, (size, unit)).into_iter()).collect();
                let next = |at: usize| left.get_mut(at)?.next();
                let found: Option<Vec<CpuSet>> =
                    self.positions(topology, &objects, ranks).into_iter().map(next).collect();
                found.ok_or_else(too_few)?
            }
            Spread::Deal(Level::Core | Level::Hwthread)
            | Spread::Each(_, Level::Core | Level::Hwthread)
            | Spread::Blocks
            | Spread::Fill => {
                let near = if self.to == BindTo::Share { near::of(host, Some((size, unit))) } else { None };
                let all = || blocks(topology, topology.allowed(), (size, unit), wanted);
                near.or_else(all).ok_or_else(too_few)?
            }
        };
        Ok(match self.to {
            BindTo::Unit(level @ (Level::Package | Level::Numa | Level::L3)) => {
                masks.iter().map(|mask| around(topology, level, mask)).collect()
            }
            BindTo::Unit(Level::Core | Level::Hwthread) | BindTo::Share | BindTo::None | BindTo::Lists(_) => masks,
        })
    }

    fn too_few(&self, Host { topology, ranks, .. }: Host<'_>, each: u32) -> BindError {
        let unit = self.counted();
        BindError::TooFewCores { each, ranks, has: topology.count(unit), unit }
    }

    fn too_few_in_all(&self, Host { topology, ranks, .. }: Host<'_>, lists: &[CpuList]) -> BindError {
        let own = |list: &CpuList| if let CpuList::Next(each, _) = list { *each } else { 0 };
        let unit = self.counted();
        let cores = lists.iter().map(own).fold(0, u32::saturating_add);
        BindError::TooFewInAll { cores, ranks, has: topology.count(unit), unit }
    }

    /// The units of a host that `--cpus-per-rank` counts.
    fn counted_units(&self, topology: &Topology) -> alloc::vec::IntoIter<CpuSet> {
        topology.units_in(self.counted(), topology.allowed()).into_iter()
    }

    /// The unit that `--cpus-per-rank` counts.
    fn counted(&self) -> Level {
        if self.threads || self.to == BindTo::Unit(Level::Hwthread) { Level::Hwthread } else { Level::Core }
    }
}

/// The next units; `None`: fewer are left.
fn next_of(left: &mut alloc::vec::IntoIter<CpuSet>, each: u32) -> Option<CpuSet> {
    let own: Vec<CpuSet> = left.by_ref().take(each as usize).collect();
    (own.len() == each as usize).then(|| CpuSet::union(own.iter()))
}

/// Blocks of so many units side by side, within these CPUs. `None`: there are fewer than are wanted.
fn blocks(topology: &Topology, within: &CpuSet, each: (usize, Level), wanted: usize) -> Option<Vec<CpuSet>> {
    let of = |level| topology.units_in(level, within).iter().flat_map(|part| chunks(topology, part, each)).collect();
    let levels: [Vec<CpuSet>; 3] = [Level::L3, Level::Numa, Level::Package].map(of);
    let fits = levels.into_iter().chain([chunks(topology, within, each)]).find(|all| all.len() >= wanted)?;
    Some(fits.into_iter().take(wanted).collect())
}

fn chunks(topology: &Topology, within: &CpuSet, (size, unit): (usize, Level)) -> Vec<CpuSet> {
    topology.units_in(unit, within).chunks_exact(size.max(1)).map(CpuSet::union).collect()
}

/// All units of a kind that have some of these CPUs.
fn around(topology: &Topology, level: Level, cpus: &CpuSet) -> CpuSet {
    let mut all = CpuSet::default();
    topology.units(level).filter(|unit| !unit.and(cpus).is_empty()).for_each(|unit| all.extend(&unit));
    all
}

impl Bind {
    /// Whether the processors of a host, with this number of CPUs, decide where so many ranks are bound.
    #[must_use]
    pub fn needs_topology(&self, ranks: u32, cpus: u32) -> bool {
        self.least_cpus(ranks).is_some_and(|least| cpus >= least || cpus == 1)
    }

    /// The binding of some ranks, those of a host, where the CPUs of each rank of the job are listed.
    #[must_use]
    pub fn of_ranks(&self, lists: &[CpuList], ranks: impl Iterator<Item = Rank>) -> Self {
        let own: Vec<CpuList> = ranks.filter_map(|rank| lists.get(rank.index()).cloned()).collect();
        if own.is_empty() {
            return self.clone();
        }
        Self { threads: self.counted() == Level::Hwthread, to: BindTo::Lists(own), ..self.clone() }
    }
}

impl CpuList {
    /// Its CPUs on a host.
    fn mask(&self, topology: &Topology) -> Result<CpuSet, BindError> {
        let pick = |units: &[CpuSet], level: Level, numbers: &[u32]| {
            let mut mask = CpuSet::default();
            for number in numbers {
                let none =
                    || BindError::NoSuch { level, number: *number, count: u32::try_from(units.len()).unwrap_or(0) };
                let unit = units.get(*number as usize).ok_or_else(none)?.and(topology.allowed());
                if unit.is_empty() {
                    return Err(BindError::not_allowed(level, *number, topology.allowed()));
                }
                mask.extend(&unit);
            }
            Ok(mask)
        };
        match self {
            // Found for all ranks of a host together.
            Self::Next(..) => Ok(CpuSet::default()),
            Self::Cores(numbers) => pick(topology.all(Level::Core), Level::Core, numbers),
            Self::OfPackage { package, cores } => {
                let packages = topology.all(Level::Package);
                let (number, count) = (*package, u32::try_from(packages.len()).unwrap_or(0));
                let none = BindError::NoSuch { level: Level::Package, number, count };
                let package = packages.get(number as usize).ok_or(none)?;
                let own: Vec<CpuSet> =
                    topology.all(Level::Core).iter().filter(|core| !core.and(package).is_empty()).cloned().collect();
                pick(&own, Level::Core, cores)
            }
            Self::Cpus(numbers) => {
                let online = CpuSet::union(topology.all(Level::Hwthread));
                let mask: CpuSet = numbers.iter().copied().collect();
                if let Some(cpu) = numbers.iter().find(|cpu| !online.contains(**cpu)) {
                    return Err(BindError::offline(*cpu, &online));
                }
                match numbers.iter().find(|cpu| !topology.allowed().contains(**cpu)) {
                    Some(cpu) => Err(BindError::not_allowed(Level::Hwthread, *cpu, topology.allowed())),
                    None => Ok(mask),
                }
            }
        }
    }
}
