//! Facts about a host that its agent reports and by which the launcher decides nothing.
//!
//! The agent makes the value, and the machines pass it on unchanged to the event log. The names there are those of the type. A new fact
//! needs a variant in this file, its line in the launcher's view, and its row in docs/reference/events.md.

use super::capped::unreserved;
use super::limit::Met;
use crate::bind::Unbound;
use crate::guard::devices::{DeviceHolder, LockFound};
use crate::id::Rank;
use crate::os_bytes::OsBytes;
use crate::rank_set::RankSet;
use crate::warnings::WarningNote;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, Serializer};

/// A fact about a host that its agent reports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeNews {
    /// No process of the job has used the store that this host holds, long after the ranks were started.
    #[serde(rename = "store.unused")]
    StoreUnused {
        /// Address and port.
        at: OsBytes,
    },
    /// A connection from an address that no host of the job has was refused by that store. Reported once.
    #[serde(rename = "store.foreign")]
    StoreForeign {
        /// The origin of the connection.
        from: OsBytes,
    },
    /// Connections to that store were closed because no process of the job has made them.
    #[serde(rename = "store.refused")]
    StoreRefused {
        /// The origin of the last of them.
        from: OsBytes,
        /// Their number since the last report.
        count: u32,
    },
    /// Clients of that store have met one of its limits, and their connections were closed.
    #[serde(rename = "store.limit")]
    StoreLimit {
        /// The last of them.
        #[serde(rename = "")]
        met: Met,
        /// Their number since the last report of this limit.
        count: u32,
    },
    /// A log file of ranks, or the directory for it, cannot be written. The ranks continue.
    #[serde(rename = "file.failed")]
    FileFailed {
        /// errno of the attempt.
        errno: i32,
        /// The file or the directory.
        path: OsBytes,
    },
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
        /// The NUMA nodes that these are of, counted in the same way.
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
    /// A service of this host is planned, or the metadata server has a word that rlaunch does not know.
    #[serde(rename = "host.warning_note")]
    WarningNote(WarningNote),
    /// A process that held devices was ended before ranks were started.
    #[serde(rename = "device.holder_ended")]
    HolderEnded {
        /// The devices.
        devices: OsBytes,
        /// Its process id on the host.
        pid: u32,
        /// The name of its user.
        user: OsBytes,
        /// Its command line, cut.
        command: OsBytes,
        /// The process did not obey SIGTERM and was killed.
        killed: bool,
    },
    /// A lock file was there before ranks were started.
    #[serde(rename = "device.lock_file")]
    LockFile {
        /// Its path.
        path: OsBytes,
        /// Its state.
        #[serde(rename = "state")]
        found: LockFound,
        /// The name of the user whose process has locked it; empty: not locked, or not known.
        user: OsBytes,
        /// The command line of that process, cut.
        command: OsBytes,
    },
    /// A process holds devices after all ranks have exited.
    #[serde(rename = "device.held")]
    DeviceHeld(DeviceHolder),
    /// Processes that ranks had left behind are ended: all ranks have succeeded.
    #[serde(rename = "host.left_ended")]
    LeftEnded {
        /// How many they are.
        count: u32,
        /// The process id of the first of them, on the host.
        pid: u32,
        /// Its short name.
        comm: OsBytes,
    },
    /// A rank of this host has connected to the listener for MPI libraries. Reported once for each start of the ranks.
    #[serde(rename = "mpi.used")]
    MpiUsed {
        /// The wire that its library speaks.
        wire: MpiWire,
    },
    /// A rank of this host has loaded an MPI library, and none has connected yet.
    #[serde(rename = "mpi.loaded")]
    MpiLoaded {
        /// The name of its file.
        library: OsBytes,
    },
    /// Ranks have waited for others in `MPI_Init` for a long time. Reported once for each start of the ranks.
    #[serde(rename = "mpi.waits")]
    MpiWaits {
        /// Ranges of the ranks that wait.
        #[serde(serialize_with = "ranges", deserialize_with = "unreserved")]
        waiting: Vec<(u32, u32)>,
        /// Ranges of the ranks that have not come.
        #[serde(serialize_with = "ranges", deserialize_with = "unreserved")]
        missing: Vec<(u32, u32)>,
        /// Ranges of the missing ranks whose MPI library speaks another wire.
        #[serde(serialize_with = "ranges", deserialize_with = "unreserved")]
        apart: Vec<(u32, u32)>,
    },
    /// A rank has waited long for a public name of PMIx, as in `MPI_Comm_connect` of Open MPI.
    #[serde(rename = "mpi.lookup_waits")]
    MpiLookupWaits {
        /// Its number in its world.
        rank: Rank,
        /// The name.
        name: OsBytes,
    },
    /// A rank has exited with 0 after `MPI_Init` and before `MPI_Finalize`.
    #[serde(rename = "mpi.unfinished")]
    MpiUnfinished {
        /// Its number in its world.
        rank: Rank,
        /// Its process id on the host.
        pid: u32,
    },
    /// Ranks of this host have sent a help message of Open MPI that was shown already.
    #[serde(rename = "mpi.help")]
    MpiHelp {
        /// How often, since the last report of this message.
        count: u32,
        /// The file of Open MPI that has the text.
        file: OsBytes,
        /// The part of the file.
        topic: OsBytes,
    },
}

/// Wire that an MPI library speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MpiWire {
    /// PMI-1: MPICH, Intel MPI.
    Pmi1,
    /// PMIx: Open MPI.
    Pmix,
}

/// Ranges of ranks: in words for people, as `0-3,7`.
fn ranges<S: Serializer>(ranges: &Vec<(u32, u32)>, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.collect_str(&RankSet::of(ranges))
    } else {
        ranges.serialize(serializer)
    }
}
