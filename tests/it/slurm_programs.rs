//! Programs and examples in batch jobs of a real Slurm. Users start them, and an operator drains a node.
//!
//! Programs of torch load for seconds. They run with `RLAUNCH_TEST_FULL=1` (`scripts/test slurm`, `scripts/test --all`).

use crate::bed::Bed;
use crate::case::Done;
use crate::plan::Plan;
use crate::{census, examples, jax, place, python, slurm};
use std::path::Path;

/// The ways from agents to the launcher.
const TRANSPORTS: [&str; 2] = ["tcp", "stdio"];

/// A batch job of two nodes with two tasks. It runs rlaunch with these words.
fn batch(bed: &Bed, words: &str) -> Plan {
    let script = format!(
        "printf '#!/bin/sh\\nexec \"$RL\" %s\\n' '{words}' >job; sbatch -Q -W -N2 -n2 -o out job; code=$?; cat out; exit $code"
    );
    bed.plan("tester", "login", ["sh", "-c", &script]).with_events()
}

/// Copies a program of the examples, and its data, to a directory of all hosts.
fn copied(plan: Plan, script: &str) -> Plan {
    let examples = place::root().join("examples");
    std::fs::create_dir_all(plan.scratch().path("train/data")).unwrap();
    for file in [script, "train/data/digits.csv"] {
        std::fs::copy(examples.join(file), plan.scratch().path(file)).unwrap();
    }
    plan
}

/// Whether torch is to be used, and is there.
fn has_torch(what: &str) -> bool {
    if !place::full() {
        place::absent(what, "it takes long (RLAUNCH_TEST_FULL=1)");
        return false;
    }
    let probe = ["-c", "import torch.distributed as d; assert d.is_available()"];
    let found = Plan::tool(Path::new("/usr/bin/python3"), place::Scratch::new()).args(probe).start().end();
    if !found.exit.is_success() {
        place::absent(what, "/usr/bin/python3 has no torch.distributed");
    }
    found.exit.is_success()
}

#[test]
fn torch_trains_in_a_batch_job() {
    if !has_torch("torch_ddp.py in a batch job") {
        return;
    }
    let Some(bed) = Bed::slurm(2) else { return };
    for transport in TRANSPORTS {
        let plan = batch(&bed, &format!("--transport {transport} /usr/bin/python3 torch_ddp.py"));
        let plan = copied(plan, "torch_ddp.py").env("RES_OPTIONS", "timeout:1 attempts:1");
        let done = plan.start().code(0);
        assert!(examples::accuracy(&done.out()) >= 95.0, "{transport}: {}", done.out());
    }
    bed.clean(10);
    bed.down();
}

#[test]
fn resilient_training_continues_in_a_batch_job() {
    if !has_torch("torch_resilient.py in a batch job") {
        return;
    }
    let Some(client) = python::client() else { return };
    let Some(bed) = Bed::slurm(2) else { return };
    let program = "torch_resilient.py --epochs 3 --soft-timeout 30 --hard-timeout 60 --fault kill:1:30";
    for transport in TRANSPORTS {
        let words = format!("--transport {transport} -n 4 /usr/bin/python3 {program}");
        let plan = copied(batch(&bed, &words), "torch_resilient.py");
        // The hosts have another /tmp.
        let package = plan.scratch().path("package/rlaunch");
        copy_tree(&client.join("rlaunch"), &package);
        let path = plan.scratch().path("package");
        let done = python::with_client(plan, &path).start().code(0);
        assert!(done.out().contains("continuing with 3 ranks"), "{transport}: {}{}", done.out(), done.err());
    }
    bed.clean(10);
    bed.down();
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn jax_needs_no_argument_in_a_batch_job() {
    let Some(python) = jax::python() else { return };
    let Some(bed) = Bed::slurm(2) else { return };
    for transport in TRANSPORTS {
        let plan = batch(&bed, &format!("--transport {transport} {} sum.py", python.display()));
        std::fs::write(plan.scratch().path("sum.py"), jax::SUM).unwrap();
        let done = plan.env("JAX_PLATFORMS", "cpu").start().code(0);
        assert_eq!(jax::sums_of(&done), ["0 of 2: 3", "1 of 2: 3"], "{transport}: {}", done.out());
    }
    bed.clean(10);
    bed.down();
}

/// Exits with "not finished" when it is warned, and with 0 when it runs again.
const RESUMES: &str = r#"[ -z "$SLURM_RESTART_COUNT" ] || { echo again; exit 0; }; trap "exit 85" USR1; echo up; while :; do sleep 0.1; done"#;

/// The shortest time limit is a minute, and the warning comes a minute before its end. Slurm starts the job again some seconds later.
#[test]
fn a_job_of_the_examples_is_queued_again() {
    if !place::full() {
        return place::absent("requeue.sbatch", "it takes half a minute (RLAUNCH_TEST_FULL=1)");
    }
    let Some(bed) = Bed::slurm(2) else { return };
    let plan = slurm::sbatch(&bed, "requeue.sbatch", &["--time=1"], &format!("sh -c '{RESUMES}'"));
    let done: Done = plan.start().code(0);
    let out = done.out();
    assert!(out.contains("code 0\n") && out.contains("0: up\n") && out.contains("1: again\n"), "{out}");
    assert!(out.contains("Slurm sent SIGUSR1 (--signal or scancel -s); each rank gets it once"), "{out}");
    bed.clean(10);
    bed.down();
}

/// An operator who drains a node lets its jobs end as they would.
#[test]
fn a_node_that_is_drained_keeps_its_ranks() {
    let Some(bed) = Bed::slurm(2) else { return };
    let ranks = r#"echo up; until [ -e go ]; do sleep 0.1; done; echo done"#;
    let plan = slurm::salloc(&bed, "tester", "-N2 -n4", &format!(r#"exec "$RL" sh -c "{ranks}""#));
    let go = plan.scratch().path("go");
    let case = plan.start();
    case.says_on_stdout("up", 4);
    let control = |words: &str| bed.run(["exec", "login", "sh", "-c", words]);
    control("scontrol update nodename=node1 state=drain reason=test");
    census::wait_until("a node that is draining", || control("scontrol show node node1").contains("DRAIN"));
    std::fs::write(go, "").unwrap();
    let done = case.code(0);
    assert_eq!(done.out().matches("done").count(), 4, "{}", done.out());
    assert_eq!(done.err(), "", "nothing is to be said");
    bed.clean(10);
    bed.down();
}

/// The shortest time limit is a minute.
#[test]
fn the_time_limit_is_a_warning_and_the_cause() {
    if !place::full() {
        return place::absent("a time limit of Slurm", "it takes more than a minute (RLAUNCH_TEST_FULL=1)");
    }
    let Some(bed) = Bed::slurm(2) else { return };
    // Each line is a sign of life.
    let ranks = r#"trap "echo TERM; exit 0" TERM; while :; do echo up; sleep 1; done"#;
    let script = format!(r#""$RL" sh -c '"'"'{ranks}'"'"'; echo code $?"#);
    let case = slurm::salloc(&bed, "tester", "-N2 -n2 -t 1", &script).start();
    case.says_on_stdout("TERM", 2);
    let done = case.end();
    assert_eq!(done.out().matches("TERM").count(), 2, "{}", done.out());
    done.says("rlaunch: Slurm ended the job by SIGTERM after ");
    bed.clean(10);
    bed.down();
}

/// The step of the user has all tasks of the allocation. The agents take no processors from it.
#[test]
fn two_jobs_and_a_step_of_the_user_share_an_allocation() {
    let Some(bed) = Bed::slurm(2) else { return };
    let script = r#"srun -Q -n4 sh -c "echo in >>ins; until [ -e go ]; do sleep 0.1; done; echo step" &
        until [ "$(cat ins 2>/dev/null | wc -l)" = 4 ]; do sleep 0.1; done
        for job in a b; do
            "$RL" -l sh -c "echo up >>ups; until [ -e go ]; do sleep 0.1; done; hostname" >$job &
        done
        until [ "$(cat ups 2>/dev/null | wc -l)" = 8 ]; do sleep 0.1; done
        touch go; wait; cat a b"#;
    let done = slurm::salloc(&bed, "tester", "-N2 -n4", script).start().code(0);
    let expected: Vec<&str> = ["0: node0", "1: node0", "2: node0", "3: node1", "step", "step"]
        .into_iter()
        .flat_map(|line| [line; 2])
        .collect();
    assert_eq!(done.sorted(), expected, "{}", done.err());
    bed.clean(10);
    bed.down();
}

/// Slurm ends the job later, when it has missed the node for SlurmdTimeout.
#[test]
fn node_that_is_lost_ends_a_job_without_no_kill() {
    let Some(bed) = Bed::slurm(2) else { return };
    let ranks = r#"trap "echo TERM; exit 0" TERM; echo up; while :; do sleep 0.1; done"#;
    let script = format!(r#""$RL" --lease 4s sh -c '"'"'{ranks}'"'"'; echo code $?"#);
    let case = slurm::salloc(&bed, "tester", "-N2 -n4", &script).start();
    case.says_on_stdout("up", 4);
    bed.run(["kill-host", "node1"]);
    let done = case.end();
    done.says("rlaunch: lost contact with node1: no heartbeat before its lease expired; ");
    assert!(done.out().ends_with("code 125\n"), "{}", done.out());
    assert_eq!(done.out().matches("TERM").count(), 3, "one on each rank that is left: {}", done.out());
    bed.clean(10);
    bed.down();
}
