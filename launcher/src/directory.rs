//! The name of the directory in which rlaunch was started. Ranks of this host inherit it in any case; other hosts have to be sent its
//! name.

use crate::cli::Directory;
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::shell::quoted;
use rlaunch_protocol::spec::{AppSpec, JobSpec};
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

/// Files of ranks cannot be written on this host; the agents of others report it themselves.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoFiles {
    /// The directory of log files.
    #[error("--log-dir {path}: {why}")]
    LogDir { path: OsBytes, why: String },
    /// The directory of files that `-o` and `-e` name.
    #[error("cannot write {files}: {why}")]
    Named { files: OsBytes, why: String, missing: Option<OsBytes> },
}

impl NoFiles {
    /// The event log of this name cannot be written.
    pub(crate) fn named(path: &OsBytes, error: &io::Error) -> Self {
        let above = path.iter().rposition(|b| *b == b'/').and_then(|end| path.get(..end)).map(OsBytes::from);
        Self::Named {
            files: OsBytes::new([b"the event log ", path.as_slice()].concat()),
            why: rlaunch_sys::reason(error),
            missing: above.filter(|_| error.kind() == io::ErrorKind::NotFound),
        }
    }
}

impl Hint for NoFiles {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Named { missing: Some(path), .. } => Some(format!("mkdir -p {}", quoted(path)).into()),
            Self::LogDir { .. } => Some("--log-dir with a directory in which you may write".into()),
            Self::Named { missing: None, .. } => None,
        }
    }
}

/// Makes the directory of a job's log files, if this host has ranks. Checks the directories of the files that `-o` and `-e` name.
///
/// # Errors
/// A directory cannot be made, is missing, or cannot be written.
pub(crate) fn for_files(job: &JobSpec, named: &[Directory], origin: &Origin) -> Result<(), NoFiles> {
    if !job.placement.nodes.iter().any(|node| node.local && node.ranks > 0) {
        return Ok(());
    }
    let logs = job.apps.iter().find_map(|app| app.base.logs.as_ref());
    if let Some((logs, path)) = logs.and_then(|logs| Some((logs, logs.dir.as_ref()?))) {
        // The directory may be on a file system that does not answer.
        let made = origin.interruptibly(|| {
            rlaunch_sys::directory::make_top(path, logs.private)?;
            rlaunch_sys::directory::check_writable(path)
        });
        made.map_err(|error| NoFiles::LogDir { path: path.clone(), why: rlaunch_sys::reason(&error) })?;
    }
    for Directory { files, path } in named {
        origin.interruptibly(|| rlaunch_sys::directory::check_writable(path)).map_err(|error| NoFiles::Named {
            files: files.clone(),
            why: rlaunch_sys::reason(&error),
            missing: (error.kind() == io::ErrorKind::NotFound).then(|| path.clone()),
        })?;
    }
    Ok(())
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
    job.placement.ranks.iter().any(|placed| {
        let node = job.placement.nodes.get(placed.node.index());
        node.is_some_and(|node| !node.local) && job.apps.get(placed.app.index()).is_some_and(from_it)
    })
}
