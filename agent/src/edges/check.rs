//! Whether a program could be started here, found out before anything is started anywhere.

use super::convert;
use crate::edges::part::Base;
use crate::edges::watch::Source;
use rlaunch_base::id::AppIndex;
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::to_root::{Found, SpawnError, SpawnStep};
use rlaunch_sys::spawn::PreparedApp;
use std::sync::Arc;

/// Has a program's directory and file looked at; the answer is an event. Where they do not answer the launcher shall continue
/// hearing of us.
pub(super) fn perform(base: &mut Base, app: AppIndex, program: &Arc<AppBase>) {
    let Base { files, watch, .. } = base;
    if !files.check(app, program, |bell| watch.add(bell, Source::Files)) {
        base.events.push_back(NodeEvent::Checked { app, error: look(program) });
    }
}

/// The most likely failure of its start, in the form of a rank that could not be started.
pub(super) fn look(base: &AppBase) -> Option<SpawnError> {
    let prepared = PreparedApp::new(base.argv.iter(), base.env.iter(), base.wdir.as_deref());
    prepared.check().err().map(|failure| convert::failure(failure, Some(base))).or_else(|| log_directory(base))
}

/// The same for the directory of its log files, which is made.
fn log_directory(base: &AppBase) -> Option<SpawnError> {
    let logs = base.logs.as_ref()?;
    let path = logs.dir.clone()?;
    let error = rlaunch_sys::directory::make_top(&path, logs.private).err()?;
    let errno = error.raw_os_error().unwrap_or(0);
    Some(SpawnError { step: SpawnStep::LogDirectory, errno, path, found: Found::Nothing })
}

/// Takes in what the `files` thread has found: programs that were checked.
pub(super) fn receive_checked(base: &mut Base) {
    base.files.receive_answers();
    let checked = base.files.take_checked().into_iter();
    base.events.extend(checked.map(|(app, error)| NodeEvent::Checked { app, error }));
}
