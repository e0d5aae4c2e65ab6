//! How often something has happened of which the launcher is told at once, and then once in so long: there may be thousands.

use crate::time::{Mono, Span};

const PAUSE: Span = Span::from_secs(10);

/// What the launcher was not told of.
#[derive(Debug)]
pub(super) struct Tally<T> {
    count: u32,
    /// The last of them.
    last: Option<T>,
    /// Until when it is not told of more.
    pause: Option<Mono>,
}

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Self { count: 0, last: None, pause: None }
    }
}

impl<T> Tally<T> {
    /// It has happened so often. What is to be told now, and how often that was.
    pub(super) fn add(&mut self, now: Mono, last: T, count: u32) -> Option<(T, u32)> {
        self.count = self.count.saturating_add(count);
        self.last = Some(last);
        if self.pause.is_none() { self.tell(now) } else { None }
    }

    pub(super) fn on_timeout(&mut self, now: Mono) -> Option<(T, u32)> {
        if self.pause.is_some_and(|until| until <= now) { self.tell(now) } else { None }
    }

    /// The end has begun: nothing is kept.
    pub(super) fn on_ending(&mut self, now: Mono) -> Option<(T, u32)> {
        let told = self.tell(now);
        self.pause = None;
        told
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.pause
    }

    fn tell(&mut self, now: Mono) -> Option<(T, u32)> {
        let told = self.last.take().map(|last| (last, core::mem::take(&mut self.count)));
        self.pause = told.is_some().then(|| now + PAUSE);
        told
    }
}
