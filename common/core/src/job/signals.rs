//! The effect of a signal to rlaunch: docs/reference/signals.md has it as a table ([`document`]).
//!
//! INT, TERM, HUP and QUIT end the job. The first is passed on and starts the grace. The second is SIGKILL for everything. The third
//! makes rlaunch leave and the guardian finish. USR1 and USR2 are passed on and the job continues.
//!
//! A scheduler that ends a batch script sends SIGTERM to rlaunch itself, maybe before the agents get the same signal. Within its
//! step SIGTERM waits a moment for the agents, which know the cause.

use super::Cx;
use super::closing::PATIENCE;
use super::notice::{EndingBegan, Notice};
use crate::events::{Answer, Cause, What};
use alloc::string::String;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::to_node::ToNode;

/// The same signal again within this time is an echo, not an escalation: timeout(1) signals its child and then the child's
/// group, and a terminal's Ctrl-C may arrive both from it and from a wrapper that passes it on. Fingers are slower.
const ECHO: Span = Span::from_millis(50);

/// How long the scheduler's SIGTERM to the agents may be reported after that to rlaunch.
const SCHEDULER_WAIT: Span = Span::from_secs(1);

/// The state of the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The ranks run.
    Running,
    /// The job is ending; SIGKILL follows then, or was sent.
    Ending(Option<Mono>),
    /// All are gone; output is written, descendants linger.
    Over,
}

/// The user's signals.
#[derive(Debug)]
pub(super) struct Signals {
    phase: Phase,
    received: u32,
    last: Option<(Signal, Mono)>,
    /// The first SIGTERM waits until then for that of the scheduler to the agents.
    waits: Option<Mono>,
}

impl Signals {
    pub(super) const fn new() -> Self {
        Self { phase: Phase::Running, received: 0, last: None, waits: None }
    }

    /// rlaunch got a signal. `may_be_scheduler`: ranks run in a scheduler's step.
    pub(super) fn on(&mut self, cx: &mut Cx<'_>, sig: Signal, may_be_scheduler: bool) {
        let answer = self.answer(cx.now, sig);
        // First: the user reads it before anything that comes of it.
        cx.notify(Notice::Log(What::Signal { sig, answer }));
        if answer == Answer::Ended && sig == Signal::TERM && may_be_scheduler {
            self.waits = Some(cx.now + SCHEDULER_WAIT);
            return cx.notify(Notice::WakeAgents);
        }
        self.obey(cx, sig, answer);
    }

    /// rlaunch got a signal, which follows. The end that waits for the scheduler begins before a second signal kills.
    pub(super) fn before(&mut self, cx: &mut Cx<'_>, sig: Signal) {
        if matches!(sig, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT) && !self.is_echo(cx.now, sig) {
            self.end_wait(cx);
        }
    }

    fn is_echo(&self, now: Mono, sig: Signal) -> bool {
        self.last.is_some_and(|(last, at)| last == sig && now.since(at) < ECHO)
    }

    /// The scheduler has not signalled the agents: the signal was the user's.
    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        if self.deadline().is_some_and(|at| at <= cx.now) {
            self.end_wait(cx);
        }
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.waits
    }

    fn end_wait(&mut self, cx: &mut Cx<'_>) {
        if self.waits.take().is_some() {
            let answer = match self.phase {
                Phase::Over => Answer::Unwritten { patience: PATIENCE },
                Phase::Running | Phase::Ending(_) => Answer::Ended,
            };
            self.obey(cx, Signal::TERM, answer);
        }
    }

    fn answer(&mut self, now: Mono, sig: Signal) -> Answer {
        match sig {
            Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT => self.ends(now, sig),
            Signal::USR1 | Signal::USR2 => Answer::Forwarded,
            _ => Answer::Ignored,
        }
    }

    fn ends(&mut self, now: Mono, sig: Signal) -> Answer {
        if self.is_echo(now, sig) {
            return Answer::Ignored;
        }
        self.last = Some((sig, now));
        self.received = self.received.saturating_add(1);
        match (self.received, self.phase) {
            // The first signal never kills, even where the job is ending for another reason: the user has not yet read that it would.
            (1, Phase::Running) => Answer::Ended,
            (1, Phase::Ending(kill_at)) => Answer::Noted { kill_in: kill_at.map(|at| at.since(now)) },
            (1, Phase::Over) => Answer::Unwritten { patience: PATIENCE },
            (2, _) => Answer::Killed,
            _ => Answer::Left,
        }
    }

    fn obey(&self, cx: &mut Cx<'_>, sig: Signal, answer: Answer) {
        match answer {
            Answer::Forwarded => {
                cx.notify(Notice::Broadcast(ToNode::Signal { sig }));
                return cx.notify(Notice::Forwarded(sig));
            }
            Answer::Ignored => return,
            Answer::Ended | Answer::Noted { .. } | Answer::Unwritten { .. } | Answer::Killed | Answer::Left => {
                cx.notify(Notice::WakeAgents)
            }
        }
        match answer {
            Answer::Ended => cx.notify(Notice::End(Cause::Signal(sig))),
            Answer::Unwritten { patience } => {
                cx.notify(Notice::End(Cause::Signal(sig)));
                cx.notify(Notice::Impatient { patience });
            }
            Answer::Killed => {
                cx.notify(Notice::Broadcast(ToNode::Kill));
                cx.notify(Notice::Killed);
                if self.phase == Phase::Over {
                    cx.notify(Notice::Impatient { patience: Span::ZERO });
                }
            }
            Answer::Left => cx.notify(Notice::Leave),
            Answer::Noted { .. } | Answer::Forwarded | Answer::Ignored => {}
        }
    }

    pub(super) fn on_ending_began(&mut self, began: &EndingBegan) {
        self.waits = None;
        match self.phase {
            Phase::Running | Phase::Ending(_) => self.phase = Phase::Ending(began.kill_at),
            Phase::Over => {}
        }
    }

    pub(super) fn killed(&mut self) {
        match self.phase {
            Phase::Ending(_) => self.phase = Phase::Ending(None),
            Phase::Running | Phase::Over => {}
        }
    }

    pub(super) fn all_over(&mut self) {
        self.phase = Phase::Over;
    }
}

/// The table of docs/reference/signals.md: the answer to each signal in each phase.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(
        "| signal | the job runs | the job is ending | all ranks have exited, output is pending |\n|---|---|---|---|\n",
    );
    let rows = [
        ("INT, TERM, HUP, QUIT: the first", Signal::TERM, 1),
        ("… the second, any of the four", Signal::TERM, 2),
        ("… the third, any of the four", Signal::TERM, 3),
        ("USR1, USR2", Signal::USR1, 1),
        ("any other that can be caught, also TSTP", Signal::TSTP, 1),
    ];
    for (title, sig, count) in rows {
        text.push_str("| ");
        text.push_str(title);
        for phase in [Phase::Running, Phase::Ending(None), Phase::Over] {
            let mut signals = Signals { phase, ..Signals::new() };
            let times = (0..count).map(|time| Mono::from_nanos(0) + Span::from_secs(time));
            let answer = times.map(|now| signals.answer(now, sig)).last().unwrap_or(Answer::Ignored);
            text.push_str(" | ");
            text.push_str(in_words(answer, phase));
        }
        text.push_str(" |\n");
    }
    text
}

const fn in_words(answer: Answer, phase: Phase) -> &'static str {
    match (answer, phase) {
        (Answer::Ended, _) => "passed on to each rank's process group; SIGKILL after `--grace`",
        (Answer::Noted { .. }, _) => "rlaunch prints when SIGKILL follows",
        (Answer::Unwritten { .. }, _) => "output that nothing reads is dropped after 2 s",
        (Answer::Killed, Phase::Over) => "pending output is dropped",
        (Answer::Killed, _) => "SIGKILL to all processes of the job",
        (Answer::Left, _) => "rlaunch exits; the guardian kills the remaining processes",
        (Answer::Forwarded, Phase::Over) => "nothing: no rank runs",
        (Answer::Forwarded, Phase::Running) => "passed on to each rank's process group; the job continues",
        (Answer::Forwarded, Phase::Ending(_)) => "passed on to each rank's process group",
        (Answer::Ignored, _) => "nothing",
    }
}
