//! Which hosts a command line names, and how many ranks they get.

use super::{at_site, plan, run_with};
use crate::cli::{Has, Silent};
use rlaunch_plan::bind::CpuList;
use rlaunch_plan::bootstrap::Target;
use rlaunch_plan::topology::Level;

/// The hosts of all ranks, in their order.
fn hosts_of(line: &str, variables: &[(&str, &str)], gpus: impl Into<Option<u32>>) -> String {
    let placement =
        at_site(gpus, |site| run_with(line, variables).place(site)).unwrap_or_else(|e| panic!("{}", e.render()));
    let name = |node: u32| placement.nodes[node as usize].host.to_string();
    placement.ranks.iter().map(|placed| name(placed.node.get())).collect::<Vec<_>>().join(" ")
}

#[test]
fn hosts_in_all_spellings() {
    for line in [
        "-H a:2,b:2 x",
        "-Ha:2,b:2 x",
        "--host a:2 --hosts=b:2 x",
        "-w a:2,b:2 x",
        "-hosts a:2,b:2 x",
        "-f hosts x",
        "--hostfile=hosts x",
        "--machinefile hosts x",
        "-hostfile hosts x",
        "-H ^hosts x",
        "-H a,b -ppn 2 x",
        "-H a,b --ntasks-per-node=2 x",
        "-H a,b --nproc_per_node 2 x",
        "-H a,b -perhost 2 x",
    ] {
        assert_eq!(hosts_of(line, &[], 0), "a a b b", "{line}");
    }
    assert_eq!(hosts_of("-f hosts -H b x", &[], 0), "b b");
    assert_eq!(hosts_of("-n 3 -H a,b --map-by node x", &[], 0), "a b a");
    assert_eq!(hosts_of("-n 4 -f hosts --rank-by node x", &[], 0), "a b a b");
    assert_eq!(hosts_of("-n 2 -f hosts --nnodes 2 x", &[], 0), "a b");
    assert_eq!(hosts_of("-f hosts --nodes=1-1 x", &[], 0), "a a");
    assert_eq!(hosts_of("-H b x : -n 2 -H a y : -n 1 z", &[], 0), "b a a b");
}

#[test]
fn repeated_hosts_of_a_sequence_are_kept() {
    for line in ["-H a,b,a,b", "-H a:1,b:1,a:1,b:1", "-H a,b -H a,b", "-f turns"] {
        assert_eq!(hosts_of(&format!("--map-by seq {line} x"), &[], 0), "a b a b", "{line}");
    }
    assert_eq!(hosts_of("--map-by seq -H a,b,a,b -n 3 x", &[], 0), "a b a");
    assert_eq!(hosts_of("--map-by seq -H a,b,a -n 2 x : -H c,a -n 2 y", &[], 0), "a b c a");
    let few = at_site(0, |site| run_with("--map-by seq -H a,b -n 4 x", &[]).place(site)).unwrap_err().render();
    assert!(few.starts_with("error: --map-by names hosts for 2 ranks of program 1, which has 4\n"), "{few}");
}

#[test]
fn programs_have_separate_mappings_and_cores() {
    assert_eq!(hosts_of("-H a:4,b:4 --map-by ppr:3:node x : --map-by ppr:1:node y", &[], 0), "a a a b b b a b");
    assert_eq!(hosts_of("-n 2 -H a:2,b:2 x : -n 2 --map-by node y", &[], 0), "a a b b");
    assert_eq!(hosts_of("-n 2 -H a:2,b:2 --map-by node x : -n 2 y", &[], 0), "a b a b", "the first one's is the job's");
    let cores = |line: &str| plan(line).job.rank_cpus.clone();
    let next = |each: &[u32]| each.iter().map(|each| CpuList::Next(*each, None)).collect::<Vec<_>>();
    assert_eq!(cores("-n 2 -c 1 x : -n 1 -c 2 y"), next(&[1, 1, 2]));
    assert_eq!(cores("-n 1 x : -n 1 --map-by slot:PE=3 y"), next(&[1, 3]));
    assert_eq!(
        (cores("-n 1 -c 2 x : -n 1 y"), plan("-n 1 -c 2 x : -n 1 y").job.settings.bind.cores),
        (vec![], Some(2))
    );
    assert_eq!(hosts_of("-H a:8,b:8 -n 1 -c 8 x : -n 8 -c 1 y", &[], 0), "a b b b b b b b b");
    assert_eq!(hosts_of("-H a:8,b:8 -n 4 -c 1 x : -n 3 -c 4 y", &[], 0), "a a a a a b b");
    let refused = super::refused("-n 1 x : -n 1 --map-by numa y", &[]).unwrap();
    assert!(
        refused.starts_with("error: --map-by takes slot, node or ppr:N:node for one program of several"),
        "{refused}"
    );
    assert_eq!(super::refused("-n 1 x : -n 1 y", &[("RLAUNCH_MAP_BY", "numa")]), None);
}

#[test]
fn option_bind_to_counts_where_programs_have_different_numbers_of_cores() {
    let lists = |to: &str| plan(&format!("-n 1 -c 8 --bind-to {to} x : -n 4 -c 2 y")).job.rank_cpus.clone();
    assert_eq!([lists("none"), lists("rank-list:0-3/4-7")], [vec![], vec![]]);
    assert_eq!(lists("numa")[..2], [8, 2].map(|cores| CpuList::Next(cores, Some(Level::Numa))));
}

#[test]
fn ranks_per_node_are_counted_here() {
    assert_eq!(hosts_of("--nproc-per-node cpu x", &[], 0), "me me");
    assert_eq!(hosts_of("--nproc-per-node auto x", &[], 0), "me me");
    assert_eq!(hosts_of("--nproc-per-node auto x", &[], None), "me me");
    assert_eq!(hosts_of("--nproc-per-node auto x", &[], 3), "me me me");
    assert_eq!(hosts_of("--nproc-per-node gpu -H localhost x", &[], 3), "localhost localhost localhost");
    let unknown = at_site(None, |site| run_with("--nproc-per-node gpu x", &[]).place(site)).unwrap_err().render();
    assert!(unknown.contains("--nproc-per-node gpu: how many GPUs this machine has cannot be found out"), "{unknown}");
}

/// Resources of hosts by their names: `g4` has four GPUs and eight processors. Others say nothing.
pub(super) fn has(host: &Target) -> Result<Has, Silent> {
    let name = host.to_string();
    match name.strip_prefix('g').map(str::parse::<u32>) {
        Some(Ok(gpus)) => Ok(Has { cpus: gpus * 2, gpus: Some(gpus), units: [gpus; 5] }),
        Some(Err(_)) => Ok(Has { cpus: 1, gpus: None, units: [0; 5] }),
        None => Err(Silent {
            text: format!("{name}: no route to host"),
            host: name,
            words: "ssh: connect: no route".into(),
            hint: Some("ssh it".into()),
        }),
    }
}

#[test]
fn other_hosts_are_asked_for_resources() {
    assert_eq!(hosts_of("--nproc-per-node gpu -H g2,g1 x", &[], 0), "g2 g2 g1");
    assert_eq!(hosts_of("--nproc-per-node cpu -H g1,g2 x", &[], 0), "g1 g1 g2 g2 g2 g2");
    assert_eq!(hosts_of("--nproc-per-node auto -H g0,g2 x", &[], 0), "g0 g2 g2");
    assert_eq!(hosts_of("--nproc-per-node gpu -H g1,localhost,me x", &[], 2), "g1 localhost localhost", "one machine");
    assert_eq!(hosts_of("--nproc-per-node gpu -H g3,g3 x", &[], 0), "g3 g3 g3", "however often it is named");
    assert_eq!(hosts_of("--nproc-per-node gpu -n 2 -H g1,g2 x", &[], 0), "g1 g2");
    assert_eq!(hosts_of("--nproc-per-node gpu -H g1:9,g2 x", &[], 0), "g1 g2 g2", "whatever its slots are");
    assert_eq!(hosts_of("-H g1,g2 -n 1 x : --nproc-per-node gpu y", &[], 0), "g1 g1 g2 g2");
    assert_eq!(hosts_of("--nproc-per-node gpu -c 2 -H g2,g1 x", &[], 0), "g2 g2 g1", "whatever cores a rank has");
    assert_eq!(hosts_of("--ppn 1 -H a,b x", &[], 0), "a b", "nobody is asked");
}

#[test]
fn a_hostfile_of_the_environment_counts_last() {
    let variable = ("RLAUNCH_HOSTFILE", "hosts");
    assert_eq!(hosts_of("x", &[variable], 0), "a a b b");
    assert_eq!(hosts_of("x", &[("HYDRA_HOST_FILE", "hosts")], 0), "a a b b");
    assert_eq!(hosts_of("x", &[variable, ("HYDRA_HOST_FILE", "gone")], 0), "a a b b");
    assert_eq!(hosts_of("-n 1 x : -n 2 y", &[variable], 0), "a a b");
    assert_eq!(hosts_of("-H c x", &[("RLAUNCH_HOSTFILE", "gone")], 0), "c");
    assert_eq!(hosts_of("-n 1 x", &[("RLAUNCH_HOSTFILE", "")], 0), "me");
    assert_eq!(hosts_of("x", &[("RLAUNCH_HOSTS", "b"), variable], 0), "b b", "a choice from the file");
    assert_eq!(hosts_of("-f hosts x", &[("RLAUNCH_HOSTS", "c")], 0), "a a b b");
    let others = [("RLAUNCH_PPN", "1"), ("RLAUNCH_MAP_BY", "node"), ("RLAUNCH_NNODES", "2")];
    assert_eq!(hosts_of("-H a,b,c x : y", &others, 0), "a b a b");
}

#[test]
fn so_many_hosts_are_enough() {
    let least = |line: &str| plan(line).job.min_hosts;
    assert_eq!(least("-H a,b,c x"), None, "all are needed");
    assert_eq!(least("-H a,b,c --min-hosts 2 x"), Some(2));
    assert_eq!(least("-H a,b,c --min_hosts=3 x"), Some(3));
    assert_eq!(least("--min-hosts 1 x"), Some(1), "this machine is a host too");
    // torchrun's range: as many as there are, and no fewer than that.
    assert_eq!(least("-H a,b,c --nnodes 2:3 x"), Some(2));
    assert_eq!(least("-H a,b,c --nnodes 2:9 x"), Some(2));
    assert_eq!(least("-H a,b,c --nnodes 2 x"), None);
    assert_eq!(least("-H a,b,c --nnodes 2:3 --min-hosts 1 x"), Some(1));
    assert_eq!(run_with("-H a,b x", &[("RLAUNCH_MIN_HOSTS", "1")]).whole.least(), Some(1));
}
