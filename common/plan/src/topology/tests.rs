//! Trees of hosts.

use super::*;
use alloc::format;
use alloc::string::String;
use alloc::vec;

fn set(text: &str) -> CpuSet {
    if text.is_empty() { CpuSet::default() } else { CpuSet::parse(text).unwrap() }
}

fn sets(text: &str) -> Vec<CpuSet> {
    text.split_whitespace().map(set).collect()
}

/// The units of each level, as counts: packages, NUMA nodes, L3 groups, cores, threads that may be used.
fn counts(topology: &Topology) -> [u32; 5] {
    Level::ALL.map(|level| topology.count(level))
}

fn shown(topology: &Topology, level: Level) -> String {
    topology.units(level).map(|unit| format!("{unit} ")).collect()
}

/// Hosts with `packages` × `l3` × `cores` cores of two threads: thread 2 of core `n` is CPU `n + cores of all`.
pub(crate) fn smt(packages: u32, l3: u32, cores: u32) -> Facts {
    let all = packages * l3 * cores;
    let group = |size: u32| {
        let of = |n: u32| (n * size..(n + 1) * size).flat_map(|core| [core, core + all]).collect();
        (0..all / size).map(of).collect::<Vec<CpuSet>>()
    };
    let online: CpuSet = (0..2 * all).collect();
    Facts {
        allowed: online.clone(),
        online,
        packages: group(l3 * cores),
        numa_nodes: group(l3 * cores),
        numa_numbers: (0..packages).collect(),
        l3_groups: group(cores),
        cores: group(1),
        kinds: Vec::new(),
    }
}

#[test]
fn two_packages_with_two_threads_a_core() {
    let topology = Topology::new(&smt(2, 1, 4));
    assert_eq!(counts(&topology), [2, 2, 2, 8, 16]);
    assert_eq!(shown(&topology, Level::Package), "0-3,8-11 4-7,12-15 ");
    assert_eq!(shown(&topology, Level::Core), "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15 ");
    assert_eq!(
        topology.units(Level::Hwthread).map(|cpu| cpu.iter().next().unwrap()).collect::<Vec<_>>()[..4],
        [0, 8, 1, 9]
    );
}

#[test]
fn cpus_that_alternate_between_packages() {
    let facts = Facts { packages: sets("1,3 0,2"), allowed: set("0-3"), online: set("0-3"), ..Facts::default() };
    let topology = Topology::new(&facts);
    assert_eq!(shown(&topology, Level::Core), "0 2 1 3 ", "cores follow each other as in the tree");
}

#[test]
fn eight_l3_groups_in_a_package() {
    assert_eq!(counts(&Topology::new(&smt(1, 8, 8))), [1, 1, 8, 64, 128]);
}

#[test]
fn arm_without_l3_has_one_group_for_each_numa_node() {
    let facts = Facts {
        allowed: set("0-7"),
        online: set("0-7"),
        packages: sets("0-7"),
        numa_nodes: sets("0-3 4-7"),
        cores: (0..8).map(CpuSet::of).collect(),
        ..Facts::default()
    };
    let topology = Topology::new(&facts);
    assert_eq!(counts(&topology), [1, 2, 2, 8, 8]);
    assert_eq!(shown(&topology, Level::L3), "0-3 4-7 ");
}

#[test]
fn hybrid_cores_are_mixed_where_both_kinds_may_be_used() {
    let facts = Facts {
        allowed: set("0-19"),
        online: set("0-19"),
        packages: sets("0-19"),
        l3_groups: sets("0-19"),
        cores: sets("0,1 2,3 4,5 6,7 8,9 10,11 12 13 14 15 16 17 18 19"),
        kinds: sets("0-11 12-19"),
        ..Facts::default()
    };
    let topology = Topology::new(&facts);
    assert_eq!((counts(&topology), topology.is_mixed()), ([1, 1, 1, 14, 20], true));
    assert!(!Topology::new(&Facts { allowed: set("0-11"), ..facts }).is_mixed());
}

#[test]
fn offline_cpus_are_in_no_unit() {
    let facts = Facts { online: set("0-2,4-11,13-15"), ..smt(2, 1, 4) };
    let topology = Topology::new(&facts);
    assert_eq!(counts(&topology), [2, 2, 2, 8, 14], "of core 3 and of core 4 one thread each is off");
    let facts = Facts { online: set("0-2,4-10,12-15"), ..smt(2, 1, 4) };
    assert_eq!(counts(&Topology::new(&facts)), [2, 2, 2, 7, 14], "core 3 is off");
    assert!(!Topology::new(&facts).allowed().contains(3));
}

#[test]
fn a_cpuset_leaves_a_part_of_the_units() {
    let topology = Topology::new(&Facts { allowed: set("2,3,6,18,19,22"), ..smt(2, 2, 4) });
    assert_eq!(counts(&topology), [1, 1, 2, 3, 6]);
    assert_eq!(shown(&topology, Level::L3), "2-3,18-19 6,22 ");
    assert_eq!(topology.all(Level::Core).len(), 16, "cores are counted through the whole host");
    assert_eq!(topology.units_in(Level::Core, &set("3,6")), sets("3 6"));
}

#[test]
fn memory_is_that_of_the_only_numa_node_of_the_cpus() {
    let topology = Topology::new(&Facts { numa_numbers: vec![0, 8], ..smt(2, 1, 4) });
    let of = |cpus| topology.memory_of(&set(cpus));
    assert_eq!(
        [of("4-7,12-15"), of("12"), of("0"), of("3-4"), of("16"), of("")],
        [Some(8), Some(8), Some(0), None, None, None]
    );
    assert_eq!(Topology::new(&smt(1, 2, 2)).memory_of(&set("0")), None, "there is no other node");
    assert_eq!(Topology::flat(set("0-1")).memory_of(&set("0")), None);
}

#[test]
fn numa_nodes_are_reported_by_the_kernels_numbers_and_cores_by_their_places() {
    let topology = Topology::new(&Facts { numa_numbers: vec![0, 8], ..smt(2, 1, 4) });
    let of = |cpus| (topology.numbers_in(Level::Core, &set(cpus)), topology.numbers_in(Level::Numa, &set(cpus)));
    assert_eq!(of("4-5,12-13"), (set("4-5"), set("8")));
    assert_eq!(of("3-4"), (set("3-4"), set("0,8")));
    assert_eq!(of(""), (set(""), set("")));
    let unknown = Topology::new(&Facts { numa_numbers: Vec::new(), ..smt(2, 1, 4) });
    assert_eq!(unknown.numbers_in(Level::Numa, &set("4-5")), set("1"), "counted through the host");
}

#[test]
fn facts_keep_the_kernels_numbers_of_numa_nodes() {
    let nodes = || vec![vec![0, 1], vec![2, 3]];
    let cores = (0..4).map(|cpu| vec![cpu]).collect();
    let all: Vec<u32> = (0..4).collect();
    let facts = Facts::of([all.clone(), all, vec![1, 8]], [nodes(), nodes(), nodes(), cores, Vec::new()]);
    assert_eq!(facts.numa_numbers, [1, 8]);
    assert_eq!(facts.numa_nodes, sets("0-1 2-3"));
    assert_eq!(Topology::new(&facts).numbers_in(Level::Numa, &set("2")), set("8"));
}

#[test]
fn without_facts_each_cpu_is_a_core() {
    let topology = Topology::flat(set("1,5"));
    assert_eq!((counts(&topology), topology.allowed()), ([1, 1, 1, 2, 2], &set("1,5")));
}

#[test]
fn units_end_at_the_border_of_the_unit_above() {
    let facts = Facts {
        allowed: set("0-7"),
        online: set("0-7"),
        packages: sets("0-7"),
        numa_nodes: sets("0-3 4-7"),
        l3_groups: sets("0-7"),
        ..Facts::default()
    };
    assert_eq!(shown(&Topology::new(&facts), Level::L3), "0-3 4-7 ");
    let overlapping = Facts { packages: vec![set("0-5"), set("3-7")], numa_nodes: Vec::new(), ..facts };
    assert_eq!(shown(&Topology::new(&overlapping), Level::Package), "0-5 6-7 ");
}
