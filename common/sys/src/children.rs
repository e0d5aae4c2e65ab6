//! Finding and ending our own children without allocating: the guardian does it after everything else has failed.

use crate::cstr::Buf;
use std::os::fd::RawFd;

/// A process that still exists.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its process id.
    pub pid: i32,
    /// Its short name, NUL-padded.
    pub comm: [u8; 16],
    /// Where in the kernel it waits, NUL-padded.
    pub wchan: [u8; 40],
}

/// Calls `each` with every child of the calling process, zombies included.
pub fn for_each(mut each: impl FnMut(i32)) {
    // SAFETY: getpid cannot fail.
    let pid = unsafe { libc::getpid() };
    let mut known = false;
    for_each_entry(c"/proc/self/task", |tid| known |= for_each_of_thread(tid, &mut each));
    if !known {
        // A kernel without CONFIG_PROC_CHILDREN: ask every process for its parent.
        for_each_entry(c"/proc", |candidate| {
            if parent_of(candidate) == Some(pid) {
                each(candidate);
            }
        });
    }
}

/// SIGKILL for every child. Their own children become ours when they die, so this is repeated until there is none.
pub fn kill_all() {
    for_each(|pid| {
        // SAFETY: kill takes two integers; the child is unreaped, so its number is not reused.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    });
}

/// The first children that are not zombies, into `out`, and how many there are in all.
pub fn survey(out: &mut [Named]) -> (usize, u32) {
    let (mut named, mut count) = (0, 0);
    for_each(|pid| {
        let mut text = [0u8; 256];
        let n = slurp(Buf::<64>::new().text(b"/proc/").number(pid.cast_unsigned()).text(b"/stat"), &mut text);
        let Some((comm, state)) = comm_and_state(&text[..n]) else { return };
        if state == b'Z' || state == b'X' {
            return;
        }
        count += 1;
        if let Some(slot) = out.get_mut(named) {
            let mut entry = Named { pid, comm: [0; 16], wchan: [0; 40] };
            let len = comm.len().min(16);
            entry.comm[..len].copy_from_slice(&comm[..len]);
            slurp(Buf::<64>::new().text(b"/proc/").number(pid.cast_unsigned()).text(b"/wchan"), &mut entry.wchan);
            *slot = entry;
            named += 1;
        }
    });
    (named, count)
}

/// `pid (comm) S ppid …`: the name may itself hold parentheses (proc_pid_stat(5)).
pub(crate) fn comm_and_state(stat: &[u8]) -> Option<(&[u8], u8)> {
    let open = stat.iter().position(|b| *b == b'(')?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    Some((stat.get(open + 1..close)?, *stat.get(close + 2)?))
}

fn parent_of(pid: i32) -> Option<i32> {
    let mut text = [0u8; 256];
    let n = slurp(Buf::<64>::new().text(b"/proc/").number(pid.cast_unsigned()).text(b"/stat"), &mut text);
    let close = text[..n].iter().rposition(|b| *b == b')')?;
    let mut number = 0i32;
    for b in text[..n].get(close + 4..)?.iter().take_while(|b| b.is_ascii_digit()) {
        number = number.wrapping_mul(10).wrapping_add(i32::from(*b - b'0'));
    }
    Some(number)
}

fn for_each_of_thread(tid: i32, each: &mut impl FnMut(i32)) -> bool {
    let path = Buf::<64>::new().text(b"/proc/self/task/").number(tid.cast_unsigned()).text(b"/children");
    let Some(fd) = open(&path) else { return false };
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
    true
}

/// Calls `each` with every numeric name in a directory of /proc.
fn for_each_entry(dir: &std::ffi::CStr, mut each: impl FnMut(i32)) {
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(dir.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) };
    if fd < 0 {
        return;
    }
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
}

fn slurp<const N: usize>(path: Buf<N>, out: &mut [u8]) -> usize {
    let Some(fd) = open(&path) else { return 0 };
    let n = crate::fd::read(fd, out).unwrap_or(0);
    close(fd);
    n
}

fn open<const N: usize>(path: &Buf<N>) -> Option<RawFd> {
    // SAFETY: the buffer is NUL-terminated.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    (fd >= 0).then_some(fd)
}

fn close(fd: RawFd) {
    // SAFETY: the caller has opened it and does not use it again.
    unsafe { libc::close(fd) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_parentheses() {
        assert_eq!(comm_and_state(b"12 (a) b) S 1 12"), Some((&b"a) b"[..], b'S')));
        assert_eq!(comm_and_state(b""), None);
    }
}
