//! What the kernel offers, and no safe crate does.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Another descriptor for what a number of a caller's stands for at this moment.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched; a number that is no descriptor is an error.
    let held = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if held < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was made above, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(held) })
}

/// Sends a signal to one thread of this process. One that has ended gets none.
pub(crate) fn signal_thread(tid: i32, signo: i32) {
    let pid = libc::c_long::from(std::process::id());
    // SAFETY: no memory is touched; what the signal does is its handler's, which the caller has chosen.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, libc::c_long::from(tid), libc::c_long::from(signo)) };
}

/// Sets variables of this process, and unsets those that have no value.
///
/// Nobody may read the environment by C's `getenv` on another thread meanwhile: Rust's own functions lock it, those of C do not. It is done
/// where the training function is not entered, by the thread that would be in it.
pub(crate) fn set_environment(pairs: &[(Vec<u8>, Option<Vec<u8>>)]) {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let fits = |name: &[u8]| !name.is_empty() && !name.contains(&b'=') && !name.contains(&0);
    for (name, value) in pairs.iter().filter(|(name, _)| fits(name)) {
        let name = OsStr::from_bytes(name);
        let value = value.as_deref().filter(|value| !value.contains(&0)).map(OsStr::from_bytes);
        // Most are as they were, and glibc's setenv searches, copies and keeps all that it was ever told.
        if std::env::var_os(name).as_deref() == value {
            continue;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the program has asked for it: its rank may change while it runs"
        )]
        match value {
            // SAFETY: as above; the name and the value are fit.
            Some(value) => unsafe { std::env::set_var(name, value) },
            // SAFETY: the same.
            None => unsafe { std::env::remove_var(name) },
        }
    }
}
