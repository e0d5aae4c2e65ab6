//! Threads that live as long as the process. A parent-death signal follows the thread that forked, and a rank's parent is
//! the spawn thread: it must never end by accident.

use std::io;
use std::thread::JoinHandle;

/// Starts a named thread that is never joined. It inherits the blocked signals of its creator.
///
/// # Errors
/// The kernel refuses another thread.
pub fn permanent(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    start(name, body).map(drop)
}

/// The same with a handle.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    const STACK: usize = 128 << 10;
    let started = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(body);
    started.map_err(|error| match error.raw_os_error() {
        // pthread_create(3) has this one error for a limit on processes and for a stack that cannot be had.
        Some(libc::EAGAIN) if !has_memory(2 * STACK) => io::Error::from_raw_os_error(libc::ENOMEM),
        _ => error,
    })
}

/// Whether so many bytes can be mapped.
fn has_memory(len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses, which nothing uses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    // SAFETY: the mapping was just made, and nothing uses it.
    at != libc::MAP_FAILED && unsafe { libc::munmap(at, len) } == 0
}
