//! Standard input on its way to the ranks that read it: what has arrived, as much as their pipes take, and credit for what they took.
//! The slowest rank holds the others back. The launcher is asked for input only while a rank waits for it: see [`Demand`].

use super::Link;
use crate::clock::now;
use crate::edges::part::Base;
use crate::edges::watch::Source;
use bytes::{Buf, Bytes};
use rlaunch_base::id::NodeId;
use rlaunch_base::time::Mono;
use rlaunch_protocol::stream::demand::Demand;
use rlaunch_protocol::stream::window::{self, Grants};
use rlaunch_protocol::wire::to_root::{InputNews, ToRoot};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// The window of standard input: what may be under way to the ranks.
const WINDOW: u32 = window::size(1);

pub(super) struct Stdin {
    outlets: Vec<Outlet>,
    /// Number of ranks that read, once they are all started.
    expected: usize,
    /// Bytes for ranks that were not started yet.
    early: VecDeque<Bytes>,
    /// Bytes that have arrived.
    arrived: u64,
    /// Bytes for which credit was given.
    counted: u64,
    /// The launcher's end of input has arrived.
    ended: bool,
    grants: Grants,
    reported: Reported,
    /// News for the launcher that no rank reads.
    closed: bool,
    /// errno of what keeps it from being passed on.
    failed: Option<i32>,
    demand: Demand,
    node: NodeId,
}

/// The launcher's knowledge of the ranks of this generation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reported {
    Nothing,
    /// Ranks take input.
    Open,
    /// All have closed their input.
    Closed,
}

/// The input of one rank.
struct Outlet {
    pid: i32,
    pipe: Pipe,
    waiting: VecDeque<Bytes>,
    /// Bytes that the rank got, or that were there before it, of all that arrived.
    written: u64,
}

enum Pipe {
    /// Not handed to the runtime yet.
    Fresh(OwnedFd),
    Live(AsyncFd<OwnedFd>),
    /// Closed, by the end of input or because the rank does not read.
    Closed,
}

/// A rank that might wait for input.
pub(super) struct Candidate {
    pub(super) pid: i32,
    /// Inode of its pipe.
    pub(super) pipe: u64,
}

impl Stdin {
    pub(super) fn new(node: NodeId) -> Self {
        Self {
            outlets: Vec::new(),
            expected: 0,
            early: VecDeque::new(),
            arrived: 0,
            counted: 0,
            ended: false,
            grants: Grants::new(WINDOW, 0),
            reported: Reported::Nothing,
            closed: false,
            failed: None,
            demand: Demand::default(),
            node,
        }
    }

    /// The error for which input cannot be passed on, if there is one. Returned once.
    pub(super) fn take_failure(&mut self) -> Option<i32> {
        self.failed.take()
    }

    /// A rank is going to be started that reads with so many others here, or that replaces another process and does not read.
    pub(super) fn expect(&mut self, readers: u32, is_respawn: bool) {
        let readers = usize::try_from(readers).unwrap_or(usize::MAX);
        self.closed |= is_respawn && readers == 0 && self.expected == 0;
        self.expected = self.expected.max(readers);
    }

    /// A rank that reads was started.
    pub(super) fn open(&mut self, pid: i32, pipe: OwnedFd, now: Mono) {
        let early: u64 = self.early.iter().map(length).sum();
        let written = self.arrived.saturating_sub(early);
        self.outlets.push(Outlet { pid, pipe: Pipe::Fresh(pipe), waiting: self.early.clone(), written });
        if self.are_all_started() {
            self.early.clear();
        }
        self.demand.restart(now);
    }

    fn are_all_started(&self) -> bool {
        self.expected > 0 && self.outlets.len() >= self.expected
    }

    /// Other ranks will read. Bytes on their way to those before are lost.
    pub(super) fn renew(&mut self, link: &mut Link) {
        self.demand.suspend();
        self.outlets.clear();
        self.early.clear();
        self.expected = 0;
        self.closed = false;
        let has_credit = self.grants.promised() > 0;
        let rest = self.arrived.saturating_sub(std::mem::replace(&mut self.counted, self.arrived));
        if let (Some(link), true) = (link, has_credit)
            && let Some(up_to) = self.grants.written(rest)
        {
            let _overflow = link.grant(self.node, up_to);
        }
        self.reported = Reported::Nothing;
    }

    /// Bytes, or the end, have arrived. Without either it is an announcement.
    pub(super) fn push(&mut self, bytes: Bytes, end: bool) {
        self.ended |= end;
        if bytes.is_empty() {
            if !end {
                self.demand.announce(now());
            }
            return;
        }
        self.arrived = self.arrived.saturating_add(length(&bytes));
        for outlet in &mut self.outlets {
            outlet.waiting.push_back(bytes.clone());
        }
        if !self.are_all_started() {
            self.early.push_back(bytes);
        }
    }

    /// Writes what the pipes take.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, link: &mut Link) {
        let Some(link) = link else { return };
        for outlet in &mut self.outlets {
            outlet.poll(cx, self.ended, &mut self.failed);
        }
        if !self.are_all_started() {
            return;
        }
        let read = |outlet: &&Outlet| !matches!(outlet.pipe, Pipe::Closed);
        let slowest = self.outlets.iter().filter(read).map(|outlet| outlet.written).min();
        let written = slowest.unwrap_or(self.arrived);
        let more = written.saturating_sub(self.counted);
        self.counted = self.counted.saturating_add(more);
        let grant = self.grants.written(more);
        let state = if slowest.is_some() { Reported::Open } else { Reported::Closed };
        let is_news = std::mem::replace(&mut self.reported, state) != state;
        match state {
            Reported::Open if is_news => {
                let _overflow = link.grant(self.node, self.grants.promised());
            }
            Reported::Open => {
                let _overflow = grant.map(|up_to| link.grant(self.node, up_to));
            }
            // A grant would mean that a rank reads again.
            Reported::Closed => self.closed |= is_news && !self.ended,
            Reported::Nothing => {}
        }
    }

    /// News for the launcher that no rank here reads; once.
    const fn take_closed(&mut self) -> bool {
        std::mem::replace(&mut self.closed, false)
    }

    /// The ranks that are to be looked at now: those that have read all that arrived.
    fn candidates(&mut self, now: Mono) -> Option<Vec<Candidate>> {
        let is_due = self.demand.begin(now);
        is_due.then(|| self.outlets.iter().filter_map(Outlet::candidate).collect())
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.demand.deadline()
    }
}

impl Outlet {
    fn poll(&mut self, cx: &mut Context<'_>, ended: bool, failed: &mut Option<i32>) {
        if let Pipe::Fresh(_) = self.pipe {
            self.make_live(failed);
        }
        while let Some(first) = self.waiting.front_mut() {
            let Pipe::Live(pipe) = &self.pipe else { break };
            let Poll::Ready(Ok(mut guard)) = pipe.poll_write_ready(cx) else { return };
            match guard.try_io(|pipe| rlaunch_sys::fd::write(pipe.as_raw_fd(), first)) {
                Err(_would_block) => {}
                Ok(Ok(n)) => {
                    self.written = self.written.saturating_add(u64::try_from(n).unwrap_or(0));
                    first.advance(n);
                    if first.is_empty() {
                        self.waiting.pop_front();
                    }
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_closed_by_the_rank)) => self.pipe = Pipe::Closed,
            }
        }
        if let Pipe::Closed = self.pipe {
            self.waiting.clear();
        } else if ended && self.waiting.is_empty() {
            self.pipe = Pipe::Closed;
        }
    }

    fn make_live(&mut self, failed: &mut Option<i32>) {
        if let Pipe::Fresh(fd) = std::mem::replace(&mut self.pipe, Pipe::Closed) {
            match rlaunch_net::ready::writable(fd) {
                Ok(live) => self.pipe = Pipe::Live(live),
                // The rank sees its end, and must not take that for all there was.
                Err(error) => *failed = Some(error.raw_os_error().unwrap_or(0)),
            }
        }
    }

    /// `None`: the rank has closed its input, or has not read all that is in its pipe.
    fn candidate(&self) -> Option<Candidate> {
        let Pipe::Live(pipe) = &self.pipe else { return None };
        if !self.waiting.is_empty() {
            return None;
        }
        let pipe = pipe.get_ref();
        (rlaunch_sys::fd::unread(pipe) == 0).then(|| Candidate { pid: self.pid, pipe: rlaunch_sys::fd::inode(pipe) })
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(0)
}

/// Looks whether a rank waits for input, while the launcher has some that no rank has asked for.
pub(super) fn look(base: &mut Base) {
    if base.stdin.take_closed() {
        base.send(&ToRoot::Input(InputNews::Closed));
    }
    let seen = base.files.take_waiting();
    request_input(base, seen);
    let Some(candidates) = base.stdin.candidates(now()) else { return };
    let Base { files, watch, .. } = base;
    let seen = if candidates.is_empty() {
        Some(false)
    } else {
        files.look_for_waiting(candidates, |bell| watch.add(bell, Source::Files));
        files.take_waiting()
    };
    request_input(base, seen);
}

fn request_input(base: &mut Base, seen: Option<bool>) {
    if seen.is_some_and(|waits| base.stdin.demand.end(now(), waits)) {
        base.send(&ToRoot::Input(InputNews::Wanted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_net::Early;
    use rlaunch_protocol::wire::to_node::ToNode;
    use std::fs::File;
    use std::future::poll_fn;
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    /// A pipe that the kernel does not let us wait for (ENOSPC: epoll_ctl(2), fs.epoll.max_user_watches): the rank saw the end of its
    /// input, without a report.
    #[test]
    fn input_that_cannot_be_passed_on_is_reported_and_not_requested() {
        let (ours, mut launcher) = UnixStream::pair().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let mut link = Some(Early::<ToNode>::new(ours).into_connection().unwrap_or_else(|_| panic!()));
            let mut stdin = Stdin::new(NodeId::new(0));
            // A regular file cannot be waited for either: not permitted.
            stdin.expect(1, false);
            stdin.open(1, File::open("/proc/self/exe").unwrap().into(), now());
            poll_fn(|cx| {
                stdin.poll(cx, &mut link);
                let Some(link) = &mut link else { return Poll::Ready(()) };
                link.poll_flush(cx).map(|flushed| flushed.unwrap())
            })
            .await;
            assert_eq!((stdin.take_failure(), stdin.take_failure()), (Some(1), None));
        });
        assert_eq!(launcher.read(&mut [0; 64]).unwrap(), 0, "nothing is granted");
    }

    /// Three ranks: the first reads, the second is slow, the third closes its input.
    #[test]
    fn slowest_rank_that_reads_decides_about_credit() {
        let (ours, _launcher) = UnixStream::pair().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let mut link = Some(Early::<ToNode>::new(ours).into_connection().unwrap_or_else(|_| panic!()));
            let mut stdin = Stdin::new(NodeId::new(0));
            let mut pipes = Vec::new();
            for pid in 1..4 {
                let (read, write) = rlaunch_sys::fd::pipe().unwrap();
                rlaunch_sys::fd::set_nonblocking(&write).unwrap();
                rlaunch_sys::fd::set_nonblocking(&read).unwrap();
                stdin.expect(3, false);
                stdin.open(pid, write, now());
                pipes.push(File::from(read));
            }
            let mut poll = |stdin: &mut Stdin| {
                let waker = std::task::Waker::noop();
                stdin.poll(&mut Context::from_waker(waker), &mut link);
            };
            poll(&mut stdin);
            assert_eq!((stdin.grants.promised(), stdin.counted), (u64::from(WINDOW), 0));
            drop(pipes.pop());
            let chunk = Bytes::from(vec![7; 1 << 20]);
            stdin.push(chunk.clone(), false);
            let mut got = vec![0; 1 << 20];
            let mut at = 0;
            while at < got.len() {
                poll(&mut stdin);
                tokio::task::yield_now().await;
                // Nothing yet: the runtime has not said that there is room.
                at += pipes[0].read(&mut got[at..]).unwrap_or(0);
            }
            poll(&mut stdin);
            assert!(got == chunk);
            assert_eq!(stdin.counted, 64 << 10, "as much as the pipe of the slow rank takes");
            drop(pipes.pop());
            while stdin.counted < 1 << 20 {
                poll(&mut stdin);
                tokio::task::yield_now().await;
            }
            assert!(!stdin.take_closed());
            drop(pipes.pop());
            stdin.push(chunk, false);
            while !stdin.take_closed() {
                poll(&mut stdin);
                tokio::task::yield_now().await;
            }
            assert_eq!(stdin.counted, 2 << 20, "bytes that no rank takes are dropped");
        });
    }
}
