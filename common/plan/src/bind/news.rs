//! Facts about the CPUs of ranks, for the event log.

use super::Unbound;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// A fact about the CPUs of ranks. The names in the event log are those of the type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BindingNews {
    /// The CPUs of a rank that is being started (`--report-bindings`). Lists are as the kernel writes them.
    #[serde(rename = "rank.bound")]
    RankBound {
        /// Which.
        rank: Rank,
        /// Whether it is bound; else it may use all that rlaunch may use.
        bound: bool,
        /// The CPUs that it may use.
        cpus: OsBytes,
        /// The cores that these are of, counted through the host.
        cores: OsBytes,
        /// The NUMA nodes that these are of, by the kernel's numbers.
        numa: OsBytes,
    },
    /// The ranks of this host were to have a unit each, and are more than there are: they are not bound.
    #[serde(rename = "host.not_bound")]
    NotBound(Unbound),
    /// All ranks of this host may use a single CPU only.
    #[serde(rename = "host.one_cpu")]
    OneCpu {
        /// How many they are.
        ranks: u32,
        /// Which.
        cpu: u32,
        /// How many CPUs the host has.
        online: u32,
    },
}
