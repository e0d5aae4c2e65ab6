//! Files of /dev/shm that libraries of ranks have made, and that have to go when the ranks are gone.
//!
//! Agent and guardian share pages with their names, so that the files go also if the agent is killed. Pages that hold no name cost nothing.

use super::stale_shm::{self, Moment};
use crate::memory::shared;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of a slot: a name with a zero at its end, and its user.
const ROOM: usize = 64;
const USER: usize = size_of::<u32>();
/// Most names.
const MOST: usize = 8192;
/// The directory.
const DIR: &str = "/dev/shm";
/// Beginnings of names of Open MPI.
const OPEN_MPI: [&[u8]; 4] = [b"sm_segment.", b"vader_segment.", b"osc_sm.", b"osc_rdma."];

/// Names of files with their users, each in a slot; and whether there may be files with other names.
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

    /// The place of a name, and of its user.
    fn slot(&self, slot: usize) -> Option<(&[AtomicU8], &[AtomicU8])> {
        self.names.chunks_exact(ROOM).nth(slot)?.split_at_checked(ROOM - USER)
    }

    /// Notes a file of a user that is to go with the ranks; false: it cannot be noted.
    pub fn note(&self, slot: usize, user: u32, name: &str) -> bool {
        let Some((place, user_place)) = self.slot(slot).filter(|(place, _)| name.len() < place.len()) else {
            return false;
        };
        // The first byte last: until then nothing is there. The name before may have been longer.
        place.iter().take(1).for_each(|byte| byte.store(0, Ordering::SeqCst));
        user_place.iter().zip(user.to_ne_bytes()).for_each(|(to, byte)| to.store(byte, Ordering::Release));
        for (to, byte) in place.iter().zip(name.bytes().chain(core::iter::repeat(0))).skip(1) {
            to.store(byte, Ordering::Release);
        }
        place.iter().zip(name.bytes()).take(1).for_each(|(to, byte)| to.store(byte, Ordering::Release));
        true
    }

    /// Forgets a file, which is gone.
    pub fn clear(&self, slot: usize) {
        self.slot(slot).iter().flat_map(|(place, _)| place.first()).for_each(|byte| byte.store(0, Ordering::SeqCst));
    }

    /// Libraries of ranks may make files whose names cannot be known.
    pub fn expect_others(&self) {
        self.has_others.store(1, Ordering::SeqCst);
    }

    /// Removes the files that are there. The guardian calls it last, when it may allocate.
    pub(super) fn sweep(&self) {
        self.sweep_names();
        if self.has_others.load(Ordering::SeqCst) != 0 {
            stale_shm::remove(self.since);
        }
    }

    fn sweep_names(&self) {
        let load = |bytes: &[AtomicU8]| bytes.iter().map(|byte| byte.load(Ordering::Acquire)).collect::<Vec<u8>>();
        // Slots are used from the first one on, and none is left empty for long.
        for (place, user) in (0..MOST).map_while(|slot| self.slot(slot)) {
            let (name, user) = (load(place), load(user).try_into().map_or(0, u32::from_ne_bytes));
            match name.split(|byte| *byte == 0).next() {
                None | Some([]) if name.iter().all(|byte| *byte == 0) => return,
                None | Some([]) => {}
                Some(name) => remove(user, name),
            }
        }
    }
}

/// Removes a file of a user. `.NUMBER.` is a part of names: all files of Open MPI that have it are removed.
pub fn remove(user: u32, name: &[u8]) {
    let Ok(dir) = open(DIR, OFlag::O_DIRECTORY | OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) else { return };
    if !name.starts_with(b".") {
        return remove_from(&dir, user, OsStr::from_bytes(name));
    }
    for entry in std::fs::read_dir(DIR).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let is_named = OPEN_MPI.iter().any(|start| found.as_bytes().starts_with(start));
        if is_named && found.as_bytes().windows(name.len()).any(|part| part == name) {
            remove_from(&dir, user, &found);
        }
    }
}

/// Removes a file if it is a regular one and the user's. No link is followed.
fn remove_from(dir: &OwnedFd, user: u32, name: &OsStr) {
    let Ok(stat) = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) else { return };
    let is_regular = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    if is_regular && stat.st_uid == user {
        let _gone = unlinkat(dir, name, UnlinkatFlags::NoRemoveDir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn path(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    fn user() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    #[test]
    fn noted_files_of_the_user_go_and_others_stay() {
        let files = ShmFiles::new().unwrap();
        files.sweep();
        let own = format!("rlaunch-test-{}", std::process::id());
        let name = |end: &str| format!("{own}-{end}");
        let [first, second, cleared, link, foreign] = ["a", "b", "cleared", "link", "foreign"].map(name);
        for name in [&first, &second, &cleared, &foreign] {
            std::fs::write(path(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", path(&link)).unwrap();
        for (slot, name) in [&first, &cleared, &link, &second].into_iter().enumerate() {
            assert!(files.note(slot, user(), name));
        }
        // The file is this user's, and was noted for another one.
        assert!(files.note(4, user() + 1, &foreign));
        files.clear(1);
        files.sweep();
        assert!(!path(&first).exists() && !path(&second).exists());
        for name in [&cleared, &link, &foreign] {
            assert!(path(name).symlink_metadata().is_ok(), "{name}");
            std::fs::remove_file(path(name)).unwrap();
        }
    }

    /// Only files of Open MPI that have the number of the world between two dots are removed.
    #[test]
    fn files_of_open_mpi_go_by_the_number_of_their_world() {
        let own = std::process::id();
        let gone = [format!("sm_segment.vm.0.t{own}.0"), format!("osc_rdma.vm.t{own}.1.2")];
        let kept = [format!("sm_segment.vm.0.t{own}0.0"), format!("other.t{own}.0"), format!("vader_segment.t{own}")];
        gone.iter().chain(&kept).for_each(|name| std::fs::write(path(name), "x").unwrap());
        remove(user() + 1, format!(".t{own}.").as_bytes());
        assert!(gone.iter().all(|name| path(name).exists()), "they are of another user");
        remove(user(), format!(".t{own}.").as_bytes());
        assert!(!gone.iter().any(|name| path(name).exists()));
        kept.iter().for_each(|name| std::fs::remove_file(path(name)).unwrap());
    }

    #[test]
    fn long_names_and_slots_beyond_the_last_are_not_noted() {
        let files = ShmFiles::new().unwrap();
        assert!(!files.note(0, 0, &"x".repeat(ROOM)) && !files.note(ShmFiles::MOST, 0, "a"));
        assert!(files.note(0, 0, &"x".repeat(ROOM - USER - 1)));
        files.clear(0);
        files.clear(ShmFiles::MOST);
    }
}
