//! How long an agent, a guardian or a reader may take, counted in time in which we ran ourselves.
//!
//! A time limit that leaves out suspensions. The machines' clock continues while the host is suspended, or while we are stopped or
//! frozen. The awaited process was mostly suspended too, or has answered and was not read: such time must not count against it.

use crate::time::{Mono, Span};

/// Patience is counted in steps of this length, so a gap costs one step, however long it was.
const STEP: Span = Span::from_millis(250);

/// The rest of the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    left: Span,
    stepped: Mono,
}

impl Patience {
    pub const fn new(now: Mono, left: Span) -> Self {
        Self { left, stepped: now }
    }

    /// Counts the time since the last step; whether nothing is left.
    pub fn is_out(&mut self, now: Mono) -> bool {
        let ran = now.since(self.stepped).min(STEP);
        self.left = Span::from_nanos(self.left.nanos().saturating_sub(ran.nanos()));
        self.stepped = self.stepped.max(now);
        self.left == Span::ZERO
    }

    /// When to take the next step.
    pub fn deadline(&self) -> Mono {
        self.stepped + self.left.min(STEP)
    }

    /// The one that ends first.
    pub fn min(self, other: Self) -> Self {
        if self.stepped + self.left <= other.stepped + other.left { self } else { other }
    }

    /// The one that ends last.
    pub fn max(self, other: Self) -> Self {
        if self.min(other) == self { other } else { self }
    }
}

/// Looks at the clock, for deadlines that are times by it: what was missed between two of them is no host's fault.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    looked: Mono,
}

impl Looks {
    /// The first.
    #[must_use]
    pub const fn new(now: Mono) -> Self {
        Self { looked: now }
    }

    /// The next one; how much longer than it should be it was until then. Not much is nothing.
    #[must_use]
    pub fn missed(&mut self, now: Mono) -> Span {
        let passed = now.since(self.looked);
        self.looked = self.looked.max(now);
        if passed < STEP + STEP { Span::ZERO } else { Span::from_nanos(passed.nanos() - STEP.nanos()) }
    }

    /// When to look again, while there is a deadline.
    #[must_use]
    pub fn deadline(&self) -> Mono {
        self.looked + STEP
    }
}
