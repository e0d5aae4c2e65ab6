//! The last steps: count, output, report, exit.
//!
//! A job that succeeded or failed by itself waits for its reader as long as cat would: its last words matter most. A job that was ended
//! by a signal, by `--timeout` or by a reader that left does not wait for ever for a sink that takes nothing.

use super::notice::{EndingBegan, Notice};
use super::{Cx, JobAction};
use crate::events::{Cause, What};
use rlaunch_base::patience::Patience;
use rlaunch_base::time::{Mono, Span};

/// Time for which output may still be written after the end of the last rank, if the job was ended from outside.
pub(super) const PATIENCE: Span = Span::from_secs(2);

/// Which step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The node has not reported what remains.
    Counting,
    /// All ranks have ended; output is being written.
    Draining {
        /// The number of processes that remain.
        left: Option<u32>,
    },
    /// `Finish` was the last action.
    Finished,
}

/// The last steps.
#[derive(Debug)]
pub(super) struct Closing {
    step: Step,
    all_over: bool,
    /// Whether the job was ended from outside.
    is_ended_from_outside: bool,
    /// How long output is waited for.
    give_up: Option<Patience>,
    abandoned: bool,
}

impl Closing {
    pub(super) const fn new() -> Self {
        Self { step: Step::Counting, all_over: false, is_ended_from_outside: false, give_up: None, abandoned: false }
    }

    pub(super) fn finished(&self) -> bool {
        self.step == Step::Finished
    }

    pub(super) fn on_ending_began(&mut self, cx: &mut Cx<'_>, began: &EndingBegan) {
        self.is_ended_from_outside = match began.cause {
            Cause::Signal(_) | Cause::Scheduler { .. } | Cause::Timeout { .. } | Cause::ReaderClosed(_) => true,
            Cause::Success
            | Cause::Lead { .. }
            | Cause::Rank { .. }
            | Cause::Spawn { .. }
            | Cause::Refused { .. }
            | Cause::Unreachable { .. }
            | Cause::Lost { .. }
            | Cause::TooFewSlices { .. }
            | Cause::Preempted { .. } => false,
        };
        self.arm(cx);
    }

    /// All ranks of the last generation have ended: nothing is left to be done again.
    pub(super) const fn is_all_over(&self) -> bool {
        self.all_over
    }

    /// From here only output is waited for: a node whose credit is held back by the sink cannot say that it is done.
    pub(super) fn all_over(&mut self, cx: &mut Cx<'_>) {
        self.all_over = true;
        self.arm(cx);
    }

    pub(super) fn impatient(&mut self, cx: &mut Cx<'_>, patience: Span) {
        let patience = Patience::new(cx.now, patience);
        self.give_up = Some(self.give_up.map_or(patience, |give_up| give_up.min(patience)));
        self.timeout(cx);
    }

    pub(super) fn counted(&mut self, cx: &mut Cx<'_>, left: Option<u32>) {
        match self.step {
            Step::Counting => {}
            Step::Draining { .. } | Step::Finished => return,
        }
        self.step = Step::Draining { left };
        self.all_over(cx);
        cx.act(JobAction::DrainOutput);
    }

    /// All output was written.
    pub(super) fn drained(&mut self, cx: &mut Cx<'_>, lost: u64, broken: u64) {
        let left = match self.step {
            Step::Draining { left } => left,
            // The answer to `AbandonOutput`, while the node has still to report what remains.
            Step::Counting | Step::Finished => return,
        };
        cx.notify(Notice::Log(What::OutputEnd { lost, broken }));
        self.finish(cx, left);
    }

    /// At once: also a reader that takes nothing is not waited for.
    pub(super) fn leave(&mut self, cx: &mut Cx<'_>) {
        if self.step != Step::Finished && !core::mem::replace(&mut self.abandoned, true) {
            cx.act(JobAction::AbandonOutput);
        }
        match self.step {
            Step::Counting => self.finish(cx, None),
            Step::Draining { left } => self.finish(cx, left),
            Step::Finished => {}
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        if self.give_up.as_mut().is_some_and(|patience| patience.is_out(cx.now)) && !self.abandoned {
            self.abandoned = true;
            cx.act(JobAction::AbandonOutput);
            cx.notify(Notice::Abandoned);
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.give_up.filter(|_| !self.abandoned).map(|patience| patience.deadline())
    }

    fn arm(&mut self, cx: &Cx<'_>) {
        if self.is_ended_from_outside && self.all_over && self.give_up.is_none() {
            self.give_up = Some(Patience::new(cx.now, PATIENCE));
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_>, left: Option<u32>) {
        self.step = Step::Finished;
        cx.notify(Notice::Close { left });
    }
}
