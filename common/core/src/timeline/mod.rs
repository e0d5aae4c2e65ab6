//! Picture of a job over time, made from its event log: which rank ran where and when, and what happened to the job.
//!
//! The builder takes one record after the other. It needs memory for the picture, not for the log: a long log gets a
//! coarser picture ([`coarse`]). Words and colours are the view's.

mod builder;
mod coarse;
mod entry;

pub use builder::Builder;
pub use coarse::Room;
pub use entry::{Entry, FaultEntry, Head, LostWord, Program};

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Time in nanoseconds since the job's start.
pub type Time = u64;

/// Row of a rank on a host: node, then rank.
pub type RowKey = (u32, u32);

/// The picture.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Timeline {
    /// Name of the job.
    pub job: String,
    /// Number of ranks at the start.
    pub world_size: u32,
    /// Hosts, by node.
    pub hosts: Vec<String>,
    /// Programs.
    pub programs: Vec<Program>,
    /// Ranks on their hosts.
    pub rows: BTreeMap<RowKey, Row>,
    /// Phases of the whole job, by their begin.
    pub phases: Vec<Stretch<Phase>>,
    /// Facts about hosts, by time.
    pub host_marks: Vec<HostMark>,
    /// End of the job; `None`: the log has none.
    pub end: Option<End>,
    /// Time of the last record.
    pub last: Time,
    /// Records that are missing in the log.
    pub missing: u64,
    /// Rows beyond the limit, which are not shown.
    pub hidden_rows: u64,
    /// Things closer together than this are shown as one.
    pub quantum: Time,
}

/// Row of a rank on a host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Row {
    /// Processes, by their begin.
    pub bars: Vec<Stretch<Bar>>,
    /// Faults, by time.
    pub marks: Vec<Mark>,
}

/// Stretch of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stretch<T> {
    /// Its begin.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// Number of stretches that are shown as this one.
    pub count: u32,
    /// Its meaning.
    pub what: T,
}

/// Part of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bar {
    /// Process id.
    pub pid: u32,
    /// The rank waited as a spare.
    pub is_spare: bool,
    /// How the stretch has ended.
    pub finish: Finish,
}

/// How a stretch of a process has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The process continued in another part of the job.
    Continued,
    /// Exit code 0.
    Success,
    /// The rank failed.
    Failed(How),
    /// The agent had ended it.
    Stopped(How),
    /// Its host was lost.
    HostLost,
    /// The log does not show it.
    Unknown,
}

/// How a process has ended.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct How {
    /// Exit code.
    pub code: Option<i64>,
    /// Signal that has killed it.
    pub signal: Option<String>,
}

/// Fault of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Its time.
    pub at: Time,
    /// Number of faults that are shown as this one.
    pub count: u32,
    /// The fault.
    pub what: Fault,
}

/// Event that ended a rank or its round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Its process exited with a failure.
    Failed(How),
    /// Its process was not started.
    NotStarted {
        /// The step that failed.
        step: String,
    },
    /// The fault ended a round and the process continued.
    InRound {
        /// Kind of the fault in the log.
        kind: String,
        /// Words of the rank.
        text: String,
    },
}

/// Fact about a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostMark {
    /// Its time.
    pub at: Time,
    /// Host.
    pub node: u32,
    /// The fact.
    pub what: HostFact,
}

/// Event of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostFact {
    /// The host was lost; the word of the log.
    Lost(String),
    /// The host cannot be used; the word of the log.
    Refused(String),
    /// The host cannot be reached; why.
    Failed(String),
    /// The host is about to be taken away; the source of the warning.
    Warned(String),
}

/// Phase of the whole job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Until all ranks run.
    Launch,
    /// All ranks are started again.
    Generation {
        /// How often they have been.
        number: u32,
        /// The rank that had failed; `None`: more slices are up.
        rank: Option<u32>,
        /// Its host.
        node: Option<u32>,
        /// How it ended.
        how: How,
        /// Its host was lost.
        is_host_lost: bool,
        /// Ranks that are left, where hosts were lost.
        left: Option<u32>,
    },
    /// The function is begun again within the processes.
    Round {
        /// Generation of the processes.
        generation: u32,
        /// Number of the round.
        number: u32,
        /// The first fault.
        fault: Option<FaultEntry>,
        /// Number of further faults.
        more: u32,
        /// Healthy ranks.
        world_size: u32,
        /// Active ranks.
        active: u32,
    },
    /// From the begin of the job's ending.
    Ending {
        /// Why.
        cause: FaultEntry,
    },
}

/// End of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Its time.
    pub at: Time,
    /// Why.
    pub cause: FaultEntry,
    /// Exit code of rlaunch.
    pub exit: u8,
}
