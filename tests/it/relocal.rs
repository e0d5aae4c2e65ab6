//! LOCAL_RANK behind losses: as it was, or without gaps (`--relocal`).

use crate::plan::Plan;
use crate::python::{client, with_client};
use std::path::PathBuf;

/// In the first two rounds one rank is lost, once all have said who they are.
const SCRIPT: &str = r#"
import os, signal, sys, rlaunch, rlaunch.inprocess as ip

def train(call: ip.CallWrapper):
    world, env = rlaunch.world(), os.environ
    mine = env["RLAUNCH_INITIAL_RANK"]
    assert env["LOCAL_RANK"] == env["OMPI_COMM_WORLD_LOCAL_RANK"] == str(world.local_rank)
    assert (env["SLURM_PROCID"], env["SLURM_LOCALID"]) == (env["RANK"], env["LOCAL_RANK"])
    assert env["SLURM_NTASKS"] == env["SLURM_TASKS_PER_NODE"] == env["WORLD_SIZE"]
    assert env["SLURM_GTIDS"] == ",".join(map(str, range(world.local_world_size)))
    assert (env["RLAUNCH_LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) == (mine, env["WORLD_SIZE"])
    os.write(1, f"r{call.iteration} initial {mine} local {world.local_rank} of {world.local_world_size}\n".encode())
    rlaunch.Store().barrier(f"said/{call.iteration}", world.world_size)
    if mine == {0: "1", 1: "3"}.get(call.iteration):
        os.kill(os.getpid(), signal.SIGKILL)
    rlaunch.Store().barrier(f"end/{call.iteration}", world.world_size)

ip.Wrapper(relocal="relocal" in sys.argv)(train)()
"#;

/// The output of five ranks, in order.
fn said(options: &[&str], words: &[&str]) -> Option<Vec<String>> {
    let client = client()?;
    let plan = with_client(Plan::rlaunch(options), &client).args(["-n", "5"]).env("SLURM_JOB_ID", "7");
    let path = plan.scratch().path("locals.py");
    std::fs::write(&path, SCRIPT).unwrap();
    let done = plan.args([PathBuf::from("python3"), path]).args(words).start().code(0);
    done.says("restart 1: rank 1 ").says("restart 2: rank 3 ");
    let mut lines: Vec<String> = done.out().lines().map(str::to_owned).collect();
    lines.sort();
    Some(lines)
}

/// The expected values of two rounds with losses, by initial rank.
fn wanted(first: [u32; 4], second: [u32; 3]) -> Vec<String> {
    let all = (0..5).map(|n| (0, n, n, 5));
    let first = [0, 2, 3, 4].into_iter().zip(first).map(|(n, local)| (1, n, local, 4));
    let second = [0, 2, 4].into_iter().zip(second).map(|(n, local)| (2, n, local, 3));
    let line = |(round, n, local, of)| format!("r{round} initial {n} local {local} of {of}");
    all.chain(first).chain(second).map(line).collect()
}

#[test]
fn local_ranks_have_no_gaps_behind_two_losses_where_that_is_asked_for() {
    let anew = wanted([0, 1, 2, 3], [0, 1, 2]);
    for (options, words) in [(&["--relocal"][..], &[][..]), (&[], &["relocal"])] {
        let Some(said) = said(options, words) else { return };
        assert_eq!(said, anew, "{options:?} {words:?}");
    }
}

#[test]
fn local_ranks_stay_with_their_processes() {
    let Some(said) = said(&[], &[]) else { return };
    assert_eq!(said, wanted([0, 2, 3, 4], [0, 2, 4]));
}
