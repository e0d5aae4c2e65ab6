//! Variables by which `jax.distributed.initialize()` finds the others without an argument.
//!
//! JAX asks a list of clusters whether it runs in one of them, and Open MPI is the first (`jax/_src/clusters/ompi_cluster.py`): it is there
//! if `OMPI_MCA_orte_hnp_uri` is, as mpirun 4 sets it. The other names that it reads then every rank has anyway. A real program of Open
//! MPI 4 would look for a daemon at that address, so these are set for programs of JAX only.

use super::block::{Host, Sink};
use super::{Anew, Contract, Role, Var};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Behind MASTER_PORT, which a program that uses both has for torch's store.
const BEHIND: u16 = 1;

pub(super) const CONTRACT: Contract = Contract {
    title: "JAX",
    about: "With `--framework jax`, and by itself where rank 0's script, as far as it can be read here, imports jax and not mpi4py: \
            `jax.distributed.initialize()` needs no argument then. JAX reads OMPI_COMM_WORLD_SIZE, _RANK and _LOCAL_RANK, which every \
            rank has, if OMPI_MCA_orte_hnp_uri is there. In a job of Slurm it also finds the others without these: by \
            Slurm's names, which every rank has there ([below](#slurm)).",
    vars: &[
        Var {
            name: "JAX_COORDINATOR_ADDRESS",
            role: Role::Default,
            doc: "MASTER_ADDR, and the port behind MASTER_PORT: rank 0 listens there.",
            anew: Anew::EachRound,
        },
        Var {
            name: "JAX_LOCAL_DEVICE_IDS",
            role: Role::Default,
            doc: "Which devices a rank takes. With `--gpus-per-rank N` 0 to N-1: it sees only its own. A rank that is alone on a host \
                  with several GPUs takes all of them. Otherwise there is none, and JAX takes the one of LOCAL_RANK.",
            anew: Anew::Never,
        },
        Var {
            name: "OMPI_MCA_orte_hnp_uri",
            role: Role::Set,
            doc: "By it JAX knows Open MPI. Other programs have none; that of an outer mpirun 4 is removed.",
            anew: Anew::EachRound,
        },
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
