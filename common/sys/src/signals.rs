//! Signals as something to read: they stay blocked in every thread, so no handler ever runs and ranks inherit the
//! caller's dispositions untouched.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A child has ended.
pub const CHLD: i32 = libc::SIGCHLD;
/// Lets a stopped process continue, also where it is blocked.
pub const CONT: i32 = libc::SIGCONT;
/// Cannot be caught.
pub const KILL: i32 = libc::SIGKILL;
/// The polite request to end.
pub const TERM: i32 = libc::SIGTERM;
/// SIGHUP.
pub const HUP: i32 = libc::SIGHUP;

/// The sender of a signal: the kernel (asm-generic/siginfo.h).
const SI_KERNEL: u32 = 0x80;

/// A descriptor that yields the signals it was made for.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Reads these signals, which must be blocked.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: a zeroed sigset_t is a valid (empty) set on Linux.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        for signal in signals {
            // SAFETY: `set` is a valid set; a number out of range is refused.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        // SAFETY: `set` is a valid set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next signal that has arrived.
    #[must_use]
    pub fn next(&self) -> Option<u8> {
        self.next_typed().map(|(number, _)| number)
    }

    /// The same, and whether a key of the terminal made it: then the kernel has sent it (SI_KERNEL, sigaction(2)), or we have ourselves,
    /// for a key that reached another process in our stead.
    #[must_use]
    pub fn next_typed(&self) -> Option<(u8, bool)> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        let n = crate::fd::read(self.0.as_raw_fd(), &mut info).ok()?;
        // ssi_signo, ssi_errno, ssi_code and ssi_pid are the first fields, of 32 bits each (signalfd(2)).
        let (fields, _) = info.as_chunks::<4>();
        let field = |at: usize| fields.get(at).map(|bytes| u32::from_ne_bytes(*bytes));
        let (number, code, sender) = (field(0)?, field(2)?, field(3)?);
        let typed = code == SI_KERNEL || sender == std::process::id();
        (n == info.len()).then(|| u8::try_from(number).ok().map(|number| (number, typed))).flatten()
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Dies of a signal, so that a shell loop sees an interrupted program. Returns where that has no effect: as pid 1.
pub fn die_of(signal: u8) {
    // SAFETY: getpid cannot fail.
    if unsafe { libc::getpid() } == 1 {
        return;
    }
    // The core that counts is a rank's.
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is a valid limit.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    // SAFETY: a zeroed sigset_t is a valid (empty) set on Linux.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid set.
    unsafe { libc::sigaddset(&raw mut set, i32::from(signal)) };
    // SAFETY: `set` is a valid set. Pending signals of this number now end us, which is what we want.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
    // It returns only if the kernel refuses; the caller then exits with 128 + the number.
    let _refused = signal_hook::low_level::emulate_default_handler(i32::from(signal));
}

/// Sends a signal to this process: it is read where all signals are.
pub fn send_to_self(signal: u8) {
    // SAFETY: getpid cannot fail.
    let own = unsafe { libc::getpid() };
    // SAFETY: kill takes two integers.
    unsafe { libc::kill(own, i32::from(signal)) };
}
