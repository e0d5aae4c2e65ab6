//! The directory of a pool: its socket, its lock, its log, and the control sockets of its connections. Only this user can reach it.

use rlaunch_sys::devices::user_name;
use rlaunch_sys::facts::host;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest path of a socket: `sun_path`, unix(7).
const LONGEST: usize = 107;
/// Bytes that ssh adds to the path of a control socket while it makes it.
const OF_SSH: usize = 17;
/// Room for the numbers of a process and a host after the directory.
const NUMBER: usize = 14;
/// How often the lock is tried while a process has it that is no pool: another command that looks whether one is up.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Device and inode.
pub(super) type FileId = (u64, u64);

/// The directory of one pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PoolDirectory(PathBuf);

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
        None => without_runtime(),
    }
}

/// The directory of the user's pools if `XDG_RUNTIME_DIR` is not set.
fn without_runtime() -> PathBuf {
    PathBuf::from(format!("/tmp/rlaunch-{}", host::user().0))
}

/// The names of the pools in a directory that are up. Files of those that were killed are removed.
fn names_in(above: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(above) else { return Vec::new() };
    let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_prefix("pool-")?.to_owned());
    let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
    names.retain(|name| PoolDirectory::in_dir(above, name).is_up());
    names.sort();
    names
}

/// Pools of the user in a directory that is not looked at.
pub(super) struct Elsewhere {
    pub(super) dir: PathBuf,
    pub(super) names: Vec<String>,
    /// The words before a command that looks there.
    pub(super) way: String,
}

/// Pools in the other usual directories: those of a process with another `XDG_RUNTIME_DIR`.
pub(super) fn elsewhere() -> Vec<Elsewhere> {
    let runtime = PathBuf::from(format!("/run/user/{}", host::user().0));
    let by_variable = (runtime.join("rlaunch"), format!("XDG_RUNTIME_DIR={}", runtime.display()));
    let all = [by_variable, (without_runtime(), "env -u XDG_RUNTIME_DIR".to_owned())];
    let others = all.into_iter().filter(|(dir, _)| *dir != above() && is_private(dir).is_ok());
    let found = others.map(|(dir, way)| Elsewhere { names: names_in(&dir), dir, way });
    found.filter(|other| !other.names.is_empty()).collect()
}

/// Whether a directory is ours alone. A link is none.
fn is_private(path: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let wrong = |what: &str| Err(io::Error::other(format!("{} {what}", path.display())));
    if !meta.is_dir() {
        return wrong("is no directory");
    }
    if meta.uid() != host::user().0 {
        return wrong(&format!("belongs to {} (uid {}), and not to you", user_name(meta.uid()), meta.uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return wrong("can be written to by others");
    }
    Ok(())
}

impl PoolDirectory {
    /// The directory of the pool of this name, which need not exist.
    pub(super) fn of(name: &str) -> Self {
        Self::in_dir(&above(), name)
    }

    fn in_dir(above: &Path, name: &str) -> Self {
        Self(above.join(format!("pool-{name}")))
    }

    /// The names of all pools of the user that are up.
    pub(super) fn names() -> Vec<String> {
        names_in(&above())
    }

    /// The same.
    ///
    /// # Errors
    /// The directory of all pools is not ours alone.
    pub(super) fn safe_names() -> io::Result<Vec<String>> {
        match is_private(&above()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(Self::names()),
        }
    }

    /// The directory of all pools.
    pub(super) fn dir_of_all() -> PathBuf {
        above()
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

    /// The control socket of a host. A pool that ends may use a directory of this name together with its successor.
    pub(super) fn control(&self, host: u32) -> PathBuf {
        self.0.join(format!("{}-{host}", std::process::id()))
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
        let mut tries = 0;
        loop {
            match self.try_take(began) {
                // A command has just removed the files of a pool that was killed.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => {}
                Ok(Err(owner)) if !owner.is_alive() && tries < TRIES => std::thread::sleep(PAUSE),
                outcome => return outcome,
            }
            tries += 1;
        }
    }

    /// The same, once.
    pub(super) fn try_take(&self, began: u64) -> io::Result<Result<File, Owner>> {
        for path in self.0.parent().into_iter().chain([self.0.as_path()]) {
            match fs::DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => is_private(path)?,
            }
        }
        let mut options = File::options();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(self.lock_file())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Err(read_owner(&mut file))),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if !self.is_locked_by(&file) {
            return Err(io::ErrorKind::NotFound.into());
        }
        file.set_len(0)?;
        writeln!(file, "{} {began}", std::process::id())?;
        Ok(Ok(file))
    }

    /// Whether this is its lock still: a pool that ends, and the user, may remove the file.
    pub(super) fn is_locked_by(&self, lock: &File) -> bool {
        let same = |own: fs::Metadata, meta: fs::Metadata| (own.ino(), own.dev()) == (meta.ino(), meta.dev());
        lock.metadata().is_ok_and(|own| fs::symlink_metadata(self.lock_file()).is_ok_and(|meta| same(own, meta)))
    }

    /// The file of the socket that is there.
    pub(super) fn socket_file(&self) -> Option<FileId> {
        fs::symlink_metadata(self.socket()).ok().map(|meta| (meta.dev(), meta.ino()))
    }

    /// The process that has this pool, if it is up.
    pub(super) fn owner(&self) -> Option<Owner> {
        let mut file = File::open(self.lock_file()).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(read_owner(&mut file)),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    /// Whether this pool is up. If not, its files are removed: it was killed.
    pub(super) fn is_up(&self) -> bool {
        // Nothing of another user is opened.
        if self.0.parent().map_or(Ok(()), is_private).and_then(|()| is_private(&self.0)).is_err() {
            return false;
        }
        let Ok(file) = File::options().read(true).write(true).open(self.lock_file()) else { return false };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => false,
            Ok(()) => {
                self.remove(&file);
                false
            }
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

    /// Removes the whole directory, while the lock is still held. If this directory has another lock by now, nothing is removed.
    pub(super) fn remove(&self, lock: &File) {
        if !self.is_locked_by(lock) {
            return;
        }
        self.clear();
        for path in [self.log(), self.lock_file()] {
            let _gone = fs::remove_file(path);
        }
        let _not_empty = fs::remove_dir(&self.0);
        // Other pools may be there.
        let _not_empty = self.0.parent().map(fs::remove_dir);
    }
}

impl Owner {
    fn is_alive(&self) -> bool {
        self.pid != 0 && Path::new("/proc").join(self.pid.to_string()).exists()
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
pub(super) fn ends_with_session(directory: &PoolDirectory) -> bool {
    let user = std::env::var("USER").ok().filter(|name| !name.is_empty());
    let user = user.unwrap_or_else(|| user_name(host::user().0));
    directory.path().starts_with("/run/user") && !Path::new("/var/lib/systemd/linger").join(user).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn scratch(name: &str) -> PoolDirectory {
        let dir = std::env::temp_dir().join(format!("rlaunch-directory-{name}-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        PoolDirectory(dir.join("pool-x"))
    }

    #[test]
    fn one_process_has_a_pool_and_a_stale_lock_is_taken() {
        let directory = scratch("lock");
        let held = directory.take(7).unwrap().unwrap();
        let owner = Owner { pid: std::process::id(), began: 7 };
        assert_eq!(directory.take(8).unwrap().unwrap_err(), owner);
        assert_eq!(directory.owner(), Some(owner));
        drop(held);
        assert_eq!(directory.owner(), None);
        let held = directory.take(9).unwrap().unwrap();
        assert_eq!(directory.owner().unwrap().began, 9);
        assert!(directory.is_up() && directory.socket_file().is_none());
        fs::write(directory.socket(), "").unwrap();
        assert!(directory.socket_file().is_some());
        fs::remove_file(directory.socket()).unwrap();
        directory.remove(&held);
        assert!(!directory.path().exists() && !directory.path().parent().unwrap().exists());
    }

    #[test]
    fn directory_that_other_users_can_write_to_and_a_link_are_refused() {
        let directory = scratch("check");
        let above = directory.path().parent().unwrap().to_owned();
        fs::create_dir(directory.path()).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(directory.take(1).unwrap_err().to_string().contains("can be written to by others"));
        fs::remove_dir(directory.path()).unwrap();
        std::os::unix::fs::symlink("/tmp", directory.path()).unwrap();
        assert!(directory.take(1).unwrap_err().to_string().contains("is no directory"));
        assert!(directory.check().is_err());
        fs::remove_file(directory.path()).unwrap();
        let held = directory.take(1).unwrap().unwrap();
        fs::write(directory.socket(), "").unwrap();
        assert!(directory.check().unwrap_err().to_string().contains("is no socket of yours"));
        fs::remove_file(directory.socket()).unwrap();
        directory.remove(&held);
        assert!(!above.exists());
    }

    #[test]
    fn files_of_a_killed_pool_are_removed_and_files_of_the_successor_stay() {
        let directory = scratch("killed");
        let above = directory.path().parent().unwrap().to_owned();
        let killed = directory.take(1).unwrap().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(directory.socket()).unwrap();
        assert_eq!(names_in(&above), ["x"]);
        fs::rename(directory.path(), above.join("moved")).unwrap();
        let next = directory.take(2).unwrap().unwrap();
        assert!(directory.socket_file().is_none() && !directory.is_locked_by(&killed));
        directory.remove(&killed);
        assert!(directory.is_locked_by(&next));
        drop(next);
        fs::remove_dir_all(directory.path()).unwrap();
        fs::rename(above.join("moved"), directory.path()).unwrap();
        drop(killed);
        assert_eq!(names_in(&above), Vec::<String>::new());
        assert!(!above.exists(), "the last one takes the directory of all pools with it");
    }
}
