//! Variables of Open MPI's launcher, for programs that look at the environment and not at PMIx.
//!
//! `OMPI_MCA_orte_hnp_uri` is left out on purpose: JAX takes its presence for Open MPI 4 and parses an address from it.
//! User settings (`OMPI_MCA_btl`, `PMIX_MCA_*`, …) pass; only what a launcher sets for its own ranks is removed.

use super::block::{Host, RankVariables, Sink};
use super::{Anew, Contract, Role, Var};

const fn set(name: &'static str, doc: &'static str) -> Var {
    Var { name, role: Role::Set, doc, anew: Anew::Never }
}

const fn gone(name: &'static str) -> Var {
    Var {
        name,
        role: Role::Removed,
        doc: "Set by an outer prterun, mpirun or prted for its own ranks.",
        anew: Anew::Never,
    }
}

pub(super) const CONTRACT: Contract = Contract {
    title: "Open MPI, PRRTE, PMIx",
    about: "The variables that Open MPI documents. Variables that an outer `prterun` (5.0.11) or `mpirun` (4.1) sets for its \
            ranks are removed. With them, an inner program would take itself for a rank of the outer launcher. MCA \
            parameters of the user pass through.",
    vars: &[
        gone("OMPI_APP_CTX_NUM_PROCS"),
        gone("OMPI_ARGV"),
        gone("OMPI_COMMAND"),
        set("OMPI_COMM_WORLD_LOCAL_RANK", "As LOCAL_RANK.").relocal(),
        set("OMPI_COMM_WORLD_LOCAL_SIZE", "As LOCAL_WORLD_SIZE.").each_round(),
        set("OMPI_COMM_WORLD_NODE_RANK", "As LOCAL_RANK. (Open MPI counts ranks of other jobs on the node too.)")
            .relocal(),
        set("OMPI_COMM_WORLD_RANK", "As RANK.").each_round(),
        set("OMPI_COMM_WORLD_SIZE", "As WORLD_SIZE.").each_round(),
        gone("OMPI_FILE_LOCATION"),
        gone("OMPI_FIRST_RANKS"),
        gone("OMPI_MCA_cpu_type"),
        gone("OMPI_MCA_ess"),
        gone("OMPI_MCA_initial_wdir"),
        gone("OMPI_MCA_num_procs"),
        gone("OMPI_MCA_orte_app_num"),
        gone("OMPI_MCA_orte_bound_at_launch"),
        gone("OMPI_MCA_orte_jobfam_session_dir"),
        gone("OMPI_MCA_orte_launch"),
        gone("OMPI_MCA_orte_local_daemon_uri"),
        gone("OMPI_MCA_orte_num_nodes"),
        gone("OMPI_MCA_orte_parent_uri"),
        gone("OMPI_MCA_orte_precondition_transports"),
        gone("OMPI_MCA_orte_top_session_dir"),
        Var {
            name: "OMPI_MCA_pmix",
            role: Role::Removed,
            doc: "Set by an outer mpirun 4: with it, a program without a PMIx server fails. `-x OMPI_MCA_pmix` keeps your value.",
            anew: Anew::Never,
        },
        gone("OMPI_MCA_shmem_RUNTIME_QUERY_hint"),
        gone("OMPI_NUM_APP_CTX"),
        set("OMPI_UNIVERSE_SIZE", "As WORLD_SIZE.").each_round(),
        gone("OMPI_WORLD_LOCAL_SIZE"),
        gone("OMPI_WORLD_SIZE"),
        gone("OPAL_USER_PARAMS_GIVEN"),
        gone("PMIX_BFROP_BUFFER_TYPE"),
        gone("PMIX_GDS_MODULE"),
        gone("PMIX_HOSTNAME"),
        gone("PMIX_ID"),
        gone("PMIX_NAMESPACE"),
        gone("PMIX_PARAM_FILE_PASSED"),
        gone("PMIX_PTL_MODULE"),
        gone("PMIX_RANK"),
        gone("PMIX_SECURITY_MODE"),
        gone("PMIX_SERVER_TMPDIR"),
        gone("PMIX_SYSTEM_TMPDIR"),
        gone("PMIX_VERSION"),
        gone("PRTE_LAUNCHED"),
        gone("PRTE_SHARED_FS"),
    ],
    families: &[
        gone("OMPI_COMM_WORLD_*"),
        gone("OMPI_MCA_ess_base_*"),
        gone("OMPI_MCA_orte_ess_*"),
        gone("PMIX_DSTORE_*"),
        gone("PMIX_SERVER_URI*"),
        gone("PRTE_MCA_ess_*"),
    ],
};

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    out.number("OMPI_COMM_WORLD_SIZE", host.world_size);
    out.number("OMPI_COMM_WORLD_LOCAL_SIZE", host.local_size);
    out.number("OMPI_UNIVERSE_SIZE", host.world_size);
}

pub(super) fn of_rank(seat: &RankVariables<'_>, out: &mut Sink<'_>) {
    out.number("OMPI_COMM_WORLD_RANK", seat.rank.get());
    out.number("OMPI_COMM_WORLD_LOCAL_RANK", seat.local_rank.get());
    out.number("OMPI_COMM_WORLD_NODE_RANK", seat.local_rank.get());
}
