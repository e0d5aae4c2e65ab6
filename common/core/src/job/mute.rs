//! An agent that has to end its node and says nothing: the guardian does it instead.
//!
//! An agent may be stopped, frozen, or stuck in the kernel. While a job runs that is nobody's business: it may be woken
//! again. But once SIGKILL is due it has to answer, because a user who asked for that must not wait for ever.
//!
//! Without a guardian nobody else can end the node, nor count it. Then the agent has to be awake to the end: also when its
//! ranks are gone, and a slow reader of ours may be all that it waits for. So it is asked again and again.

use super::notice::{Began, Notice};
use super::{Cx, JobAction, NODE};
use crate::patience::Patience;
use crate::time::{Mono, Span};
use crate::wire::to_node::ToNode;

/// How long an agent may take to say that SIGKILL is on its way.
pub(super) const ANSWER: Span = Span::from_secs(1);
/// How long it may then be silent: more than the 2 s after which it names what the kernel cannot end.
const SILENCE: Span = Span::from_secs(4);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The agent owes nothing.
    Free,
    /// It will owe a word when this is over: what it says before is no answer, but that it kills. The agent's grace began when
    /// it heard of it, which is later than we think if the host stood still just then.
    Due(Patience),
    /// It owes a word, for as long as this lasts.
    Owes(Patience),
    /// It has answered, and is asked again then.
    Rests(Mono),
    /// It was given up, or has told everything.
    Over,
}

/// The agent's silence.
#[derive(Debug)]
pub(super) struct Mute {
    state: State,
    all_over: bool,
    unguarded: bool,
}

impl Mute {
    pub(super) const fn new() -> Self {
        Self { state: State::Free, all_over: false, unguarded: false }
    }

    /// The end of the ranks is due at the end of the grace. Where they are gone already, the agent may be waiting for our
    /// own reader, however long that takes.
    pub(super) fn began(&mut self, cx: &Cx<'_>, began: &Began) {
        if !self.all_over {
            match (began.kill_at, self.state) {
                (Some(due), State::Free) => {
                    self.state = State::Due(Patience::new(cx.now, due.since(cx.now)));
                }
                (None, State::Free) => self.owes(cx, ANSWER),
                (_, State::Due(_) | State::Owes(_) | State::Rests(_) | State::Over) => {}
            }
        }
    }

    /// It has to be answered whatever the agent was doing.
    pub(super) fn killed(&mut self, cx: &Cx<'_>) {
        self.owes(cx, ANSWER);
    }

    /// The agent has credit for all that it has, so it has nothing to wait for.
    pub(super) fn abandoned(&mut self, cx: &Cx<'_>) {
        match self.state {
            State::Free => self.owes(cx, SILENCE),
            State::Due(_) | State::Owes(_) | State::Rests(_) | State::Over => {}
        }
    }

    /// The guardian was lost, and SIGKILL was asked for because of it.
    pub(super) fn unguarded(&mut self, cx: &Cx<'_>) {
        self.unguarded = true;
        if self.all_over {
            self.owes(cx, ANSWER);
        }
    }

    pub(super) fn heard(&mut self, cx: &Cx<'_>) {
        match &mut self.state {
            State::Due(grace) => {
                if grace.is_out(cx.now) {
                    self.answered(cx);
                }
            }
            State::Owes(_) => self.answered(cx),
            State::Free | State::Rests(_) | State::Over => {}
        }
    }

    /// It says that SIGKILL is on its way: by its clock the grace is over, which went on if we alone stood still.
    pub(super) fn killing(&mut self, cx: &Cx<'_>) {
        match self.state {
            State::Due(_) | State::Owes(_) => self.answered(cx),
            State::Free | State::Rests(_) | State::Over => {}
        }
    }

    fn answered(&mut self, cx: &Cx<'_>) {
        if self.unguarded && self.all_over {
            self.rests(cx);
        } else {
            self.state = State::Owes(Patience::new(cx.now, SILENCE));
        }
    }

    pub(super) fn all_over(&mut self, cx: &Cx<'_>) {
        self.all_over = true;
        match self.state {
            State::Free | State::Due(_) | State::Owes(_) | State::Rests(_) if self.unguarded => self.rests(cx),
            State::Free | State::Due(_) | State::Owes(_) | State::Rests(_) => self.state = State::Free,
            State::Over => {}
        }
    }

    pub(super) fn counted(&mut self) {
        self.state = State::Over;
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        match &mut self.state {
            State::Due(grace) => {
                if grace.is_out(cx.now) {
                    self.owes(cx, ANSWER);
                }
            }
            State::Owes(patience) => {
                if patience.is_out(cx.now) {
                    self.state = State::Over;
                    cx.tell(Notice::Mute);
                }
            }
            State::Rests(until) if *until <= cx.now => {
                cx.act(JobAction::Rouse { node: NODE });
                cx.act(JobAction::Send { node: NODE, msg: ToNode::Kill });
                self.owes(cx, ANSWER);
            }
            State::Free | State::Rests(_) | State::Over => {}
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Rests(until) => Some(until),
            State::Due(patience) | State::Owes(patience) => Some(patience.deadline()),
            State::Free | State::Over => None,
        }
    }

    fn rests(&mut self, cx: &Cx<'_>) {
        self.state = State::Rests(cx.now + SILENCE);
    }

    fn owes(&mut self, cx: &Cx<'_>, how_long: Span) {
        let patience = Patience::new(cx.now, how_long);
        match self.state {
            State::Free | State::Due(_) | State::Rests(_) => self.state = State::Owes(patience),
            State::Owes(earlier) => self.state = State::Owes(patience.min(earlier)),
            State::Over => {}
        }
    }
}
