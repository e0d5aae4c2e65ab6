//! Variables by which `jax.distributed.initialize()` finds the others without an argument.
//!
//! JAX asks a list of clusters whether it runs in one of them, and Open MPI is the first (`jax/_src/clusters/ompi_cluster.py`): it is there
//! if `OMPI_MCA_orte_hnp_uri` is, as mpirun 4 sets it. The other names that it reads then every rank has anyway. A real program of Open
//! MPI 4 would look for a daemon at that address, so these are set for programs of JAX only.

use super::block::{Host, Sink};
use super::{Contract, Role, Var};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Behind MASTER_PORT, which a program that uses both has for torch's store.
const BEHIND: u16 = 1;

pub(super) const CONTRACT: Contract = Contract {
    title: "JAX",
    about: "Set with `--framework jax`, or if the script of rank 0 imports jax and not mpi4py. Then \
            `jax.distributed.initialize()` needs no argument. JAX reads `OMPI_COMM_WORLD_SIZE`, `_RANK` and `_LOCAL_RANK` if \
            `OMPI_MCA_orte_hnp_uri` is set. In a Slurm job, JAX reads [Slurm's variables](#slurm), which every rank has \
            there.",
    vars: &[
        Var::new(
            "JAX_COORDINATOR_ADDRESS",
            Role::Default,
            "MASTER_ADDR and the port MASTER_PORT + 1, where rank 0 listens.",
        )
        .each_round(),
        Var::new(
            "JAX_LOCAL_DEVICE_IDS",
            Role::Default,
            "With `--gpus-per-rank N`: 0 to N-1. A rank alone on its host: all GPUs. Otherwise unset, and JAX uses LOCAL_RANK.",
        ),
        Var::new(
            "OMPI_MCA_orte_hnp_uri",
            Role::Set,
            "JAX recognizes Open MPI by it. Other programs never get it, also not from an outer mpirun 4.",
        )
        .each_round(),
    ],
    families: &[],
};

pub(super) fn common(host: &Host<'_>, out: &mut Sink<'_>) {
    if !host.jax {
        return;
    }
    let addr = host.master_addr;
    let (open, close): (&[u8], &[u8]) = if addr.contains(&b':') { (b"[", b"]") } else { (b"", b"") };
    let port = format!(":{}", host.master_port.saturating_add(BEHIND));
    out.text("JAX_COORDINATOR_ADDRESS", &[open, addr, close, port.as_bytes()].concat());
    if let Some(count) = host.local_devices {
        let ids: Vec<String> = (0..count).map(|id| format!("{id}")).collect();
        out.text("JAX_LOCAL_DEVICE_IDS", ids.join(",").as_bytes());
    }
    // Job 0, and a port that no program connects to.
    out.text("OMPI_MCA_orte_hnp_uri", &[b"0.0;tcp://", addr, b":1"].concat());
}
