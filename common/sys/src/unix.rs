//! A unix socket that only its owner can reach, and who is at its other end.

use nix::sys::socket::sockopt::{PeerCredentials, ReceiveTimeout, SendTimeout};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect as connect_to, getsockopt,
    listen as wait_for_clients, setsockopt, socket,
};
use nix::sys::stat::{Mode, fchmod};
use nix::sys::time::TimeVal;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest path of a unix socket, without the NUL at its end: `sun_path`, unix(7).
const LONGEST: usize = 107;

/// The places for it, if not in the directory that was asked for.
const OTHERS: [&str; 2] = ["/tmp", "/dev/shm"];

/// A new socket in `dir`. If that cannot be, or the path would be too long, it is in /tmp or /dev/shm. `note` gets the path before
/// the socket is there.
///
/// # Errors
/// The socket can be made in none of them: the failure of the first.
pub fn listen(dir: &Path, mut note: impl FnMut(&Path) -> bool) -> io::Result<(UnixListener, PathBuf)> {
    listen_in(dir, &mut note)
        .or_else(|error| OTHERS.into_iter().find_map(|dir| listen_in(Path::new(dir), &mut note).ok()).ok_or(error))
}

/// A directory for the socket alone would cost more than all the rest. A file system must find a block for it, and give that back: 0.35 ms
/// on ext4 that is mounted with `discard`.
fn listen_in(dir: &Path, note: &mut impl FnMut(&Path) -> bool) -> io::Result<(UnixListener, PathBuf)> {
    let name: String = crate::random::bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = dir.join(format!("rlaunch-{name}.socket"));
    if path.as_os_str().len() > LONGEST || !note(&path) {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // The file gets the mode that the socket has when it is bound (unix_bind of the kernel), so that it is never open to others. The mask
    // may take something away from us.
    fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // Fails if anything is there, a link too.
    bind(fd.as_raw_fd(), &UnixAddr::new(&path)?)?;
    match wait_for_clients(&fd, Backlog::MAXALLOWABLE) {
        Ok(()) => Ok((fd.into(), path)),
        Err(error) => {
            let _socket = std::fs::remove_file(&path);
            Err(error.into())
        }
    }
}

/// Connects to a socket. Each wait for its listener is limited: also that for a place in its queue, which a stopped process lets grow.
///
/// # Errors
/// As `connect(2)`; `EAGAIN` if the queue stayed full.
pub fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let time = TimeVal::new(i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), i64::from(limit.subsec_micros()));
    setsockopt(&fd, SendTimeout, &time)?;
    setsockopt(&fd, ReceiveTimeout, &time)?;
    connect_to(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd.into())
}

/// The user who has connected.
///
/// # Errors
/// The kernel does not report the user.
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
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let _client = UnixStream::connect(&path).unwrap();
        let (served, _) = listener.accept().unwrap();
        assert_eq!(user_of(&served).unwrap(), nix::unistd::geteuid().as_raw());
        assert_eq!(process_of(&served), Some(nix::unistd::getpid().as_raw()));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn full_queue_of_a_listener_is_waited_for_no_longer_than_the_limit() {
        let (listener, path) = listen(&std::env::temp_dir(), |_| true).unwrap();
        wait_for_clients(&listener, Backlog::new(0).unwrap()).unwrap();
        let limit = Duration::from_millis(20);
        let mut clients = vec![connect(&path, limit).unwrap()];
        let error = loop {
            match connect(&path, limit) {
                Ok(client) => clients.push(client),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "after {} connections", clients.len());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_long_way_is_not_gone() {
        let (_listener, path) = listen(Path::new(&format!("/{}", "x".repeat(99))), |_| true).unwrap();
        assert!(path.starts_with("/tmp"));
        std::fs::remove_file(path).unwrap();
    }
}
