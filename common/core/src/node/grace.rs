//! The ways to end ranks: politely, with a deadline, or at once.

use super::generation_change::Between;
use super::{Census, Cx, NodeAction, Notice};
use crate::signal::Signal;
use crate::time::{Mono, Span};
use crate::wire::to_root::ToRoot;

#[derive(Default)]
pub(super) struct Grace {
    deadline: Option<Mono>,
    destroyed: bool,
    /// Other ranks may follow.
    clearing: bool,
    gone: bool,
}

impl Grace {
    pub(super) fn on_signal(&mut self, cx: &mut Cx<'_>, sig: Signal) {
        cx.notify(Notice::Forward(sig));
    }

    /// A second request shortens the time that is left and never lengthens it.
    pub(super) fn on_end(&mut self, cx: &mut Cx<'_>, sig: Signal, grace: Span) {
        if self.destroyed {
            return;
        }
        self.clearing = false;
        cx.notify(Notice::Ending(sig));
        let deadline = cx.now + grace;
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        self.on_timeout(cx);
    }

    /// The same where others may follow.
    pub(super) fn on_clear(&mut self, cx: &mut Cx<'_>, sig: Signal, grace: Span) {
        if self.destroyed {
            return;
        }
        self.clearing = true;
        cx.notify(Notice::Between(Between::Clearing(sig)));
        self.deadline = Some(cx.now + grace);
        self.on_timeout(cx);
    }

    /// Records that no rank remains.
    pub(super) const fn on_cleared(&mut self) {
        (self.deadline, self.clearing) = (None, false);
    }

    /// Others follow.
    pub(super) const fn on_next_generation(&mut self) {
        self.gone = false;
    }

    /// The answer is given each time: the launcher waits for it.
    pub(super) fn on_kill(&mut self, cx: &mut Cx<'_>) {
        cx.act(NodeAction::ToRoot(ToRoot::Killing));
        if !self.destroyed {
            cx.notify(Notice::Destroy);
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.deadline().is_some_and(|deadline| deadline <= cx.now) {
            self.deadline = None;
            cx.act(NodeAction::ToRoot(ToRoot::Killing));
            cx.notify(if self.clearing { Notice::Between(Between::TearDown) } else { Notice::Destroy });
        }
    }

    pub(super) fn on_destroy(&mut self) {
        (self.destroyed, self.clearing) = (true, false);
        self.deadline = None;
    }

    /// Ends the patience once no rank remains: other processes are killed from here on. The launcher gets a report, as it may not know of
    /// ranks that were never started, and would wait for an answer.
    pub(super) fn on_census(&mut self, cx: &mut Cx<'_>, census: Census) {
        self.gone = census.gone;
        if self.gone && self.deadline.take().is_some() {
            cx.act(NodeAction::ToRoot(ToRoot::Killing));
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        if self.gone { None } else { self.deadline }
    }
}
