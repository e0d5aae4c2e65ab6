//! Signals to this host. Outside of a scheduler's step SIGTERM is a warning: the host shuts down.
//!
//! Slurm warns a job before it ends it. The processes of the step are sent SIGTERM (time limit, scancel), or the signal of `--signal`.
//!
//! Which processes get it differs: under proctrack/cgroup the guardian alone, which Slurm has started, and under proctrack/linuxproc
//! every process below it, the ranks too. If the agent was sent the same signal as the guardian, the ranks were.

use super::{Cx, Exited, NodeAction, Notice, Send};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::id::ProcId;
use rlaunch_base::machine::earliest;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_base::warnings::WarningSource;
use rlaunch_protocol::wire::to_node::Start;
use rlaunch_protocol::wire::to_root::ToRoot;

/// How long the signal to the second of the two may come after that to the first, and the exit of a rank before both.
const TOGETHER: Span = Span::from_millis(100);
/// How long the scheduler's own signal may come after another host has reported it to the launcher.
const LATE: Span = Span::from_millis(300);

/// Time for which the scheduler may have signalled ranks before the agent gets the signal. Ranks that started since may not have got it.
const JUST_BEFORE: Span = Span::from_millis(10);

/// Signals of a step that ranks get, each of them once.
const FOR_RANKS: [Signal; 6] = [Signal::TERM, Signal::USR1, Signal::USR2, Signal::INT, Signal::HUP, Signal::QUIT];

/// A process of ours that was sent a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalledPart {
    /// The guardian.
    Guardian,
    /// The agent.
    Agent,
}

/// The signals that a scheduler has sent here.
#[derive(Default)]
pub(super) struct HostSignals {
    /// The agent is a task of the scheduler's. `None`: the launcher's first message has not come yet.
    in_step: Option<bool>,
    /// Signals that came before that message.
    early: Vec<(Signal, SignalledPart)>,
    /// Signals that one of the two was sent, and until when the other is waited for.
    received: BTreeMap<Signal, (SignalledPart, Mono)>,
    /// Signals that were reported to the launcher. Until that time the same signal is not another one.
    reported: BTreeMap<Signal, Mono>,
    /// Signals that ranks have got, from the scheduler or from us.
    delivered: BTreeSet<Signal>,
    /// Exits of ranks by a signal that the scheduler may have sent. They are reported after it.
    exits: Vec<(Signal, Mono, Exited)>,
    /// The signal for the ranks, if the scheduler does not send it by then.
    owed: Option<(Signal, Mono)>,
    /// When the scheduler had sent its last signal to the ranks that ran.
    ended_ranks: Option<Mono>,
    /// When ranks started.
    started: BTreeMap<ProcId, Mono>,
    /// The launcher has ordered the end for the scheduler.
    is_ending: bool,
    /// Ranks that started after that: they get the signal as they start.
    warned: BTreeSet<ProcId>,
}

impl HostSignals {
    /// The job begins. Returns whether a signal that came before asks the agent to end at once.
    pub(super) fn on_begun(&mut self, cx: &mut Cx<'_>, start: &Start) -> bool {
        self.in_step = Some(start.is_in_step());
        let early = core::mem::take(&mut self.early);
        early.into_iter().fold(false, |ends, (sig, to)| self.on_signal(cx, sig, to) || ends)
    }

    /// The guardian or the agent was sent a signal. Returns whether that asks the agent to end at once.
    pub(super) fn on_signal(&mut self, cx: &mut Cx<'_>, sig: Signal, to: SignalledPart) -> bool {
        if matches!(sig, Signal::TSTP | Signal::CONT) {
            if self.in_step == Some(true) && to == SignalledPart::Guardian {
                cx.act(NodeAction::ToRoot(ToRoot::HostSignal { sig, to_ranks: false }));
            }
            return false;
        }
        let is_for_ranks = FOR_RANKS.contains(&sig);
        if self.in_step.is_none() && is_for_ranks {
            if !self.early.contains(&(sig, to)) {
                self.early.push((sig, to));
            }
            return false;
        }
        // Outside of a step this host is about to be shut down, and its ranks have some time.
        if self.in_step == Some(false) && sig == Signal::TERM {
            cx.notify(Notice::Warned(WarningSource::Signal));
            return false;
        }
        if self.in_step != Some(true) || !is_for_ranks {
            return sig != Signal::USR1 && sig != Signal::USR2;
        }
        if self.reported.get(&sig).is_some_and(|until| cx.now < *until) {
            if sig == Signal::TERM && self.ended_ranks.is_some() {
                self.ended_ranks = Some(cx.now);
            }
            return false;
        }
        if sig == Signal::TERM {
            cx.notify(Notice::StepWarned);
        }
        match self.received.get(&sig) {
            Some((before, _)) if *before == to => {}
            Some(_) => self.report(cx, sig, true),
            None if self.exits.iter().any(|(own, ..)| *own == sig) => self.report(cx, sig, true),
            None => drop(self.received.insert(sig, (to, cx.now + TOGETHER))),
        }
        false
    }

    /// Reports a signal to the launcher, and then the ranks that it has ended.
    fn report(&mut self, cx: &mut Cx<'_>, sig: Signal, to_ranks: bool) {
        self.received.remove(&sig);
        self.reported.insert(sig, cx.now + TOGETHER);
        cx.act(NodeAction::ToRoot(ToRoot::HostSignal { sig, to_ranks }));
        if to_ranks {
            self.delivered.insert(sig);
            if sig == Signal::TERM {
                self.ended_ranks = Some(cx.now);
            }
            self.owed = self.owed.filter(|(owed, _)| *owed != sig);
        } else if let Some((owed, at)) = &mut self.owed
            && *owed == sig
        {
            // The scheduler has sent the signal, and not to the ranks.
            *at = cx.now;
        }
        self.release(cx, |own, _| own == sig);
    }

    /// Reports exits that were held.
    fn release(&mut self, cx: &mut Cx<'_>, is_due: impl Fn(Signal, Mono) -> bool) {
        for (_, _, exited) in self.exits.extract_if(.., |(sig, until, _)| is_due(*sig, *until)) {
            cx.notify(Notice::Exited(exited));
        }
    }

    /// Takes the exit of a rank that the scheduler may have ended: it comes back once that is known.
    pub(super) fn hold(&mut self, cx: &mut Cx<'_>, exited: Exited) -> Option<Exited> {
        self.started.remove(&exited.proc);
        let sig = match exited.status {
            Status::Signaled { sig, .. } if self.in_step == Some(true) && FOR_RANKS.contains(&sig) => sig,
            Status::Signaled { .. } | Status::Exited(_) | Status::Lost => return Some(exited),
        };
        if self.delivered.contains(&sig) {
            return Some(exited);
        }
        self.exits.push((sig, cx.now + TOGETHER, exited));
        if self.received.contains_key(&sig) {
            self.report(cx, sig, true);
        }
        None
    }

    /// The launcher has us send this signal to all ranks: none that it ends is the scheduler's.
    pub(super) fn on_sent(&mut self, sig: Signal) {
        self.delivered.insert(sig);
    }

    /// The scheduler ends the job, as this host or another one has reported. Ranks get the signal once.
    pub(super) fn on_scheduler_ends(&mut self, cx: &Cx<'_>, sig: Signal) {
        if !self.delivered.contains(&sig) {
            // The launcher knows it from here: no other one will come.
            let has_come = self.reported.contains_key(&sig);
            self.owed = Some((sig, if has_come { cx.now } else { cx.now + LATE }));
        } else if self.ended_ranks.is_some() && !self.is_ending {
            // For those that started later.
            self.owed = Some((sig, cx.now));
        }
        self.is_ending = true;
    }

    /// A rank runs, since then.
    pub(super) fn on_spawned(&mut self, proc: ProcId, at: Mono) {
        self.started.insert(proc, at);
        if self.is_ending {
            self.warned.insert(proc);
        }
    }

    /// Whether a rank may not have got the scheduler's last signal, from the scheduler or from the agent.
    pub(super) fn owes(&self, proc: ProcId) -> bool {
        let is_later = |came: Mono| self.started.get(&proc).is_some_and(|started| *started + JUST_BEFORE > came);
        !self.warned.contains(&proc) && self.ended_ranks.is_none_or(is_later)
    }

    /// Other processes are the ranks now.
    pub(super) fn on_next_generation(&mut self) {
        self.delivered.clear();
        self.started.clear();
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        let late: Vec<Signal> =
            self.received.iter().filter(|(_, (_, until))| *until <= cx.now).map(|(sig, _)| *sig).collect();
        late.into_iter().for_each(|sig| self.report(cx, sig, false));
        let now = cx.now;
        self.release(cx, |_, until| until <= now);
        if let Some((sig, _)) = self.owed.take_if(|(_, at)| *at <= now) {
            self.delivered.insert(sig);
            cx.notify(Notice::Send(Send::Owed(sig)));
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let received = self.received.values().map(|(_, until)| *until).min();
        let exits = self.exits.iter().map(|(_, until, _)| *until).min();
        earliest(earliest(received, exits), self.owed.map(|(_, at)| at))
    }
}
