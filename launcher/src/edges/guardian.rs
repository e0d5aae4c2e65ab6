//! The lifeline: looked at only once the edge is gone, for the guardian's record of what it could not end.

use rlaunch_core::id::NodeId;
use rlaunch_core::job::{GuardianEnd, JobEvent};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::wire::to_root::Leftover;
use rlaunch_sys::children::Named;
use rlaunch_sys::guardian::{RECORD, Record};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// The stream whose end the guardian watches, and whose end tells of the guardian's.
pub(super) struct Lifeline {
    state: State,
    bytes: [u8; RECORD],
    len: usize,
}

enum State {
    Held(OwnedFd),
    Watched(AsyncFd<OwnedFd>),
    Ended,
}

impl Lifeline {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { state: State::Held(fd), bytes: [0; RECORD], len: 0 }
    }

    pub(super) fn poll(&mut self, node: NodeId, cx: &mut Context<'_>, events: &mut VecDeque<JobEvent>) {
        if matches!(self.state, State::Held(_))
            && let State::Held(fd) = std::mem::replace(&mut self.state, State::Ended)
        {
            let watched = rlaunch_sys::fd::set_nonblocking(&fd).and_then(|()| rlaunch_net::ready::readable(fd));
            match watched {
                Ok(fd) => self.state = State::Watched(fd),
                Err(error) => {
                    tracing::debug!(%error, "the lifeline cannot be watched");
                    return events.push_back(JobEvent::GuardianEnded { node, end: GuardianEnd::Silent });
                }
            }
        }
        if let Poll::Ready(end) = self.poll_record(cx) {
            self.state = State::Ended;
            events.push_back(JobEvent::GuardianEnded { node, end });
        }
    }

    fn poll_record(&mut self, cx: &mut Context<'_>) -> Poll<GuardianEnd> {
        let State::Watched(fd) = &self.state else { return Poll::Pending };
        loop {
            let Poll::Ready(Ok(mut guard)) = fd.poll_read_ready(cx) else { return Poll::Pending };
            let room = self.bytes.get_mut(self.len..).unwrap_or_default();
            match guard.try_io(|fd| rlaunch_sys::fd::read(fd.as_raw_fd(), room)) {
                Err(_would_block) => {}
                Ok(Ok(n @ 1..)) => {
                    self.len += n;
                    if self.len == RECORD {
                        return Poll::Ready(Record::parse(&self.bytes).map_or(GuardianEnd::Silent, told));
                    }
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Ok(_) | Err(_)) => return Poll::Ready(GuardianEnd::Silent),
            }
        }
    }
}

fn told(record: Record) -> GuardianEnd {
    let text = |bytes: &[u8]| OsBytes::from(bytes.split(|b| *b == 0).next().unwrap_or_default());
    let leftover =
        |named: &Named| Leftover { pid: named.pid.cast_unsigned(), comm: text(&named.comm), wchan: text(&named.wchan) };
    GuardianEnd::Record { left: record.left, named: record.named.iter().map(leftover).collect() }
}
