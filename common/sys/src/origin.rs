//! The state in which rlaunch was started, read before any code of ours or of std could change it, and the C entry point that makes this
//! possible: std's own start reopens descriptors 0-2 and ignores SIGPIPE before `main`.

use crate::facts::limits::Carried;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Pid;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::thread::JoinHandleExt as _;
use std::path::{Path, PathBuf};

/// Signals that end a program by default and that rlaunch passes on instead.
const WATCHED: [i32; 6] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// The caller's settings. Ranks inherit dispositions, umask, limits, niceness and affinity by descent; what we change for
/// ourselves is here, to be restored before their exec.
#[derive(Clone, Copy)]
pub struct Origin {
    /// The signal mask.
    pub mask: libc::sigset_t,
    /// SIGCHLD was ignored: children would be reaped unseen, so we do not ignore it, but ranks do.
    pub ignores_chld: bool,
    /// Limits on open descriptors.
    pub nofile: libc::rlimit,
    /// Limits of the launcher's host, on another; set last.
    pub limits: Carried,
    /// The CPUs it may use; `None` where the kernel knows more than a fixed set holds.
    pub cpus: Option<CpuSet>,
    ignored: u64,
}

impl Origin {
    /// The caller's soft limit of this name, if there is one of this name; `Some(None)`: no limit.
    #[must_use]
    pub fn soft_limit(&self, name: &str) -> Option<Option<u64>> {
        let own = crate::facts::limits::soft(name)?;
        // The only limit that rlaunch ever raises for itself.
        let caller = (self.nofile.rlim_cur != libc::RLIM_INFINITY).then_some(self.nofile.rlim_cur);
        Some(if name == "nofile" { caller } else { own })
    }

    /// The soft limit on descriptors: the caller's, which ranks get back, and ours now.
    #[must_use]
    pub fn nofile_limits(&self) -> (u64, u64) {
        (self.nofile.rlim_cur, nofile().rlim_cur)
    }

    /// The signals that rlaunch listens to: those that were not ignored (nohup's HUP, a background job's INT).
    #[must_use]
    pub fn watched(&self) -> Vec<i32> {
        WATCHED.iter().copied().filter(|s| self.ignored & (1 << s) == 0).collect()
    }

    /// Runs a call that may wait for another process, such as opening a FIFO, so that signals end it as they end any program. Only before
    /// there is anything that a signal must not end.
    pub fn interruptibly<T>(&self, wait: impl FnOnce() -> T) -> T {
        // SAFETY: a zeroed sigset_t is a valid (empty) set on Linux.
        let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: both are valid sets; SIG_SETMASK is a valid way.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, &raw mut before) };
        let done = wait();
        // Not all blocked: this may be a part of something longer that is interruptible too.
        // SAFETY: as above.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
        done
    }

    /// Does what watches for signals itself: all are blocked meanwhile.
    pub fn uninterrupted<T>(work: impl FnOnce() -> T) -> T {
        let before = block_all();
        let done = work();
        // SAFETY: `before` is a valid set; SIG_SETMASK is a valid way.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
        done
    }

    /// Whether this signal was ignored when rlaunch was started.
    #[must_use]
    pub fn ignores(&self, signal: i32) -> bool {
        self.ignored & (1 << signal) != 0
    }
}

/// Reads the caller's settings, blocks all signals, makes descriptors 0-2 exist, and keeps the allocator from making an
/// arena per thread. Must be the first thing the process does.
///
/// # Errors
/// /dev/null cannot be opened in place of a closed descriptor.
pub fn capture() -> io::Result<Origin> {
    // SAFETY: mallopt is called before any thread exists.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    let mask = block_all();
    stdio_open()?;
    let mut ignored = 0u64;
    for signal in WATCHED.iter().chain(&[libc::SIGCHLD, libc::SIGPIPE]) {
        if disposition(*signal) == libc::SIG_IGN {
            ignored |= 1 << signal;
        }
    }
    let ignores_chld = ignored & (1 << libc::SIGCHLD) != 0;
    if ignores_chld {
        // SAFETY: the default disposition needs no handler.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    let (nofile, cpus) = (nofile(), sched_getaffinity(Pid::from_raw(0)).ok());
    Ok(Origin { mask, ignores_chld, nofile, limits: Carried::default(), cpus, ignored })
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin").field("ignored", &self.ignored).finish_non_exhaustive()
    }
}

fn block_all() -> libc::sigset_t {
    // SAFETY: a zeroed sigset_t is a valid (empty) set on Linux.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut old = all;
    // SAFETY: `all` is a valid place for a set.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both sets are valid; SIG_SETMASK is a valid way.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut old) };
    old
}

fn disposition(signal: i32) -> libc::sighandler_t {
    // SAFETY: a zeroed sigaction is a valid value of this plain C structure.
    let mut act: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only asks; `act` is valid for writing.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut act) };
    act.sa_sigaction
}

fn nofile() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: `limit` is valid for writing.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

/// A descriptor opened later would land on a closed 0-2 and be taken for the caller's; /dev/null goes there instead. It is opened for
/// reading only: a write fails as it does on a closed descriptor (EBADF), so that lost output is noticed.
fn stdio_open() -> io::Result<()> {
    for fd in 0..3 {
        // SAFETY: F_GETFD reads no memory of ours.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            // SAFETY: the path is a C string; the lowest free descriptor is `fd`.
            if unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// The caller's environment, byte-exact: `NAME=value` strings, and whatever else was put there.
pub fn environment() -> impl Iterator<Item = &'static [u8]> + Clone {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: reading a pointer that libc keeps; no code changes the environment (set_var is not allowed here).
    let mut at = unsafe { environ };
    std::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: the array ends with a null pointer, where we stop.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        // SAFETY: not at the end, so there is a next element.
        at = unsafe { at.add(1) };
        // SAFETY: entries are C strings that live as long as the process.
        Some(unsafe { std::ffi::CStr::from_ptr(entry) }.to_bytes())
    })
}

/// The directory that we are in, as the shell names it: a way through links that exists on other hosts may end somewhere else
/// there. `PWD` counts only where it is that directory.
///
/// # Errors
/// As `getcwd(3)`: it was removed.
pub fn directory() -> io::Result<Vec<u8>> {
    let same = |path: &Path| {
        let (named, here) = (std::fs::metadata(path).ok()?, std::fs::metadata(".").ok()?);
        (path.is_absolute() && (named.dev(), named.ino()) == (here.dev(), here.ino())).then_some(())
    };
    let named = std::env::var_os("PWD").map(PathBuf::from).filter(|path| same(path).is_some());
    let path = named.map_or_else(std::env::current_dir, Ok)?;
    Ok(path.into_os_string().into_vec())
}

/// The file mode creation mask. Only while there is a single thread: it can be read by setting it only.
#[must_use]
pub fn creation_mask() -> u32 {
    let mask = umask(Mode::from_bits_truncate(0o77));
    umask(mask);
    mask.bits()
}

/// Sets it, for us and those that we start.
pub fn set_creation_mask(mask: u32) {
    umask(Mode::from_bits_truncate(mask));
}

/// Raises the soft limit on descriptors to the hard one, for ourselves.
pub fn raise_nofile(origin: &Origin) {
    let most = libc::rlimit { rlim_cur: origin.nofile.rlim_max, rlim_max: origin.nofile.rlim_max };
    // SAFETY: `most` is a valid limit. Failure leaves the caller's limit, under which small jobs still run.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most) };
}

impl Origin {
    /// Moves a child that was just forked to another CPU: it would wait for ours until we sleep. The agent undoes this
    /// for itself, and so for the ranks, with [`Origin::restore_cpus`].
    pub(crate) fn start_elsewhere(&self, child: i32) {
        if let Some(cpus) = self.other_cpus() {
            // Where this is not allowed it starts a little later.
            let _stays = sched_setaffinity(Pid::from_raw(child), &cpus);
        }
    }

    /// Moves a thread that was just started to another CPU. The creator sends it the first order after this call, and with that order the
    /// thread calls [`Origin::restore_cpus`].
    pub(crate) fn start_thread_elsewhere(&self, thread: &std::thread::JoinHandle<()>) {
        if let Some(cpus) = self.other_cpus() {
            // SAFETY: the handle keeps the thread's id valid, and `cpus` is a set of this size.
            unsafe {
                libc::pthread_setaffinity_np(thread.as_pthread_t(), size_of_val(&cpus), (&raw const cpus).cast())
            };
        }
    }

    /// The caller's CPUs without ours; `None`: there is no other.
    fn other_cpus(&self) -> Option<CpuSet> {
        // SAFETY: sched_getcpu takes nothing.
        let here = usize::try_from(unsafe { libc::sched_getcpu() }).ok()?;
        let mut cpus = self.cpus?;
        cpus.unset(here).ok()?;
        (0..CpuSet::count()).any(|cpu| cpus.is_set(cpu) == Ok(true)).then_some(cpus)
    }

    /// Gives the calling thread the caller's CPUs. A process calls this while it has one thread. The first order must have come before: the
    /// creator sends it after `start_elsewhere`.
    pub fn restore_cpus(&self) {
        if let Some(cpus) = &self.cpus {
            let _same = sched_setaffinity(Pid::from_raw(0), cpus);
        }
    }
}

/// Ends the process at once with this code: no destructor, no exit handler, nothing flushed.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Defines the C `main` that calls the given `fn() -> u8` and exits with what it returns.
#[macro_export]
macro_rules! c_main {
    ($main:path) => {
        /// The process starts here.
        #[unsafe(no_mangle)]
        pub extern "C" fn main(_argc: i32, _argv: *const *const u8) -> i32 {
            $crate::origin::exit_now($main())
        }
    };
}
