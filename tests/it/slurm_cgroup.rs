//! Jobs of a Slurm that holds each step in control groups, with processors of its own, as most clusters do.

use crate::bed::Bed;
use crate::{binding, place, slurm};

#[test]
fn reported_cpus_equal_the_cpus_that_slurm_has_allocated() {
    if !binding::has_two_cores() {
        return;
    }
    let Some(bed) = Bed::slurm_cgroup(2) else { return };
    let ask = "echo $RANK $(grep Cpus_allowed_list /proc/self/status | cut -f2)";
    for (allocation, options, ranks) in [
        ("-N2 -n4", "", 4),
        ("-N2 -n2", "", 2),
        ("-N2 -n2 -c2", "", 2),
        ("-N2 -n2 -c2", "--bind-to core", 2),
        ("-N2 -n4", "--bind-to none", 4),
    ] {
        let script = format!(r#"exec "$RL" --report-bindings {options} sh -c "$ASK""#);
        let done = slurm::salloc(&bed, "tester", allocation, &script).env("ASK", ask).start().code(0);
        let [kernel, reported] = binding::cpus_of(&done);
        assert_eq!(kernel, reported, "{allocation} {options}");
        assert_eq!(kernel.len(), ranks, "{allocation} {options}: {}", done.err());
        if allocation == "-N2 -n2" {
            // Each task has one processor.
            assert!(kernel.values().all(|cpus| cpus.parse::<u32>().is_ok()), "{kernel:?}");
        }
    }
    bed.clean(10);
    bed.down();
}

/// Slurm signals only the process group of a task here. Ranks are outside that group, so each signal comes from rlaunch.
#[test]
fn signals_of_scancel_reach_each_rank_once_in_control_groups() {
    let Some(bed) = Bed::slurm_cgroup(2) else { return };
    slurm::signals_reach_each_rank_once(&bed);
    bed.down();
}

/// The batch shell dies of SIGTERM. Slurm then kills rlaunch and srun, which are in its step.
#[test]
fn ranks_of_a_batch_script_save_when_slurm_kills_the_launcher() {
    let Some(bed) = Bed::slurm_cgroup(2) else { return };
    let rank = r#"trap "echo TERM >>saved.\$RANK; sleep 1; echo saved >>saved.\$RANK; exit 0" TERM; echo up >>ups; while :; do sleep 0.1; done"#;
    for transport in ["tcp", "stdio"] {
        for line in [r#""$RL" $HOW sh -c "$RANKS"; echo code $?"#, r#"exec "$RL" $HOW sh -c "$RANKS""#] {
            let script = format!(
                r#"rm -f saved.* ups; printf '%s\n' '#!/bin/sh' '{line}' >job; sbatch -Q -W -N2 -n4 -o out job & 
                until [ "$(cat ups 2>/dev/null | wc -l)" = 4 ]; do sleep 0.1; done; sleep 0.5; scancel -u tester; wait
                until [ -z "$(squeue -h -u tester)" ]; do sleep 0.1; done; sed s/^/out:/ out; for f in saved.*; do tr '\n' ' ' <$f; echo; done"#
            );
            let plan = bed.plan("tester", "login", ["sh", "-c", &script]);
            let done = plan.env("RANKS", rank).env("HOW", format!("--transport {transport}")).start().end();
            let out = done.out();
            assert_eq!(out.matches("TERM saved \n").count(), 4, "{transport} {line}: {out} {}", done.err());
            assert_eq!(out.matches("TERM").count() - out.matches("SIGTERM").count(), 4, "{transport} {line}: {out}");
            if line.starts_with("exec") {
                assert!(out.contains("rlaunch: Slurm ended the job by SIGTERM after "), "{out}");
            }
        }
    }
    bed.clean(10);
    bed.down();
}

/// slurmctld looks at time limits every 30 s, so this takes longer than most tests.
#[test]
fn ranks_of_a_batch_script_save_at_the_time_limit() {
    if !place::full() {
        return;
    }
    let Some(bed) = Bed::slurm_cgroup(2) else { return };
    let rank = r#"trap "echo TERM >>saved.\$1.\$RANK; sleep 1; echo saved >>saved.\$1.\$RANK; exit 0" TERM; echo up >>ups; while :; do sleep 0.1; done"#;
    let script = r#"
        for way in tcp stdio; do
            printf '%s\n' '#!/bin/sh' "\"$RL\" --transport $way sh -c \"\$RANKS\" rank $way; echo code \$?" >job.$way
            sbatch -Q -W -t 1 -N2 -n2 -o out.$way job.$way &
        done
        until [ "$(cat ups 2>/dev/null | wc -l)" = 4 ]; do sleep 0.1; done
        for job in $(squeue -h -o %A -u tester); do scontrol update jobid=$job EndTime=now+1; done
        while [ -n "$(squeue -h -u tester)" ]; do squeue -h -o %T >&2; sleep 0.5; done; wait
        cat out.*; for f in saved.*; do tr '\n' ' ' <$f; echo; done"#;
    let done = bed.plan("tester", "login", ["sh", "-c", script]).env("RANKS", rank).start().end();
    let out = done.out();
    assert_eq!(out.matches(" DUE TO TIME LIMIT ").count(), 2, "{out} {}", done.err());
    assert_eq!(out.lines().filter(|line| *line == "TERM saved ").count(), 4, "{out} {}", done.err());
    bed.clean(10);
    bed.down();
}
