//! The directory of a pool: its socket, its lock, its log, and the control sockets of its connections. Only this user can reach it.

use rlaunch_sys::facts::host;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Longest path of a socket: `sun_path`, unix(7).
const LONGEST: usize = 107;
/// Bytes that ssh adds to the path of a control socket while it makes it.
const OF_SSH: usize = 17;
/// Room for the number of a host after the directory.
const NUMBER: usize = 6;

/// The directory of one pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Room(PathBuf);

/// The process that has a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Owner {
    pub(super) pid: u32,
    /// Its start, as `CLOCK_BOOTTIME`, in nanoseconds.
    pub(super) began: u64,
}

/// The directory of the user's pools.
fn above() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let plain = |path: &Path| {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
        path.is_absolute() && path.as_os_str().as_encoded_bytes().iter().all(is_plain)
    };
    match runtime.filter(|path| plain(path) && is_private(path).is_ok()) {
        Some(runtime) => runtime.join("rlaunch"),
        None => PathBuf::from(format!("/tmp/rlaunch-{}", host::user().0)),
    }
}

/// Whether a directory is ours alone. A link is none.
fn is_private(path: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let wrong = |what: &str| Err(io::Error::other(format!("{} {what}", path.display())));
    if !meta.is_dir() {
        return wrong("is no directory");
    }
    if meta.uid() != host::user().0 {
        return wrong("belongs to another user");
    }
    if meta.mode() & 0o022 != 0 {
        return wrong("can be written to by others");
    }
    Ok(())
}

impl Room {
    /// The directory of the pool of this name, which need not exist.
    pub(super) fn of(name: &str) -> Self {
        Self(above().join(format!("pool-{name}")))
    }

    /// The names of all pools of the user that are up.
    pub(super) fn names() -> Vec<String> {
        let Ok(entries) = fs::read_dir(above()) else { return Vec::new() };
        let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_prefix("pool-")?.to_owned());
        let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
        names.retain(|name| Self::of(name).owner().is_some());
        names.sort();
        names
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.0.join("ctl")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The control socket of a host.
    pub(super) fn control(&self, host: u32) -> PathBuf {
        self.0.join(host.to_string())
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Checks that no other user can reach its content.
    ///
    /// # Errors
    /// It or the directory above is a link, another user's, or open to others.
    pub(super) fn check(&self) -> io::Result<()> {
        self.0.parent().map_or(Ok(()), is_private)?;
        is_private(&self.0)?;
        match fs::symlink_metadata(self.socket()) {
            Ok(meta) if !meta.file_type().is_socket() || meta.uid() != host::user().0 => {
                Err(io::Error::other(format!("{} is no socket of yours", self.socket().display())))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes the directory, and takes its lock. `Ok(Err(owner))`: a pool of this name is up.
    ///
    /// # Errors
    /// The directory cannot be made, or is not ours alone.
    pub(super) fn take(&self, began: u64) -> io::Result<Result<File, Owner>> {
        let longest = self.0.as_os_str().len() + NUMBER + OF_SSH;
        if longest > LONGEST {
            return Err(io::Error::other(format!("the path {} is too long for a socket", self.0.display())));
        }
        for path in self.0.parent().into_iter().chain([self.0.as_path()]) {
            match fs::DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => is_private(path)?,
            }
        }
        loop {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(self.lock_file())?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Err(read_owner(&mut file))),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // A pool that has just ended has removed the file that we have locked.
            let is_same = fs::symlink_metadata(self.lock_file())
                .is_ok_and(|meta| file.metadata().is_ok_and(|own| (own.ino(), own.dev()) == (meta.ino(), meta.dev())));
            if is_same {
                file.set_len(0)?;
                writeln!(file, "{} {began}", std::process::id())?;
                return Ok(Ok(file));
            }
        }
    }

    /// The process that has this pool, if it is up.
    pub(super) fn owner(&self) -> Option<Owner> {
        let mut file = File::open(self.lock_file()).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(read_owner(&mut file)),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    /// Removes what a pool that was killed has left: its sockets.
    pub(super) fn clear(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
                let _gone = fs::remove_file(entry.path());
            }
        }
    }

    /// Removes all of it. The lock is still held.
    pub(super) fn remove(&self) {
        self.clear();
        for path in [self.log(), self.lock_file()] {
            let _gone = fs::remove_file(path);
        }
        let _not_empty = fs::remove_dir(&self.0);
        // Other pools may be there.
        let _not_empty = self.0.parent().map(fs::remove_dir);
    }
}

fn read_owner(file: &mut File) -> Owner {
    let mut text = String::new();
    let _unread = file.take(64).read_to_string(&mut text);
    let mut words = text.split_whitespace();
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    Owner { pid: u32::try_from(number()).unwrap_or(0), began: number() }
}

/// Whether the system removes the directory of the socket when the user logs out.
pub(super) fn ends_with_session(room: &Room) -> bool {
    let user = std::env::var("USER").unwrap_or_default();
    room.path().starts_with("/run/user") && !Path::new("/var/lib/systemd/linger").join(user).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn scratch(name: &str) -> Room {
        let dir = std::env::temp_dir().join(format!("rlaunch-room-{name}-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        Room(dir.join("pool-x"))
    }

    #[test]
    fn one_process_has_a_pool_and_a_stale_lock_is_taken() {
        let room = scratch("lock");
        let held = room.take(7).unwrap().unwrap();
        let owner = Owner { pid: std::process::id(), began: 7 };
        assert_eq!(room.take(8).unwrap().unwrap_err(), owner);
        assert_eq!(room.owner(), Some(owner));
        drop(held);
        assert_eq!(room.owner(), None);
        let _held = room.take(9).unwrap().unwrap();
        assert_eq!(room.owner().unwrap().began, 9);
        room.remove();
        assert!(!room.path().exists() && !room.path().parent().unwrap().exists());
    }

    #[test]
    fn directory_that_others_can_write_to_and_a_link_are_refused() {
        let room = scratch("check");
        let above = room.path().parent().unwrap().to_owned();
        fs::create_dir(room.path()).unwrap();
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(room.take(1).unwrap_err().to_string().contains("can be written to by others"));
        fs::remove_dir(room.path()).unwrap();
        std::os::unix::fs::symlink("/tmp", room.path()).unwrap();
        assert!(room.take(1).unwrap_err().to_string().contains("is no directory"));
        assert!(room.check().is_err());
        fs::remove_file(room.path()).unwrap();
        let _held = room.take(1).unwrap().unwrap();
        fs::write(room.socket(), "").unwrap();
        assert!(room.check().unwrap_err().to_string().contains("is no socket of yours"));
        fs::remove_file(room.socket()).unwrap();
        room.remove();
        assert!(!above.exists());
    }
}
