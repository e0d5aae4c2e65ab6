//! Records of the event log as a reader of the log gets them: lines of JSON with the fields that a timeline needs.
//!
//! Each field may be absent. Readers ignore unknown fields, so a log with more of them is read too.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use serde::Deserialize;

/// Beginning of every line, which decides whether the rest is read.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Head<'a> {
    /// Version of the schema.
    pub v: u32,
    /// Nanoseconds since the job's start.
    pub t: u64,
    /// Name of the record.
    #[serde(borrow)]
    pub ev: Cow<'a, str>,
}

/// Record that a timeline shows.
#[derive(Deserialize, Clone, Default, Debug)]
#[serde(default)]
pub struct Entry {
    /// Nanoseconds since the job's start.
    pub t: u64,
    /// Name of the record.
    pub ev: String,
    /// Version of rlaunch that wrote the log.
    pub version: String,
    /// Name of the job.
    pub job: String,
    /// Number of ranks of the job, or of a round.
    pub world_size: u32,
    /// Active ranks of a round.
    pub active_world_size: u32,
    /// Hosts of the job.
    pub hosts: Vec<String>,
    /// Programs of the job.
    pub apps: Vec<Program>,
    /// Some hosts of the job.
    pub nodes: Vec<u32>,
    /// Host of the record.
    pub node: Option<u32>,
    /// Initial rank of the record.
    pub rank: Option<u32>,
    /// Process id of the rank.
    pub pid: u32,
    /// Time on the rank's host, in nanoseconds since the job's start.
    pub at: Option<u64>,
    /// The agent had ended the rank.
    pub asked: bool,
    /// Exit code.
    pub code: Option<i64>,
    /// Signal that has killed the rank.
    pub signal: Option<String>,
    /// How a host or a rank was lost.
    pub lost: Option<LostWord>,
    /// Step of a failed start.
    pub step: String,
    /// Reason.
    pub why: String,
    /// Source of a warning.
    pub source: String,
    /// How often all ranks had been started again.
    pub generation: u32,
    /// Round of the record.
    pub round: Option<u32>,
    /// Faults that ended the round before.
    pub faults: Vec<FaultEntry>,
    /// Ranks that wait in this round.
    pub reserve: Vec<u32>,
    /// Ranks that the policy has discarded.
    pub discarded: Vec<u32>,
    /// From the first fault to the decision, in nanoseconds.
    pub decided: u64,
    /// From the decision until the last rank has left, in nanoseconds.
    pub drained: u64,
    /// From there to the round's begin, in nanoseconds.
    pub assigned: u64,
    /// Cause of the job's end.
    pub cause: Option<FaultEntry>,
    /// Exit code of rlaunch.
    pub exit: Option<u8>,
    /// Time of the last start, in nanoseconds since the job's start.
    pub launch: Option<u64>,
    /// Records that are missing in the log.
    pub records: u64,
}

impl Entry {
    /// Records that a timeline shows.
    const SHOWN: [&'static str; 15] = [
        "job.start",
        "host.refused",
        "host.failed",
        "host.lost",
        "host.warned",
        "hosts.left_out",
        "rank.started",
        "rank.failed",
        "rank.exited",
        "round",
        "clearing",
        "restart",
        "ending",
        "log.lost",
        "job.end",
    ];

    /// Whether a timeline shows records of this name.
    #[must_use]
    pub fn is_shown(ev: &str) -> bool {
        Self::SHOWN.contains(&ev)
    }
}

/// Program of a job.
#[derive(Deserialize, Clone, PartialEq, Eq, Default, Debug)]
#[serde(default)]
pub struct Program {
    /// Number of its ranks.
    pub procs: u32,
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// Fault of a rank, or cause of the job's end.
#[derive(Deserialize, Clone, PartialEq, Eq, Default, Debug)]
#[serde(default)]
pub struct FaultEntry {
    /// Kind of the fault or cause.
    pub kind: String,
    /// Rank at fault.
    pub rank: Option<u32>,
    /// Host at fault.
    pub node: Option<u32>,
    /// Exit code.
    pub code: Option<i64>,
    /// Signal.
    pub signal: Option<String>,
    /// How a host or a rank was lost.
    pub lost: Option<LostWord>,
    /// Words of the rank.
    pub text: String,
}

/// Value of `lost`: a word for hosts, and `true` for a rank.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(untagged)]
pub enum LostWord {
    /// The rank was lost.
    Rank(bool),
    /// How the host was lost.
    Host(String),
}
