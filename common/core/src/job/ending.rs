//! The one ending of a job: the first cause begins it and nothing later changes it.

use super::closing::PATIENCE;
use super::notice::{EndingBegan, Notice, RankExit};
use super::{Cx, JobAction};
use crate::events::{Cause, JobNews, Lost, RanksState, What};
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::earliest;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::settings::OnFailure;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_node::ToNode;

/// How long an ending may take without a word about it.
const SILENT: Span = Span::from_secs(1);

/// Whether the ending has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not yet.
    Running,
    /// The ending has begun.
    Begun,
}

/// The ending.
#[derive(Debug)]
pub(super) struct Ending {
    on_failure: OnFailure,
    grace: Span,
    /// The grace after a warning that a host is about to be taken away.
    warning_grace: Span,
    limit: Option<Span>,
    /// When `--timeout` runs out.
    timeout: Option<Mono>,
    /// All ranks are on the launcher's own host.
    sole: bool,
    /// A failure was passed over by `--on-failure continue`.
    failed: bool,
    all_over: bool,
    /// The ending is deferred: a rank was killed by a signal that was passed on, and the others may be saving because of it.
    deferred: Option<Deferred>,
    /// When to say what is waited for, and then why the job ends and when SIGKILL follows.
    word: Option<(Mono, Cause, Mono)>,
    state: State,
}

/// A deferred ending: the time of the other ranks after one was killed by a signal that was passed on.
#[derive(Clone, Copy, Debug)]
struct Deferred {
    failure: RankExit,
    /// When this is reported, if it was not.
    word: Option<Mono>,
    /// `None`: no rank is left.
    until: Option<Mono>,
}

impl Ending {
    pub(super) fn new(now: Mono, spec: &JobSpec) -> Self {
        Self {
            on_failure: spec.settings.ending.on_failure,
            grace: spec.settings.ending.grace,
            warning_grace: spec.settings.warnings.grace,
            limit: spec.settings.ending.timeout,
            timeout: spec.settings.ending.timeout.map(|limit| now + limit),
            sole: spec.placement.is_here(),
            failed: false,
            all_over: false,
            deferred: None,
            word: None,
            state: State::Running,
        }
    }

    /// Begins the ending, if it has not begun.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>, cause: Cause, ranks: RanksState) {
        match self.state {
            State::Running => {}
            State::Begun => {
                self.shorten(cx, &cause);
                return self.lost(cx, &cause);
            }
        }
        // The rank failed before this. A request of the user counts as long as other ranks run.
        if (self.all_over || matches!(cause, Cause::Lost { .. } | Cause::Lead { .. }))
            && let Some(Deferred { failure: RankExit { rank, status, .. }, .. }) = self.deferred.take()
        {
            self.end(cx, Cause::Rank { rank, status }, ranks);
            return self.lost(cx, &cause);
        }
        let sent = match &cause {
            Cause::Signal(sig) | Cause::Scheduler { sig, .. } => Some(*sig),
            Cause::Rank { .. }
            | Cause::Lead { .. }
            | Cause::Timeout { .. }
            | Cause::ReaderClosed(_)
            | Cause::Preempted { .. } => Some(Signal::TERM),
            // The ranks of the other hosts are asked as after any failure.
            Cause::Lost { .. } if !self.sole => Some(Signal::TERM),
            // Nothing useful can have been done by an incomplete launch: it is rolled back without asking the ranks.
            // After the loss of init or guardian the node ends by itself; SIGKILL makes sure that it does not hesitate.
            Cause::Success
            | Cause::Spawn { .. }
            | Cause::Refused { .. }
            | Cause::Unreachable { .. }
            | Cause::TooFewSlices { .. }
            | Cause::Lost { .. } => None,
        };
        let is_scheduler = matches!(cause, Cause::Scheduler { .. });
        let grace = self.grace_for(cx, &cause);
        let msg = match sent {
            Some(sig) if is_scheduler => ToNode::SchedulerEnds { sig, grace },
            Some(sig) => ToNode::End { sig, grace },
            None => ToNode::Kill,
        };
        // No node has said that it ends: their agents may have been stopped.
        if matches!(cause, Cause::Timeout { .. } | Cause::ReaderClosed(_)) {
            cx.notify(Notice::WakeAgents);
        }
        cx.notify(Notice::Broadcast(msg));
        let grace = if sent.is_some() { grace } else { Span::ZERO };
        let kill_at = cx.now + grace;
        if grace > SILENT && !self.all_over && !matches!(cause, Cause::Signal(_) | Cause::Scheduler { .. }) {
            self.word = Some((cx.now + SILENT, cause.clone(), kill_at));
        }
        self.state = State::Begun;
        (self.timeout, self.deferred) = (None, None);
        let ranks = if self.all_over { RanksState::Exited } else { ranks };
        cx.notify(Notice::Log(What::Ending { cause: cause.clone(), sent, grace, ranks }));
        cx.notify(Notice::EndingBegan(EndingBegan {
            cause: cause.clone(),
            at: cx.now,
            kill_at: sent.map(|_| kill_at),
        }));
        if sent.is_some() {
            self.lost(cx, &cause);
        }
    }

    /// The scheduler ends the job while it is ending for another reason: the grace ends before the scheduler kills.
    fn shorten(&self, cx: &mut Cx<'_>, cause: &Cause) {
        if let Cause::Scheduler { sig: sig @ Signal::TERM, .. } = *cause
            && !self.all_over
            && self.grace_for(cx, cause) < self.grace
        {
            cx.notify(Notice::Broadcast(ToNode::SchedulerEnds { sig, grace: self.grace_for(cx, cause) }));
        }
    }

    /// A part was lost after the ending had begun. The end of init took the ranks along, and without a guardian only the agent can end
    /// them. The rest of the grace is dropped, and a suspended agent is not waited for.
    fn lost(&self, cx: &mut Cx<'_>, cause: &Cause) {
        if let Cause::Lost { node, lost: Lost::Guardian | Lost::Init } = *cause {
            cx.act(JobAction::Send { node, msg: ToNode::Kill });
            // Without ranks it may be waiting for our own reader.
            if !self.all_over {
                cx.notify(if self.sole { Notice::Killed } else { Notice::Doomed(node) });
            }
        }
    }

    /// The ending has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.state == State::Begun
    }

    /// The time for ranks to end.
    fn grace_for(&self, cx: &Cx<'_>, cause: &Cause) -> Span {
        if let Cause::Preempted { lost: Lost::Warned(_), .. } = cause {
            return self.warning_grace;
        }
        let most = cx.facts.scheduler_grace().filter(|_| matches!(cause, Cause::Scheduler { .. }));
        most.map_or(self.grace, |most| most.min(self.grace))
    }

    /// Other processes play all ranks now.
    pub(super) const fn reset_for_generation(&mut self) {
        self.deferred = None;
    }

    /// Defers the ending after a rank was killed by a signal that was passed on, as a shell that does not handle it. The others got the
    /// same signal and have the grace for what they do about it. Returns whether the ending is deferred.
    fn defer(&mut self, cx: &Cx<'_>, failure: &RankExit) -> bool {
        if self.state == State::Begun {
            return false;
        }
        let word = Some(cx.now + SILENT).filter(|_| self.grace > SILENT);
        self.deferred.get_or_insert(Deferred { failure: *failure, word, until: Some(cx.now + self.grace) });
        true
    }

    /// A rank failed by itself, or because of our ending: `end` knows the difference. `warned`: its host is about to be taken away.
    /// `is_forwarded`: it was killed by a signal that was passed on.
    pub(super) fn failed(
        &mut self,
        cx: &mut Cx<'_>,
        failure: &RankExit,
        warned: Option<(NodeId, Lost)>,
        is_forwarded: bool,
    ) {
        let RankExit { rank, status, .. } = *failure;
        match self.on_failure {
            OnFailure::Kill => {
                if let Some((node, lost)) = warned {
                    self.end(cx, Cause::Preempted { node, lost }, RanksState::Running);
                } else if !is_forwarded || !self.defer(cx, failure) {
                    self.end(cx, Cause::Rank { rank, status }, RanksState::Running);
                }
            }
            OnFailure::Continue => self.passed_over(cx, failure),
        }
    }

    /// A rank failed, and the others continue.
    pub(super) fn passed_over(&mut self, cx: &mut Cx<'_>, failure: &RankExit) {
        let RankExit { rank, status, .. } = *failure;
        let first = !core::mem::replace(&mut self.failed, true);
        if first && self.state == State::Running && !self.all_over {
            cx.notify(Notice::Log(What::News(JobNews::Continuing { rank, status })));
        }
    }

    /// SIGKILL was sent before the grace had expired.
    pub(super) fn killed(&mut self) {
        self.word = None;
    }

    /// Ranks that end before the limit is checked end in time. The launcher may read of it late, because it was suspended. Then the
    /// limit is for the reader, which gets as long as after any ending.
    pub(super) fn all_over(&mut self, cx: &mut Cx<'_>) {
        self.word = None;
        if core::mem::replace(&mut self.all_over, true) {
            return;
        }
        // Their descendants may be saving.
        if let Some(deferred) = &mut self.deferred {
            (deferred.word, deferred.until) = (None, None);
        }
        self.timeout = self.timeout.map(|at| if at <= cx.now { cx.now + PATIENCE } else { at });
        match self.state {
            // A node that is not the only one cannot know that the ranks of the others have ended.
            State::Running => cx.notify(Notice::Broadcast(ToNode::Finish)),
            State::Begun => {}
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        if let Some(limit) = self.limit.filter(|_| self.timeout.is_some_and(|at| at <= cx.now)) {
            self.timeout = None;
            self.end(cx, Cause::Timeout { limit }, RanksState::Running);
        }
        if let Some(Deferred { failure: RankExit { rank, status, .. }, until: Some(until), .. }) = self.deferred {
            if until <= cx.now {
                self.end(cx, Cause::Rank { rank, status }, RanksState::Running);
            } else if self.deferred.as_mut().and_then(|deferred| deferred.word.take_if(|at| *at <= cx.now)).is_some() {
                let end_in = until.since(cx.now);
                cx.notify(Notice::Log(What::News(JobNews::EndingDeferred { rank, status, end_in })));
            }
        }
        if let Some((_, cause, kill_at)) = self.word.take_if(|(at, _, _)| *at <= cx.now) {
            let kill_in = kill_at.since(cx.now);
            cx.notify(Notice::Log(What::News(JobNews::EndingAwaits { cause, kill_in })));
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let deferred = self.deferred.and_then(|deferred| deferred.word.or(deferred.until));
        earliest(deferred, earliest(self.timeout, self.word.as_ref().map(|(at, _, _)| *at)))
    }
}
