//! The agent: starts the ranks of one node, watches every one of them, and ends when nothing of them is left.
#![forbid(unsafe_code)]

mod clock;
pub mod devices;
mod driver;
mod edges;

pub use edges::lease::LeaseLine;
pub use edges::link::Edge;
pub use edges::metadata;
pub use edges::tpu_facts::of_here as tpu_facts;
use rlaunch_base::id::NodeId;
use rlaunch_sys::guardian::TempFiles;
use rlaunch_sys::origin::Origin;
use std::io;
use std::os::fd::OwnedFd;

/// The resources of the agent when it begins to exist.
#[derive(Debug)]
pub struct AgentSetup {
    /// Which node of the job we are.
    pub node: NodeId,
    /// The stream to the launcher.
    pub edge: Edge,
    /// The guardian, our parent.
    pub guardian: OwnedFd,
    /// The caller's settings, for the ranks.
    pub origin: Origin,
    /// The path to be removed at the end; the guardian removes it, too.
    pub temp_files: TempFiles,
    /// Why the guardian or the agent is no subreaper: an errno.
    pub no_subreaper: Option<i32>,
    /// On another host: the line on which the guardian gets the time that the job may continue.
    pub lease: Option<LeaseLine>,
}

/// The agent's life. Returns its exit code: 0 only if everything was counted and nothing is left.
#[must_use]
pub fn run(setup: AgentSetup) -> u8 {
    let temp_files = setup.temp_files;
    let code = driver::run(setup).unwrap_or_else(|error| {
        tracing::error!(%error, "the agent cannot start");
        rlaunch_base::exit::LAUNCH
    });
    // The guardian does so too, if it lives.
    temp_files.sweep();
    code
}

/// Says in the agent's stead why there is none.
pub fn refuse(node: NodeId, edge: Edge, error: &io::Error) {
    edges::link::last_word(node, &mut edge.early(), "start the agent", error);
}
