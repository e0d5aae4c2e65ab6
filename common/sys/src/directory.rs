//! Directories for log files of ranks.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;

/// Makes a directory, and those that it is in, where they are not there. `private`: nobody else may look into what is made.
///
/// # Errors
/// As `mkdir(2)`.
pub fn make(path: &[u8], private: bool) -> io::Result<()> {
    let mode = if private { 0o700 } else { 0o777 };
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_is_made_is_private_if_that_is_asked_for() {
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
}
