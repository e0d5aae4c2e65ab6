//! Programs of PyTorch, as they are: at the store that the agent holds, and at one of their own. The scripts are in `tests/torch`.
//!
//! Debian's torch, 1.13, is there in every run; `RLAUNCH_TORCH` is a Python with a newer one (and NVRx), that `scripts/test --all` makes.

use crate::bed::Bed;
use crate::case::Done;
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const DEBIANS: &str = "/usr/bin/python3";
/// All ranks add up their numbers.
const REDUCE: &str = "import os, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n\
                      t = torch.ones(3) * (dist.get_rank() + 1)\ndist.all_reduce(t)\ndist.barrier()\n\
                      os.write(1, f\"{dist.get_rank()} {t.tolist()} {os.environ['TORCHELASTIC_USE_AGENT_STORE']}\\n\".encode())\n\
                      dist.destroy_process_group()\n";

/// The Pythons that have torch. They are asked once: each import of torch costs a processor two seconds.
pub(crate) fn pythons() -> Vec<PathBuf> {
    static FOUND: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(find_pythons).clone()
}

fn find_pythons() -> Vec<PathBuf> {
    let newer = place::newer_torch();
    if newer.is_none() {
        place::absent("a newer torch", "RLAUNCH_TORCH names no Python that has one; scripts/test --all makes it");
    }
    let probe = "import torch.distributed as d; assert d.is_available()";
    let mut found = Vec::new();
    for python in std::iter::once(PathBuf::from(DEBIANS)).chain(newer) {
        let done = Plan::tool(&python, place::Scratch::new()).args(["-c", probe]).start().end();
        if done.exit.is_success() {
            found.push(python);
            continue;
        }
        let is_required = std::env::var_os("RLAUNCH_REQUIRE_TORCH").is_some_and(|v| v == "1");
        assert!(!is_required && python == Path::new(DEBIANS), "{}: {}", python.display(), done.err());
        place::absent("torch", &format!("{DEBIANS} has no torch.distributed"));
    }
    found
}

/// A script of `tests/torch`, run by this Python.
fn script(plan: Plan, python: &Path, name: &str, words: &[&str]) -> Plan {
    let path = place::root().join("tests/torch").join(name);
    let plan = plan.args([python, &path]).args(words);
    // torch's own server looks up the name of each client: five seconds each where no server answers.
    let plan = plan.env("RES_OPTIONS", "timeout:1 attempts:1");
    plan.env("TORCH_CPP_LOG_LEVEL", "ERROR").env("PYTHONWARNINGS", "ignore")
}

fn holder(done: &Done) -> (&str, &str) {
    let store = &done.event("job.start")["store"];
    (store["by"].as_str().unwrap(), store["why"].as_str().unwrap())
}

/// A port of this host that was free a moment ago.
fn a_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[test]
fn each_operation_is_answered_as_torchs_own_server_does() {
    for python in pythons() {
        let plan = Plan::rlaunch(["-n", "2", "--master-store", "agent"]);
        let done = script(plan, &python, "store_ops.py", &[]).start().end();
        assert!(done.exit.is_success() && done.out().trim_end().ends_with(" 0 differ"), "{}{}", done.out(), done.err());
    }
}

#[test]
fn four_ranks_reduce_with_either_store() {
    for python in pythons() {
        for (who, agent) in [("agent", "True"), ("rank0", "False")] {
            let plan = Plan::rlaunch(["-n", "4", "--master-store", who]);
            let path = plan.scratch().path("reduce.py");
            std::fs::write(&path, REDUCE).unwrap();
            let done = plan.args([python.as_path(), &path]).start().code(0);
            let expected: Vec<String> = (0..4).map(|n| format!("{n} [10.0, 10.0, 10.0] {agent}")).collect();
            assert_eq!(done.sorted(), expected, "{}", done.err());
        }
    }
}

#[test]
fn two_hosts_reduce_with_either_store() {
    let Some(bed) = Bed::up(2) else { return };
    for python in pythons() {
        for (user, who, agent) in [("root", "agent", "True"), ("tester", "agent", "True"), ("tester", "rank0", "False")]
        {
            let words = ["rlaunch", "--ssh-fast", "-H", "node[0-1]:2", "--master-store", who];
            let plan = bed.plan(user, "login", words).with_events();
            let path = plan.scratch().path("reduce.py");
            std::fs::write(&path, REDUCE).unwrap();
            let done = plan.args([python.as_path(), &path]).start().code(0);
            let expected: Vec<String> = (0..4).map(|n| format!("{n} [10.0, 10.0, 10.0] {agent}")).collect();
            assert_eq!(done.sorted(), expected, "{}", done.err());
            bed.clean(2);
        }
    }
    bed.down();
}

#[test]
fn scripts_that_meet_by_themselves_need_no_flag() {
    for python in pythons() {
        let cases: [(&str, &str, usize, &str); 4] = [
            ("1", "spawn_tutorial.py", 2, "alone"),
            ("2", "spawn_tutorial.py", 4, "script_names_address"),
            ("2", "own_port.py", 2, "script_sets_port"),
            ("3", "own_store.py", 3, "script_opens_store"),
        ];
        // Six processes that each load a gigabyte first, and say nothing until then, are for the smaller one.
        let few = cases.into_iter().filter(|(_, _, all, _)| *all < 4 || python == Path::new(DEBIANS));
        for (ranks, name, all, why) in few {
            let run = || script(Plan::rlaunch(["-n", ranks]), &python, name, &[&a_port()]).start().end();
            let done = unless_torch_aborts(&python, run, || ());
            let sum: usize = (0..all).sum();
            let expected: Vec<String> = (0..all).map(|n| format!("rank {n} of {all}: {sum}")).collect();
            assert_eq!(done.sorted(), expected, "{name}: {}", done.err());
            assert_eq!(holder(&done), ("rank0", why), "{name}");
        }
    }
}

/// torch 2.15 ends one in some processes with SIGABRT when all is done, started by hand too: a thread of its own is still there when the
/// interpreter goes. Just that is tried again, after `again`.
fn unless_torch_aborts(python: &Path, run: impl Fn() -> Done, again: impl Fn()) -> Done {
    for _ in 0..9 {
        let done = run();
        let is_torchs_own = done.err().contains("terminate called without an active exception");
        if done.exit == Exit::Code(0) || !is_torchs_own || python == Path::new(DEBIANS) {
            assert_eq!(done.exit, Exit::Code(0), "{}", done.err());
            return done;
        }
        again();
    }
    panic!("torch has aborted nine times in a row");
}

fn trains_elastically(python: &Path, epochs: &str, snapshot: &Path) -> Done {
    let before = std::fs::read(snapshot).ok();
    let words = [epochs, "1", snapshot.to_str().unwrap()];
    let run = || script(Plan::rlaunch(["-n", "2"]), python, "elastic_multigpu.py", &words).start().end();
    unless_torch_aborts(python, run, || match &before {
        Some(bytes) => std::fs::write(snapshot, bytes).unwrap(),
        None => std::fs::remove_file(snapshot).unwrap(),
    })
}

#[test]
fn scripts_for_torchrun_need_no_flag() {
    for python in pythons() {
        let scratch = place::Scratch::new();
        let snapshot = scratch.path("snapshot.pt");
        let mut ends = Vec::new();
        // The second job continues from the snapshot of the first.
        for (epochs, begun) in [("2", "0"), ("4", "2")] {
            let done = trains_elastically(&python, epochs, &snapshot);
            assert_eq!(holder(&done), ("agent", "python"));
            let lines = done.sorted();
            let end =
                |n: usize| lines[n].strip_prefix(&format!("rank {n}: epochs {begun} to {epochs}, ")).map(str::to_owned);
            assert!(end(0).is_some() && end(0) == end(1), "{lines:?}");
            ends.push(end(0));
        }
        assert_ne!(ends[0], ends[1]);
    }
}

#[test]
fn nvrx_restarts_at_the_agents_store_after_any_fault() {
    let Some(python) = place::newer_torch() else {
        return place::absent("NVRx", "RLAUNCH_TORCH names no Python that has it");
    };
    let cases = [("exception", "1", [0, 1, 2].as_slice(), 0), ("kill", "1", &[0, 2], 137), ("kill", "0", &[1, 2], 137)];
    for tier in place::tiers() {
        for (what, whom, left, code) in cases {
            let plan = Plan::rlaunch(["-n", "3", "--on-failure", "continue", "--master-store", "agent"]).contain(tier);
            let done = script(plan, &python, "nvrx_wrapper.py", &[what, whom]).start().code(code);
            let size = left.len();
            let line = |(rank, was)| format!("was {was}, round 1, rank {rank} of {size}, sum {size}");
            // Everybody moves up who comes after a gap.
            let expected: Vec<String> = left.iter().enumerate().map(line).collect();
            assert_eq!(done.sorted(), expected, "{tier}, {what} {whom}: {}", done.err());
        }
    }
}
