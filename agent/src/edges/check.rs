//! Whether a program could be started here, found out before anything is started anywhere.

use super::Edges;
use rlaunch_core::errno::ENOENT;
use rlaunch_core::id::AppIndex;
use rlaunch_core::node::NodeEvent;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::spec::AppBase;
use rlaunch_core::wire::to_root::{SpawnError, SpawnStep};
use rlaunch_sys::spawn::{PreparedApp, Step};
use std::sync::Arc;

/// Has a program's directory and file looked at; the answer is an event. Where they do not answer the launcher shall go on
/// hearing of us.
pub(super) fn perform(edges: &mut Edges, app: AppIndex, base: &Arc<AppBase>) {
    let Edges { files, watch, .. } = edges;
    if !files.check(app, base, |bell| watch.watch_files(bell)) {
        edges.events.push_back(NodeEvent::Checked { app, error: look(base) });
    }
}

/// What its start would most likely fail with.
pub(super) fn look(base: &AppBase) -> Option<SpawnError> {
    let prepared = PreparedApp::new(base.argv.iter(), base.env.iter(), base.wdir.as_deref());
    prepared.check().err().map(|failure| SpawnError {
        step: match failure.step {
            Step::ChangeDir => SpawnStep::ChangeDir,
            _ => SpawnStep::Exec,
        },
        errno: failure.errno,
        // Of a program that was searched for in vain, its name says more than the first place where it was not.
        path: match (failure.step, failure.errno, base.argv.iter().next()) {
            (Step::Exec, ENOENT, Some(program)) => program.into(),
            _ => OsBytes::new(failure.path),
        },
    })
}

/// Takes in which programs were looked at.
pub(super) fn settle(edges: &mut Edges) {
    edges.files.settle();
    let checked = edges.files.take_checked().into_iter();
    edges.events.extend(checked.map(|(app, error)| NodeEvent::Checked { app, error }));
}
