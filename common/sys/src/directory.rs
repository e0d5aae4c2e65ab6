//! Directories for log files of ranks.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};

/// Makes a directory, and those that it is in, where they are not there. `private`: no other user may look into new ones.
///
/// # Errors
/// As `mkdir(2)`.
pub fn make(path: &[u8], private: bool) -> io::Result<()> {
    let mode = if private { 0o700 } else { 0o777 };
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(OsStr::from_bytes(path))
}

/// The same for the one in which all others will be: a private one is ours alone from the beginning.
///
/// # Errors
/// As `mkdir(2)`; EEXIST: a private one belongs to another user, or others may use it.
pub fn make_top(path: &[u8], private: bool) -> io::Result<()> {
    if private { make_own(path) } else { make(path, false) }
}

/// Checks that files can be made in a directory.
///
/// # Errors
/// It is not there, is no directory, or cannot be written.
pub fn check_writable(path: &[u8]) -> io::Result<()> {
    let path = OsStr::from_bytes(path);
    if !std::fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let (wanted, at) = (nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK, nix::fcntl::AT_FDCWD);
    Ok(nix::unistd::faccessat(at, path, wanted, nix::fcntl::AtFlags::AT_EACCESS)?)
}

/// Makes a directory that is ours alone, in one that others can write. An existing one is accepted if it is ours: a path of another user,
/// a link included, could lead our output to any place.
fn make_own(path: &[u8]) -> io::Result<()> {
    let path = OsStr::from_bytes(path);
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let meta = std::fs::symlink_metadata(path)?;
            let is_own = meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o077 == 0;
            if is_own { Ok(()) } else { Err(error) }
        }
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn new_directory_is_private_on_request() {
        let top = std::env::temp_dir().join(format!("rlaunch-directory-{}", std::process::id()));
        let below = top.join("a/b");
        make(below.as_os_str().as_bytes(), true).unwrap();
        make(below.as_os_str().as_bytes(), false).unwrap();
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&below), mode(&top)), (0o700, 0o700));
        std::fs::write(top.join("file"), "").unwrap();
        assert!(make(top.join("file/c").as_os_str().as_bytes(), false).is_err());
        std::fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn foreign_directory_is_not_used() {
        let top = std::env::temp_dir().join(format!("rlaunch-own-{}", std::process::id()));
        let own = || make_own(top.as_os_str().as_bytes());
        own().unwrap();
        own().unwrap();
        std::fs::set_permissions(&top, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(own().unwrap_err().kind(), io::ErrorKind::AlreadyExists, "others may look into it");
        std::fs::remove_dir(&top).unwrap();
        std::os::unix::fs::symlink(std::env::temp_dir(), &top).unwrap();
        assert_eq!(own().unwrap_err().kind(), io::ErrorKind::AlreadyExists, "it leads elsewhere");
        std::fs::remove_file(&top).unwrap();
    }
}
