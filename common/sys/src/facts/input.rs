//! Whether a process waits for bytes from a pipe. The kernel shows the system call in which each thread sleeps: `proc_pid_syscall(5)`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Most threads that one look goes through. A rank with more counts as one that waits.
const MOST: usize = 4096;
/// Most descriptors of one poll(2) or select(2) that are looked at.
const DESCRIPTORS: usize = 1024;

/// A thread as a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// The thread waits for input.
    Waits,
    /// The thread does something else.
    Other,
    /// The kernel does not show it: another user's, for example.
    Unknown,
}

impl Found {
    const fn when(waits: bool) -> Self {
        if waits { Self::Waits } else { Self::Other }
    }
}

/// Whether a thread of a process, or of its descendants, waits for bytes from the pipe with this inode. A process that cannot be
/// looked into counts as one that waits, and so does a pipe that was made non-blocking: its reader need not wait.
#[must_use]
pub fn is_awaited(leader: i32, pipe: u64) -> bool {
    is_awaited_below(Path::new("/proc"), leader, pipe)
}

fn is_awaited_below(proc: &Path, leader: i32, pipe: u64) -> bool {
    if !shows(proc, leader) {
        return is_alive(leader);
    }
    let pipe = PathBuf::from(format!("pipe:[{pipe}]"));
    let (mut processes, mut threads) = (vec![leader], 0);
    while let Some(process) = processes.pop() {
        let process = proc.join(process.to_string());
        if is_nonblocking(&process, &pipe) {
            return true;
        }
        let threads_of = match fs::read_dir(process.join("task")) {
            Ok(threads_of) => threads_of,
            // No descriptor is left for a look, say.
            Err(_) if process.exists() => return true,
            Err(_) => continue,
        };
        for thread in threads_of.flatten() {
            let thread = thread.path();
            threads += 1;
            if threads > MOST || look(&thread, &pipe) != Found::Other {
                return true;
            }
            match fs::read_to_string(thread.join("children")) {
                Ok(children) => {
                    processes.extend(children.split_ascii_whitespace().filter_map(|n| n.parse::<i32>().ok()))
                }
                // A kernel without CONFIG_PROC_CHILDREN.
                Err(_) if thread.exists() => return true,
                Err(_) => {}
            }
        }
    }
    false
}

/// Whether this directory shows the process under its number here. It may be another PID namespace's, hide the process, or be no procfs.
fn shows(proc: &Path, process: i32) -> bool {
    let is_ours = fs::read_link(proc.join("self")).is_ok_and(|own| own == Path::new(&std::process::id().to_string()));
    is_ours && proc.join(process.to_string()).exists()
}

/// Whether the process exists, another user's included.
fn is_alive(process: i32) -> bool {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), None) != Err(nix::errno::Errno::ESRCH)
}

/// Whether standard input of a process is the pipe and was made non-blocking.
fn is_nonblocking(process: &Path, pipe: &Path) -> bool {
    let flags = || {
        let info = fs::read_to_string(process.join("fdinfo/0")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        i32::from_str_radix(flags.trim(), 8).ok()
    };
    leads_to(process, 0, pipe) && flags().is_some_and(|flags| flags & libc::O_NONBLOCK != 0)
}

fn leads_to(of: &Path, fd: i32, pipe: &Path) -> bool {
    fs::read_link(of.join(format!("fd/{fd}"))).is_ok_and(|target| target == pipe)
}

fn look(thread: &Path, pipe: &Path) -> Found {
    match fs::read_to_string(thread.join("syscall")) {
        Ok(text) => Call::parse(&text).map_or(Found::Other, |call| call.look(thread, pipe)),
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => {
            if error.kind() == ErrorKind::NotFound && thread.exists() { Found::Unknown } else { Found::Other }
        }
        // The kernel keeps the calls of a process that has ended from all users but root.
        Err(_) if has_ended(thread) => Found::Other,
        Err(_) => Found::Unknown,
    }
}

/// Whether a thread has given its memory back: it is a zombie, or about to be one.
fn has_ended(thread: &Path) -> bool {
    let pages = fs::read_to_string(thread.join("statm"));
    pages.is_ok_and(|text| text.split_ascii_whitespace().next() == Some("0"))
}

/// A system call in which a thread sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Call {
    number: i64,
    args: [u64; 3],
}

impl Call {
    /// `None`: the thread runs, or sleeps elsewhere.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
        let mut arg = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        Some(Self { number, args: [arg()?, arg()?, arg()?] })
    }

    fn look(self, thread: &Path, pipe: &Path) -> Found {
        let Self { number, args: [first, second, _] } = self;
        let leads = |fd: i32| leads_to(thread, fd, pipe);
        // The kernel takes a descriptor from the lower half of its register.
        let number_of = |arg: u64| i32::from_ne_bytes(u32::try_from(arg & 0xffff_ffff).unwrap_or(0).to_ne_bytes());
        let count = usize::try_from(second).unwrap_or(0).min(DESCRIPTORS);
        match number {
            libc::SYS_read | libc::SYS_readv | libc::SYS_preadv2 | libc::SYS_splice | libc::SYS_tee => {
                Found::when(leads(number_of(first)))
            }
            libc::SYS_ppoll => polled(thread, first, count, leads),
            libc::SYS_pselect6 => selected(thread, first, second, leads),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Found::when(watched(thread, number_of(first), leads)),
            // Reads of a ring are not shown.
            libc::SYS_io_uring_enter => Found::when(leads(0)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => polled(thread, first, count, leads),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => selected(thread, first, second, leads),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => Found::when(watched(thread, number_of(first), leads)),
            _ => Found::Other,
        }
    }
}

/// Whether one of the descriptors of a poll(2) is waited for.
fn polled(thread: &Path, at: u64, count: usize, leads: impl Fn(i32) -> bool) -> Found {
    const SIZE: usize = size_of::<libc::pollfd>();
    let Ok(bytes) = memory(thread, at, count * SIZE) else { return Found::Unknown };
    let mut fds = bytes.chunks_exact(SIZE).filter_map(|entry| {
        let (fd, rest) = entry.split_first_chunk::<4>()?;
        let (events, _) = rest.split_first_chunk::<2>()?;
        let reads = i16::from_ne_bytes(*events) & (libc::POLLIN | libc::POLLRDNORM) != 0;
        reads.then_some(i32::from_ne_bytes(*fd))
    });
    Found::when(fds.any(leads))
}

/// Whether one of the descriptors of a select(2) is waited for.
fn selected(thread: &Path, count: u64, at: u64, leads: impl Fn(i32) -> bool) -> Found {
    if at == 0 {
        return Found::Other;
    }
    let count = usize::try_from(count).unwrap_or(0).min(DESCRIPTORS);
    let Ok(bytes) = memory(thread, at, count.div_ceil(8)) else { return Found::Unknown };
    let bits = bytes.iter().zip(0..).flat_map(|(byte, n)| (0..8).map(move |bit| ((byte >> bit) & 1 == 1, n * 8 + bit)));
    Found::when(bits.filter_map(|(set, fd)| set.then_some(fd)).any(leads))
}

/// Whether one of the descriptors of an epoll(7) is waited for.
fn watched(thread: &Path, epoll: i32, leads: impl Fn(i32) -> bool) -> bool {
    let info = fs::read_to_string(thread.join(format!("fdinfo/{epoll}"))).unwrap_or_default();
    let mut fds =
        info.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_ascii_whitespace().next()?.parse().ok());
    fds.any(leads)
}

/// Memory of a thread.
fn memory(thread: &Path, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let number = thread.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0);
    let address = usize::try_from(at).map_err(io::Error::other)?;
    let mut bytes = vec![0u8; len];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: len };
    // SAFETY: `local` is writable for its length; `remote` names memory of the other process, which the kernel checks.
    let read = unsafe { libc::process_vm_readv(number, &raw const local, 1, &raw const remote, 1, 0) };
    if usize::try_from(read) == Ok(len) { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "processes that wait, not ranks")]
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn system_calls_are_parsed() {
        assert_eq!(
            Call::parse("0 0x3 0x7fe30ddcd000 0x20000 0x0 0x0 0x0 0x7fff 0x7fe3\n"),
            Some(Call { number: 0, args: [3, 0x7fe3_0ddc_d000, 0x20000] })
        );
        assert_eq!(["running\n", "-1 0x0 0x0\n", "", "7 0x1"].map(Call::parse), [None; 4]);
    }

    /// Waits until a process is found to wait for its input, or not to.
    fn until(child: &std::process::Child, inode: u64, waits: bool) {
        let pid = i32::try_from(child.id()).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while is_awaited(pid, inode) != waits {
            assert!(std::time::Instant::now() < until, "waits: {waits}");
            std::thread::yield_now();
        }
    }

    fn run(program: &str, args: &[&str]) -> (std::process::Child, OwnedFd, u64) {
        let (read, write) = crate::fd::pipe().unwrap();
        let inode = nix::sys::stat::fstat(&write).unwrap().st_ino;
        let child = Command::new(program).args(args).stdin(read).process_group(0).spawn().unwrap();
        (child, write, inode)
    }

    #[test]
    fn process_that_reads_polls_or_has_a_reading_child_waits_and_one_that_sleeps_does_not() {
        let mut cases = vec![("cat", vec![]), ("sh", vec!["-c", "cat; :"]), ("sh", vec!["-c", "true; read x"])];
        let poll = "import select; p = select.poll(); p.register(0, select.POLLIN); p.poll()";
        let epoll = "import select; p = select.epoll(); p.register(0, select.EPOLLIN); p.poll()";
        let thread = "import threading, sys; t = threading.Thread(target=sys.stdin.readline); t.start(); t.join()";
        let nonblocking = "import os, time; os.set_blocking(0, False); time.sleep(100)";
        if Command::new("python3").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
            let scripts = [poll, epoll, thread, nonblocking, "import select; select.select([0], [], [])"];
            cases.extend(scripts.map(|script| ("python3", vec!["-c", script])));
        }
        for (program, args) in cases {
            let (mut child, write, inode) = run(program, &args);
            until(&child, inode, true);
            assert!(!is_awaited(i32::try_from(child.id()).unwrap(), inode + 1));
            end(&mut child);
            drop(write);
        }
        // A shell that reads from another pipe waits, but not for this one.
        let (mut child, write, inode) = run("sh", &["-c", "x=$(echo ready >&2; exec sleep 100)"]);
        until(&child, inode, false);
        assert!((0..100).all(|_| !is_awaited(i32::try_from(child.id()).unwrap(), inode)));
        end(&mut child);
        drop(write);
    }

    /// The rank never got its input there.
    #[test]
    fn process_that_proc_does_not_show_waits_until_it_has_ended() {
        let (mut child, write, inode) = run("sleep", &["100"]);
        let pid = i32::try_from(child.id()).unwrap();
        let dir = std::env::temp_dir().join(format!("rlaunch-no-proc-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        assert!(is_awaited_below(&dir, pid, inode), "an empty /proc");
        std::os::unix::fs::symlink("1", dir.join("self")).unwrap();
        fs::create_dir(dir.join(pid.to_string())).unwrap();
        assert!(is_awaited_below(&dir, pid, inode), "that of another PID namespace");
        end(&mut child);
        assert!(!is_awaited_below(&dir, pid, inode));
        fs::remove_dir_all(&dir).unwrap();
        drop(write);
    }

    #[test]
    fn process_that_has_ended_is_seen_by_every_user() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        let thread = PathBuf::from(format!("/proc/{pid}/task/{pid}"));
        // The child remains a zombie.
        let flags = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
        nix::sys::wait::waitid(nix::sys::wait::Id::Pid(pid), flags).unwrap();
        assert!(has_ended(&thread));
        assert_eq!(look(&thread, Path::new("pipe:[1]")), Found::Other);
        child.wait().unwrap();
        let own = format!("/proc/self/task/{}", nix::unistd::gettid());
        assert!(!has_ended(Path::new(&own)) && !has_ended(&thread), "neither this one nor one that is not there");
    }

    fn end(child: &mut std::process::Child) {
        let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap();
        child.wait().unwrap();
    }
}
