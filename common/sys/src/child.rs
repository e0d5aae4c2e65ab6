//! A program of the user's that the launcher needs beside it: ssh, or a command that knows groups of hosts. It gets its
//! streams and nothing else of ours; and it does not outlive us.

use crate::detached_descendants::DetachedDescendants;
use crate::errno::errno;
use crate::origin::Origin;
use crate::pidfd::How;
use crate::spawn::Strings;
use crate::ssh_reaper::{ReaperSlot, SshReaper};
use crate::tty::Lent;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// Far more than execvp's search of PATH needs.
const STACK: usize = 64 << 10;

/// A program that runs, and our ends of its streams.
#[derive(Debug)]
pub struct Started {
    /// The program.
    pub child: Child,
    /// Our end of its stdin and stdout: one socket.
    pub stream: OwnedFd,
    /// Our end of its stderr.
    pub stderr: OwnedFd,
}

/// A program that runs.
#[derive(Debug)]
pub struct Child {
    /// Its process id, and that of its process group.
    pid: i32,
    /// Readable when it has ended.
    pub pidfd: OwnedFd,
    ward: Option<ReaperSlot>,
}

/// The relation of a program to the user's terminal.
#[derive(Debug)]
pub enum Stand<'a> {
    /// In a session of its own and out of reach: neither asks it anything there, nor does Ctrl-C end it.
    Apart,
    /// In a process group of its own, which is the terminal's foreground group if there is one to lend.
    Before(&'a mut Option<Lent>),
}

/// The start values of a program besides its words.
pub(crate) struct Given<'a> {
    /// Its standard streams.
    pub(crate) streams: [RawFd; 3],
    /// Its directory; `None`: the present one.
    pub(crate) directory: Option<&'a CStr>,
    /// `None`: ours.
    pub(crate) environment: Option<&'a Strings>,
    /// Whether its descendants stay below it as long as it lives.
    pub(crate) adopts: bool,
    /// The kernel's signal to it at the end of the thread that starts it.
    pub(crate) ends_by: i32,
}

struct Plan {
    argv: *const *const libc::c_char,
    /// Null: ours.
    environment: *const *const libc::c_char,
    /// Null: where we are.
    directory: *const libc::c_char,
    streams: [RawFd; 3],
    parent: i32,
    own_session: bool,
    adopts: bool,
    ends_by: i32,
    terminal: Option<RawFd>,
    slot: Option<&'static AtomicI32>,
    mask: libc::sigset_t,
    nofile: libc::rlimit,
    ignore_chld: bool,
    errno: i32,
}

/// Starts a program that is looked for in our PATH, with the caller's limits and this environment, or ours.
///
/// When the launcher ends, however it does, the kernel sends the program SIGTERM, and the reaper sends it to what the program
/// has started. The kernel's follows the thread, so this must be called by the main one.
///
/// # Errors
/// The program cannot be executed, no process or descriptor can be had, or another thread calls.
pub fn start(
    words: &Strings,
    environment: Option<&Strings>,
    stand: Stand<'_>,
    ssh_reaper: &SshReaper,
    origin: &Origin,
) -> io::Result<Started> {
    only_main()?;
    let (stream, child_stream) = crate::fd::socket_pair()?;
    let (stderr, child_stderr) = crate::fd::pipe()?;
    let streams = [child_stream.as_raw_fd(), child_stream.as_raw_fd(), child_stderr.as_raw_fd()];
    let given = Given { streams, directory: None, environment, adopts: false, ends_by: libc::SIGTERM };
    Ok(Started { child: begin(words, &given, stand, Some(ssh_reaper), origin)?, stream, stderr })
}

/// The kernel's signal follows the thread, and only the main one lives as long as we do.
pub(crate) fn only_main() -> io::Result<()> {
    // SAFETY: gettid takes nothing.
    let own = unsafe { libc::gettid() };
    if own == own_pid() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// Starts a program. The kernel's signal follows the calling thread.
pub(crate) fn begin(
    words: &Strings,
    given: &Given<'_>,
    stand: Stand<'_>,
    ssh_reaper: Option<&SshReaper>,
    origin: &Origin,
) -> io::Result<Child> {
    let mut argv = Vec::with_capacity(words.len() + 1);
    words.pointers(&mut argv);
    argv.push(ptr::null());
    let mut environment = Vec::new();
    if let Some(strings) = given.environment {
        strings.pointers(&mut environment);
        environment.push(ptr::null());
    }
    let ward = ssh_reaper.and_then(SshReaper::take);
    let mut plan = Plan {
        argv: argv.as_ptr(),
        environment: if environment.is_empty() { ptr::null() } else { environment.as_ptr() },
        directory: given.directory.map_or(ptr::null(), CStr::as_ptr),
        streams: given.streams,
        parent: own_pid(),
        own_session: matches!(stand, Stand::Apart),
        adopts: given.adopts,
        ends_by: given.ends_by,
        terminal: match &stand {
            Stand::Apart => None,
            Stand::Before(lent) => lent.as_ref().map(Lent::number),
        },
        slot: ward.as_ref().map(ReaperSlot::slot),
        mask: origin.mask,
        nofile: origin.nofile,
        ignore_chld: origin.ignores_chld,
        errno: 0,
    };
    let (pid, pidfd) = clone_child(&mut plan)?;
    // CLONE_VFORK: the child has exec'ed or ended.
    if plan.errno != 0 {
        drop(ward);
        crate::pidfd::reap(&pidfd);
        return Err(io::Error::from_raw_os_error(exec_errno(plan.errno, words.get(0).unwrap_or_default())));
    }
    if let Stand::Before(Some(lent)) = stand {
        lent.to = pid;
    }
    Ok(Child { pid, pidfd, ward })
}

/// The error of an exec, as the user understands it: execvp(3) also reports EACCES if it may not search a directory of PATH. A program that is in no other directory does not exist.
fn exec_errno(errno: i32, program: &[u8]) -> i32 {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = || std::env::split_paths(&path).any(|dir| dir.join(OsStr::from_bytes(program)).exists());
    let is_hidden = errno == libc::EACCES && !program.contains(&b'/') && !is_there();
    if is_hidden { libc::ENOENT } else { errno }
}

impl Child {
    /// Asks it and whatever it has started to end, or ends them. Only before it is reaped.
    pub fn end(&self, hard: bool) {
        let number = if hard { libc::SIGKILL } else { libc::SIGTERM };
        // A process that has ended meanwhile is no error.
        let _gone = crate::pidfd::signal_group(self.pid, number);
    }

    /// The same for all that it has started, wherever that is by now. Processes that were found are remembered: after its end none is
    /// below it.
    pub fn end_all(&self, away: &mut DetachedDescendants, hard: bool) {
        away.look(self.pid);
        if hard {
            // Processes that they have started during the search.
            away.look(self.pid);
        }
        away.signal(if hard { libc::SIGKILL } else { libc::SIGTERM });
        self.end(hard);
    }

    /// How it ended, if it has; it is reaped then, and what it had started in its group is asked to end: a proxy command
    /// may not notice by itself.
    #[must_use]
    pub fn ended(&mut self) -> Option<How> {
        let over = crate::pidfd::ended(&self.pidfd, false).map_or(true, |ended| ended.is_some());
        if !over {
            return None;
        }
        self.end(false);
        self.ward = None;
        Some(crate::pidfd::ended(&self.pidfd, true).ok().flatten().map_or(How::Code(255), |ended| ended.how))
    }

    /// Waits until its group is empty. The group was killed before the program itself was reaped: SIGKILL is on its way then, and no
    /// descriptor shows when a group is empty. Mostly it is; at most 100 ms.
    pub fn outlive_group(&self) {
        for _ in 0..100 {
            // SAFETY: kill takes two integers, and signal 0 does nothing.
            if unsafe { libc::kill(-self.pid, 0) } != 0 {
                return;
            }
            let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            // SAFETY: `pause` is a valid time; what is left of it is not asked for.
            unsafe { libc::nanosleep(&raw const pause, ptr::null_mut()) };
        }
    }
}

fn own_pid() -> i32 {
    // SAFETY: getpid takes nothing.
    unsafe { libc::getpid() }
}

fn clone_child(plan: &mut Plan) -> io::Result<(i32, OwnedFd)> {
    let mut stack = Box::<[u8]>::new_uninit_slice(STACK);
    let top = stack.as_mut_ptr_range().end.map_addr(|a| a & !15);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut pidfd: RawFd = -1;
    // SAFETY: the child runs on its own stack while we sleep, touches only `plan`, and ends in execvp or _exit. With
    // CLONE_PIDFD the fifth argument is where the descriptor goes.
    let pid = unsafe { libc::clone(child, top.cast(), flags, ptr::from_mut(plan).cast(), &raw mut pidfd) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

extern "C" fn child(plan: *mut libc::c_void) -> i32 {
    // SAFETY: `start` passes a Plan that outlives the child's use of it, and sleeps meanwhile.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    if prepare(plan) {
        // SAFETY: the array has at least its null at the end.
        let program = unsafe { *plan.argv };
        if !program.is_null() && !plan.environment.is_null() {
            // SAFETY: null-terminated arrays of C strings.
            unsafe { libc::execvpe(program, plan.argv, plan.environment) };
        } else if !program.is_null() {
            // SAFETY: a null-terminated array of C strings, the first of them the program's name.
            unsafe { libc::execvp(program, plan.argv) };
        }
    }
    plan.errno = errno().max(1);
    crate::origin::exit_now(127)
}

/// Everything before the exec; false if it cannot be, its reason in errno.
fn prepare(plan: &Plan) -> bool {
    // SAFETY: prctl with PR_SET_PDEATHSIG takes integers only.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, plan.ends_by) } != 0 {
        return false;
    }
    // It outlives the exec, but is not passed on.
    // SAFETY: prctl with PR_SET_CHILD_SUBREAPER takes integers only.
    if plan.adopts && unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } != 0 {
        return false;
    }
    // The launcher may have been killed before that line.
    // SAFETY: getppid takes nothing.
    if unsafe { libc::getppid() } != plan.parent {
        crate::origin::exit_now(127);
    }
    if !stand(plan) {
        return false;
    }
    // Before anything can be started: the launcher may be killed before it runs again.
    if let Some(slot) = plan.slot {
        slot.store(own_pid(), Ordering::Release);
    }
    for (to, from) in (0..).zip(plan.streams) {
        // SAFETY: descriptor numbers only, all above 2: 0-2 exist in every process of ours. The copies survive the exec.
        if unsafe { libc::dup2(from, to) } < 0 {
            return false;
        }
    }
    // SAFETY: a C string that outlives the child's use of it; the directory is the child's own without CLONE_FS.
    if !plan.directory.is_null() && unsafe { libc::chdir(plan.directory) } < 0 {
        return false;
    }
    // Descriptors that rlaunch inherited do not concern ssh; our own are closed on exec. SAFETY: only this process's copy of the table
    // loses descriptors.
    unsafe { libc::close_range(3, u32::MAX, 0) };
    // Programs that use select(2), and those that close every number up to the limit, live badly with ours.
    // SAFETY: `nofile` is a valid limit, of this process alone: it is not shared without CLONE_THREAD.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const plan.nofile) } != 0 {
        return false;
    }
    if plan.ignore_chld {
        // SAFETY: no handler; dispositions are not shared without CLONE_SIGHAND.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    }
    // SAFETY: `mask` is a valid set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const plan.mask, ptr::null_mut()) };
    true
}

fn stand(plan: &Plan) -> bool {
    if plan.own_session {
        // SAFETY: setsid takes nothing.
        return unsafe { libc::setsid() } >= 0;
    }
    // SAFETY: setpgid takes two integers.
    if unsafe { libc::setpgid(0, 0) } < 0 {
        return false;
    }
    let Some(terminal) = plan.terminal else { return true };
    // SAFETY: tcsetpgrp reads no memory of ours. SIGTTOU is still blocked here.
    unsafe { libc::tcsetpgrp(terminal, own_pid()) };
    // Ctrl-Z would stop it alone, and no shell would take notice.
    // SAFETY: no handler; dispositions are not shared without CLONE_SIGHAND.
    unsafe { libc::signal(libc::SIGTSTP, libc::SIG_IGN) };
    true
}
