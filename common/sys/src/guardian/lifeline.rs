//! The stream between launcher and guardian: its end is a message in itself, in both directions.
//!
//! The launcher never writes. It shuts its half when everything is to be ended without the agent, and the kernel does the same when the
//! launcher is gone. The guardian writes twice: first the agent's pidfd, so that the launcher can wake a stopped agent, and at its end
//! the [`Record`].
//!
//! The launcher is the guardian's parent, and can wait for it before it ends itself. Where process 1 does not reap, as in many a
//! container, a guardian left to it would stay a zombie for good.

use super::record::{RECORD, Record};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The byte that the agent's pidfd travels with; no record begins with it.
const HANDOVER: u8 = 1;

/// A control message with one descriptor, laid out as in cmsg(3).
#[repr(C)]
struct Rights {
    header: libc::cmsghdr,
    fd: RawFd,
}

impl Rights {
    /// The length of the message without what pads it.
    const LEN: usize = std::mem::offset_of!(Self, fd) + size_of::<RawFd>();

    const fn new(fd: RawFd) -> Self {
        let header = libc::cmsghdr { cmsg_len: Self::LEN, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
        Self { header, fd }
    }
}

/// A message of the bytes in `iov`, with `rights`.
fn message(iov: &mut libc::iovec, rights: &mut Rights) -> libc::msghdr {
    // SAFETY: a zeroed msghdr is a valid value of this plain C structure.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov;
    msg.msg_iovlen = 1;
    msg.msg_control = (&raw mut *rights).cast();
    msg.msg_controllen = size_of::<Rights>();
    msg
}

/// Gives the launcher a descriptor for the agent. Allocates nothing, and does not wait.
pub(super) fn hand_over(lifeline: RawFd, agent: RawFd) {
    let (mut byte, mut rights) = ([HANDOVER], Rights::new(agent));
    let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let msg = message(&mut iov, &mut rights);
    // SAFETY: `msg` and all that it points to live until the call returns.
    unsafe { libc::sendmsg(lifeline, &raw const msg, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
}

/// A message of the guardian.
#[derive(Debug)]
pub enum Word {
    /// The agent, which only the guardian can name safely: its number may belong to another process by now.
    Agent(OwnedFd),
    /// The processes that it could not end: its last message.
    Record(Record),
    /// The guardian has ended, without a record.
    End,
}

/// The launcher's end. Dropped, it has the guardian end everything, and reaps it, if that does not take long.
#[derive(Debug)]
pub struct Lifeline {
    fd: OwnedFd,
    /// The bytes of the record so far.
    record: Vec<u8>,
    /// The guardian, as long as it was not reaped.
    guardian: Option<i32>,
}

/// Time that a guardian may take to end once it has nothing to look after. Removing what it has to remove can take for ever, on a file
/// system that does not answer.
const PATIENCE_MS: i32 = 250;

/// How long it may take to see that the agent has ended in peace, before it is asked to end what there is.
const PEACE_MS: i32 = 50;

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.shut();
        self.reap(PATIENCE_MS);
    }
}

impl AsFd for Lifeline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Lifeline {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Lifeline {
    /// Takes the launcher's end of the stream, and the guardian if that is our child.
    #[must_use]
    pub const fn new(fd: OwnedFd, guardian: Option<i32>) -> Self {
        Self { fd, record: Vec::new(), guardian }
    }

    /// Asks the guardian to end everything and to leave its record, which can still be read. A guardian that was stopped is woken.
    pub fn shut(&self) {
        if let Some(guardian) = self.guardian {
            // SAFETY: kill takes two integers. Our child is unreaped, so its number is not reused.
            unsafe { libc::kill(guardian, libc::SIGCONT) };
        }
        // SAFETY: shutdown takes two integers. Where the guardian is gone there is nothing to shut.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_WR) };
    }

    /// The next word, without waiting.
    ///
    /// # Errors
    /// `WouldBlock`: nothing more for now.
    pub fn hear(&mut self) -> io::Result<Word> {
        loop {
            let (n, agent) = match self.receive() {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(_) => return Ok(Word::End),
            };
            if n == 0 {
                return Ok(Word::End);
            }
            // The kernel never glues bytes with a descriptor to those that follow (unix(7)).
            if self.record == [HANDOVER] {
                self.record.clear();
                match agent {
                    Some(agent) => return Ok(Word::Agent(agent)),
                    // We had no descriptor left to take it.
                    None => continue,
                }
            }
            if let Some(bytes) = self.record.first_chunk() {
                return Ok(Record::parse(bytes).map_or(Word::End, Word::Record));
            }
        }
    }

    /// The agent has said its last word: the guardian ends with it, and is reaped.
    pub fn part(mut self) {
        self.reap(PEACE_MS);
    }

    fn reap(&mut self, patience: i32) {
        let Some(guardian) = self.guardian else { return };
        let Ok(end) = crate::pidfd::open(guardian) else { return };
        let mut fds = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `fds` is one valid pollfd. All signals are blocked, so it is not interrupted.
        unsafe { libc::poll(&raw mut fds, 1, patience) };
        if !matches!(crate::pidfd::ended(&end, true), Ok(None)) {
            self.guardian = None;
        }
    }

    fn receive(&mut self) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut bytes = [0u8; RECORD];
        let mut rights = Rights::new(-1);
        let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: RECORD - self.record.len() };
        let mut msg = message(&mut iov, &mut rights);
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: `msg` and all that it points to are writable and live until the call returns.
        let n = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut msg, flags) };
        let got = msg.msg_controllen;
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        self.record.extend_from_slice(bytes.get(..n).unwrap_or_default());
        if got < Rights::LEN || rights.header.cmsg_type != libc::SCM_RIGHTS || rights.header.cmsg_len != Rights::LEN {
            return Ok((n, None));
        }
        // SAFETY: the control message holds one descriptor, which the kernel has just made for us.
        Ok((n, Some(unsafe { OwnedFd::from_raw_fd(rights.fd) })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::{readable_now, socket_pair};
    use crate::guardian::record::Words;

    fn pair() -> (Lifeline, OwnedFd) {
        let (ours, guardians) = socket_pair().unwrap();
        (Lifeline::new(ours, None), guardians)
    }

    fn record(bytes: &mut [u8; RECORD], left: u32) {
        crate::guardian::record::write(Words { left, expired: false, named: &[] }, bytes);
    }

    fn send(to: &OwnedFd, bytes: &[u8]) {
        assert_eq!(crate::fd::write(to.as_raw_fd(), bytes).unwrap(), bytes.len());
    }

    #[test]
    fn first_the_agent_then_the_record_then_the_end() {
        let (mut lifeline, guardian) = pair();
        assert_eq!(lifeline.hear().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let (read, write) = crate::fd::pipe().unwrap();
        hand_over(guardian.as_raw_fd(), write.as_raw_fd());
        drop(write);
        let mut bytes = [0; RECORD];
        record(&mut bytes, 3);
        // In parts, and directly after the descriptor.
        send(&guardian, &bytes[..5]);
        let Word::Agent(agent) = lifeline.hear().unwrap() else { panic!("no descriptor") };
        assert!(!readable_now(&read), "the descriptor that came is the one that was sent");
        drop(agent);
        assert!(readable_now(&read), "and nobody else holds it");
        assert_eq!(lifeline.hear().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        send(&guardian, &bytes[5..]);
        let Word::Record(record) = lifeline.hear().unwrap() else { panic!("no record") };
        assert_eq!(record.left, 3);
        drop(guardian);
        assert!(matches!(lifeline.hear().unwrap(), Word::End));
    }

    /// Each job left a zombie where process 1 does not reap.
    #[test]
    fn the_guardian_is_reaped_with_the_lifeline() {
        let (ours, guardians) = socket_pair().unwrap();
        // SAFETY: the child makes only system calls, and exits.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            drop(ours);
            // SAFETY: alarm takes an integer.
            unsafe { libc::alarm(20) };
            let mut fds = libc::pollfd { fd: guardians.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
            // SAFETY: `fds` is one valid pollfd.
            unsafe { libc::poll(&raw mut fds, 1, -1) };
            crate::origin::exit_now(0);
        }
        drop(Lifeline::new(ours, Some(pid)));
        // SAFETY: a null status is allowed.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) }, -1, "it is no child any more");
    }

    #[test]
    fn a_shut_lifeline_can_still_be_read() {
        let (mut lifeline, guardian) = pair();
        lifeline.shut();
        assert!(readable_now(&guardian), "the guardian sees it");
        let mut bytes = [0; RECORD];
        record(&mut bytes, 0);
        send(&guardian, &bytes);
        assert!(matches!(lifeline.hear().unwrap(), Word::Record(Record { left: 0, .. })));
    }
}
