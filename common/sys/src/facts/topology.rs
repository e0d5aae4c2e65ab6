//! The processors of this host as /sys/devices/system names them: the CPUs of each core, L3 cache, NUMA node and package.
//!
//! Each file names a whole group, and is read for the first CPU of the group only. A host with 256 CPUs has thousands of these files.

use std::fs;
use std::path::{Path, PathBuf};

/// The directory in which the kernel shows them.
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
    /// Lists: the CPUs that may be used, the CPUs that run, and the kernel's numbers of the NUMA nodes. Groups: the CPUs of each package,
    /// NUMA node, L3 group, core and kind.
    #[must_use]
    pub fn into_parts(self) -> ([Vec<u32>; 3], [Vec<Vec<u32>>; 5]) {
        let lists = [self.allowed, self.online, self.numa_numbers];
        (lists, [self.packages, self.numa_nodes, self.l3_groups, self.cores, self.kinds])
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

    /// A host as a table of its CPUs: number, core, package, NUMA node, L3 cache, capacity; `-`: the kernel does not show it. A line
    /// of a number alone is an offline CPU. All CPUs may be used, if `allowed` names none.
    fn host(name: &str, allowed: &[u32], table: &str) -> Processors {
        let rows: Vec<Vec<&str>> = table.trim().lines().map(|line| line.split_whitespace().collect()).collect();
        let online: Vec<&Vec<&str>> = rows.iter().filter(|row| row.len() > 1).collect();
        let list = |at: usize, value: &str| {
            let own = online.iter().filter(|row| row[at] == value).map(|row| row[0]);
            own.collect::<Vec<_>>().join(",")
        };
        let all = online.iter().map(|row| row[0]).collect::<Vec<_>>().join(",");
        let mut files = vec![("cpu/online".to_owned(), all)];
        for row in &rows {
            // Its directory stays without a topology.
            files.push((format!("cpu/cpu{}/online", row[0]), u32::from(row.len() > 1).to_string()));
        }
        for row in &online {
            let mut add = |at: usize, path: &str, text: String| {
                if row[at] != "-" {
                    files.push((path.replace('N', row[0]).replace('V', row[at]), text));
                }
            };
            add(1, "cpu/cpuN/topology/core_cpus_list", list(1, row[1]));
            add(2, "cpu/cpuN/topology/package_cpus_list", list(2, row[2]));
            add(3, "node/nodeV/cpulist", list(3, row[3]));
            add(4, "cpu/cpuN/cache/index3/level", "3".into());
            add(4, "cpu/cpuN/cache/index3/shared_cpu_list", list(4, row[4]));
            add(5, "cpu/cpuN/cpu_capacity", row[5].into());
        }
        let mut nodes: Vec<&str> = online.iter().map(|row| row[3]).filter(|node| *node != "-").collect();
        nodes.sort_unstable();
        nodes.dedup();
        if !nodes.is_empty() {
            files.push(("node/online".into(), nodes.join(",")));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let numbers: Vec<u32> = online.iter().map(|row| row[0].parse().unwrap()).collect();
        recorded(name, if allowed.is_empty() { &numbers } else { allowed }, &files)
    }

    /// `0,4 1,5`: groups of CPUs.
    fn shown(groups: &[Vec<u32>]) -> String {
        let group = |cpus: &Vec<u32>| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        groups.iter().map(group).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn two_packages_with_two_threads_a_core() {
        let table =
            "0 0 0 0 0 -\n1 1 0 0 0 -\n2 2 1 1 1 -\n3 3 1 1 1 -\n4 0 0 0 0 -\n5 1 0 0 0 -\n6 2 1 1 1 -\n7 3 1 1 1 -";
        let read = host("smt", &[], table);
        assert_eq!(shown(&read.cores), "0,4 1,5 2,6 3,7");
        assert_eq!(shown(&read.packages), "0,1,4,5 2,3,6,7");
        assert_eq!((&read.numa_nodes, &read.l3_groups), (&read.packages, &read.packages));
        assert_eq!((read.numa_numbers, read.kinds), (vec![0, 1], Vec::<Vec<u32>>::new()));
    }

    #[test]
    fn eight_l3_groups_in_a_package() {
        let row = |cpu: u32| format!("{cpu} {cpu} 0 {} {} -\n", cpu / 8, cpu / 2);
        let read = host("l3", &[], &(0..16).map(row).collect::<String>());
        assert_eq!(shown(&read.l3_groups), "0,1 2,3 4,5 6,7 8,9 10,11 12,13 14,15");
        assert_eq!(shown(&read.numa_nodes), "0,1,2,3,4,5,6,7 8,9,10,11,12,13,14,15");
        assert_eq!((read.packages.len(), read.cores.len()), (1, 16));
    }

    #[test]
    fn arm_clusters_are_packages_of_cores_without_an_l3() {
        let row = |cpu: u32| format!("{cpu} {cpu} {} - - {}\n", cpu / 4, if cpu < 4 { 446 } else { 1024 });
        let read = host("arm", &[], &(0..8).map(row).collect::<String>());
        assert_eq!(shown(&read.packages), "0,1,2,3 4,5,6,7");
        assert_eq!(shown(&read.kinds), "0,1,2,3 4,5,6,7");
        assert!(read.l3_groups.is_empty() && read.numa_nodes.is_empty() && read.numa_numbers.is_empty());
    }

    #[test]
    fn hybrid_cores_are_of_two_kinds() {
        let read = host(
            "hybrid",
            &[],
            "0 0 0 0 0 1024\n1 0 0 0 0 1024\n2 1 0 0 0 1024\n3 1 0 0 0 1024\n4 2 0 0 0 576\n5 3 0 0 0 576",
        );
        assert_eq!((shown(&read.cores), shown(&read.kinds)), ("0,1 2,3 4 5".into(), "4,5 0,1,2,3".into()));
        assert_eq!(shown(&read.l3_groups), "0,1,2,3,4,5");
        let named = tree("named", &[("cpu/online", "0-2")]);
        let kinds = super::read(&named, vec![0], vec![vec![0, 1], vec![2]]).kinds;
        fs::remove_dir_all(named).unwrap();
        assert_eq!(shown(&kinds), "0,1 2", "as the drivers of the counters name them");
    }

    #[test]
    fn offline_cpus_are_in_no_group() {
        let read = host("offline", &[0, 2, 4], "0 0 0 0 0 -\n1\n2 2 0 0 0 -\n3\n4 0 0 0 0 -\n5 1 1 1 1 -");
        assert_eq!(read.online, [0, 2, 4, 5]);
        assert_eq!((shown(&read.cores), shown(&read.packages)), ("0,4 2 5".into(), "0,2,4 5".into()));
        assert_eq!(shown(&read.numa_nodes), "0,2,4 5");
    }

    #[test]
    fn cpuset_leaves_the_groups_of_the_host() {
        let read = host("cpuset", &[3], "0 0 0 0 0 -\n1 1 0 0 0 -\n2 2 1 2 1 -\n3 3 1 2 1 -");
        assert_eq!((read.allowed, read.online), (vec![3], vec![0, 1, 2, 3]));
        assert_eq!((shown(&read.packages), read.numa_numbers), ("0,1 2,3".into(), vec![0, 2]));
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
