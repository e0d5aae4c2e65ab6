//! A watch on directories: the kernel reports that an entry, or one of them, was removed or renamed.

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Becomes readable after a change. Which one it was is to be looked up.
#[derive(Debug)]
pub struct DirectoryWatch(Inotify);

impl DirectoryWatch {
    /// Watches these directories.
    ///
    /// # Errors
    /// As `inotify_init1(2)` and `inotify_add_watch(2)`.
    pub fn new(paths: &[&Path]) -> io::Result<Self> {
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let entries = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM;
        let itself = AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_ONLYDIR;
        for path in paths {
            watch.add_watch(*path, entries | itself)?;
        }
        Ok(Self(watch))
    }

    /// Takes the changes that were reported.
    pub fn clear(&self) {
        while self.0.read_events().is_ok_and(|events| !events.is_empty()) {}
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
