//! Descriptors that are not sockets, made waitable: readiness sets, signals, doorbells, pipes.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for something to read.
///
/// # Errors
/// The runtime refuses the descriptor; a regular file is refused by epoll itself.
pub fn readable<T: AsFd + AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    register(owner, Interest::READABLE)
}

/// Waits for room to write.
///
/// # Errors
/// As [`readable`].
pub fn writable<T: AsFd + AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    register(owner, Interest::WRITABLE)
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for types that do not own their descriptor; AsFd says that these do"
)]
fn register<T: AsFd + AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, interest)
}
