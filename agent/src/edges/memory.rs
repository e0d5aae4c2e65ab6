//! The memory of this host and of the agent: who was killed for lack of it, and when ours is given back.

use crate::clock::now;
use rlaunch_base::machine::earliest;
use rlaunch_base::time::{Mono, Span};
use rlaunch_sys::facts::oom::OomWatch;

/// When the kernel's counters of out-of-memory kills are read for the first time, counted from the first rank. A job that ends
/// earlier does not pay for it, and no rank fills its memory earlier.
const BEFORE_KILLS: Span = Span::from_millis(2);

/// When the memory of the launch is given back, counted from the last rank.
const TRIM_AFTER: Span = Span::from_millis(50);

/// The pause before memory is released after a look for files. Without it, code that the thread still runs would be mapped again.
const IDLE: Span = Span::from_millis(5);

#[derive(Default)]
enum Baseline {
    #[default]
    NotYet,
    At(Mono),
    Taken,
}

/// The watch, and the times at which something of it is due.
#[derive(Default)]
pub(super) struct MemoryWatch {
    oom: OomWatch,
    baseline: Baseline,
    trim_at: Option<Mono>,
}

impl MemoryWatch {
    /// A rank runs.
    pub(super) fn begin(&mut self) {
        let now = now();
        self.trim_at = Some(now + TRIM_AFTER);
        if let Baseline::NotYet = self.baseline {
            self.baseline = Baseline::At(now + BEFORE_KILLS);
        }
    }

    /// Memory that was used after the launch is given back soon, when the thread that used it waits.
    pub(super) fn give_back(&mut self) {
        self.trim_at.get_or_insert_with(|| now() + IDLE);
    }

    /// The limit of memory for which the kernel has killed a process of this host, if it has.
    pub(super) fn killed_since(&mut self) -> Option<u64> {
        self.oom.killed_since()
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let baseline = match self.baseline {
            Baseline::At(at) => Some(at),
            Baseline::NotYet | Baseline::Taken => None,
        };
        earliest(baseline, self.trim_at)
    }

    /// Whether memory is to be given back.
    pub(super) fn poll(&mut self, now: Mono) -> bool {
        if matches!(self.baseline, Baseline::At(at) if at <= now) {
            self.oom.baseline();
            self.baseline = Baseline::Taken;
        }
        self.trim_at.take_if(|at| *at <= now).is_some()
    }
}
