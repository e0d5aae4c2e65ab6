//! The end of a scheduler's step whose launcher is gone or does not answer.
//!
//! Slurm sends SIGTERM to the step and kills its processes some time later. It may kill the launcher before: under proctrack/cgroup a
//! batch shell that dies of SIGTERM takes all processes of the batch step along. The ranks of the agents' step are to save nevertheless.

use super::{Cx, NodeAction, Notice};
use crate::node::LeaseAction;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::to_node::Start;

/// How long after the end of the connection the scheduler's SIGTERM may come. The ranks run until then.
const AFTER_CUT: Span = Span::from_secs(1);
/// How long the guardian waits in addition, so that the agent decides first.
const MARGIN: Span = Span::from_millis(300);
/// How long the launcher may take to order the end after SIGTERM.
const ANSWER: Span = Span::from_secs(1);
/// By then it is known whether the scheduler has signalled the ranks as well.
const TOGETHER: Span = Span::from_millis(100);

#[derive(Default)]
pub(super) struct StepEnd {
    /// The time of ranks after SIGTERM; `None`: this host is in no step, or its launcher needs no connection.
    grace: Option<Span>,
    /// The most of it, from SIGTERM on; `None`: unknown.
    limit: Option<Span>,
    /// Ranks run here.
    has_ranks: bool,
    /// When the step got SIGTERM.
    warned: Option<Mono>,
    /// The connection has ended, and ranks run.
    is_cut: bool,
    /// When this host ends its ranks without an order of the launcher.
    due: Option<Mono>,
}

impl StepEnd {
    /// The job begins.
    pub(super) fn on_begun(&mut self, cx: &mut Cx<'_>, start: &Start) {
        self.grace = (start.has_lease && start.is_in_step()).then_some(start.settings.ending.grace);
        self.limit = start.scheduler_grace;
        if self.grace.is_some() {
            cx.act(NodeAction::Lease(LeaseAction::HoldAfterCut(Span::from_nanos(AFTER_CUT.nanos() + MARGIN.nanos()))));
        }
    }

    /// A rank runs.
    pub(super) const fn on_spawned(&mut self) {
        self.has_ranks = true;
    }

    /// The step got SIGTERM.
    pub(super) fn on_warned(&mut self, cx: &mut Cx<'_>) {
        if self.warned.is_none() {
            self.warned = Some(cx.now);
            self.due = self.grace.map(|_| cx.now + if self.is_cut { TOGETHER } else { ANSWER });
            self.spare(cx);
        }
    }

    /// The connection has ended. Returns whether the ranks have time.
    pub(super) fn on_cut(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.is_cut || self.grace.is_none() || !self.has_ranks {
            return self.is_cut;
        }
        self.is_cut = true;
        self.due = Some(self.warned.map_or(cx.now + AFTER_CUT, |at| (at + TOGETHER).max(cx.now)));
        self.spare(cx);
        true
    }

    /// The time of ranks from now on, if the step got SIGTERM. It ends before the scheduler kills them.
    fn time_left(&self, now: Mono) -> Option<Span> {
        let (warned, grace) = (self.warned?, self.grace?);
        Some(self.limit.map_or(grace, |limit| grace.min((warned + limit).since(now))))
    }

    /// The guardian must not end the ranks before the agent.
    fn spare(&self, cx: &mut Cx<'_>) {
        if let Some(grace) = self.time_left(cx.now).filter(|_| self.is_cut) {
            cx.act(NodeAction::Lease(LeaseAction::Spare(cx.now + grace + TOGETHER)));
        }
    }

    /// No rank remains: without a connection nothing else is waited for.
    pub(super) fn on_ranks_gone(&mut self, cx: &mut Cx<'_>) {
        self.has_ranks = false;
        if core::mem::take(&mut self.is_cut) {
            cx.notify(Notice::NoContact);
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.due.take_if(|at| *at <= cx.now).is_none() || !self.has_ranks {
            return;
        }
        cx.notify(self.time_left(cx.now).map_or(Notice::NoContact, Notice::StepEnds));
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.filter(|_| self.has_ranks)
    }
}
