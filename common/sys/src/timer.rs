//! A descriptor that is readable after a time, for a set of descriptors.

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A timer that expires once.
#[derive(Debug)]
pub struct Timer(TimerFd);

impl Timer {
    /// Expires after this time.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn after(time: Duration) -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        timer.set(Expiration::OneShot(TimeSpec::from_duration(time)), TimerSetTimeFlags::empty())?;
        Ok(Self(timer))
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_is_readable_after_its_time() {
        let far = Timer::after(Duration::from_secs(600)).unwrap();
        assert!(!crate::fd::readable_now(&far));
        let near = Timer::after(Duration::from_millis(1)).unwrap();
        let begin = std::time::Instant::now();
        crate::fd::wait_for_any(&[near.as_fd()], Some(Duration::from_secs(20)));
        assert!(crate::fd::readable_now(&near) && begin.elapsed() < Duration::from_secs(20));
    }
}
