//! What a job must have said at its end, told from what was done to it: an account of the rules that is not the machine's.

use crate::world::World;
use rlaunch_core::events::Cause;
use rlaunch_core::exit::{self, Ending};
use rlaunch_core::id::{ProcId, Rank};
use rlaunch_core::job::{GuardianEnd, JobEvent};
use rlaunch_core::signal::Signal;
use rlaunch_core::spec::{JobSpec, OnFailure};
use rlaunch_core::status::Status;
use rlaunch_core::time::{HostTime, Mono};
use rlaunch_core::wire::to_root::{Exited, ToRoot};
use std::collections::BTreeSet;

/// What the launcher heard, as far as it decides how rlaunch ends.
pub(crate) struct Oracle {
    on_failure: OnFailure,
    timeout: Option<Mono>,
    world_size: usize,
    over: BTreeSet<ProcId>,
    failures: Vec<Exited>,
    /// What began the ending, and when.
    first: Option<(Expected, Mono)>,
    counted: bool,
    signals: u32,
    ending: Option<Ending>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Rank,
    Ending(Ending),
}

impl Oracle {
    pub(crate) fn new(spec: &JobSpec) -> Self {
        Self {
            on_failure: spec.on_failure,
            timeout: spec.timeout.map(|span| Mono::from_nanos(0) + span),
            world_size: Rank::new(spec.world_size()).index(),
            over: BTreeSet::new(),
            failures: vec![],
            first: None,
            counted: false,
            signals: 0,
            ending: None,
        }
    }

    pub(crate) fn time_passes(&mut self, now: Mono) {
        if self.timeout.is_some_and(|at| at <= now) {
            self.begins(now, Expected::Ending(Ending::Code(exit::TIMEOUT)));
        }
    }

    fn begins(&mut self, now: Mono, why: Expected) {
        self.first.get_or_insert((why, now));
    }

    pub(crate) fn hears(&mut self, now: Mono, event: &JobEvent) {
        let lost = Expected::Ending(Ending::Code(exit::LAUNCH));
        match event {
            JobEvent::Message { msg, .. } => self.hears_message(now, msg),
            JobEvent::EdgeClosed { .. } if !self.counted => self.begins(now, lost),
            JobEvent::GuardianEnded { end: GuardianEnd::Record { .. }, .. } if !self.counted => {
                self.counted = true;
                self.begins(now, lost);
            }
            JobEvent::Signal(sig) if ![Signal::USR1, Signal::USR2].contains(sig) => {
                self.signals += 1;
                self.begins(now, Expected::Ending(Ending::Signal(*sig)));
            }
            JobEvent::ReaderClosed(_) => self.begins(now, Expected::Ending(Ending::Signal(Signal::PIPE))),
            JobEvent::EdgeClosed { .. }
            | JobEvent::GuardianEnded { .. }
            | JobEvent::Signal(_)
            | JobEvent::StreamEnd { .. }
            | JobEvent::SinkFailed { .. }
            | JobEvent::OutputDrained { .. } => {}
        }
    }

    fn hears_message(&mut self, now: Mono, message: &ToRoot) {
        let lost = Expected::Ending(Ending::Code(exit::LAUNCH));
        match message {
            ToRoot::Refused(_) | ToRoot::InitLost | ToRoot::GuardianLost => self.begins(now, lost),
            ToRoot::SpawnFailed { proc, error } => {
                self.over.insert(*proc);
                self.begins(now, Expected::Ending(Ending::Code(error.exit_code())));
            }
            ToRoot::Exited(exited) => {
                self.over.insert(exited.proc);
                let before = self.first.is_none_or(|(_, began)| exited.at < began.host_time());
                if !exited.status.is_success() && before {
                    self.failures.push(*exited);
                    if self.on_failure == OnFailure::Kill {
                        self.begins(now, Expected::Rank);
                    }
                }
            }
            ToRoot::Done { .. } => {
                if self.over.len() < self.world_size {
                    self.begins(now, lost);
                }
                self.counted = true;
            }
            ToRoot::Draining if self.over.len() < self.world_size => self.begins(now, lost),
            ToRoot::Draining | ToRoot::Hello(_) | ToRoot::Started { .. } | ToRoot::Postmortem { .. } => {}
        }
    }

    fn expected(&self) -> Expected {
        match self.first {
            Some((expected, _)) => expected,
            None if self.failures.is_empty() => Expected::Ending(Ending::Code(0)),
            None => Expected::Rank,
        }
    }
}

impl World {
    /// The last record of the event log.
    pub(crate) fn check_end(&mut self, cause: &Cause, exit: Ending, left: Option<u32>) {
        let expected = self.launcher.oracle.expected();
        let once = self.launcher.oracle.ending.replace(exit).is_none();
        self.check(once, || "a second end".to_owned());
        match (expected, cause) {
            (Expected::Rank, Cause::Rank { rank, status }) => self.check_first(*rank, *status, exit),
            (Expected::Ending(expected), _) => {
                self.check(expected == exit, || format!("{expected:?} was the first cause, not {cause:?}"));
                let shown = cause.exit();
                self.check(shown == exit, || format!("{cause:?} gives {shown:?}, not {exit:?}"));
            }
            (Expected::Rank, _) => self.fail(format!("a rank failed first, but the report says {cause:?}")),
        }
        let alive = self.kernel.alive_count();
        match left {
            Some(left) => {
                let left = usize::try_from(left).unwrap_or(0);
                self.check(alive <= left, || format!("{left} are said to be left, but there are {alive}"));
            }
            None => {
                let may = self.launcher.oracle.signals > 2 || self.guardian.was_killed();
                self.check(may, || "nobody counted what is left".to_owned());
            }
        }
    }

    /// The rank that is named must have failed, and nobody certainly before it.
    fn check_first(&mut self, rank: Rank, status: Status, exit: Ending) {
        let failures = &self.launcher.oracle.failures;
        let first_seen = failures.iter().map(|failure| failure.at).min().unwrap_or(HostTime(0));
        let named = failures.iter().find(|failure| failure.proc.get() == rank.get() && failure.status == status);
        let plausible = named.is_some_and(|named| named.at == first_seen || named.alive_at < first_seen);
        let code = Ending::Code(status.exit_code());
        self.check(plausible && code == exit, || format!("rank {rank} ({status}) was not the first to fail"));
        let limit = self.kernel.ended_by_us.unwrap_or(u64::MAX);
        let truth = self.kernel.failed_before(limit).into_iter().min();
        if self.plan.exact
            && let Some((time, proc)) = truth
        {
            let died = self.kernel.failed_before(u64::MAX).into_iter().find(|(_, p)| p.get() == rank.get());
            let right = died.is_some_and(|(died, _)| died <= time);
            self.check(right, || format!("rank {proc} failed before rank {rank}"));
        }
    }

    pub(crate) fn check_finish(&mut self, ending: Ending) {
        let said = self.launcher.oracle.ending;
        self.check(said == Some(ending), || format!("rlaunch ends by {ending:?} but reports {said:?}"));
    }
}
