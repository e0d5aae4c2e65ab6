//! Level-triggered readiness sets. Each is one descriptor of the runtime, however many ranks it watches.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A set of descriptors, each with a token of ours.
#[derive(Debug)]
pub struct ReadySet(OwnedFd);

/// The buffer that `ready` fills.
#[derive(Debug)]
pub struct Batch {
    events: Vec<libc::epoll_event>,
    len: usize,
}

impl Batch {
    /// Room for `n` events at a time.
    #[must_use]
    pub fn with_room(n: usize) -> Self {
        Self { events: vec![libc::epoll_event { events: 0, u64: 0 }; n], len: 0 }
    }

    /// The tokens of the last `ready`.
    pub fn tokens(&self) -> impl Iterator<Item = u64> + '_ {
        self.events.iter().take(self.len).map(|e| e.u64)
    }
}

impl ReadySet {
    /// An empty set.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 reads no memory of ours.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(Self(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }))
    }

    /// Watches `fd` for something to read or its end.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`.
    pub fn add(&self, fd: &impl AsFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: token };
        self.control(libc::EPOLL_CTL_ADD, fd.as_fd().as_raw_fd(), &raw mut event)
    }

    /// Watches `fd` for room to write. A descriptor is watched once; a copy of it is another one.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`.
    pub fn add_writable(&self, fd: &impl AsFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLOUT.cast_unsigned(), u64: token };
        self.control(libc::EPOLL_CTL_ADD, fd.as_fd().as_raw_fd(), &raw mut event)
    }

    /// Reports nothing of `fd` until [`Self::resume`], except once more at its end. This needs no memory, so it cannot fail if `fd` is
    /// watched.
    pub fn pause(&self, fd: &impl AsFd, token: u64) {
        let mut event = libc::epoll_event { events: libc::EPOLLONESHOT.cast_unsigned(), u64: token };
        let _not_watched = self.control(libc::EPOLL_CTL_MOD, fd.as_fd().as_raw_fd(), &raw mut event);
    }

    /// Watches `fd` again.
    pub fn resume(&self, fd: &impl AsFd, token: u64) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: token };
        let _not_watched = self.control(libc::EPOLL_CTL_MOD, fd.as_fd().as_raw_fd(), &raw mut event);
    }

    /// Stops watching. Always before closing: a child between clone and exec may still hold a copy, and a closed
    /// descriptor would continue reporting.
    pub fn remove(&self, fd: &impl AsFd) {
        // It can only fail if it was not watched.
        let _not_watched = self.control(libc::EPOLL_CTL_DEL, fd.as_fd().as_raw_fd(), std::ptr::null_mut());
    }

    fn control(&self, op: i32, fd: RawFd, event: *mut libc::epoll_event) -> io::Result<()> {
        // SAFETY: `event` is null (DEL) or points to one event that lives through the call.
        if unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the ready tokens, without waiting. Returns how many.
    pub fn ready(&self, batch: &mut Batch) -> usize {
        let room = i32::try_from(batch.events.len()).unwrap_or(i32::MAX);
        // SAFETY: `events` has room for `room` events.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), batch.events.as_mut_ptr(), room, 0) };
        batch.len = usize::try_from(n).unwrap_or(0);
        batch.len
    }
}

impl AsFd for ReadySet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for ReadySet {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
