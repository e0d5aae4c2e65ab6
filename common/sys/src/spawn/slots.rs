//! A rank's three descriptors under low numbers, so that its child need not copy ours.
//!
//! Between clone and exec the child shares our descriptor table and then takes a copy of the part below its own three
//! (`CLOSE_RANGE_UNSHARE`). A plain clone copies the whole table and exec closes every copy again: with a pidfd and two
//! pipes per rank that made each launch dearer than the one before.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The kernel copies tables in steps of this many (`BITS_PER_LONG` in fs/file.c), so numbers below it cost no more than 3.
const NEAR: RawFd = 64;

/// Three numbers that stay taken: by /dev/null, or by the descriptors of the rank that is being started.
pub(super) struct Slots {
    null: OwnedFd,
    places: [OwnedFd; 3],
}

/// Descriptors as a child finds them. Dropped, the numbers lead to /dev/null again.
pub(super) struct Near<'a> {
    slots: &'a Slots,
    moved: bool,
    /// The child's descriptors 0, 1 and 2.
    pub(super) stdio: [RawFd; 3],
}

impl Slots {
    /// Takes the lowest free numbers.
    ///
    /// # Errors
    /// No descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let null = crate::fd::dev_null()?;
        let place = || crate::fd::duplicate(null.as_raw_fd());
        let places = [place()?, place()?, place()?];
        Ok(Self { null, places })
    }

    /// The input of a rank without input.
    pub(super) fn null(&self) -> &OwnedFd {
        &self.null
    }

    /// Brings three descriptors near, if they are not.
    ///
    /// # Errors
    /// As `dup3(2)`.
    pub(super) fn bring(&self, stdio: [RawFd; 3]) -> io::Result<Near<'_>> {
        if stdio.iter().all(|fd| *fd < NEAR) {
            return Ok(Near { slots: self, moved: false, stdio });
        }
        let near = Near { slots: self, moved: true, stdio: self.numbers() };
        for (from, to) in stdio.into_iter().zip(near.stdio) {
            crate::fd::replace(from, to)?;
        }
        Ok(near)
    }

    fn numbers(&self) -> [RawFd; 3] {
        [0, 1, 2].map(|n: usize| self.places[n].as_raw_fd())
    }
}

impl Drop for Near<'_> {
    fn drop(&mut self) {
        for place in self.slots.numbers().into_iter().filter(|_| self.moved) {
            // Both are open numbers; dup3 fails only for others.
            let _never = crate::fd::replace(self.slots.null.as_raw_fd(), place);
        }
    }
}
