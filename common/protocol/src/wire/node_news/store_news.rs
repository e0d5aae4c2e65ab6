//! Facts about the store of a host, for the event log.

use crate::wire::limit::Met;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// A fact about the store that a host holds. The names in the event log are those of the type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoreNews {
    /// No process of the job has used the store that this host holds, long after the ranks were started.
    #[serde(rename = "store.unused")]
    Unused {
        /// Address and port.
        at: OsBytes,
    },
    /// A connection from an address that no host of the job has was refused by that store. Reported once.
    #[serde(rename = "store.foreign")]
    Foreign {
        /// The origin of the connection.
        from: OsBytes,
    },
    /// Connections to that store were closed because no process of the job has made them.
    #[serde(rename = "store.refused")]
    Refused {
        /// The origin of the last of them.
        from: OsBytes,
        /// Their number since the last report.
        count: u32,
    },
    /// Clients of that store have met one of its limits, and their connections were closed.
    #[serde(rename = "store.limit")]
    Limit {
        /// The last of them.
        #[serde(rename = "")]
        met: Met,
        /// Their number since the last report of this limit.
        count: u32,
    },
}
