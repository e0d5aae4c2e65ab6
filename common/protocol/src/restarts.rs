//! Whether all ranks of a job are started again, and after which pause: when one of them has failed (`--max-restarts`), or when a host
//! was warned or lost (`--preempt-retries`).
//!
//! A *generation* is all ranks from one start to its end. The pause doubles with each generation in a row that did not last, so that
//! what is broken for a while (a file server, a neighbour) has time to mend. If one generation after the other ends at once and in the same
//! way, for long enough, the job ends before all restarts are used up.

use rlaunch_base::backoff::{ALIKE, GIVE_UP_AFTER, QUICK};
use rlaunch_base::id::Rank;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use serde::{Deserialize, Serialize};

/// The longest pause, unless the first is longer.
pub const LONGEST: Span = Span::from_secs(60);
/// After a generation that has lasted so long the pause is the first again.
pub const STEADY: Span = Span::from_secs(60);
/// Most restarts that can be asked for: numbers of processes are never used twice.
pub const MOST: u32 = 10_000;
/// The same of starts after a host was taken away, and their default beside `--max-restarts`.
pub const MOST_PREEMPT: u32 = 1_000_000;
/// The first pause after a host was taken away.
const PREEMPT_DELAY: Span = Span::from_secs(1);

/// The limits of the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restarts {
    /// Most restarts after failures; 0: the first failure ends the job.
    pub most: u32,
    /// The first pause.
    pub delay: Span,
    /// Most restarts after a host was warned or lost (`--preempt-retries`). They have a pause of their own.
    pub preempt: u32,
    /// `--give-up-after`: equal failures end the job only after this time.
    pub give_up_after: Span,
}

impl Restarts {
    /// The default of the first pause.
    pub const DELAY: Span = Span::from_secs(1);

    /// Restarts of which at most `most` follow failures. The limit of restarts after preemptions is its default.
    #[must_use]
    pub const fn of(most: u32, delay: Span) -> Self {
        Self { most, delay, preempt: if most > 0 { MOST_PREEMPT } else { 0 }, give_up_after: GIVE_UP_AFTER }
    }

    /// Whether ranks may be started again at all.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.most > 0 || self.preempt > 0
    }
}

impl Default for Restarts {
    fn default() -> Self {
        Self::of(0, Self::DELAY)
    }
}

/// The consequence of the end of a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Another one, after this pause.
    Again {
        /// Its number: so many restarts there will have been.
        restart: u32,
        /// How long to wait before.
        delay: Span,
    },
    /// The job ends: nothing has changed from one generation to the next.
    Stuck {
        /// The rank that failed.
        rank: Rank,
        /// Number of them that ended in the same way.
        alike: u32,
    },
    /// The job ends: no restart is left.
    UsedUp,
}

/// A budget of restarts, and the pauses before them.
#[derive(Clone, Copy, Debug)]
struct Budget {
    most: u32,
    used: u32,
    first: Span,
    /// Generations in a row that did not last.
    short: u32,
}

impl Budget {
    const fn new(most: u32, first: Span) -> Self {
        Self { most, used: 0, first, short: 0 }
    }

    const fn has_more(&self) -> bool {
        self.used < self.most
    }

    /// Takes one of them. Returns the pause before it.
    fn take(&mut self, lived: Span) -> Span {
        let lasted = lived >= STEADY;
        let doublings = if lasted { 0 } else { self.short };
        let delay = self.first.doubled(doublings, LONGEST.max(self.first));
        self.short = if lasted { 1 } else { self.short.saturating_add(1) };
        self.used = self.used.saturating_add(1);
        delay
    }
}

/// The generations so far.
#[derive(Clone, Copy, Debug)]
pub struct History {
    failures: Budget,
    preemptions: Budget,
    /// Generations that were ended for larger ones.
    growths: u32,
    /// How the last one ended if it got nowhere, how many in a row have ended so, and the time from the start of the first of them.
    alike: Option<(Rank, Status, u32, Span)>,
    give_up_after: Span,
    /// Spreads the pauses of jobs that were preempted together.
    seed: u64,
}

impl History {
    /// Before the first generation. `seed`: a number that other jobs do not have.
    #[must_use]
    pub const fn new(allowed: Restarts, seed: u64) -> Self {
        Self {
            failures: Budget::new(allowed.most, allowed.delay),
            preemptions: Budget::new(allowed.preempt, PREEMPT_DELAY),
            growths: 0,
            alike: None,
            give_up_after: allowed.give_up_after,
            seed,
        }
    }

    /// Whether another restart after a failure is allowed.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.failures.has_more()
    }

    /// Whether another restart after a preemption is allowed.
    #[must_use]
    pub const fn has_more_retries(&self) -> bool {
        self.preemptions.has_more()
    }

    /// Whether restarts after preemptions were allowed at all.
    #[must_use]
    pub const fn had_retries(&self) -> bool {
        self.preemptions.most > 0
    }

    /// A generation has ended because this rank failed, so long after it was started.
    pub fn ended(&mut self, rank: Rank, status: Status, lived: Span) -> Decision {
        if !self.has_more() {
            return Decision::UsedUp;
        }
        let (alike, time) = match self.alike {
            Some((other, how, count, time)) if (other, how) == (rank, status) => {
                (count.saturating_add(1), time + lived)
            }
            Some(_) | None => (1, lived),
        };
        if lived <= QUICK && alike >= ALIKE && time >= self.give_up_after {
            return Decision::Stuck { rank, alike };
        }
        let delay = self.failures.take(lived);
        self.alike = (lived <= QUICK).then_some((rank, status, alike, time + delay));
        Decision::Again { restart: self.restarts(), delay }
    }

    /// A generation has ended because a host was warned or lost, so long after it was started: the next one does without the host, so
    /// something has changed.
    pub fn preempted(&mut self, lived: Span) -> Decision {
        if !self.has_more_retries() {
            return Decision::UsedUp;
        }
        self.alike = None;
        let delay = self.preemptions.take(lived).nanos();
        // From 80 % to 120 %, as the golden ratio spreads numbers.
        let spread = self.seed.wrapping_add(self.preemptions.used.into()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let delay = delay / 10 * 8 + (delay / 10 * 4 / 1000) * (spread % 1001);
        Decision::Again { restart: self.restarts(), delay: Span::from_nanos(delay) }
    }

    /// A generation was ended so that the next one has more hosts. No limit holds for that, and no pause is needed.
    pub fn grown(&mut self) -> Decision {
        self.alike = None;
        self.growths = self.growths.saturating_add(1);
        Decision::Again { restart: self.restarts(), delay: Span::ZERO }
    }

    const fn restarts(&self) -> u32 {
        self.failures.used.saturating_add(self.preemptions.used).saturating_add(self.growths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const EXITED: Status = Status::Exited(1);

    fn history(most: u32, delay: Span) -> History {
        History::new(Restarts { give_up_after: Span::ZERO, ..Restarts::of(most, delay) }, 7)
    }

    fn delays(history: &mut History, lived: &[u64]) -> Vec<u64> {
        let ended = lived.iter().enumerate().map(|(n, lived)| {
            let rank = Rank::new(u32::try_from(n).unwrap());
            match history.ended(rank, EXITED, Span::from_secs(*lived)) {
                Decision::Again { restart, delay } => {
                    assert_eq!(restart as usize, n + 1);
                    delay.millis()
                }
                other @ (Decision::Stuck { .. } | Decision::UsedUp) => panic!("{other:?}"),
            }
        });
        ended.collect()
    }

    #[test]
    fn the_pause_doubles_up_to_a_bound_and_begins_anew_after_a_generation_that_lasted() {
        let mut all = history(100, Span::from_secs(1));
        assert_eq!(delays(&mut all, &[0; 8]), [1, 2, 4, 8, 16, 32, 60, 60].map(|s| s * 1000));
        let mut all = history(100, Span::from_secs(1));
        assert_eq!(delays(&mut all, &[0, 59, 60, 0, 0, 3600]), [1, 2, 1, 2, 4, 1].map(|s| s * 1000));
        assert_eq!(delays(&mut history(9, Span::ZERO), &[0; 5]), [0; 5]);
        assert_eq!(delays(&mut history(9, Span::from_secs(90)), &[0; 3]), [90_000; 3]);
        assert_eq!(delays(&mut history(100, Span::from_millis(1)), &[0; 80]).last(), Some(&60_000));
    }

    #[test]
    fn no_more_than_allowed() {
        assert!(!history(0, Span::ZERO).has_more());
        let mut all = history(1, Span::ZERO);
        let rank = Rank::new(0);
        assert!(matches!(all.ended(rank, EXITED, Span::ZERO), Decision::Again { restart: 1, .. }));
        assert!(!all.has_more());
        assert_eq!(all.ended(rank, EXITED, Span::ZERO), Decision::UsedUp);
    }

    #[test]
    fn generations_that_get_nowhere_in_the_same_way_are_given_up() {
        let rank = Rank::new(3);
        let end = |all: &mut History, rank, status, lived| all.ended(rank, status, lived);
        let mut all = history(100, Span::ZERO);
        for n in 1..ALIKE {
            let decision = end(&mut all, rank, EXITED, QUICK);
            assert_eq!(decision, Decision::Again { restart: n, delay: Span::ZERO });
        }
        assert_eq!(end(&mut all, rank, EXITED, QUICK), Decision::Stuck { rank, alike: ALIKE });
        // Another rank, another code, or one that lived longer: they begin to count anew.
        let others = [
            (Rank::new(4), EXITED, QUICK),
            (rank, Status::Exited(2), QUICK),
            (rank, EXITED, QUICK + Span::from_nanos(1)),
        ];
        for (other, status, lived) in others {
            let mut all = history(100, Span::ZERO);
            for n in 0..20 {
                let decision = match n % ALIKE {
                    0 => end(&mut all, other, status, lived),
                    _ => end(&mut all, rank, EXITED, QUICK),
                };
                assert!(matches!(decision, Decision::Again { .. }), "{n}: {decision:?}");
            }
        }
    }

    #[test]
    fn equal_failures_end_the_job_only_after_the_limit_of_time() {
        let mut all = History::new(Restarts::of(100, Span::from_secs(1)), 7);
        let mut time = Span::ZERO;
        let restarts = core::iter::from_fn(|| match all.ended(Rank::new(0), EXITED, Span::ZERO) {
            Decision::Again { delay, .. } => {
                time = time + delay;
                Some(time)
            }
            Decision::Stuck { .. } | Decision::UsedUp => None,
        });
        assert_eq!(restarts.count(), 6);
        assert_eq!(time, Span::from_secs(63));
    }

    #[test]
    fn preemptions_are_counted_and_paused_for_apart_from_failures() {
        let allowed = Restarts { most: 1, delay: Span::from_secs(30), preempt: 8, ..Restarts::default() };
        let mut all = History::new(allowed, 7);
        assert!(matches!(all.ended(Rank::new(0), EXITED, Span::ZERO), Decision::Again { restart: 1, .. }));
        assert!(!all.has_more() && all.has_more_retries());
        for (n, seconds) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            let Decision::Again { restart, delay } = all.preempted(Span::ZERO) else { panic!("{n}") };
            assert_eq!(restart as usize, n + 2);
            let pause = delay.millis();
            assert!((seconds * 800..=seconds * 1200).contains(&pause), "{seconds}: {pause}");
        }
        assert_eq!(all.preempted(Span::ZERO), Decision::UsedUp);
        let pauses: Vec<Decision> =
            (0..9).map(|seed| History::new(allowed, seed << 40).preempted(Span::ZERO)).collect();
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "jobs that were preempted together come back apart");
    }

    #[test]
    fn growth_is_counted_as_a_start_and_uses_up_nothing() {
        let mut all = History::new(Restarts { most: 1, delay: Span::ZERO, preempt: 1, ..Restarts::default() }, 7);
        for restart in 1..9 {
            assert_eq!(all.grown(), Decision::Again { restart, delay: Span::ZERO });
        }
        assert!(all.has_more() && all.has_more_retries());
        let failed = all.ended(Rank::new(0), EXITED, Span::ZERO);
        assert_eq!(failed, Decision::Again { restart: 9, delay: Span::ZERO });
    }

    #[test]
    fn retries_are_a_million_beside_max_restarts_and_none_without() {
        assert_eq!(Restarts::of(1, Span::ZERO).preempt, 1_000_000);
        assert_eq!(Restarts::default().preempt, 0);
    }

    proptest! {
        #[test]
        fn restarts_end_and_are_counted(
            most in 0u32..50,
            delay in 0u64..200_000,
            ends in proptest::collection::vec((0u32..2, 0u8..2, 0u64..100), 0..80),
        ) {
            let mut all = history(most, Span::from_millis(delay));
            let mut count = 0;
            for (rank, code, lived) in ends {
                let more = all.has_more();
                match all.ended(Rank::new(rank), Status::Exited(code), Span::from_secs(lived)) {
                    Decision::Again { restart, delay: pause } => {
                        count += 1;
                        prop_assert!(more && restart == count && count <= most);
                        prop_assert!(pause <= LONGEST.max(Span::from_millis(delay)) && pause >= Span::from_millis(delay).min(LONGEST));
                    }
                    Decision::Stuck { alike, .. } => prop_assert!(more && alike >= ALIKE && lived <= 10),
                    Decision::UsedUp => prop_assert!(!more),
                }
            }
        }
    }
}
