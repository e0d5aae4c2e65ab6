//! A counter of events that the launcher gets at once, and then at most once in a period: there may be thousands.

use rlaunch_base::time::{Mono, Span};

const PAUSE: Span = Span::from_secs(10);

/// Events that were not reported to the launcher.
#[derive(Debug)]
pub(super) struct RateLimitedCounter<T> {
    count: u32,
    /// The last of them.
    last: Option<T>,
    /// The time until which no more are reported.
    pause: Option<Mono>,
}

impl<T> Default for RateLimitedCounter<T> {
    fn default() -> Self {
        Self { count: 0, last: None, pause: None }
    }
}

impl<T> RateLimitedCounter<T> {
    /// Adds events. Returns the event and the number to be reported now.
    pub(super) fn add(&mut self, now: Mono, last: T, count: u32) -> Option<(T, u32)> {
        self.count = self.count.saturating_add(count);
        self.last = Some(last);
        if self.pause.is_none() { self.notify(now) } else { None }
    }

    pub(super) fn on_timeout(&mut self, now: Mono) -> Option<(T, u32)> {
        if self.pause.is_some_and(|until| until <= now) { self.notify(now) } else { None }
    }

    /// The end has begun: nothing is kept.
    pub(super) fn on_ending(&mut self, now: Mono) -> Option<(T, u32)> {
        let report = self.notify(now);
        self.pause = None;
        report
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.pause
    }

    fn notify(&mut self, now: Mono) -> Option<(T, u32)> {
        let report = self.last.take().map(|last| (last, core::mem::take(&mut self.count)));
        self.pause = report.is_some().then(|| now + PAUSE);
        report
    }
}
