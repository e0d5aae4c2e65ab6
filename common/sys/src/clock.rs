//! The clocks: one that never jumps and counts suspend, one for display, and the one of a thread.

/// `CLOCK_BOOTTIME` in nanoseconds.
#[must_use]
pub fn boottime() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds since 1970.
#[must_use]
pub fn wall() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Time that the calling thread has had of a processor, in nanoseconds.
#[must_use]
pub fn of_thread() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid place for one timespec; all of these clocks exist since Linux 2.6.39, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut ts) };
    let secs = u64::try_from(ts.tv_sec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(u64::try_from(ts.tv_nsec).unwrap_or(0))
}
