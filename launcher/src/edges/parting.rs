//! The end of carriers (ssh, srun, commands) after a job: each of them has exited, or was ended, before rlaunch exits.

use rlaunch_base::time::{Mono, Span};

/// Time to end after SIGTERM.
const OBEDIENCE: Span = Span::from_secs(1);
/// Time to end after SIGKILL. Only a process that the kernel cannot end takes longer.
const DEATH: Span = Span::from_millis(200);

/// A signal for all that are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Push {
    /// SIGTERM.
    Ask,
    /// SIGKILL.
    Kill,
}

/// The wait for these processes, since the job ended.
#[derive(Debug)]
pub(super) struct Parting {
    next: Option<Push>,
    at: Mono,
}

impl Parting {
    /// `patience` is their time to end by themselves.
    pub(super) fn new(now: Mono, patience: Span) -> Self {
        Self { next: Some(Push::Ask), at: now + patience }
    }

    /// The signal that is due now.
    pub(super) fn pop(&mut self, now: Mono) -> Option<Push> {
        let push = self.next.filter(|_| self.at <= now)?;
        (self.next, self.at) = match push {
            Push::Ask => (Some(Push::Kill), now + OBEDIENCE),
            Push::Kill => (None, now + DEATH),
        };
        Some(push)
    }

    /// The time when the next signal is due, or the wait ends.
    pub(super) const fn deadline(&self) -> Mono {
        self.at
    }

    /// Whether all was tried, and nothing more is waited for.
    pub(super) fn is_over(&self, now: Mono) -> bool {
        self.next.is_none() && self.at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn signals_come_one_after_the_other_each_once_when_processes_ignore_them() {
        let mut parting = Parting::new(at(0), Span::from_millis(500));
        let mut pushes = Vec::new();
        for millis in (0..3_000).step_by(50) {
            pushes.extend(parting.pop(at(millis)).map(|push| (millis, push)));
            assert_eq!(parting.is_over(at(millis)), millis >= 1_700, "at {millis} ms");
        }
        assert_eq!(pushes, [(500, Push::Ask), (1_500, Push::Kill)]);
    }
}
