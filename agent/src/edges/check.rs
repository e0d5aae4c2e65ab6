//! Whether a program could be started here, found out before anything is started anywhere.

use super::Edges;
use rlaunch_core::id::AppIndex;
use rlaunch_core::node::NodeEvent;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::spec::AppBase;
use rlaunch_core::wire::to_root::{SpawnError, SpawnStep};
use rlaunch_sys::spawn::PreparedApp;

/// Looks at a program's directory and file; the answer is an event.
pub(super) fn perform(edges: &mut Edges, app: AppIndex, base: &AppBase) {
    let prepared = PreparedApp::new(base.argv.iter(), base.env.iter(), base.wdir.as_deref());
    let error = prepared.check().err().map(|failure| SpawnError {
        step: match failure.step {
            rlaunch_sys::spawn::Step::ChangeDir => SpawnStep::ChangeDir,
            _ => SpawnStep::Exec,
        },
        errno: failure.errno,
        path: OsBytes::new(failure.path),
    });
    edges.events.push_back(NodeEvent::Checked { app, error });
}
