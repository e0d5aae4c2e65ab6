//! A unix socket that only its owner can reach, and who is at its other end.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Its name in the directory that is made for it.
const NAME: &str = "agent";
/// Longest path of a unix socket with its end: `sun_path`, unix(7).
const LONGEST: usize = 107;

/// Where it is made: a new directory in `dir`, or in /tmp if the path would be too long. `note` hears of the path before it is there.
///
/// # Errors
/// The directory cannot be made, or the socket.
pub fn listen(dir: &Path, note: impl FnOnce(&Path) -> bool) -> io::Result<(UnixListener, PathBuf)> {
    let name: String = crate::random::bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("rlaunch-{name}");
    let of = |dir: &Path| dir.join(&name).join(NAME);
    let path = Some(of(dir)).filter(|path| path.as_os_str().len() <= LONGEST).unwrap_or_else(|| of(Path::new("/tmp")));
    let own = path.parent().unwrap_or(dir);
    if !note(&path) {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    // It must be new: what somebody else has made is not ours alone. The mask may take something away from us.
    std::fs::DirBuilder::new().mode(0o700).create(own)?;
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    Ok((listener, path))
}

/// The user who has connected.
///
/// # Errors
/// The kernel does not tell.
pub fn user_of(socket: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(socket, PeerCredentials)?.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_the_owner_can_reach_it() {
        let (listener, path) = listen(&std::env::temp_dir(), |_| true).unwrap();
        let dir = path.parent().unwrap();
        assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
        let _client = UnixStream::connect(&path).unwrap();
        let (served, _) = listener.accept().unwrap();
        assert_eq!(user_of(&served).unwrap(), nix::unistd::geteuid().as_raw());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_long_way_is_not_gone() {
        let (_listener, path) = listen(Path::new(&format!("/{}", "x".repeat(99))), |_| true).unwrap();
        assert!(path.starts_with("/tmp"));
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
