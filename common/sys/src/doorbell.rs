//! How a permanent thread wakes the machine thread: an eventfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// An end of a doorbell; clones ring the same bell.
#[derive(Clone, Debug)]
pub struct Doorbell(Arc<OwnedFd>);

impl Doorbell {
    /// A new bell.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Self> {
        use nix::sys::eventfd::{EfdFlags, EventFd};
        let fd = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self(Arc::new(fd.into())))
    }

    /// Wakes the other side. Ringing twice before it looks is one ring.
    pub fn ring(&self) {
        // The counter can only be full (EAGAIN) if the other side has been rung already.
        let _full = crate::fd::write(self.0.as_raw_fd(), &1u64.to_ne_bytes());
    }

    /// Takes the rings that have come.
    pub fn clear(&self) {
        let _none = crate::fd::read(self.0.as_raw_fd(), &mut [0u8; 8]);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}
