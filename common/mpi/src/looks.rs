//! Looks at the libraries that ranks have loaded, until a rank calls `MPI_Init`. A library that is loaded and never asks makes each rank a
//! world of its own, without an error.

use rlaunch_base::time::{Mono, Span};

/// From the start of the ranks to the first look.
const FIRST: Span = Span::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Looks {
    at: Option<Mono>,
    gap: Span,
    is_over: bool,
}

impl Looks {
    /// Whether a look is due. Each gap is longer by a quarter, so that a look falls into the last quarter of a program's run.
    pub(super) fn is_due(&mut self, now: Mono) -> bool {
        if self.is_over || self.at.is_some_and(|at| now < at) {
            return false;
        }
        self.gap = FIRST.max(Span::from_nanos(self.gap.nanos() / 4 * 5));
        self.at.replace(now + self.gap).is_some()
    }

    pub(super) const fn end(&mut self) {
        (self.at, self.is_over) = (None, true);
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.at
    }
}
