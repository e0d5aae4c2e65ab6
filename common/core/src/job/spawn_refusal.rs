//! Why an order of a rank is refused: nothing was started then.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use rlaunch_base::errno::{EACCES, ENOENT};
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_keyvalue::store::Answer;
use rlaunch_protocol::wire::frozen::client::{Code, Refused, write_reply};
use rlaunch_protocol::wire::to_root::{SpawnError, SpawnStep};

/// An order that is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum OrderRefusal {
    /// The bytes are no order.
    #[error("the order cannot be read")]
    Malformed,
    /// The job ends.
    #[error("the job is ending: nothing is started any more")]
    Ending,
    /// Ranks of the job may be started again.
    #[error("a job whose ranks can be started again starts no other program")]
    Restarts,
    /// A program without words.
    #[error("a program of the order is empty")]
    NoProgram,
    /// A program without ranks, or more than there can be.
    #[error("{ranks} ranks are asked for: 1 to {most} can be started")]
    Ranks {
        /// How many were asked for.
        ranks: u64,
        /// How many more the job can have.
        most: u64,
    },
    /// A variable that no environment can have.
    #[error("'{name}' is no name for an environment variable")]
    Variable {
        /// The name.
        name: OsBytes,
    },
    /// A host that the job does not have.
    #[error("{name} is no host of this job that can take more ranks")]
    NoHost {
        /// Its name.
        name: OsBytes,
    },
    /// A name that no group can have.
    #[error("'{name}' is no name for a group: up to 64 letters, digits, '-', '_' and '.'")]
    GroupName {
        /// The name.
        name: OsBytes,
    },
    /// Another world has the name.
    #[error("the job has a group {name} already")]
    GroupTaken {
        /// The name.
        name: OsBytes,
    },
    /// No group has the name.
    #[error("the job has no group {name} whose slots could be shared")]
    NoGroup {
        /// The name.
        name: OsBytes,
    },
    /// More ranks than the group has.
    #[error("{ranks} ranks do not fit on the slots of the {has} ranks of group {name}")]
    Share {
        /// Ranks that were asked for.
        ranks: u32,
        /// Ranks of the group.
        has: u32,
        /// Its name.
        name: OsBytes,
    },
    /// The ranks are no whole number of tied ones.
    #[error("{ranks} ranks cannot be tied in groups of {tied}")]
    Tied {
        /// Ranks that were asked for.
        ranks: u32,
        /// Ranks that are tied together.
        tied: u32,
    },
    /// The rank that asks is not known.
    #[error("the process does not say which rank it is: RLAUNCH_RANK is not set in its environment")]
    NoAsker,
    /// No port can be had.
    #[error("no port is free for MASTER_PORT on {host}")]
    NoPort {
        /// The host.
        host: OsBytes,
    },
    /// A host was lost before all ranks ran.
    #[error("{host} was lost before all ranks ran")]
    HostLost {
        /// Its name.
        host: OsBytes,
    },
    /// A rank cannot be started.
    #[error("rank {rank} of the new world cannot be started on {host}: {}", reason(error))]
    NotStarted {
        /// Its number in the new world.
        rank: u32,
        /// Its host.
        host: OsBytes,
        /// Why.
        error: SpawnError,
    },
    /// The world was ended before all of its ranks ran.
    #[error("the world was ended before all of its ranks ran")]
    Ended,
    /// There is no such world, or it has ended.
    #[error("the job has no world {world} that could be ended")]
    NoWorld {
        /// Its number.
        world: u32,
    },
}

impl Hint for OrderRefusal {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Restarts => Some("leave --max-restarts, --respawn and the restart within processes out".into()),
            Self::Share { has, .. } => Some(format!("{has} ranks, or fewer").into()),
            Self::NotStarted { error, .. } => match error.step {
                SpawnStep::ChangeDir => Some("a directory that the host has".into()),
                SpawnStep::Exec => Some("a program that the host has".into()),
                SpawnStep::Pipes
                | SpawnStep::Clone
                | SpawnStep::MountProc
                | SpawnStep::Session
                | SpawnStep::Streams
                | SpawnStep::Limits
                | SpawnStep::LogDirectory
                | SpawnStep::Gpus
                | SpawnStep::Devices => None,
            },
            Self::NoHost { .. } => Some("the name of a host that had ranks when the job started".into()),
            Self::Malformed | Self::Ending | Self::NoProgram | Self::Ranks { .. } => None,
            Self::GroupName { .. } | Self::GroupTaken { .. } | Self::NoGroup { .. } | Self::Tied { .. } => None,
            Self::Variable { .. }
            | Self::HostLost { .. }
            | Self::NoAsker
            | Self::NoPort { .. }
            | Self::Ended
            | Self::NoWorld { .. } => None,
        }
    }
}

impl OrderRefusal {
    /// The words of the answer.
    pub(super) fn reply(&self) -> Vec<u8> {
        let (text, hint) = (self.to_string(), self.hint().unwrap_or_default());
        Refused { code: Code::Other, within: None, text: text.as_bytes(), hint: hint.as_bytes() }.write()
    }
}

/// The words of an answer with this value; `None`: the order was carried out, and has no value.
pub(super) fn done(value: Option<Vec<u8>>) -> Vec<u8> {
    write_reply(&value.map_or(Answer::Done, |value| Answer::Value(Some(value.into()))))
}

fn reason(error: &SpawnError) -> String {
    let SpawnError { step, errno, path, .. } = error;
    let why = match *errno {
        ENOENT => "no such file or directory".into(),
        EACCES => "permission denied".into(),
        errno => format!("error {errno}"),
    };
    let what = if *step == SpawnStep::ChangeDir { "working directory " } else { "" };
    if path.is_empty() { why } else { format!("{what}{path}: {why}") }
}
