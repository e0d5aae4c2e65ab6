//! Processes by descriptor: their end can be waited for and their number cannot be reused under our feet.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// How a process ended, and what it used.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Exit code, or the signal that ended it.
    pub how: How,
    /// User time in microseconds.
    pub user_us: u64,
    /// System time in microseconds.
    pub system_us: u64,
    /// Peak resident size in KiB.
    pub max_rss_kib: u64,
}

/// Exit code or signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The process exited.
    Code(u8),
    /// A signal ended it.
    Signal {
        /// Which.
        number: u8,
        /// With a core dump.
        core: bool,
    },
}

/// A descriptor for a process that cannot have been reaped yet: our own child or parent.
///
/// # Errors
/// As `pidfd_open(2)`.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to exactly this process.
///
/// # Errors
/// `ESRCH` where it has been reaped.
pub fn signal(pidfd: &OwnedFd, number: i32) -> io::Result<()> {
    // SAFETY: pidfd_send_signal with a null siginfo reads no memory of ours.
    let rc = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), number, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends a signal to a process group. Only while its leader is unreaped: the number is then still ours.
///
/// # Errors
/// `ESRCH` where it is empty.
pub fn signal_group(leader: i32, number: i32) -> io::Result<()> {
    // SAFETY: kill takes two integers.
    if unsafe { libc::kill(-leader, number) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The end of a child, without waiting; `None` while it runs. With `reap` false it stays a zombie, whose process group
/// can still be signalled.
///
/// # Errors
/// `ECHILD` where it was reaped already.
pub fn ended(pidfd: &OwnedFd, reap: bool) -> io::Result<Option<Ended>> {
    wait(pidfd, libc::WNOHANG | if reap { 0 } else { libc::WNOWAIT })
}

/// Reaps a child that is about to end by itself or by SIGKILL: waits for it.
pub(crate) fn reap(pidfd: &OwnedFd) {
    // ECHILD: another call was quicker.
    while wait(pidfd, 0).is_err_and(|e| e.kind() == io::ErrorKind::Interrupted) {}
}

fn wait(pidfd: &OwnedFd, flags: i32) -> io::Result<Option<Ended>> {
    let flags = flags | libc::WEXITED;
    // SAFETY: a zeroed siginfo_t is a valid value of this plain C structure.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: a zeroed rusage is a valid value of this plain C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both structures are valid for writing; the raw call is used because glibc's wrapper hides the rusage.
    let rc = unsafe {
        libc::syscall(libc::SYS_waitid, libc::P_PIDFD, pidfd.as_raw_fd(), &raw mut info, flags, &raw mut usage)
    };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid has filled the child fields, or left si_pid zero where nothing has ended.
    if unsafe { info.si_pid() } == 0 {
        return Ok(None);
    }
    // SAFETY: as above; a child ended, so si_status is set.
    let status = unsafe { info.si_status() };
    let number = u8::try_from(status & 0xff).unwrap_or(0);
    let how = match info.si_code {
        libc::CLD_EXITED => How::Code(number),
        code => How::Signal { number, core: code == libc::CLD_DUMPED },
    };
    let micros = |t: libc::timeval| {
        u64::try_from(t.tv_sec).unwrap_or(0).saturating_mul(1_000_000) + u64::try_from(t.tv_usec).unwrap_or(0)
    };
    Ok(Some(Ended {
        how,
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    }))
}

/// The number of any child that has ended and was not reaped, without waiting and without reaping it. `Ok(None)`: children exist and none
/// has ended. `only_this_thread`: children of other threads do not exist.
///
/// # Errors
/// `ECHILD` where there is no child at all: the count is 0.
pub fn next_ended(only_this_thread: bool) -> io::Result<Option<i32>> {
    let thread = if only_this_thread { libc::__WNOTHREAD } else { 0 };
    let ended = wait_for(libc::P_ALL, 0, libc::WNOWAIT | thread)?;
    Ok((ended != 0).then_some(ended))
}

/// Reaps a child that has ended, by its number. A quicker caller did the same.
pub fn reap_number(pid: i32) {
    let _gone = wait_for(libc::P_PID, pid.cast_unsigned(), 0);
}

fn wait_for(kind: libc::idtype_t, id: libc::id_t, flags: i32) -> io::Result<i32> {
    // SAFETY: a zeroed siginfo_t is a valid value of this plain C structure.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for writing.
    let rc = unsafe { libc::waitid(kind, id, &raw mut info, libc::WEXITED | libc::WNOHANG | flags) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid has filled the child fields, or left si_pid zero where nothing has ended.
    Ok(unsafe { info.si_pid() })
}
