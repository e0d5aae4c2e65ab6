//! Carriers: what brings an agent to another host and holds its edge. Each is a process here with a stream to the host: the
//! user's own `ssh`, a step of Slurm's `srun`, or a command of the user's.

use super::argv::{SshOptions, Target, argv};
use super::command_template::CommandTemplate;
use super::srun::SrunPlan;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use serde::{Serialize, Serializer};

/// How agents are brought to the hosts of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// The user's own ssh.
    Ssh(SshOptions),
    /// Steps of the Slurm job in which rlaunch runs. Hosts share a step, or each host has its own (`--transport`).
    Srun(SrunPlan),
    /// The command of `--launcher exec:…`.
    Exec(CommandTemplate),
}

/// A kind of carrier, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename = "why", rename_all = "lowercase")]
pub enum CarrierKind {
    /// `ssh`.
    Ssh,
    /// `srun`.
    Srun,
    /// A command of the user's.
    Exec,
}

impl Carrier {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> CarrierKind {
        match self {
            Self::Ssh(_) => CarrierKind::Ssh,
            Self::Srun(_) => CarrierKind::Srun,
            Self::Exec(_) => CarrierKind::Exec,
        }
    }

    /// The command that runs `line` in a shell on the host, with a stream to it.
    #[must_use]
    pub fn command(&self, target: &Target, line: &[u8]) -> Vec<OsBytes> {
        match self {
            Self::Ssh(options) => argv(target, options, line),
            Self::Srun(plan) => plan.argv(target, line),
            Self::Exec(template) => template.argv(target, line),
        }
    }

    /// Whether it may ask the user something at the terminal (`--ssh-prompt`).
    #[must_use]
    pub const fn may_prompt(&self) -> bool {
        matches!(self, Self::Ssh(SshOptions { prompt: true, .. }))
    }
}

impl CarrierKind {
    /// The command that a user may run by hand, if it is known, to see why a host cannot be reached.
    pub(super) fn by_hand(self, target: &Target) -> Option<String> {
        match self {
            Self::Ssh => Some(format!("ssh {} true", target.by_hand())),
            Self::Srun => Some(format!("srun --overlap -N1 -n1 -w {} true", target.host())),
            Self::Exec => None,
        }
    }
}

impl fmt::Display for CarrierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ssh => "ssh",
            Self::Srun => "srun",
            Self::Exec => "the command of --launcher",
        })
    }
}

/// How a carrier ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename = "", rename_all = "lowercase")]
pub enum CarrierEnd {
    /// The carrier exited with this code.
    Code(u8),
    /// A signal ended the carrier.
    #[serde(serialize_with = "name_of_signal")]
    Signal(u8),
}

/// The name of a signal by its number; empty: there is none.
fn name_of_signal<S: Serializer>(number: &u8, serializer: S) -> Result<S::Ok, S::Error> {
    match Signal::new(*number) {
        Some(signal) => signal.serialize(serializer),
        None => serializer.serialize_str(""),
    }
}

impl fmt::Display for CarrierEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => write!(f, "signal {number}"),
        }
    }
}
