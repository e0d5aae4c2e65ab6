//! Facts about a job that only its readers need: no part of the report is computed from them. Each has its line of the log here.

use super::json_line::{cause, lost, status};
use super::{Cause, Lost};
use crate::allocation::Scheduler;
use crate::bootstrap::{FallBack, Refusal};
use crate::discover::{DiscoverFault, Ignored};
use crate::id::{NodeId, Rank};
use crate::job::slices::Obstacle;
use crate::json::{Object, push_bytes, push_number};
use crate::os_bytes::OsBytes;
use crate::signal::Signal;
use crate::status::Status;
use crate::time::Span;
use crate::tpu::SliceError;
use crate::travel::Lowered;
use crate::warnings::{Response, WarningSource};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

/// A fact about a job that was found or decided by the launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobNews {
    /// The port in the ranks' environment could not be reserved against other rlaunch jobs.
    PortUnreserved {
        /// The port.
        port: u16,
    },
    /// Ranks get less of something than they were to get.
    LimitLowered {
        /// The limit, and its value.
        lowered: Lowered,
        /// The hosts with this value.
        nodes: Vec<NodeId>,
    },
    /// Hosts of the job are the same machine.
    OneMachine {
        /// The hosts.
        nodes: Vec<NodeId>,
        /// Number of other machines that are several hosts as well.
        more: u32,
    },
    /// Ranks meet at another address than the likely one.
    AddrDetour {
        /// The address.
        addr: OsBytes,
        /// The address that it replaces.
        instead_of: OsBytes,
        /// The host that has both.
        node: NodeId,
        /// Hosts that do not reach the likely address.
        missed_by: Vec<NodeId>,
    },
    /// MASTER_ADDR is no address of rank 0's host, so its agent cannot hold the store there.
    StoreLeft {
        /// The address.
        addr: OsBytes,
    },
    /// The scheduler has sent a signal to the processes of its step. It is recorded once, whatever the number of hosts.
    SchedulerSignal {
        /// The scheduler.
        scheduler: Scheduler,
        /// The signal.
        sig: Signal,
        /// The host that has heard of it first.
        node: NodeId,
    },
    /// A host is about to be taken away. Reported once for each host.
    HostWarned {
        /// The host.
        node: NodeId,
        /// The source of the warning.
        source: WarningSource,
        /// The consequence.
        response: Response,
    },
    /// Hosts are reached by an srun for each of them, and not over TCP.
    FellBack {
        /// The hosts.
        nodes: Vec<NodeId>,
        /// Why.
        why: FallBack,
    },
    /// The scheduler's launcher has started no agent for a while, and has printed something. Recorded once for each step.
    StepWaits {
        /// Its words.
        words: OsBytes,
    },
    /// A connection to the port for agents was refused. Only the first few are recorded.
    StrangerRefused {
        /// Address of the sender.
        address: OsBytes,
        /// Why.
        why: Refusal,
    },
    /// A rank failed and, by `--on-failure continue`, the others continue. Recorded once.
    Continuing {
        /// The rank.
        rank: Rank,
        /// How it ended.
        status: Status,
    },
    /// A host was lost that has no rank of the program that leads the job: that program decides what follows.
    LeadContinues {
        /// The host.
        node: NodeId,
        /// The part that was lost.
        lost: Lost,
    },
    /// A rank was killed by a signal that rlaunch passed on. The others have the grace before the job ends.
    EndingDeferred {
        /// The rank.
        rank: Rank,
        /// How it ended.
        status: Status,
        /// Until the job ends.
        end_in: Span,
    },
    /// The ending takes a while. Not recorded after a signal, which had its countdown.
    EndingAwaits {
        /// Why the job ends, as far as it is known.
        cause: Cause,
        /// Until SIGKILL.
        kill_in: Span,
    },
    /// Ranks are not started again: the same rank has failed again and again in the same way at once.
    NoProgress {
        /// The rank.
        rank: Rank,
        /// Number of times in a row.
        alike: u32,
    },
    /// Ranks are not started again: processes of the generation before remain and cannot be ended.
    NotClear,
    /// Ranks are not started again after a preemption.
    NotStartedAgain {
        /// Why.
        why: NoRestart,
    },
    /// A host cannot be ordered to end, or does not answer: it ends by itself, at this time at the latest.
    HostAwaited {
        /// The host.
        node: NodeId,
        /// Until its lease has surely ended its ranks.
        within: Span,
    },
    /// Hosts do not answer, and the job cannot end before they have ended their ranks.
    HostsSilent {
        /// The hosts.
        nodes: Vec<NodeId>,
        /// Until the leases of all of them have surely ended their ranks.
        within: Span,
    },
    /// No rank of an MPI program has connected to the others, and the job is over.
    MpiApart {
        /// Number of ranks.
        ranks: u32,
        /// The library that the program needs.
        library: OsBytes,
        /// Whether the agents served MPI libraries.
        is_served: bool,
    },
    /// Slices are waited for, because too few are up.
    SlicesAwaited {
        /// The number that is waited for.
        wanted: u32,
        /// The number that is up.
        up: u32,
        /// Until fewer are taken.
        within: Span,
    },
    /// A slice is not up, and the job ends for the lack of slices.
    SliceMissing {
        /// Its name.
        slice: OsBytes,
        /// A host of it that is not ready.
        node: NodeId,
        /// Why.
        why: Box<Obstacle>,
    },
    /// More slices are up than the job runs on.
    SlicesLarger {
        /// The larger valid size.
        size: u32,
        /// The size of the job.
        running: u32,
        /// Ranks are started again for it (`--grow now`).
        restarts: bool,
    },
    /// The command of `--discover` prints a slice that is new.
    SliceFound {
        /// Its name.
        slice: OsBytes,
        /// Its hosts.
        nodes: Vec<NodeId>,
        /// Their names.
        hosts: Vec<OsBytes>,
    },
    /// The command of `--discover` prints a slice that the job cannot use.
    SliceIgnored {
        /// Its name.
        slice: OsBytes,
        /// Why.
        why: Ignored,
    },
    /// The command of `--discover` prints a host again.
    HostBack {
        /// The host.
        node: NodeId,
    },
    /// The command of `--discover` has printed no list of hosts: the last one stays.
    DiscoverFailed {
        /// Why.
        why: DiscoverFault,
    },
    /// The pool of the job has ended, and its connections to the hosts with it.
    PoolLost {
        /// Its name.
        pool: OsBytes,
    },
    /// Bytes are missing in the log files of ranks.
    FilesLost {
        /// Number of bytes.
        bytes: u64,
    },
}

/// Why ranks are not started again after a host was warned or lost.
#[derive(Clone, PartialEq, Eq, Debug)]
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
        hosts: u32,
        /// Hosts before.
        of: u32,
        /// Ranks that remain.
        ranks: u32,
    },
    /// The ranks that remain are not enough.
    TooFew {
        /// Hosts that remain.
        hosts: u32,
        /// Hosts before.
        of: u32,
        /// Ranks that remain.
        ranks: u32,
    },
    /// The hosts that remain are no whole TPU slices, or cannot be used for another reason.
    Slices(SliceError),
}

impl NoRestart {
    /// The word in the log.
    const fn word(&self) -> &'static str {
        match self {
            Self::NoRetries => "no_retries",
            Self::UsedUp => "used_up",
            Self::OwnHost => "own_host",
            Self::NoLimit { .. } => "no_limit",
            Self::TooFew { .. } => "too_few",
            Self::Slices(_) => "slices",
        }
    }
}

impl JobNews {
    /// The name of its line.
    const fn name(&self) -> &'static str {
        match self {
            Self::PortUnreserved { .. } => "port.unreserved",
            Self::LimitLowered { .. } => "limit.lowered",
            Self::OneMachine { .. } => "hosts.one_machine",
            Self::AddrDetour { .. } => "master_addr.detour",
            Self::StoreLeft { .. } => "store.left_to_rank0",
            Self::SchedulerSignal { .. } => "scheduler.signal",
            Self::HostWarned { .. } => "host.warned",
            Self::FellBack { .. } => "transport.stdio",
            Self::StepWaits { .. } => "step.waits",
            Self::StrangerRefused { .. } => "agent.refused",
            Self::Continuing { .. } => "continuing",
            Self::LeadContinues { .. } => "lead.continues",
            Self::EndingDeferred { .. } => "ending.deferred",
            Self::EndingAwaits { .. } => "ending.awaits",
            Self::NoProgress { .. } => "restart.no_progress",
            Self::NotClear => "restart.not_clear",
            Self::NotStartedAgain { .. } => "restart.none",
            Self::HostAwaited { .. } => "host.awaited",
            Self::HostsSilent { .. } => "hosts.silent",
            Self::MpiApart { .. } => "mpi.apart",
            Self::SlicesAwaited { .. } => "slices.awaited",
            Self::SliceMissing { .. } => "slice.missing",
            Self::SlicesLarger { .. } => "slices.larger",
            Self::SliceFound { .. } => "slice.found",
            Self::SliceIgnored { .. } => "slice.ignored",
            Self::HostBack { .. } => "host.back",
            Self::DiscoverFailed { .. } => "discover.failed",
            Self::PoolLost { .. } => "pool.lost",
            Self::FilesLost { .. } => "files.lost",
        }
    }
}

/// The fields of its line.
pub(super) fn fields(o: &mut Object<'_>, news: &JobNews) {
    o.text("ev", news.name());
    match news {
        JobNews::PortUnreserved { port } => o.number("port", (*port).into()),
        JobNews::LimitLowered { lowered, nodes } => {
            o.text("limit", lowered.on.name());
            o.number("to", lowered.to);
            all(o, "nodes", nodes);
        }
        JobNews::OneMachine { nodes, more } => {
            all(o, "nodes", nodes);
            o.number("more", (*more).into());
        }
        JobNews::AddrDetour { addr, instead_of, node, missed_by } => {
            numbers(o, [("node", node.get())]);
            o.bytes("addr", addr);
            o.bytes("instead_of", instead_of);
            all(o, "missed_by", missed_by);
        }
        JobNews::StoreLeft { addr } => o.bytes("addr", addr),
        JobNews::SchedulerSignal { scheduler, sig, node } => {
            o.text("scheduler", &format!("{scheduler}"));
            o.text("signal", &format!("{sig}"));
            o.number("node", node.get().into());
        }
        JobNews::HostWarned { node, source, response } => warned(o, *node, *source, *response),
        JobNews::FellBack { nodes, why } => {
            all(o, "nodes", nodes);
            fell_back(o, why);
        }
        JobNews::StepWaits { words } => o.bytes("words", words),
        JobNews::StrangerRefused { address, why } => {
            o.bytes("address", address);
            o.text("why", why.word());
        }
        JobNews::Continuing { rank, status } => ended(o, *rank, *status),
        JobNews::LeadContinues { node, lost: part } => {
            o.number("node", node.get().into());
            self::lost(o, *part);
        }
        JobNews::EndingDeferred { rank, status, end_in } => {
            ended(o, *rank, *status);
            o.number("end_in", end_in.nanos());
        }
        JobNews::EndingAwaits { cause, kill_in } => {
            o.object("cause", |o| self::cause(o, cause));
            o.number("kill_in", kill_in.nanos());
        }
        JobNews::NoProgress { rank, alike } => numbers(o, [("rank", rank.get()), ("alike", *alike)]),
        JobNews::NotClear => {}
        JobNews::NotStartedAgain { why } => no_restart(o, why),
        JobNews::HostAwaited { .. } | JobNews::HostsSilent { .. } => silent(o, news),
        JobNews::SlicesAwaited { .. } | JobNews::SliceMissing { .. } | JobNews::SlicesLarger { .. } => slices(o, news),
        JobNews::MpiApart { ranks, library, is_served } => apart(o, *ranks, library, *is_served),
        JobNews::SliceFound { .. }
        | JobNews::SliceIgnored { .. }
        | JobNews::HostBack { .. }
        | JobNews::DiscoverFailed { .. } => discovered(o, news),
        JobNews::PoolLost { pool } => o.bytes("pool", pool),
        JobNews::FilesLost { bytes } => o.number("bytes", *bytes),
    }
}

/// The work of `--discover`.
fn discovered(o: &mut Object<'_>, news: &JobNews) {
    if let JobNews::SliceFound { slice, nodes, hosts } = news {
        o.bytes("slice", slice);
        all(o, "nodes", nodes);
        o.array("hosts", hosts, |text, host| push_bytes(text, host));
    }
    if let JobNews::SliceIgnored { slice, why } = news {
        o.bytes("slice", slice);
        o.text("why", why.word());
        match *why {
            Ignored::Hosts { has, of } | Ignored::Chips { has, of } => numbers(o, [("has", has), ("of", of)]),
            Ignored::NoSlot { most } => numbers(o, [("most", most)]),
            Ignored::Name => {}
        }
    }
    if let JobNews::HostBack { node } = news {
        numbers(o, [("node", node.get())]);
    }
    if let JobNews::DiscoverFailed { why } = news {
        o.text("why", why.word());
        match why {
            DiscoverFault::Unstarted(errno) => o.signed("errno", *errno),
            DiscoverFault::Failed(status) => self::status(o, *status),
            DiscoverFault::NoList(text) => o.bytes("text", text),
            DiscoverFault::Late | DiscoverFault::TooMuch => {}
        }
    }
}

fn numbers<const N: usize>(o: &mut Object<'_>, fields: [(&str, u32); N]) {
    fields.into_iter().for_each(|(name, value)| o.number(name, value.into()));
}

fn slices(o: &mut Object<'_>, news: &JobNews) {
    if let JobNews::SlicesAwaited { wanted, up, within } = news {
        numbers(o, [("wanted", *wanted), ("up", *up)]);
        o.number("within", within.nanos());
    }
    if let JobNews::SliceMissing { slice, node, why } = news {
        missing(o, slice, *node, why);
    }
    if let JobNews::SlicesLarger { size, running, restarts } = news {
        numbers(o, [("size", *size), ("running", *running)]);
        o.flag("restarts", *restarts);
    }
}

fn silent(o: &mut Object<'_>, news: &JobNews) {
    if let JobNews::HostAwaited { node, within } = news {
        o.number("node", node.get().into());
        o.number("within", within.nanos());
    }
    if let JobNews::HostsSilent { nodes, within } = news {
        all(o, "nodes", nodes);
        o.number("within", within.nanos());
    }
}

fn missing(o: &mut Object<'_>, slice: &OsBytes, node: NodeId, why: &Obstacle) {
    o.bytes("slice", slice);
    o.number("node", node.get().into());
    o.text("why", why.word());
}

fn warned(o: &mut Object<'_>, node: NodeId, source: WarningSource, response: Response) {
    o.number("node", node.get().into());
    o.text("source", source.word());
    match response {
        Response::Drains => o.text("response", "drain"),
        Response::Ends(grace) => {
            o.text("response", "end");
            o.number("grace", grace.nanos());
        }
        Response::Noted => o.text("response", "note"),
    }
}

fn no_restart(o: &mut Object<'_>, why: &NoRestart) {
    o.text("why", why.word());
    match why {
        NoRestart::NoLimit { ranks, .. } | NoRestart::TooFew { ranks, .. } => o.number("ranks", (*ranks).into()),
        NoRestart::Slices(error) => o.text("reason", &format!("{error}")),
        NoRestart::NoRetries | NoRestart::UsedUp | NoRestart::OwnHost => {}
    }
}

fn apart(o: &mut Object<'_>, ranks: u32, library: &OsBytes, is_served: bool) {
    o.number("ranks", ranks.into());
    o.bytes("library", library);
    o.flag("served", is_served);
}

fn fell_back(o: &mut Object<'_>, why: &FallBack) {
    match why {
        FallBack::Absent => o.text("why", "absent"),
        FallBack::Unconnected(reason) => {
            o.text("why", "unconnected");
            o.bytes("reason", reason);
        }
        FallBack::Silent { waited, words } => {
            o.text("why", "silent");
            o.number("waited", waited.nanos());
            if !words.is_empty() {
                o.bytes("words", words);
            }
        }
    }
}

fn ended(o: &mut Object<'_>, rank: Rank, status: Status) {
    o.number("rank", rank.get().into());
    self::status(o, status);
}

fn all(o: &mut Object<'_>, name: &str, nodes: &[NodeId]) {
    o.array(name, nodes, |text, node| push_number(text, node.get()));
}
