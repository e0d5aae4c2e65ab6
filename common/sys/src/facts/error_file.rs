//! A rank's TORCHELASTIC_ERROR_FILE. It is read with care: a rank, and in a shared directory any user, can put another file under that
//! name.

use super::inner_dir::inner_dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::{AccessFlags, access};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// How much of it is read.
pub const MOST: u64 = 64 * 1024;

/// The first 64 KiB of the error file. `None` where there is nothing in it, or it is not a regular file, is not ours,
/// or has a second name. A FIFO does not hold us up.
#[must_use]
pub fn read(path: &[u8]) -> Option<Vec<u8>> {
    // O_NONBLOCK: opening a FIFO that has no writer would wait for one.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = open(path, flags, Mode::empty()).ok()?;
    let st = fstat(&file).ok()?;
    if !is(&st, libc::S_IFREG) || !is_ours(&st) || st.st_nlink != 1 {
        return None;
    }
    let mut text = Vec::new();
    File::from(file).take(MOST).read_to_end(&mut text).ok()?;
    (!text.is_empty()).then_some(text)
}

/// Removes the error file; that there is none is fine. A rank may have made an empty directory there. One with files stays: they are not
/// ours.
///
/// # Errors
/// As `unlink(2)` and `rmdir(2)`: a directory with files, or the directory it is in is no longer ours to write in.
pub fn remove(path: &[u8]) -> io::Result<()> {
    match nix::unistd::unlink(path) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        // POSIX has EPERM for a directory.
        Err(Errno::EISDIR | Errno::EPERM) => std::fs::remove_dir(OsStr::from_bytes(path)),
        Err(errno) => Err(errno.into()),
    }
}

/// $`XDG_RUNTIME_DIR`, without a slash at its end, if it is ours alone: other users can make no file there.
#[must_use]
pub fn runtime_dir() -> Option<Vec<u8>> {
    private(&var("XDG_RUNTIME_DIR"))
}

/// The directory for files that must stay for as long as the job does, without a slash at its end. It is that of the outer job, $TMPDIR or
/// /tmp. `$XDG_RUNTIME_DIR` goes at the last logout. The root directory is not taken, and no directory in which another user can replace
/// our files.
#[must_use]
pub fn lasting_dir() -> Vec<u8> {
    let inner = || make_inner(inner_dir(&outer_socket()?)?);
    inner().unwrap_or_else(|| lasting(&var("TMPDIR")))
}

/// $TMPDIR, if it can be used but is not trusted. A job inside a job does not use it.
#[must_use]
pub fn untrusted_dir() -> Option<Vec<u8>> {
    untrusted(&var("TMPDIR")).filter(|_| outer_socket().is_none())
}

/// The socket of the job that this process is a rank of, or descends from a rank of.
fn outer_socket() -> Option<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(var("RLAUNCH_SOCKET")));
    let meta = std::fs::symlink_metadata(&path).ok()?;
    let is_socket = std::os::unix::fs::FileTypeExt::is_socket(&meta.file_type());
    (path.is_absolute() && is_socket && meta.uid() == nix::unistd::geteuid().as_raw()).then_some(path)
}

/// The directory of the outer job for jobs inside it, made unless another one has made it. The outer job removes it with all that is in it:
/// a job that ends with the PID namespace of an outer one gets no time to remove anything.
fn make_inner(dir: PathBuf) -> Option<Vec<u8>> {
    let _is_there = std::fs::DirBuilder::new().mode(0o700).create(&dir);
    // A link of another user can have taken the name before.
    let meta = std::fs::symlink_metadata(&dir).ok()?;
    let is_private = meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o777 == 0o700;
    is_private.then(|| dir.into_os_string().into_vec())
}

fn lasting(dir: &[u8]) -> Vec<u8> {
    usable(dir, |_| true).and_then(|dir| trusted(&dir)).unwrap_or_else(|| b"/tmp".to_vec())
}

fn untrusted(dir: &[u8]) -> Option<Vec<u8>> {
    usable(dir, |_| true).filter(|dir| trusted(dir).is_none())
}

/// The path of a directory without links, if no other user but root can replace a file of ours there, or a directory above it. Other users
/// may make files in a sticky directory like /tmp.
fn trusted(path: &[u8]) -> Option<Vec<u8>> {
    let real = std::fs::canonicalize(OsStr::from_bytes(path)).ok()?;
    let is_safe = |dir: &Path| {
        std::fs::symlink_metadata(dir).is_ok_and(|meta| {
            let is_kept = meta.mode() & 0o022 == 0 || meta.mode() & libc::S_ISVTX != 0;
            is_kept && [0, nix::unistd::geteuid().as_raw()].contains(&meta.uid())
        })
    };
    real.ancestors().all(is_safe).then(|| real.into_os_string().into_vec())
}

/// Whether a directory is on a file system whose answers come from this host's own memory or disk. A file system of a network, or one
/// that is served by a process, can block a reader for as long as its server is gone.
#[must_use]
pub fn is_near(dir: &[u8]) -> bool {
    use nix::sys::statfs::{
        BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC, statfs,
    };
    let near = [TMPFS_MAGIC, EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC];
    statfs(dir).is_ok_and(|st| near.contains(&st.filesystem_type()))
}

fn var(name: &str) -> Vec<u8> {
    std::env::var_os(name).map(OsStringExt::into_vec).unwrap_or_default()
}

fn private(dir: &[u8]) -> Option<Vec<u8>> {
    usable(dir, |st| is_ours(st) && st.st_mode & 0o777 == 0o700).and_then(|dir| trusted(&dir))
}

/// `path` without the slashes at its end, if it is the absolute path of a directory that suits and that we may write in.
fn usable(path: &[u8], suits: impl Fn(&FileStat) -> bool) -> Option<Vec<u8>> {
    let end = path.iter().rposition(|b| *b != b'/')?;
    let path = path.get(..=end).filter(|p| p.starts_with(b"/"))?;
    let dir = open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    suits(&fstat(&dir).ok()?).then_some(())?;
    access(path, AccessFlags::W_OK | AccessFlags::X_OK).ok()?;
    Some(path.to_vec())
}

fn is(st: &FileStat, kind: libc::mode_t) -> bool {
    st.st_mode & libc::S_IFMT == kind
}

fn is_ours(st: &FileStat) -> bool {
    st.st_uid == nix::unistd::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::core_file::tests::Temp;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn get(path: &Path) -> Option<Vec<u8>> {
        read(path.as_os_str().as_bytes())
    }

    fn bytes(path: &Path) -> &[u8] {
        path.as_os_str().as_bytes()
    }

    #[test]
    fn reads_what_a_rank_wrote_and_removes_it() {
        let dir = Temp::new();
        let path = dir.file("e", b"{\"message\": \"x\"}");
        assert_eq!(get(&path).as_deref(), Some(&b"{\"message\": \"x\"}"[..]));
        remove(bytes(&path)).unwrap();
        assert!(!path.exists());
        remove(bytes(&path)).unwrap();
        assert_eq!(get(&path), None);
        std::fs::create_dir(&path).unwrap();
        let inner = dir.file("e/kept", b"x");
        assert!(remove(bytes(&path)).is_err() && inner.exists());
        std::fs::remove_file(inner).unwrap();
        remove(bytes(&path)).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn proc_is_no_place_of_this_kind() {
        assert!(!is_near(b"/proc") && !is_near(b"/nowhere/at/all"));
        assert!(is_near(b"/dev/shm"));
    }

    #[test]
    fn nothing_in_it_says_nothing() {
        let dir = Temp::new();
        assert_eq!(get(&dir.file("e", b"")), None);
        assert_eq!(read(b""), None);
        assert_eq!(read(b"/a\0b"), None);
    }

    #[test]
    fn only_its_beginning_is_read() {
        let dir = Temp::new();
        let long = vec![b'x'; 200_000];
        assert_eq!(get(&dir.file("e", &long)).unwrap().len(), 65_536);
        assert_eq!(get(&dir.file("f", &long[..65_536])).unwrap().len(), 65_536);
    }

    #[test]
    fn special_file_is_left_alone() {
        let dir = Temp::new();
        let target = dir.file("target", b"secret");
        let link = dir.0.join("link");
        symlink(&target, &link).unwrap();
        assert_eq!(get(&link), None);

        let fifo = dir.0.join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        assert_eq!(get(&fifo), None);

        assert_eq!(get(&dir.0), None);

        std::fs::hard_link(&target, dir.0.join("second")).unwrap();
        assert_eq!(get(&target), None);
    }

    #[test]
    fn somebody_elses_file_is_left_alone() {
        if !nix::unistd::geteuid().is_root() {
            println!("absent: only root can make a file that is not its own");
            return;
        }
        let dir = Temp::new();
        let path = dir.file("e", b"not ours");
        chown(&path, Some(12_345), None).unwrap();
        assert_eq!(get(&path), None);
    }

    #[test]
    fn the_runtime_directory_must_be_ours_alone() {
        let dir = Temp::new();
        let runtime = dir.0.join("run");
        std::fs::create_dir(&runtime).unwrap();
        let mode = |m| std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(m)).unwrap();

        mode(0o755);
        assert_eq!(private(bytes(&runtime)), None);
        mode(0o700);
        assert_eq!(private(&[bytes(&runtime), b"//"].concat()).as_deref(), Some(bytes(&runtime)));
        std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(private(bytes(&runtime)), None, "another user can replace it");
        if nix::unistd::geteuid().is_root() {
            std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o755)).unwrap();
            chown(&runtime, Some(12_345), None).unwrap();
            assert_eq!(private(bytes(&runtime)), None);
        }
    }

    #[test]
    fn directory_in_which_another_user_can_replace_files_is_not_trusted() {
        let dir = Temp::new();
        let (outer, inner, link) = (dir.0.join("outer"), dir.0.join("outer/inner"), dir.0.join("link"));
        std::fs::create_dir_all(&inner).unwrap();
        symlink(&inner, &link).unwrap();
        for changed in [&outer, &inner] {
            let mode = |m| std::fs::set_permissions(changed, std::fs::Permissions::from_mode(m)).unwrap();
            for (bits, is_safe) in [(0o777, false), (0o775, false), (0o1777, true), (0o755, true)] {
                mode(bits);
                let expected = is_safe.then(|| bytes(&inner));
                assert_eq!(lasting(bytes(&inner)), expected.unwrap_or(b"/tmp"), "{changed:?} {bits:o}");
                assert_eq!(untrusted(bytes(&inner)).is_none(), is_safe, "a note names it: {changed:?} {bits:o}");
                assert_eq!(trusted(bytes(&inner)).as_deref(), expected, "{changed:?} {bits:o}");
                assert_eq!(trusted(bytes(&link)).as_deref(), expected, "{changed:?} {bits:o}");
            }
            if nix::unistd::geteuid().is_root() {
                chown(changed, Some(12_345), None).unwrap();
                assert_eq!(trusted(bytes(&inner)), None);
                chown(changed, Some(0), None).unwrap();
            }
        }
        assert_eq!(trusted(b"/tmp").as_deref(), Some(&b"/tmp"[..]));
        assert_eq!(trusted(b"/nowhere/at/all"), None);
    }

    #[test]
    fn directory_for_inner_jobs_is_ours_alone_and_no_link() {
        let dir = Temp::new();
        let inner = dir.0.join("inner");
        assert_eq!(make_inner(inner.clone()).as_deref(), Some(bytes(&inner)));
        assert_eq!(make_inner(inner.clone()).as_deref(), Some(bytes(&inner)), "another inner job has made it");
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(make_inner(inner.clone()), None);
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = dir.0.join("link");
        symlink(&inner, &link).unwrap();
        assert_eq!(make_inner(link), None);
        if nix::unistd::geteuid().is_root() {
            chown(&inner, Some(12_345), None).unwrap();
            assert_eq!(make_inner(inner), None);
        }
    }

    #[test]
    fn missing_directory_is_skipped() {
        let dir = Temp::new();
        let file = dir.file("f", b"");
        for tmp in [bytes(&file), b"", b"/", b"//", b"tmp", b"/nowhere/at/all"] {
            assert_eq!(usable(tmp, |_| true), None, "{}", String::from_utf8_lossy(tmp));
        }
        assert!(!lasting_dir().ends_with(b"/"));
    }
}
