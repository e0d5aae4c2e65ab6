//! Whether a terminal would let us read, and who else may ask the user something there.

use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};

/// Whether the descriptor is a terminal.
#[must_use]
pub fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: isatty reads no memory of ours.
    unsafe { libc::isatty(fd) == 1 }
}

/// How many columns a terminal has; `None`: it is none, or does not say.
#[must_use]
pub fn columns(fd: RawFd) -> Option<u16> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is a valid place for what TIOCGWINSZ writes (ioctl_tty(2)).
    let known = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) } == 0;
    Some(size.ws_col).filter(|columns| known && *columns > 0)
}

/// Whether a descriptor to which writing failed with EIO is a terminal that has hung up: a character device that does not
/// even answer that it is a terminal.
#[must_use]
pub fn has_hung_up(fd: RawFd) -> bool {
    // SAFETY: a zeroed stat is a valid value of this plain C structure.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `st` is a valid place for one stat structure.
    let device = unsafe { libc::fstat(fd, &raw mut st) } == 0 && st.st_mode & libc::S_IFMT == libc::S_IFCHR;
    device && !is_terminal(fd) && crate::errno::errno() == libc::EIO
}

/// Whether our process group is the terminal's foreground group: only then may we read it without being stopped.
#[must_use]
pub fn in_foreground(fd: RawFd) -> bool {
    // SAFETY: tcgetpgrp reads no memory of ours; for a terminal that is not ours it fails.
    let foreground = unsafe { libc::tcgetpgrp(fd) };
    // SAFETY: getpgrp cannot fail.
    foreground == unsafe { libc::getpgrp() }
}

/// The user's terminal, while a child that asks for a password is its foreground group. Ours again when this is dropped.
#[derive(Debug)]
pub struct Lent {
    terminal: File,
    pub(crate) to: i32,
}

impl Lent {
    /// The terminal, if there is one and it is ours to lend: not that of a job in the background.
    #[must_use]
    pub fn new() -> Option<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        in_foreground(terminal.as_raw_fd()).then_some(Self { terminal, to: 0 })
    }

    pub(crate) fn number(&self) -> RawFd {
        self.terminal.as_raw_fd()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: tcgetpgrp reads no memory of ours.
        if unsafe { libc::tcgetpgrp(self.number()) } != self.to {
            return;
        }
        // SAFETY: getpgrp cannot fail.
        let ours = unsafe { libc::getpgrp() };
        // SAFETY: tcsetpgrp reads no memory of ours. SIGTTOU, which it sends to who is in the background, is blocked.
        unsafe { libc::tcsetpgrp(self.number(), ours) };
    }
}
