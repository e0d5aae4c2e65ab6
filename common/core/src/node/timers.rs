//! Deadlines of the sub-machines: which sub-machines have one, and the order in which they run.

use super::{Cx, Parts};
use rlaunch_base::time::Mono;

/// The sub-machines that wait for a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    HostSignals,
    StepEnd,
    Grace,
    Lease,
    Serve,
    Rounds,
    Procs,
    Leftovers,
    Warnings,
    Start,
}

impl Timer {
    /// All of them, in the order in which they are run.
    pub(super) const ALL: [Self; 10] = [
        Self::HostSignals,
        Self::StepEnd,
        Self::Warnings,
        Self::Start,
        Self::Grace,
        Self::Lease,
        Self::Serve,
        Self::Rounds,
        Self::Procs,
        Self::Leftovers,
    ];
}

impl Parts {
    /// Deadline of a sub-machine.
    pub(super) fn deadline(&self, timer: Timer) -> Option<Mono> {
        match timer {
            Timer::HostSignals => self.host_signals.deadline(),
            Timer::StepEnd => self.step_end.deadline(),
            Timer::Grace => self.grace.deadline(),
            Timer::Lease => self.lease.deadline(),
            Timer::Serve => self.serve.deadline(),
            Timer::Rounds => self.rounds.deadline(),
            Timer::Procs => self.procs.deadline(),
            Timer::Leftovers => self.leftovers.deadline(),
            Timer::Warnings => self.warnings.deadline(),
            Timer::Start => self.start.deadline(),
        }
    }

    /// Runs a sub-machine if its deadline has passed.
    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>, timer: Timer) {
        match timer {
            Timer::HostSignals => self.host_signals.on_timeout(cx),
            Timer::StepEnd => self.step_end.on_timeout(cx),
            Timer::Grace => self.grace.on_timeout(cx),
            Timer::Lease => self.lease.on_timeout(cx),
            Timer::Serve => self.serve.on_timeout(cx),
            Timer::Rounds => self.rounds.on_timeout(cx),
            Timer::Procs => self.procs.on_timeout(cx),
            Timer::Warnings => self.warnings.on_timeout(cx),
            Timer::Start => self.start.on_timeout(cx),
            Timer::Leftovers => {
                // Remaining processes are looked at after everything that the same moment brings.
                self.route_notices(cx);
                self.leftovers.on_timeout(cx);
            }
        }
    }
}
