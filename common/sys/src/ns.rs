//! Tier T1: a PID namespace whose first process, init, dies with the agent and takes everything else with it.

use crate::errno::errno;
use crate::init::Newborn;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The namespace's first process.
#[derive(Debug)]
pub struct Init {
    /// Its process id on the host.
    pub pid: i32,
    /// Readable once it is gone and the ranks' zombies are reaped.
    pub pidfd: OwnedFd,
    /// Hangs up the moment it is gone.
    pub hangup: OwnedFd,
    /// Its stack, which is freed with this if it is gone by then.
    _memory: Newborn,
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct NsError {
    /// The step.
    pub step: &'static str,
    /// Why it failed.
    pub source: io::Error,
    /// Whether it failed halfway: the calling thread's next child would be the namespace's first process, and a rank's end would be the
    /// end of all. No rank may be started then.
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

/// The device of AMD's GPUs. Programs of NVIDIA's run in a PID namespace: CUDA, NCCL and CUDA IPC were tried there.
const UNTRIED_GPU: &str = "kfd";

/// Whether this host has GPUs whose driver was not tried inside a PID namespace; `None`: /dev does not say.
#[must_use]
pub fn has_untried_gpu() -> Option<bool> {
    gpu_below(Path::new("/dev"))
}

fn gpu_below(dev: &Path) -> Option<bool> {
    dev.metadata().ok()?;
    dev.join(UNTRIED_GPU).try_exists().ok()
}

/// Whether `--contain auto` asks the kernel for a PID namespace: also on hosts without a chance, because the kernel's error is the reason
/// that is reported.
#[must_use]
pub fn is_wanted_by_auto() -> bool {
    has_untried_gpu() == Some(false)
}

/// Whether the kernel would give us a PID namespace: tried in a child, which is gone again. Only without other threads.
#[must_use]
pub fn is_possible() -> bool {
    let child = match crate::guardian::fork() {
        Ok(crate::guardian::Fork::Parent(pid)) => pid,
        Ok(crate::guardian::Fork::Child) => {
            // SAFETY: unshare takes flags only.
            let refused = unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS) } != 0;
            crate::origin::exit_now(u8::from(refused || may_have_masked_proc() && mount_in_child().is_err()));
        }
        Err(_) => return false,
    };
    let mut status = 0;
    // SAFETY: `status` is valid for writing.
    unsafe { libc::waitpid(child, &raw mut status, 0) == child && status == 0 }
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
/// starts init. The thread cannot make threads afterwards; its siblings can. `None` beside init: /proc is mounted.
///
/// # Errors
/// Not allowed, or out of a resource.
pub(crate) fn enter() -> Result<(Init, Option<Newborn>), NsError> {
    let (hangup, held) =
        crate::fd::pipe().map_err(|source| NsError { step: "make a pipe to init", source, halfway: false })?;
    // SAFETY: unshare takes flags only.
    if unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS) } != 0 {
        return Err(failed("unshare a PID namespace"));
    }
    // Init is born with its name: a rank may look before it has run for the first time.
    name_thread(c"rlaunch-init");
    let pid = crate::init::start(held.as_raw_fd(), hangup.as_raw_fd());
    name_thread(c"spawn");
    let (pid, newborn) = pid.map_err(|source| failed_halfway("start init", source))?;
    let pidfd = crate::pidfd::open(pid).map_err(|source| failed_halfway("watch init", source))?;
    let init = Init { pid, pidfd, hangup, _memory: newborn.clone() };
    if !may_have_masked_proc() {
        return Ok((init, Some(newborn)));
    }
    newborn.wait();
    match mount_in_child() {
        Ok(is_mounted) => Ok((init, (!is_mounted).then_some(newborn))),
        Err(source) => {
            let _gone = crate::pidfd::signal(&init.pidfd, crate::signals::KILL);
            crate::pidfd::reap(&init.pidfd);
            Err(failed_halfway("mount the /proc of a PID namespace", source))
        }
    }
}

/// Inode of the first user namespace (`PROC_USER_INIT_INO` of linux/proc_ns.h).
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Whether the kernel may refuse a new /proc: in a user namespace, if parts of the /proc that is there are hidden, as in containers.
fn may_have_masked_proc() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self/ns/user").is_ok_and(|found| found.ino() != FIRST_USER_NAMESPACE)
}

/// Mounts /proc in the first child of a PID namespace, before the tier is chosen. The child is gone afterwards. False: there can be no child,
/// because init is gone. The first rank shows that.
fn mount_in_child() -> io::Result<bool> {
    extern "C" fn mount(errno: *mut libc::c_void) -> i32 {
        // SAFETY: the parent sleeps, and its number lives until it wakes.
        unsafe { *errno.cast::<i32>() = mount_proc() };
        0
    }
    let mut stack = Box::<[u8]>::new_uninit_slice(16 << 10);
    let top = stack.as_mut_ptr_range().end.map_addr(|a| a & !15);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let (mut errno, mut pidfd) = (0i32, -1);
    // SAFETY: the child runs `mount` on its own stack while this thread sleeps, and ends. CLONE_PIDFD fills in the fifth argument.
    let pid = unsafe { libc::clone(mount, top.cast(), flags, (&raw mut errno).cast(), &raw mut pidfd) };
    if pid < 0 {
        return Ok(false);
    }
    // SAFETY: the kernel has just made this descriptor for us.
    crate::pidfd::reap(&unsafe { std::os::fd::FromRawFd::from_raw_fd(pidfd) });
    if errno == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Names the calling thread; at most 15 characters.
fn name_thread(name: &std::ffi::CStr) {
    // SAFETY: the name is a C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Makes the PID namespace's processes visible in /proc, for this mount namespace only. Async-signal-safe: the first rank's child does it
/// before its exec, so that no process waits for init. Returns 0 or an errno.
pub(crate) fn mount_proc() -> i32 {
    let mut refused = keep_mounts_here(c"/");
    if refused == libc::EINVAL {
        // The root of a chroot is often no mount point. Then only /proc changes, or nothing if that is none either.
        refused = keep_mounts_here(c"/proc");
        if refused == libc::EINVAL {
            return 0;
        }
    }
    if refused != 0 {
        return refused;
    }
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: all strings are C strings.
    let rc = unsafe { libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null()) };
    if rc != 0 { errno() } else { 0 }
}

/// Keeps later mounts below a mount point from other mount namespaces. Returns 0 or an errno; EINVAL: the path is no mount point.
fn keep_mounts_here(point: &std::ffi::CStr) -> i32 {
    // SAFETY: all strings are C strings; a null source and type are allowed with MS_REC|MS_SLAVE.
    let rc = unsafe {
        libc::mount(std::ptr::null(), point.as_ptr(), std::ptr::null(), libc::MS_REC | libc::MS_SLAVE, std::ptr::null())
    };
    if rc != 0 { errno() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_there_or_not_or_nobody_knows() {
        let dir = std::env::temp_dir().join(format!("rlaunch-dev-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("null"), "").unwrap();
        assert_eq!(gpu_below(&dir), Some(false));
        std::fs::write(dir.join("nvidiactl"), "").unwrap();
        assert_eq!(gpu_below(&dir), Some(false));
        std::fs::write(dir.join("kfd"), "").unwrap();
        assert_eq!(gpu_below(&dir), Some(true));
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(gpu_below(&dir), None, "it cannot be read");
    }
}
