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
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(body)
}
