//! An agent that has to end its node and says nothing: the guardian does it instead.
//!
//! An agent may be stopped, frozen, or stuck in the kernel. While a job runs that is nobody's business: it may be woken
//! again. But once SIGKILL is due it has to answer, because a user who asked for that must not wait for ever.

use super::Cx;
use super::notice::{Began, Notice};
use crate::time::{Mono, Span};

/// How long an agent may take to say that SIGKILL is on its way.
pub(super) const ANSWER: Span = Span::from_secs(1);
/// How long it may then be silent: more than the 2 s after which it names what the kernel cannot end.
const SILENCE: Span = Span::from_secs(4);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The agent owes nothing.
    Free,
    /// It owes a word.
    Owes {
        /// From here on: what it said before is no answer.
        since: Mono,
        /// Until here.
        until: Mono,
    },
    /// It was given up, or has told everything.
    Over,
}

/// The agent's silence.
#[derive(Debug)]
pub(super) struct Mute {
    state: State,
    all_over: bool,
}

impl Mute {
    pub(super) const fn new() -> Self {
        Self { state: State::Free, all_over: false }
    }

    /// The end of the ranks is due at the end of the grace. Where they are gone already, the agent may be waiting for our
    /// own reader, however long that takes.
    pub(super) fn began(&mut self, cx: &Cx<'_>, began: &Began) {
        if !self.all_over {
            let due = began.kill_at.unwrap_or(cx.now);
            self.owes(due, due + ANSWER);
        }
    }

    /// It has to be answered whatever the agent was doing.
    pub(super) fn killed(&mut self, cx: &Cx<'_>) {
        self.owes(cx.now, cx.now + ANSWER);
    }

    /// The agent has credit for all that it has, so it has nothing to wait for.
    pub(super) fn abandoned(&mut self, cx: &Cx<'_>) {
        match self.state {
            State::Free => self.owes(cx.now, cx.now + SILENCE),
            State::Owes { .. } | State::Over => {}
        }
    }

    pub(super) fn heard(&mut self, cx: &Cx<'_>) {
        match self.state {
            State::Owes { since, .. } if since <= cx.now => {
                self.state = State::Owes { since, until: cx.now + SILENCE };
            }
            State::Free | State::Owes { .. } | State::Over => {}
        }
    }

    pub(super) fn all_over(&mut self) {
        self.all_over = true;
        match self.state {
            State::Free | State::Owes { .. } => self.state = State::Free,
            State::Over => {}
        }
    }

    pub(super) fn counted(&mut self) {
        self.state = State::Over;
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        if self.deadline().is_some_and(|until| until <= cx.now) {
            self.state = State::Over;
            cx.tell(Notice::Mute);
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Owes { until, .. } => Some(until),
            State::Free | State::Over => None,
        }
    }

    fn owes(&mut self, since: Mono, until: Mono) {
        match self.state {
            State::Free => self.state = State::Owes { since, until },
            State::Owes { until: earlier, .. } => self.state = State::Owes { since, until: until.min(earlier) },
            State::Over => {}
        }
    }
}
