//! When rounds end although ranks are left: what the user allows, and rounds in which nothing makes progress.

use super::end_reason::{EndReason, QuickRounds, SetLimit};
use rlaunch_base::backoff::{self, ALIKE, QUICK, Streak};
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_protocol::rounds::Limits;

/// Number of faults with other texts that count as one with the same text: the text may name a later step each time, or an address.
const OTHER_TEXTS: u32 = 5;

/// Whether another round may begin after `begun` of them. `ours`: the limits of the command line.
pub(super) fn check_rounds(limits: &Limits, begun: u32, ours: &Limits) -> Result<(), EndReason> {
    match limits.max_rounds {
        Some(most) if begun >= most => {
            let limit = SetLimit { value: most, is_option: ours.max_rounds.is_some() };
            Err(EndReason::MaxRounds { begun, limit })
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a world is large enough.
pub(super) fn check_world(limits: &Limits, healthy: u32, active: u32, ours: &Limits) -> Result<(), EndReason> {
    match (limits.min_world, limits.min_active) {
        (Some(least), _) if healthy < least => {
            let limit = SetLimit { value: least, is_option: ours.min_world.is_some() };
            Err(EndReason::MinWorld { healthy, limit })
        }
        (_, Some(least)) if active < least => {
            let limit = SetLimit { value: least, is_option: ours.min_active.is_some() };
            Err(EndReason::MinActive { active, limit })
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

/// Rounds that got nowhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Progress {
    begun: Option<Mono>,
    /// Some rank has said in this round that it makes progress.
    got_on: bool,
    row: Option<Row>,
    /// The rank that ended the last of them, whether or not other ranks made progress, and how many in a row.
    same: Option<(Rank, u32)>,
}

/// Rounds one after the other that ended in the same way.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    /// The last rank that has ended one, and whether it was the same each time.
    last: Rank,
    same: bool,
    kind: FaultKind,
    /// The text of the last of them, and the rounds in a row with it.
    text: OsBytes,
    alike: Streak,
    all: Streak,
}

impl Row {
    /// Counts one more round, or the first of another row.
    fn with(before: Option<&Self>, fault: &Fault, at: Mono) -> Self {
        let Fault { initial, kind, ref text } = *fault;
        // All hang with one that does, and raise what one does: who is the first says nothing.
        let by_all = matches!(kind, FaultKind::Exception | FaultKind::Hang);
        let goes_on = |row: &&Self| row.kind == kind && (row.last == initial || by_all);
        let before = before.filter(goes_on);
        let same = before.is_none_or(|row| row.same && row.last == initial);
        let alike = Streak::with(before.filter(|row| row.text == *text).map(|row| row.alike), at);
        let all = Streak::with(before.map(|row| row.all), at);
        Self { last: initial, same, kind, text: text.clone(), alike, all }
    }

    /// The pause before the next round, or the reason why there is none.
    fn pause(&self, at: Mono, limit: Span) -> Result<Span, EndReason> {
        let Self { last, same, kind, alike, all, .. } = *self;
        let is_same_text = alike.is_enough(ALIKE, limit, at);
        if is_same_text || all.is_enough(ALIKE * OTHER_TEXTS, limit, at) {
            let rounds = if is_same_text { alike.failures } else { all.failures };
            let (within, is_same_rank) = (QUICK, same);
            return Err(EndReason::NoProgress(QuickRounds {
                rounds,
                is_same_text,
                kind,
                last,
                is_same_rank,
                within,
                limit,
            }));
        }
        // The last try is at the limit.
        Ok(backoff::pause(alike.failures.max(all.failures / OTHER_TEXTS)).min(alike.rest(limit, at)))
    }
}

impl Progress {
    /// A round begins.
    pub(super) const fn begins(&mut self, now: Mono) {
        (self.begun, self.got_on) = (Some(now), false);
    }

    pub(super) const fn record_progress(&mut self) {
        self.got_on = true;
    }

    pub(super) const fn has_progressed(&self) -> bool {
        self.got_on
    }

    /// A round ends by this fault. Returns the number of rounds that one rank has ended in a row, if it is worth a remark: the cause may
    /// be that rank only.
    pub(super) fn record_repetition(&mut self, fault: &Fault) -> Option<u32> {
        if fault.kind.is_planned() {
            return None;
        }
        let initial = fault.initial;
        let before = self.same.filter(|(last, _)| *last == initial).map_or(0, |(_, times)| times);
        let times = before.saturating_add(1);
        self.same = Some((initial, times));
        matches!(times, 10 | 100 | 1000).then_some(times)
    }

    /// A round ends by this fault, which was seen then. `silent`: how long one that hangs has been so. `limit`: `--give-up-after`.
    /// Returns the pause before the next round.
    pub(super) fn ends(&mut self, fault: &Fault, at: Mono, silent: Span, limit: Span) -> Result<Span, EndReason> {
        let silent = if fault.kind == FaultKind::Hang { silent } else { Span::ZERO };
        let quick = self.begun.is_some_and(|begun| at.since(begun) <= QUICK + silent);
        if fault.kind.is_planned() || self.got_on || !quick {
            self.row = None;
            return Ok(Span::ZERO);
        }
        let row = Row::with(self.row.as_ref(), fault, at);
        self.row.insert(row).pause(at, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use rlaunch_base::signal::Signal;
    use rlaunch_base::status::Status;

    const SOFT: Span = Span::from_secs(60);

    fn fault(initial: u32, kind: FaultKind) -> Fault {
        Fault { initial: Rank::new(initial), kind, text: OsBytes::default() }
    }

    /// The sentence of the reason.
    fn text<T>(result: Result<T, EndReason>) -> Result<T, String> {
        result.map_err(|reason| reason.to_string())
    }

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_same_fault_again_and_again_is_no_progress() {
        let mut progress = Progress::default();
        for round in 0..4 {
            progress.begins(at(round * 20));
            assert_eq!(
                progress.ends(&fault(0, FaultKind::Exception), at(round * 20 + 10), SOFT, Span::ZERO),
                Ok(Span::ZERO)
            );
        }
        let mut pinged = progress.clone();
        let ended = {
            progress.begins(at(100));
            progress.ends(&fault(0, FaultKind::Exception), at(101), SOFT, Span::ZERO)
        };
        let wanted = "initial rank 0 has ended 5 rounds in a row in the same way (exception), each within 10.0s of its begin (--give-up-after 0 ms)";
        assert_eq!(text(ended), Err(wanted.into()));
        pinged.begins(at(100));
        pinged.record_progress();
        assert_eq!(pinged.ends(&fault(0, FaultKind::Exception), at(101), SOFT, Span::ZERO), Ok(Span::ZERO));
        assert_eq!(pinged.row, None, "the row has ended");
    }

    #[test]
    fn repeated_fault_is_reported_now_and_then() {
        let mut progress = Progress::default();
        let mut reports = |initial: u32, kind: FaultKind| progress.record_repetition(&fault(initial, kind)).is_some();
        let times: Vec<u32> = (1..=1100).filter(|_| reports(1, FaultKind::Hang)).collect();
        assert_eq!(times, [10, 100, 1000]);
        assert!((0..9).all(|_| !reports(2, FaultKind::Hang)));
        assert!(!reports(1, FaultKind::Joined), "was planned");
        assert!(reports(2, FaultKind::Exception));
        assert!((0..9).all(|_| !reports(2, FaultKind::Hang) && !reports(1, FaultKind::Hang)));
    }

    #[test]
    fn a_fault_in_other_words_may_come_more_often() {
        let says = |text: &str| Fault { text: OsBytes::from(text), ..fault(0, FaultKind::Exception) };
        let mut progress = Progress::default();
        let mut ends = |text: &str| {
            progress.begins(at(0));
            progress.ends(&says(text), at(1), SOFT, Span::ZERO)
        };
        for step in 0..ALIKE * OTHER_TEXTS - 1 {
            assert_eq!(ends(&format!("at step {step}")), Ok(Span::ZERO));
        }
        let wanted = "initial rank 0 has ended 25 rounds in a row (exception), each within 10.0s of its begin (--give-up-after 0 ms)";
        assert_eq!(text(ends("at last")), Err(wanted.into()));
        let mut fewer = Progress::default();
        for text in ["a", "a", "a", "a", "b", "b", "b", "b"] {
            fewer.begins(at(0));
            assert_eq!(fewer.ends(&says(text), at(1), SOFT, Span::ZERO), Ok(Span::ZERO));
        }
    }

    /// A file system that does not answer for 8 s, and a program that fails at once.
    #[test]
    fn pause_between_equal_faults_doubles_until_the_limit_of_time() {
        let (mut progress, mut now, mut begun) = (Progress::default(), at(0), alloc::vec![]);
        let ended = loop {
            begun.push(now.nanos() / 1_000_000);
            progress.begins(now);
            match progress.ends(&fault(0, FaultKind::Exception), now, SOFT, Span::from_secs(60)) {
                Ok(pause) => now = now + pause,
                Err(reason) => break reason,
            }
        };
        assert_eq!(begun, [0, 0, 100, 1100, 3100, 7100, 15_100, 31_100, 60_000]);
        assert!(ended.to_string().starts_with("initial rank 0 has ended 9 rounds in a row"), "{ended}");
    }

    #[test]
    fn equal_exceptions_count_as_one_row_for_any_rank() {
        let ends = |progress: &mut Progress, initial: u32, kind: FaultKind, text: &str| {
            progress.begins(at(0));
            progress.ends(&Fault { text: OsBytes::from(text), ..fault(initial, kind) }, at(1), SOFT, Span::ZERO)
        };
        let mut progress = Progress::default();
        for initial in [0, 3, 3, 1] {
            assert_eq!(ends(&mut progress, initial, FaultKind::Exception, "a typo"), Ok(Span::ZERO));
        }
        let wanted = "5 rounds in a row have ended in the same way (exception), each within 10.0s of its begin, the last by initial rank 2 (--give-up-after 0 ms)";
        assert_eq!(text(ends(&mut progress, 2, FaultKind::Exception, "a typo")), Err(wanted.into()));
        let mut killed = Progress::default();
        let sigkill = FaultKind::Ended(Status::Signaled { sig: Signal::KILL, core: false });
        for initial in 0..30 {
            assert_eq!(ends(&mut killed, initial, sigkill, ""), Ok(Span::ZERO), "somebody else kills them");
        }
    }

    /// A rank hangs by default after a minute without progress.
    #[test]
    fn deadlock_at_begin_of_each_round_is_no_progress_for_any_named_rank() {
        let mut progress = Progress::default();
        let mut hangs = |initial: u32, seconds: u64| {
            progress.begins(at(0));
            progress.ends(&fault(initial, FaultKind::Hang), at(seconds), SOFT, Span::ZERO)
        };
        for initial in [0, 1, 1, 2] {
            assert_eq!(hangs(initial, 70), Ok(Span::ZERO));
        }
        let wanted = "5 rounds in a row have ended in the same way (hang), each silent from within 10.0s of its begin, the last by initial rank 0 (--give-up-after 0 ms)";
        assert_eq!(text(hangs(0, 61)), Err(wanted.into()));
        assert_eq!(hangs(0, 71), Ok(Span::ZERO), "it had done something before");
        assert_eq!(progress.row, None);
    }

    #[test]
    fn another_kind_or_a_long_round_begin_a_row_anew() {
        let row = |last: Fault, seen: u64| {
            let mut progress = Progress::default();
            for _ in 0..4 {
                progress.begins(at(0));
                assert_eq!(progress.ends(&fault(0, FaultKind::Exception), at(1), SOFT, Span::ZERO), Ok(Span::ZERO));
            }
            progress.begins(at(0));
            progress.ends(&last, at(seen), SOFT, Span::ZERO)
        };
        assert!(row(fault(0, FaultKind::Exception), 10).is_err());
        assert_eq!(row(fault(0, FaultKind::Hang), 1), Ok(Span::ZERO));
        assert_eq!(row(fault(0, FaultKind::Joined), 1), Ok(Span::ZERO));
        assert_eq!(row(fault(0, FaultKind::Exception), 11), Ok(Span::ZERO));
    }

    #[test]
    fn a_limit_says_what_it_is() {
        let limits = Limits { max_rounds: Some(3), min_world: Some(4), min_active: Some(2), max_rank_faults: None };
        assert_eq!(check_rounds(&limits, 2, &limits), Ok(()));
        assert_eq!(
            text(check_rounds(&limits, 3, &limits)),
            Err("3 rounds have begun, and --max-rounds 3 allows no more".into())
        );
        assert_eq!(check_world(&limits, 4, 2, &limits), Ok(()));
        assert_eq!(
            text(check_world(&limits, 3, 2, &limits)),
            Err("3 ranks are healthy, and --min-world 4 asks for more".into())
        );
        assert_eq!(
            text(check_world(&limits, 4, 1, &limits)),
            Err("1 rank is able to work, and --min-active 2 asks for more".into())
        );
        let result = check_world(&limits, 3, 2, &Limits::default());
        assert_eq!(text(result), Err("3 ranks are healthy, and the program's min_world 4 asks for more".into()));
    }
}
