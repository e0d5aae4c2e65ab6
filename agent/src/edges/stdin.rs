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
    pipe: Pipe,
    grants: Grants,
    granted_first: bool,
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
        Self { node, waiting: VecDeque::new(), ended: false, pipe: Pipe::NotYet, grants, granted_first: false }
    }

    /// The rank that reads was started.
    pub(super) fn open(&mut self, pipe: OwnedFd) {
        self.pipe = Pipe::Fresh(pipe);
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
            // Only now is there somebody who may want input.
            if let Some(up_to) = self.grants.first().filter(|_| !self.granted_first) {
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
            self.waiting.clear();
        } else if self.ended && self.waiting.is_empty() && !matches!(self.pipe, Pipe::NotYet) {
            self.pipe = Pipe::Closed;
        }
    }

    fn make_live(&mut self) {
        if let Pipe::Fresh(fd) = std::mem::replace(&mut self.pipe, Pipe::Closed) {
            match rlaunch_net::ready::writable(fd) {
                Ok(live) => self.pipe = Pipe::Live(live),
                Err(error) => tracing::error!(%error, "standard input cannot be passed on"),
            }
        }
    }
}
