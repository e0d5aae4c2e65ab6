//! Set-up that the tests of several parts share.

use super::Edges;
use super::link::Edge;
use crate::AgentSetup;
use rlaunch_base::id::NodeId;
use std::os::unix::net::UnixStream;
use tokio::runtime::{Builder, EnterGuard};

/// Enters a runtime that no thread drives.
pub(super) fn enter() -> EnterGuard<'static> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build().unwrap();
    Box::leak(Box::new(runtime)).enter()
}

/// The edges of an agent without a lease, within a runtime; and the launcher's and the guardian's ends of its sockets.
pub(super) fn edges() -> (Edges, [UnixStream; 2]) {
    let (launcher, edge) = UnixStream::pair().unwrap();
    let (guardian_far, guardian) = UnixStream::pair().unwrap();
    let setup = AgentSetup {
        node: NodeId::new(0),
        edge: Edge::Socket(edge.into()),
        guardian: guardian.into(),
        origin: rlaunch_sys::origin::capture().unwrap(),
        temp_files: rlaunch_sys::guardian::TempFiles::new().unwrap(),
        no_subreaper: None,
        lease: None,
    };
    (Edges::new(setup).unwrap(), [launcher, guardian_far])
}
