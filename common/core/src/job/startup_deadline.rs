//! Hosts that are there and are not ready in time: `--connect-timeout` is for all of it.
//!
//! The code that reaches a host also starts its agent in time. In the rest of that time (all of it on the launcher's own host) the agent
//! has to find out whether its ranks could start. In a directory of a file server that does not answer it never will, though its
//! heartbeats continue.
//!
//! Time in which the launcher itself was stopped is taken from no host: nothing of what hosts had sent was read in it.

use super::Cx;
use super::notice::Notice;
use rlaunch_base::deadlines::Deadlines;
use rlaunch_base::id::NodeId;
use rlaunch_base::patience::Looks;
use rlaunch_base::time::{Mono, Span};

/// The deadlines of the hosts that are there.
#[derive(Debug)]
pub(super) struct StartupDeadline {
    due: Deadlines,
    /// The whole time that each had.
    limit: Span,
    looks: Looks,
}

impl StartupDeadline {
    pub(super) fn new(nodes: usize) -> Self {
        Self { due: Deadlines::new(nodes), limit: Span::ZERO, looks: Looks::new(Mono::default()) }
    }

    pub(super) fn ready_by(&mut self, now: Mono, node: NodeId, at: Mono, limit: Span) {
        if self.due.next().is_none() {
            self.looks = Looks::new(now);
        }
        self.limit = limit;
        self.due.set(node, Some(at));
    }

    pub(super) fn ready(&mut self, node: NodeId) {
        self.due.set(node, None);
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        let missed = self.looks.missed(cx.now);
        if missed > Span::ZERO {
            self.due.postpone(missed);
        }
        while let Some(node) = self.due.pop(cx.now) {
            cx.notify(Notice::StartupDeadlineExpired { node, limit: self.limit });
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.next().map(|at| at.min(self.looks.deadline()))
    }
}
