//! The cause of a restart of all ranks.

use super::Lost;
use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::status::Status;
use serde::{Serialize, Serializer};

/// The cause of a restart of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartCause {
    /// A rank failed, or its host was lost.
    Failed {
        /// The rank that failed first, or the first rank on the host.
        rank: Rank,
        /// The node where it ran.
        node: NodeId,
        /// How it ended.
        status: Status,
        /// How its host was lost, if it was.
        lost: Option<Lost>,
    },
    /// More slices are up than the job ran on (`--grow now`).
    Grown {
        /// The larger valid size.
        size: u32,
        /// The size of the job until then.
        running: u32,
    },
}

/// A lost host explains the end of its rank, so the log has either of the two.
impl Serialize for RestartCause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename = "")]
        enum How {
            #[serde(rename = "")]
            Ended(Status),
            #[serde(rename = "")]
            Lost(Lost),
        }
        #[derive(Serialize)]
        #[serde(rename = "")]
        enum Shown {
            #[serde(rename = "")]
            Failed {
                rank: Rank,
                node: NodeId,
                #[serde(rename = "")]
                how: How,
            },
            #[serde(rename = "")]
            Grown { size: u32, running: u32 },
        }
        match *self {
            Self::Failed { rank, node, status, lost } => {
                Shown::Failed { rank, node, how: lost.map_or(How::Ended(status), How::Lost) }
            }
            Self::Grown { size, running } => Shown::Grown { size, running },
        }
        .serialize(serializer)
    }
}

impl RestartCause {
    /// The failure of a rank.
    #[must_use]
    pub const fn of_rank(rank: Rank, node: NodeId, status: Status) -> Self {
        Self::Failed { rank, node, status, lost: None }
    }

    /// Whether it counts for `--max-restarts`.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { lost: None, .. })
    }
}
