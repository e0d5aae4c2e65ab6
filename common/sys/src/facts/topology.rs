//! The processors of this host as /sys/devices/system names them: the CPUs of each core, L3 cache, NUMA node and package.
//!
//! Each file names a whole group, and is read for the first CPU of the group only. A host with 256 CPUs has thousands of these files.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows them.
const SYSTEM: &str = "/sys/devices/system";
/// Kinds of cores on x86, as the drivers of their counters name them.
const KINDS: [&str; 3] = ["/sys/devices/cpu_core/cpus", "/sys/devices/cpu_atom/cpus", "/sys/devices/cpu_lowpower/cpus"];

/// The processors of a host. A list is empty where the kernel does not show that kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Processors {
    /// CPUs that the calling thread may use.
    pub allowed: Vec<u32>,
    /// CPUs that run.
    pub online: Vec<u32>,
    /// CPUs of each package.
    pub packages: Vec<Vec<u32>>,
    /// CPUs of each NUMA node that has some.
    pub numa_nodes: Vec<Vec<u32>>,
    /// The kernel's numbers of these nodes.
    pub numa_numbers: Vec<u32>,
    /// CPUs that share an L3 cache.
    pub l3_groups: Vec<Vec<u32>>,
    /// CPUs of each core.
    pub cores: Vec<Vec<u32>>,
    /// CPUs of each kind of core, where there are several.
    pub kinds: Vec<Vec<u32>>,
}

impl Processors {
    /// The CPUs of each package, NUMA node, L3 group, core and kind.
    #[must_use]
    pub fn groups(self) -> [Vec<Vec<u32>>; 5] {
        [self.packages, self.numa_nodes, self.l3_groups, self.cores, self.kinds]
    }
}

/// Reads the processors of this host.
#[must_use]
pub fn processors() -> Processors {
    let allowed = super::host::allowed_cpus();
    let kinds = KINDS.iter().filter_map(|path| list(Path::new(path))).collect();
    read(Path::new(SYSTEM), allowed, kinds)
}

/// Whether the cgroup of this process lets its threads run for less time than all its CPUs have.
#[must_use]
pub fn has_quota() -> bool {
    // The standard library reads cpu.max and cpu.cfs_quota_us; of the mask it takes what `cpus` counts.
    let usable = std::thread::available_parallelism().map_or(usize::MAX, std::num::NonZero::get);
    usable < super::host::cpus() as usize
}

fn read(root: &Path, allowed: Vec<u32>, kinds: Vec<Vec<u32>>) -> Processors {
    let cpu = |n: u32, rest: &str| root.join(format!("cpu/cpu{n}/{rest}"));
    let Some(online) = list(&root.join("cpu/online")) else {
        return Processors { allowed, ..Processors::default() };
    };
    let either = |n, names: [&str; 2]| names.iter().find_map(|name| list(&cpu(n, &format!("topology/{name}"))));
    let cores = groups(&online, |n| either(n, ["core_cpus_list", "thread_siblings_list"]));
    let packages = groups(&online, |n| either(n, ["package_cpus_list", "core_siblings_list"]));
    let firsts: Vec<u32> = cores.iter().filter_map(|core| core.first().copied()).collect();
    let l3_groups = groups(&firsts, |n| list(&l3(&cpu(n, "cache"))?.join("shared_cpu_list")));
    let kinds = if kinds.is_empty() { by_capacity(&cores, |n| number(&cpu(n, "cpu_capacity"))) } else { kinds };
    let kinds = if kinds.len() > 1 { kinds } else { Vec::new() };
    let (numa_numbers, numa_nodes) = numa_nodes(&root.join("node")).into_iter().unzip();
    Processors { numa_nodes, numa_numbers, allowed, online, packages, l3_groups, cores, kinds }
}

/// One group for each CPU that is in no group before; a CPU without one is left out.
fn groups(cpus: &[u32], of: impl Fn(u32) -> Option<Vec<u32>>) -> Vec<Vec<u32>> {
    let mut known = std::collections::HashSet::new();
    let mut all = Vec::new();
    for cpu in cpus {
        if !known.contains(cpu)
            && let Some(group) = of(*cpu)
        {
            known.extend(group.iter().copied());
            all.push(group);
        }
    }
    all
}

/// The directory of the L3 cache: nearly always the last of four.
fn l3(cache: &Path) -> Option<PathBuf> {
    let dirs = ["index3", "index2", "index4", "index1"].map(|name| cache.join(name));
    dirs.into_iter().find(|dir| number(&dir.join("level")) == Some(3))
}

/// The number and the CPUs of each node. Nodes with memory only have no CPUs, and are left out.
fn numa_nodes(dir: &Path) -> Vec<(u32, Vec<u32>)> {
    let numbers = list(&dir.join("online")).unwrap_or_default();
    numbers.into_iter().filter_map(|n| Some((n, list(&dir.join(format!("node{n}/cpulist")))?))).collect()
}

/// Arm's kernels, and newer ones of x86, rate cores.
fn by_capacity(cores: &[Vec<u32>], of: impl Fn(u32) -> Option<u32>) -> Vec<Vec<u32>> {
    let mut kinds: std::collections::BTreeMap<u32, Vec<u32>> = std::collections::BTreeMap::new();
    for core in cores {
        let Some(capacity) = core.first().and_then(|first| of(*first)) else { return Vec::new() };
        kinds.entry(capacity).or_default().extend(core);
    }
    kinds.into_values().collect()
}

fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A list such as `0-3,8` in a file; `None`: there is none.
pub(super) fn list(path: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(path).ok()?;
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?;
        // No kernel has more; a broken file costs no memory.
        all.extend(range.take(65_536));
    }
    Some(all)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A tree of files, each a path and its text.
    pub(in super::super) fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("rlaunch-topology-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        root
    }

    fn recorded(name: &str, allowed: &[u32], files: &[(&str, &str)]) -> Processors {
        let root = tree(name, files);
        let read = read(&root, allowed.to_vec(), Vec::new());
        fs::remove_dir_all(root).unwrap();
        read
    }

    #[test]
    fn groups_are_read_once_each() {
        let files = [
            ("cpu/online", "0-2,4"),
            ("cpu/cpu0/topology/core_cpus_list", "0,2"),
            ("cpu/cpu0/topology/package_cpus_list", "0-2"),
            ("cpu/cpu0/cache/index2/level", "2"),
            ("cpu/cpu0/cache/index3/level", "3"),
            ("cpu/cpu0/cache/index3/shared_cpu_list", "0-2"),
            ("cpu/cpu1/topology/thread_siblings_list", "1"),
            ("cpu/cpu4/topology/thread_siblings_list", "4"),
            ("cpu/cpu4/topology/core_siblings_list", "4"),
            ("node/online", "0-1,8"),
            ("node/node0/cpulist", ""),
            ("node/node1/cpulist", "0-2"),
            ("node/node8/cpulist", "4"),
        ];
        let read = recorded("groups", &[0, 1, 4], &files);
        assert_eq!((read.online, read.allowed), (vec![0, 1, 2, 4], vec![0, 1, 4]));
        assert_eq!(read.cores, [vec![0, 2], vec![1], vec![4]]);
        assert_eq!(read.packages, [vec![0, 1, 2], vec![4]]);
        assert_eq!((read.numa_numbers, read.numa_nodes), (vec![1, 8], vec![vec![0, 1, 2], vec![4]]));
        assert_eq!(read.l3_groups, [vec![0, 1, 2]]);
        assert!(read.kinds.is_empty());
    }

    #[test]
    fn arm_has_no_l3_and_rates_its_cores() {
        let rated = |big: &str| {
            let files = [
                ("cpu/online", "0-1"),
                ("cpu/cpu0/topology/core_cpus_list", "0"),
                ("cpu/cpu1/topology/core_cpus_list", "1"),
                ("cpu/cpu0/cpu_capacity", "446"),
                ("cpu/cpu1/cpu_capacity", big),
                ("cpu/cpu0/cache/index0/level", "1"),
            ];
            recorded(big, &[0, 1], &files)
        };
        assert_eq!((rated("1024").kinds, rated("1024").l3_groups), (vec![vec![0], vec![1]], Vec::<Vec<u32>>::new()));
        assert!(rated("446").kinds.is_empty(), "all are alike");
    }

    #[test]
    fn without_sys_only_the_allowed_cpus_are_known() {
        let read = read(Path::new("/no/such/directory"), vec![1, 3], Vec::new());
        assert_eq!(read, Processors { allowed: vec![1, 3], ..Processors::default() });
    }

    #[test]
    fn this_machine_is_as_cpuinfo_has_it() {
        let read = processors();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap();
        let values = |name: &str| {
            let of =
                |line: &str| line.strip_prefix(name)?.trim().strip_prefix(':').map(|value| value.trim().to_owned());
            info.lines().filter_map(of).collect::<Vec<String>>()
        };
        assert_eq!(read.online.len(), values("processor").len());
        let (packages, cores) = (values("physical id"), values("core id"));
        if !packages.is_empty() {
            let distinct = |all: Vec<String>| all.into_iter().collect::<std::collections::HashSet<_>>().len();
            let pairs = packages.iter().zip(cores).map(|(package, core)| format!("{package} {core}")).collect();
            assert_eq!((read.packages.len(), read.cores.len()), (distinct(packages.clone()), distinct(pairs)));
        }
        assert_eq!(read.allowed.len(), super::super::host::cpus() as usize);
        assert!(read.allowed.iter().all(|cpu| read.online.contains(cpu)));
    }
}
