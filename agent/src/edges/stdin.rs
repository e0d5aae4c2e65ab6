//! Standard input on its way to rank 0: what has arrived, as much as its pipe takes, and credit for what it took.

use super::Link;
use bytes::{Buf, Bytes};
use rlaunch_core::id::NodeId;
use rlaunch_core::stream::window::{self, Grants};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// The window of standard input: what may be under way to the rank.
const WINDOW: u32 = window::size(1);

pub(super) struct Stdin {
    waiting: VecDeque<Bytes>,
    /// The launcher's end of input has arrived behind what waits.
    ended: bool,
    /// Bytes that no rank got, and for which there is no credit yet.
    dropped: usize,
    pipe: Pipe,
    grants: Grants,
    granted_first: bool,
    /// errno of what keeps it from being passed on.
    failed: Option<i32>,
    node: NodeId,
}

enum Pipe {
    /// The rank was not started yet.
    NotYet,
    /// Started; not handed to the runtime yet.
    Fresh(OwnedFd),
    Live(AsyncFd<OwnedFd>),
    /// Closed, by the end of input or because the rank does not read: then no credit is given any more.
    Closed,
}

impl Stdin {
    pub(super) fn new(node: NodeId) -> Self {
        let grants = Grants::new(WINDOW, 0);
        let pipe = Pipe::NotYet;
        Self {
            node,
            waiting: VecDeque::new(),
            ended: false,
            dropped: 0,
            pipe,
            grants,
            granted_first: false,
            failed: None,
        }
    }

    /// Why it cannot be passed on, if it cannot; told once.
    pub(super) fn take_failure(&mut self) -> Option<i32> {
        self.failed.take()
    }

    /// The rank that reads was started.
    pub(super) fn open(&mut self, pipe: OwnedFd) {
        self.pipe = Pipe::Fresh(pipe);
    }

    /// Another rank will read. Bytes on their way to the one before are lost.
    pub(super) fn renew(&mut self, link: &mut Link) {
        self.pipe = Pipe::NotYet;
        let rest = self.waiting.drain(..).fold(self.dropped, |sum, bytes| sum.saturating_add(bytes.len()));
        self.dropped = 0;
        if let (Link::Live(link), true) = (link, self.granted_first)
            && let Some(up_to) = self.grants.written(u64::try_from(rest).unwrap_or(0))
        {
            let _overflow = link.grant(self.node, up_to);
        }
    }

    /// Bytes, or the end, have arrived.
    pub(super) fn push(&mut self, bytes: Bytes, end: bool) {
        if !bytes.is_empty() {
            self.waiting.push_back(bytes);
        }
        self.ended |= end;
    }

    /// Writes what the pipe takes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, link: &mut Link) {
        let Link::Live(link) = link else { return };
        if let Pipe::Fresh(_) = self.pipe {
            self.make_live();
            // Only now is there a rank that may want input.
            let wanted = matches!(self.pipe, Pipe::Live(_)) && !self.granted_first;
            if let Some(up_to) = self.grants.first().filter(|_| wanted) {
                self.granted_first = true;
                let _overflow = link.grant(self.node, up_to);
            }
        }
        while let Some(first) = self.waiting.front_mut() {
            let Pipe::Live(pipe) = &self.pipe else { break };
            let Poll::Ready(Ok(mut guard)) = pipe.poll_write_ready(cx) else { return };
            match guard.try_io(|pipe| rlaunch_sys::fd::write(pipe.as_raw_fd(), first)) {
                Err(_would_block) => {}
                Ok(Ok(n)) => {
                    first.advance(n);
                    if first.is_empty() {
                        self.waiting.pop_front();
                    }
                    if let Some(up_to) = self.grants.written(u64::try_from(n).unwrap_or(0)) {
                        let _overflow = link.grant(self.node, up_to);
                    }
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_closed_by_the_rank)) => self.pipe = Pipe::Closed,
            }
        }
        if let Pipe::Closed = self.pipe {
            self.dropped = self.waiting.drain(..).fold(self.dropped, |sum, bytes| sum.saturating_add(bytes.len()));
        } else if self.ended && self.waiting.is_empty() && !matches!(self.pipe, Pipe::NotYet) {
            self.pipe = Pipe::Closed;
        }
    }

    fn make_live(&mut self) {
        if let Pipe::Fresh(fd) = std::mem::replace(&mut self.pipe, Pipe::Closed) {
            match rlaunch_net::ready::writable(fd) {
                Ok(live) => self.pipe = Pipe::Live(live),
                // The rank sees its end, and must not take that for all there was.
                Err(error) => self.failed = Some(error.raw_os_error().unwrap_or(0)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_core::wire::to_node::ToNode;
    use rlaunch_net::Early;
    use std::fs::File;
    use std::future::poll_fn;
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    /// A pipe that the kernel does not let us wait for (ENOSPC: epoll_ctl(2), fs.epoll.max_user_watches): the rank saw the end of its
    /// input, without a report.
    #[test]
    fn input_that_cannot_be_passed_on_is_told_and_not_asked_for() {
        let (ours, mut launcher) = UnixStream::pair().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let mut link = Link::Live(Early::<ToNode>::new(ours).into_connection().unwrap_or_else(|_| panic!()));
            let mut stdin = Stdin::new(NodeId::new(0));
            // A regular file cannot be waited for either: not permitted.
            stdin.open(File::open("/proc/self/exe").unwrap().into());
            poll_fn(|cx| {
                stdin.poll(cx, &mut link);
                let Link::Live(link) = &mut link else { return Poll::Ready(()) };
                link.poll_flush(cx).map(|flushed| flushed.unwrap())
            })
            .await;
            assert_eq!((stdin.take_failure(), stdin.take_failure()), (Some(1), None));
        });
        assert_eq!(launcher.read(&mut [0; 64]).unwrap(), 0, "nothing is granted");
    }
}
