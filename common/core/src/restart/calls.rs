//! Calls that follow one another: a program may run one function after the other in rounds, or one several times.
//!
//! Each call is a gathering and rounds of its own, under terms of its own, of those who were there when the one before was done: ranks that
//! it has lost stay lost, unless their processes come back. Rounds are counted through all calls, so what comes late is always of an
//! earlier one; the program counts from the first of its call.

use super::crew::{Host, Part};
use super::limits::Progress;
use super::round_faults::RoundFaults;
use super::{Over, Phase, Restart};
use crate::time::Mono;

impl Restart {
    /// Whether the work of a call is done: a rank that still comes for it has nothing to do.
    pub(super) fn is_done(&self, call: u32) -> bool {
        call < self.call || (call == self.call && self.phase == Phase::Over(Over::Done))
    }

    /// Whether this is the first round of the job's first call: it meets where all ranks have met at their start.
    pub(super) const fn is_fresh(&self) -> bool {
        self.begun == 0 && self.call == 0
    }

    /// The first processes have registered for the call behind one that is done.
    pub(super) fn next_call(&mut self) {
        self.call = self.call.saturating_add(1);
        self.phase = Phase::Gathering;
        (self.agreed, self.begun, self.awaited_hosts) = (None, 0, 0);
        (self.faults, self.progress) = (RoundFaults::default(), Progress::default());
        self.awaited.end();
        for hand in &mut self.crew.hands {
            // The limit of faults holds for each call.
            (hand.faults, hand.counted) = (0, false);
            hand.part = match hand.part {
                Part::In | Part::Waiting | Part::Away => hand.part,
                Part::Lost { again: true } => Part::Away,
                Part::Lost { again: false } | Part::Out => Part::Out,
            };
        }
        let stays = |at: usize| self.crew.hands.get(at).is_some_and(|hand| hand.part == Part::In);
        self.world = self.world.renewed(stays);
        self.missing = self.crew.hands.iter().filter(|hand| hand.part == Part::In).count();
        for hand in &mut self.crew.hands {
            if matches!(hand.part, Part::In | Part::Waiting) {
                hand.part = Part::Away;
            }
        }
        for host in self.crew.hosts.values_mut() {
            let Host { asked, answered, returned, .. } = host;
            (*asked, *answered, *returned) = (false, false, false);
            (host.port, host.active) = (0, 0);
        }
    }

    /// All that are waited for have registered. The first round of all meets where all ranks have met at their start. Later calls first
    /// ask hosts for a port, as any other round does. Nobody is in a function that he would have to leave.
    pub(super) fn gathered(&mut self, now: Mono) {
        if self.call == 0 { self.assign(now) } else { self.interrupt(now, true) }
    }
}
