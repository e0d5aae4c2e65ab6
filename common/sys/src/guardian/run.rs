//! The guardian's only loop: wait until the launcher or the agent is gone, then end everything and count.
//!
//! The agent ends everything too when the launcher is gone. If one of the two is killed in mid-work, the other one finishes. So
//! the guardian kills what is below the agent, and the agent itself last, when it does not exit by itself.

use super::record::{self, RECORD, Words};
use super::{LastWordsSeal, Post, Report};
use crate::children::{self, Below, Named};
use crate::errno::errno;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};

/// How long the guardian tries before it names what the kernel cannot end (state D).
const PATIENCE_MS: u64 = 3_000;
/// How much of that is left at least when the agent is killed, too.
const WITHOUT_AGENT_MS: u64 = 2_000;
/// How long an agent with no living child may take to exit by itself, once the launcher is gone.
const LEAVE_MS: u64 = 500;
/// More than any round of killing and reaping takes, if it is not held up.
const STEP_NS: u64 = 250_000_000;

/// How often the guardian looks for the agent's end while no descriptor can be had that would show it.
const BLIND_MS: i32 = 100;
/// How long after SIGTERM, which the agent gets too, its word about the end of the lifeline may take.
const WORD_NS: u64 = 200_000_000;
/// How long a connection that takes nothing more may delay the record.
const REPORT_MS: i32 = 2_000;

pub(super) fn run(agent: i32, post: &Post) -> ! {
    // SAFETY: the name is a C string of at most 15 characters.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"rlaunch-guard".as_ptr()) };
    // SAFETY: prctl with PR_SET_DUMPABLE takes integers only.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    let end = wait_for_an_end(agent, post);
    if ended_clean(agent) {
        go(post, 0);
    }
    end_everything(agent, post, end)
}

/// The event that has ended the guardian's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The agent's end.
    Agent,
    /// The launcher lives, and has shut the lifeline: the agent does not answer.
    Severed,
    /// The launcher or the connection to it is gone.
    Launcher,
    /// The lease was not renewed in time.
    Lease,
}

/// The time that ranks have after the connection has ended, if their host shuts down.
#[derive(Default)]
struct Spared {
    until: u64,
    /// The lifeline has ended.
    is_cut: bool,
}

impl Spared {
    /// Whether the lifeline has ended, and the time too.
    fn is_over(&self) -> bool {
        self.is_cut && crate::clock::boottime() >= self.until
    }

    /// The time for poll. `other`: without an end of the lifeline.
    fn patience(&self, other: i32) -> i32 {
        if !self.is_cut {
            return other;
        }
        let left = self.until.saturating_sub(crate::clock::boottime()).div_ceil(1_000_000);
        let left = i32::try_from(left).unwrap_or(i32::MAX);
        if other < 0 { left } else { left.min(other) }
    }
}

/// A reader of the caller's output must not wait for the end of the guardian. It uses none of 0-2 itself, so they may as well be closed
/// where /dev/null cannot be opened.
pub(super) fn let_go_of_stdio() {
    if crate::fd::release_stdio(&[0, 1, 2]).is_err() {
        // SAFETY: 0-2 have no owner in this process.
        unsafe { libc::close_range(0, 2, 0) };
    }
}

/// Returns when the agent has ended, the lease has expired, or the launcher is gone or has shut the lifeline. A shut lifeline
/// asks for an end without the agent. Nothing is read from it. Hands the agent's descriptor to the launcher, as soon as there
/// is one.
fn wait_for_an_end(agent: i32, post: &Post) -> End {
    let watched = |fd, events| libc::pollfd { fd, events, revents: 0 };
    let shutdown = if post.lease.is_none() { super::lease::shutdown_signal() } else { None };
    let own = shutdown.as_ref().map_or(-1, |signal| signal.as_fd().as_raw_fd());
    let (mut line, timer, signals) = post.lease.as_ref().map_or((-1, -1, own), super::lease::Watch::numbers);
    let mut agent_fd = None;
    let mut spared = Spared::default();
    loop {
        if agent_fd.is_none() {
            agent_fd = crate::pidfd::open(agent).ok();
            if let (Some(agent_fd), Report::Lifeline) = (&agent_fd, post.report) {
                // The launcher does without if this fails.
                super::lifeline::hand_over(post.lifeline, agent_fd.as_raw_fd());
            }
        }
        // With a negative number nothing is waited for.
        let fd = agent_fd.as_ref().map_or(-1, |fd| fd.as_raw_fd());
        let mut fds = [
            watched(fd, libc::POLLIN),
            watched(if spared.is_cut { -1 } else { post.lifeline }, libc::POLLRDHUP),
            watched(signals, libc::POLLIN),
            watched(timer, libc::POLLIN),
            watched(line, libc::POLLIN),
        ];
        // poll(2) takes no more entries than descriptors may be open.
        let count = if post.lease.is_some() { 5 } else { 2 + libc::nfds_t::from(shutdown.is_some()) };
        let time = spared.patience(if agent_fd.is_some() { -1 } else { BLIND_MS });
        // SAFETY: `fds` are at least `count` valid pollfds. All signals are blocked, so it is not interrupted.
        let n = unsafe { libc::poll(fds.as_mut_ptr(), count, time) };
        if (n < 0 && errno() != libc::EINTR) || (n == 0 && has_ended(agent)) {
            return End::Agent;
        }
        let [agent_end, lifeline, signals, timer, renewal] = fds;
        if n > 0 && signals.revents != 0 && shutdown.as_ref().is_some_and(|signal| signal.next().is_some()) {
            // This host shuts down: for the agent, its own SIGTERM is a warning.
            let _is_sent = agent_fd.as_ref().map(|agent| crate::pidfd::signal(agent, crate::signals::TERM));
        }
        if n > 0 && signals.revents != 0 && post.lease.as_ref().is_some_and(super::lease::Watch::pass_on) {
            spared.until = spared.until.max(crate::clock::boottime() + WORD_NS);
        }
        if n > 0 && renewal.revents != 0 {
            // A renewal that came in time counts, also if we were late to look.
            if post.lease.as_ref().is_some_and(super::lease::Watch::renew) {
                spared.until = spared.until.max(post.lease.as_ref().map_or(0, super::lease::Watch::spared_until));
                continue;
            }
            // The agent has closed its end; its own end is the next event.
            line = -1;
        }
        if n > 0 && agent_end.revents != 0 {
            return End::Agent;
        }
        if n > 0 && lifeline.revents != 0 {
            // A half that was shut shows as RDHUP alone (poll(2)). A pipe, as sshd gives it, cannot be shut by halves. On TCP the end
            // of the launcher looks the same, and an agent that can still clean up must not be killed.
            let is_shut = lifeline.revents & libc::POLLHUP == 0 && !post.report.is_tcp();
            if is_shut {
                return End::Severed;
            }
            spared.is_cut = true;
            let hold = post.lease.as_ref().map_or(0, super::lease::Watch::hold_after_cut);
            spared.until = spared.until.max(crate::clock::boottime().saturating_add(hold));
        }
        if spared.is_over() {
            return End::Launcher;
        }
        if n > 0 && timer.revents != 0 {
            return End::Lease;
        }
    }
}

/// Whether the agent has ended, without reaping it.
fn has_ended(agent: i32) -> bool {
    // SAFETY: a zeroed siginfo_t is a valid value of this plain C structure.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is valid for writing.
    let rc = unsafe { libc::waitid(libc::P_PID, agent.cast_unsigned(), &raw mut info, flags) };
    // SAFETY: waitid has filled the child fields, or left si_pid zero where nothing has ended.
    rc < 0 || unsafe { info.si_pid() } != 0
}

/// The agent exited with 0, its word that it has counted and nothing is left, and the kernel agrees.
fn ended_clean(agent: i32) -> bool {
    let mut status = 0;
    // SAFETY: `status` is valid for writing.
    let reaped = unsafe { libc::waitpid(agent, &raw mut status, libc::WNOHANG) };
    reaped == agent && status == 0 && reap_all()
}

/// Reaps all ended processes. True if no child exists any more.
fn reap_all() -> bool {
    loop {
        // SAFETY: a null status is allowed.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
            0 => return false,
            n if n < 0 => return errno() == libc::ECHILD,
            _ => {}
        }
    }
}

/// Kills and reaps until there is no child, then reports the count to the launcher. The agent is one of the children, and
/// SIGKILL ends it also where it was stopped. When it dies, its children become ours, because we are a subreaper.
fn end_everything(agent: i32, post: &Post, end: End) -> ! {
    let expired = end == End::Lease;
    make_room(post);
    let mut patience = Patience::new(PATIENCE_MS, crate::clock::boottime());
    if end != End::Agent && end_below(agent, end, &mut patience) && end != End::Severed {
        // The agent would have removed it, and we may be killed too. A launcher that lives removes it itself.
        post.temp_files.iter().for_each(super::TempFiles::sweep);
    }
    let mut wait_ns = 200_000;
    loop {
        children::kill_all();
        if reap_all() {
            leave(post, Words { left: 0, expired, named: &[] });
        }
        if patience.is_out(crate::clock::boottime()) {
            let mut named = [Named { pid: 0, comm: [0; 16], wchan: [0; 40] }; 16];
            let (n, count) = children::kill_and_survey(&mut named);
            // At least one process is left, also where /proc does not show it.
            leave(post, Words { left: count.max(1), expired, named: &named[..n] });
        }
        wait_for_child(wait_ns);
        // A child that forks faster than it is found gets the whole CPU's attention at first, less later.
        wait_ns = (wait_ns * 2).min(20_000_000);
    }
}

/// Ends what is below the agent, which does the same if it can. Returns when the agent has ended, or when it has to be killed:
/// nothing below it lives and it stays (true), or it keeps what cannot be ended otherwise.
fn end_below(agent: i32, end: End, patience: &mut Patience) -> bool {
    if has_ended(agent) {
        return false;
    }
    // SAFETY: kill takes two integers; the agent is our child, and nobody has reaped it.
    unsafe { libc::kill(agent, libc::SIGCONT) };
    // An agent that the launcher has given up is not waited for.
    let leave_ms = if end == End::Severed { 0 } else { LEAVE_MS };
    let mut leaving = Patience::new(leave_ms, crate::clock::boottime());
    let mut wait_ns = 200_000;
    while !has_ended(agent) {
        // A process that has lost its parent while the agent is no subreaper is our child already.
        children::for_each(|pid| {
            if pid != agent {
                // SAFETY: kill takes two integers; the child is unreaped, so its number is not reused.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        });
        let now = crate::clock::boottime();
        if patience.is_out(now) || patience.left <= WITHOUT_AGENT_MS * 1_000_000 {
            return false;
        }
        match children::kill_children_of(agent) {
            Below::Unknown => return false,
            Below::Nothing if leaving.is_out(now) => return true,
            Below::Nothing => {}
            Below::Killed => leaving = Patience::new(leave_ms, now),
        }
        wait_for_child(wait_ns);
        wait_ns = (wait_ns * 2).min(20_000_000);
    }
    false
}

/// Closes what is of no use any more: /proc is read through two descriptors, and perhaps no others can be had.
fn make_room(post: &Post) {
    let unused: &[RawFd] = match post.report {
        Report::Lifeline => &[0, 1, 2],
        // The launcher's end was seen on stdin.
        Report::Frame { .. } => &[0, 2],
    };
    for number in unused {
        // SAFETY: 0-2 have no owner in this process, which reads and writes none of these any more.
        unsafe { libc::close(*number) };
    }
}

/// The rest of the time after which existing processes are named. A gap is time in which we, or the whole host, stood still, and those
/// whom we kill too: it costs one step, however long it was.
struct Patience {
    left: u64,
    looked: u64,
}

impl Patience {
    const fn new(ms: u64, now: u64) -> Self {
        Self { left: ms * 1_000_000, looked: now }
    }

    fn is_out(&mut self, now: u64) -> bool {
        let ran = now.saturating_sub(self.looked).min(STEP_NS);
        self.left = self.left.saturating_sub(ran);
        self.looked = now;
        self.left == 0
    }
}

fn wait_for_child(ns: i64) {
    // SAFETY: a zeroed sigset_t is a valid (empty) set on Linux.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid set.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: set and timeout are valid; a null siginfo is allowed. SIGCHLD is blocked and its disposition the default.
    unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const timeout) };
}

fn leave(post: &Post, words: Words<'_>) -> ! {
    let mut bytes = [0u8; RECORD];
    record::write(words, &mut bytes);
    match post.report {
        // SAFETY: `bytes` is readable for its length. The reader may be gone: SIGPIPE is blocked.
        Report::Lifeline => unsafe {
            libc::send(post.lifeline, bytes.as_ptr().cast(), RECORD, libc::MSG_NOSIGNAL);
        },
        Report::Frame { fd, node, seal } => {
            let frame = record::frame(node, &bytes);
            append(fd, &frame);
            if let Some(LastWordsSeal { key, tag }) = seal {
                append(fd, &tag(&key, &frame));
            }
        }
    }
    go(post, if words.left == 0 { 0 } else { 1 });
}

/// The last act: a file system that does not answer delays only us.
fn go(post: &Post, code: u8) -> ! {
    post.temp_files.iter().for_each(super::TempFiles::sweep);
    if let Report::Frame { fd, .. } = post.report
        && post.report.is_tcp()
    {
        close_in_peace(fd);
    }
    crate::origin::exit_now(code)
}

/// Ends a TCP stream so that nothing of it is lost. A socket that is closed with unread bytes is reset, and the launcher would not get
/// the last frames (RFC 2525, section 2.17). So what the launcher still sends is read until it closes, for a while.
fn close_in_peace(fd: RawFd) {
    // SAFETY: shutdown takes integers only.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
    let until = crate::clock::boottime() + u64::from(REPORT_MS.unsigned_abs()) * 1_000_000;
    let mut bytes = [0; 4096];
    loop {
        let mut fds = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: `fds` is one valid pollfd.
        let ready = unsafe { libc::poll(&raw mut fds, 1, REPORT_MS) };
        if ready <= 0 || crate::clock::boottime() > until || !matches!(crate::fd::read(fd, &mut bytes), Ok(1..)) {
            return;
        }
    }
}

/// Writes a frame after those of the agent, which is dead. A partition must not hold us: what is not taken in time is lost.
fn append(fd: RawFd, frame: &[u8]) {
    let until = crate::clock::boottime() + u64::from(REPORT_MS.unsigned_abs()) * 1_000_000;
    let mut at = 0;
    while let Some(rest @ [_, ..]) = frame.get(at..) {
        let mut fds = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        // SAFETY: `fds` is one valid pollfd.
        let ready = unsafe { libc::poll(&raw mut fds, 1, REPORT_MS) };
        if ready <= 0 || crate::clock::boottime() > until {
            return;
        }
        // A pipe that says POLLOUT takes PIPE_BUF (4096) bytes, which is more than a frame, without waiting.
        match crate::fd::write(fd, rest) {
            Ok(n) => at += n,
            Err(_) if errno() == libc::EAGAIN => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_nobody_ran_is_not_counted() {
        let mut patience = Patience::new(PATIENCE_MS, 0);
        let (hour, round) = (3_600_000_000_000, 20_000_000);
        assert!(!patience.is_out(hour), "those that were killed have had no time to die");
        let rounds = (1..).take_while(|n| !patience.is_out(hour + n * round)).count();
        assert_eq!(rounds, 137, "2.75 s in steps of 20 ms");
    }

    use crate::fd::socket_pair;
    use std::os::fd::OwnedFd;

    /// Runs `child` in a process that can have no descriptor more, and that dies of a signal if it takes too long.
    fn without_descriptors(child: impl FnOnce()) -> i32 {
        // SAFETY: the child makes only system calls, and exits.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // SAFETY: alarm takes an integer.
            unsafe { libc::alarm(20) };
            // SAFETY: getpid cannot fail.
            let agent = unsafe { libc::getpid() };
            // poll(2) takes no more entries than this; 0-2 are in use.
            let none = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
            // SAFETY: `none` is a valid limit.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
            let denied = crate::pidfd::open(agent).is_err();
            child();
            crate::origin::exit_now(if denied { 0 } else { 1 });
        }
        pid
    }

    fn status_of(pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: `status` is valid for writing; the child is ours.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        status
    }

    #[test]
    fn the_agents_end_is_seen_without_a_descriptor() {
        let (_ours, lifeline): (OwnedFd, OwnedFd) = socket_pair().unwrap();
        let guardian = without_descriptors(|| {
            // SAFETY: the child exits at once.
            let agent = unsafe { libc::fork() };
            if agent == 0 {
                crate::origin::exit_now(0);
            }
            wait_for_an_end(
                agent,
                &Post { lifeline: lifeline.as_raw_fd(), report: Report::Lifeline, lease: None, temp_files: None },
            );
        });
        assert_eq!(status_of(guardian), 0);
    }

    /// The other side of a partition does not read: the guardian would wait there for ever, after the output of its ranks.
    #[test]
    fn a_full_stream_does_not_hold_the_guardian() {
        let (_unread, pipe) = crate::fd::pipe().unwrap();
        let (_peer, socket) = socket_pair().unwrap();
        for full in [pipe, socket] {
            let flags = nonblocking(&full, true);
            while crate::fd::write(full.as_raw_fd(), &[b'y'; 4096]).is_ok() {}
            assert_eq!(errno(), libc::EAGAIN);
            // As sshd hands it over, and as the agent leaves it.
            for blocks in [true, false] {
                nonblocking(&full, !blocks);
                let began = crate::clock::boottime();
                let guardian = without_descriptors(|| append(full.as_raw_fd(), &[0; super::super::record::FRAME]));
                assert_eq!(status_of(guardian), 0, "it waits for ever");
                let took = (crate::clock::boottime() - began) / 1_000_000;
                assert!((2_000..10_000).contains(&took), "{took} ms");
            }
            assert_eq!(flags & libc::O_NONBLOCK, 0);
        }
    }

    /// The flags before.
    fn nonblocking(fd: &OwnedFd, on: bool) -> i32 {
        // SAFETY: fcntl with F_GETFL takes integers only.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        let new = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
        // SAFETY: as above.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, new) };
        flags
    }

    /// Lives in a session of its own until it is killed, but not for ever.
    fn stray() -> ! {
        // SAFETY: setsid and alarm take no memory of ours.
        unsafe { libc::setsid() };
        // SAFETY: as above.
        unsafe { libc::alarm(40) };
        loop {
            // SAFETY: pause takes nothing.
            unsafe { libc::pause() };
        }
    }

    #[test]
    fn a_guardian_can_always_have_two_descriptors_at_the_end() {
        for report in [Report::Lifeline, Report::Frame { fd: 1, node: 0, seal: None }] {
            let guardian = without_descriptors(|| {
                make_room(&Post { lifeline: 0, report, lease: None, temp_files: None });
                if crate::fd::pipe().is_err() {
                    crate::origin::exit_now(2);
                }
            });
            assert_eq!(status_of(guardian), 0);
        }
    }

    /// A guardian with a child that has a child, neither of which ends by itself.
    fn guardian_of_two(end: impl FnOnce(i32)) -> i32 {
        without_descriptors(|| end(agent_with_child()))
    }

    /// Becomes a guardian; returns its agent, which has a child. Neither ends by itself.
    fn agent_with_child() -> i32 {
        super::super::stand_apart();
        // SAFETY: the children make only system calls, and never return.
        let agent = unsafe { libc::fork() };
        if agent == 0 {
            super::super::stand_apart();
            // SAFETY: as above.
            unsafe { libc::fork() };
            stray();
        }
        agent
    }

    /// The guardian killed the agent first. If it was killed itself then, ranks remained.
    #[test]
    fn the_agent_outlives_what_is_below_it() {
        // SAFETY: the child makes only system calls, and exits.
        let guardian = unsafe { libc::fork() };
        assert!(guardian >= 0);
        if guardian == 0 {
            // SAFETY: alarm takes an integer.
            unsafe { libc::alarm(20) };
            let agent = agent_with_child();
            // Until its child exists.
            while children::kill_children_of(agent) != Below::Killed {}
            end_below(agent, End::Severed, &mut Patience::new(PATIENCE_MS, crate::clock::boottime()));
            let (alive, below) = (!has_ended(agent), children::kill_children_of(agent));
            children::kill_all();
            crate::origin::exit_now(u8::from(!alive) + if below == Below::Nothing { 0 } else { 2 });
        }
        assert_eq!(status_of(guardian), 0);
    }

    /// Earlier it killed none then, and left everything after three seconds.
    #[test]
    fn everything_is_ended_without_a_descriptor() {
        let (_ours, lifeline): (OwnedFd, OwnedFd) = socket_pair().unwrap();
        let post = Post { lifeline: lifeline.as_raw_fd(), report: Report::Lifeline, lease: None, temp_files: None };
        let everything = |end| guardian_of_two(|agent| end_everything(agent, &post, end));
        assert_eq!(status_of(everything(End::Agent)), 0, "its own number is enough");
        assert_eq!(status_of(everything(End::Severed)), 0, "and it kills an agent whose children it cannot see");
        let by_number = guardian_of_two(|_| {
            while !reap_all() {
                children::kill_all();
                wait_for_child(1_000_000);
            }
        });
        assert_eq!(status_of(by_number), 0, "and it does without");
    }

    #[test]
    fn the_callers_output_is_let_go_without_a_descriptor() {
        let guardian = without_descriptors(|| {
            let_go_of_stdio();
            // SAFETY: fcntl with F_GETFD takes integers only.
            if unsafe { libc::fcntl(1, libc::F_GETFD) } >= 0 {
                crate::origin::exit_now(2);
            }
        });
        assert_eq!(status_of(guardian), 0);
    }
}
