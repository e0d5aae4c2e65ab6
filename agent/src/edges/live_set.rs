//! Descriptors of one part of the edges: one descriptor of the runtime, which wakes the machine thread when one of them is ready.

use crate::clock::now;
use rlaunch_base::time::Mono;
use rlaunch_sys::epoll::{Batch, ReadySet};
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// A set of descriptors that the runtime watches.
#[derive(Debug)]
pub(super) struct LiveSet {
    set: AsyncFd<Arc<ReadySet>>,
    batch: Batch,
    quiet_at: Mono,
}

impl LiveSet {
    /// An empty set, within a runtime. One look finds at most `room` descriptors.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn with_room(room: usize) -> io::Result<Self> {
        let set = rlaunch_net::ready::readable(Arc::new(ReadySet::new()?))?;
        Ok(Self { set, batch: Batch::with_room(room), quiet_at: now() })
    }

    /// The tokens of descriptors that are ready. `None`: none is, or others have their turn; the task is woken for the next look.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Option<Vec<u64>> {
        loop {
            let Poll::Ready(Ok(mut guard)) = self.set.poll_read_ready(cx) else { return None };
            if guard.get_inner().ready(&mut self.batch) > 0 {
                return Some(self.batch.tokens().collect());
            }
            guard.clear_ready();
            self.quiet_at = now();
        }
    }

    /// The same without the runtime, for a caller that must know what has come by now.
    pub(super) fn look(&mut self) -> Option<Vec<u64>> {
        (self.set.get_ref().ready(&mut self.batch) > 0).then(|| self.batch.tokens().collect())
    }

    /// The set, for a thread that adds descriptors.
    pub(super) fn share(&self) -> Arc<ReadySet> {
        Arc::clone(self.set.get_ref())
    }

    /// When [`Self::poll`] last found nothing: what is ready now was not ready then.
    pub(super) const fn quiet_at(&self) -> Mono {
        self.quiet_at
    }
}

impl Deref for LiveSet {
    type Target = ReadySet;

    fn deref(&self) -> &ReadySet {
        self.set.get_ref()
    }
}
