//! How long this node may live: for so long after the reading of its own clock that the launcher repeated last.
//!
//! The guardian holds the same deadline, so that a stopped agent does not keep ranks alive. Only nodes whose edge can break
//! unnoticed have a lease.

use super::{Cx, NodeAction, Notice};
use crate::node::LeaseAction;
use rlaunch_base::machine::earliest;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::to_node::Start;

/// A host that still receives heartbeats so long after the announcement of its suspension was not suspended. Slurm stops the processes
/// 2 s after the announcement.
const STOPPED_BY: Span = Span::from_secs(5);

#[derive(Default)]
pub(super) struct Lease {
    span: Option<Span>,
    until: Option<Mono>,
    next: Option<Mono>,
    /// The launcher's clock, and this host's clock when that reading was received.
    launcher: Option<(u64, Mono)>,
    /// When the scheduler announced that it suspends this host, if it has not resumed the host since.
    held_since: Option<Mono>,
    stopped: bool,
}

impl Lease {
    pub(super) fn on_begun(&mut self, cx: &mut Cx<'_>, start: &Start) {
        self.span = start.lease();
        if let Some(span) = self.span {
            self.renew(cx, cx.now + span);
            self.beat(cx);
        }
    }

    pub(super) fn on_beat(&mut self, cx: &mut Cx<'_>, beat: Beat) {
        let Some(span) = self.span.filter(|_| !self.stopped) else { return };
        // A reading that we cannot have made grants nothing.
        let made = Mono::from_nanos(beat.echo.min(cx.now.nanos()));
        let first = self.launcher.replace((beat.own, cx.now)).is_none();
        let was_not_stopped = self.held_since.take_if(|since| cx.now > *since + STOPPED_BY).is_some();
        if was_not_stopped || self.until.is_none_or(|until| until < made + span) {
            self.renew(cx, made + span);
        }
        if first {
            // At once, so that the launcher soon knows how far our clocks are apart.
            self.beat(cx);
        }
    }

    /// The scheduler suspends this host: nothing here runs until it is resumed, so no heartbeat can be received.
    pub(super) fn on_suspended(&mut self, cx: &mut Cx<'_>, limit: Span) {
        let until = cx.now + limit;
        if self.until.is_some_and(|now| now < until) && !self.stopped {
            self.held_since = Some(cx.now);
            self.renew(cx, until);
        }
    }

    /// The host was resumed: from here on the launcher has the time of a lease to say something.
    pub(super) fn on_resumed(&mut self, cx: &mut Cx<'_>) {
        if let Some(span) = self.span.filter(|_| self.held_since.take().is_some() && !self.stopped) {
            self.renew(cx, cx.now + span);
            self.beat(cx);
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.stopped {
            return;
        }
        if self.is_due(cx.now) {
            self.stopped = true;
            return cx.notify(Notice::NoContact);
        }
        if self.next.is_some_and(|next| next <= cx.now) {
            self.beat(cx);
        }
    }

    /// Whether the lease has expired, and this machine has not acted on that yet. The guardian has.
    pub(super) fn is_due(&self, now: Mono) -> bool {
        !self.stopped && self.until.is_some_and(|until| until <= now)
    }

    /// Stops the heartbeats.
    pub(super) fn on_done(&mut self) {
        self.stopped = true;
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        if self.stopped { None } else { earliest(self.until, self.next) }
    }

    fn renew(&mut self, cx: &mut Cx<'_>, until: Mono) {
        self.until = Some(until);
        cx.act(NodeAction::Lease(LeaseAction::Until(until)));
    }

    fn beat(&mut self, cx: &mut Cx<'_>) {
        let Some(span) = self.span else { return };
        // The launcher's clock continues while its reading waits here.
        let echo = self.launcher.map_or(0, |(own, received)| own.saturating_add(cx.now.since(received).nanos()));
        cx.act(NodeAction::Beat(Beat { own: cx.now.nanos(), echo }));
        self.next = Some(cx.now + Beat::every(span));
    }
}
