//! Facts about MPI programs, for the event log.

use alloc::vec::Vec;
use rlaunch_base::capped::unreserved;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use serde::{Deserialize, Serialize, Serializer};

/// A fact about MPI programs. The names in the event log are those of the type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MpiNews {
    /// A rank of this host has connected to the listener for MPI libraries. Reported once for each start of the ranks.
    #[serde(rename = "mpi.used")]
    Used {
        /// The wire that its library speaks.
        wire: MpiWire,
    },
    /// A rank of this host has loaded an MPI library, and none has connected yet.
    #[serde(rename = "mpi.loaded")]
    Loaded {
        /// The name of its file.
        library: OsBytes,
    },
    /// Ranks have waited for others in `MPI_Init` for a long time. Reported once for each start of the ranks.
    #[serde(rename = "mpi.waits")]
    Waits {
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
    LookupWaits {
        /// Its number in its world.
        rank: Rank,
        /// The name.
        name: OsBytes,
    },
    /// A rank has exited with 0 after `MPI_Init` and before `MPI_Finalize`.
    #[serde(rename = "mpi.unfinished")]
    Unfinished {
        /// Its number in its world.
        rank: Rank,
        /// Its process id on the host.
        pid: u32,
    },
    /// Ranks of this host have sent a help message of Open MPI that was shown already.
    #[serde(rename = "mpi.help")]
    Help {
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
