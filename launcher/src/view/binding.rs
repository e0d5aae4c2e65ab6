//! The CPUs of ranks, in words.

use super::Tone;
use super::log_view::Line;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bind::{BindingNews, Unbound};
use rlaunch_plan::topology::Level;

/// The line of a fact, and the least verbose tone in which it is printed. Ranks that share CPUs are named once: the note is much the same on
/// other hosts.
pub(super) fn news(news: &BindingNews, host: &OsBytes, shared_cpus: &mut bool) -> Line {
    let mut once = || if std::mem::replace(shared_cpus, true) { Tone::Verbose } else { Tone::Normal };
    match news {
        BindingNews::RankBound { rank, bound, cpus, cores, numa } => {
            (Tone::Quiet, format!("rank {rank} on {host}: {}", cpus_of(*bound, cpus, cores, numa)))
        }
        BindingNews::NotBound(unbound) => (once(), not_bound(*unbound, host)),
        BindingNews::OneCpu { ranks, cpu, online } => (once(), one_cpu(*ranks, *cpu, *online, host)),
    }
}

/// The CPUs of a rank, for `--report-bindings` and `rlaunch map --report-bindings`.
pub(crate) fn cpus_of(bound: bool, cpus: &OsBytes, cores: &OsBytes, numa: &OsBytes) -> String {
    let of = if bound { "" } else { "not bound, " };
    format!("{of}CPUs {cpus} (cores {cores}, NUMA nodes {numa})")
}

/// Ranks that share units of which each was to have one.
pub(crate) fn not_bound(Unbound { ranks, units, level }: Unbound, host: &OsBytes) -> String {
    let unit = match level {
        Level::Hwthread => "hardware threads",
        Level::Core => "cores",
        Level::L3 => "L3 groups",
        Level::Numa => "NUMA nodes",
        Level::Package => "packages",
    };
    format!("{ranks} ranks on {host} are not bound: it has {units} {unit}")
}

fn one_cpu(ranks: u32, cpu: u32, online: u32, host: &OsBytes) -> String {
    format!(
        "{ranks} ranks on {host} share CPU {cpu} of {online}: rlaunch may use no other CPU\n  \
         try     a look at taskset and the container's cpuset\n          \
         in a rank of another rlaunch, --bind-to none or -c N there\n          \
         in Slurm, more CPUs for the allocation or for srun --exact: -c N (--cpus-per-task)"
    )
}

/// The line of a rank whose host decides by itself.
pub(crate) fn decided_there(rank: Rank, host: &str) -> String {
    format!("rank {rank} on {host}: decided there")
}
