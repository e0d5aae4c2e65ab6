//! From the decision to start a rank to its first instruction.
//!
//! The child shares our memory and we sleep until it execs (`CLONE_VM | CLONE_VFORK`), so a launch costs the same however
//! big we are; it shares our descriptors too, until it has taken a copy of the few that it needs (see `slots`). Between
//! clone and exec it makes only system calls, on data prepared before.

use super::memory_policy::Preferred;
use super::prepare::PreparedExec;
use crate::errno::errno;
use crate::facts::limits::Carried;
use crate::origin::Origin;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// A step between the decision to start a rank and its first instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Pipes for its streams.
    Pipes,
    /// A new process.
    Clone,
    /// The private /proc of a PID namespace.
    MountProc,
    /// Its session, or its process group.
    Session,
    /// Its standard streams.
    Streams,
    /// Its working directory.
    ChangeDir,
    /// The caller's limits, and the CPUs of the rank.
    Limits,
    /// The program itself.
    Exec,
}

/// A rank that could not be started.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The step.
    pub step: Step,
    /// Why it failed.
    pub errno: i32,
    /// The path concerned: a program or a directory; else empty.
    pub path: Vec<u8>,
    /// The file at the program's path.
    pub found: Found,
}

/// The kind of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Found {
    /// Nothing that could be seen, or no look was made.
    #[default]
    Nothing,
    /// A directory.
    Dir,
    /// A file without a byte in it.
    Empty,
    /// Anything else.
    File,
}

impl Failure {
    /// The failure of a step without a path.
    pub(super) const fn of(step: Step, errno: i32) -> Self {
        Self { step, errno, path: Vec::new(), found: Found::Nothing }
    }
}

/// Memory that is reused from rank to rank: pointer arrays and the child's stack.
pub(super) struct Workspace {
    stack: Box<[MaybeUninit<u8>]>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    candidates: Vec<*const libc::c_char>,
}

/// The values that the child reads, and the two words it writes.
struct Plan {
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    candidates: *const *const libc::c_char,
    /// The candidates come from PATH.
    searched: bool,
    wdir: *const libc::c_char,
    stdio: [RawFd; 3],
    /// The first descriptor that the child does not need.
    beyond: u32,
    mask: libc::sigset_t,
    nofile: libc::rlimit,
    limits: Carried,
    /// The CPUs of the rank, and how many bytes these bits are; 0: it keeps ours.
    cpus: *const u64,
    cpus_len: usize,
    memory: Option<Preferred>,
    ignore_chld: bool,
    has_session: bool,
    mount_proc: bool,
    failed: Option<Step>,
    errno: i32,
    candidate: usize,
}

impl Workspace {
    pub(super) fn new() -> Self {
        // The child's deepest call is execve; 64 KiB is far more than it and a signal frame need. Pages that are never touched cost nothing.
        Self { stack: Box::new_uninit_slice(64 << 10), argv: Vec::new(), envp: Vec::new(), candidates: Vec::new() }
    }

    /// Starts a process with these three descriptors as its 0, 1 and 2. Returns its pid and pidfd.
    pub(super) fn start(
        &mut self,
        exec: &PreparedExec,
        origin: &Origin,
        stdio: [RawFd; 3],
        mount_proc: bool,
    ) -> Result<(i32, OwnedFd), Failure> {
        let app = &*exec.app;
        fill(&mut self.argv, &[&app.argv]);
        fill(&mut self.envp, &[&app.env, &exec.vars]);
        fill(&mut self.candidates, &[&app.candidates]);
        let mut wdir = Vec::new();
        if let Some(dir) = &app.wdir {
            dir.pointers(&mut wdir);
        }
        let mut plan = Plan {
            argv: self.argv.as_ptr(),
            envp: self.envp.as_ptr(),
            candidates: self.candidates.as_ptr(),
            searched: app.candidates.get(0) != app.argv.get(0),
            wdir: wdir.first().copied().unwrap_or(ptr::null()),
            stdio,
            beyond: stdio.iter().max().map_or(3, |fd| fd.cast_unsigned() + 1),
            mask: origin.mask,
            nofile: origin.nofile,
            limits: origin.limits,
            cpus: exec.cpus.as_ptr(),
            cpus_len: size_of_val(&*exec.cpus),
            memory: exec.memory.and_then(Preferred::new),
            ignore_chld: origin.ignores_chld,
            has_session: exec.has_session,
            mount_proc,
            failed: None,
            errno: 0,
            candidate: 0,
        };
        let (pid, pidfd) = self.clone_child(&mut plan)?;
        // CLONE_VFORK: the child has exec'ed or ended, so it writes to `plan` no more.
        let Some(step) = plan.failed else { return Ok((pid, pidfd)) };
        // The step from giving our memory back to being a zombie needs no help, but some time.
        crate::pidfd::reap(&pidfd);
        Err(match step {
            Step::Exec => app.no_program(plan.errno, app.candidates.get(plan.candidate).unwrap_or_default()),
            Step::ChangeDir => app.no_directory(plan.errno),
            Step::Pipes | Step::Clone | Step::MountProc | Step::Session | Step::Streams | Step::Limits => {
                Failure::of(step, plan.errno)
            }
        })
    }

    fn clone_child(&mut self, plan: &mut Plan) -> Result<(i32, OwnedFd), Failure> {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
        let mut pidfd: RawFd = -1;
        let len = self.stack.len();
        // SAFETY: one past the end of the stack's allocation; aligned down to 16 as the ABI wants.
        let top = unsafe { self.stack.as_mut_ptr().add(len) };
        let top = top.map_addr(|a| a & !15);
        // SAFETY: the child runs on its own stack while we sleep, touches only `plan`, and ends in execve or _exit. With
        // CLONE_PIDFD the fifth argument is where the descriptor goes.
        let pid = unsafe { libc::clone(child, top.cast(), flags, ptr::from_mut(plan).cast(), &raw mut pidfd) };
        if pid < 0 {
            let errno = errno();
            return Err(Failure::of(Step::Clone, errno));
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
    }
}

/// Whether a child that [`Workspace::start`] has made was killed before its exec: then no rank was started. The kernel reports the same
/// of a process that is ending and of a zombie, too.
pub(super) fn never_ran(pid: i32) -> bool {
    /// `PF_FORKNOEXEC` of linux/sched.h, in the field `flags` of /proc/PID/stat (proc(5)).
    const FORKED_NO_EXEC: u64 = 0x40;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything. `flags` is the seventh field after it.
    let flags = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().nth(6));
    flags.and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & FORKED_NO_EXEC != 0)
}

fn fill(out: &mut Vec<*const libc::c_char>, parts: &[&super::Strings]) {
    out.clear();
    parts.iter().for_each(|part| part.pointers(out));
    out.push(ptr::null());
}

extern "C" fn child(plan: *mut libc::c_void) -> i32 {
    // SAFETY: `start` passes a Plan that outlives the child's use of it, and sleeps meanwhile.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    let step = prepare(plan);
    if let Some(step) = step {
        plan.failed = Some(step);
        plan.errno = errno();
    } else {
        exec(plan);
    }
    crate::origin::exit_now(127)
}

/// Makes the child the leader of a session, or of a process group only. False: it cannot be, and errno has the reason.
fn leads(session: bool) -> bool {
    if session {
        // SAFETY: setsid takes nothing.
        return unsafe { libc::setsid() } >= 0;
    }
    // SAFETY: two numbers, which mean the calling process.
    unsafe { libc::setpgid(0, 0) == 0 }
}

/// Everything before the exec. Returns the step that failed, its reason in errno.
fn prepare(plan: &Plan) -> Option<Step> {
    // First of all: what is done to a shared table is done to ours.
    // SAFETY: three numbers. Only the copy that this makes loses descriptors.
    if unsafe { libc::close_range(plan.beyond, u32::MAX, libc::CLOSE_RANGE_UNSHARE.cast_signed()) } != 0 {
        return Some(Step::Streams);
    }
    if plan.mount_proc && crate::ns::mount_proc() != 0 {
        return Some(Step::MountProc);
    }
    if !leads(plan.has_session) {
        return Some(Step::Session);
    }
    for (to, from) in (0..).zip(plan.stdio) {
        // SAFETY: descriptor numbers only; all of `stdio` are above 2, so none is overwritten before it is used.
        if unsafe { libc::dup2(from, to) } < 0 {
            return Some(Step::Streams);
        }
    }
    if !plan.wdir.is_null() {
        // SAFETY: a C string.
        if unsafe { libc::chdir(plan.wdir) } != 0 {
            return Some(Step::ChangeDir);
        }
    }
    // SAFETY: `nofile` is a valid limit. CLONE_VM does not share limits.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const plan.nofile) } != 0 {
        return Some(Step::Limits);
    }
    if !plan.limits.set() {
        return Some(Step::Limits);
    }
    if plan.cpus_len > 0 {
        // SAFETY: `cpus` is valid for `cpus_len` bytes as long as the plan. The raw call is used because libc's cpu_set_t ends at 1,024 CPUs.
        if unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, plan.cpus_len, plan.cpus) } != 0 {
            return Some(Step::Limits);
        }
    }
    if let Some(memory) = &plan.memory {
        memory.apply();
    }
    if plan.ignore_chld {
        // SAFETY: no handler; dispositions are not shared without CLONE_SIGHAND.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    }
    // SAFETY: `mask` is a valid set. From here a signal ends the child, as it would end the program.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const plan.mask, ptr::null_mut()) };
    None
}

/// Tries the candidates in order; returns only if all fail. A file that exists but cannot be executed is the better
/// explanation than the ones that do not exist (execvp(3)); a directory of PATH that we may not search explains nothing.
fn exec(plan: &mut Plan) {
    let (mut best, mut at) = (libc::ENOENT, 0);
    for n in 0.. {
        // SAFETY: the array ends with a null pointer, where we stop.
        let entry = unsafe { plan.candidates.add(n) };
        // SAFETY: as above.
        let path = unsafe { *entry };
        if path.is_null() {
            break;
        }
        // SAFETY: path, argv and envp are C strings in null-terminated arrays.
        unsafe { libc::execve(path, plan.argv, plan.envp) };
        let errno = errno();
        // SAFETY: path is a C string.
        let hidden = errno == libc::EACCES && plan.searched && unsafe { libc::access(path, libc::F_OK) } != 0;
        if !hidden && !matches!(errno, libc::ENOENT | libc::ENOTDIR) && best == libc::ENOENT {
            (best, at) = (errno, n);
        }
        if !matches!(errno, libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT)
        {
            break;
        }
    }
    plan.failed = Some(Step::Exec);
    plan.errno = best;
    plan.candidate = at;
}

/// The two ends of a rank's output pipe: the agent's, the rank's.
pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    crate::fd::pipe().map_err(|e| pipes_failed(&e))
}

/// A failure at [`Step::Pipes`].
pub(super) fn pipes_failed(error: &io::Error) -> Failure {
    Failure::of(Step::Pipes, error.raw_os_error().unwrap_or(0))
}

/// The raw numbers of three descriptors.
pub(super) fn numbers(fds: [&OwnedFd; 3]) -> [RawFd; 3] {
    fds.map(AsRawFd::as_raw_fd)
}

#[cfg(test)]
mod tests {
    use super::super::{PreparedApp, Strings};
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Kills every child of this thread as soon as it sees one.
    fn kill_children_of(tid: i32, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let children = std::fs::read_to_string(format!("/proc/self/task/{tid}/children")).unwrap();
            for pid in children.split_ascii_whitespace() {
                // SAFETY: kill takes two integers.
                unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
            }
        }
    }

    #[test]
    fn kill_before_exec_is_recognised() {
        let origin = crate::origin::capture().unwrap();
        let null = crate::fd::dev_null().unwrap();
        let app = Arc::new(PreparedApp::new([&b"/bin/sleep"[..], b"60"], [], None));
        let exec = PreparedExec {
            app,
            vars: Strings::default(),
            stdin: false,
            cpus: Box::default(),
            memory: None,
            has_session: true,
            needed: true,
        };
        let mut workspace = Workspace::new();
        let mut start = || workspace.start(&exec, &origin, numbers([&null; 3]), false).unwrap();
        let (pid, pidfd) = start();
        assert!(!never_ran(pid), "it runs");
        crate::pidfd::signal(&pidfd, libc::SIGKILL).unwrap();
        crate::fd::wait_readable(std::os::fd::AsRawFd::as_raw_fd(&pidfd));
        assert!(!never_ran(pid), "it ran");
        crate::pidfd::reap(&pidfd);

        // SAFETY: gettid takes nothing.
        let (tid, over) = (unsafe { libc::gettid() }, AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| kill_children_of(tid, &over));
            let never = (0..20_000).any(|_| {
                let (pid, pidfd) = start();
                let never = never_ran(pid);
                crate::pidfd::reap(&pidfd);
                never
            });
            over.store(true, Ordering::Relaxed);
            assert!(never, "all were killed after their exec");
        });
    }

    /// The text that `cat` prints of this file about its own process.
    fn shown(file: &[u8], memory: Option<u32>, has_session: bool) -> String {
        let origin = crate::origin::capture().unwrap();
        let null = crate::fd::dev_null().unwrap();
        let (read, write) = pipe().unwrap();
        let app = Arc::new(PreparedApp::new([&b"/bin/cat"[..], file], [], None));
        let exec = PreparedExec {
            app,
            vars: Strings::default(),
            stdin: false,
            cpus: Box::default(),
            memory,
            has_session,
            needed: true,
        };
        let (_, pidfd) = Workspace::new().start(&exec, &origin, numbers([&null, &write, &null]), false).unwrap();
        drop(write);
        let mut shown = String::new();
        std::io::Read::read_to_string(&mut std::fs::File::from(read), &mut shown).unwrap();
        crate::pidfd::reap(&pidfd);
        shown
    }

    #[test]
    fn process_without_a_session_of_its_own_leads_a_group_in_ours() {
        for has_session in [true, false] {
            let stat = shown(b"/proc/self/stat", None, has_session);
            let numbers: Vec<i32> = stat.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
            let [pid, _parent, group, session, ..] = numbers[..] else { panic!("{stat}") };
            let own = nix::unistd::getsid(None).unwrap().as_raw();
            assert_eq!((group, session), (pid, if has_session { pid } else { own }), "{stat}");
        }
    }

    #[test]
    fn memory_of_a_numa_node_is_preferred() {
        let policies = |memory| shown(b"/proc/self/numa_maps", memory, true);
        if policies(None).is_empty() {
            // A kernel without NUMA starts ranks all the same.
            assert!(policies(Some(0)).is_empty());
            return;
        }
        let own = Preferred::new(0).is_some_and(|preferred| {
            std::thread::scope(|scope| scope.spawn(move || preferred.apply()).join().unwrap())
        });
        assert_eq!(policies(Some(0)).contains("prefer"), own, "as far as this process may");
        for policy in [policies(None), policies(Some(900))] {
            assert!(!policy.contains("prefer"), "there is no such node: {policy}");
        }
    }

    #[test]
    fn a_failed_exec_leaves_no_zombie() {
        let origin = crate::origin::capture().unwrap();
        let null = crate::fd::dev_null().unwrap();
        let app = Arc::new(PreparedApp::new([&b"/no/such/program"[..]], [], None));
        let exec = PreparedExec {
            app,
            vars: Strings::default(),
            stdin: false,
            cpus: Box::default(),
            memory: None,
            has_session: true,
            needed: true,
        };
        let mut workspace = Workspace::new();
        for n in 0..500 {
            let failure = workspace.start(&exec, &origin, numbers([&null; 3]), false).unwrap_err();
            assert_eq!((failure.step, failure.errno), (Step::Exec, libc::ENOENT));
            let none = crate::pidfd::next_ended(true).unwrap_err();
            assert_eq!(none.raw_os_error(), Some(libc::ECHILD), "launch {n}");
        }
    }
}
