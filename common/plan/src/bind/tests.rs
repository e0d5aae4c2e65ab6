//! The CPUs of ranks.

use super::*;
use crate::topology::Facts;
use crate::topology::tests::smt;
use alloc::format;
use alloc::string::{String, ToString};
use rlaunch_base::error::Hint as _;

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

/// The masks of ranks, separated by blanks.
fn shown(bind: &Bind, facts: &Facts, ranks: u32, has_quota: bool) -> String {
    shown_near(bind, facts, ranks, has_quota, &[])
}

fn shown_near(bind: &Bind, facts: &Facts, ranks: u32, has_quota: bool, near: &[CpuSet]) -> String {
    match bind.ranks_of(Host { topology: &Topology::new(facts), ranks, has_quota, near }) {
        Ok(Bound { unbound: Some(Unbound { ranks, units, level }), .. }) => format!("{ranks} on {units} {level:?}"),
        Ok(Bound { masks, .. }) => masks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        Err(error) => format!("{error} ({})", error.hint().unwrap_or_default()),
    }
}

fn flat(cpus: &str) -> Facts {
    Facts { allowed: set(cpus), ..Facts::default() }
}

fn share(facts: &Facts, ranks: u32) -> String {
    shown(&Bind::default(), facts, ranks, false)
}

#[test]
fn default_is_an_even_share() {
    for (ranks, expected) in [
        (1, ""),
        (2, "0-3,8-11 4-7,12-15"),
        (3, "0-1,8-9 2-3,10-11 4-7,12-15"),
        (4, "0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15"),
        (5, "0,8 1,9 2-3,10-11 4-5,12-13 6-7,14-15"),
        (8, "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15"),
        (9, ""),
    ] {
        assert_eq!(share(&smt(2, 1, 4), ranks), expected, "{ranks}");
    }
    assert_eq!(share(&flat("0,2,4,6-7"), 2), "0,2 4,6-7");
    assert_eq!(share(&flat("3"), 2), "");
}

#[test]
fn shares_end_at_borders_where_no_rank_loses_a_core() {
    // Two packages with two L3 groups of four cores each.
    let facts = smt(2, 2, 4);
    assert_eq!(share(&facts, 4), "0-3,16-19 4-7,20-23 8-11,24-27 12-15,28-31");
    assert_eq!(share(&facts, 3), "0-4,16-20 5-9,21-25 10-15,26-31", "whole groups would give one rank four cores");
    let odd = Facts { allowed: set("0-2,4-6"), ..smt(2, 1, 4) };
    assert_eq!(share(&odd, 3), "0-1 2,4 5-6", "2 and 1 ranks would give one rank a single core");
}

#[test]
fn ranks_are_left_to_the_kernel_where_shares_could_slow_them() {
    let facts = smt(1, 1, 4);
    assert_eq!(shown(&Bind::default(), &facts, 2, true), "", "a quota");
    let hybrid = Facts { kinds: [set("0-1,4-5"), set("2-3,6-7")].into(), ..facts };
    assert_eq!(share(&hybrid, 2), "", "cores of two kinds");
    assert_eq!(shown(&to(BindTo::None), &smt(1, 1, 4), 2, false), "");
}

#[test]
fn shares_on_hosts_of_many_shapes() {
    // Eight L3 groups of two cores in two NUMA nodes.
    let mut epyc = smt(1, 8, 2);
    epyc.numa_nodes = ["0-7,16-23", "8-15,24-31"].map(set).into();
    assert_eq!(share(&epyc, 4), "0-3,16-19 4-7,20-23 8-11,24-27 12-15,28-31");
    assert_eq!(share(&epyc, 3), "0-4,16-20 5-9,21-25 10-15,26-31");
    // Arm: two clusters of four cores as packages, no L3.
    let arm = Facts { packages: ["0-3", "4-7"].map(set).into(), ..flat("0-7") };
    assert_eq!(share(&arm, 2), "0-3 4-7");
    assert_eq!(share(&arm, 3), "0-1 2-3 4-7");
    let big_little = Facts { kinds: ["0-3", "4-7"].map(set).into(), ..arm };
    assert_eq!(share(&big_little, 2), "");
    assert_eq!(share(&Facts { allowed: set("4-7"), ..big_little }, 2), "4-5 6-7", "cores of one kind");
    let offline = Facts { online: set("0-2,4-11,13-15"), ..smt(2, 1, 4) };
    assert_eq!(share(&offline, 4), "0-1,8-9 2,10-11 4-5,13 6-7,14-15", "a core with one thread is a core");
    let cpuset = Facts { allowed: set("1,3,5,7"), ..smt(2, 1, 4) };
    assert_eq!(share(&cpuset, 2), "1,3 5,7");
}

fn to(to: BindTo) -> Bind {
    Bind { to, ..Bind::default() }
}

#[test]
fn units_of_each_kind() {
    let of = |level, ranks| shown(&to(BindTo::Unit(level)), &smt(2, 1, 4), ranks, false);
    assert_eq!(of(Level::Hwthread, 3), "0 8 1");
    assert_eq!(of(Level::Core, 3), "0,8 1,9 2,10");
    assert_eq!(of(Level::L3, 2), "0-3,8-11 4-7,12-15");
    assert_eq!(of(Level::Numa, 3), "0-3,8-11 0-3,8-11 4-7,12-15");
    assert_eq!(of(Level::Package, 1), "0-3,8-11");
    assert_eq!(of(Level::Core, 9), "9 on 8 Core");
    assert_eq!(of(Level::Hwthread, 17), "17 on 16 Hwthread");
}

#[test]
fn ranks_that_are_mapped_to_units_have_these() {
    let of = |spread, to, ranks| shown(&Bind { spread, to, ..Bind::default() }, &smt(2, 1, 2), ranks, false);
    assert_eq!(of(Spread::Deal(Level::Package), BindTo::Share, 3), "0-1,4-5 2-3,6-7 0-1,4-5");
    assert_eq!(of(Spread::Deal(Level::Package), BindTo::Unit(Level::Core), 4), "0,4 2,6 1,5 3,7");
    assert_eq!(of(Spread::Deal(Level::Core), BindTo::Unit(Level::Package), 3), "0-1,4-5 0-1,4-5 2-3,6-7");
    assert_eq!(of(Spread::Each(2, Level::Numa), BindTo::Share, 4), "0-1,4-5 0-1,4-5 2-3,6-7 2-3,6-7");
    assert_eq!(of(Spread::Fill, BindTo::Unit(Level::Numa), 3), "0-1,4-5 0-1,4-5 2-3,6-7");
    assert_eq!(of(Spread::Fill, BindTo::Share, 2), "0-1,4-5 2-3,6-7");
}

#[test]
fn so_many_cores_for_each_rank() {
    let of = |each, ranks, spread| {
        shown(&Bind { cores: Some(each), spread, ..Bind::default() }, &smt(2, 1, 4), ranks, false)
    };
    assert_eq!(of(2, 3, Spread::Blocks), "0-1,8-9 2-3,10-11 4-5,12-13");
    assert_eq!(of(3, 2, Spread::Blocks), "0-2,8-10 4-6,12-14", "no rank has cores of two packages");
    assert_eq!(of(5, 1, Spread::Blocks), "0-4,8-12", "unless there is no other way");
    assert_eq!(of(2, 3, Spread::Deal(Level::Numa)), "0-1,8-9 4-5,12-13 2-3,10-11");
    assert_eq!(of(2, 2, Spread::Deal(Level::Core)), "0-1,8-9 2-3,10-11");
    assert_eq!(
        of(9, 1, Spread::Blocks),
        "1 rank with 9 cores each does not fit: 8 may be used (--cpus-per-rank 8)",
        "no number of ranks fits"
    );
    let many = |each| shown(&Bind { cores: Some(each), ..Bind::default() }, &smt(2, 1, 1), 3, false);
    assert_eq!(many(9), "3 ranks with 9 cores each do not fit: 2 may be used (leave --cpus-per-rank out)");
    assert_eq!(
        many(2),
        "3 ranks with 2 cores each do not fit: 2 may be used (fewer ranks on each host, or leave --cpus-per-rank out)"
    );
    assert_eq!(
        of(3, 3, Spread::Deal(Level::Package)),
        "3 ranks with 3 cores each do not fit: 8 may be used (--cpus-per-rank 2, or fewer ranks on each host)"
    );
    let threads = Bind { cores: Some(3), to: BindTo::Unit(Level::Hwthread), ..Bind::default() };
    assert_eq!(shown(&threads, &smt(2, 1, 4), 2, false), "0-1,8 2,9-10");
    let numa = Bind { cores: Some(2), to: BindTo::Unit(Level::Numa), ..Bind::default() };
    assert_eq!(shown(&numa, &smt(2, 1, 4), 3, false), "0-3,8-11 0-3,8-11 4-7,12-15");
}

#[test]
fn default_is_what_the_scheduler_counts_for_a_task() {
    let of = |task_cpus, ranks| {
        let bind = Bind { task_cpus: Some(task_cpus), ..Bind::default() };
        shown(&bind, &smt(2, 1, 4), ranks, false)
    };
    assert_eq!(of(2, 2), "0-1,8-9 2-3,10-11", "cores");
    assert_eq!(of(3, 1), "0-2,8-10", "also for one rank");
    assert_eq!(of(4, 4), "0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15", "hardware threads");
    assert_eq!(of(3, 4), "0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15", "no two ranks share a core");
    assert_eq!(of(8, 8), share(&smt(2, 1, 4), 8), "an even share where there are fewer");
    assert_eq!(of(1, 9), "");
    let with = |bind: Bind| shown(&Bind { task_cpus: Some(2), ..bind }, &smt(2, 1, 4), 2, false);
    assert_eq!(with(Bind { cores: Some(1), ..Bind::default() }), "0,8 1,9", "options go first");
    assert_eq!(with(to(BindTo::Unit(Level::Core))), "0,8 1,9");
    assert_eq!(with(Bind { spread: Spread::Deal(Level::Numa), ..Bind::default() }), "0-3,8-11 4-7,12-15");
    assert_eq!(with(to(BindTo::None)), "");
    let bind = Bind { task_cpus: Some(1), ..Bind::default() };
    assert_eq!(shown(&bind, &smt(2, 1, 4), 2, true), "", "a quota");
    assert_eq!(near(&bind, &smt(2, 1, 4), "4-7,12-15 0-3,8-11"), "4,12 0,8");
}

#[test]
fn cpus_that_the_user_names() {
    let of = |lists: &[CpuList], facts: &Facts, ranks| shown(&to(BindTo::Lists(lists.to_vec())), facts, ranks, false);
    let facts = Facts { allowed: set("0-7"), online: set("0-14"), ..smt(2, 1, 4) };
    assert_eq!(of(&[CpuList::Cpus(vec![0, 1]), CpuList::Cpus(vec![5])], &facts, 3), "0-1 5 0-1");
    assert_eq!(of(&[CpuList::Cores(vec![0, 4])], &facts, 1), "0,4");
    assert_eq!(of(&[CpuList::OfPackage { package: 1, cores: vec![0, 1] }], &facts, 1), "4-5");
    let hint = "(rlaunch map --report-bindings   shows the CPUs of this host's ranks)";
    for (list, error) in [
        (CpuList::Cpus(vec![8]), "CPU 8 may not be used: allowed are CPUs 0-7"),
        (CpuList::Cpus(vec![15]), "CPU 15 is offline or does not exist: the host has CPUs 0-14"),
        (CpuList::Cores(vec![8]), "there is no core 8: the host has 8, counted from 0"),
        (CpuList::OfPackage { package: 2, cores: vec![0] }, "there is no package 2: the host has 2, counted from 0"),
        (CpuList::OfPackage { package: 1, cores: vec![4] }, "there is no core 4: the host has 4, counted from 0"),
    ] {
        assert_eq!(of(&[list], &facts, 1), format!("{error} {hint}"));
    }
    let few = Facts { allowed: set("0,1"), ..smt(2, 1, 4) };
    assert_eq!(of(&[CpuList::Cores(vec![2])], &few, 1), format!("core 2 may not be used: allowed are CPUs 0-1 {hint}"));
}

/// The masks of ranks near these CPUs, one list for each rank.
fn near(bind: &Bind, facts: &Facts, lists: &str) -> String {
    let near: Vec<CpuSet> = lists.split_whitespace().map(set).collect();
    shown_near(bind, facts, u32::try_from(near.len()).unwrap(), false, &near)
}

#[test]
fn default_share_is_near_the_gpus() {
    let (bind, facts) = (Bind::default(), smt(2, 2, 4));
    let [one, other] = ["0-7,16-23", "8-15,24-31"];
    for (lists, expected) in [
        (format!("{other} {one}"), "8-15,24-31 0-7,16-23"),
        (format!("{one} {other} {one} {other}"), "0-3,16-19 8-11,24-27 4-7,20-23 12-15,28-31"),
        (format!("{one} {one}"), "0-3,16-19 4-7,20-23"),
        ("0-31 0-31".into(), "0-7,16-23 8-15,24-31"),
    ] {
        assert_eq!(near(&bind, &facts, &lists), expected, "{lists}");
    }
    let few = Facts { allowed: set("4-7,12-15"), ..smt(2, 2, 4) };
    assert_eq!(near(&bind, &few, &format!("{other} {one}")), "12-15 4-7", "a part of the CPUs");
}

#[test]
fn gpus_do_not_cost_ranks_their_cores() {
    let bind = Bind::default();
    // Two packages of four NUMA nodes with four cores each.
    let mut facts = smt(2, 4, 4);
    facts.numa_nodes = facts.l3_groups.clone();
    let [node1, node2, node6] = ["4-7,36-39", "8-11,40-43", "24-27,56-59"];
    let [first, last] = ["0-15,32-47", "16-31,48-63"];
    for (lists, expected) in [
        (format!("{node6} {node1}"), format!("{last} {first}")),
        (format!("{node2} {node2}"), "0-7,32-39 8-15,40-47".into()),
        // Near the GPUs four of five ranks would have 2 cores. An even share is 6.
        (
            format!("{node2} {node1} {node6} {node1} {node2}"),
            format!("0-3,32-35 4-7,36-39 {last} 8-11,40-43 12-15,44-47"),
        ),
    ] {
        assert_eq!(near(&bind, &facts, &lists), expected, "{lists}");
    }
    let flat = smt(1, 1, 2);
    assert_eq!(near(&bind, &flat, "0,2 0,2 1,3"), "", "more ranks than cores");
    assert_eq!(near(&bind, &flat, "0,2 0-3"), share(&flat, 2), "ranks are near a part of the same CPUs");
    assert_eq!(near(&bind, &flat, "8 9"), share(&flat, 2), "CPUs that may not be used");
    assert_eq!(near(&bind, &flat, "1,3"), "", "one rank has all CPUs");
}

#[test]
fn so_many_cores_near_the_gpus() {
    let facts = smt(2, 2, 4);
    let [one, other] = ["0-7,16-23", "8-15,24-31"];
    let of = |bind: Bind, lists: String| near(&Bind { cores: Some(3), ..bind }, &facts, &lists);
    assert_eq!(of(Bind::default(), format!("{other} {one}")), "8-10,24-26 0-2,16-18");
    assert_eq!(of(Bind::default(), other.into()), "8-10,24-26");
    assert_eq!(of(Bind::default(), format!("{one} {one} {one}")), "0-2,16-18 4-6,20-22 8-10,24-26", "no room there");
    assert_eq!(of(to(BindTo::Unit(Level::Core)), other.into()), "0-2,16-18", "only with the default");
}

#[test]
fn topology_is_read_only_where_it_decides() {
    let least = |bind: Bind, ranks| bind.least_cpus(ranks);
    assert_eq!([0, 1, 2, 8].map(|ranks| least(Bind::default(), ranks)), [None, None, Some(2), Some(8)]);
    assert_eq!(least(to(BindTo::None), 2), None);
    assert_eq!(least(to(BindTo::Unit(Level::Core)), 1), Some(0));
    assert_eq!(least(Bind { cores: Some(2), ..Bind::default() }, 1), Some(0));
    assert_eq!(least(Bind { task_cpus: Some(2), ..Bind::default() }, 1), Some(0));
    assert_eq!(least(Bind { report: true, ..to(BindTo::None) }, 1), Some(0));
}

#[test]
fn ranks_with_other_numbers_of_cores_stand_side_by_side() {
    let of = |each: &[u32]| {
        let to = BindTo::Lists(each.iter().map(|each| CpuList::Next(*each, None)).collect());
        shown(&Bind { to, ..Bind::default() }, &smt(1, 2, 4), u32::try_from(each.len()).unwrap(), false)
    };
    assert_eq!(of(&[1, 1, 2]), "0,8 1,9 2-3,10-11");
    assert!(of(&[4, 4, 1]).starts_with("3 ranks with 9 cores in all do not fit: 8 may be used"), "{}", of(&[4, 4, 1]));
}

#[test]
fn option_bind_to_counts_for_ranks_with_other_numbers_of_cores() {
    let of = |level: Level, each: [u32; 3]| {
        let lists = each.map(|each| CpuList::Next(each, Some(level)));
        shown(&to(BindTo::Unit(level)).of_ranks(&lists, (0..3).map(Rank::new)), &smt(2, 1, 4), 3, false)
    };
    assert_eq!(of(Level::Numa, [1, 4, 1]), "0-3,8-11 0-15 4-7,12-15");
    assert_eq!(of(Level::Core, [1, 2, 1]), "0,8 1-2,9-10 3,11");
    assert_eq!(of(Level::Hwthread, [1, 2, 1]), "0 1,8 9");
}
