//! From a rank's numbers to everything needed to start it.

use super::{ExecSpec, Ground};
use crate::id::ProcId;
use crate::os_bytes::OsBytes;
use crate::spec::AppBase;
use crate::wire::to_node::{Delta, Start};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Made when the rank's turn has come and not before: the variables of a thousand ranks are megabytes.
pub(super) fn spec(start: &Start, ground: &Ground, base: &Arc<AppBase>, delta: Delta) -> Box<ExecSpec> {
    let error_file = error_file(start, ground, delta.proc);
    let vars = vars(start, ground, base, delta, &error_file);
    Box::new(ExecSpec { base: Arc::clone(base), vars, delta, label: start.label.clone(), error_file })
}

/// No two processes of this host share one, and nobody else can foresee it: the job's name is random.
fn error_file(start: &Start, ground: &Ground, proc: ProcId) -> OsBytes {
    let mut path = ground.error_dir.to_vec();
    path.extend_from_slice(format!("/rlaunch-{}-{proc}.error.json", start.job).as_bytes());
    OsBytes::new(path)
}

fn vars(_start: &Start, _ground: &Ground, _base: &AppBase, _delta: Delta, _error_file: &OsBytes) -> Vec<OsBytes> {
    Vec::new()
}
