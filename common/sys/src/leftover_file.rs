//! Removing a file that a library of a rank has asked to have removed when the rank is gone.

use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

/// Directories that such files may be in, beside that of TMPDIR.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];

/// Removes a regular file below /dev/shm, /tmp or TMPDIR, if it is this user's. No link on the way is followed.
///
/// # Errors
/// The file must not be removed, or cannot be.
pub fn remove(path: &[u8]) -> io::Result<()> {
    let path = Path::new(OsStr::from_bytes(path));
    let tmp = std::env::var_os("TMPDIR");
    let places = PLACES.iter().map(Path::new).chain(tmp.as_deref().map(Path::new).filter(|tmp| tmp.is_absolute()));
    let inside = places.filter_map(|place| Some((place, path.strip_prefix(place).ok()?))).next();
    let Some((place, inside)) = inside else { return Err(ErrorKind::InvalidInput.into()) };
    let names: Option<Vec<&OsStr>> = inside.components().map(name).collect();
    let names = names.ok_or(ErrorKind::InvalidInput)?;
    let Some((file, dirs)) = names.split_last() else { return Err(ErrorKind::InvalidInput.into()) };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut dir: OwnedFd = open(place, flags, Mode::empty())?;
    for name in dirs {
        dir = openat(&dir, *name, flags | OFlag::O_NOFOLLOW, Mode::empty())?;
    }
    let stat = fstatat(&dir, *file, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let is_regular = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    if !is_regular || stat.st_uid != geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(unlinkat(&dir, *file, UnlinkatFlags::NoRemoveDir)?)
}

fn name(component: Component<'_>) -> Option<&OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_regular_files_below_shared_memory_or_tmp_are_removed() {
        let dir = std::env::temp_dir().join(format!("rlaunch-leftover-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let (file, link, through) = (dir.join("f"), dir.join("l"), dir.join("d"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::os::unix::fs::symlink(&dir, &through).unwrap();
        let of = |path: &Path| remove(path.as_os_str().as_bytes());
        for refused in [&link, &through.join("f"), &dir, &dir.join("../x"), Path::new("f")] {
            assert!(of(refused).is_err(), "{}", refused.display());
        }
        let elsewhere = Path::new("/var/tmp").join(format!("rlaunch-leftover-{}", std::process::id()));
        std::fs::write(&elsewhere, "x").unwrap();
        assert!(std::env::temp_dir().starts_with("/var/tmp") || of(&elsewhere).is_err());
        std::fs::remove_file(&elsewhere).unwrap();
        assert!(file.exists() && link.symlink_metadata().is_ok());
        of(&file).unwrap();
        assert!(!file.exists() && of(&file).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Only root can give a file away.
    #[test]
    fn file_of_another_user_stays() {
        if !geteuid().is_root() {
            return;
        }
        let file = std::env::temp_dir().join(format!("rlaunch-leftover-other-{}", std::process::id()));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        let of = || remove(file.as_os_str().as_bytes());
        assert!(of().is_err() && file.exists());
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
        of().unwrap();
    }
}
