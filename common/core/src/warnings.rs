//! Warnings that a host is about to be taken away: their sources, and what the user wants to follow from one.

use crate::metadata::Key;
use crate::os_bytes::OsBytes;
use crate::time::{Span, WallNs};
use core::fmt;
use serde::{Deserialize, Serialize};

/// The default of `--warning-grace`: a preempted machine has 30 s.
pub const GRACE: Span = Span::from_secs(25);
/// How long before a planned service its host counts as warned.
pub const BEFORE_SERVICE: Span = Span::from_secs(60);

/// The effect of a warning on a job without rounds (`--on-warning`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnWarning {
    /// All ranks get SIGTERM and the grace of the warning. Then they are started again elsewhere, or the job ends.
    #[default]
    Term,
    /// The warning is reported. The host gets no other ranks.
    Note,
}

/// The options about warnings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WarningPlan {
    /// `--on-warning`.
    pub on_warning: OnWarning,
    /// `--warning-grace`: from SIGTERM to SIGKILL.
    pub grace: Span,
}

impl Default for WarningPlan {
    fn default() -> Self {
        Self { on_warning: OnWarning::Term, grace: GRACE }
    }
}

/// The source of a warning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum WarningSource {
    /// The cloud's metadata server: the machine is being preempted.
    Preempted,
    /// The cloud's metadata server: the machine is about to be serviced.
    Maintenance,
    /// SIGTERM to the agent or the guardian of the host, outside of a scheduler's step.
    Signal,
}

impl WarningSource {
    /// The source of a warning of the metadata server.
    #[must_use]
    pub const fn of_key(key: Key) -> Self {
        match key {
            Key::Preempted => Self::Preempted,
            Key::MaintenanceEvent | Key::UpcomingMaintenance => Self::Maintenance,
        }
    }

    /// Its word in the event log.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Maintenance => "maintenance",
            Self::Signal => "signal",
        }
    }
}

impl fmt::Display for WarningSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preempted => "the metadata server reports a preemption",
            Self::Maintenance => "the metadata server reports maintenance",
            Self::Signal => "its agent was sent SIGTERM",
        })
    }
}

/// The consequence of a warning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response {
    /// The in-process restart continues without the host.
    Drains,
    /// All ranks get SIGTERM, and SIGKILL after this time.
    Ends(Span),
    /// Nothing now. The host gets no other ranks.
    Noted,
}

/// A fact about the near future of a host from which nothing follows yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WarningNote {
    /// A service of the host is planned, and begins then at the earliest.
    Planned(WallNs),
    /// The metadata server has a value that rlaunch does not know.
    Unknown {
        /// The path of the key.
        path: OsBytes,
        /// The value.
        word: OsBytes,
    },
}
