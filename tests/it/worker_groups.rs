//! Worker groups: a controller in Python and its workers. The scripts are in `tests/groups`.

use crate::bed::Bed;
use crate::case::Done;
use crate::place;
use crate::plan::Plan;
use crate::python::{client, with_client};
use std::path::{Path, PathBuf};

const PYTHON: &str = "/usr/bin/python3";

fn scripts() -> PathBuf {
    place::root().join("tests/groups")
}

fn with_scripts(plan: Plan, client: &Path) -> Plan {
    with_client(plan, client).env("PYTHONPATH", format!("{}:{}", client.display(), scripts().display()))
}

/// The words of a controller that leads, and of a group of workers of this class.
fn words(script: &str, arguments: &[&str], ranks: u32, class: &str) -> Vec<String> {
    let script = scripts().join(script).display().to_string();
    let ranks = ranks.to_string();
    let controller = ["-n", "1", "--lead", PYTHON, &script];
    let workers = [":", "--group", "gen", "-n", &ranks, PYTHON, "-m", "rlaunch.groups.worker", class];
    controller.iter().chain(arguments).chain(&workers).map(|word| (*word).to_owned()).collect()
}

fn run(script: &str, arguments: &[&str], ranks: u32, class: &str) -> Option<Done> {
    let client = client()?;
    let plan = Plan::rlaunch(words(script, arguments, ranks, class));
    Some(with_scripts(plan, &client).start().code(0))
}

#[test]
fn controller_calls_its_workers_in_every_way() {
    let Some(done) = run("calls.py", &[], 4, "workers.Plain") else { return };
    assert_eq!(done.out(), "all calls are well\n", "{}", done.err());
}

#[test]
fn streams_wait_for_their_reader_and_end_when_they_are_cancelled() {
    let Some(done) = run("streams.py", &[], 2, "workers.Mixed") else { return };
    assert_eq!(done.out(), "all streams are well\n", "{}", done.err());
}

#[test]
fn worker_that_dies_fails_its_calls_and_others_continue() {
    let Some(done) = run("deaths.py", &["with-reasons"], 4, "workers.Plain") else { return };
    assert!(done.out().ends_with("ends [0, 1, 2, 3]\n"), "{}{}", done.out(), done.err());
}

#[test]
fn group_that_does_not_start_names_the_first_worker_that_failed() {
    for how in ["raise", "die"] {
        let Some(done) = run("starts.py", &[how], 3, "workers.Starts") else { return };
        assert_eq!(done.out(), "not started\n", "{}", done.err());
    }
}

#[test]
fn class_that_does_not_exist_is_reported_with_those_that_do() {
    let Some(client) = client() else { return };
    for (class, text) in [
        ("workers.None", "module workers has no class 'None': it has Mixed, Plain, Starts"),
        ("no_module.Gen", "there is no module 'no_module'"),
        ("Gen", "'Gen' names no module: write pkg.mod.Class"),
    ] {
        let plan = Plan::rlaunch(["--group", "gen", "-n", "1", PYTHON, "-m", "rlaunch.groups.worker", class]);
        let done = with_scripts(plan, &client).start().code(1);
        assert!(done.err().contains(text), "{}", done.err());
    }
}

#[test]
fn group_outside_of_a_job_is_refused_in_one_sentence() {
    let Some(client) = client() else { return };
    let script = "from rlaunch.groups import WorkerGroup\nWorkerGroup.attach('gen')";
    let plan = Plan::tool(Path::new(PYTHON), place::Scratch::new()).args(["-c", script]);
    let done = with_client(plan, &client).start().end();
    assert!(done.err().contains("worker groups need a job: start this program with rlaunch"), "{}", done.err());
}

#[test]
fn no_worker_stays_when_the_controller_ends() {
    let Some(client) = client() else { return };
    for (end, code) in
        [("raise SystemExit(3)", 3), ("raise ValueError", 1), ("import os; os.kill(os.getpid(), 9)", 137)]
    {
        let script = format!("from rlaunch.groups import WorkerGroup\nWorkerGroup.attach('gen')\n{end}");
        let mut all = words("calls.py", &[], 2, "workers.Plain");
        all.splice(4..5, ["-c".into(), script]);
        let plan = Plan::rlaunch(["--grace", "2s"]).args(all);
        with_scripts(plan, &client).start().code(code);
    }
}

/// A job of node0 and node1, with these words.
fn on_hosts(bed: &Bed, client: &Path, options: &[&str], words: Vec<String>) -> Done {
    let all = ["rlaunch", "--ssh-fast"].iter().chain(options).map(|word| (*word).to_owned());
    let plan = bed.plan("root", "login", all.chain(words)).with_events();
    let done = with_scripts(plan, client).start().code(0);
    bed.clean(2);
    done
}

#[test]
fn workers_on_two_hosts_are_called_over_tcp() {
    let Some(client) = client() else { return };
    let Some(bed) = Bed::up(2) else { return };
    let done = on_hosts(&bed, &client, &["-H", "node0:3,node1:2"], words("calls.py", &[], 4, "workers.Plain"));
    assert_eq!(done.out(), "all calls are well\n", "{}", done.err());
    // All of the group on another host than the controller's.
    let mut apart = words("calls.py", &[], 4, "workers.Plain");
    apart.splice(0..0, ["-H", "node0"].map(String::from));
    let group = apart.iter().position(|word| word == "gen").unwrap() + 1;
    apart.splice(group..group, ["-H", "node1:4"].map(String::from));
    let done = on_hosts(&bed, &client, &[], apart);
    assert_eq!(done.out(), "all calls are well\n", "{}", done.err());
    // One of those that die leaves a child, which holds its connection.
    let done =
        on_hosts(&bed, &client, &["-H", "node0:3,node1:2"], words("deaths.py", &["with-reasons"], 4, "workers.Plain"));
    assert!(done.out().ends_with("ends [0, 1, 2, 3]\n"), "{}{}", done.out(), done.err());
    bed.down();
}
