//! The life of a PID namespace's first process, in system calls alone.
//!
//! Init shares the agent's memory, so that making it copies no page table, and leaves the agent's pages its own: a fork
//! made every launch 5 % longer. The price is that it may touch nothing of libc or std: errno and the thread's record
//! would be those of the `spawn` thread, which runs beside it. So it calls the kernel itself.

use crate::cstr::Buf;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Far more than a loop of system calls needs, whose frames hold a few words each.
const STACK: usize = 16 << 10;

/// The parameters of init.
#[derive(Debug)]
struct Plan {
    held: RawFd,
    hangup: RawFd,
    state: AtomicU32,
}

/// Init chooses where process ids begin.
const CHOOSING: u32 = 1;
/// Init has chosen.
const CHOSEN: u32 = 2;
/// Init is gone, and uses its memory no more. The kernel writes this.
const GONE: u32 = 0;

/// The memory of an init.
#[derive(Debug)]
struct Memory {
    plan: Plan,
    stack: Box<[MaybeUninit<u8>]>,
}

/// An owner of the memory of an init. The last one frees it if init is gone. A running init keeps it for ever.
#[derive(Debug)]
struct Owned(Option<Box<Memory>>);

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take_if(|memory| memory.plan.state.load(Ordering::Acquire) != GONE) {
            Box::leak(memory);
        }
    }
}

/// An init that may not have chosen yet where the process ids of its namespace begin.
#[derive(Clone, Debug)]
pub(crate) struct Newborn(Arc<Owned>);

/// How long the first rank waits for an init that gets no processor, or that was stopped.
const PATIENCE: libc::timespec = libc::timespec { tv_sec: 1, tv_nsec: 0 };

impl Newborn {
    /// Waits until the next process of the namespace gets an id from where init wants it. Mostly that is so already.
    pub(crate) fn wait(&self) {
        let patience = PATIENCE;
        let Some(Memory { plan: Plan { state, .. }, .. }) = self.0.0.as_deref() else { return };
        while state.load(Ordering::Acquire) == CHOOSING {
            let (word, wait) = (state.as_ptr(), libc::FUTEX_WAIT);
            // SAFETY: the word lives as long as we do, and the time is valid. The kernel, which wakes us if init is killed, knows nothing of
            // private futexes.
            let rc = unsafe { libc::syscall(libc::SYS_futex, word, wait, CHOOSING, &raw const patience) };
            if rc < 0 && crate::errno::errno() == libc::ETIMEDOUT {
                return;
            }
        }
    }
}

/// Starts init as the next child of the calling thread. It lives until it is killed or the calling thread ends. Returns
/// its process id.
///
/// # Errors
/// As `clone(2)`.
pub(crate) fn start(held: RawFd, hangup: RawFd) -> io::Result<(i32, Newborn)> {
    let plan = Plan { held, hangup, state: AtomicU32::new(CHOOSING) };
    let mut memory = Box::new(Memory { plan, stack: Box::new_uninit_slice(STACK) });
    let top = memory.stack.as_mut_ptr_range().end.map_addr(|a| a & !15);
    // The kernel writes `GONE` to the word, and wakes all that wait for it, when init has left its memory.
    let flags = libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
    let (arg, word) = (ptr::from_ref(&memory.plan).cast_mut().cast(), memory.plan.state.as_ptr());
    let (no_id, no_tls) = (ptr::null_mut::<i32>(), ptr::null_mut::<libc::c_void>());
    // SAFETY: the child runs `main`, which never returns, on a stack of its own, and touches only that and `plan`, which changes only by
    // its atomic word. Both are freed only after the kernel has written `GONE`.
    let pid = unsafe { libc::clone(main, top.cast(), flags, arg, no_id, no_tls, word) };
    if pid < 0 {
        let error = io::Error::last_os_error();
        return Err(error);
    }
    Ok((pid, Newborn(Arc::new(Owned(Some(memory))))))
}

/// Reaps what is orphaned, and dies with the thread that started it.
extern "C" fn main(plan: *mut libc::c_void) -> i32 {
    // SAFETY: `start` passes a Plan that lives longer than we do, and shares it.
    let Plan { held, hangup, state } = unsafe { &*plan.cast::<Plan>() };
    let (held, hangup) = (*held, *hangup);
    call(libc::SYS_prctl, [number(libc::PR_SET_PDEATHSIG), number(libc::SIGKILL), 0, 0, 0]);
    choose_process_ids();
    state.store(CHOSEN, Ordering::Release);
    call(libc::SYS_futex, [state.as_ptr().expose_provenance(), number(libc::FUTEX_WAKE), 1, 0, 0]);
    // Our copy of the agent's end, which init never uses; only without it does the agent's end show.
    call(libc::SYS_close, [number(hangup), 0, 0, 0, 0]);
    let mut fds = libc::pollfd { fd: held, events: 0, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The agent may have died before the first line. getppid is 0 in here, but the agent's end of the pipe shows it (POLLERR).
    if call(libc::SYS_ppoll, [(&raw mut fds).expose_provenance(), 1, (&raw const now).expose_provenance(), 0, 0]) > 0 {
        call(libc::SYS_exit_group, [1, 0, 0, 0, 0]);
    }
    let beyond = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
    if held > 3 {
        call(libc::SYS_close_range, [3, number(held - 1), 0, 0, 0]);
    }
    call(libc::SYS_close_range, [number(held + 1), beyond, 0, 0, 0]);
    call(libc::SYS_close_range, [0, 2, 0, 0, 0]);
    // A mount must not be kept busy.
    call(libc::SYS_chdir, [text(c"/"), 0, 0, 0, 0]);
    // SIGCHLD is blocked, like every other signal.
    let child_signal = 1u64 << (libc::SIGCHLD - 1);
    loop {
        if call(libc::SYS_wait4, [usize::MAX, 0, 0, 0, 0]) < 0 {
            call(libc::SYS_rt_sigtimedwait, [(&raw const child_signal).expose_provenance(), 0, 0, size_of::<u64>(), 0]);
        }
    }
}

/// Ids of processes below this are given once only, after a start (`RESERVED_PIDS` in the kernel is 300).
const LOWEST: u32 = 512;
/// The largest that the kernel has (proc_sys_kernel(5): `pid_max`), and the largest that it has by default, less 1.
const LARGEST: [u32; 2] = [(1 << 22) - 1, (1 << 15) - 1];

/// Programs name files in /dev/shm and /tmp by their process id, and those are the host's: ids that begin at a random number
/// keep two jobs from giving the same ones. Where this is not allowed they begin at 2.
fn choose_process_ids() {
    let mut random = [0u8; 4];
    call(libc::SYS_getrandom, [random.as_mut_ptr().expose_provenance(), random.len(), 0, 0, 0]);
    let flags = number(libc::O_WRONLY | libc::O_CLOEXEC);
    // The name is still the host's: the first rank mounts the namespace's own /proc later.
    let path = text(c"/proc/sys/kernel/ns_last_pid");
    let Ok(fd) = usize::try_from(call(libc::SYS_openat, [number(libc::AT_FDCWD), path, flags, 0, 0])) else { return };
    for largest in LARGEST {
        let digits = Buf::<16>::new().number(u32::from_ne_bytes(random) & largest | LOWEST);
        let digits = digits.as_bytes();
        // Refused where `pid_max` is lower.
        if call(libc::SYS_write, [fd, digits.as_ptr().expose_provenance(), digits.len(), 0, 0]) >= 0 {
            break;
        }
    }
    call(libc::SYS_close, [fd, 0, 0, 0, 0]);
}

/// A number as the kernel takes it: sign-extended.
const fn number(n: i32) -> usize {
    (n as isize).cast_unsigned()
}

fn text(text: &CStr) -> usize {
    text.as_ptr().expose_provenance()
}

/// A system call: the result, or an errno below 0. The kernel checks what it is given and writes only to `fds` and `random` above, whose
/// addresses were exposed to it; that is what makes this function safe here, and only here.
#[expect(clippy::cast_possible_truncation, reason = "a c_long has the width of a register on both targets")]
fn call(number: libc::c_long, args: [usize; 5]) -> isize {
    let [a, b, c, d, e] = args;
    let number = number as isize;
    let result: isize;
    // SAFETY: the kernel's convention for x86-64 (syscall(2)): rcx and r11 are lost, no memory but what is passed is used.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    // SAFETY: the kernel's convention for arm64 (syscall(2)): only x0 changes, no memory but what is passed is used.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e,
            options(nostack)
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each restart of all ranks has another init.
    #[test]
    fn init_has_left_its_memory_when_it_is_reaped() {
        // The child dies with this thread. A thread has one PID namespace.
        let test = || {
            // An ordinary user may not.
            let Ok((init, Some(newborn))) = crate::ns::enter() else { return };
            newborn.wait();
            let state = |newborn: &Newborn| newborn.0.0.as_ref().unwrap().plan.state.load(Ordering::Acquire);
            assert_eq!(state(&newborn), CHOSEN);
            crate::pidfd::signal(&init.pidfd, libc::SIGKILL).unwrap();
            crate::pidfd::reap(&init.pidfd);
            assert_eq!(state(&newborn), GONE);
        };
        std::thread::Builder::new().spawn(test).unwrap().join().unwrap();
    }
}
