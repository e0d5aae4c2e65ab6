//! `--launcher`: what starts the agents of hosts, where it is not ssh.

use crate::plan::Plan;
use std::time::{Duration, Instant};

/// The command reaches this machine, under whichever name.
#[test]
fn a_command_of_the_users_starts_agents() {
    let reach =
        |command: &str| Plan::rlaunch(["--launcher", command, "-H", "a,b", "-l", "sh", "-c", "echo $WORLD_SIZE; cat"]);
    let done = reach("exec:env NAME={host}").start().code(0);
    assert_eq!(done.sorted(), ["0: 2", "1: 2"]);
    done.says("a and b are names of one machine");
    for (command, why) in [
        ("exec:false {host}", "a,b     the command of --launcher failed (exit code 1)\n"),
        (
            "exec:/nonexistent {host}",
            "a,b     the command of --launcher cannot be started: no such file or directory\n",
        ),
        // PATH of an ordinary user may have directories that only root may search.
        ("exec:nosuchcmd {host}", "a,b     the command of --launcher cannot be started: no such file or directory\n"),
        ("exec:echo {host}", "the command of --launcher ended without starting the agent (exit code 0)\n"),
    ] {
        reach(command).start().code(125).says("error: 2 of 2 hosts cannot be reached; nothing was started\n").says(why);
    }
}

/// The command of `--launcher`, as ssh or srun, may live on after the agent that it carried.
#[test]
fn a_launcher_command_that_outlives_its_agents_is_ended_before_rlaunch_exits() {
    for (trap, takes) in [("", 0), ("trap \"\" TERM;", 1)] {
        let script = format!(
            r#"echo '#!/bin/sh
                {trap} echo $$ >> "$PIDS"; shift; "$@"; exec sleep 60 <&- >&- 2>&-' > "$DIR/carrier"; chmod +x "$DIR/carrier"
            export PIDS="$DIR/pids"; "$RL" --launcher "exec:$DIR/carrier {{host}}" -H a,b true; code=$?
            for pid in $(cat "$PIDS"); do ! kill -0 "$pid" || echo "$pid runs on"; done; wc -l < "$PIDS"; exit $code"#
        );
        let before = Instant::now();
        let done = Plan::shell(&script).start().code(0);
        assert_eq!(done.out(), "2\n", "with {trap:?}");
        assert!(before.elapsed() >= Duration::from_secs(takes), "it was killed before it could obey ({trap:?})");
    }
}

/// A container may have the variables of its job, and not its programs.
#[test]
fn an_srun_that_is_missing_is_named_with_a_way_out() {
    let script = r#"mkdir "$DIR/bin"; PATH=$DIR/bin exec "$RL" -n 1 "$@""#;
    let plan = |words: &str| {
        let plan = Plan::shell(&script.replace("\"$@\"", words));
        plan.env("SLURM_JOB_ID", "7").env("SLURM_JOB_NODELIST", "node[01-04]").env("SLURM_TASKS_PER_NODE", "1(x4)")
    };
    let done = plan("true").start().code(125);
    done.says("error: 1 of 1 host cannot be reached; nothing was started\n")
        .says("the command srun cannot be started: no such file");
    done.says("try     put srun into PATH; or --launcher ssh");
    plan("--launcher local /bin/true").start().code(0);
}

/// Shells that ssh has opened on a node of a job, and containers, have such an environment.
#[test]
fn a_job_of_slurm_without_hosts_is_noted_and_runs_here() {
    let run = |words: &str| {
        Plan::shell(&format!(r#"exec "$RL" {words} -n 2 /bin/true"#)).env("SLURM_JOB_ID", "7").start().code(0).err()
    };
    let note = "rlaunch: SLURM_JOB_ID=7 is set without SLURM_JOB_NODELIST: all ranks run on this host";
    assert!(run("").contains(note), "{}", run(""));
    assert_eq!(run("--launcher local"), "");
    assert_eq!(run("-q"), "");
}
