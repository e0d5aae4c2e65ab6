//! Whether a terminal would let us read.

use std::os::fd::RawFd;

/// Whether the descriptor is a terminal.
#[must_use]
pub fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: isatty reads no memory of ours.
    unsafe { libc::isatty(fd) == 1 }
}

/// Whether our process group is the terminal's foreground group: only then may we read it without being stopped.
#[must_use]
pub fn in_foreground(fd: RawFd) -> bool {
    // SAFETY: tcgetpgrp reads no memory of ours; for a terminal that is not ours it fails.
    let foreground = unsafe { libc::tcgetpgrp(fd) };
    // SAFETY: getpgrp cannot fail.
    foreground == unsafe { libc::getpgrp() }
}
