//! The cause of a restart of all ranks.

use super::Lost;
use crate::id::{NodeId, Rank};
use crate::status::Status;
use serde::Serialize;

/// The cause of a restart of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename = "")]
pub enum RestartCause {
    /// A rank failed, or its host was lost.
    #[serde(rename = "")]
    Failed {
        /// The rank that failed first, or the first rank on the host.
        rank: Rank,
        /// The node where it ran.
        node: NodeId,
        /// How it ended.
        #[serde(rename = "", skip_serializing_if = "Status::is_lost")]
        status: Status,
        /// How its host was lost, if it was.
        #[serde(rename = "")]
        lost: Option<Lost>,
    },
    /// More slices are up than the job ran on (`--grow now`).
    #[serde(rename = "")]
    Grown {
        /// The larger valid size.
        size: u32,
        /// The size of the job until then.
        running: u32,
    },
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
