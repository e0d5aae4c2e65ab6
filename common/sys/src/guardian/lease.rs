//! The lease of a remote host: until when its guardian lets the job live without word from the launcher.
//!
//! The agent passes the launcher's grants on through a socket; the guardian holds the timer, so that an agent that was stopped
//! keeps nothing alive. Deadlines are absolute CLOCK_BOOTTIME: a host that was suspended wakes up beyond them.
//!
//! The other way the guardian passes on signals that it was sent itself. A scheduler signals the process that it has started, which is
//! the guardian.

use crate::fd;
use crate::signals::SignalFd;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The agent's end of the line: sends each new deadline to the guardian.
#[derive(Debug)]
pub struct LeaseLine(OwnedFd);

impl LeaseLine {
    /// The job may continue until then (CLOCK_BOOTTIME in nanoseconds). The last word counts; `u64::MAX` is for ever.
    pub fn renew(&self, until: u64) {
        // Eight bytes are written whole or not at all. A guardian that does not read is stopped or gone, and thousands of
        // renewals behind: one more or less does not matter.
        let _full = fd::write(self.0.as_raw_fd(), &until.to_le_bytes());
    }

    /// Notes that the host shuts down: until then the guardian does not end the job when its lifeline ends.
    pub fn spare(&self, until: u64) {
        // A lost word only lets the guardian end the job at once, as without a warning.
        let _full = fd::write(self.0.as_raw_fd(), &(until | SPARE).to_le_bytes());
    }

    /// After the end of its lifeline the guardian waits for so many nanoseconds before it ends the job.
    pub fn hold_after_cut(&self, nanos: u64) {
        // A lost word only lets the guardian end the job at once.
        let _full = fd::write(self.0.as_raw_fd(), &(nanos | SPARE | HOLD).to_le_bytes());
    }

    /// Signals that the guardian was sent since the last call, in their order; `None`: the guardian has ended.
    #[must_use]
    pub fn signals(&self) -> Option<Vec<u8>> {
        let mut numbers = [0; 64];
        match fd::read(self.0.as_raw_fd(), &mut numbers) {
            Ok(0) => None,
            Ok(count) => Some(numbers.into_iter().take(count).collect()),
            Err(_) => Some(Vec::new()),
        }
    }
}

/// Readable when the guardian was sent a signal, and when it has ended.
impl AsFd for LeaseLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The mark of a word that is no deadline of the lease. No time is so late, and a lease for ever has another word.
const SPARE: u64 = 1 << 63;
/// The mark of such a word that is a length of time, and no time.
const HOLD: u64 = 1 << 62;

/// Signals that the guardian passes on. A scheduler sends SIGTSTP before it suspends a job, and SIGCONT when it resumes it.
pub(super) const PASSED_ON: [i32; 8] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// SIGTERM to a guardian that has no lease: that of the launcher's own host. `None`: there is no descriptor left.
pub(super) fn shutdown_signal() -> Option<SignalFd> {
    SignalFd::new(&[libc::SIGTERM]).ok()
}

/// The guardian's end.
#[derive(Debug)]
pub(super) struct Watch {
    line: OwnedFd,
    timer: OwnedFd,
    /// [`PASSED_ON`]; `None`: it could not be had.
    signals: Option<SignalFd>,
    /// Until when the end of the lifeline does not end the job; 0: it does.
    spared: AtomicU64,
    /// How long after the end of the lifeline the job does not end, in nanoseconds.
    hold: AtomicU64,
}

/// Both ends. The timer runs from now on if there is a first deadline.
pub(super) fn pair(first: Option<u64>) -> io::Result<(LeaseLine, Watch)> {
    let (line, agents) = fd::socket_pair()?;
    fd::set_nonblocking(&agents)?;
    fd::set_nonblocking(&line)?;
    // SAFETY: timerfd_create takes integers only.
    let timer = unsafe { libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
    if timer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let timer = unsafe { OwnedFd::from_raw_fd(timer) };
    let watch = Watch {
        line,
        timer,
        signals: SignalFd::new(&PASSED_ON).ok(),
        spared: AtomicU64::new(0),
        hold: AtomicU64::new(0),
    };
    if let Some(until) = first {
        watch.arm(until);
    }
    Ok((LeaseLine(agents), watch))
}

impl Watch {
    /// The line, the timer and the signals, for poll. With a negative number nothing is waited for.
    pub(super) fn numbers(&self) -> (RawFd, RawFd, RawFd) {
        let signals = self.signals.as_ref().map_or(-1, |signals| signals.as_fd().as_raw_fd());
        (self.line.as_raw_fd(), self.timer.as_raw_fd(), signals)
    }

    /// Passes on signals that have arrived. An agent that does not read is stopped or gone. Returns whether SIGTERM is among them.
    pub(super) fn pass_on(&self) -> bool {
        let mut numbers = [0; 16];
        let mut count = 0;
        let arrived = self.signals.iter().flat_map(|signals| std::iter::from_fn(|| signals.next()));
        for (place, number) in numbers.iter_mut().zip(arrived) {
            *place = number;
            count += 1;
        }
        let numbers = &mut numbers[..count];
        // The kernel gives them by number. systemd sends SIGTERM first, and SIGHUP after it: the agent must not get SIGHUP alone.
        numbers.sort_unstable_by_key(|number| i32::from(*number) != libc::SIGTERM);
        if count > 0 {
            let _full = fd::write(self.line.as_raw_fd(), numbers);
        }
        numbers.first().is_some_and(|number| i32::from(*number) == libc::SIGTERM)
    }

    /// Until when the end of the lifeline does not end the job.
    pub(super) fn spared_until(&self) -> u64 {
        self.spared.load(Ordering::Relaxed)
    }

    /// How long after the end of the lifeline the job does not end, in nanoseconds.
    pub(super) fn hold_after_cut(&self) -> u64 {
        self.hold.load(Ordering::Relaxed)
    }

    /// Takes in what the agent has written; false if it has closed its end. Allocates nothing.
    pub(super) fn renew(&self) -> bool {
        let mut buf = [0u8; 512];
        let mut until = None;
        loop {
            match fd::read(self.line.as_raw_fd(), &mut buf) {
                Ok(0) => return false,
                // Whole words only: that is how they are written.
                Ok(n) => {
                    for word in buf[..n].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)) {
                        match word {
                            u64::MAX => until = Some(word),
                            _ if word & SPARE == 0 => until = Some(word),
                            _ if word & HOLD != 0 => self.hold.store(word & !(SPARE | HOLD), Ordering::Relaxed),
                            _ => self.spared.store(word & !SPARE, Ordering::Relaxed),
                        }
                    }
                }
                Err(_) => break,
            }
        }
        if let Some(word) = until {
            self.arm(word);
        }
        true
    }

    fn arm(&self, until: u64) {
        // Zero would disarm it.
        let until = until.max(1);
        let secs = i64::try_from(until / 1_000_000_000).unwrap_or(i64::MAX);
        let nanos = i64::try_from(until % 1_000_000_000).unwrap_or(0);
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let at = if until == u64::MAX { never } else { libc::timespec { tv_sec: secs, tv_nsec: nanos } };
        let spec = libc::itimerspec { it_interval: never, it_value: at };
        // SAFETY: `spec` is a valid setting; a null old one is allowed. A valid timer and time cannot fail.
        unsafe {
            libc::timerfd_settime(
                self.timer.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                std::ptr::null_mut(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn fires(watch: &Watch) -> bool {
        fd::readable_now(&watch.timer)
    }

    #[test]
    fn the_last_word_counts() {
        let now = crate::clock::boottime();
        let (line, watch) = pair(Some(now + 100 * SECOND)).unwrap();
        assert!(!fires(&watch));
        line.renew(now - 1);
        line.renew(now + 100 * SECOND);
        assert!(watch.renew() && !fires(&watch));
        line.renew(now + 100 * SECOND);
        line.renew(now - 1);
        assert!(watch.renew() && fires(&watch));
        line.renew(u64::MAX);
        assert!(watch.renew() && !fires(&watch));
        line.renew(0);
        assert!(watch.renew() && fires(&watch));
    }

    #[test]
    fn spared_time_is_no_deadline() {
        let now = crate::clock::boottime();
        let (line, watch) = pair(Some(now + 100 * SECOND)).unwrap();
        assert_eq!(watch.spared_until(), 0);
        line.spare(now + SECOND);
        assert!(watch.renew() && !fires(&watch));
        assert_eq!(watch.spared_until(), now + SECOND);
        line.renew(u64::MAX);
        line.renew(1);
        assert!(watch.renew() && fires(&watch));
        assert_eq!(watch.spared_until(), now + SECOND);
        line.hold_after_cut(3 * SECOND);
        assert!(watch.renew());
        assert_eq!((watch.hold_after_cut(), watch.spared_until()), (3 * SECOND, now + SECOND));
    }

    #[test]
    fn without_a_first_deadline_there_is_none() {
        let (line, watch) = pair(None).unwrap();
        assert!(watch.renew() && !fires(&watch));
        drop(line);
        assert!(!watch.renew(), "its end is seen");
    }

    #[test]
    fn signals_of_the_guardian_are_passed_on() {
        let (line, watch) = pair(None).unwrap();
        assert_eq!(line.signals(), Some(vec![]));
        for number in [libc::SIGUSR1, libc::SIGTERM, libc::SIGINT] {
            // SAFETY: a zeroed sigset_t is a valid (empty) set on Linux.
            let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
            // SAFETY: `set` is a valid set.
            unsafe { libc::sigaddset(&raw mut set, number) };
            // SAFETY: `set` is a valid set; a null old one is allowed. Only this thread blocks them, which is sent them.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
            // SAFETY: raise takes an integer; the signal is blocked.
            unsafe { libc::raise(number) };
        }
        assert!(watch.pass_on());
        let mut numbers = line.signals().unwrap();
        assert_eq!(numbers.remove(0), 15, "SIGTERM is the first");
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 10]);
        assert!(!watch.pass_on());
        assert_eq!(line.signals(), Some(vec![]));
        drop(watch);
        assert_eq!(line.signals(), None, "its end is seen");
    }

    #[test]
    fn a_guardian_that_does_not_read_blocks_nobody() {
        let (line, watch) = pair(None).unwrap();
        (0..20_000).for_each(|_| line.renew(crate::clock::boottime() + SECOND));
        line.renew(1);
        assert!(watch.renew() && !fires(&watch));
    }
}
