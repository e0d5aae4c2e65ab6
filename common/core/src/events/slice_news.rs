//! Facts about slices and `--discover`, for the event log.

use super::Lost;
use alloc::boxed::Box;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_base::warnings::WarningSource;
use rlaunch_plan::bootstrap::HostFailure;
use rlaunch_plan::discover::{DiscoverFault, Ignored};
use rlaunch_protocol::wire::to_root::NodeRefusal;
use serde::{Serialize, Serializer};

/// A fact about slices, or about `--discover`. The names in the event log are those of the type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum SliceNews {
    /// Slices are waited for, because too few are up.
    #[serde(rename = "slices.awaited")]
    Awaited {
        /// The number that is waited for.
        wanted: u32,
        /// The number that is up.
        up: u32,
        /// Until fewer are taken.
        within: Span,
    },
    /// A slice is not up, and the job ends for the lack of slices.
    #[serde(rename = "slice.missing")]
    Missing {
        /// Its name.
        slice: OsBytes,
        /// A host of it that is not ready.
        node: NodeId,
        /// Why.
        #[serde(serialize_with = "word_of")]
        why: Box<Obstacle>,
    },
    /// More slices are up than the job runs on.
    #[serde(rename = "slices.larger")]
    Larger {
        /// The larger valid size.
        size: u32,
        /// The size of the job.
        running: u32,
        /// Ranks are started again for it (`--grow now`).
        restarts: bool,
    },
    /// The command of `--discover` prints a slice that is new.
    #[serde(rename = "slice.found")]
    Found {
        /// Its name.
        slice: OsBytes,
        /// Its hosts.
        nodes: Vec<NodeId>,
        /// Their names.
        hosts: Vec<OsBytes>,
    },
    /// The command of `--discover` prints a slice that the job cannot use.
    #[serde(rename = "slice.ignored")]
    Ignored {
        /// Its name.
        slice: OsBytes,
        /// Why.
        why: Ignored,
    },
    /// The command of `--discover` prints a host again.
    #[serde(rename = "host.back")]
    HostBack {
        /// The host.
        node: NodeId,
    },
    /// The command of `--discover` has printed no list of hosts: the last one stays.
    #[serde(rename = "discover.failed")]
    DiscoverFailed {
        /// Why.
        why: DiscoverFault,
    },
}

/// Why a host of a slice is not ready.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Obstacle {
    /// The host is being reached, or gets ready.
    #[default]
    Awaited,
    /// The host was not reached.
    Failed(HostFailure),
    /// The host cannot do the job.
    Refused(NodeRefusal),
    /// The host was lost.
    Lost(Lost),
    /// The host is about to be taken away.
    Warned(WarningSource),
}

impl Obstacle {
    /// Its name in the event log.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Awaited => "awaited",
            Self::Failed(_) => "failed",
            Self::Refused(_) => "refused",
            Self::Lost(_) => "lost",
            Self::Warned(_) => "warned",
        }
    }

    /// Whether it will be the same at the next attempt.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Awaited | Self::Failed(_) | Self::Lost(_) | Self::Warned(_) => false,
            Self::Refused(why) => match why {
                NodeRefusal::Contain { .. }
                | NodeRefusal::MasterAddr { .. }
                | NodeRefusal::NoInterface { .. }
                | NodeRefusal::Program { .. }
                | NodeRefusal::Gpus { .. }
                | NodeRefusal::Bind(_)
                | NodeRefusal::Slices(_)
                | NodeRefusal::Protocol => true,
                NodeRefusal::Resource { .. }
                | NodeRefusal::NoPort
                | NodeRefusal::PortTaken { .. }
                | NodeRefusal::NoStore { .. }
                | NodeRefusal::NoWay { .. }
                | NodeRefusal::Alone { .. }
                | NodeRefusal::Devices { .. }
                | NodeRefusal::DevicesUnknown { .. } => false,
            },
        }
    }
}

/// Why a slice cannot be used, in a word.
fn word_of<S: Serializer>(why: &Obstacle, serializer: S) -> Result<S::Ok, S::Error> {
    why.word().serialize(serializer)
}
