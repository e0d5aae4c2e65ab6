//! Jobs of a Slurm that holds each step in control groups, with processors of its own, as most clusters do.

use crate::bed::Bed;
use crate::{binding, slurm};

#[test]
fn reported_cpus_are_those_that_slurm_has_allocated() {
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
