//! JAX finds its other processes without an argument.
//!
//! `RLAUNCH_JAX` names a Python that has it; scripts/test makes one.

use crate::bed::Bed;
use crate::case::Done;
use crate::place;
use crate::plan::Plan;
use std::path::PathBuf;

pub(crate) const SUM: &str = r#"
import jax
jax.distributed.initialize()
from jax.experimental import multihost_utils
import numpy, os
all = multihost_utils.process_allgather(numpy.array([jax.process_index() + 1]))
os.write(1, ("%d of %d: %d\n" % (jax.process_index(), jax.process_count(), int(all.sum()))).encode())
"#;

pub(crate) fn python() -> Option<PathBuf> {
    let python = place::jax();
    if python.is_none() {
        place::absent("JAX", "RLAUNCH_JAX names no Python that has it");
    }
    python
}

fn sums(plan: Plan, python: PathBuf, script: &str) {
    let path = plan.scratch().path("sum.py");
    std::fs::write(&path, script).unwrap();
    // Inside a batch job of Slurm, whose names are those of its first task.
    let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "1"), ("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0")];
    let plan = slurm.iter().fold(plan, |plan, (name, value)| plan.env(name, value));
    let plan = plan.env("SLURM_STEP_NODELIST", "elsewhere").env("JAX_PLATFORMS", "cpu");
    let done = plan.args([python, path]).start().code(0);
    assert_eq!(sums_of(&done), ["0 of 2: 3", "1 of 2: 3"], "{}", done.err());
    assert_eq!(done.event("job.start")["store"]["why"], "jax");
}

/// The lines of the script: JAX's own gloo says something too.
pub(crate) fn sums_of(done: &Done) -> Vec<String> {
    done.sorted().into_iter().filter(|line| line.contains(" of ") && !line.contains("Gloo")).collect()
}

#[test]
fn two_processes_of_this_host_need_no_argument() {
    if let Some(python) = python() {
        sums(Plan::rlaunch(["-n", "2"]), python, SUM);
    }
}

#[test]
fn initialize_of_the_package_passes_all_arguments() {
    let (Some(python), Some(client)) = (python(), place::client()) else { return };
    // JAX itself is asked what it was given, and nothing is left for it to find out.
    let script = SUM.replace(
        "jax.distributed.initialize()",
        "import rlaunch.jax\nreal, given = jax.distributed.initialize, {}\n\
         jax.distributed.initialize = lambda **all: (given.update(all), real(**all))\nrlaunch.jax.initialize()\n\
         assert set(given) == {'coordinator_address', 'num_processes', 'process_id', 'local_device_ids'}, given\n\
         assert given['num_processes'] == 2 and ':' in given['coordinator_address'], given",
    );
    let plan = Plan::rlaunch(["-n", "2"]).env("PYTHONPATH", client).env("PYTHONDONTWRITEBYTECODE", "1");
    sums(plan, python, &script);
}

#[test]
fn two_processes_of_two_hosts_need_no_argument() {
    let Some(python) = python() else { return };
    let Some(bed) = Bed::up(2) else { return };
    sums(bed.plan("tester", "login", ["rlaunch", "--ssh-fast", "-H", "node[0-1]"]).with_events(), python, SUM);
    bed.clean(2);
    bed.down();
}
