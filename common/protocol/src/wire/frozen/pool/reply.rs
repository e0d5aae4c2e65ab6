//! The messages of a pool.

use super::super::fields::Malformed;
use super::{MAX_REPLY, open, to_frame};
use alloc::vec::Vec;
use rlaunch_base::capped::unreserved;
use rlaunch_base::id::JobId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use serde::{Deserialize, Serialize};

/// A job that has hosts of the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// The job.
    pub job: JobId,
    /// The process of its launcher.
    pub pid: u32,
    /// The user's command.
    pub command: OsBytes,
    /// How long it has had its hosts.
    pub age: Span,
    /// The number of its hosts.
    pub hosts: u32,
    /// The pool has asked the job to end.
    pub is_ending: bool,
}

/// A host that a job gets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantedHost {
    /// Its line of a hostfile.
    pub line: OsBytes,
    /// The facts that its agent reported; empty: not known.
    pub facts: OsBytes,
    /// The control socket of its open connection; empty: it has none, and a job logs in by itself.
    pub control: OsBytes,
}

/// The hosts of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Granted {
    /// The job.
    pub job: JobId,
    /// Its hosts, in slot order.
    #[serde(deserialize_with = "unreserved")]
    pub hosts: Vec<GrantedHost>,
    /// Hosts that were left out: lost, warned or being drained.
    #[serde(deserialize_with = "unreserved")]
    pub left_out: Vec<OsBytes>,
}

/// Why a pool does not do what was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Fewer hosts than that can be used.
    TooFew {
        /// Hosts, or slices, that can be used.
        usable: u32,
        /// All its hosts.
        hosts: u32,
    },
    /// No valid number is asked for.
    BadNumber,
    /// Its hosts form no slices.
    NoSlices,
    /// The pool is about to end.
    Ending,
    /// As many jobs wait as may.
    QueueFull,
    /// No host of the pool has this name.
    NoHost(OsBytes),
    /// A job has this host.
    HasJob(OsBytes),
    /// The host is in the pool already.
    HasHost(OsBytes),
    /// The lines of a hostfile cannot be understood.
    Lines(OsBytes),
    /// The client has other rights than the pool: how they differ.
    Rights(OsBytes),
    /// The pool speaks none of these versions.
    Version(u32),
    /// Fewer slices than that are there, or can be used.
    TooFewSlices {
        /// The smallest number that is asked for.
        wanted: u32,
        /// Slices that can be used.
        usable: u32,
        /// All its slices.
        slices: u32,
    },
    /// Neither a host nor a slice of the pool has this name.
    NoMember {
        /// The name.
        name: OsBytes,
        /// The names of its hosts, as one text.
        hosts: OsBytes,
        /// The names of its slices, as one text; empty: it has none.
        slices: OsBytes,
    },
    /// A reason of a later version.
    #[serde(other)]
    Other,
}

/// The state of a host, as a report has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HostWord {
    /// The pool dials the host.
    Reaching,
    /// A job can have it.
    Free,
    /// A job has it.
    Held,
    /// The job has ended, and processes of it may be left.
    Emptying,
    /// The host leaves the pool: no new job can have it.
    Draining,
    /// Its connection has ended, or cannot be made.
    Lost,
    /// The host has a warning: its cloud is about to take it away.
    Warned,
    /// A slice: hosts of it have left the pool.
    Incomplete,
    /// A state of a later version.
    #[serde(other)]
    Other,
}

impl HostWord {
    /// The word for people and programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reaching => "reaching",
            Self::Free => "free",
            Self::Held => "held",
            Self::Emptying => "emptying",
            Self::Draining => "draining",
            Self::Lost => "lost",
            Self::Warned => "warned",
            Self::Incomplete => "incomplete",
            Self::Other => "unknown",
        }
    }
}

/// A host in a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostReport {
    /// Its name.
    pub name: OsBytes,
    /// Its slice; empty: none.
    pub slice: OsBytes,
    /// Its state.
    pub state: HostWord,
    /// Its job, while it has one or is not empty.
    pub job: Option<JobId>,
    /// Why it is lost, or the login that jobs make there.
    pub note: OsBytes,
}

/// The state of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its process.
    pub pid: u32,
    /// How long it has been up.
    pub age: Span,
    /// Its hosts, in slot order.
    #[serde(deserialize_with = "unreserved")]
    pub hosts: Vec<HostReport>,
    /// The jobs that have hosts.
    #[serde(deserialize_with = "unreserved")]
    pub jobs: Vec<Holder>,
    /// The number of jobs that wait.
    pub waiting: u32,
}

/// A slice of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SliceReport {
    /// Its slot: its place in the order of the hostfile.
    pub slot: u32,
    /// Its name.
    pub name: OsBytes,
    /// The state that keeps it from jobs the longest, of those of its hosts.
    pub state: HostWord,
}

/// The slices of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slices {
    /// The numbers of slices for jobs that name none; empty: such jobs get hosts.
    #[serde(deserialize_with = "unreserved")]
    pub sizes: Vec<u32>,
    /// The slices, in slot order.
    #[serde(deserialize_with = "unreserved")]
    pub slices: Vec<SliceReport>,
}

/// A message of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PoolReply {
    /// The first message.
    Hello {
        /// The lowest version that is spoken.
        min: u32,
        /// The highest one.
        max: u32,
    },
    /// The job waits for its hosts.
    Queued {
        /// The number of jobs before it.
        before: u32,
        /// The jobs that have hosts.
        #[serde(deserialize_with = "unreserved")]
        holders: Vec<Holder>,
    },
    /// The hosts of the job.
    Granted(Granted),
    /// Other jobs have the hosts.
    Busy {
        /// The jobs that have hosts.
        #[serde(deserialize_with = "unreserved")]
        holders: Vec<Holder>,
        /// The number of jobs that wait.
        waiting: u32,
    },
    /// Not done.
    Refused(Refusal),
    /// The state of the pool.
    Report(Report),
    /// Done.
    Done,
    /// The pool does not know this kind of message.
    Unsupported,
    /// Its slices.
    Slices(Slices),
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

impl PoolReply {
    /// Its frame.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        to_frame(self)
    }

    /// The message of a whole frame.
    ///
    /// # Errors
    /// The frame is cut, too long, or no reply.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        match open(frame, MAX_REPLY)? {
            (reply, []) => Ok(reply),
            // A later kind or reason has fields that are not known here.
            (reply @ (Self::Unknown | Self::Refused(Refusal::Other)), _) => Ok(reply),
            _ => Err(Malformed),
        }
    }
}
