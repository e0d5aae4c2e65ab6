//! Events of the node machine: the contract with the agent's driver and with the simulator.

use super::host_signals::SignalledPart;
use super::sandbox::Sandbox;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use rlaunch_base::cpu_set::CpuSet;
use rlaunch_base::id::{AppIndex, LocalRank, ProcId, Rank, SessionId, Std, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_base::warnings::WarningSource;
use rlaunch_protocol::logs::Way;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::frozen::client::client_round::ClientMessage;
use rlaunch_protocol::wire::limit::Met;
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_protocol::wire::order::RankOrder;
use rlaunch_protocol::wire::to_node::{Delta, ToNode};
use rlaunch_protocol::wire::to_root::{Facts, Leftover, NodeRefusal, SpawnError, Usage};

/// An event of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeEvent {
    /// A message of the launcher, decoded, in order.
    FromRoot(ToNode),
    /// A heartbeat of the launcher.
    Beat(Beat),
    /// The edge to the launcher has ended, and the job with it.
    EdgeLost,
    /// The guardian is gone: the job ends, and the agent must end the containment alone.
    GuardianLost,
    /// Answer to [`NodeAction::SetUpSandbox`]: what holds here.
    SandboxReady(Sandbox),
    /// Answer to [`NodeAction::SetUpSandbox`]: what was asked for cannot be had.
    Refused(NodeRefusal),
    /// Answer to [`NodeAction::Renew`]: it is done. Where it cannot be, `Refused`.
    Renewed {
        /// The port that was chosen; 0: none.
        port: u16,
    },
    /// Answer to [`NodeAction::Check`].
    Checked {
        /// Which program.
        app: AppIndex,
        /// Why it could not be started here, if it could not.
        error: Option<SpawnError>,
    },
    /// Answer to [`ProbeAction::Call`].
    Probed {
        /// The place's number.
        number: u32,
        /// The address of this host by which rank 0's agent was reached, or the errno of the failure.
        found: Result<IpAddr, i32>,
    },
    /// The host, with its ranks, is about to be taken away.
    Warned(WarningSource),
    /// A rank runs.
    Spawned {
        /// Which.
        proc: ProcId,
        /// Its process id on the host.
        pid: u32,
        /// When it was started.
        at: Mono,
    },
    /// A rank could not be started. It has no streams.
    SpawnFailed {
        /// Which.
        proc: ProcId,
        /// Why.
        error: SpawnError,
    },
    /// Answer to [`DeviceAction::Free`].
    DevicesFreed(DevicesFreed),
    /// Holders of devices are being ended: they have the grace for that.
    DevicesEnding,
    /// Answer to [`DeviceAction::Examine`], after a `News` for each holder.
    DevicesExamined,
    /// Answer to [`DeviceAction::AwaitRelease`]: no process that the exited process has left holds a device.
    DevicesReleased {
        /// The exited process.
        proc: ProcId,
        /// A device that a process outside the job has taken and must not be ended for; empty: there is none.
        taken: OsBytes,
    },
    /// A rank was not started any more, because of a [`NodeAction::Withhold`] or because another could not be started.
    Withheld {
        /// Which.
        proc: ProcId,
    },
    /// A rank has ended; it is not reaped, so that its group can still be signalled.
    Exited {
        /// Which.
        proc: ProcId,
        /// How; never `Lost`.
        status: Status,
        /// When this was seen.
        at: Mono,
        /// When it was last known to run.
        alive_at: Mono,
        /// The resources that it used.
        usage: Usage,
    },
    /// A rank's stdout or stderr has ended and everything of it was sent.
    StreamEnd {
        /// The process.
        proc: ProcId,
        /// Which.
        which: Std,
        /// Bytes in all.
        total: u64,
    },
    /// The store cannot be held where the ranks will look for it.
    Unserved {
        /// errno of what was tried.
        errno: i32,
        /// Address and port.
        at: OsBytes,
    },
    /// A process of the job has connected to the store.
    StoreUsed,
    /// The ranks of this host and their descendants have used so much processor time.
    RanksMeasured {
        /// The sum.
        cpu: Span,
    },
    /// Connections to the store were closed because no process of the job has made them.
    StoreRefused {
        /// The address from which the last of them came.
        from: OsBytes,
        /// How many.
        count: u32,
        /// The address of one of them, if no host of the job has it.
        foreign: Option<OsBytes>,
    },
    /// Clients of the store have met one of its limits, and their connections were closed.
    StoreLimit {
        /// The last of them.
        met: Met,
        /// How many.
        count: u32,
    },
    /// A fact that the launcher's log gets unchanged.
    News(NodeNews),
    /// A rank's stdout or stderr has ended, and not all of it is in its log file. Before its `StreamEnd`.
    FileLost {
        /// The process.
        proc: ProcId,
        /// Which.
        which: Std,
        /// Bytes that are missing.
        bytes: u64,
    },
    /// Standard input cannot be passed on: the rank that reads it sees its end.
    InputFailed {
        /// errno of what was tried.
        errno: i32,
    },
    /// Answer to [`NodeAction::Examine`].
    Examined {
        /// Which.
        proc: ProcId,
        /// The facts that were found.
        facts: Facts,
    },
    /// Init is gone, and with it everything in its PID namespace. Comes before the `Exited` of the ranks it took.
    InitLost,
    /// Answer to [`NodeAction::Sweep`]: what exists after it.
    Left {
        /// Processes that still exist.
        count: u32,
        /// The first of them.
        named: Vec<Leftover>,
    },
    /// A process wants to take part in rounds: its connection is a session from now on.
    SessionBegun {
        /// Its number.
        session: SessionId,
        /// As which rank; `None`: it does not say.
        rank: Option<Rank>,
        /// Its terms: names and values.
        terms: Vec<(OsBytes, OsBytes)>,
    },
    /// A session has sent a message.
    SessionMessage {
        /// The session.
        session: SessionId,
        /// The message; never a registration.
        said: ClientMessage,
    },
    /// A session has ended: its process has closed it, sends malformed messages, or does not read.
    SessionLost {
        /// The session.
        session: SessionId,
    },
    /// A rank has ordered something of the job.
    Ordered(Box<RankOrder>),
    /// Answer to [`TcpStoreAction::ReserveWorldPort`].
    WorldReserved {
        /// Which world.
        world: WorldId,
        /// Its port; 0: none can be had.
        port: u16,
    },
    /// Answer to [`TcpStoreAction::ReservePort`].
    PortReserved {
        /// Which; 0: none can be had.
        port: u16,
    },
    /// A process of ours was sent a signal. In a scheduler's step that is a warning to the job. Otherwise the agent ends at once and
    /// without a word, so that the launcher learns of its loss and does not take the ranks that it kills for failures of their own.
    Signal {
        /// Which signal.
        sig: Signal,
        /// Which process.
        to: SignalledPart,
    },
}

/// The state of the devices before ranks are started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DevicesFreed {
    /// The devices are free, or there are none.
    Free {
        /// A lock file is in the way: libtpu must not try to take it.
        skips_lock: bool,
    },
    /// The look has found holders that have to be ended, and can be.
    Found,
    /// A device is held, or its holders cannot be found.
    Refused(NodeRefusal),
}

/// How closely an ended rank is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// Everything that [`Facts`] has room for.
    Full,
    /// Its error file only: we ended it ourselves, but it may have written why it was about to end.
    ErrorFile,
}

/// Everything needed to start one rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecSpec {
    /// Its program, shared by all its ranks.
    pub base: Arc<AppBase>,
    /// Variables of the contracts that all its ranks on this host share; they follow `base.env`.
    pub shared: Arc<OsStrings>,
    /// The variables of this rank alone; they follow the others.
    pub vars: OsStrings,
    /// Its numbers, and whether it reads rlaunch's standard input.
    pub delta: Delta,
    /// The format of what stands before each line of its output; `None`: raw.
    pub label: Option<OsBytes>,
    /// Its TORCHELASTIC_ERROR_FILE: absent at its start, read by `Examine`, removed by `Reap` if it is not kept.
    pub error_file: ErrorFile,
    /// The destinations of its stdout and stderr.
    pub ways: [Way; 2],
    /// Index of this host in the job.
    pub node: u32,
    /// Number of ranks on this host that read rlaunch's standard input, if this is one of them; else 0.
    pub readers: u32,
    /// The CPUs that it may use; `None`: those of the agent.
    pub cpus: Option<CpuSet>,
    /// The NUMA node whose memory it prefers, by the kernel's number; `None`: it keeps the policy of this process.
    pub memory: Option<u32>,
    /// Whether it leads a session of its own. If not, it is in that of the agent: see [`Program::exec`](super::exec::Program::exec).
    pub has_session: bool,
    /// Whether it replaces a process of its rank that has exited. If it cannot be started, the others continue.
    pub is_respawn: bool,
}

/// The path of a rank's error file. All ranks share the common part of their paths, which is kept as long as they live.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorFile {
    stem: Arc<OsBytes>,
    name: Name,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name {
    /// The file of a process, in a directory of many.
    Own(ProcId),
    /// In the directory of a rank's log files.
    Kept(LocalRank),
}

impl ErrorFile {
    /// For a process whose path begins with `stem`.
    #[must_use]
    pub(super) const fn new(stem: Arc<OsBytes>, proc: ProcId) -> Self {
        Self { stem, name: Name::Own(proc) }
    }

    /// In a directory whose path is `stem` and this number: it stays there.
    #[must_use]
    pub(super) const fn kept(stem: Arc<OsBytes>, rank: LocalRank) -> Self {
        Self { stem, name: Name::Kept(rank) }
    }

    /// The path; empty: this host has no directory for it.
    #[must_use]
    pub fn path(&self) -> OsBytes {
        match self.name {
            Name::Own(_) if self.stem.is_empty() => OsBytes::default(),
            Name::Own(proc) => self.after_stem(&format!("{proc}.error.json")),
            Name::Kept(rank) => self.after_stem(&format!("{rank}/error.json")),
        }
    }

    /// The directory of the rank's log files, where it has one: there the file is kept.
    #[must_use]
    pub fn directory(&self) -> Option<OsBytes> {
        match self.name {
            Name::Own(_) => None,
            Name::Kept(rank) => Some(self.after_stem(&format!("{rank}"))),
        }
    }

    fn after_stem(&self, name: &str) -> OsBytes {
        OsBytes::new([self.stem.as_slice(), name.as_bytes()].concat())
    }
}
