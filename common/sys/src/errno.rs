//! The error number of the last system call.

/// The calling thread's errno; async-signal-safe.
pub(crate) fn errno() -> i32 {
    // SAFETY: glibc's accessor takes nothing and cannot fail.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it points to the calling thread's errno.
    unsafe { *place }
}
