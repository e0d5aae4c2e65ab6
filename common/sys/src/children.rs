//! Finding and ending our own children without allocating: the guardian does it after everything else has failed.

use crate::cstr::Buf;
use std::os::fd::RawFd;

/// Enough of /proc/PID/stat for the fields below.
const STAT: usize = 512;
/// Fields of proc_pid_stat(5).
const PARENT: usize = 4;
const THREADS: usize = 20;

/// Generations below a child that are walked: far more than the kernel ever holds at once, and little enough for any stack.
const DEEPEST: u32 = 60;

/// A process that still exists.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its process id.
    pub pid: i32,
    /// Its short name, NUL-padded.
    pub comm: [u8; 16],
    /// The place in the kernel where it waits, NUL-padded.
    pub wchan: [u8; 40],
}

/// Above all numbers of processes (proc_sys_kernel(5): pid_max is 2^22 at most).
const NUMBERS: i32 = 1 << 22;

/// Calls `each` with every child of the calling process, zombies included. One may come twice where not all of /proc can be
/// read.
pub fn for_each(mut each: impl FnMut(i32)) {
    // SAFETY: getpid cannot fail.
    let pid = unsafe { libc::getpid() };
    let mut look = for_each_of(&Buf::new().text(b"/proc/self/task"), pid, &mut each);
    if look == Look::Unknown {
        look = for_each_by_parent(pid, &mut each);
    }
    if look == Look::Blind {
        for_each_by_number(&mut each);
    }
}

/// The value of a look into /proc.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Whole,
    /// The kernel does not list children there (CONFIG_PROC_CHILDREN), or the process is gone.
    Unknown,
    /// Something could not be opened: no descriptor or memory can be had, or /proc is not there.
    Blind,
}

/// The same for a kernel without CONFIG_PROC_CHILDREN: asks every process for its parent.
fn for_each_by_parent(pid: i32, each: &mut dyn FnMut(i32)) -> Look {
    let mut look = Look::Whole;
    let opened = for_each_entry(&Buf::<64>::new().text(b"/proc"), |candidate| match parent_of(candidate) {
        Ok(parent) if parent == Some(pid) => each(candidate),
        Err(errno) if !is_gone(errno) => look = Look::Blind,
        Ok(_) | Err(_) => {}
    });
    if opened.is_ok() { look } else { Look::Blind }
}

/// The same where no descriptor can be had: asks the kernel of every number whether it is a child's. This takes about a second,
/// and is the last way that there is.
fn for_each_by_number(each: &mut dyn FnMut(i32)) {
    // SAFETY: a zeroed siginfo_t is a valid value of this plain C structure.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    for pid in 1..NUMBERS {
        // SAFETY: `info` is valid for writing. No process is reaped.
        if unsafe { libc::waitid(libc::P_PID, pid.cast_unsigned(), &raw mut info, flags) } == 0 {
            each(pid);
        }
    }
}

/// Calls `each` with every process below `pid`, a parent before its children. Every parent must be about to die, so that it reaps none
/// meanwhile, or the found processes have to be looked at again. Allocates nothing.
pub(crate) fn for_each_below(pid: i32, depth: u32, each: &mut dyn FnMut(i32)) {
    let task = Buf::new().text(b"/proc/").number(pid.cast_unsigned()).text(b"/task");
    for_each_of(&task, pid, &mut |child| {
        each(child);
        if depth < DEEPEST {
            for_each_below(child, depth + 1, each);
        }
    });
}

/// Calls `each` with every child of the process `pid`, whose threads are in the directory `task`.
fn for_each_of(task: &Buf<64>, pid: i32, each: &mut dyn FnMut(i32)) -> Look {
    let mut look = Look::Unknown;
    let opened = for_each_entry(task, |tid| match for_each_of_thread(pid, tid, each) {
        Ok(()) if look == Look::Unknown => look = Look::Whole,
        Err(errno) if !is_gone(errno) => look = Look::Blind,
        Ok(()) | Err(_) => {}
    });
    if opened.is_ok() { look } else { Look::Blind }
}

/// SIGKILL for every child. Their own children become ours when they die, so this is repeated until there is none.
pub fn kill_all() {
    for_each(|pid| {
        // SAFETY: kill takes two integers; the child is unreaped, so its number is not reused.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    });
}

/// The result of a look below another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Below {
    /// No child of it lives.
    Nothing,
    /// Children of it lived, and have got SIGKILL.
    Killed,
    /// Its children cannot be seen: /proc is not there, or no descriptor is left.
    Unknown,
}

/// Most children that one look kills. The next look finds the others.
const BATCH: usize = 256;

/// SIGKILL for the children of another process that lives on and reaps them meanwhile. A subreaper gets what is below a child
/// when that dies, so this is repeated until no child lives. Needs two descriptors, and allocates nothing.
pub(crate) fn kill_children_of(parent: i32) -> Below {
    let (mut batch, mut count) = ([0; BATCH], 0);
    let mut collect = |pid| {
        if let Some(slot) = batch.get_mut(count) {
            *slot = pid;
            count += 1;
        }
    };
    let task = Buf::new().text(b"/proc/").number(parent.cast_unsigned()).text(b"/task");
    let look = match for_each_of(&task, parent, &mut collect) {
        Look::Unknown => for_each_by_parent(parent, &mut collect),
        look => look,
    };
    if look == Look::Blind {
        return Below::Unknown;
    }
    let mut found = Below::Nothing;
    for pid in batch.iter().take(count) {
        match kill_child_of(parent, *pid) {
            Ok(true) => found = Below::Killed,
            Ok(false) => {}
            Err(_) => return Below::Unknown,
        }
    }
    found
}

/// SIGKILL for one of them; whether it lived. It may be reaped at any moment, and its number be another process's. The
/// descriptor is opened first: if the number still is a child's when its parent is read, so is the descriptor.
fn kill_child_of(parent: i32, pid: i32) -> Result<bool, i32> {
    let pidfd = match crate::pidfd::open(pid) {
        Ok(pidfd) => pidfd,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::ESRCH);
            // EINVAL: the number is that of another process's thread by now.
            return if is_gone(errno) || errno == libc::EINVAL { Ok(false) } else { Err(errno) };
        }
    };
    let mut text = [0u8; STAT];
    let stat = match slurp(of_thread(pid, pid, b"stat"), &mut text) {
        Ok(n) => &text[..n],
        Err(errno) => return if is_gone(errno) { Ok(false) } else { Err(errno) },
    };
    let has_ended = comm_and_state(stat).is_none_or(|(_, state)| is_over(state)) && field(stat, THREADS) <= Some(1);
    if has_ended || field(stat, PARENT) != Some(parent) {
        return Ok(false);
    }
    // It may have been reaped just now.
    Ok(crate::pidfd::signal(&pidfd, libc::SIGKILL).is_ok())
}

/// SIGKILL for every child and for all that is below it: a child that the kernel cannot end keeps its own children from
/// becoming ours. Then the first of those that are more than a zombie, into `out`, and how many there are in all.
pub fn kill_and_survey(out: &mut [Named]) -> (usize, u32) {
    // Twice: processes that were forked during the first walk are found by the second, and then no process is left that forks.
    for _ in 0..2 {
        for_each(|child| {
            let mut kill = |pid| {
                // SAFETY: kill takes two integers. Every process that could reap this one was killed before the search.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            };
            kill(child);
            for_each_below(child, 0, &mut kill);
        });
    }
    survey(out)
}

/// Lists processes below us that are more than zombies: the first into `out`, and their number.
fn survey(out: &mut [Named]) -> (usize, u32) {
    survey_below(None, out)
}

/// The same below the process `root`, which lives; `None`: below us.
pub fn survey_below(root: Option<i32>, out: &mut [Named]) -> (usize, u32) {
    let (mut named, mut count) = (0, 0);
    let mut look = |pid| {
        let Some(found) = living(pid) else { return };
        count += 1;
        if let Some(slot) = out.get_mut(named) {
            *slot = found;
            named += 1;
        }
    };
    match root {
        Some(root) => for_each_below(root, 0, &mut look),
        None => for_each(|child| {
            look(child);
            for_each_below(child, 0, &mut look);
        }),
    }
    (named, count)
}

/// A process as it is to be named; `None` where it has ended, reaped or not.
fn living(pid: i32) -> Option<Named> {
    let mut text = [0u8; STAT];
    let n = slurp(of_thread(pid, pid, b"stat"), &mut text).ok()?;
    let (comm, state) = comm_and_state(&text[..n])?;
    // A process whose main thread alone has ended shows as a zombie too, and cannot be reaped before the others end.
    let thread = if !is_over(state) {
        pid
    } else if field(&text[..n], THREADS)? > 1 {
        busiest_thread(pid)
    } else {
        return None;
    };
    let mut found = Named { pid, comm: [0; 16], wchan: [0; 40] };
    let len = comm.len().min(16);
    found.comm[..len].copy_from_slice(&comm[..len]);
    let _nobody_knows = slurp(of_thread(pid, thread, b"wchan"), &mut found.wchan);
    Some(found)
}

/// A thread that has not ended: one that the kernel holds (state D) if there is one.
fn busiest_thread(pid: i32) -> i32 {
    let (mut found, mut held) = (pid, false);
    let task = Buf::<64>::new().text(b"/proc/").number(pid.cast_unsigned()).text(b"/task");
    let _gone = for_each_entry(&task, |tid| {
        let mut text = [0u8; STAT];
        let Ok(n) = slurp(of_thread(pid, tid, b"stat"), &mut text) else { return };
        let Some((_, state)) = comm_and_state(&text[..n]) else { return };
        if !held && !is_over(state) {
            (found, held) = (tid, state == b'D');
        }
    });
    found
}

const fn is_over(state: u8) -> bool {
    matches!(state, b'Z' | b'X')
}

fn of_thread(pid: i32, tid: i32, what: &[u8]) -> Buf<64> {
    let dir = Buf::new().text(b"/proc/").number(pid.cast_unsigned()).text(b"/task/");
    dir.number(tid.cast_unsigned()).text(b"/").text(what)
}

/// `pid (comm) S ppid …`: the name may itself hold parentheses (proc_pid_stat(5)).
pub(crate) fn comm_and_state(stat: &[u8]) -> Option<(&[u8], u8)> {
    let open = stat.iter().position(|b| *b == b'(')?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    Some((stat.get(open + 1..close)?, *stat.get(close + 2)?))
}

/// One of the numbers after the name, counted as proc_pid_stat(5) does.
fn field(stat: &[u8], number: usize) -> Option<i32> {
    let close = stat.iter().rposition(|b| *b == b')')?;
    // The state is field 3.
    let digits = stat.get(close + 2..)?.split(|b| *b == b' ').nth(number.checked_sub(3)?)?;
    Some(digits.iter().fold(0i32, |v, b| v.wrapping_mul(10).wrapping_add(i32::from(b.wrapping_sub(b'0')))))
}

fn parent_of(pid: i32) -> Result<Option<i32>, i32> {
    let mut text = [0u8; STAT];
    let n = slurp(of_thread(pid, pid, b"stat"), &mut text)?;
    Ok(field(&text[..n], PARENT))
}

fn for_each_of_thread(pid: i32, tid: i32, each: &mut dyn FnMut(i32)) -> Result<(), i32> {
    let fd = open(&of_thread(pid, tid, b"children"))?;
    let mut buf = [0u8; 4096];
    let mut number = 0i32;
    while let Ok(n @ 1..) = crate::fd::read(fd, &mut buf) {
        for b in &buf[..n] {
            if b.is_ascii_digit() {
                number = number.wrapping_mul(10).wrapping_add(i32::from(*b - b'0'));
            } else if number > 0 {
                each(number);
                number = 0;
            }
        }
    }
    close(fd);
    Ok(())
}

/// Calls `each` with every numeric name in a directory of /proc.
fn for_each_entry<const N: usize>(dir: &Buf<N>, mut each: impl FnMut(i32)) -> Result<(), i32> {
    let fd = open(dir)?;
    let mut buf = [0u8; 4096];
    loop {
        // SAFETY: `buf` is writable for its length.
        let n = unsafe { libc::syscall(libc::SYS_getdents64, fd, buf.as_mut_ptr(), buf.len()) };
        let Ok(n @ 1..) = usize::try_from(n) else { break };
        let mut at = 0;
        // linux_dirent64: ino u64, off u64, reclen u16, type u8, name (getdents(2)).
        while let Some(len) = buf[..n].get(at + 16..at + 18).map(|b| u16::from_ne_bytes([b[0], b[1]])) {
            let name = buf[..n].get(at + 19..at + usize::from(len)).unwrap_or(&[]);
            let digits = name.iter().take_while(|b| b.is_ascii_digit());
            let number = digits.fold(0i32, |v, b| v.wrapping_mul(10).wrapping_add(i32::from(*b - b'0')));
            if number > 0 {
                each(number);
            }
            at += usize::from(len).max(19);
        }
    }
    close(fd);
    Ok(())
}

fn slurp<const N: usize>(path: Buf<N>, out: &mut [u8]) -> Result<usize, i32> {
    let fd = open(&path)?;
    // A process that is gone by now has no text (ESRCH).
    let n = crate::fd::read(fd, out).unwrap_or(0);
    close(fd);
    Ok(n)
}

/// The descriptor, or an errno.
fn open<const N: usize>(path: &Buf<N>) -> Result<RawFd, i32> {
    // SAFETY: the buffer is NUL-terminated.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd >= 0 { Ok(fd) } else { Err(crate::errno::errno()) }
}

/// Whether a file of /proc cannot be opened because the process is gone, or the kernel knows no such file.
const fn is_gone(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::ESRCH)
}

fn close(fd: RawFd) {
    // SAFETY: the caller has opened it and does not use it again.
    unsafe { libc::close(fd) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_name_may_hold_parentheses() {
        let stat = b"12 (a) b) S 1 12";
        assert_eq!((comm_and_state(stat), field(stat, PARENT)), (Some((&b"a) b"[..], b'S')), Some(1)));
        assert_eq!((comm_and_state(b""), field(stat, THREADS)), (None, None));
    }

    /// A child that writes a byte when `child` has returned, and then lives until it is killed.
    fn child(child: impl FnOnce()) -> i32 {
        let (ready, notifier) = crate::fd::pipe().unwrap();
        // SAFETY: the child only makes system calls and starts a thread; it never returns.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            child();
            crate::fd::write(notifier.as_raw_fd(), b"!").unwrap_or_default();
            loop {
                // SAFETY: ends this thread alone, which no destructor belongs to; then waits for signals.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
            }
        }
        assert_eq!(crate::fd::read(ready.as_raw_fd(), &mut [0]).unwrap(), 1);
        pid
    }

    fn end(pid: i32) {
        // SAFETY: our own child, which was not reaped.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        // SAFETY: a null status is allowed.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }

    /// Looks until the main thread of a child has ended.
    fn until_zombie(pid: i32) {
        let mut text = [0u8; STAT];
        loop {
            let n = slurp(of_thread(pid, pid, b"stat"), &mut text).unwrap_or(0);
            if comm_and_state(&text[..n]).is_none_or(|(_, state)| state == b'Z') {
                return;
            }
            std::thread::yield_now();
        }
    }

    extern "C" fn sleeper(_: *mut libc::c_void) -> *mut libc::c_void {
        loop {
            // SAFETY: pause takes nothing.
            unsafe { libc::pause() };
        }
    }

    /// Keeps the process alive without its main thread.
    fn sleeper_beside() {
        let mut thread: libc::pthread_t = 0;
        // SAFETY: `sleeper` takes nothing and touches nothing.
        unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), sleeper, std::ptr::null_mut()) };
    }

    fn surveyed(pid: i32) -> Option<Named> {
        let mut named = [Named { pid: 0, comm: [0; 16], wchan: [0; 40] }; 64];
        let (n, _) = survey(&mut named);
        named[..n].iter().copied().find(|n| n.pid == pid)
    }

    #[test]
    fn a_process_without_its_main_thread_is_counted() {
        let pid = child(|| {
            sleeper_beside();
        });
        until_zombie(pid);
        let found = surveyed(pid);
        let thread = busiest_thread(pid);
        end(pid);
        assert!(found.is_some(), "one of its threads lives");
        assert_ne!(thread, pid, "and that is the one that is named");
    }

    #[test]
    fn a_zombie_is_not() {
        let pid = child(|| {});
        until_zombie(pid);
        let found = surveyed(pid);
        end(pid);
        assert!(found.is_none());
    }

    #[test]
    fn children_are_found_by_list_by_parent_and_by_number() {
        let (alive, zombie) = (child(sleeper_beside), child(|| {}));
        until_zombie(zombie);
        let (mut list, mut parent, mut number) = (Vec::new(), Vec::new(), Vec::new());
        for_each(|pid| list.push(pid));
        // SAFETY: getpid cannot fail.
        for_each_by_parent(unsafe { libc::getpid() }, &mut |pid| parent.push(pid));
        for_each_by_number(&mut |pid| number.push(pid));
        end(alive);
        end(zombie);
        // Other tests have children too.
        for found in [list, parent, number] {
            assert!(found.contains(&alive) && found.contains(&zombie), "{alive} and {zombie} of {found:?}");
        }
    }

    /// The guardian does this below an agent that lives.
    #[test]
    fn children_of_another_process_are_killed_and_it_lives() {
        let parent = child(|| {
            for _ in 0..3 {
                // SAFETY: the grandchild makes only system calls and never returns.
                if unsafe { libc::fork() } == 0 {
                    sleeper(std::ptr::null_mut());
                }
            }
            sleeper_beside();
        });
        let of_another = child(sleeper_beside);
        assert_eq!(kill_child_of(parent, of_another), Ok(false), "it is the child of another process");
        assert_eq!(kill_children_of(parent), Below::Killed);
        // Zombies remain: their parent reaps none.
        while kill_children_of(parent) != Below::Nothing {
            std::thread::yield_now();
        }
        let alive = [parent, of_another].map(|pid| living(pid).is_some());
        end(parent);
        end(of_another);
        assert_eq!(alive, [true, true]);
    }

    #[test]
    fn stopped_child_process_is_counted() {
        let (ready, notifier) = crate::fd::pipe().unwrap();
        let pid = child(|| {
            // SAFETY: the grandchild makes only system calls and never returns.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: setsid takes nothing.
                unsafe { libc::setsid() };
                sleeper(std::ptr::null_mut());
            }
            crate::fd::write(notifier.as_raw_fd(), &pid.to_ne_bytes()).unwrap_or_default();
            sleeper_beside();
        });
        let mut number = [0; 4];
        assert_eq!(crate::fd::read(ready.as_raw_fd(), &mut number).unwrap(), 4);
        let grandchild = i32::from_ne_bytes(number);
        let found = surveyed(grandchild);
        let mut below = Vec::new();
        for_each_below(pid, 0, &mut |pid| below.push(pid));
        // SAFETY: its parent has not reaped it.
        unsafe { libc::kill(grandchild, libc::SIGKILL) };
        end(pid);
        assert_eq!((found.map(|n| n.pid), below), (Some(grandchild), vec![grandchild]));
    }
}
