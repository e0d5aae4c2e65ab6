//! The variables that torchrun sets for its workers: `init_process_group()` with `env://` works under rlaunch as it does there.

use super::block::{Host, RankVariables, Sink};
use super::{Contract, Role, Var};
use alloc::format;

const fn var(name: &'static str, role: Role, doc: &'static str) -> Var {
    Var::new(name, role, doc)
}

pub(super) const CONTRACT: Contract = Contract {
    title: "PyTorch (torchrun)",
    about: "The variables of torchrun 2.15. `is_torchelastic_launched()` is true, and `env://` needs no argument.",
    vars: &[
        var("GROUP_RANK", Role::Set, "Index of the host.").each_round(),
        var("GROUP_WORLD_SIZE", Role::Set, "Number of hosts of the job.").each_round(),
        var("LOCAL_RANK", Role::Set, "Rank among the ranks of the host, from 0."),
        var("LOCAL_WORLD_SIZE", Role::Set, "Number of ranks on the host.").each_round(),
        var(
            "MASTER_ADDR",
            Role::Meeting,
            "Address at which rank 0 listens. Your value wins, unless RANK is set: then rlaunch is a rank of \
             another job.",
        )
        .each_round(),
        var(
            "MASTER_PORT",
            Role::Meeting,
            "Port at which rank 0 listens. It is free, and reserved against other jobs of rlaunch. Yours wins as \
             for MASTER_ADDR.",
        )
        .each_round(),
        var(
            "OMP_NUM_THREADS",
            Role::Default,
            "CPUs of a bound rank. Otherwise, with several ranks per host: processors divided by the ranks of the \
             host, at least 1.",
        ),
        var(
            "PET_LOCAL_RANKS_FILTER",
            Role::Read,
            "As `--local-ranks-filter`. All `PET_*` need an option of torchrun, and rlaunch's own variable \
             overrides them.",
        ),
        var("PET_LOG_DIR", Role::Read, "As `--log-dir`."),
        var("PET_MASTER_ADDR", Role::Read, "As `--master-addr`."),
        var("PET_MASTER_PORT", Role::Read, "As `--master-port`."),
        var("PET_MAX_RESTARTS", Role::Read, "As `--max-restarts`."),
        var("PET_MODULE", Role::Read, "As `-m`, unless `0`."),
        var("PET_NNODES", Role::Read, "As `--nnodes`."),
        var("PET_NODE_RANK", Role::Read, "As `--node-rank`: only `0` is accepted."),
        var("PET_NO_PYTHON", Role::Read, "As `--no-python`, unless `0`."),
        var("PET_NPROC_PER_NODE", Role::Read, "As `--nproc-per-node`."),
        var("PET_RDZV_ID", Role::Read, "As `--rdzv-id`."),
        var("PET_REDIRECTS", Role::Read, "As `--redirects`."),
        var("PET_ROLE", Role::Read, "As `--role`."),
        var("PET_SHUTDOWN_TIMEOUT", Role::Read, "As `--shutdown-timeout`."),
        var("PET_TEE", Role::Read, "As `--tee`."),
        var("PYTHON_EXEC", Role::Read, "The Python for scripts and modules. The default is `python3`."),
        var("RANK", Role::Set, "Rank, from 0.").each_round(),
        var("ROLE_NAME", Role::Set, "As RLAUNCH_APP_NAME: each program is a role."),
        var("ROLE_RANK", Role::Set, "As RLAUNCH_APP_RANK. With one program it equals RANK.").each_round(),
        var("ROLE_WORLD_SIZE", Role::Set, "As RLAUNCH_APP_SIZE. With one program it equals WORLD_SIZE.").each_round(),
        var(
            "TORCHELASTIC_ERROR_FILE",
            Role::Set,
            "File of the rank in which `@record` writes the exception that ended the rank. The report quotes it.",
        ),
        var("TORCHELASTIC_MAX_RESTARTS", Role::Set, "As `--max-restarts`."),
        var("TORCHELASTIC_RESTART_COUNT", Role::Set, "Number of restarts of all ranks so far, equal on every host."),
        var("TORCHELASTIC_RUN_ID", Role::Set, "As RLAUNCH_JOB_ID."),
        var("TORCHELASTIC_TIMER_FILE", Role::Removed, "Belongs to the agent of an outer torchrun."),
        var(
            "TORCHELASTIC_USE_AGENT_STORE",
            Role::Set,
            "`True`: rlaunch holds the TCPStore at MASTER_PORT (`--master-store`). `False`: rank 0 opens it.",
        ),
        var("TORCH_NCCL_ASYNC_ERROR_HANDLING", Role::Default, "`1`."),
        var("WORLD_SIZE", Role::Set, "Number of ranks of the job. In a round: number of active ranks.").each_round(),
    ],
    families: &[],
};

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    out.number("WORLD_SIZE", host.world_size);
    out.number("LOCAL_WORLD_SIZE", host.local_size);
    out.number("GROUP_RANK", host.node_index);
    out.number("GROUP_WORLD_SIZE", host.nodes);
    out.text("ROLE_NAME", host.app_name);
    out.number("ROLE_WORLD_SIZE", host.app_size);
    out.text("MASTER_ADDR", host.master_addr);
    out.number("MASTER_PORT", u32::from(host.master_port));
    out.number("TORCHELASTIC_RESTART_COUNT", host.restart);
    out.number("TORCHELASTIC_MAX_RESTARTS", host.max_restarts);
    out.text("TORCHELASTIC_RUN_ID", format!("{}", host.job).as_bytes());
    out.text("TORCHELASTIC_USE_AGENT_STORE", if host.agent_store { b"True" } else { b"False" });
    out.number("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1);
    if let (Some(cpus), 2..) = (host.cpus, host.local_size) {
        out.number("OMP_NUM_THREADS", (cpus / host.local_size).max(1));
    }
}

pub(super) fn of_rank(values: &RankVariables<'_>, out: &mut Sink<'_>) {
    out.number("RANK", values.rank.get());
    out.number("LOCAL_RANK", values.local_rank.get());
    out.number("ROLE_RANK", values.app_rank);
    if let Some(threads) = values.threads {
        out.number("OMP_NUM_THREADS", threads);
    }
    if !values.error_file.is_empty() {
        out.text("TORCHELASTIC_ERROR_FILE", values.error_file);
    }
}
