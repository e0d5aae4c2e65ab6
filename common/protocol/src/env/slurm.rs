//! The variables that Slurm's srun sets for its tasks (`man srun`, "OUTPUT ENVIRONMENT VARIABLES"), with our numbers. Where a rank has
//! SLURM_JOB_ID, JAX, Lightning and others read them, and fail where some are missing.
//!
//! Inside a batch script or under `srun` the caller's own name *that* task, not our ranks: JAX and others would take every rank for
//! task 0. The names of the allocation stay. `SLURM_STEP_ID` is left out on purpose: Open MPI 4.1 would take srun for its launcher.

use super::block::{Host, RankVariables, Sink};
use super::{Contract, Role, Var};

const fn set(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::Set, doc).each_round()
}

const fn gone(name: &'static str) -> Var {
    Var::new(name, Role::Removed, "Belongs to the step or the task in which rlaunch itself runs.")
}

const fn host(name: &'static str) -> Var {
    Var::new(name, Role::Host, "Describes the host on which rlaunch itself runs.")
}

pub(super) const CONTRACT: Contract = Contract {
    title: "Slurm",
    about: "Ranks with `SLURM_JOB_ID` get the variables of an srun task, for the hosts and ranks of this job. Other ranks \
            get none of them. Variables of the allocation (`SLURM_JOB_ID`, `SLURM_JOB_NODELIST`, …) pass through. Variables \
            of one host pass only on that host. `SLURM_STEP_ID` is never set, because Open MPI 4.1 would take srun for its \
            launcher.",
    vars: &[
        host("SLURMD_NODENAME"),
        host("SLURM_CPUS_ON_NODE"),
        host("SLURM_GPUS_ON_NODE"),
        set("SLURM_GTIDS", "Ranks of the host with commas between them."),
        gone("SLURM_LAUNCH_NODE_IPADDR"),
        Var::new("SLURM_LOCALID", Role::Set, "As LOCAL_RANK."),
        set("SLURM_NNODES", "As GROUP_WORLD_SIZE."),
        set("SLURM_NODEID", "As GROUP_RANK."),
        set("SLURM_NPROCS", "As WORLD_SIZE."),
        set("SLURM_NTASKS", "As WORLD_SIZE."),
        set("SLURM_NTASKS_PER_NODE", "Largest number of ranks on one host. Lightning's `SLURMEnvironment` needs it."),
        gone("SLURM_PMIXP_ABORT_AGENT_PORT"),
        gone("SLURM_PMIX_MAPPING_SERV"),
        gone("SLURM_PMI_FD"),
        gone("SLURM_PMI_KVS_NO_DUP_KEYS"),
        set("SLURM_PROCID", "As RANK."),
        gone("SLURM_STEPID"),
        set(
            "SLURM_STEP_NODELIST",
            "Hosts of the job in the order of their index, as `node[0-2],x`. The first is the host of rank 0.",
        ),
        set("SLURM_STEP_NUM_NODES", "As GROUP_WORLD_SIZE."),
        set("SLURM_STEP_NUM_TASKS", "As WORLD_SIZE."),
        set("SLURM_STEP_TASKS_PER_NODE", "As SLURM_TASKS_PER_NODE."),
        set("SLURM_TASKS_PER_NODE", "Number of ranks of each host in SLURM_STEP_NODELIST, as `4,2,1(x2)`."),
        gone("SLURM_TASK_PID"),
        host("SLURM_TOPOLOGY_ADDR"),
        host("SLURM_TOPOLOGY_ADDR_PATTERN"),
    ],
    families: &[gone("SLURM_PTY_*"), gone("SLURM_SRUN_COMM_*"), gone("SLURM_STEP_*")],
};

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    let Some(step) = host.slurm else { return };
    for name in ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"] {
        out.number(name, host.world_size);
    }
    for name in ["SLURM_NNODES", "SLURM_STEP_NUM_NODES"] {
        out.number(name, host.nodes);
    }
    out.number("SLURM_NODEID", host.node_index);
    out.text("SLURM_STEP_NODELIST", step.hosts);
    for name in ["SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"] {
        out.text(name, step.tasks);
    }
    out.number("SLURM_NTASKS_PER_NODE", step.most_tasks);
    out.text("SLURM_GTIDS", step.task_ids);
}

pub(super) fn of_rank(values: &RankVariables<'_>, out: &mut Sink<'_>) {
    if values.slurm {
        out.number("SLURM_PROCID", values.rank.get());
        out.number("SLURM_LOCALID", values.local_rank.get());
    }
}
