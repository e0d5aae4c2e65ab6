//! Facts about a job that only its readers need: no part of the report is computed from them. The names in the event log are those of the
//! type.

use super::{Cause, Lost};
use crate::events::SliceNews;
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::json;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_base::warnings::{Response, WarningSource};
use rlaunch_plan::allocation::Scheduler;
use rlaunch_plan::bootstrap::CarrierNews;
use rlaunch_plan::tpu::SliceError;
use rlaunch_protocol::travel::Lowered;
use serde::Serialize;

/// A fact about a job that was found or decided by the launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum JobNews {
    /// The port in the ranks' environment could not be reserved against other rlaunch jobs.
    #[serde(rename = "port.unreserved")]
    PortUnreserved {
        /// The port.
        port: u16,
    },
    /// Ranks get less of something than they were to get.
    #[serde(rename = "limit.lowered")]
    LimitLowered {
        /// The limit, and its value.
        #[serde(rename = "")]
        lowered: Lowered,
        /// The hosts with this value.
        nodes: Vec<NodeId>,
    },
    /// Hosts of the job are the same machine.
    #[serde(rename = "hosts.one_machine")]
    OneMachine {
        /// The hosts.
        nodes: Vec<NodeId>,
        /// Number of other machines that are several hosts as well.
        more: u32,
    },
    /// Ranks meet at another address than the likely one.
    #[serde(rename = "master_addr.detour")]
    AddrDetour {
        /// The host that has both.
        node: NodeId,
        /// The address.
        addr: OsBytes,
        /// The address that it replaces.
        instead_of: OsBytes,
        /// Hosts that do not reach the likely address.
        missed_by: Vec<NodeId>,
    },
    /// MASTER_ADDR is no address of rank 0's host, so its agent cannot hold the store there.
    #[serde(rename = "store.left_to_rank0")]
    StoreLeft {
        /// The address.
        addr: OsBytes,
    },
    /// The scheduler has sent a signal to the processes of its step. It is recorded once, whatever the number of hosts.
    #[serde(rename = "scheduler.signal")]
    SchedulerSignal {
        /// The scheduler.
        #[serde(serialize_with = "json::text")]
        scheduler: Scheduler,
        /// The signal.
        #[serde(rename = "signal")]
        sig: Signal,
        /// The first host that got the signal.
        node: NodeId,
    },
    /// A host is about to be taken away. Reported once for each host.
    #[serde(rename = "host.warned")]
    HostWarned {
        /// The host.
        node: NodeId,
        /// The source of the warning.
        source: WarningSource,
        /// The consequence.
        response: Response,
    },
    /// A fact about the carriers of the agents.
    #[serde(rename = "")]
    Carrier(CarrierNews),
    /// A rank failed and, by `--on-failure continue`, the others continue. Recorded once.
    #[serde(rename = "continuing")]
    Continuing {
        /// The rank.
        rank: Rank,
        /// How it ended.
        #[serde(rename = "")]
        status: Status,
    },
    /// A host was lost that has no rank of the program that leads the job: that program decides what follows.
    #[serde(rename = "lead.continues")]
    LeadContinues {
        /// The host.
        node: NodeId,
        /// The part that was lost.
        lost: Lost,
    },
    /// A rank was killed by a signal that rlaunch passed on. The others have the grace before the job ends.
    #[serde(rename = "ending.deferred")]
    EndingDeferred {
        /// The rank.
        rank: Rank,
        /// How it ended.
        #[serde(rename = "")]
        status: Status,
        /// Until the job ends.
        end_in: Span,
    },
    /// The ending takes a while. Not recorded after a signal, which had its countdown.
    #[serde(rename = "ending.awaits")]
    EndingAwaits {
        /// Why the job ends, as far as it is known.
        #[serde(serialize_with = "json::object")]
        cause: Cause,
        /// Until SIGKILL.
        kill_in: Span,
    },
    /// Ranks are not started again: the same rank has failed again and again in the same way at once.
    #[serde(rename = "restart.no_progress")]
    NoProgress {
        /// The rank.
        rank: Rank,
        /// Number of times in a row.
        alike: u32,
    },
    /// Ranks are not started again: processes of the generation before remain and cannot be ended.
    #[serde(rename = "restart.not_clear")]
    NotClear,
    /// Ranks are not started again after a preemption.
    #[serde(rename = "restart.none")]
    NotStartedAgain {
        /// Why.
        why: NoRestart,
    },
    /// A host cannot be ordered to end, or does not answer: it ends by itself, at this time at the latest.
    #[serde(rename = "host.awaited")]
    HostAwaited {
        /// The host.
        node: NodeId,
        /// Until its lease has surely ended its ranks.
        within: Span,
    },
    /// Hosts do not answer, and the job cannot end before they have ended their ranks.
    #[serde(rename = "hosts.silent")]
    HostsSilent {
        /// The hosts.
        nodes: Vec<NodeId>,
        /// Until the leases of all of them have surely ended their ranks.
        within: Span,
    },
    /// No rank of an MPI program has connected to the others, and the job has ended.
    #[serde(rename = "mpi.apart")]
    MpiApart {
        /// Number of ranks.
        ranks: u32,
        /// The library that the program needs.
        library: OsBytes,
        /// Whether the agents served MPI libraries.
        #[serde(rename = "served")]
        is_served: bool,
    },
    /// A fact about the slices of the job, or about `--discover`.
    #[serde(rename = "")]
    Slices(SliceNews),
    /// The pool of the job has ended, and its connections to the hosts with it.
    #[serde(rename = "pool.lost")]
    PoolLost {
        /// Its name.
        pool: OsBytes,
    },
    /// Bytes are missing in the log files of ranks.
    #[serde(rename = "files.lost")]
    FilesLost {
        /// Number of bytes.
        bytes: u64,
    },
}

/// Why ranks are not started again after a host was warned or lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoRestart {
    /// `--preempt-retries` is 0.
    NoRetries,
    /// All retries after preemptions are used up.
    UsedUp,
    /// The host of the launcher is about to be taken away.
    OwnHost,
    /// The number of ranks that is enough is not given.
    NoLimit {
        /// Hosts that remain.
        #[serde(skip)]
        hosts: u32,
        /// Hosts before.
        #[serde(skip)]
        of: u32,
        /// Ranks that remain.
        ranks: u32,
    },
    /// The ranks that remain are not enough.
    TooFew {
        /// Hosts that remain.
        #[serde(skip)]
        hosts: u32,
        /// Hosts before.
        #[serde(skip)]
        of: u32,
        /// Ranks that remain.
        ranks: u32,
    },
    /// The hosts that remain are no whole TPU slices, or cannot be used for another reason.
    Slices {
        /// Why not.
        #[serde(serialize_with = "json::text")]
        reason: SliceError,
    },
}
