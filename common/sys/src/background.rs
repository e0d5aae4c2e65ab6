//! A process that stays after the command that started it: in a session of its own, without the terminal and without descriptors of the
//! caller.

use crate::fd;
use crate::guardian::{Fork, close_others, fork};
use std::io;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};

/// The process in which [`split`] has returned.
#[derive(Debug)]
pub enum Side {
    /// The caller's process.
    Front {
        /// The other process.
        pid: u32,
        /// Its news, until it closes its end.
        news: OwnedFd,
    },
    /// The new process.
    Back {
        /// For news to the caller's process.
        news: OwnedFd,
    },
}

/// Forks the process that stays. It reads nothing, and writes nothing until [`write_to`]. Called before any thread exists.
///
/// # Errors
/// No process or descriptor can be had.
pub fn split() -> io::Result<Side> {
    let (news, said) = fd::pipe()?;
    let null = fd::dev_null()?;
    match fork()? {
        Fork::Parent(pid) => Ok(Side::Front { pid: pid.unsigned_abs(), news }),
        Fork::Child => {
            // SAFETY: setsid takes nothing. A fresh child is no group leader.
            unsafe { libc::setsid() };
            for stream in 0..3 {
                fd::replace(null.as_raw_fd(), stream)?;
            }
            close_others([said.as_raw_fd(), said.as_raw_fd()]);
            // Closed by number just now.
            let _closed = (news.into_raw_fd(), null.into_raw_fd());
            Ok(Side::Back { news: said })
        }
    }
}

/// Standard output and standard error are this file from now on.
///
/// # Errors
/// As `dup3(2)`.
pub fn write_to(file: &OwnedFd) -> io::Result<()> {
    fd::replace(file.as_raw_fd(), 1)?;
    fd::replace(file.as_raw_fd(), 2)
}
