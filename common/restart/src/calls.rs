//! Calls that follow one another: a program may run one function after the other in rounds, or one several times.
//!
//! Each call is a gathering and rounds of its own, under terms of its own, of those who were there when the one before was done: ranks that
//! it has lost stay lost, unless their processes come back. Rounds are counted through all calls, so what comes late is always of an
//! earlier one; the program counts from the first of its call.

use super::membership::{Host, MemberState};
use super::round_faults::RoundFaults;
use super::round_limits::Progress;
use super::{CallEnd, Phase, Restart};
use rlaunch_base::time::Mono;

impl Restart {
    /// Whether the work of a call is done: a rank that still comes for it has nothing to do.
    pub(super) fn is_done(&self, call: u32) -> bool {
        call < self.call || (call == self.call && self.phase == Phase::CallEnded(CallEnd::Done))
    }

    /// Whether this is the first round of the job's first call: it meets where all ranks have met at their start.
    pub(super) const fn is_first_round_of_job(&self) -> bool {
        self.unplanned_rounds == 0 && self.call == 0
    }

    /// The first processes have registered for the call after one that is done.
    pub(super) fn next_call(&mut self, now: Mono) {
        self.call = self.call.saturating_add(1);
        self.phase = Phase::Gathering;
        (self.agreed, self.unplanned_rounds, self.awaited_hosts) = (None, 0, 0);
        (self.faults, self.progress) = (RoundFaults::default(), Progress::default());
        self.awaited.end();
        self.extend_starts(now);
        for member in &mut self.membership.members {
            // The limit of faults holds for each call.
            (member.faults, member.fault_counted) = (0, false);
            member.state = match member.state {
                MemberState::Active | MemberState::Joining | MemberState::Absent => member.state,
                MemberState::Failed { may_respawn: true } => MemberState::Absent,
                MemberState::Failed { may_respawn: false } | MemberState::Left => MemberState::Left,
            };
        }
        let stays =
            |at: usize| self.membership.members.get(at).is_some_and(|member| member.state == MemberState::Active);
        self.world = self.world.renewed(stays);
        self.missing = self.membership.members.iter().filter(|member| member.state == MemberState::Active).count();
        for member in &mut self.membership.members {
            if matches!(member.state, MemberState::Active | MemberState::Joining) {
                member.state = MemberState::Absent;
            }
        }
        for host in self.membership.hosts.values_mut() {
            let Host { interrupt_sent, answered, returned, .. } = host;
            (*interrupt_sent, *answered, *returned) = (false, false, false);
            (host.port, host.active) = (0, 0);
        }
    }

    /// Begins the round when all awaited ranks have registered. The first round of all meets where all ranks have met at their start. Later
    /// calls first ask hosts for a port, as any other round does. No rank is in a function that it would have to leave.
    pub(super) fn gathered(&mut self, now: Mono) {
        if self.call == 0 { self.assign(now) } else { self.interrupt(now, true) }
    }
}
