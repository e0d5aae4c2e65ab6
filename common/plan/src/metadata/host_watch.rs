//! The state of a host by all that its metadata server has reported. A warning stays: the host is marked for good.

use super::{Key, Reading};
use alloc::collections::BTreeMap;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Span, WallNs};
use rlaunch_base::warnings::{BEFORE_SERVICE, WarningNote, WarningSource};

/// The state of a host.
#[derive(Debug, Default)]
pub struct HostWatch {
    /// When the next planned service begins, if one is planned.
    planned: Option<WallNs>,
    is_warned: bool,
    /// Plans and words that were reported.
    noted: BTreeMap<Key, Reading>,
}

/// News of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// The host is about to be taken away. Reported once.
    Warning(WarningSource),
    /// Nothing follows from this.
    Note(WarningNote),
}

impl HostWatch {
    /// Takes the meaning of an answer.
    pub fn on_reading(&mut self, key: Key, reading: &Reading, now: WallNs) -> Option<Report> {
        match reading {
            Reading::None => None,
            Reading::Warning => self.warn(key.source()),
            Reading::Well => {
                self.planned = self.planned.filter(|_| key != Key::UpcomingMaintenance);
                None
            }
            Reading::Planned(start) => {
                self.planned = Some(*start);
                let note = self.note(key, reading, || WarningNote::Planned(*start));
                self.on_time(now).or(note)
            }
            Reading::Unknown(word) => self.note(key, reading, || {
                let path = OsBytes::from(key.path());
                WarningNote::Unknown { path, word: word.clone() }
            }),
        }
    }

    /// The time until a planned service becomes a warning.
    #[must_use]
    pub fn due_in(&self, now: WallNs) -> Option<Span> {
        let start = self.planned.filter(|_| !self.is_warned)?;
        let at = start.0.saturating_sub(BEFORE_SERVICE.nanos());
        Some(Span::from_nanos(at.saturating_sub(now.0)))
    }

    /// Looks at the clock.
    pub fn on_time(&mut self, now: WallNs) -> Option<Report> {
        let is_due = self.due_in(now) == Some(Span::ZERO);
        if is_due { self.warn(WarningSource::Maintenance) } else { None }
    }

    fn warn(&mut self, source: WarningSource) -> Option<Report> {
        let is_news = !core::mem::replace(&mut self.is_warned, true);
        is_news.then_some(Report::Warning(source))
    }

    /// A note, unless it was the last one of this key.
    fn note(&mut self, key: Key, reading: &Reading, note: impl FnOnce() -> WarningNote) -> Option<Report> {
        let before = self.noted.insert(key, reading.clone());
        (before.as_ref() != Some(reading)).then(|| Report::Note(note()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::Preempted;

    fn at(seconds: u64) -> WallNs {
        WallNs(seconds * 1_000_000_000)
    }

    #[test]
    fn host_is_marked_for_good_when_true_is_followed_by_false() {
        let mut host = HostWatch::default();
        assert_eq!(host.on_reading(KEY, &Reading::Well, at(0)), None);
        let warning = Some(Report::Warning(WarningSource::Preempted));
        assert_eq!(host.on_reading(KEY, &Reading::Warning, at(1)), warning);
        assert_eq!(host.on_reading(KEY, &Reading::Well, at(2)), None);
        assert_eq!(host.on_reading(KEY, &Reading::Warning, at(3)), None, "the warning stays");
        assert_eq!(host.on_reading(Key::MaintenanceEvent, &Reading::Warning, at(3)), None);
    }

    #[test]
    fn planned_service_is_a_note_until_a_minute_before_it() {
        let mut host = HostWatch::default();
        let (key, plan) = (Key::UpcomingMaintenance, Reading::Planned(at(1000)));
        assert_eq!(host.on_reading(key, &plan, at(0)), Some(Report::Note(WarningNote::Planned(at(1000)))));
        assert_eq!(host.on_reading(key, &plan, at(1)), None, "noted already");
        assert_eq!((host.on_time(at(939)), host.due_in(at(939))), (None, Some(Span::from_secs(1))));
        assert_eq!(host.on_time(at(940)), Some(Report::Warning(WarningSource::Maintenance)));
        assert_eq!((host.on_time(at(941)), host.due_in(at(941))), (None, None));
        let mut late = HostWatch::default();
        assert_eq!(late.on_reading(key, &plan, at(990)), Some(Report::Warning(WarningSource::Maintenance)));
    }

    #[test]
    fn plan_that_was_withdrawn_is_no_warning() {
        let mut host = HostWatch::default();
        let key = Key::UpcomingMaintenance;
        assert!(host.on_reading(key, &Reading::Planned(at(1000)), at(0)).is_some());
        assert_eq!(host.on_reading(KEY, &Reading::Well, at(1)), None, "another key says nothing of it");
        assert!(host.due_in(at(1)).is_some());
        assert_eq!(host.on_reading(key, &Reading::Well, at(2)), None);
        assert_eq!((host.due_in(at(999)), host.on_time(at(999))), (None, None));
    }

    #[test]
    fn unknown_word_is_noted_once() {
        let mut host = HostWatch::default();
        let word = Reading::Unknown("SOMETHING_NEW".into());
        assert!(matches!(host.on_reading(KEY, &word, at(0)), Some(Report::Note(WarningNote::Unknown { .. }))));
        assert_eq!(host.on_reading(KEY, &word, at(0)), None);
        assert_eq!(host.on_reading(KEY, &Reading::None, at(0)), None);
    }
}
