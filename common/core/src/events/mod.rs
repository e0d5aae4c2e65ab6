//! The event log's records: a frozen, versioned schema (`"v":1`), one JSON object per line. The report is a fold of it.
//!
//! Records are typed here, with the names that they have in the log ([`rlaunch_base::json`]); docs/reference/events.md describes these for
//! readers. Fields are added, never renamed.

#![allow(clippy::wildcard_enum_match_arm, reason = "a reader of facts names those that it cares about")]

mod cause;
mod detail;
mod line;
mod news;
mod restart_cause;
mod slice_news;

pub use cause::{Cause, CloseReason, Lost};
pub use detail::{Answer, Fewer, RanksState, SinkEnd, SlicesTaken, Tried};
pub use line::line;
pub use news::{JobNews, NoRestart};
pub use restart_cause::RestartCause;
pub use slice_news::{Obstacle, SliceNews};

use alloc::boxed::Box;
use alloc::vec::Vec;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::{JobId, LocalRank, NodeId, Rank, Round, Std, WorldId};
use rlaunch_base::json;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Span, WallNs};
use rlaunch_plan::bootstrap::HostFailure;
use rlaunch_protocol::master_store::Holder;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::settings::{Contain, OnFailure};
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_protocol::wire::to_root::{Facts, Hello, Leftover, NodeRefusal, SpawnError, Usage};
use rlaunch_restart::{RoundNote, RoundsEnd};
use serde::Serialize;

/// The version of the schema: `"v"` of every line.
pub const VERSION: u32 = 1;

/// An event, and the time at which the launcher learned of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Since the job's start, by the launcher's monotonic clock.
    pub t: Span,
    /// The same moment by the wall clock at the job's start: it never jumps within a log.
    pub wall: WallNs,
    /// How often all ranks had been started again by then.
    pub generation: u32,
    /// The round that ran then; `None`: there was none.
    pub round: Option<Round>,
    /// The event.
    pub what: What,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum What {
    /// The job is about to be launched.
    #[serde(rename = "job.start")]
    JobStart(Box<JobStart>),
    /// A host is ready for ranks.
    #[serde(rename = "host.ready")]
    HostReady {
        /// Which.
        node: NodeId,
        /// The hello of its agent.
        #[serde(rename = "", serialize_with = "line::hello")]
        hello: Hello,
    },
    /// A host cannot do what was asked for.
    #[serde(rename = "host.refused")]
    HostRefused {
        /// Which.
        node: NodeId,
        /// Why.
        why: NodeRefusal,
    },
    /// A host cannot be reached.
    #[serde(rename = "host.failed")]
    HostFailed {
        /// Which.
        node: NodeId,
        /// Why.
        #[serde(rename = "")]
        why: HostFailure,
    },
    /// Something of ours was lost on a host.
    #[serde(rename = "host.lost")]
    HostLost {
        /// Which.
        node: NodeId,
        /// The lost part.
        lost: Lost,
    },
    /// The job continues without hosts that cannot be had, and the ranks of the others are numbered anew.
    #[serde(rename = "hosts.left_out")]
    LeftOut {
        /// Which.
        nodes: Vec<NodeId>,
        /// All ranks now.
        world_size: u32,
        /// The processes of each program.
        procs: Vec<u32>,
        /// The event of the restart has named these hosts as lost.
        #[serde(skip)]
        is_known: bool,
    },
    /// Ranks start on these slices (`--slices`).
    #[serde(rename = "slices")]
    Slices(Box<SlicesTaken>),
    /// Hosts that were lost, one of them first, and it cannot be known which: the first cause names one of them. Or hosts whose agents ended
    /// with an srun that was killed.
    #[serde(rename = "hosts.together")]
    Together {
        /// Which.
        nodes: Vec<NodeId>,
    },
    /// A rank's stdout or stderr has ended, and not all of it is in its log file.
    #[serde(rename = "file.lost")]
    FileLost {
        /// The rank.
        rank: Rank,
        /// Which.
        #[serde(rename = "stream")]
        std: Std,
        /// Bytes that are missing.
        bytes: u64,
    },
    /// Nothing runs on a host any more.
    #[serde(rename = "host.done")]
    HostDone {
        /// Which.
        node: NodeId,
        /// Processes that still exist; `None`: not counted.
        left: Option<u32>,
        /// The first of them.
        named: Vec<Leftover>,
    },
    /// A rank has asked for another world: its ranks follow those before.
    #[serde(rename = "world.start")]
    WorldStart(Box<WorldLine>),
    /// A rank runs.
    #[serde(rename = "rank.started")]
    RankStarted {
        /// Which.
        rank: Rank,
        /// On which host.
        node: NodeId,
        /// Its rank there.
        local_rank: LocalRank,
        /// `None`: its world has no name.
        #[serde(rename = "")]
        group: Option<RankInGroup>,
        /// Its process id there.
        pid: u32,
        /// When it was started, since the job's start.
        at: Span,
    },
    /// A rank could not be started.
    #[serde(rename = "rank.failed")]
    RankFailed {
        /// Which.
        rank: Rank,
        /// Why.
        #[serde(rename = "")]
        error: SpawnError,
        /// On which host.
        node: NodeId,
        /// Which of its processes.
        #[serde(skip)]
        tried: Tried,
    },
    /// A rank ended.
    #[serde(rename = "rank.exited")]
    RankExited {
        /// Which.
        rank: Rank,
        /// How.
        #[serde(rename = "")]
        status: Status,
        /// When its agent saw it, since the job's start.
        at: Span,
        /// When it was last known to run.
        alive_at: Span,
        /// The agent had ordered its ranks to end before. Otherwise the rank ended by itself.
        asked: bool,
        /// The resources that it used.
        #[serde(rename = "")]
        usage: Usage,
    },
    /// Further facts about a rank that failed.
    #[serde(rename = "rank.facts")]
    RankFacts {
        /// Which.
        rank: Rank,
        /// The facts.
        #[serde(rename = "")]
        facts: Facts,
    },
    /// A signal reached rlaunch.
    #[serde(rename = "signal")]
    Signal {
        /// Which.
        #[serde(rename = "signal")]
        sig: Signal,
        /// The effect.
        answer: Answer,
    },
    /// The job's ending has begun.
    #[serde(rename = "ending")]
    Ending {
        /// Why. A failing rank named here may turn out not to have been the first: `job.end` has the last word.
        #[serde(serialize_with = "json::object")]
        cause: Cause,
        /// The signal sent to every rank, if one was.
        sent: Option<Signal>,
        /// Until SIGKILL follows.
        grace: Span,
        /// State of the ranks at that time.
        #[serde(skip)]
        ranks: RanksState,
    },
    /// All ranks are being ended: they may be started again.
    #[serde(rename = "clearing")]
    Clearing {
        /// Why, as far as is known.
        #[serde(rename = "")]
        why: RestartCause,
        /// Until SIGKILL follows the request to end.
        grace: Span,
    },
    /// Nothing runs any more, and all ranks are about to be started again.
    #[serde(rename = "restart")]
    Restart {
        /// How often they have been then.
        #[serde(rename = "generation")]
        restart: u32,
        /// Why.
        #[serde(rename = "")]
        why: RestartCause,
        /// How long the rank had run that failed first.
        lived: Span,
        /// How long is waited before.
        delay: Span,
        /// The ranks that are started, where hosts were lost.
        #[serde(skip)]
        fewer: Option<Box<Fewer>>,
    },
    /// Something about the in-process restart of a function.
    Round {
        /// The host of the rank that it is about first, where ranks run on several hosts.
        node: Option<NodeId>,
        /// The note.
        note: Box<RoundNote>,
    },
    /// That has come to its end.
    #[serde(rename = "rounds.over")]
    RoundsOver(Box<RoundsEnd>),
    /// Everything of a rank's stdout or stderr was received.
    #[serde(rename = "stream.end")]
    StreamEnd {
        /// The rank.
        rank: Rank,
        /// Which.
        #[serde(rename = "stream")]
        std: Std,
        /// Bytes in all.
        total: u64,
    },
    /// rlaunch's own stdout or stderr cannot be written any more.
    #[serde(rename = "sink.lost")]
    SinkLost {
        /// Which.
        #[serde(rename = "stream")]
        std: Std,
        /// errno of the write; `None`: the reader is gone (EPIPE).
        #[serde(serialize_with = "line::or_epipe")]
        errno: Option<i32>,
        /// Why.
        #[serde(skip)]
        end: SinkEnd,
    },
    /// All output was written, or given up.
    #[serde(rename = "output.end")]
    OutputEnd {
        /// Bytes received but not written.
        lost: u64,
        /// Lines broken because another rank waited.
        broken: u64,
    },
    /// Something else that a reader has to know.
    News(JobNews),
    /// A fact that an agent has reported.
    NodeNews {
        /// Its host.
        node: NodeId,
        /// The fact.
        news: NodeNews,
    },
    /// Records are missing here: the reader of the log took none, and the waiting records reached their limit. Made where the log is
    /// written, so no report is folded from it.
    #[serde(rename = "log.lost")]
    LogLost {
        /// How many.
        records: u64,
    },
    /// The last record.
    #[serde(rename = "job.end")]
    JobEnd {
        /// The first cause of the job's end.
        #[serde(serialize_with = "json::object")]
        cause: Cause,
        /// How rlaunch ends.
        #[serde(rename = "", serialize_with = "line::exit")]
        exit: Ending,
        /// Processes that still exist; `None`: not counted.
        left: Option<u32>,
        /// From the job's start to that of its last rank; `None`: not all of them were started.
        launch: Option<Span>,
        /// Ranks that were never started. `None`: the agent that would know is gone.
        never_started: Option<u32>,
    },
}

/// The place of a rank in its group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RankInGroup {
    /// The name of the group.
    pub group: OsBytes,
    /// Its rank there.
    #[serde(rename = "group_rank")]
    pub rank: Rank,
}

/// The description of a job, at its start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct JobStart {
    /// rlaunch's version.
    pub version: OsBytes,
    /// Its name.
    #[serde(serialize_with = "json::text")]
    pub job: JobId,
    /// The launcher's host.
    pub host: OsBytes,
    /// All ranks.
    pub world_size: u32,
    /// The guarantee asked for.
    pub contain: Contain,
    /// The effect of a failing rank on the others.
    pub on_failure: OnFailure,
    /// From the request to end until SIGKILL.
    pub grace: Span,
    /// The time limit.
    pub timeout: Option<Span>,
    /// How often all ranks may be started again.
    #[serde(rename = "max_restarts", serialize_with = "line::most")]
    pub restarts: Restarts,
    /// Number of hosts that are enough; `None`: all are needed.
    pub min_hosts: Option<u32>,
    /// The holder of the `TCPStore` at MASTER_PORT, and the reason.
    #[serde(rename = "store", serialize_with = "line::holder")]
    pub master_store: Holder,
    /// Its programs, in the order of their ranks.
    pub apps: Vec<AppLine>,
    /// Its hosts, by node id.
    pub hosts: Vec<OsBytes>,
}

/// A world that was started while the job runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WorldLine {
    /// Its number.
    pub world: WorldId,
    /// Its name.
    pub group: OsBytes,
    /// Its first rank, by the number in the job.
    pub first: Rank,
    /// The rank that has asked for it, if that is known.
    #[serde(rename = "rank")]
    pub asker: Option<Rank>,
    /// Its programs, in the order of their ranks.
    pub apps: Vec<AppLine>,
    /// Hosts have more ranks than slots now.
    #[serde(skip)]
    pub is_crowded: bool,
    /// Ranks of ended worlds of which the launcher keeps nothing from now on.
    #[serde(skip)]
    pub forgotten: RankSet,
}

/// A program of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AppLine {
    /// How many ranks run it.
    pub procs: u32,
    /// The group of its ranks; empty: none.
    #[serde(skip_serializing_if = "OsBytes::is_empty")]
    pub group: OsBytes,
    /// Program and arguments.
    pub argv: OsStrings,
    /// Their working directory; `None`: rlaunch's own.
    pub wdir: Option<OsBytes>,
    /// Bytes of arguments and environment, as the kernel counts them: what an E2BIG is about.
    pub bytes: u64,
    /// Bytes of the longest of these strings.
    pub longest: u64,
}
