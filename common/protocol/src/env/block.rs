//! The variables of all contracts as the bytes that `execve` takes.
//!
//! Most of them are the same for every rank of a program on a host. They are written once ([`common`]); what differs is
//! written per rank ([`of_rank`]), so that a thousand ranks cost a thousand short blocks and not a thousand environments.

use super::{gpu_variables, jax, net, ompi, others, own, pmi, python, slurm, torch, tpu, tpu_lock};
use crate::settings::Tier;
use core::net::Ipv4Addr;
use rlaunch_base::id::{AppIndex, JobId, LocalRank, Rank, WorldId};
use rlaunch_base::os_strings::OsStrings;
use rlaunch_plan::allocation::StepLayout;
use rlaunch_plan::tpu::{RankChips, TpuHost};

/// Values that the ranks of one program on one host have in common.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// The job.
    pub job: JobId,
    /// All ranks of the job.
    pub world_size: u32,
    /// Ranks on this host.
    pub local_size: u32,
    /// Index of this host.
    pub node_index: u32,
    /// Hosts of the job.
    pub nodes: u32,
    /// The program.
    pub app: AppIndex,
    /// Its name.
    pub app_name: &'a [u8],
    /// Its ranks on all hosts.
    pub app_size: u32,
    /// Programs of the job.
    pub apps: u32,
    /// The name of the world; empty: it has none.
    pub group: &'a [u8],
    /// The number of the world.
    pub world: WorldId,
    /// The address at which rank 0 listens.
    pub master_addr: &'a [u8],
    /// Its port.
    pub master_port: u16,
    /// The agent of rank 0's host holds the store there, and rank 0 is a client like the others.
    pub agent_store: bool,
    /// Processors that the ranks may use here; `None`: not known, so no thread count is derived.
    pub cpus: Option<u32>,
    /// The guarantee that holds here.
    pub tier: Tier,
    /// A lock file of libtpu is in the way: it must not try to take the lock.
    pub skips_tpu_lock: bool,
    /// The socket at which the agent listens for clients of the store; empty: none.
    pub socket: &'a [u8],
    /// By which interface ranks talk to those of other hosts; `None`: there are none, or it is not known.
    pub interface: Option<&'a [u8]>,
    /// `--interface` was given.
    pub interface_asked: bool,
    /// The program is one of JAX.
    pub jax: bool,
    /// The listener for MPI libraries; `None`: there is none.
    pub mpi: Option<MpiHost<'a>>,
    /// Number of devices that each rank takes, of those that it sees. `None`: the default of its framework.
    pub local_devices: Option<u32>,
    /// How often all ranks have been started again.
    pub restart: u32,
    /// How often they may be.
    pub max_restarts: u32,
    /// Ranks that are healthy: those that work, and those in reserve.
    pub healthy: u32,
    /// Which round it is.
    pub round: u32,
    /// The job in Slurm's words; `None`: its ranks run in no job of Slurm.
    pub slurm: Option<SlurmStep<'a>>,
    /// The host's part in the slices of the job; `None`: it has no TPU, or is not to use it.
    pub tpu: Option<&'a TpuHost>,
}

/// The listener for MPI libraries.
#[derive(Clone, Copy, Debug)]
pub struct MpiHost<'a> {
    /// Its port of 127.0.0.1.
    pub port: u16,
    /// The number of this start of all ranks.
    pub namespace: u32,
    /// The name of the host, as the ranks of others know it.
    pub name: &'a [u8],
    /// More ranks run here than there are processors for them.
    pub is_crowded: bool,
    /// An MPI program has started the ranks.
    pub is_spawned: bool,
    /// The network of the interface that `--interface` names: its address and the number of its bits.
    pub network: Option<(Ipv4Addr, u8)>,
}

/// The job as if it were a step of Slurm's.
#[derive(Clone, Copy, Debug)]
pub struct SlurmStep<'a> {
    /// Its hosts.
    pub hosts: &'a [u8],
    /// The ranks of each.
    pub tasks: &'a [u8],
    /// The most that one has.
    pub most_tasks: u32,
    /// The ranks of this host; empty: too many for a variable.
    pub task_ids: &'a [u8],
}

impl<'a> SlurmStep<'a> {
    /// The step of a layout on a host with these ranks.
    #[must_use]
    pub fn of(layout: &'a StepLayout, task_ids: &'a [u8]) -> Self {
        let StepLayout { hosts, tasks, most_tasks } = layout;
        Self { hosts, tasks, most_tasks: *most_tasks, task_ids }
    }
}

/// The values of one rank.
#[derive(Clone, Copy, Debug)]
pub struct RankVariables<'a> {
    /// Its rank.
    pub rank: Rank,
    /// Its number among all that are healthy.
    pub healthy: Rank,
    /// The rank with which its process was started.
    pub initial: Rank,
    /// Its rank among those of the host.
    pub local_rank: LocalRank,
    /// Its rank among those of its program.
    pub app_rank: u32,
    /// Ranks that are tied together; 0: none are.
    pub tied: u32,
    /// The file for the exception that ended it; empty: none.
    pub error_file: &'a [u8],
    /// Its GPUs, and the variables that name them; `None`: all, or those of the caller's.
    pub gpus: Option<(&'static [&'static str], &'a [u8])>,
    /// The rank runs in a job of Slurm.
    pub slurm: bool,
    /// The CPUs that it is bound to; `None`: it is not bound.
    pub threads: Option<u32>,
    /// Its host listens for MPI libraries.
    pub mpi: bool,
    /// Its TPU chips; `None`: its host has none.
    pub tpu: Option<&'a RankChips>,
}

/// The variables that all ranks of `host` share, without those that the user pinned.
#[must_use]
pub fn common(host: &Host<'_>, pinned: &OsStrings) -> OsStrings {
    let mut block = OsStrings::with_capacity(1024);
    let mut out = Sink { block: &mut block, pinned };
    own::common(host, &mut out);
    python::common(&mut out);
    if host.skips_tpu_lock {
        tpu_lock::common(&mut out);
    }
    torch::common(host, &mut out);
    ompi::common(host, &mut out);
    pmi::common(host, &mut out);
    net::common(host, &mut out);
    jax::common(host, &mut out);
    others::common(host, &mut out);
    slurm::common(host, &mut out);
    tpu::common(host, &mut out);
    block
}

/// The variables of one rank, in place of what `block` held.
pub fn of_rank(values: &RankVariables<'_>, pinned: &OsStrings, block: &mut OsStrings) {
    block.clear();
    let mut out = Sink { block, pinned };
    own::of_rank(values, &mut out);
    torch::of_rank(values, &mut out);
    ompi::of_rank(values, &mut out);
    pmi::of_rank(values, &mut out);
    slurm::of_rank(values, &mut out);
    gpu_variables::of_rank(values, &mut out);
    tpu::of_rank(values, &mut out);
}

/// The output of the contracts.
pub(super) struct Sink<'a> {
    block: &'a mut OsStrings,
    pinned: &'a OsStrings,
}

impl Sink<'_> {
    /// `name=value`, unless the user pinned the name.
    pub(super) fn text(&mut self, name: &str, value: &[u8]) {
        if !self.pinned.contains(name.as_bytes()) {
            self.block.push_pair(name.as_bytes(), value);
        }
    }

    /// The same where the value is a part of what the user has said.
    pub(super) fn narrowed(&mut self, name: &str, value: &[u8]) {
        self.block.push_pair(name.as_bytes(), value);
    }

    /// `name=value` for a number, unless the user pinned the name.
    pub(super) fn number(&mut self, name: &str, value: u32) {
        let mut digits = [b'0'; 10];
        let mut rest = value;
        let mut start = digits.len();
        for slot in digits.iter_mut().rev() {
            *slot = b'0'.saturating_add(u8::try_from(rest % 10).unwrap_or(0));
            rest /= 10;
            start -= 1;
            if rest == 0 {
                break;
            }
        }
        self.text(name, digits.get(start..).unwrap_or_default());
    }
}
