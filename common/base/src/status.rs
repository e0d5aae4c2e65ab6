//! How a process ended.

use crate::signal::Signal;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The end of one process. `Lost` (its host was lost before) is not `Exited`, and no agent ever reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename = "")]
pub enum Status {
    /// The process called exit with this code.
    #[serde(rename = "code")]
    Exited(u8),
    /// A signal ended it.
    #[serde(rename = "")]
    Signaled {
        /// Which one.
        #[serde(rename = "signal")]
        sig: Signal,
        /// The kernel says that it dumped core.
        core: bool,
    },
    /// The node was lost before the end of the process was reported.
    #[serde(rename = "lost")]
    Lost,
}

impl Status {
    /// Exit code 0.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }

    /// The exit code it gives the job: its own, 128 + signal, or 125 where its node was lost.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled { sig, .. } => sig.exit_code(),
            Self::Lost => crate::exit::LAUNCH,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit {code}"),
            Self::Signaled { sig, core: true } => write!(f, "{sig} (core dumped)"),
            Self::Signaled { sig, core: false } => write!(f, "{sig}"),
            Self::Lost => f.write_str("lost"),
        }
    }
}
