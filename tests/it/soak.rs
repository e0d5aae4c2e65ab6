//! Many rounds in one job: what each of them left behind would add up.

use crate::case::Case;
use crate::place;
use crate::plan::Plan;
use crate::python::with_client;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The resources of a process.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    threads: u64,
    /// Memory of its own in KiB. Pieces of the program's file are left out: they come with what ran last, and are given back before a wait.
    own: u64,
}

/// `None`: it has ended.
fn held(pid: i32) -> Option<Held> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some(Held { descriptors, threads: number("Threads:")?, own: number("RssAnon:")? })
}

/// The resources of all processes of a job, by their numbers.
fn all(case: &Case) -> BTreeMap<i32, (String, Held)> {
    let below = case.all_processes().into_iter().map(|proc| (proc.pid, proc.comm));
    let all = below.chain([(case.pid(), "rlaunch".to_owned())]);
    all.filter_map(|(pid, name)| Some((pid, (name, held(pid)?)))).collect()
}

/// Lets the rank that waits in this round continue, after a look at all processes.
fn stopped(case: &Case, round: u32, go: &Path) -> BTreeMap<i32, (String, Held)> {
    case.says_on_stdout(&format!("round {round}\n"), 1);
    let all = all(case);
    std::fs::write(go, "x").unwrap();
    all
}

/// Between two rounds of a job nothing has become more; memory by so many KiB at most, of whatever process.
fn holds(plan: Plan, program: &[PathBuf], (first, last): (u32, u32), slack: u64) {
    let go = plan.scratch().fifo("go");
    let directory = plan.scratch().dir().to_owned();
    let stops = [first, last].map(|round| round.to_string());
    let case = plan.args(program).args([directory]).args(stops).start();
    let before = stopped(&case, first, &go);
    let after = stopped(&case, last, &go);
    let done = case.code(0);
    done.says(&format!("restart {last}: "));
    assert!(before.len() >= 6, "{before:?}");
    assert!(before.keys().eq(after.keys()), "the same processes: {before:?} {after:?}");
    for (pid, (name, first)) in &before {
        let (_, last) = after[pid];
        place::say(&format!("{name}: {first:?}, {last:?}"));
        assert!(last.descriptors <= first.descriptors && last.threads <= first.threads, "{name}: {first:?}, {last:?}");
        assert!(last.own <= first.own + slack, "{name}: {first:?}, {last:?}");
    }
}

#[test]
fn many_rounds_leave_nothing_behind() {
    let Some(rank) = place::example("soak_rank") else { return };
    let rounds = if place::full() { (100, 1000) } else { (50, 150) };
    holds(Plan::rlaunch(["-n", "4"]), &[rank], rounds, 256);
}

/// Between the two stops of a job, the processes of rlaunch have not grown by more than so many KiB each. The program gets the two numbers and
/// the file at which it waits.
fn does_not_grow(plan: Plan, program: &[&str], (first, last): (u32, u32), slack: u64) {
    let go = plan.scratch().fifo("go");
    let stops = [first, last].map(|round| round.to_string());
    let case = plan.args(program).args(stops).args([&go]).start();
    let [before, after] = [first, last].map(|round| stopped(&case, round, &go));
    case.code(0);
    for (pid, (name, first)) in before.iter().filter(|(pid, _)| after.contains_key(pid)) {
        let (_, last) = after[pid];
        place::say(&format!("{name}: {first:?}, {last:?}"));
        assert!(last.own <= first.own + slack, "{name}: {first:?}, {last:?}");
    }
}

/// Each has another init.
#[test]
fn many_starts_of_all_ranks_leave_nothing_behind() {
    let script = "n=$TORCHELASTIC_RESTART_COUNT; [ $n = $1 ] || [ $n = $2 ] && { echo round $n; read x < $3; }; \
                  [ $n = $2 ] || exit $((n % 100 + 1))";
    let (rounds, slack) = if place::full() { ((100, 1100), 1024) } else { ((20, 60), 256) };
    let plan = Plan::rlaunch(["-n", "1", "--max-restarts", "10000", "--restart-delay", "0s"]);
    does_not_grow(plan, &["sh", "-c", script, "sh"], rounds, slack);
}

/// Ranks start groups, which end, under new names and under one name.
#[test]
fn many_groups_leave_nothing_behind() {
    let Some(client) = place::client() else { return };
    let script = place::root().join("tests/groups/many.py").display().to_string();
    let workers = if place::full() { (1_000, 11_000) } else { (1_000, 2_000) };
    let plan = with_client(Plan::rlaunch(["-n", "1", "--lead"]), &client);
    does_not_grow(plan, &["/usr/bin/python3", &script], workers, 512);
}

/// The same in Python: `DIRECTORY ROUND...`, with `gloo` in front an all-reduce in each round.
const SCRIPT: &str = r#"
import os, sys, threading, rlaunch.inprocess as inprocess
gloo = sys.argv[1] == "gloo"
directory, *stops = sys.argv[1 + gloo:]
stops = [int(stop) for stop in stops]
if gloo:
    import datetime, torch, torch.distributed as dist, rlaunch.torch

@inprocess.Wrapper()
def work(call: inprocess.CallWrapper = None):
    call.ping()
    rank, size, number = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), call.iteration
    if gloo:
        rlaunch.torch.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
        dist.all_reduce(torch.ones(100))
    if rank != number % size:
        if number == stops[-1]:
            return
        while gloo:
            dist.all_reduce(torch.ones(100))
        threading.Event().wait()
    if number in stops:
        os.write(1, b"round %d\n" % number)
        with open(os.path.join(directory, "go"), "rb") as go:
            go.read(1)
    if number != stops[-1]:
        raise RuntimeError("told to fail")

work()
"#;

#[test]
fn many_rounds_in_python_leave_nothing_behind() {
    let Some(client) = place::client() else {
        return place::absent("the Python package", "RLAUNCH_CLIENT is not set; scripts/build-client makes one");
    };
    let plan = Plan::rlaunch(["-n", "4"]).env("PYTHONPATH", client).env("PYTHONDONTWRITEBYTECODE", "1");
    let script = plan.scratch().path("soak.py");
    std::fs::write(&script, SCRIPT).unwrap();
    let rounds = if place::full() { (100, 1000) } else { (20, 40) };
    holds(plan, &["python3".into(), script], rounds, 1024);
}
