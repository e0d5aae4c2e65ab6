//! Worker groups: a controller in Python and its workers. The scripts are in `tests/groups`.

use crate::bed::Bed;
use crate::case::Done;
use crate::place;
use crate::plan::Plan;
use crate::python::{client, with_client};
use crate::torch::pythons;
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
fn streams_wait_for_their_reader_and_end_on_cancellation() {
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
fn waits_of_a_controller_end_in_time_or_name_the_missing_workers() {
    let Some(client) = client() else { return };
    let script = scripts().join("waits.py").display().to_string();
    let plan = Plan::rlaunch(["-n", "1", "--lead", PYTHON, &script, ":", "--group", "gen", "-n", "1", "sleep", "600"]);
    let done = with_scripts(plan, &client).start().code(0);
    assert_eq!(done.out(), "all waits are well\n", "{}", done.err());
}

#[test]
fn missing_class_is_reported_with_the_existing_classes() {
    let Some(client) = client() else { return };
    for (class, text) in [
        ("workers.None", "module workers has no class 'None': it has Chosen, Mixed, Plain, Starts"),
        ("no_module.Gen", "there is no module 'no_module'"),
        ("Gen", "'Gen' names no module: write pkg.mod.Class"),
    ] {
        let plan = Plan::rlaunch(["--group", "gen", "-n", "1", PYTHON, "-m", "rlaunch.groups.worker", class]);
        let done = with_scripts(plan, &client).start().code(1);
        assert!(done.err().contains(text), "{}", done.err());
    }
}

#[test]
fn process_with_fewer_rights_neither_calls_a_worker_nor_is_one() {
    let Some(client) = client() else { return };
    if !place::has("setpriv") {
        return place::absent("a process with fewer rights", "that takes setpriv");
    }
    let call = "from rlaunch.groups import WorkerGroup; WorkerGroup.attach('gen', start_timeout=30); print('attached')";
    let (whole, fewer): ([&str; 0], _) = ([], ["setpriv", "--no-new-privs"]);
    for (caller, worker) in [(&fewer[..], &whole[..]), (&whole, &fewer), (&whole, &whole)] {
        let controller = [&["-n", "1", "--lead"][..], caller, &[PYTHON, "-c", call]].concat();
        let workers =
            [&[":", "--group", "gen", "-n", "1"][..], worker, &[PYTHON, "-m", "rlaunch.groups.worker"]].concat();
        let words = [controller, workers, vec!["workers.Plain"]].concat();
        let is_whole = caller.is_empty() && worker.is_empty();
        let done = with_scripts(Plan::rlaunch(words), &client).start().code(u8::from(!is_whole).into());
        assert_eq!(done.out(), if is_whole { "attached\n" } else { "" }, "{}", done.err());
        if !is_whole {
            done.says("Refused: rank 0 has other rights than the job: its NoNewPrivs is 1, and that of the job is 0");
        }
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

#[test]
fn name_of_a_group_that_has_ended_can_be_used_again() {
    let Some(client) = client() else { return };
    let done = own(&client, &[scripts().join("again.py").to_str().unwrap()]).start().code(0);
    assert_eq!(done.out(), "the name was free each time\n", "{}", done.err());
}

#[test]
fn group_of_which_the_launcher_knows_no_end_has_not_ended_well() {
    let Some(client) = client() else { return };
    let done = own(&client, &[scripts().join("forgotten.py").to_str().unwrap()]).start().code(0);
    assert_eq!(done.out(), "the end is unknown\n", "{}", done.err());
}

/// A controller that starts its workers itself.
fn own(client: &Path, words: &[&str]) -> Plan {
    with_scripts(Plan::rlaunch(["--grace", "2s", "-n", "1", "--lead", PYTHON]).args(words), client)
}

#[test]
fn controller_starts_and_ends_its_own_groups() {
    let Some(client) = client() else { return };
    let plan = own(&client, &[scripts().join("own.py").to_str().unwrap()]);
    let done = plan.env("GIVEN", "by the caller").start().code(0);
    assert_eq!(done.out(), "all groups are well\n", "{}", done.err());
}

#[test]
fn groups_of_a_controller_reduce_side_by_side() {
    let Some(client) = client() else { return };
    for python in pythons().iter().take(1) {
        let script = scripts().join("reduces.py");
        let words = [python.as_os_str(), script.as_os_str()];
        let plan = Plan::rlaunch(["-n", "1", "--lead"]).args(words);
        let done = with_scripts(plan, &client).start().code(0);
        assert_eq!(done.out(), "both groups have reduced\n", "{}", done.err());
    }
}

#[test]
fn example_of_reinforcement_learning_learns() {
    let Some(client) = client() else { return };
    if pythons().is_empty() {
        return;
    }
    let example = place::root().join("examples/groups_rl.py");
    let done = own(&client, &[example.to_str().unwrap()]).start().code(0);
    let out = done.out();
    let reward = |line: Option<&str>| line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    let (first, last) = (reward(out.lines().next()), reward(out.lines().last()));
    assert!(first.unwrap() < 0.3 && last.unwrap() > 0.5, "{out}{}", done.err());
}

#[test]
fn no_worker_stays_after_the_end_of_its_controller() {
    let Some(client) = client() else { return };
    for (end, code) in
        [("raise SystemExit(3)", 3), ("raise ValueError", 1), ("import os; os.kill(os.getpid(), 9)", 137)]
    {
        let script = format!(
            "from rlaunch.groups import WorkerGroup\ngroup = WorkerGroup('workers.Plain', n=2)\n\
             group.workers[0].start_child().result()\ngroup.workers[1].sleep(seconds=60)\n{end}"
        );
        let done = own(&client, &["-c", &script]).start().code(code);
        assert_eq!(done.named("rank.exited").count(), 3, "{}", done.err());
    }
}

#[test]
fn controller_decides_when_a_host_of_its_workers_is_lost() {
    let Some(client) = client() else { return };
    let Some(bed) = Bed::up(2) else { return };
    let script = scripts().join("host_lost.py");
    let options = ["rlaunch", "--ssh-fast", "--lease", "4s", "-H", "node0:2,node1:2", "--map-by", "node"];
    let plan = bed.plan("root", "login", options).with_events();
    let controller = ["-n", "1", "--lead", PYTHON, script.to_str().unwrap()];
    let workers =
        [":", "--group", "gen", "-H", "node[0-1]:1", "-n", "2", PYTHON, "-m", "rlaunch.groups.worker", "workers.Plain"];
    let case = with_scripts(plan.args(controller).args(workers), &client).start();
    case.says_on_stdout("ready\n", 1);
    bed.run(["kill-host", "node1"]);
    let done = case.code(0);
    assert!(done.out().ends_with("the others are well\n"), "{}{}", done.out(), done.err());
    assert!(done.out().contains("rank 1 of group gen on node1 was lost with its host\n"), "{}", done.out());
    assert!(done.err().contains("node1") && done.err().contains("the others continue (--lead)"), "{}", done.err());
    assert!(done.err().contains("node1 is no host of this job that can take more ranks"), "{}", done.err());
    bed.down();
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
