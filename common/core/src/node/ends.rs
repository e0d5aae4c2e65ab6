//! Ends of this host: signals to it, the loss of the launcher, and the end of the job here.

use super::{Cx, Notice, Parts, Send, SignalledPart, procs, serve, start};
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_base::warnings::WarningSource;

impl Parts {
    /// The guardian or the agent was sent a signal.
    pub(super) fn signalled(&mut self, cx: &mut Cx<'_>, sig: Signal, to: SignalledPart) {
        let ends = self.host_signals.on_signal(cx, sig, to);
        // A session that is ended sends SIGHUP after SIGTERM.
        if ends && !(sig == Signal::HUP && self.warnings.is_spared(cx.now)) {
            self.lost.on_no_contact(cx);
        }
        if sig == Signal::CONT {
            self.lease.on_resumed(cx);
        }
    }

    /// The connection to the launcher has ended.
    pub(super) fn edge_lost(&mut self, cx: &mut Cx<'_>) {
        if self.warnings.on_cut(cx.now) || self.step_end.on_cut(cx) {
            self.on_launcher_lost(cx);
        } else {
            self.lost.on_no_contact(cx);
        }
    }

    /// The scheduler ends the step, and the launcher has not ordered the end.
    pub(super) fn step_ends(&mut self, cx: &mut Cx<'_>, grace: Span) {
        if !self.grace.is_ending() {
            self.grace.on_end(cx, Send::SchedulerEnds(Signal::TERM), grace);
        }
    }

    /// Handles the warning that this host is about to be taken away.
    pub(super) fn warned(&mut self, cx: &mut Cx<'_>, source: WarningSource) {
        if self.warnings.on_warned(cx, source) {
            self.rounds.on_warned(cx);
        }
    }

    /// Records that no message of ours arrives any more.
    pub(super) fn on_launcher_lost(&mut self, cx: &mut Cx<'_>) {
        self.launcher_lost = true;
        self.postmortem.on_launcher_lost();
        self.leftovers.on_launcher_lost(cx);
    }

    /// The end has begun.
    pub(super) fn ends(&mut self, cx: &mut Cx<'_>, sig: Signal, procs: fn(&mut procs::Procs, &mut Cx<'_>, Signal)) {
        self.generations.on_ending();
        self.rounds.on_ending(cx);
        shut(cx, &mut self.start, &mut self.serve);
        self.postmortem.on_ending(sig);
        procs(&mut self.procs, cx, sig);
        self.leftovers.on_ending(cx);
    }

    /// SIGKILL for everything.
    pub(super) fn destroys(&mut self, cx: &mut Cx<'_>) {
        self.generations.on_ending();
        self.grace.on_destroy();
        self.rounds.on_ending(cx);
        shut(cx, &mut self.start, &mut self.serve);
        self.postmortem.on_ending(Signal::KILL);
        self.procs.on_ending(cx, Signal::KILL);
        // After the census: a sweep asked for while ranks seem to be there would have to be repeated.
        cx.notify(Notice::Destroyed);
    }
}

/// Closes the host for others at the begin of the end: no agent has to reach it any more.
fn shut(cx: &mut Cx<'_>, start: &mut start::BringUp, serve: &mut serve::Serve) {
    start.probing.end(cx);
    serve.on_ending(cx);
}
