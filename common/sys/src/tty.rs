//! Whether a terminal would let us read.

use std::os::fd::RawFd;

/// Whether the descriptor is a terminal.
#[must_use]
pub fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: isatty reads no memory of ours.
    unsafe { libc::isatty(fd) == 1 }
}

/// Whether a descriptor to which writing failed with EIO is a terminal that has hung up: a character device that does not
/// even answer that it is a terminal.
#[must_use]
pub fn has_hung_up(fd: RawFd) -> bool {
    // SAFETY: a zeroed stat is a valid value of this plain C structure.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `st` is a valid place for one stat structure.
    let device = unsafe { libc::fstat(fd, &raw mut st) } == 0 && st.st_mode & libc::S_IFMT == libc::S_IFCHR;
    device && !is_terminal(fd) && crate::ns::errno() == libc::EIO
}

/// Whether our process group is the terminal's foreground group: only then may we read it without being stopped.
#[must_use]
pub fn in_foreground(fd: RawFd) -> bool {
    // SAFETY: tcgetpgrp reads no memory of ours; for a terminal that is not ours it fails.
    let foreground = unsafe { libc::tcgetpgrp(fd) };
    // SAFETY: getpgrp cannot fail.
    foreground == unsafe { libc::getpgrp() }
}
