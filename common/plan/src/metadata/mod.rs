//! The metadata server of a cloud's virtual machine (Google Compute Engine): requests, answers, and the meaning of each answer.
//!
//! Sources: the pages of Compute Engine on the metadata server, on preempted instances and on host maintenance. The answers that tests
//! use are in `tests/golden/tpu/metadata.json`.

mod answer;
mod host_watch;
mod maintenance;
mod reading;
mod watch;

pub use answer::{Answer, AnswerParser, MOST, Unusable};
pub use host_watch::{HostWatch, Report};
pub use reading::{Reading, read_attribute};
pub use watch::{Asked, Next, Outcome, Watch};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::time::Span;
use rlaunch_base::warnings::WarningSource;

/// The address of the server, which is the same on every host.
pub const ADDRESS: &str = "169.254.169.254:80";
/// The variable that names another address, for tests and proxies. A host name is not used: rlaunch resolves no names.
pub const HOST_VARIABLE: &str = "GCE_METADATA_HOST";
/// The file of the kernel that names the machine's product.
pub const PRODUCT_FILE: &str = "/sys/class/dmi/id/product_name";
/// How long the server may hold a request until its value changes.
pub const LONG_POLL: Span = Span::from_secs(300);
/// How long the server may take to answer, besides the time that the request grants it.
pub const PATIENCE: Span = Span::from_secs(10);
/// The time in which all attributes of a host are read.
pub const ATTRIBUTE_LIMIT: Span = Span::from_secs(1);

/// Whether this product name is that of a virtual machine of Google's.
#[must_use]
pub fn is_google(product: &[u8]) -> bool {
    product.trim_ascii().starts_with(b"Google")
}

/// A key of which changes are awaited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// The cloud takes the machine away.
    Preempted,
    /// The host of the machine is about to be serviced.
    MaintenanceEvent,
    /// The next planned service, days ahead.
    UpcomingMaintenance,
}

impl Key {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Preempted, Self::MaintenanceEvent, Self::UpcomingMaintenance];

    /// The path below the server's root.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Preempted => "instance/preempted",
            Self::MaintenanceEvent => "instance/maintenance-event",
            Self::UpcomingMaintenance => "instance/upcoming-maintenance",
        }
    }

    /// The source of a warning by this key.
    const fn source(self) -> WarningSource {
        match self {
            Self::Preempted => WarningSource::Preempted,
            Self::MaintenanceEvent | Self::UpcomingMaintenance => WarningSource::Maintenance,
        }
    }
}

/// An attribute with facts of a TPU host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Attribute {
    /// The number of the host in its slice.
    AgentWorkerNumber,
    /// The hosts of the slice, in one of two formats.
    WorkerNetworkEndpoints,
    /// The name of the slice.
    InstanceId,
    /// The type of the slice, such as `v4-16`.
    AcceleratorType,
    /// Lines of `KEY: 'value'`.
    TpuEnv,
}

impl Attribute {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::AgentWorkerNumber, Self::WorkerNetworkEndpoints, Self::InstanceId, Self::AcceleratorType, Self::TpuEnv];

    /// The path below the server's root.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::AgentWorkerNumber => "instance/attributes/agent-worker-number",
            Self::WorkerNetworkEndpoints => "instance/attributes/worker-network-endpoints",
            Self::InstanceId => "instance/attributes/instance-id",
            Self::AcceleratorType => "instance/attributes/accelerator-type",
            Self::TpuEnv => "instance/attributes/tpu-env",
        }
    }
}

/// The bytes of a request. `wait`: the server answers when the value is no longer the one with this entity tag, or after this time.
#[must_use]
pub fn request(host: &str, path: &str, wait: Option<(&str, Span)>) -> Vec<u8> {
    let query = wait.map_or_else(String::new, |(etag, limit)| {
        let seconds = limit.millis().div_ceil(1000);
        format!("?wait_for_change=true&last_etag={etag}&timeout_sec={seconds}")
    });
    let text = format!(
        "GET /computeMetadata/v1/{path}{query} HTTP/1.1\r\nHost: {host}\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n"
    );
    text.into_bytes()
}

#[cfg(test)]
mod tests;
