//! The one ending of a job: the first cause begins it and nothing later changes it.

use super::notice::{Began, Failure, Notice};
use super::{Cx, JobAction};
use crate::events::{Cause, What};
use crate::machine::earliest;
use crate::report::Sentence;
use crate::signal::Signal;
use crate::spec::{JobSpec, OnFailure};
use crate::time::{Mono, Span};
use crate::wire::to_node::ToNode;

/// How long after SIGKILL an agent may still be silent about its ranks. It names what the kernel cannot end instead of
/// waiting for it, so silence means that the agent itself is stuck; the guardian does its work once we are gone.
const MUTE: Span = Span::from_secs(10);

/// How long an ending may take without a word about it.
const SILENT: Span = Span::from_secs(1);

/// Whether the ending has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not yet.
    Running,
    /// It has; if ranks are still not over by then, the agent is taken for lost.
    Begun {
        /// `None`: they are over, or the agent is known to be gone.
        give_up: Option<Mono>,
    },
}

/// The ending.
#[derive(Debug)]
pub(super) struct Ending {
    on_failure: OnFailure,
    grace: Span,
    limit: Option<Span>,
    /// When `--timeout` runs out.
    timeout: Option<Mono>,
    /// A failure was passed over by `--on-failure continue`.
    failed: bool,
    all_over: bool,
    /// When to say what is waited for, and then why the job ends and when SIGKILL follows.
    word: Option<(Mono, Cause, Mono)>,
    state: State,
}

impl Ending {
    pub(super) fn new(now: Mono, spec: &JobSpec) -> Self {
        Self {
            on_failure: spec.on_failure,
            grace: spec.grace,
            limit: spec.timeout,
            timeout: spec.timeout.map(|limit| now + limit),
            failed: false,
            all_over: false,
            word: None,
            state: State::Running,
        }
    }

    /// Begins the ending, if it has not begun.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>, cause: Cause) {
        match self.state {
            State::Running => {}
            State::Begun { .. } => return,
        }
        let sent = match &cause {
            Cause::Signal(sig) => Some(*sig),
            Cause::Rank { .. } | Cause::Timeout(_) | Cause::ReaderClosed(_) => Some(Signal::TERM),
            // Nothing useful can have been done by an incomplete launch: it is rolled back without asking the ranks.
            // After the loss of init or guardian the node ends by itself; SIGKILL makes sure that it does not hesitate.
            Cause::Success
            | Cause::Spawn { .. }
            | Cause::Refused { .. }
            | Cause::Unreachable { .. }
            | Cause::Lost { .. } => None,
        };
        let msg = match sent {
            Some(sig) => ToNode::End { sig, grace: self.grace },
            None => ToNode::Kill,
        };
        cx.tell(Notice::Broadcast(msg));
        let grace = if sent.is_some() { self.grace } else { Span::ZERO };
        if let Cause::Signal(sig) = cause
            && !self.all_over
        {
            cx.act(JobAction::Say(Sentence::Sent { sig, kill_in: grace }));
        }
        let kill_at = cx.now + grace;
        if grace > SILENT && !self.all_over && !matches!(cause, Cause::Signal(_)) {
            self.word = Some((cx.now + SILENT, cause.clone(), kill_at));
        }
        let give_up = if self.all_over { None } else { Some(kill_at + MUTE) };
        self.state = State::Begun { give_up };
        self.timeout = None;
        cx.tell(Notice::Log(What::Ending { cause: cause.clone(), sent, grace }));
        cx.tell(Notice::Began(Began { cause, at: cx.now, kill_at: sent.map(|_| kill_at) }));
    }

    /// A rank failed by itself, or because of our ending: `end` knows the difference.
    pub(super) fn failed(&mut self, cx: &mut Cx<'_>, failure: &Failure) {
        let Failure { rank, status, .. } = *failure;
        match self.on_failure {
            OnFailure::Kill => self.end(cx, Cause::Rank { rank, status }),
            OnFailure::Continue => {
                let first = !core::mem::replace(&mut self.failed, true);
                if first && self.state == State::Running && !self.all_over {
                    cx.act(JobAction::Say(Sentence::GoesOn { rank, status }));
                }
            }
        }
    }

    /// SIGKILL was sent before the grace was over.
    pub(super) fn killed(&mut self, cx: &mut Cx<'_>) {
        self.word = None;
        match self.state {
            State::Begun { give_up: Some(at) } => {
                self.state = State::Begun { give_up: Some(at.min(cx.now + MUTE)) };
            }
            State::Running | State::Begun { give_up: None } => {}
        }
    }

    pub(super) fn all_over(&mut self, cx: &mut Cx<'_>) {
        let first = !core::mem::replace(&mut self.all_over, true);
        self.word = None;
        match self.state {
            State::Begun { .. } => self.state = State::Begun { give_up: None },
            // A node that is not the only one cannot know that the ranks of the others have ended.
            State::Running if first => cx.tell(Notice::Broadcast(ToNode::Finish)),
            State::Running => {}
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        if let Some(limit) = self.limit.filter(|_| self.timeout.is_some_and(|at| at <= cx.now)) {
            self.timeout = None;
            self.end(cx, Cause::Timeout(limit));
        }
        if let Some((_, cause, kill_at)) = self.word.take_if(|(at, _, _)| *at <= cx.now) {
            cx.act(JobAction::Say(Sentence::Waiting { cause, kill_in: kill_at.since(cx.now) }));
        }
        match self.state {
            State::Begun { give_up: Some(at) } if at <= cx.now => {
                self.state = State::Begun { give_up: None };
                cx.tell(Notice::Mute);
            }
            State::Running | State::Begun { .. } => {}
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let give_up = match self.state {
            State::Running => None,
            State::Begun { give_up } => give_up,
        };
        earliest(earliest(self.timeout, give_up), self.word.as_ref().map(|(at, _, _)| *at))
    }
}
