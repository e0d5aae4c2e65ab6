//! How those who are in a round learn that it ends.

use crate::kernel::Bell;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

type Call = Box<dyn FnOnce() + Send>;

/// The end of one round. Clones are about the same round, and may be given to other threads.
#[derive(Clone, Default)]
pub struct Token(Arc<Ending>);

#[derive(Default)]
struct Ending {
    begun: AtomicBool,
    waiting: Mutex<Waiting>,
    passed: Condvar,
    bell: OnceLock<Bell>,
}

#[derive(Default)]
struct Waiting {
    passed: bool,
    next: u64,
    calls: Vec<(u64, Call)>,
}

/// A function that is called at the end of a round, unless this is dropped before.
#[must_use]
pub struct OnInterrupt {
    ending: Weak<Ending>,
    number: u64,
}

impl Token {
    /// Whether the round has ended. Known a little before those who wait are woken: abort hooks run between.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.0.begun.load(Ordering::Acquire)
    }

    /// Waits for the end of the round, for so long. Whether it has come.
    #[must_use]
    pub fn wait(&self, within: Duration) -> bool {
        let Some(until) = Instant::now().checked_add(within) else { return self.wait_for_ever() };
        let mut waiting = self.waiting();
        while !waiting.passed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            waiting = self.0.passed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn wait_for_ever(&self) -> bool {
        let passed = self.0.passed.wait_while(self.waiting(), |waiting| !waiting.passed);
        passed.unwrap_or_else(PoisonError::into_inner).passed
    }

    /// A descriptor that can be read once the round has ended: for `poll`. It is open while this token is.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        let waiting = self.waiting();
        if let Some(bell) = self.0.bell.get() {
            return Ok(bell.as_fd());
        }
        let new = Bell::new()?;
        if waiting.passed {
            new.ring();
        }
        Ok(self.0.bell.get_or_init(|| new).as_fd())
    }

    /// Has a function called at the end of the round, on a thread of this library's; here and now, if that was.
    pub fn on_interrupt(&self, call: impl FnOnce() + Send + 'static) -> OnInterrupt {
        let mut waiting = self.waiting();
        let number = waiting.next;
        if waiting.passed {
            drop(waiting);
            call();
        } else {
            waiting.next += 1;
            waiting.calls.push((number, Box::new(call)));
        }
        OnInterrupt { ending: Arc::downgrade(&self.0), number }
    }

    /// Marks the round as ending; wakes no thread.
    pub(crate) fn begin(&self) {
        self.0.begun.store(true, Ordering::Release);
    }

    /// Wakes all.
    pub(crate) fn pass(&self) {
        let calls = {
            let mut waiting = self.waiting();
            waiting.passed = true;
            if let Some(bell) = self.0.bell.get() {
                bell.ring();
            }
            std::mem::take(&mut waiting.calls)
        };
        self.0.passed.notify_all();
        for (_, call) in calls {
            if let Err(text) = crate::caught::caught(call) {
                eprintln!("rlaunch: what was to be called at the end of a round has failed: {text}");
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("interrupted", &self.interrupted()).finish_non_exhaustive()
    }
}

impl Drop for OnInterrupt {
    fn drop(&mut self) {
        if let Some(ending) = self.ending.upgrade() {
            let mut waiting = ending.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.calls.retain(|(number, _)| *number != self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn all_who_wait_are_woken_and_those_who_come_late_do_not_wait() {
        let token = Token::default();
        assert!(!token.wait(Duration::ZERO) && !token.interrupted());
        let other = token.clone();
        let waiting = std::thread::Builder::new().spawn(move || other.wait(Duration::MAX)).unwrap();
        let calls = Arc::new(AtomicU32::new(0));
        let call = |by| {
            let calls = Arc::clone(&calls);
            move || {
                calls.fetch_add(by, Ordering::SeqCst);
            }
        };
        let _first = token.on_interrupt(call(1));
        drop(token.on_interrupt(call(10)));
        let early = token.fd().unwrap();
        token.begin();
        assert!(token.interrupted() && !token.wait(Duration::ZERO));
        token.pass();
        assert!(waiting.join().unwrap());
        assert!(token.wait(Duration::ZERO));
        let _late = token.on_interrupt(call(100));
        assert_eq!(calls.load(Ordering::SeqCst), 101);
        let late = Token::default();
        late.pass();
        let bells = [early, late.fd().unwrap()];
        let mut bells = bells.map(|fd| nix::poll::PollFd::new(fd, nix::poll::PollFlags::POLLIN));
        assert_eq!(nix::poll::poll(&mut bells, nix::poll::PollTimeout::ZERO), Ok(2));
    }
}
