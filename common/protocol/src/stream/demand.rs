//! Times at which an agent looks whether a rank waits for input. The kernel has no event for that, so the agent looks while rlaunch's
//! standard input has something to read that no rank has asked for: at once, and then ever more seldom.

use rlaunch_base::machine::earliest;
use rlaunch_base::time::{Mono, Span};

const FIRST: Span = Span::from_millis(1);
const LONGEST: Span = Span::from_millis(100);
/// Part of the time that looking may take: one in so many.
const SHARE: u64 = 100;

/// The looks for one announcement of the launcher.
#[derive(Debug, Default)]
pub struct Demand {
    /// Whether the launcher has announced that there is something to read.
    is_announced: bool,
    /// When the next look is due.
    due: Option<Mono>,
    /// Pause after the look that is under way, or next.
    pause: Span,
    /// When the look that is under way was begun.
    begun: Option<Mono>,
}

impl Demand {
    /// There is something to read.
    pub const fn announce(&mut self, now: Mono) {
        self.is_announced = true;
        self.restart(now);
    }

    /// A rank was started.
    pub const fn restart(&mut self, now: Mono) {
        if self.is_announced {
            self.pause = FIRST;
            self.due = Some(now);
        }
    }

    /// No rank reads any more. Announced input is still there for the next reader.
    pub const fn suspend(&mut self) {
        (self.due, self.begun) = (None, None);
    }

    /// Whether a look is due. It is under way from now on, if so.
    pub fn begin(&mut self, now: Mono) -> bool {
        let is_due = self.begun.is_none() && self.due.is_some_and(|due| due <= now);
        if is_due {
            (self.due, self.begun) = (None, Some(now));
        }
        is_due
    }

    /// Ends the look that was under way. Returns whether the launcher must be notified of a rank that waits.
    pub fn end(&mut self, now: Mono, waits: bool) -> bool {
        let Some(begun) = self.begun.take() else { return false };
        if waits {
            (self.is_announced, self.due) = (false, None);
            return true;
        }
        let cost = Span::from_nanos(now.since(begun).nanos().saturating_mul(SHARE));
        let pause = self.pause.max(cost);
        self.due = earliest(self.due, Some(now + pause));
        self.pause = Span::from_nanos(self.pause.nanos().saturating_mul(2)).min(LONGEST);
        false
    }

    /// When [`Self::begin`] is to be called.
    #[must_use]
    pub const fn deadline(&self) -> Option<Mono> {
        if self.begun.is_some() { None } else { self.due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Mono {
        Mono::from_nanos(micros * 1000)
    }

    #[test]
    fn looks_become_rarer_while_no_rank_waits() {
        let mut demand = Demand::default();
        assert_eq!(demand.deadline(), None);
        demand.announce(at(0));
        let mut pauses = [0; 9];
        let mut now = at(0);
        for pause in &mut pauses {
            assert!(demand.begin(now));
            assert!(!demand.begin(now) && demand.deadline().is_none(), "one look at a time");
            assert!(!demand.end(now, false));
            let next = demand.deadline().unwrap();
            *pause = next.since(now).nanos() / 1_000_000;
            now = next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert!(demand.begin(now) && demand.end(now, true));
        assert_eq!(demand.deadline(), None, "the launcher announces what follows");
    }

    #[test]
    fn long_looks_are_rare() {
        let mut demand = Demand::default();
        demand.announce(at(0));
        assert!(demand.begin(at(0)) && !demand.end(at(50_000), false));
        assert_eq!(demand.deadline(), Some(at(5_050_000)));
    }

    #[test]
    fn a_rank_of_another_generation_is_looked_at_and_an_old_answer_is_not_taken() {
        let mut demand = Demand::default();
        demand.restart(at(0));
        assert_eq!(demand.deadline(), None, "nothing was announced");
        demand.announce(at(0));
        assert!(demand.begin(at(0)));
        demand.suspend();
        assert!(!demand.end(at(1), true));
        demand.restart(at(5));
        assert_eq!(demand.deadline(), Some(at(5)));
        assert!(demand.begin(at(5)) && demand.end(at(6), true));
    }
}
