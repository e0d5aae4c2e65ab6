//! Warnings that a host is about to be taken away: their sources, and what the user wants to follow from one.

use crate::os_bytes::OsBytes;
use crate::time::{Span, WallNs};
use core::fmt;
use serde::{Deserialize, Serialize};

/// The default of `--warning-grace`: a preempted machine has 30 s.
pub const GRACE: Span = Span::from_secs(25);
/// How long before a planned service its host counts as warned.
pub const BEFORE_SERVICE: Span = Span::from_secs(60);

/// The most bytes of a command that warns (`--preempt-probe`).
pub const PROBE_ROOM: usize = 16 << 10;
/// From the end of such a command to its next start.
pub const PROBE_PAUSE: Span = Span::from_secs(5);
/// The longest run of such a command: then it is killed, and started again. A long poll may take so long.
pub const PROBE_LIMIT: Span = Span::from_secs(300);

/// The effect of a warning on a job without rounds (`--on-warning`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OnWarning {
    /// All ranks get SIGTERM and the grace of the warning. Then they are started again elsewhere, or the job ends.
    #[default]
    Term,
    /// The warning is reported. The host gets no other ranks.
    Note,
}

/// The options about warnings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WarningPlan {
    /// `--on-warning`.
    pub on_warning: OnWarning,
    /// `--warning-grace`: from SIGTERM to SIGKILL.
    pub grace: Span,
    /// The command whose end with 0 warns of its host (`--preempt-probe`). Empty: there is none.
    pub probe: OsBytes,
}

impl Default for WarningPlan {
    fn default() -> Self {
        Self { on_warning: OnWarning::Term, grace: GRACE, probe: OsBytes::default() }
    }
}

/// The source of a warning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename = "source", rename_all = "snake_case")]
pub enum WarningSource {
    /// The cloud's metadata server: the machine is being preempted.
    Preempted,
    /// The cloud's metadata server: the machine is about to be serviced.
    Maintenance,
    /// SIGTERM to the agent or the guardian of the host, outside of a scheduler's step.
    Signal,
    /// The command of `--preempt-probe` has exited with 0.
    Probe,
    /// The command of `--discover` does not print the host any more. No agent reports that.
    Discovery,
}

impl WarningSource {
    /// Its word in the event log.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Maintenance => "maintenance",
            Self::Signal => "signal",
            Self::Probe => "probe",
            Self::Discovery => "discovery",
        }
    }
}

impl fmt::Display for WarningSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preempted => "the metadata server reports a preemption",
            Self::Maintenance => "the metadata server reports maintenance",
            Self::Signal => "its agent was sent SIGTERM",
            Self::Probe => "the command of --preempt-probe exited with 0",
            Self::Discovery => "the command of --discover does not print it",
        })
    }
}

/// The consequence of a warning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Response {
    /// The in-process restart continues without the host.
    #[serde(rename = "drain")]
    Drains,
    /// All ranks get SIGTERM, and SIGKILL later.
    #[serde(rename = "end")]
    Ends {
        /// The time until then.
        grace: Span,
    },
    /// Nothing now. The host gets no other ranks.
    #[serde(rename = "note")]
    Noted,
}

/// A fact about the near future of a host from which nothing follows yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename = "")]
pub enum WarningNote {
    /// A service of the host is planned, and begins then at the earliest.
    #[serde(rename = "service_at")]
    Planned(WallNs),
    /// The metadata server has a value that rlaunch does not know.
    #[serde(rename = "")]
    Unknown {
        /// The path of the key.
        #[serde(rename = "key")]
        path: OsBytes,
        /// The value.
        #[serde(rename = "value")]
        word: OsBytes,
    },
    /// The shell cannot run the command of `--preempt-probe`: it exits with this code, 126 or 127.
    #[serde(rename = "probe_exit_code")]
    NoProbe(u8),
}

/// The meaning of an end of the command of `--preempt-probe`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeEnd {
    /// The host is about to be taken away.
    Warning,
    /// The command is run again after [`PROBE_PAUSE`]; the note is new.
    Again(Option<WarningNote>),
}

/// Decides what the ends of the command of `--preempt-probe` mean.
#[derive(Debug, Default)]
pub struct ProbeEnds {
    is_noted: bool,
}

impl ProbeEnds {
    /// The command has ended with this exit code; `None`: by a signal, or it could not be started.
    pub fn on_end(&mut self, code: Option<u8>) -> ProbeEnd {
        match code {
            Some(0) => ProbeEnd::Warning,
            Some(code @ (126 | 127)) if !core::mem::replace(&mut self.is_noted, true) => {
                ProbeEnd::Again(Some(WarningNote::NoProbe(code)))
            }
            Some(_) | None => ProbeEnd::Again(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_warns_by_exit_code_0_only_and_is_noted_once_if_it_cannot_run() {
        let mut ends = ProbeEnds::default();
        let again = ProbeEnd::Again(None);
        assert_eq!([ends.on_end(Some(1)), ends.on_end(None)], [again.clone(), again.clone()]);
        assert_eq!(ends.on_end(Some(127)), ProbeEnd::Again(Some(WarningNote::NoProbe(127))));
        assert_eq!([ends.on_end(Some(126)), ends.on_end(Some(0))], [again, ProbeEnd::Warning]);
    }
}
