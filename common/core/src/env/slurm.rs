//! The variables that a Slurm step sets for its tasks. Inside a batch script or under `srun` these name *that* task, not our ranks: JAX
//! and others would take every rank for task 0. The names of the allocation stay.

use super::{Anew, Contract, Role, Var};

const fn gone(name: &'static str) -> Var {
    Var {
        name,
        role: Role::Removed,
        doc: "Belongs to the step or the task in which rlaunch itself runs.",
        anew: Anew::Never,
    }
}

const fn host(name: &'static str) -> Var {
    Var { name, role: Role::Host, doc: "Of the host on which rlaunch itself runs.", anew: Anew::Never }
}

pub(super) const CONTRACT: Contract = Contract {
    title: "Slurm",
    about: "The allocation's names (`SLURM_JOB_ID`, `SLURM_JOB_NODELIST`, `SLURM_NTASKS`, …) pass; those of one host only there.",
    vars: &[
        host("SLURMD_NODENAME"),
        host("SLURM_CPUS_ON_NODE"),
        host("SLURM_GPUS_ON_NODE"),
        gone("SLURM_GTIDS"),
        gone("SLURM_LAUNCH_NODE_IPADDR"),
        gone("SLURM_LOCALID"),
        gone("SLURM_NODEID"),
        gone("SLURM_PMIXP_ABORT_AGENT_PORT"),
        gone("SLURM_PMIX_MAPPING_SERV"),
        gone("SLURM_PMI_FD"),
        gone("SLURM_PMI_KVS_NO_DUP_KEYS"),
        gone("SLURM_PROCID"),
        gone("SLURM_STEPID"),
        gone("SLURM_TASK_PID"),
        host("SLURM_TOPOLOGY_ADDR"),
        host("SLURM_TOPOLOGY_ADDR_PATTERN"),
    ],
    families: &[gone("SLURM_PTY_*"), gone("SLURM_SRUN_COMM_*"), gone("SLURM_STEP_*")],
};
