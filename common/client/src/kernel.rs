//! What is asked of the kernel, as far as it is safe: the rest is in `ffi::kernel`.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{MsgFlags, Shutdown};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Sends all bytes. A program that does not ignore SIGPIPE shall not end because the agent has.
pub(crate) fn send_all(socket: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match nix::sys::socket::send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// A descriptor that can be read once it was rung.
#[derive(Debug)]
pub(crate) struct Bell(EventFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // It can only be full of rings.
        let _full = self.0.write(1);
    }

    pub(crate) fn clear(&self) {
        let _silent = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of two can be read, or the time is over. Whether each can.
pub(crate) fn wait(bell: &Bell, socket: Option<&UnixStream>, within: Option<Duration>) -> (bool, bool) {
    // Rounded up: else the last part of a millisecond would be spent awake.
    let timeout = within.map_or(PollTimeout::NONE, |within| {
        let millis = within.as_nanos().div_ceil(1_000_000);
        i32::try_from(millis).ok().and_then(|millis| PollTimeout::try_from(millis).ok()).unwrap_or(PollTimeout::MAX)
    });
    let mut all = vec![PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
    all.extend(socket.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
    if nix::poll::poll(&mut all, timeout).is_err() {
        return (false, false);
    }
    let ready = |at: usize| all.get(at).and_then(PollFd::any).unwrap_or(false);
    (ready(0), ready(1))
}

/// Runs something with all signals blocked: a thread that is started there never handles one of the program's.
pub(crate) fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let result = body();
    if let Ok(before) = before {
        // It was the mask a moment ago.
        let _set = before.thread_set_mask();
    }
    result
}

/// A socket, by its descriptor and by what that was when it was told: numbers are used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) fd: RawFd,
    inode: (u64, u64),
}

impl Known {
    pub(crate) fn new(fd: RawFd) -> io::Result<Self> {
        let held = crate::ffi::kernel::duplicate(fd)?;
        Ok(Self { fd, inode: inode(&held)? })
    }

    /// Shuts it down, if it is still there. What is looked at is held, so nobody can put another one into its place meanwhile.
    pub(crate) fn shut_down(self) -> bool {
        let Ok(held) = crate::ffi::kernel::duplicate(self.fd) else { return false };
        inode(&held).is_ok_and(|now| now == self.inode)
            && nix::sys::socket::shutdown(held.as_raw_fd(), Shutdown::Both).is_ok()
    }
}

fn inode(fd: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = nix::sys::stat::fstat(fd)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFSOCK {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    Ok((stat.st_dev, stat.st_ino))
}
