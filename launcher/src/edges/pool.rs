//! The connection to the pool of a job: warnings about hosts go there, and its end is the end of the pool.

use crate::pool::client::Warner;
use rlaunch_core::events::{JobNews, What};
use rlaunch_core::job::JobEvent;
use std::io;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// The connection, if the job has its hosts of a pool that lives.
pub(super) enum Pool {
    None,
    Waiting(Warner),
    Live(AsyncFd<Warner>),
}

impl Pool {
    pub(super) fn new(warner: Option<Warner>) -> Self {
        warner.map_or(Self::None, Self::Waiting)
    }

    /// Hands the connection to the runtime that was entered.
    pub(super) fn go_live(&mut self) -> io::Result<()> {
        *self = match std::mem::replace(self, Self::None) {
            Self::Waiting(warner) => Self::Live(rlaunch_net::ready::readable(warner)?),
            other => other,
        };
        Ok(())
    }

    /// The news that the pool has ended, once. A job whose hosts have connections of its own loses nothing.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Option<JobEvent> {
        let Self::Live(live) = &self else { return None };
        let ended = loop {
            let Poll::Ready(Ok(mut guard)) = live.poll_read_ready(cx) else { return None };
            match guard.get_inner().ended() {
                Some(pool) => break pool.into(),
                None => guard.clear_ready(),
            }
        };
        let has_connections = live.get_ref().has_connections();
        *self = Self::None;
        has_connections.then_some(JobEvent::Found(JobNews::PoolLost { pool: ended }))
    }

    /// The pool hears of warnings.
    pub(super) fn hear(&self, what: &What) {
        let warner = match self {
            Self::None => return,
            Self::Waiting(warner) => warner,
            Self::Live(live) => live.get_ref(),
        };
        if let What::News(JobNews::HostWarned { node, .. }) = what {
            warner.warn(*node);
        }
    }
}
