//! Small things done to descriptors.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

/// Writes to a pipe of which this is the end for reading, as much as it has room for at once.
///
/// # Errors
/// The descriptor is no pipe that can be opened, or the pipe has no room.
pub fn write_to_pipe(reading_end: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let path = format!("/proc/self/fd/{}", reading_end.as_fd().as_raw_fd());
    // A description of its own: that of the processes that write there stays as it is.
    let mut pipe = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    pipe.write(bytes)
}

/// Two connected unix stream sockets, closed on exec.
///
/// # Errors
/// No descriptor left.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    Ok(socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?)
}

/// A pipe, closed on exec.
///
/// # Errors
/// No descriptor left.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?)
}

/// /dev/null for reading and writing, closed on exec.
///
/// # Errors
/// It does not exist, or no descriptor is left.
pub fn dev_null() -> io::Result<OwnedFd> {
    use nix::fcntl::{OFlag, open};
    Ok(open(c"/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty())?)
}

/// Makes a descriptor of our own non-blocking. Never one that we share with the shell: the flag belongs to the open file.
///
/// # Errors
/// As `fcntl(2)`.
pub fn set_nonblocking(fd: &impl AsFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(fd.as_fd(), FcntlArg::F_GETFL)?);
    fcntl(fd.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Lets go of the caller's standard streams by pointing 0-2 at /dev/null, so that a reader of our output sees its end
/// when the launcher ends, not when the last of ours does.
///
/// # Errors
/// As `open(2)` and `dup2(2)`.
pub fn release_stdio(which: &[RawFd]) -> io::Result<()> {
    let null = dev_null()?;
    for fd in which {
        // SAFETY: both are descriptor numbers; 0-2 have no owner in this process.
        if unsafe { libc::dup2(null.as_raw_fd(), *fd) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes over a descriptor that the caller left open under a number, such as `fd:3`, as a copy of our own. A descriptor that is closed on
/// exec is ours, however low its number: a caller's would have been closed before we came.
///
/// # Errors
/// The caller has not opened it.
pub fn inherited(raw: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD reads no memory of ours; a number that is not open fails with EBADF.
    let flags = unsafe { libc::fcntl(raw, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    duplicate(raw)
}

/// Makes room for this many descriptors, or as many as the limit allows, by means of one that is there. The kernel's table grows by
/// doubling. Where threads share it, each time waits until every processor has been through the scheduler (`synchronize_rcu`): some 10 ms
/// in which a thread that accepts a connection, or makes a rank's pipes, is blocked. For a single thread nothing waits.
pub fn make_room(by: &impl AsFd, count: RawFd) {
    use nix::sys::resource::{Resource, getrlimit};
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    let last = RawFd::try_from(most).unwrap_or(RawFd::MAX).min(count).saturating_sub(1);
    // Where there is none it grows later.
    let _grown = nix::fcntl::fcntl(by.as_fd(), nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(last)).map(|fd| {
        // SAFETY: the kernel has just made this descriptor for us.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    });
}

/// A copy of a descriptor of ours, or of one of 0-2.
///
/// # Errors
/// It is not open.
pub fn duplicate(raw: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl with F_DUPFD_CLOEXEC reads no memory of ours; a number that is not open fails with EBADF.
    let fd = unsafe { libc::fcntl(raw, libc::F_DUPFD_CLOEXEC, 3) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A standard stream as a descriptor of our own, to be made non-blocking: a pipe is opened anew, so that no other holder is affected (the
/// flag belongs to the open file). A socket cannot be; then it is a copy.
///
/// # Errors
/// It is not open.
pub fn half(raw: RawFd) -> io::Result<OwnedFd> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
    let copy = duplicate(raw)?;
    let mode = OFlag::from_bits_retain(fcntl(&copy, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE;
    let path = format!("/proc/self/fd/{raw}");
    let stat = nix::sys::stat::fstat(&copy)?;
    if stat.st_mode & libc::S_IFMT == libc::S_IFIFO {
        // A process that may not open it anew, after a change of users, shares the flag after all.
        return Ok(open(path.as_str(), mode | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty()).unwrap_or(copy));
    }
    Ok(copy)
}

/// Makes `to`, a number that this process owns, another name of the open file behind `from`.
///
/// # Errors
/// As `dup3(2)`.
pub(crate) fn replace(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: two numbers; the caller owns `to` and means to lose what it led to.
    if unsafe { libc::dup3(from, to, libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A read; 0 is the end.
///
/// # Errors
/// As `read(2)`, `EINTR` included.
pub fn read(fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buf` is writable for its length.
    let n = unsafe { libc::read(fd, buf.as_mut_ptr().cast(), buf.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Reads exactly as many bytes as there is room for, and no more: the next bytes are for another reader. Waits for `time` at most before
/// each read, if the descriptor can be waited for.
///
/// # Errors
/// The end came first, or the time passed; or as `read(2)`.
pub fn read_exactly(raw: RawFd, buf: &mut [u8], time: Duration) -> io::Result<()> {
    let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    let mut at = 0;
    while at < buf.len() {
        let mut fds = libc::pollfd { fd: raw, events: libc::POLLIN, revents: 0 };
        // SAFETY: `fds` is one valid pollfd.
        if unsafe { libc::poll(&raw mut fds, 1, millis) } == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match read(raw, &mut buf[at..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A read of at most `max` bytes, appended to `buf` without clearing its memory first; 0 is the end.
///
/// # Errors
/// As `read(2)`, `EINTR` included.
pub fn read_onto(fd: RawFd, buf: &mut Vec<u8>, max: usize) -> io::Result<usize> {
    buf.reserve(max);
    let len = buf.len();
    let spare = buf.spare_capacity_mut();
    // SAFETY: the spare capacity is writable, and `reserve` made it at least `max` long.
    let n = unsafe { libc::read(fd, spare.as_mut_ptr().cast(), max) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written `n` bytes behind `len`.
    unsafe { buf.set_len(len + n) };
    Ok(n)
}

/// A write.
///
/// # Errors
/// As `write(2)`, `EINTR` included.
pub fn write(fd: RawFd, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: `buf` is readable for its length.
    let n = unsafe { libc::write(fd, buf.as_ptr().cast(), buf.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// A gathering write.
///
/// # Errors
/// As `writev(2)`, `EINTR` included.
pub fn writev(fd: RawFd, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let count = i32::try_from(bufs.len().min(1024)).unwrap_or(1024);
    // SAFETY: IoSlice is guaranteed to have the layout of iovec, and each of them is readable for its length.
    let n = unsafe { libc::writev(fd, bufs.as_ptr().cast(), count) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// A gathering write of the bytes that the kernel takes without waiting, whether or not the descriptor is non-blocking.
///
/// # Errors
/// `EAGAIN`: it takes nothing now. `EOPNOTSUPP`: what it leads to cannot say so (files, terminals; pipes before Linux 6.4).
/// Otherwise as `writev(2)`.
pub fn writev_now(fd: RawFd, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let count = i32::try_from(bufs.len().min(1024)).unwrap_or(1024);
    // SAFETY: as in `writev`; the offset -1 stands for the file's own.
    let n = unsafe { libc::pwritev2(fd, bufs.as_ptr().cast(), count, -1, libc::RWF_NOWAIT) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// The kind of a descriptor, as far as it matters to its reader or writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// /dev/null.
    Null,
    /// A terminal.
    Terminal,
    /// A pipe, a socket, another character device: can be waited for.
    Stream,
    /// A regular file, a directory, a block device: always ready.
    File,
}

/// Returns the kind of descriptor `raw`.
///
/// # Errors
/// It is not open.
pub fn kind(raw: RawFd) -> io::Result<Kind> {
    // SAFETY: a zeroed stat is a valid value of this plain C structure.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `st` is a valid place for one stat structure.
    if unsafe { libc::fstat(raw, &raw mut st) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(match st.st_mode & libc::S_IFMT {
        libc::S_IFCHR if st.st_rdev == libc::makedev(1, 3) => Kind::Null,
        libc::S_IFCHR if crate::tty::is_terminal(raw) => Kind::Terminal,
        libc::S_IFCHR | libc::S_IFIFO | libc::S_IFSOCK => Kind::Stream,
        _ => Kind::File,
    })
}

/// Whether two descriptors lead to the same file, pipe, socket or terminal.
#[must_use]
pub fn is_same(a: RawFd, b: RawFd) -> bool {
    let id = |raw: RawFd| {
        // SAFETY: a zeroed stat is a valid value of this plain C structure.
        let mut st: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `st` is a valid place for one stat structure.
        (unsafe { libc::fstat(raw, &raw mut st) } == 0).then_some((st.st_dev, st.st_ino))
    };
    id(a).is_some_and(|a| id(b) == Some(a))
}

/// Whether a descriptor is open for writing. One of 0-2 that was closed at the start is not: see `origin::capture`.
#[must_use]
pub fn is_writable(raw: RawFd) -> bool {
    // SAFETY: fcntl with F_GETFL takes integers only.
    let flags = unsafe { libc::fcntl(raw, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Waits until a descriptor that another process made non-blocking can be written.
pub fn wait_writable(raw: RawFd) {
    wait(raw, libc::POLLOUT);
}

/// Waits until a descriptor that another process made non-blocking can be read.
pub fn wait_readable(raw: RawFd) {
    wait(raw, libc::POLLIN);
}

fn wait(raw: RawFd, events: i16) {
    let mut fds = libc::pollfd { fd: raw, events, revents: 0 };
    // SAFETY: `fds` is one valid pollfd. An interruption only makes the caller try again.
    unsafe { libc::poll(&raw mut fds, 1, -1) };
}

/// Whether `fd` has something to read, or has ended, right now.
#[must_use]
pub fn readable_now(fd: &impl AsFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(n) if n > 0)
}

/// Whether `raw` takes something right now, or would fail.
#[must_use]
pub fn writable_now(raw: RawFd) -> bool {
    let mut fds = libc::pollfd { fd: raw, events: libc::POLLOUT, revents: 0 };
    // SAFETY: `fds` is one valid pollfd.
    unsafe { libc::poll(&raw mut fds, 1, 0) > 0 }
}

/// The inode of a descriptor; 0 where the kernel does not report it.
#[must_use]
pub fn inode(fd: &impl AsFd) -> u64 {
    nix::sys::stat::fstat(fd).map_or(0, |stat| stat.st_ino)
}

/// How many bytes a pipe holds; 0 also where it cannot be asked.
#[must_use]
pub fn unread(pipe: &impl AsFd) -> usize {
    let mut n: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, to a valid place.
    let asked = unsafe { libc::ioctl(pipe.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut n) };
    if asked == 0 { usize::try_from(n).unwrap_or(0) } else { 0 }
}

/// Sleeps until one of these has something to read or has ended, or for `time`; `None`: without a limit.
pub fn wait_for_any(fds: &[BorrowedFd<'_>], time: Option<Duration>) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    // The kernel counts whole milliseconds: a time that is rounded down would end early, and callers would spin until their deadline.
    let up = Duration::from_nanos(999_999);
    let whole = |time: Duration| PollTimeout::try_from(time.saturating_add(up)).unwrap_or(PollTimeout::MAX);
    // An interrupted caller only looks sooner.
    let _sooner = poll(&mut fds, time.map_or(PollTimeout::NONE, whole));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_a_pipe_by_its_end_for_reading() {
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(write_to_pipe(&reader, b"words\n").unwrap(), 6);
        assert_eq!(unread(&reader), 6);
        assert!(write_to_pipe(&std::fs::File::open("/").unwrap(), b"x").is_err());
    }

    #[test]
    fn wait_ends_at_once_for_a_readable_descriptor_and_else_not_before_its_time() {
        let (reader, _writer) = io::pipe().unwrap();
        for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(1_900)] {
            let begin = std::time::Instant::now();
            wait_for_any(&[reader.as_fd()], Some(time));
            assert!(begin.elapsed() >= time, "{time:?}");
        }
        write_to_pipe(&reader, b"x").unwrap();
        wait_for_any(&[reader.as_fd()], Some(Duration::MAX));
        assert!(readable_now(&reader));
    }

    #[test]
    fn there_is_room_and_nothing_is_left_open() {
        let field = |file: &str, name: &str| {
            let text = std::fs::read_to_string(file).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
            line.trim_start_matches(':').split_whitespace().next().unwrap().parse::<RawFd>().unwrap()
        };
        let null = dev_null().unwrap();
        let limit = field("/proc/self/limits", "Max open files");
        // A number that no other test uses, all of which run side by side.
        let count = limit.min(3333);
        make_room(&null, count);
        assert!(field("/proc/self/status", "FDSize") >= count);
        assert!(!std::path::Path::new(&format!("/proc/self/fd/{}", count - 1)).exists());
    }
}
