//! The warning that this host is about to be taken away. It is reported once, whatever the number of its sources.
//!
//! A host that shuts down ends the session of sshd as a whole. The agent is sent SIGTERM, and soon after it SIGHUP. The connection to
//! the launcher ends. The ranks may save for the time of the warning nevertheless. The lease still holds: the launcher starts no other
//! ranks before it has expired.

use super::{Cx, NodeAction, Notice};
use crate::node::LeaseAction;
use rlaunch_base::time::{Mono, Span};
use rlaunch_base::warnings::WarningSource;
use rlaunch_protocol::wire::to_node::Start;
use rlaunch_protocol::wire::to_root::ToRoot;

#[derive(Default)]
pub(super) struct Warnings {
    is_warned: bool,
    /// The time of the ranks after SIGTERM to this host; `None`: this is the launcher's own host, or the job has not begun.
    grace: Option<Span>,
    /// The end of that time.
    until: Option<Mono>,
    /// The connection has ended within that time.
    is_cut: bool,
}

impl Warnings {
    /// The job begins.
    pub(super) fn on_begun(&mut self, cx: &mut Cx<'_>, start: &Start) {
        self.grace = start.has_lease.then_some(start.settings.warnings.grace);
        if !start.settings.warnings.probe.is_empty() {
            cx.act(NodeAction::WatchPreemption { command: start.settings.warnings.probe.clone() });
        }
    }

    /// A source warns. Returns whether it is the first.
    pub(super) fn on_warned(&mut self, cx: &mut Cx<'_>, source: WarningSource) -> bool {
        if let (WarningSource::Signal, Some(grace), None) = (source, self.grace, self.until) {
            let until = cx.now + grace;
            self.until = Some(until);
            cx.act(NodeAction::Lease(LeaseAction::Spare(until)));
        }
        if core::mem::replace(&mut self.is_warned, true) {
            return false;
        }
        cx.act(NodeAction::ToRoot(ToRoot::Warned(source)));
        true
    }

    /// Whether this host shuts down, and its ranks still have time.
    pub(super) fn is_spared(&self, now: Mono) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The connection has ended. Returns whether the ranks still have time.
    pub(super) fn on_cut(&mut self, now: Mono) -> bool {
        self.is_cut |= self.is_spared(now);
        self.is_cut
    }

    /// No rank remains: without a connection nothing else is waited for.
    pub(super) fn on_ranks_gone(&mut self, cx: &mut Cx<'_>) {
        if core::mem::take(&mut self.is_cut) {
            cx.notify(Notice::NoContact);
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if !self.is_spared(cx.now) {
            self.on_ranks_gone(cx);
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.until.filter(|_| self.is_cut)
    }
}
