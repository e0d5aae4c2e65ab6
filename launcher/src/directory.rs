//! The name of the directory in which rlaunch was started. Ranks of this host inherit it in any case; other hosts have to be sent its
//! name.

use rlaunch_core::error::Hint;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::spec::{AppSpec, JobSpec};
use rlaunch_sys::origin::{self, Origin};
use std::borrow::Cow;
use std::io;

/// Other hosts cannot be sent the directory in which their ranks start.
#[derive(Debug, thiserror::Error)]
#[error("ranks on other hosts start from the current directory, and it {why}")]
pub(crate) struct NoDirectory {
    why: String,
}

impl Hint for NoDirectory {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("cd to another one, or --wdir with an absolute path".into())
    }
}

/// The directory of log files cannot be made on this host; others say so themselves.
#[derive(Debug, thiserror::Error)]
#[error("--log-dir {path}: {why}")]
pub(crate) struct NoLogs {
    path: OsBytes,
    why: String,
}

/// Makes the directory of a job's log files, where this host has ranks: a job of days without them is none.
///
/// # Errors
/// It cannot be made.
pub(crate) fn for_logs(job: &JobSpec, origin: &Origin) -> Result<(), NoLogs> {
    let logs = job.apps.iter().find_map(|app| app.base.logs.as_ref());
    let here = job.placement.nodes.iter().any(|node| node.local && node.ranks > 0);
    let Some((logs, path)) = logs.filter(|_| here).and_then(|logs| Some((logs, logs.dir.as_ref()?))) else {
        return Ok(());
    };
    // It may be on a file system that does not answer.
    let made = origin.interruptibly(|| rlaunch_sys::directory::make_top(path, logs.private));
    made.map_err(|error| NoLogs { path: path.clone(), why: rlaunch_sys::reason(&error) })
}

/// For a job on other hosts; empty if it has none, and they can do without.
///
/// # Errors
/// They cannot.
pub(crate) fn name(job: &JobSpec) -> Result<OsBytes, NoDirectory> {
    match origin::directory() {
        Ok(name) => Ok(OsBytes::new(name)),
        Err(_) if !is_needed(job) => Ok(OsBytes::default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(NoDirectory { why: "does not exist any more".into() })
        }
        Err(error) => Err(NoDirectory { why: format!("cannot be named: {}", rlaunch_sys::reason(&error)) }),
    }
}

/// Another host has ranks that start in it, or look for a relative `--wdir` from it.
fn is_needed(job: &JobSpec) -> bool {
    let from_it = |app: &AppSpec| app.base.wdir.as_ref().is_none_or(|dir| !dir.starts_with(b"/"));
    job.placement.ranks.iter().any(|seat| {
        let node = job.placement.nodes.get(seat.node.index());
        node.is_some_and(|node| !node.local) && job.apps.get(seat.app.index()).is_some_and(from_it)
    })
}
