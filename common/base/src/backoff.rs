//! Failures in a row without progress: the pause before the next try, and when to give up.
//!
//! A cause may heal by itself: a file system that does not answer, a port in use. So the pause doubles from failure to failure, and rlaunch
//! gives up only after a number of failures and a time.

use crate::time::{Mono, Span};

/// A failure within this time from the begin is one without progress.
pub const QUICK: Span = Span::from_secs(10);
/// Number of failures in a row after which rlaunch may give up.
pub const ALIKE: u32 = 5;
/// The default of `--give-up-after`.
pub const GIVE_UP_AFTER: Span = Span::from_secs(60);
/// The longest pause.
const LONGEST: Span = Span::from_secs(30);

/// The pause after so many failures in a row: none, 0.1 s, 1 s, 2 s, 4 s and so on.
#[must_use]
pub fn pause(failures: u32) -> Span {
    match failures {
        0 | 1 => Span::ZERO,
        2 => Span::from_millis(100),
        more => Span::from_secs(1).doubled(more - 3, LONGEST),
    }
}

/// Failures in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Streak {
    /// Their number.
    pub failures: u32,
    since: Mono,
}

impl Streak {
    /// One more failure, or the first.
    #[must_use]
    pub fn with(before: Option<Self>, now: Mono) -> Self {
        let Self { failures, since } = before.unwrap_or(Self { failures: 0, since: now });
        Self { failures: failures.saturating_add(1), since }
    }

    /// Whether there were so many failures, and the time limit has expired.
    #[must_use]
    pub fn is_enough(&self, failures: u32, limit: Span, now: Mono) -> bool {
        self.failures >= failures && self.rest(limit, now) == Span::ZERO
    }

    /// The part of the limit that is left.
    #[must_use]
    pub fn rest(&self, limit: Span, now: Mono) -> Span {
        Span::from_nanos(limit.nanos().saturating_sub(now.since(self.since).nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_up_to_the_longest() {
        let pauses = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, u32::MAX].map(|failures| pause(failures).millis());
        assert_eq!(pauses, [0, 0, 100, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
    }

    #[test]
    fn streak_is_enough_by_count_and_by_time() {
        let at = |seconds: u64| Mono::from_nanos(seconds * 1_000_000_000);
        let limit = Span::from_secs(60);
        let four = (0..4).fold(None, |streak, _| Some(Streak::with(streak, at(9))));
        assert!(!four.unwrap().is_enough(ALIKE, Span::ZERO, at(500)));
        let five = Streak::with(four, at(10));
        assert!(five.is_enough(ALIKE, Span::ZERO, at(10)));
        assert!(!five.is_enough(ALIKE, limit, at(68)) && five.is_enough(ALIKE, limit, at(69)));
        assert_eq!(five.rest(limit, at(68)), Span::from_secs(1));
    }
}
