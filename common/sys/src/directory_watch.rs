//! A watch on directories: the kernel tells when an entry, or one of them, is removed or renamed.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Becomes readable after a change. Which one it was is to be looked up.
#[derive(Debug)]
pub struct DirectoryWatch(OwnedFd);

impl DirectoryWatch {
    /// Watches these directories.
    ///
    /// # Errors
    /// As `inotify_init1(2)` and `inotify_add_watch(2)`.
    pub fn new(paths: &[&Path]) -> io::Result<Self> {
        // SAFETY: inotify_init1 takes an integer.
        let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let watch = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let entries = libc::IN_DELETE | libc::IN_MOVED_FROM;
        let mask = entries | libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_ONLYDIR;
        for path in paths {
            let path = CString::new(path.as_os_str().as_bytes())?;
            // SAFETY: `path` is a C string.
            if unsafe { libc::inotify_add_watch(watch.0.as_raw_fd(), path.as_ptr(), mask) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(watch)
    }

    /// Takes the changes that were reported.
    pub fn clear(&self) {
        while crate::fd::read(self.0.as_raw_fd(), &mut [0; 4096]).is_ok_and(|n| n > 0) {}
    }
}

impl AsFd for DirectoryWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::readable_now;
    use std::fs;

    #[test]
    fn removed_entry_and_renamed_directory_are_reported() {
        let dir = std::env::temp_dir().join(format!("rlaunch-watch-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let watch = DirectoryWatch::new(&[&dir]).unwrap();
        fs::write(dir.join("a"), "").unwrap();
        assert!(!readable_now(&watch), "a new file is no news");
        fs::remove_file(dir.join("a")).unwrap();
        assert!(readable_now(&watch));
        watch.clear();
        assert!(!readable_now(&watch));
        let moved = dir.with_extension("moved");
        fs::rename(&dir, &moved).unwrap();
        assert!(readable_now(&watch));
        fs::remove_dir(&moved).unwrap();
        assert!(DirectoryWatch::new(&[&dir]).is_err());
    }
}
