//! Lock files of accelerator drivers, as /tmp/libtpu_lockfile.
//!
//! libtpu takes a POSIX write lock on the whole file. The kernel drops the lock with the process, so the file itself blocks no other
//! process of its owner. A file that cannot be opened does: that of another user, a symbolic link, a directory.

use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// The state of a lock file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockState {
    /// There is none.
    Absent,
    /// A file of this user that nothing has locked. It blocks nothing.
    Free,
    /// A process has locked it; 0: that of another PID namespace.
    Locked(u32),
    /// The file belongs to another user, and no process has locked it.
    Foreign(u32),
    /// The path is no file of its own.
    Odd(OddFile),
    /// The file cannot be looked at: errno.
    Unknown(i32),
}

/// A kind of file that libtpu cannot lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OddFile {
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO.
    Fifo,
    /// A file with several names.
    ManyNames,
    /// A device, a socket, or a file that was replaced meanwhile.
    Other,
}

/// Looks at a lock file. Nothing is changed.
#[must_use]
pub fn lock_state(path: &Path) -> LockState {
    at(path, state_in)
}

/// Removes a lock file that nothing has locked: under the lock itself, and never through a symbolic link. The state says what was found; after
/// `Free` the file is gone.
#[must_use]
pub fn remove_lock(path: &Path) -> LockState {
    at(path, remove_in)
}

/// Looks at a file in its directory, which is opened step by step and held: another user could put a link into the path at any time. Only
/// root can make a link in the root directory.
fn at(path: &Path, look: impl FnOnce(BorrowedFd<'_>, &OsStr) -> LockState) -> LockState {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let enter = |dir: OwnedFd, part: Component<'_>, follow: OFlag| match part {
        Component::RootDir | Component::CurDir => Ok(dir),
        Component::Normal(name) => openat(dir, name, flags | follow, Mode::empty()),
        Component::ParentDir | Component::Prefix(_) => Err(Errno::EINVAL),
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return LockState::Unknown(Errno::EINVAL as i32);
    };
    let follow = [OFlag::empty(); 2].into_iter().chain(std::iter::repeat(OFlag::O_NOFOLLOW));
    let root = open("/", flags, Mode::empty());
    let dir = parent.components().zip(follow).fold(root, |dir, (part, follow)| enter(dir?, part, follow));
    match dir {
        Ok(dir) => look(dir.as_fd(), name),
        Err(Errno::ENOENT) => LockState::Absent,
        Err(errno) => LockState::Unknown(errno as i32),
    }
}

fn state_in(dir: BorrowedFd<'_>, name: &OsStr) -> LockState {
    let found = match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::ENOENT) => return LockState::Absent,
        Err(errno) => return LockState::Unknown(errno as i32),
    };
    if let Some(kind) = oddity(&found) {
        return LockState::Odd(kind);
    }
    match (locked_by(dir, name, &found), may_remove(&found)) {
        (Some(pid), _) => LockState::Locked(pid),
        (None, true) => LockState::Free,
        (None, false) => LockState::Foreign(found.st_uid),
    }
}

fn remove_in(dir: BorrowedFd<'_>, name: &OsStr) -> LockState {
    let state = state_in(dir, name);
    if state != LockState::Free {
        return state;
    }
    let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::ENOENT) => return LockState::Absent,
        Err(Errno::ELOOP) => return LockState::Odd(OddFile::Link),
        Err(errno) => return LockState::Unknown(errno as i32),
    };
    let Ok(opened) = fstat(&file) else { return LockState::Odd(OddFile::Other) };
    if let Some(kind) = oddity(&opened) {
        return LockState::Odd(kind);
    }
    if !may_remove(&opened) {
        return LockState::Odd(OddFile::Other);
    }
    match fcntl(&file, FcntlArg::F_SETLK(&whole())) {
        Ok(_) => {}
        Err(Errno::EAGAIN | Errno::EACCES) => return LockState::Locked(holder(&file).unwrap_or(0)),
        Err(errno) => return LockState::Unknown(errno as i32),
    }
    // Another file may have taken its place since it was opened.
    match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(now) if (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino) => {}
        Ok(_) => return LockState::Odd(OddFile::Other),
        Err(_) => return LockState::Absent,
    }
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => LockState::Free,
        Err(errno) => LockState::Unknown(errno as i32),
    }
}

/// The kind of a file that is no plain one with a single name.
fn oddity(found: &FileStat) -> Option<OddFile> {
    match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG if found.st_nlink == 1 => None,
        SFlag::S_IFREG => Some(OddFile::ManyNames),
        SFlag::S_IFDIR => Some(OddFile::Directory),
        SFlag::S_IFLNK => Some(OddFile::Link),
        SFlag::S_IFIFO => Some(OddFile::Fifo),
        _ => Some(OddFile::Other),
    }
}

fn may_remove(found: &FileStat) -> bool {
    let own = nix::unistd::geteuid();
    own.is_root() || found.st_uid == own.as_raw()
}

/// `F_WRLCK` as `struct flock` has it.
#[expect(clippy::cast_possible_truncation, reason = "a small number")]
const WRITE: libc::c_short = libc::F_WRLCK as libc::c_short;
/// `F_UNLCK` as `struct flock` has it.
#[expect(clippy::cast_possible_truncation, reason = "a small number")]
const UNLOCKED: libc::c_short = libc::F_UNLCK as libc::c_short;

const fn whole() -> libc::flock {
    libc::flock { l_type: WRITE, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 }
}

/// The process that has locked an open file.
fn holder(file: &OwnedFd) -> Option<u32> {
    let mut lock = whole();
    fcntl(file.as_fd(), FcntlArg::F_GETLK(&mut lock)).ok()?;
    let is_locked = lock.l_type != UNLOCKED;
    is_locked.then(|| u32::try_from(lock.l_pid).unwrap_or(0))
}

/// The process that has locked a file; for a file of another user by /proc/locks.
fn locked_by(dir: BorrowedFd<'_>, name: &OsStr, found: &FileStat) -> Option<u32> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    if let Ok(file) = openat(dir, name, flags, Mode::empty()) {
        return holder(&file);
    }
    let (major, minor) = (nix::sys::stat::major(found.st_dev), nix::sys::stat::minor(found.st_dev));
    in_list(&fs::read_to_string("/proc/locks").ok()?, &format!("{major:02x}:{minor:02x}:{}", found.st_ino))
}

/// `1: POSIX  ADVISORY  WRITE 4242 00:87:2 0 EOF`.
fn in_list(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [.., pid, of, _, _] = words.as_slice() else { return None };
        (words.contains(&"POSIX") && *of == file).then(|| pid.parse().unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::PathBuf;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("rlaunch-lock-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        fn file(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, "").unwrap();
            path
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn lock_file_that_nothing_has_locked_is_removed() {
        let place = Place::new("free");
        let path = place.file("lock");
        assert_eq!((lock_state(&path), path.exists()), (LockState::Free, true));
        assert_eq!((remove_lock(&path), path.exists()), (LockState::Free, false));
        assert_eq!(remove_lock(&path), LockState::Absent);
    }

    #[test]
    fn what_is_no_plain_file_stays() {
        let place = Place::new("odd");
        let target = place.file("target");
        let link = place.0.join("link");
        symlink(&target, &link).unwrap();
        let directory = place.0.join("directory");
        fs::create_dir(&directory).unwrap();
        let fifo = place.0.join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let second = place.0.join("second");
        let first = place.file("first");
        fs::hard_link(&first, &second).unwrap();
        for (path, kind) in [
            (&link, OddFile::Link),
            (&directory, OddFile::Directory),
            (&fifo, OddFile::Fifo),
            (&first, OddFile::ManyNames),
            (&second, OddFile::ManyNames),
        ] {
            assert_eq!(remove_lock(path), LockState::Odd(kind), "{}", path.display());
            assert!(fs::symlink_metadata(path).is_ok());
        }
        assert!(target.exists());
    }

    #[test]
    fn link_in_the_path_is_not_followed() {
        let place = Place::new("path");
        fs::create_dir(place.0.join("real")).unwrap();
        symlink(place.0.join("real"), place.0.join("link")).unwrap();
        let file = place.file("real/lock");
        let through = place.0.join("link/lock");
        assert!(matches!(lock_state(&through), LockState::Unknown(_)));
        assert!(matches!(remove_lock(&through), LockState::Unknown(_)) && file.exists());
        assert!(matches!(remove_lock(&place.0.join("real/../real/lock")), LockState::Unknown(_)) && file.exists());
        assert_eq!((remove_lock(&file), file.exists()), (LockState::Free, false));
        assert_eq!(remove_lock(&place.0.join("absent/lock")), LockState::Absent);
    }

    #[test]
    fn list_of_locks_names_the_process() {
        let list = "1: FLOCK  ADVISORY  WRITE 11 00:87:2 0 EOF\n2: POSIX  ADVISORY  WRITE 4242 00:87:2 0 EOF\n";
        assert_eq!(in_list(list, "00:87:2"), Some(4242));
        assert_eq!(in_list(list, "00:87:3"), None);
        let path = Path::new("/proc/locks");
        assert!(fs::metadata(path).is_ok_and(|found| found.size() == 0));
    }
}
