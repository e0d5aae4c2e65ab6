//! Files of /dev/shm that libraries of ranks have made, and that have to go when the ranks are gone.
//!
//! Agent and guardian share pages with their names, so that the files go also if the agent is killed. Pages that hold no name cost nothing.

use super::stale_shm::{self, Moment};
use crate::memory::shared;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of a name, with a zero at its end.
const ROOM: usize = 128;
/// Most names.
const MOST: usize = 8192;
/// Sign at the end of a name: all files whose names begin like it.
const ALL: u8 = b'*';
/// The directory.
const DIR: &[u8] = b"/dev/shm/";

/// Names of files, each in a slot; and whether there may be files with other names.
#[derive(Clone, Copy, Debug)]
pub struct ShmFiles {
    names: &'static [AtomicU8],
    has_others: &'static AtomicU8,
    /// The beginning of the job.
    since: Moment,
}

impl ShmFiles {
    /// How many slots there are.
    pub const MOST: usize = MOST;

    /// Before the fork.
    pub(super) fn new() -> io::Result<Self> {
        let all = shared(ROOM * MOST + 1)?;
        let (has_others, names) = all.split_last().ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { names, has_others, since: stale_shm::now() })
    }

    fn slot(&self, slot: usize) -> &[AtomicU8] {
        self.names.chunks_exact(ROOM).nth(slot).unwrap_or_default()
    }

    /// Whether a path is that of a file that can be noted.
    #[must_use]
    pub fn takes(path: &[u8]) -> bool {
        let name = path.strip_prefix(DIR).unwrap_or_default();
        let is_name = !name.is_empty() && name.len() < ROOM && !name.contains(&b'/') && !name.contains(&0);
        is_name && name != b"." && name != b".."
    }

    /// This file is to go with the ranks; false: it cannot be noted.
    pub fn note(&self, slot: usize, path: &[u8]) -> bool {
        let (slot, name) = (self.slot(slot), path.strip_prefix(DIR).unwrap_or_default());
        if slot.is_empty() || !Self::takes(path) {
            return false;
        }
        // The first byte last: until then nothing is there. The name before may have been longer.
        slot.iter().take(1).for_each(|byte| byte.store(0, Ordering::SeqCst));
        for (to, byte) in slot.iter().zip(name.iter().chain(core::iter::repeat(&0))).skip(1) {
            to.store(*byte, Ordering::Release);
        }
        slot.iter().zip(name).take(1).for_each(|(to, byte)| to.store(*byte, Ordering::Release));
        true
    }

    /// Forgets a file, which is gone.
    pub fn clear(&self, slot: usize) {
        self.slot(slot).iter().take(1).for_each(|byte| byte.store(0, Ordering::SeqCst));
    }

    /// Libraries of ranks may make files whose names cannot be known.
    pub fn expect_others(&self) {
        self.has_others.store(1, Ordering::SeqCst);
    }

    /// Removes the files that are there and are this user's. The guardian calls it last, when it may allocate.
    pub(super) fn sweep(&self) {
        self.sweep_names();
        if self.has_others.load(Ordering::SeqCst) != 0 {
            stale_shm::remove(self.since);
        }
    }

    fn sweep_names(&self) {
        // Slots are used from the first one on, and none is left empty for long.
        for slot in self.names.chunks_exact(ROOM) {
            let mut path = [0u8; DIR.len() + ROOM];
            let (dir, name) = path.split_at_mut(DIR.len());
            dir.copy_from_slice(DIR);
            name.iter_mut().zip(slot).for_each(|(byte, from)| *byte = from.load(Ordering::Acquire));
            match name {
                [0, ..] if Self::is_untouched(slot) => return,
                [0, ..] => {}
                _ => match name.split(|byte| *byte == 0).next() {
                    Some([start @ .., ALL]) => stale_shm::remove_beginning(start),
                    Some(_) | None => remove(&path),
                },
            }
        }
    }

    /// A slot that never had a name. The ones after it have none either.
    fn is_untouched(slot: &[AtomicU8]) -> bool {
        slot.iter().all(|byte| byte.load(Ordering::Acquire) == 0)
    }
}

/// Removes a file, if it is a regular one and this user's. The kernel follows no link at the end of a path that it removes.
fn remove(path: &[u8; DIR.len() + ROOM]) {
    // SAFETY: a zeroed stat is a valid value of this plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends with at least one zero, since no name is as long as its slot; `stat` is valid for writing.
    let rc = unsafe { libc::lstat(path.as_ptr().cast(), &raw mut stat) };
    // SAFETY: geteuid takes nothing and cannot fail.
    let is_ours = rc == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_uid == unsafe { libc::geteuid() };
    if is_ours {
        // SAFETY: as above.
        unsafe { libc::unlink(path.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn noted_files_of_shared_memory_go_and_others_stay() {
        let files = ShmFiles::new().unwrap();
        files.sweep();
        let path = |name: &str| PathBuf::from(format!("/dev/shm/rlaunch-test-{}-{name}", std::process::id()));
        let bytes = |path: &PathBuf| path.to_str().unwrap().as_bytes().to_vec();
        let (first, second, link, cleared) = (path("a"), path("b"), path("link"), path("cleared"));
        let alike = [path("job.0"), path("job.1")];
        for file in [&first, &second, &cleared].into_iter().chain(&alike) {
            std::fs::write(file, "x").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        for (slot, file) in [&first, &cleared, &link, &second, &path("job.*")].into_iter().enumerate() {
            assert!(files.note(slot, &bytes(file)));
        }
        files.clear(1);
        files.sweep();
        assert!(!first.exists() && !second.exists() && !alike.iter().any(|path| path.exists()));
        assert!(cleared.exists() && link.symlink_metadata().is_ok());
        [cleared, link].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    #[test]
    fn only_names_of_shared_memory_are_noted() {
        let files = ShmFiles::new().unwrap();
        let long = format!("/dev/shm/{}", "x".repeat(ROOM));
        for path in ["/tmp/a", "/dev/shm/", "/dev/shm/..", "/dev/shm/a/b", "a", &long] {
            assert!(!files.note(0, path.as_bytes()), "{path}");
        }
        assert!(files.note(0, b"/dev/shm/a") && !files.note(ShmFiles::MOST, b"/dev/shm/a"));
        files.clear(0);
    }
}
