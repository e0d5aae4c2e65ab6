//! Facts about devices, for the event log.

use super::devices::{DeviceHolder, LockFound};
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// A fact about devices. The names in the event log are those of the type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DeviceNews {
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
    Held(DeviceHolder),
}
