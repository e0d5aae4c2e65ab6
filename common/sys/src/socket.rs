//! The most frequent steps of a server: to read the bytes of a connection, and to write those that it takes.
//!
//! In a process that has threads, as the agent has, glibc makes `recv` and `send` points at which a thread may be cancelled. No code
//! cancels threads here, and such a point takes a tenth of a request's cost beside the kernel: the kernel is called without it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Reads what is there, and does not wait; 0 is the end.
///
/// # Errors
/// As `recv(2)`: `EAGAIN` where there is nothing, `EINTR` included.
pub fn recv(socket: &impl AsFd, buf: &mut [u8]) -> io::Result<usize> {
    let (none, fd) = (std::ptr::null_mut::<u8>(), socket.as_fd().as_raw_fd());
    // SAFETY: `buf` is writable for its length; no address is asked for.
    let n =
        unsafe { libc::syscall(libc::SYS_recvfrom, fd, buf.as_mut_ptr(), buf.len(), libc::MSG_DONTWAIT, none, none) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Writes what is taken, and does not wait. An end that is gone is an error, and no signal.
///
/// # Errors
/// As `send(2)`: `EAGAIN` where there is no room, `EINTR` included.
pub fn send(socket: &impl AsFd, buf: &[u8]) -> io::Result<usize> {
    let (none, fd) = (std::ptr::null_mut::<u8>(), socket.as_fd().as_raw_fd());
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `buf` is readable for its length; no address is given.
    let n = unsafe { libc::syscall(libc::SYS_sendto, fd, buf.as_ptr(), buf.len(), flags, none, 0_usize) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Lets as many connections wait to be accepted as the kernel allows (`net.core.somaxconn`). std's listeners let 128 wait, and the agents of
/// a thousand hosts connect at once.
///
/// # Errors
/// The socket is no listener.
pub fn lengthen_queue(listener: &impl AsFd) -> io::Result<()> {
    nix::sys::socket::listen(&listener.as_fd(), nix::sys::socket::Backlog::MAXCONN)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn end_is_reported_and_nothing_waits() {
        let (near, far) = UnixStream::pair().unwrap();
        let kind = |result: io::Result<usize>| result.unwrap_err().kind();
        let mut room = [0; 8];
        assert_eq!(kind(recv(&near, &mut room)), io::ErrorKind::WouldBlock);
        assert_eq!(send(&far, b"word").unwrap(), 4);
        assert_eq!((recv(&near, &mut room).unwrap(), &room[..4]), (4, &b"word"[..]));
        let full = loop {
            if let Err(error) = send(&near, &[0; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(far);
        assert_eq!(kind(send(&near, b"x")), io::ErrorKind::BrokenPipe);
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        assert_eq!(recv(&near, &mut room).unwrap(), 0);
    }
}
