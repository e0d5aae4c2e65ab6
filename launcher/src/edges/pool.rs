//! The connection to the pool of a job: warnings about hosts go there, and its end is the end of the pool.

use super::part::{Outcome, Part};
use rlaunch_base::id::NodeId;
use rlaunch_core::events::{JobNews, Record, What};
use rlaunch_core::job::JobEvent;
use rlaunch_protocol::wire::frozen::pool::PoolRequest;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// A job's way to report warnings about its hosts.
#[derive(Debug)]
pub(crate) struct Warner {
    stream: UnixStream,
    /// The names of the hosts in the pool.
    hosts: Vec<String>,
    pool: String,
    has_connections: bool,
}

impl AsFd for Warner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl AsRawFd for Warner {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl Warner {
    /// `hosts`: their names in the pool, by node.
    pub(crate) const fn new(stream: UnixStream, hosts: Vec<String>, pool: String, has_connections: bool) -> Self {
        Self { stream, hosts, pool, has_connections }
    }

    /// Whether hosts of the job are lost with the pool.
    pub(crate) const fn has_connections(&self) -> bool {
        self.has_connections
    }

    /// The pool, if its process has ended. A pool sends nothing after the hosts.
    pub(crate) fn ended(&self) -> Option<&str> {
        let read = rlaunch_sys::socket::recv(&self.stream, &mut [0]);
        let is_open = read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        (!is_open).then_some(self.pool.as_str())
    }

    /// A host is about to be taken away.
    pub(crate) fn warn(&self, node: NodeId) {
        if let Some(host) = self.hosts.get(node.index()) {
            let frame = PoolRequest::Warned(host.as_str().into()).to_frame();
            // A pool that is gone hands nothing out.
            let _gone = rlaunch_sys::socket::send(&self.stream, &frame);
        }
    }
}

/// The connection, if the job has its hosts of a pool that lives.
pub(super) struct Pool(Option<AsyncFd<Warner>>);

impl Pool {
    pub(super) fn new(warner: Option<Warner>) -> io::Result<Self> {
        warner.map(rlaunch_net::ready::readable).transpose().map(Self)
    }
}

impl Part for Pool {
    /// Reports warnings to the pool.
    fn receive(&mut self, record: &Record) {
        if let (Some(warner), What::News(JobNews::HostWarned { node, .. })) = (&self.0, &record.what) {
            warner.get_ref().warn(*node);
        }
    }

    /// The news that the pool has ended, once. A job whose hosts have connections of its own loses nothing.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outcome) {
        let Some(live) = &self.0 else { return };
        let ended = loop {
            let Poll::Ready(Ok(mut guard)) = live.poll_read_ready(cx) else { return };
            match guard.get_inner().ended() {
                Some(pool) => break pool.into(),
                None => guard.clear_ready(),
            }
        };
        let has_connections = live.get_ref().has_connections();
        self.0 = None;
        out.events.extend(has_connections.then_some(JobEvent::Found(JobNews::PoolLost { pool: ended })));
    }

    fn stop(&mut self) {
        self.0 = None;
    }
}
