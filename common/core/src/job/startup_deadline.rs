//! Hosts that are there and are not ready in time: `--connect-timeout` is for all of it.
//!
//! The code that reaches a host also starts its agent in time. In the rest of that time (all of it on the launcher's own host) the agent
//! has to find out whether its ranks could start. In a directory of a file server that does not answer it never will, though its
//! heartbeats continue.

use super::Cx;
use super::notice::Notice;
use crate::deadlines::Deadlines;
use crate::id::NodeId;
use crate::time::{Mono, Span};

/// The deadlines of the hosts that are there.
#[derive(Debug)]
pub(super) struct StartupDeadline {
    due: Deadlines,
    /// The whole time that each had.
    limit: Span,
}

impl StartupDeadline {
    pub(super) fn new(nodes: usize) -> Self {
        Self { due: Deadlines::new(nodes), limit: Span::ZERO }
    }

    pub(super) fn ready_by(&mut self, node: NodeId, at: Mono, limit: Span) {
        self.limit = limit;
        self.due.set(node, Some(at));
    }

    pub(super) fn ready(&mut self, node: NodeId) {
        self.due.set(node, None);
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        while let Some(node) = self.due.pop(cx.now) {
            cx.notify(Notice::StartupDeadlineExpired { node, limit: self.limit });
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.next()
    }
}
