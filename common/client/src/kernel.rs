//! Safe requests to the kernel: the others are in `rlaunch_sys_client`.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{MsgFlags, Shutdown};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
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

/// The set at which the thread of this library sleeps: its bell, and the agent's socket where it may read that.
#[derive(Debug)]
pub(crate) struct Watch(Epoll);

impl Watch {
    const RUNG: u64 = 0;
    const READABLE: u64 = 1;
    /// The socket is reported once, and then not before it is watched again: handing it over wakes no thread.
    const ONCE: EpollFlags = EpollFlags::EPOLLONESHOT;

    /// Watches the bell, and not yet the socket.
    pub(crate) fn new(bell: &Bell, socket: Option<&UnixStream>) -> io::Result<Self> {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        set.add(bell, EpollEvent::new(EpollFlags::EPOLLIN, Self::RUNG))?;
        if let Some(socket) = socket {
            set.add(socket, EpollEvent::new(Self::ONCE, Self::READABLE))?;
        }
        Ok(Self(set))
    }

    /// Has the socket reported, once. A socket that is not in the set is not reported.
    pub(crate) fn socket(&self, socket: &UnixStream, is_watched: bool) {
        let flags = if is_watched { Self::ONCE | EpollFlags::EPOLLIN } else { Self::ONCE };
        let _absent = self.0.modify(socket, &mut EpollEvent::new(flags, Self::READABLE));
    }

    /// Waits until the bell or the socket can be read, or the time has expired. Returns whether each can.
    pub(crate) fn wait(&self, within: Option<Duration>) -> (bool, bool) {
        // Rounded up: else the last part of a millisecond would be spent awake.
        let timeout = within.map_or(EpollTimeout::NONE, |within| {
            let millis = within.as_nanos().div_ceil(1_000_000);
            i32::try_from(millis)
                .ok()
                .and_then(|millis| EpollTimeout::try_from(millis).ok())
                .unwrap_or(EpollTimeout::MAX)
        });
        let mut events = [EpollEvent::empty(); 2];
        let count = self.0.wait(&mut events, timeout).unwrap_or(0);
        let ready = |what: u64| events.iter().take(count).any(|event| event.data() == what);
        (ready(Self::RUNG), ready(Self::READABLE))
    }
}

/// Waits until a socket can be read, and for nothing else: who is blocked in a read of it is woken, too, when the peer has taken what
/// was written last.
pub(crate) fn wait_readable(socket: &UnixStream) {
    // Where it fails, the read says why.
    let _failed = nix::poll::poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
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

/// Which signals a thread had blocked.
pub(crate) struct Signals(Option<SigSet>);

impl Signals {
    /// The blocked signals of this thread now.
    pub(crate) fn here() -> Self {
        Self(SigSet::thread_get_mask().ok())
    }

    /// Runs something with them in a thread of ours: the program's own code, and processes that it starts, which take them along.
    pub(crate) fn restored<T>(&self, body: impl FnOnce() -> T) -> T {
        let set = self.0.as_ref().and_then(|set| set.thread_swap_mask(SigmaskHow::SIG_SETMASK).ok());
        let result = body();
        if let Some(ours) = set {
            // It was the mask a moment ago.
            let _set = ours.thread_set_mask();
        }
        result
    }
}

/// A socket, by its descriptor and its inode at that time: numbers are used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) fd: RawFd,
    inode: (u64, u64),
}

impl Known {
    pub(crate) fn new(fd: RawFd) -> io::Result<Self> {
        let held = rlaunch_sys_client::duplicate(fd)?;
        Ok(Self { fd, inode: inode(&held)? })
    }

    /// Shuts it down, if it is still there. The checked descriptor is held, so another cannot be put into its place meanwhile.
    pub(crate) fn shut_down(self) -> bool {
        let Ok(held) = rlaunch_sys_client::duplicate(self.fd) else { return false };
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

/// Sets variables of this process, and unsets those that have no value.
///
/// No other thread may read the environment by C's `getenv` meanwhile: Rust's own functions lock it, those of C do not. The call is made
/// where the training function is not entered, by the thread that would be in it.
pub(crate) fn set_environment(pairs: &[(Vec<u8>, Option<Vec<u8>>)]) {
    let fits = |name: &[u8]| !name.is_empty() && !name.contains(&b'=') && !name.contains(&0);
    for (name, value) in pairs.iter().filter(|(name, _)| fits(name)) {
        let name = OsStr::from_bytes(name);
        let value = value.as_deref().filter(|value| !value.contains(&0)).map(OsStr::from_bytes);
        // Most are as they were, and glibc's setenv searches, copies and keeps every value that it ever got.
        if std::env::var_os(name).as_deref() != value {
            rlaunch_sys_client::set_variable(name, value);
        }
    }
}
