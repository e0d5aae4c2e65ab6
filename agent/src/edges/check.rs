//! Whether a program could be started here, found out before anything is started anywhere.

use super::Edges;
use rlaunch_core::errno::ENOENT;
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
        // Of a program that was searched for in vain, its name says more than the first place where it was not.
        path: match (failure.step, failure.errno, base.argv.iter().next()) {
            (rlaunch_sys::spawn::Step::Exec, ENOENT, Some(program)) => program.into(),
            _ => OsBytes::new(failure.path),
        },
    });
    edges.events.push_back(NodeEvent::Checked { app, error });
}
