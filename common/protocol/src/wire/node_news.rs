//! Facts about a host that its agent reports and by which the launcher decides nothing.
//!
//! The agent makes the value, and the machines pass it on unchanged to the event log. The names there are those of the type. A new fact
//! needs a variant in the type of its feature, its line in the launcher's view, and its row in docs/reference/events.md.

mod mpi_news;
mod store_news;

pub use mpi_news::{MpiNews, MpiWire};
pub use store_news::StoreNews;

use crate::guard::DeviceNews;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::warnings::WarningNote;
use rlaunch_plan::bind::BindingNews;
use serde::{Deserialize, Serialize};

/// A fact about a host that its agent reports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeNews {
    /// A log file of ranks, or the directory for it, cannot be written. The ranks continue.
    #[serde(rename = "file.failed")]
    FileFailed {
        /// errno of the attempt.
        errno: i32,
        /// The file or the directory.
        path: OsBytes,
    },
    /// A service of this host is planned, or the metadata server has a word that rlaunch does not know.
    #[serde(rename = "host.warning_note")]
    WarningNote(WarningNote),
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
    /// A fact about the store that this host holds.
    #[serde(rename(serialize = ""))]
    Store(StoreNews),
    /// A fact about the CPUs of ranks.
    #[serde(rename(serialize = ""))]
    Binding(BindingNews),
    /// A fact about devices.
    #[serde(rename(serialize = ""))]
    Devices(DeviceNews),
    /// A fact about MPI programs.
    #[serde(rename(serialize = ""))]
    Mpi(MpiNews),
}
