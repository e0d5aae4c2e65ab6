//! The reports that a job must have made at its end, derived from the faults: an account of the rules that is not the machine's.

use crate::plan::{Fault, MS, Script, Sight};
use crate::world::World;
use rlaunch_base::exit::{self, Ending};
use rlaunch_base::id::{ProcId, Rank};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{HostTime, Mono, Span};
use rlaunch_core::events::{Cause, Lost};
use rlaunch_core::job::{GuardianEnd, JobEvent};
use rlaunch_protocol::settings::OnFailure;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_root::{Exited, ToRoot};
use std::collections::BTreeSet;

fn later(at: Span, ms: u64) -> Span {
    Span::from_nanos(at.nanos() + ms * MS)
}

/// Events of the launcher, as far as they decide how rlaunch ends.
pub(crate) struct Oracle {
    on_failure: OnFailure,
    timeout: Option<Mono>,
    world_size: usize,
    over: BTreeSet<ProcId>,
    failures: Vec<Exited>,
    /// The cause of the ending, and its time.
    first: Option<(Expected, Mono)>,
    counted: bool,
    /// The guardian has ended, and the agent has not reported the reason; from then on it is lost, by the clock that stops with the
    /// launcher.
    unguarded: Option<Span>,
    /// Ranks are killed because a part of ours was lost.
    bereft: bool,
    signals: u32,
    all_over: bool,
    /// The time of the user's request to end, by the launcher's own clock.
    end_requested: Option<Span>,
    /// Signals that were passed on while the job continued.
    forwarded: BTreeSet<Signal>,
    /// A passed-on signal has killed a rank: the job ends for that after the grace of the other ranks.
    spared: Option<Mono>,
    /// Ranks that wrote down why they failed.
    explained: BTreeSet<ProcId>,
    grace: Span,
    ending: Option<Ending>,
    /// Whether output could not be written.
    unwritten: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Rank,
    Ending(Ending),
}

impl Oracle {
    pub(crate) fn new(spec: &JobSpec) -> Self {
        Self {
            on_failure: spec.settings.ending.on_failure,
            timeout: spec.settings.ending.timeout.map(|span| Mono::from_nanos(0) + span),
            world_size: Rank::new(spec.world_size()).index(),
            over: BTreeSet::new(),
            failures: vec![],
            first: None,
            counted: false,
            unguarded: None,
            bereft: false,
            signals: 0,
            all_over: false,
            end_requested: None,
            forwarded: BTreeSet::new(),
            spared: None,
            explained: BTreeSet::new(),
            grace: spec.settings.ending.grace,
            ending: None,
            unwritten: false,
        }
    }

    /// `awake`: the time of a clock that stops with the launcher.
    pub(crate) fn time_passes(&mut self, now: Mono, awake: Span) {
        if self.timeout.is_some_and(|at| at <= now) {
            self.end_requested.get_or_insert(awake);
            self.begins(now, Expected::Ending(Ending::Code(exit::TIMEOUT)));
        }
        if self.spared.is_some_and(|until| until <= now) {
            self.begins(now, Expected::Rank);
        }
        if !self.counted && self.unguarded.is_some_and(|at| at <= awake) {
            self.begins(now, Expected::Ending(Ending::Code(exit::LAUNCH)));
        }
    }

    /// A rank that was killed by a signal that was passed on failed before any later loss. A request of the user counts all the same.
    fn begins(&mut self, now: Mono, why: Expected) {
        let lost = why == Expected::Ending(Ending::Code(exit::LAUNCH));
        let why = if lost && self.spared.is_some() { Expected::Rank } else { why };
        self.first.get_or_insert((why, now));
    }

    /// Whether a guardian may be given up now: a gap in the launcher's time counts as a quarter of a second of it at most.
    fn gives_up_guardian(&mut self, now: Mono, awake: Span, gaps: u64) -> bool {
        let may = self.bereft || self.unguarded.is_some_and(|at| at <= later(awake, 250 * gaps + 1));
        self.begins(now, Expected::Ending(Ending::Code(exit::LAUNCH)));
        may
    }

    /// Ranks that ended before the limit was checked ended in time; then the job waits only for the reader of the output.
    fn in_time(&mut self, now: Mono, is_reported: bool) {
        if self.spared.is_some() && self.over.len() == self.world_size {
            self.begins(now, Expected::Rank);
        }
        if (is_reported || self.over.len() == self.world_size) && !std::mem::replace(&mut self.all_over, true) {
            self.timeout = self.timeout.map(|at| if at <= now { now + Span::from_secs(2) } else { at });
        }
    }

    pub(crate) fn on_event(&mut self, now: Mono, awake: Span, event: &JobEvent) {
        let lost = Expected::Ending(Ending::Code(exit::LAUNCH));
        match event {
            JobEvent::Message { msg, .. } => {
                self.on_message(now, msg);
                self.in_time(now, matches!(msg, ToRoot::Draining | ToRoot::Done { .. }));
            }
            JobEvent::EdgeClosed { .. } if !self.counted => self.begins(now, lost),
            JobEvent::GuardianEnded { end: GuardianEnd::Record { .. }, .. } if !self.counted => {
                self.counted = true;
                self.begins(now, lost);
            }
            JobEvent::GuardianEnded { end: GuardianEnd::Silent, .. } => {
                self.unguarded.get_or_insert(later(awake, 1000));
            }
            JobEvent::Signal(sig) if ![Signal::USR1, Signal::USR2].contains(sig) => {
                self.signals += 1;
                self.end_requested.get_or_insert(awake);
                self.begins(now, Expected::Ending(Ending::Signal(*sig)));
            }
            JobEvent::ReaderClosed(_) => {
                self.end_requested.get_or_insert(awake);
                self.begins(now, Expected::Ending(Ending::Signal(Signal::PIPE)));
            }
            JobEvent::Signal(sig) => {
                self.forwarded.insert(*sig);
            }
            JobEvent::SinkFailed { .. } => self.unwritten = true,
            JobEvent::EdgeUp { .. }
            | JobEvent::ReadyBy { .. }
            | JobEvent::Carrier(_)
            | JobEvent::Found(_)
            | JobEvent::Discovered(_)
            | JobEvent::HostFailed { .. }
            | JobEvent::Beat { .. }
            | JobEvent::EdgeClosed { .. }
            | JobEvent::GuardianEnded { .. }
            | JobEvent::StreamEnd { .. }
            | JobEvent::HungUp(_)
            | JobEvent::InputFailed { .. }
            | JobEvent::OutputDrained { .. } => {}
        }
    }

    /// Whether a signal that was passed on has ended a rank.
    fn is_by_forwarded(&self, status: Status) -> bool {
        matches!(status, Status::Signaled { sig, .. } if self.forwarded.contains(&sig))
    }

    fn on_message(&mut self, now: Mono, message: &ToRoot) {
        let lost = Expected::Ending(Ending::Code(exit::LAUNCH));
        match message {
            ToRoot::Refused(_) => self.begins(now, lost),
            ToRoot::InitLost | ToRoot::GuardianLost => {
                self.bereft = true;
                self.begins(now, lost);
            }
            ToRoot::SpawnFailed { proc, error } => {
                self.over.insert(*proc);
                self.begins(now, Expected::Ending(Ending::Code(error.exit_code())));
            }
            ToRoot::Exited(exited) => {
                self.over.insert(exited.proc);
                let before = self.first.is_none_or(|(_, began)| exited.at < began.host_time());
                if !exited.status.is_success() && before && !self.bereft {
                    self.failures.push(*exited);
                    let forwarded = self.is_by_forwarded(exited.status);
                    match self.on_failure {
                        OnFailure::Kill if forwarded => _ = self.spared.get_or_insert(now + self.grace),
                        OnFailure::Kill => self.begins(now, Expected::Rank),
                        OnFailure::Continue => {}
                    }
                }
            }
            ToRoot::Done { .. } => {
                if self.over.len() < self.world_size {
                    self.begins(now, lost);
                }
                self.counted = true;
            }
            ToRoot::Warned(_) if self.over.len() < self.world_size => {
                self.begins(now, Expected::Ending(Ending::Code(exit::PREEMPTED)));
            }
            ToRoot::Draining if self.over.len() < self.world_size => self.begins(now, lost),
            ToRoot::Warned(_)
            | ToRoot::Draining
            | ToRoot::Cleared { .. }
            | ToRoot::FindOwners(_)
            | ToRoot::Input(_)
            | ToRoot::Probed { .. }
            | ToRoot::News(_)
            | ToRoot::FileLost { .. }
            | ToRoot::OwnersFound(_)
            | ToRoot::Round(_)
            | ToRoot::Hello(_)
            | ToRoot::Ready
            | ToRoot::Devices { .. }
            | ToRoot::Started { .. }
            | ToRoot::InputFailed { .. }
            | ToRoot::HostSignal { .. }
            | ToRoot::Order(_)
            | ToRoot::NotStarted { .. }
            | ToRoot::WorldPort { .. }
            | ToRoot::Killing => {}
            ToRoot::Postmortem { proc, facts } => {
                if facts.error_file.is_some() {
                    self.explained.insert(*proc);
                }
            }
        }
    }

    /// How much the failure of a rank explains: less is more.
    fn weight(&self, failure: &Exited) -> u8 {
        match failure.status {
            Status::Signaled { sig, .. } if !self.forwarded.contains(&sig) => 0,
            _ if self.explained.contains(&failure.proc) => 1,
            _ => 2,
        }
    }

    fn expected(&self) -> Expected {
        match self.first {
            Some((expected, _)) => expected,
            None if self.failures.is_empty() && self.unwritten => Expected::Ending(Ending::Code(exit::LAUNCH)),
            None if self.failures.is_empty() => Expected::Ending(Ending::Code(0)),
            None => Expected::Rank,
        }
    }
}

impl World {
    /// The last record of the event log.
    pub(crate) fn check_end(&mut self, cause: &Cause, exit: Ending, left: Option<u32>) {
        if self.several() {
            return;
        }
        let expected = self.launcher.oracle.expected();
        let once = self.launcher.oracle.ending.replace(exit).is_none();
        self.check(once, || "a second end".to_owned());
        match (expected, cause) {
            (Expected::Rank, Cause::Rank { rank, status }) => self.check_first(*rank, *status, exit),
            (Expected::Ending(expected), _) => {
                self.check(expected == exit, || format!("{expected:?} was the first cause, not {cause:?}"));
                let shown = cause.exit(self.launcher.oracle.unwritten);
                self.check(shown == exit, || format!("{cause:?} gives {shown:?}, not {exit:?}"));
            }
            (Expected::Rank, _) => self.fail(format!("a rank failed first, but the report says {cause:?}")),
        }
        let alive = self.host.kernel.alive_count();
        let stuck = |rank: &Script| rank.stuck.is_some() || rank.kids.iter().any(|kid| kid.stuck);
        let may = left.unwrap_or(0) == 0 || self.plan.ranks.iter().any(stuck);
        self.check(may, || format!("{left:?} are left, and nothing could not be killed"));
        match left {
            Some(left) => {
                let left = usize::try_from(left).unwrap_or(0);
                self.check(alive <= left, || format!("{left} are said to be left, but there are {alive}"));
            }
            None => {
                let may = self.launcher.oracle.signals > 2 || self.host.guardian.was_killed();
                self.check(may, || "nobody counted what is left".to_owned());
            }
        }
    }

    /// The named rank must have failed by itself, no other certainly before it, and explain most.
    fn check_first(&mut self, rank: Rank, status: Status, exit: Ending) {
        let oracle = &self.launcher.oracle;
        let first_seen = oracle.failures.iter().map(|failure| failure.at).min().unwrap_or(HostTime(0));
        let maybe_first = |failure: &&Exited| failure.at == first_seen || failure.alive_at < first_seen;
        let best = oracle.failures.iter().filter(maybe_first).map(|failure| oracle.weight(failure)).min();
        let named = oracle.failures.iter().filter(maybe_first).find(|failure| failure.proc.get() == rank.get());
        let right = named.is_some_and(|named| named.status == status && Some(oracle.weight(named)) == best);
        let code = Ending::Code(status.exit_code());
        self.check(right && code == exit, || format!("rank {rank} ({status}) is not the first cause"));
        let limit = self.host.kernel.ended_by_us.unwrap_or(u64::MAX);
        let died = self.host.kernel.failed_before(u64::MAX).into_iter().find(|(_, proc)| proc.get() == rank.get());
        let time = died.map_or(u64::MAX, |(time, _)| time);
        self.check(time <= limit, || format!("rank {rank} ({status}) did not fail by itself"));
        let truth = self.host.kernel.failed_before(limit).into_iter().min();
        if self.plan.sight == Sight::Exact
            && let Some((earliest, proc)) = truth
        {
            self.check(time <= earliest, || format!("rank {proc} failed before rank {rank}"));
        }
    }

    /// No part is given up for time in which it could not run.
    pub(crate) fn check_lost(&mut self, lost: Lost) {
        if self.several() {
            return self.check_host_lost(lost);
        }
        let (now, awake, gaps) = (self.mono(), self.still.awake(self.mono()), self.still.gaps());
        match lost {
            Lost::Guardian if gaps > 0 => {
                let may = self.launcher.oracle.gives_up_guardian(now, awake, gaps);
                self.check(may, || "the guardian is given up too soon".to_owned());
            }
            Lost::AgentMute => {
                let why = |fault| matches!(fault, Fault::AgentStopped | Fault::AgentFrozen | Fault::AgentAsked);
                let stood = self.plan.faults.iter().any(|(_, fault)| why(*fault));
                self.check(stood, || "an agent that was never suspended is given up".to_owned());
            }
            Lost::NoHeartbeat | Lost::Expired | Lost::Starved(_) => {
                self.check(false, || "this host has no lease".to_owned());
            }
            Lost::Guardian | Lost::Init | Lost::AgentEarly | Lost::Agent(_) | Lost::Warned(_) => {}
        }
    }

    /// Output is given up when a reader has had 2 s, or the user does not want to wait.
    pub(crate) fn check_abandoned(&mut self) {
        if self.several() {
            return;
        }
        let (awake, gaps) = (self.still.awake(self.mono()), self.still.gaps());
        let oracle = &self.launcher.oracle;
        let waited = oracle.end_requested.is_some_and(|at| later(at, 2000) <= later(awake, 250 * gaps));
        self.check(waited || oracle.signals > 1, || "output is given up too soon".to_owned());
    }

    pub(crate) fn check_finish(&mut self, ending: Ending) {
        if self.several() {
            return self.check_hosts_finish(ending);
        }
        let oracle = &self.launcher.oracle;
        let said = oracle.ending;
        let late = match oracle.first {
            // A job that was ordered to end does not wait for a reader that reads nothing.
            Some((Expected::Ending(Ending::Signal(_) | Ending::Code(exit::TIMEOUT)), began)) => {
                self.now > (began + oracle.grace).nanos() + 12_000 * MS + self.still.host_stood()
            }
            Some(_) | None => false,
        };
        // Without a guardian a suspended agent is given up; an awake one needs 2 s for processes that cannot be killed.
        let unguarded = oracle.unguarded.filter(|_| !self.plan.blocks());
        let patience = 10_000 * MS + self.plan.drain() + self.still.planned();
        let kept = unguarded.is_some_and(|lost| self.now > lost.nanos() + patience);
        self.check(!kept, || "without a guardian it waits for ever".to_owned());
        self.check(said == Some(ending), || format!("rlaunch ends by {ending:?} but reports {said:?}"));
        self.check(!late, || "it does not end in time after the request".to_owned());
    }
}
