//! System calls that a job cannot do without, and that old seccomp profiles of containers refuse.

use std::io;

/// The first such call that is refused here, with the reason.
#[must_use]
pub fn refused() -> Option<(&'static str, io::Error)> {
    // A call that is allowed rejects these arguments, and changes nothing.
    let calls = [
        ("waitid", libc::SYS_waitid, -1),
        ("pidfd_open", libc::SYS_pidfd_open, -1),
        ("clone3", libc::SYS_clone3, 0),
        ("close_range", libc::SYS_close_range, 1),
    ];
    calls.into_iter().find_map(|(name, number, first)| {
        // SAFETY: with these arguments each of the calls fails before it reads or writes memory.
        let rc = unsafe { libc::syscall(number, first, 0, 0, 0, 0) };
        let error = io::Error::last_os_error();
        // Libraries use clone where there is no clone3.
        let has_other = number == libc::SYS_clone3 && error.raw_os_error() == Some(libc::ENOSYS);
        let is_refused = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS));
        (rc < 0 && is_refused && !has_other).then_some((name, error))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_call_is_refused_where_jobs_run() {
        assert!(super::refused().is_none());
    }
}
