//! Tier T1: a PID namespace whose first process, init, dies with the agent and takes everything else with it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The namespace's first process.
#[derive(Debug)]
pub struct Init {
    /// Its process id on the host.
    pub pid: i32,
    /// Readable once it is gone and the ranks' zombies are reaped.
    pub pidfd: OwnedFd,
    /// Hangs up the moment it is gone.
    pub hangup: OwnedFd,
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct NsError {
    /// What was being done.
    pub step: &'static str,
    /// Why it failed.
    pub source: io::Error,
    /// It failed halfway: the calling thread's next child would be the namespace's first process, and what is a rank's end
    /// would be everybody's. No rank may be started then.
    pub halfway: bool,
}

fn failed(step: &'static str) -> NsError {
    NsError { step, source: io::Error::last_os_error(), halfway: false }
}

fn failed_halfway(step: &'static str, source: io::Error) -> NsError {
    NsError { step, source, halfway: true }
}

/// Whether we may make namespaces without a user namespace around them.
#[must_use]
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether this host has GPUs whose driver must be tried inside a PID namespace first.
#[must_use]
pub fn gpu_present() -> bool {
    let Ok(devices) = std::fs::read_dir("/dev") else { return false };
    devices.flatten().any(|device| {
        let name = device.file_name();
        let name = name.as_encoded_bytes();
        name.starts_with(b"nvidia") || name == b"kfd"
    })
}

/// Gives an ordinary user the right to make a PID namespace, by a user namespace that maps only the user. Needs a process
/// with a single thread.
///
/// # Errors
/// The kernel or the site forbids user namespaces.
pub fn unshare_user() -> Result<(), NsError> {
    // SAFETY: getuid and getgid cannot fail.
    let (uid, gid) = (unsafe { libc::geteuid() }, nix::unistd::getegid());
    // SAFETY: unshare takes flags only.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        return Err(failed("unshare a user namespace"));
    }
    let write = |path: &str, text: String| {
        std::fs::write(path, text).map_err(|source| NsError {
            step: "map the user into its namespace",
            source,
            halfway: false,
        })
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Moves the calling thread's future children into a new PID namespace, and the thread into a new mount namespace, and
/// forks init. The thread cannot make threads afterwards; its siblings can.
///
/// # Errors
/// Not allowed, or out of a resource.
pub fn enter() -> Result<Init, NsError> {
    let (hangup, held) =
        crate::fd::pipe().map_err(|source| NsError { step: "make a pipe to init", source, halfway: false })?;
    // SAFETY: unshare takes flags only.
    if unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS) } != 0 {
        return Err(failed("unshare a PID namespace"));
    }
    // Init is born with its name: a rank may look before it has run for the first time.
    name_thread(c"rlaunch-init");
    // SAFETY: the child runs `init_main`, which makes only async-signal-safe calls and never returns.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(failed_halfway("fork init", io::Error::last_os_error()));
    }
    if pid == 0 {
        init_main(held.as_raw_fd(), hangup.as_raw_fd());
    }
    name_thread(c"spawn");
    let pidfd = crate::pidfd::open(pid).map_err(|source| failed_halfway("watch init", source))?;
    Ok(Init { pid, pidfd, hangup })
}

/// Names the calling thread; at most 15 characters.
fn name_thread(name: &std::ffi::CStr) {
    // SAFETY: the name is a C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Init: reaps what is orphaned, and dies with the thread that forked it. Everything here is async-signal-safe.
fn init_main(held: RawFd, hangup: RawFd) -> ! {
    // SAFETY: prctl with PR_SET_PDEATHSIG takes integers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: our copy of the agent's end, which init never uses; only without it does the agent's end show.
    unsafe { libc::close(hangup) };
    let mut fds = libc::pollfd { fd: held, events: 0, revents: 0 };
    // The agent may have died before the line above; getppid is 0 in here, but its end of the pipe tells (POLLERR).
    // SAFETY: `fds` is one valid pollfd.
    if unsafe { libc::poll(&raw mut fds, 1, 0) } > 0 {
        crate::origin::exit_now(1);
    }
    continue_host_pids();
    let held = held.cast_unsigned();
    if held > 3 {
        // SAFETY: init uses no descriptor but `held`.
        unsafe { libc::close_range(3, held - 1, 0) };
    }
    // SAFETY: as above.
    unsafe { libc::close_range(held + 1, u32::MAX, 0) };
    for fd in 0..3 {
        // SAFETY: init uses no descriptor but `held`.
        unsafe { libc::close(fd) };
    }
    // SAFETY: the path is a C string; a mount must not be kept busy.
    unsafe { libc::chdir(c"/".as_ptr()) };
    loop {
        // SAFETY: a null status is allowed.
        if unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } < 0 {
            wait_for_child_signal();
        }
    }
}

/// Programs name files in /dev/shm and /tmp by their process id, and those stay the host's: counting on from init's own
/// host pid keeps two jobs from giving the same ids at the same time, mostly. Where it is not allowed ids begin at 2.
fn continue_host_pids() {
    let mut number = [0u8; 16];
    // The name is still the host's: the first rank mounts the namespace's own /proc later. If it was faster, it says 1.
    // SAFETY: the path is a C string, and `number` is writable for its length.
    let len = unsafe { libc::readlink(c"/proc/self".as_ptr(), number.as_mut_ptr().cast(), number.len()) };
    let Some(number) = usize::try_from(len).ok().and_then(|len| number.get(..len)).filter(|n| n.len() > 1) else {
        return;
    };
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(c"/proc/sys/kernel/ns_last_pid".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if fd >= 0 {
        let _refused = crate::fd::write(fd, number);
        // SAFETY: opened above.
        unsafe { libc::close(fd) };
    }
}

/// Sleeps until SIGCHLD, which is blocked like every other signal.
fn wait_for_child_signal() {
    // SAFETY: a zeroed sigset_t is a valid (empty) set on Linux.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid set.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
    // SAFETY: `set` is a valid set; a null siginfo is allowed.
    unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) };
}

/// Makes the PID namespace's processes visible in /proc, for this mount namespace only. Async-signal-safe: the first
/// rank's child does it before its exec, so that nobody waits for init. Returns 0 or an errno.
pub(crate) fn mount_proc() -> i32 {
    // SAFETY: all strings are C strings; a null source and type are allowed with MS_REC|MS_SLAVE.
    let rc = unsafe {
        libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), libc::MS_REC | libc::MS_SLAVE, std::ptr::null())
    };
    if rc != 0 {
        return errno();
    }
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: all strings are C strings.
    let rc = unsafe { libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null()) };
    if rc != 0 { errno() } else { 0 }
}

/// The calling thread's errno; async-signal-safe.
pub(crate) fn errno() -> i32 {
    // SAFETY: glibc's accessor takes nothing and cannot fail.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it points to the calling thread's errno.
    unsafe { *place }
}
