//! Files that exist for as long as a job runs: the socket of the store, files in /dev/shm, and directories for MPI libraries, for error
//! files, and for the sockets of jobs inside the job.
//!
//! Agent and guardian share a page with the path of the socket, so that all go also if one of them is killed. A path that would have to be
//! sent to the guardian could be lost on the way.

use super::ShmFiles;
use crate::facts::inner_dir::{inner_dir, is_inner};
use crate::memory::shared;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

/// Longest path of a unix socket with its end, and so of ours: `sun_path`, unix(7).
const ROOM: usize = 108;
/// A file system in memory.
const SHM: &str = "/dev/shm";
/// The size in bytes from which error files are put there. A container has 64 MiB by default.
const ROOMY: u64 = 1 << 30;

/// The path of a socket, or of nothing; and the names of other files.
#[derive(Clone, Copy, Debug)]
pub struct TempFiles {
    socket: &'static [AtomicU8],
    shm: ShmFiles,
}

impl TempFiles {
    /// Before the fork.
    ///
    /// # Errors
    /// No memory can be had.
    pub fn new() -> io::Result<Self> {
        Ok(Self { socket: shared(ROOM)?, shm: ShmFiles::new()? })
    }

    /// The files of /dev/shm.
    #[must_use]
    pub const fn shm(&self) -> ShmFiles {
        self.shm
    }

    /// Notes the path that is to go with the job, in place of the path before; false: it is too long.
    pub fn note(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= self.socket.len() || bytes.is_empty() {
            return false;
        }
        // The first byte last: until then nothing is there. The path before may have been longer.
        self.socket.iter().take(1).for_each(|slot| slot.store(0, Ordering::SeqCst));
        for (slot, byte) in self.socket.iter().zip(bytes.iter().chain(core::iter::repeat(&0))).skip(1) {
            slot.store(*byte, Ordering::Release);
        }
        self.socket.iter().zip(bytes).take(1).for_each(|(slot, byte)| slot.store(*byte, Ordering::Release));
        true
    }

    /// The directory for MPI libraries, which need not be there; `None`: there is no socket.
    #[must_use]
    pub fn library_dir(&self) -> Option<PathBuf> {
        let bytes: Vec<u8> =
            self.socket.iter().map(|slot| slot.load(Ordering::Acquire)).take_while(|b| *b != 0).collect();
        (!bytes.is_empty()).then(|| Path::new(OsStr::from_bytes(&bytes)).with_extension("mpi"))
    }

    /// Makes the directory for MPI libraries. No other user can reach it.
    ///
    /// # Errors
    /// There is no socket, or the directory cannot be made beside it.
    pub fn make_library_dir(&self) -> io::Result<()> {
        let dir = self.library_dir().ok_or(io::ErrorKind::NotFound)?;
        make_private(&dir)
    }

    /// Makes the directory for error files in /dev/shm, or beside the socket. No other user can reach it. On disk, a
    /// new directory can take longer than a launch.
    ///
    /// # Errors
    /// There is no socket, or the directory cannot be made.
    pub fn make_error_dir(&self) -> io::Result<PathBuf> {
        let mut made = Err(io::ErrorKind::NotFound.into());
        let mut dirs = self.error_dirs();
        if size_of_files(SHM) < ROOMY {
            // A rank that has filled it could not write why it fails.
            dirs.reverse();
        }
        for dir in dirs {
            made = made.or_else(|_: io::Error| make_private(&dir).map(|()| dir));
        }
        made
    }

    /// The places of the directory for error files. The outer job removes what is beside the socket of an inner one.
    fn error_dirs(&self) -> Vec<PathBuf> {
        let Some(beside) = self.library_dir().map(|dir| dir.with_extension("errors")) else { return Vec::new() };
        let in_memory = beside.file_name().filter(|_| !is_inner(&beside)).map(|name| Path::new(SHM).join(name));
        in_memory.into_iter().chain([beside]).collect()
    }

    /// Removes the files that are there. The guardian calls it last, when it may allocate.
    pub fn sweep(&self) {
        self.shm.sweep();
        let mut path = [0u8; ROOM];
        path.iter_mut().zip(self.socket).for_each(|(byte, slot)| *byte = slot.load(Ordering::Acquire));
        if path[0] != 0 {
            // SAFETY: `path` ends with at least one zero, since nothing as long as it is noted.
            unsafe { libc::unlink(path.as_ptr().cast()) };
        }
        let inner = self.library_dir().filter(|dir| !is_inner(dir)).and_then(|dir| inner_dir(&dir));
        for dir in self.library_dir().into_iter().chain(inner).chain(self.error_dirs()) {
            if is_private(&dir) {
                // No link inside is followed.
                let _gone = std::fs::remove_dir_all(dir);
            }
        }
    }
}

/// The size of a file system in bytes.
fn size_of_files(dir: &str) -> u64 {
    nix::sys::statvfs::statvfs(dir).map_or(0, |files| files.blocks().saturating_mul(files.fragment_size()))
}

/// Makes a directory that only this user can reach. A directory that is there is not taken.
fn make_private(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(dir)
}

/// Whether a directory is one that [`make_private`] has made. Another user can move a directory of his own to a name in /tmp. He can
/// neither move nor replace one that is there already.
fn is_private(dir: &Path) -> bool {
    let own = crate::facts::host::user().0;
    std::fs::symlink_metadata(dir)
        .is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode() & 0o777 == 0o700)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_noted_socket_goes() {
        let temp_files = TempFiles::new().unwrap();
        temp_files.sweep();
        let path = std::env::temp_dir().join(format!("rlaunch-temp-files-{}", std::process::id()));
        let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(!temp_files.note(Path::new(&"x".repeat(108))));
        assert!(temp_files.note(Path::new(&"x".repeat(107))), "where nothing could be made");
        assert!(temp_files.note(&path));
        temp_files.sweep();
        assert!(!path.exists(), "the file is removed while the socket listens");
        temp_files.sweep();
        drop(socket);
    }

    #[test]
    fn directory_for_libraries_goes_with_all_that_is_in_it() {
        let temp_files = TempFiles::new().unwrap();
        assert!(temp_files.library_dir().is_none() && temp_files.make_library_dir().is_err());
        let path = std::env::temp_dir().join(format!("rlaunch-library-{}.socket", std::process::id()));
        assert!(temp_files.note(&path));
        let (dir, kept) = (path.with_extension("mpi"), path.with_extension("kept"));
        temp_files.make_library_dir().unwrap();
        assert!(temp_files.make_library_dir().is_err(), "one that is there is not taken");
        std::fs::create_dir_all(dir.join("world/0")).unwrap();
        std::fs::write(dir.join("world/0/file"), "x").unwrap();
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(&kept, dir.join("link")).unwrap();
        temp_files.sweep();
        assert!(!dir.exists() && kept.join("file").exists());
        std::fs::remove_dir_all(kept).unwrap();
    }

    #[test]
    fn directory_that_somebody_else_has_put_at_a_name_stays() {
        let temp_files = TempFiles::new().unwrap();
        let path = std::env::temp_dir().join(format!("rlaunch-moved-{}.socket", std::process::id()));
        assert!(temp_files.note(&path));
        let dir = path.with_extension("mpi");
        std::fs::create_dir_all(dir.join("of-a-victim")).unwrap();
        let is_left_with = |mode| {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            temp_files.sweep();
            dir.exists()
        };
        assert!(is_left_with(0o755));
        if std::os::unix::fs::chown(&dir, Some(65534), None).is_ok() {
            assert!(is_left_with(0o700));
            std::os::unix::fs::chown(&dir, Some(0), None).unwrap();
        }
        assert!(!is_left_with(0o700), "our own is removed");
    }

    #[test]
    fn directory_for_error_files_is_private_and_none_that_is_there_is_taken() {
        let temp_files = TempFiles::new().unwrap();
        assert!(temp_files.make_error_dir().is_err());
        let name = format!("rlaunch-errors-{}", std::process::id());
        let place = std::env::temp_dir().join(&name);
        std::fs::create_dir(&place).unwrap();
        assert!(temp_files.note(&place.join(&name).with_extension("socket")));
        let dirs = [temp_files.make_error_dir().unwrap(), temp_files.make_error_dir().unwrap()];
        assert!(dirs[0].starts_with("/dev/shm") && dirs[1].starts_with(&place));
        assert!(temp_files.make_error_dir().is_err());
        for dir in &dirs {
            assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
            std::fs::write(dir.join("x.error.json"), "x").unwrap();
        }
        temp_files.sweep();
        assert!(!dirs.iter().any(|dir| dir.exists()));
        assert!(temp_files.note(Path::new("/tmp/x.inner/y.socket")));
        assert_eq!(temp_files.error_dirs(), [Path::new("/tmp/x.inner/y.errors")], "the outer job removes it");
        assert_eq!(inner_dir(Path::new("/a/long/path/x.socket")).unwrap(), Path::new("/tmp/x.inner"));
        assert_eq!(inner_dir(Path::new("/tmp/x.inner/y.socket")).unwrap(), Path::new("/tmp/x.inner"));
        std::fs::remove_dir(place).unwrap();
    }
}
