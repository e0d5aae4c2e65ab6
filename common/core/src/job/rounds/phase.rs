//! The phase of the rounds of one generation: whether there is a machine, and whether it still decides.

use alloc::boxed::Box;
use rlaunch_base::machine::Machine as _;
use rlaunch_restart::{Restart, RestartAction, RestartEvent};

/// The phase of the rounds of a generation.
#[derive(Debug)]
pub(super) enum Phase {
    /// No process has registered. A rank that has ended or left before is the first event of the machine.
    Unused { early: Option<RestartEvent> },
    /// A process has registered: the machine decides.
    Used(Box<Restart>),
    /// The job ends, or all ranks do: no round follows. The machine, if there was one, still knows its limits and its last round.
    Off(Option<Box<Restart>>),
}

impl Default for Phase {
    fn default() -> Self {
        Self::Unused { early: None }
    }
}

impl Phase {
    /// The machine, whether or not it still decides.
    pub(super) const fn machine(&self) -> Option<&Restart> {
        match self {
            Self::Used(machine) | Self::Off(Some(machine)) => Some(machine),
            Self::Unused { .. } | Self::Off(None) => None,
        }
    }

    /// The machine, if it decides.
    pub(super) const fn active(&self) -> Option<&Restart> {
        match self {
            Self::Used(machine) => Some(machine),
            Self::Unused { .. } | Self::Off(_) => None,
        }
    }

    /// The same, for an event or a timeout.
    pub(super) const fn active_mut(&mut self) -> Option<&mut Restart> {
        match self {
            Self::Used(machine) => Some(machine),
            Self::Unused { .. } | Self::Off(_) => None,
        }
    }

    /// The next action. A machine that was turned off may have asked for some before.
    pub(super) fn poll_action(&mut self) -> Option<RestartAction> {
        match self {
            Self::Used(machine) | Self::Off(Some(machine)) => machine.poll_action(),
            Self::Unused { .. } | Self::Off(None) => None,
        }
    }

    /// Keeps the first end or leave of a rank for the machine that may follow.
    pub(super) fn keep_early(&mut self, event: &RestartEvent) {
        if let Self::Unused { early } = self {
            early.get_or_insert_with(|| event.clone());
        }
    }

    /// No round follows.
    pub(super) fn turn_off(&mut self) {
        *self = match core::mem::take(self) {
            Self::Unused { .. } => Self::Off(None),
            Self::Used(machine) => Self::Off(Some(machine)),
            Self::Off(machine) => Self::Off(machine),
        };
    }
}
