//! Files of /dev/shm with random names that MPI libraries have left: their processes were killed before they removed them, or the library
//! removes none.
//!
//! Such a file does not show its job. It is removed if no process uses it, it is this user's, it has the name of a library's file, and it
//! was made during the job. Whether a process uses it can be seen where all processes can be seen: not in a container.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Beginnings of names of UCX, Intel MPI, MPICH 4, and of MPICH 5 and Open MPI without a launcher. They have a random part or a process id
/// and are not used again, so the file cannot become another one meanwhile. With `open_mpi.` Open MPI tries whether shared memory works;
/// it removes the file at once, and a process that finds it gone does not mind.
const BEGINNINGS: [&str; 7] =
    ["ucx_shm_posix_", "Intel_MPI_", "mpich_shar_tmp", "mpich_shm_", "sm_segment.", "vader_segment.", "open_mpi."];
/// Directory of such files.
const DIR: &str = "/dev/shm";
/// Number of the first PID namespace: `PROC_PID_INIT_INO` of the kernel.
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// Device and inode of a file.
type FileId = (u64, u64);

/// A moment of the system's clock: seconds and nanoseconds.
pub(super) type Moment = (i64, i64);

/// Time of the kernel's file systems.
pub(super) fn now() -> Moment {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    (now.tv_sec, now.tv_nsec)
}

/// Removes the files that were made since this moment and that no process uses.
pub(super) fn remove(since: Moment) {
    remove_in(Path::new(DIR), since);
}

fn remove_in(dir: &Path, since: Moment) {
    if fs::metadata("/proc/self/ns/pid").map(|it| it.ino()).ok() != Some(FIRST_NAMESPACE) {
        return;
    }
    let mut stale = candidates(dir, since);
    for process in processes() {
        if stale.is_empty() {
            return;
        }
        let used = used_by(&process, &stale);
        stale.retain(|(id, _)| !used.contains(id));
    }
    for (_, path) in stale {
        let _gone = fs::remove_file(path);
    }
}

/// Files that may be stale.
fn candidates(dir: &Path, since: Moment) -> Vec<(FileId, PathBuf)> {
    let user = nix::unistd::geteuid().as_raw();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_named = |name: &OsStr| BEGINNINGS.iter().any(|start| name.as_bytes().starts_with(start.as_bytes()));
    let candidate = |entry: fs::DirEntry| {
        let file = entry.metadata().ok()?;
        let is_ours = file.is_file() && file.uid() == user && (file.ctime(), file.ctime_nsec()) >= since;
        is_ours.then(|| ((file.dev(), file.ino()), entry.path()))
    };
    entries.filter(|entry| is_named(&entry.file_name())).filter_map(candidate).collect()
}

/// The directories of all processes.
fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit)).map(|entry| entry.path())
}

/// The files of a list that a process has open or mapped. A library maps a file before it closes it, so open files are looked at first.
/// A process that cannot be read is another user's, or protected like ours.
fn used_by(process: &Path, files: &[(FileId, PathBuf)]) -> BTreeSet<FileId> {
    let mut used = BTreeSet::new();
    for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        // The file system of another file might not answer.
        let to = fs::read_link(entry.path()).unwrap_or_default();
        let is_near = files.iter().any(|(_, path)| path.file_name() == to.file_name());
        if is_near && let Ok(file) = fs::metadata(entry.path()) {
            used.insert((file.dev(), file.ino()));
        }
    }
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    used.extend(maps.split(|b| *b == b'\n').filter_map(mapped));
    used
}

/// The file of a line of `maps`: range, rights, offset, device, inode, path.
fn mapped(line: &[u8]) -> Option<FileId> {
    let line = std::str::from_utf8(line.get(..line.iter().position(|b| *b == b'/')?)?).ok()?;
    let mut words = line.split_ascii_whitespace().skip(3);
    let (major, minor) = words.next()?.split_once(':')?;
    let number = |word| u32::from_str_radix(word, 16).ok();
    let device = libc::makedev(number(major)?, number(minor)?);
    Some((device, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_and_foreign_files_stay_and_stale_ones_go() {
        let since = now();
        // Jobs of other tests remove such files from the real directory.
        let dir = std::env::temp_dir().join(format!("rlaunch-stale-shm-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let path = |name: &str| dir.join(name);
        let (stale, open, other) = (path("ucx_shm_posix_a"), path("Intel_MPI_b"), path("other"));
        let tried = path("open_mpi.0000");
        let kept = [&stale, &tried, &open, &other].map(|path| fs::File::create(path).unwrap());
        let [closed, also_closed, held, _other] = kept;
        drop((closed, also_closed));
        let later = (since.0 + 3600, 0);
        remove_in(&dir, later);
        assert!(stale.exists(), "it was made before");
        remove_in(&dir, since);
        let sees_all = fs::metadata("/proc/self/ns/pid").unwrap().ino() == FIRST_NAMESPACE;
        assert_eq!([stale.exists(), tried.exists()], [!sees_all; 2]);
        assert!(open.exists() && other.exists());
        drop(held);
        remove_in(&dir, since);
        assert_eq!(open.exists(), !sees_all);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn mapped_files_are_read_from_their_lines() {
        let line = b"7f00-7f01 rw-s 00000000 00:18 1234                       /dev/shm/x";
        assert_eq!(mapped(line), Some((libc::makedev(0, 0x18), 1234)));
        assert_eq!(mapped(b"7f00-7f01 rw-p 00000000 00:00 0 "), None);
        assert_eq!(mapped(b""), None);
    }
}
