//! Variables of Open MPI's launcher, for programs that look at the environment and not at PMIx.
//!
//! `OMPI_MCA_orte_hnp_uri` is left out on purpose: JAX takes its presence for Open MPI 4 and parses an address from it.
//! `OMPI_UNIVERSE_SIZE` is left out too: mpirun of Open MPI 4.1 refuses to start where it is set.
//! User settings (`OMPI_MCA_btl`, `PMIX_MCA_*`, …) pass. Removed is what a launcher sets for its own ranks, and how it is spoken to.

use super::block::{Host, MpiHost, RankVariables, Sink};
use super::pmi::crowded;
use super::{Contract, Role, Var};
use alloc::format;

const fn set(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::Set, doc)
}

const fn gone(name: &'static str) -> Var {
    Var::new(name, Role::Removed, "Set by an outer prterun, mpirun or prted for its own ranks.")
}

/// Chooses among the ways in which a library and its launcher speak.
const fn dialect(name: &'static str) -> Var {
    Var::new(
        name,
        Role::Removed,
        "The agent knows one way to speak PMIx: `MPI_Init` fails with another. `-x` keeps your value.",
    )
}

pub(super) const CONTRACT: Contract = Contract {
    title: "Open MPI, PRRTE, PMIx",
    about: "The variables that Open MPI documents. Variables that an outer `prterun` (5.0.11) or `mpirun` (4.1) sets for its \
            ranks are removed. With them, an inner program would take itself for a rank of the outer launcher. Other MCA \
            parameters of the user pass through.",
    vars: &[
        gone("OMPI_APP_CTX_NUM_PROCS"),
        gone("OMPI_ARGV"),
        gone("OMPI_COMMAND"),
        set("OMPI_COMM_WORLD_LOCAL_RANK", "As LOCAL_RANK."),
        set("OMPI_COMM_WORLD_LOCAL_SIZE", "As LOCAL_WORLD_SIZE.").each_round(),
        set("OMPI_COMM_WORLD_NODE_RANK", "As LOCAL_RANK. (Open MPI counts ranks of other jobs on the node too.)"),
        set("OMPI_COMM_WORLD_RANK", "As RANK.").each_round(),
        set("OMPI_COMM_WORLD_SIZE", "As WORLD_SIZE.").each_round(),
        gone("OMPI_FILE_LOCATION"),
        gone("OMPI_FIRST_RANKS"),
        Var::new(
            "OMPI_MCA_btl_tcp_if_include",
            Role::Default,
            "The network of the interface, as `10.1.0.0/24`; only with `--interface`, several hosts and `--mpi`.",
        ),
        gone("OMPI_MCA_cpu_type"),
        gone("OMPI_MCA_ess"),
        gone("OMPI_MCA_initial_wdir"),
        crowded("OMPI_MCA_mpi_oversubscribe", "`1`, as I_MPI_THREAD_YIELD; mpirun of Open MPI 4.1 sets it likewise."),
        gone("OMPI_MCA_num_procs"),
        gone("OMPI_MCA_orte_app_num"),
        gone("OMPI_MCA_orte_bound_at_launch"),
        gone("OMPI_MCA_orte_jobfam_session_dir"),
        gone("OMPI_MCA_orte_launch"),
        set(
            "OMPI_MCA_orte_local_daemon_uri",
            "`0.0;tcp://127.0.0.1:1`, with PMIX_RANK: Open MPI 4.1 takes its absence for a program without a launcher.",
        ),
        gone("OMPI_MCA_orte_num_nodes"),
        gone("OMPI_MCA_orte_parent_uri"),
        gone("OMPI_MCA_orte_precondition_transports"),
        gone("OMPI_MCA_orte_top_session_dir"),
        Var::new(
            "OMPI_MCA_pmix",
            Role::Removed,
            "Set by an outer mpirun 4: with it, a program without a PMIx server fails. `-x OMPI_MCA_pmix` keeps your value.",
        ),
        gone("OMPI_MCA_shmem_RUNTIME_QUERY_hint"),
        gone("OMPI_NUM_APP_CTX"),
        Var::new(
            "OMPI_UNIVERSE_SIZE",
            Role::Removed,
            "Set by an outer mpirun. mpirun of Open MPI 4.1 does not start in a rank that has it.",
        ),
        gone("OMPI_WORLD_LOCAL_SIZE"),
        gone("OMPI_WORLD_SIZE"),
        gone("OPAL_USER_PARAMS_GIVEN"),
        set("PMIX_BFROP_BUFFER_TYPE", "`PMIX_BFROP_BUFFER_NON_DESC`, with PMIX_RANK."),
        set("PMIX_GDS_MODULE", "`hash`, with PMIX_RANK: facts about the job come in one message."),
        set("PMIX_HOSTNAME", "Name of the host, with PMIX_RANK."),
        gone("PMIX_ID"),
        dialect("PMIX_MCA_bfrops"),
        dialect("PMIX_MCA_psec"),
        dialect("PMIX_MCA_ptl"),
        set("PMIX_NAMESPACE", "Name of the world, with PMIX_RANK."),
        gone("PMIX_PARAM_FILE_PASSED"),
        gone("PMIX_PTL_MODULE"),
        set("PMIX_RANK", "As RANK, where the agent serves MPI libraries (`--mpi`)."),
        set("PMIX_SECURITY_MODE", "`none`, with PMIX_RANK: the agent asks the kernel whose a connection is."),
        gone("PMIX_SERVER_TMPDIR"),
        set(
            "PMIX_SERVER_URI21",
            "Address of the agent, with PMIX_RANK. By this name libpmix 3.2 to 5.0 choose the same encoding.",
        ),
        gone("PMIX_SYSTEM_TMPDIR"),
        set("PMIX_VERSION", "`4.2.9`, with PMIX_RANK: the version that clients expect of the server."),
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
    let Some(MpiHost { port, namespace, name, network, is_crowded, .. }) = host.mpi else { return };
    if is_crowded {
        out.number("OMPI_MCA_mpi_oversubscribe", 1);
    }
    if let Some((address, bits)) = network {
        out.text("OMPI_MCA_btl_tcp_if_include", format!("{address}/{bits}").as_bytes());
    }
    let world = host.job.world_name(namespace);
    out.text("OMPI_MCA_orte_local_daemon_uri", b"0.0;tcp://127.0.0.1:1");
    out.text("PMIX_BFROP_BUFFER_TYPE", b"PMIX_BFROP_BUFFER_NON_DESC");
    out.text("PMIX_GDS_MODULE", b"hash");
    out.text("PMIX_HOSTNAME", name);
    out.text("PMIX_NAMESPACE", world.as_bytes());
    out.text("PMIX_SECURITY_MODE", b"none");
    out.text("PMIX_SERVER_URI21", format!("{world}-server.0;tcp4://127.0.0.1:{port}").as_bytes());
    out.text("PMIX_VERSION", b"4.2.9");
}

pub(super) fn of_rank(values: &RankVariables<'_>, out: &mut Sink<'_>) {
    out.number("OMPI_COMM_WORLD_RANK", values.rank.get());
    out.number("OMPI_COMM_WORLD_LOCAL_RANK", values.local_rank.get());
    out.number("OMPI_COMM_WORLD_NODE_RANK", values.local_rank.get());
    if values.mpi {
        out.number("PMIX_RANK", values.rank.get());
    }
}
