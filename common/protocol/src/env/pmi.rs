//! Variables that Hydra (MPICH, Intel MPI, MVAPICH) sets for its ranks beside the PMI conversation itself.
//!
//! `PMI_FD` names a descriptor that a rank inherits, and is not set. `PMI_PORT` and `PMI_ID` do the same by a port. With them, libraries
//! do not read `PMI_RANK`. Scripts choose a device or a part by it.

use super::block::{Host, MpiHost, RankVariables, Sink};
use super::{Contract, Role, Var};
use alloc::format;

const fn set(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::Set, doc)
}

const fn gone(name: &'static str) -> Var {
    Var::new(name, Role::Removed, "Set by an outer mpiexec for its own ranks.")
}

/// Set where a host has more ranks than processors for them.
pub(super) const fn crowded(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::Default, doc)
}

pub(super) const CONTRACT: Contract = Contract {
    title: "MPICH, Intel MPI (Hydra, PMI)",
    about: "Names of Hydra 5.0.2. The descriptors that an outer `mpiexec` passes on do not reach our ranks, so its other \
            `PMI_*` names must not either. With `--mpi none` ranks have no PMI_PORT and what belongs to it.",
    vars: &[
        gone("HYDI_CONTROL_FD"),
        Var::new(
            "HYDRA_HOST_FILE",
            Role::Read,
            "The hostfile, as under mpiexec. `-H`, `--hostfile` and their variables override it.",
        ),
        crowded("I_MPI_THREAD_YIELD", "`3`, where a host has more ranks than processors: ranks that wait yield."),
        Var::new(
            "MPIEXEC_TIMEOUT",
            Role::Read,
            "Time limit of the job in seconds, as under mpiexec. `--timeout` and RLAUNCH_TIMEOUT override it.",
        ),
        crowded("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "`true`, as I_MPI_THREAD_YIELD."),
        crowded("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "`1`, as I_MPI_THREAD_YIELD."),
        crowded("MPIR_CVAR_ENABLE_HEAVY_YIELD", "`1`, as I_MPI_THREAD_YIELD: ranks that wait sleep for a moment."),
        set("MPIR_CVAR_PMI_VERSION", "`1`, with PMI_PORT: MPICH 5 aborts if it finds PMI and PMIx; this chooses PMI."),
        crowded("MPIR_CVAR_POLLS_BEFORE_YIELD", "`1`, as I_MPI_THREAD_YIELD."),
        set("MPI_LOCALNRANKS", "As LOCAL_WORLD_SIZE.").each_round(),
        set("MPI_LOCALRANKID", "As LOCAL_RANK."),
        set("MV2_COMM_WORLD_LOCAL_RANK", "As LOCAL_RANK, for scripts written for MVAPICH."),
        set("MV2_COMM_WORLD_LOCAL_SIZE", "As LOCAL_WORLD_SIZE.").each_round(),
        set("MV2_COMM_WORLD_RANK", "As RANK.").each_round(),
        set("MV2_COMM_WORLD_SIZE", "As WORLD_SIZE.").each_round(),
        gone("PMI_APPNUM"),
        gone("PMI_CONTROL_FD"),
        gone("PMI_CONTROL_PORT"),
        gone("PMI_DOMAIN"),
        gone("PMI_FD"),
        gone("PMI_HOSTNAME"),
        set("PMI_ID", "As RANK, with PMI_PORT."),
        gone("PMI_JOBID"),
        gone("PMI_KVS"),
        set("PMI_LOCAL_RANK", "As LOCAL_RANK, by the name of Cray's launcher."),
        set("PMI_LOCAL_SIZE", "As LOCAL_WORLD_SIZE.").each_round(),
        set("PMI_PORT", "Address and port of 127.0.0.1 at which the agent serves MPI libraries (`--mpi`)."),
        gone("PMI_PROCESS_MAPPING"),
        set("PMI_RANK", "As RANK, for scripts: libraries ask the agent.").each_round(),
        set("PMI_SIZE", "As WORLD_SIZE. mpi4py takes its absence for another launcher.").each_round(),
        set("PMI_SPAWNED", "`1`, if MPI_Comm_spawn has started the rank."),
        gone("PMI_UNIVERSE_SIZE"),
    ],
    families: &[gone("MV2_COMM_WORLD_*")],
};

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    for name in ["MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "PMI_LOCAL_SIZE"] {
        out.number(name, host.local_size);
    }
    for name in ["MV2_COMM_WORLD_SIZE", "PMI_SIZE"] {
        out.number(name, host.world_size);
    }
    let Some(MpiHost { port, is_crowded, is_spawned, .. }) = host.mpi else { return };
    out.text("PMI_PORT", format!("127.0.0.1:{port}").as_bytes());
    out.number("MPIR_CVAR_PMI_VERSION", 1);
    if is_spawned {
        out.number("PMI_SPAWNED", 1);
    }
    if is_crowded {
        out.number("I_MPI_THREAD_YIELD", 3);
        out.text("MPIR_CVAR_CH4_PROGRESS_THROTTLE", b"true");
        out.number("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", 1);
        out.number("MPIR_CVAR_ENABLE_HEAVY_YIELD", 1);
        out.number("MPIR_CVAR_POLLS_BEFORE_YIELD", 1);
    }
}

pub(super) fn of_rank(values: &RankVariables<'_>, out: &mut Sink<'_>) {
    for name in ["MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "PMI_LOCAL_RANK"] {
        out.number(name, values.local_rank.get());
    }
    for name in ["MV2_COMM_WORLD_RANK", "PMI_RANK"] {
        out.number(name, values.rank.get());
    }
    if values.mpi {
        out.number("PMI_ID", values.rank.get());
    }
}
