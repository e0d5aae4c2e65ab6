//! Slices of a running job (`--slices`).

mod news;
mod slice_table;

pub(in crate::job) use slice_table::SliceTable;

pub use news::SliceNews;

use crate::bootstrap::HostFailure;
use crate::events::Lost;
use crate::warnings::WarningSource;
use crate::wire::to_root::NodeRefusal;

/// Why a host of a slice is not ready.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Obstacle {
    /// It is being reached, or gets ready.
    #[default]
    Awaited,
    /// It was not reached.
    Failed(HostFailure),
    /// It cannot do what was asked for.
    Refused(NodeRefusal),
    /// It was lost.
    Lost(Lost),
    /// It is about to be taken away.
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
