//! The directory for jobs inside a job.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Its extension.
const INNER: &str = "inner";

/// The directory for jobs inside the job with this socket. It is in /tmp, lest the path of their sockets become too long. A job inside an
/// inner job has the same one.
pub(crate) fn inner_dir(socket: &Path) -> Option<PathBuf> {
    if is_inner(socket) {
        return socket.parent().map(Path::to_owned);
    }
    Some(Path::new("/tmp").join(socket.with_extension(INNER).file_name()?))
}

/// Whether the job with this socket, or other file beside it, is inside another one.
pub(crate) fn is_inner(file: &Path) -> bool {
    file.parent().is_some_and(|dir| dir.extension() == Some(OsStr::new(INNER)))
}
