//! Variables that Hydra (MPICH, Intel MPI, MVAPICH) sets for its ranks beside the PMI conversation itself.
//!
//! The `PMI_*` names come with a PMI server: `PMI_RANK` without one makes MPICH abort instead of running as one process.

use super::block::{Host, RankVariables, Sink};
use super::{Anew, Contract, Role, Var};

const fn set(name: &'static str, doc: &'static str) -> Var {
    Var { name, role: Role::Set, doc, anew: Anew::Never }
}

const fn gone(name: &'static str) -> Var {
    Var { name, role: Role::Removed, doc: "Set by an outer mpiexec for its own ranks.", anew: Anew::Never }
}

pub(super) const CONTRACT: Contract = Contract {
    title: "MPICH, Intel MPI (Hydra, PMI)",
    about: "The variables of Hydra 5.0.2. Ranks do not inherit the descriptors of an outer `mpiexec`, so its `PMI_*` \
            variables are removed.",
    vars: &[
        gone("HYDI_CONTROL_FD"),
        Var {
            name: "HYDRA_HOST_FILE",
            role: Role::Read,
            doc: "The hostfile, as under mpiexec. `-H`, `--hostfile` and their variables override it.",
            anew: Anew::Never,
        },
        Var {
            name: "MPIEXEC_TIMEOUT",
            role: Role::Read,
            doc: "Time limit of the job in seconds, as under mpiexec. `--timeout` and RLAUNCH_TIMEOUT override it.",
            anew: Anew::Never,
        },
        set("MPI_LOCALNRANKS", "As LOCAL_WORLD_SIZE.").each_round(),
        set("MPI_LOCALRANKID", "As LOCAL_RANK.").relocal(),
        gone("PMI_APPNUM"),
        gone("PMI_CONTROL_FD"),
        gone("PMI_CONTROL_PORT"),
        gone("PMI_DOMAIN"),
        gone("PMI_FD"),
        gone("PMI_HOSTNAME"),
        gone("PMI_ID"),
        gone("PMI_JOBID"),
        gone("PMI_KVS"),
        gone("PMI_PORT"),
        gone("PMI_PROCESS_MAPPING"),
        gone("PMI_RANK"),
        gone("PMI_SIZE"),
        gone("PMI_SPAWNED"),
        gone("PMI_UNIVERSE_SIZE"),
    ],
    families: &[gone("MV2_COMM_WORLD_*")],
};

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    out.number("MPI_LOCALNRANKS", host.local_size);
}

pub(super) fn of_rank(seat: &RankVariables<'_>, out: &mut Sink<'_>) {
    out.number("MPI_LOCALRANKID", seat.local_rank.get());
}
