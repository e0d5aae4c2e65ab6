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

/// The places for it, if not in the directory that was asked for.
const OTHERS: [&str; 2] = ["/tmp", "/dev/shm"];

/// The place: a new directory in `dir`, or, if that cannot be or the path would be too long, in /tmp or /dev/shm. `note` hears of the
/// path before it is there.
///
/// # Errors
/// None of them can be made, or the socket: of the first.
pub fn listen(dir: &Path, mut note: impl FnMut(&Path) -> bool) -> io::Result<(UnixListener, PathBuf)> {
    listen_in(dir, &mut note)
        .or_else(|error| OTHERS.into_iter().find_map(|dir| listen_in(Path::new(dir), &mut note).ok()).ok_or(error))
}

fn listen_in(dir: &Path, note: &mut impl FnMut(&Path) -> bool) -> io::Result<(UnixListener, PathBuf)> {
    let name: String = crate::random::bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("rlaunch-{name}");
    let own = dir.join(name);
    let path = own.join(NAME);
    if path.as_os_str().len() > LONGEST || !note(&path) {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    // It must be new: a directory that another user has made is not ours alone. The mask may take something away from us.
    std::fs::DirBuilder::new().mode(0o700).create(&own)?;
    let bound = UnixListener::bind(&path).and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    match bound {
        Ok(listener) => Ok((listener, path)),
        Err(error) => {
            // Nothing is in it but the socket, if that. It may be descriptors that are short, of which these need none.
            let _socket = std::fs::remove_file(&path);
            let _directory = std::fs::remove_dir(&own);
            Err(error)
        }
    }
}

/// The user who has connected.
///
/// # Errors
/// The kernel does not tell.
pub fn user_of(socket: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(socket, PeerCredentials)?.uid())
}

/// The process that has connected; `None`: it cannot be seen from here.
#[must_use]
pub fn process_of(socket: &UnixStream) -> Option<i32> {
    getsockopt(socket, PeerCredentials).ok().map(|peer| peer.pid()).filter(|pid| *pid > 0)
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
        assert_eq!(process_of(&served), Some(nix::unistd::getpid().as_raw()));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_long_way_is_not_gone() {
        let (_listener, path) = listen(Path::new(&format!("/{}", "x".repeat(99))), |_| true).unwrap();
        assert!(path.starts_with("/tmp"));
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
