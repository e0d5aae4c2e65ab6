//! From a node to the launcher.

use super::codec::WireMessage;
use super::node_news::NodeNews;
use super::order::RankOrder;
use super::peer_identity::{Address, Answer, HOST_ADDRESSES, Question};
use super::round::RoundUp;
use crate::guard::devices::DeviceHolder;
use crate::settings::Tier;
use crate::travel::Lowered;
use alloc::boxed::Box;
use core::fmt;
use rlaunch_base::capped::Capped;
use rlaunch_base::errno::{ENOENT, ENOTDIR};
use rlaunch_base::id::{AppIndex, ProcId, Std, WorldId};
use rlaunch_base::json;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{HostTime, Span};
use rlaunch_base::warnings::WarningSource;
use rlaunch_plan::bind::BindError;
use rlaunch_plan::tpu::{SliceError, TpuFacts};
use serde::{Deserialize, Serialize};

/// Most last words of a rank that travel, in bytes.
pub const TAIL: usize = 2 << 10;
/// Most ranks in one [`ToRoot::Started`].
pub const STARTED_BATCH: usize = 1024;
/// Most addresses in one [`Reached`].
pub const ADDRESSES: usize = 16;
/// Most holders of devices in one [`NodeRefusal::Devices`].
pub const HOLDERS: usize = 8;
/// Most leftovers named in one [`ToRoot::Done`].
pub const NAMED: usize = 16;

/// News of the ranks of a host that read rlaunch's standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InputNews {
    /// A rank waits for what the launcher has announced.
    Wanted,
    /// None of them reads it: all have closed it, or get none.
    Closed,
}

/// A message of a node to the launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToRoot {
    /// The agent is up and knows which guarantee it can give.
    Hello(Hello),
    /// The node cannot do what was asked for: nothing was started, or what was is being rolled back.
    Refused(NodeRefusal),
    /// The node could start its ranks: its programs are there, complete and executable. Not said by the only node.
    Ready,
    /// The answer to the order of the same name. Before `Ready`, unasked, where holders were found.
    Devices {
        /// Processes that hold devices have to be ended, and can be.
        held: bool,
    },
    /// The outcome of a try: whether a place of `ToNode::Probe` can be reached from here.
    Probed {
        /// Its number.
        number: u32,
        /// The address of this host by which the place was reached, or the errno of the failure.
        found: Result<Address, i32>,
    },
    /// Ranks run.
    Started {
        /// In the order of their start.
        procs: Capped<Started, STARTED_BATCH>,
    },
    /// A rank could not be started.
    SpawnFailed {
        /// Which.
        proc: ProcId,
        /// Why.
        error: SpawnError,
    },
    /// A rank ended.
    Exited(Exited),
    /// Further facts about a failed rank; after its `Exited`.
    Postmortem {
        /// Which.
        proc: ProcId,
        /// The facts.
        facts: Facts,
    },
    /// Standard input cannot be passed on to the rank that reads it, which sees its end.
    InputFailed {
        /// errno of what was tried.
        errno: i32,
    },
    /// The scheduler has sent a signal to the processes of its step.
    HostSignal {
        /// Which.
        sig: Signal,
        /// Ranks have got it too.
        to_ranks: bool,
    },
    /// The host is about to be taken away. Sent once.
    Warned(WarningSource),
    /// A fact about this host. It goes to the event log unchanged.
    News(NodeNews),
    /// A stream of a rank has ended, and not all of it is in its log file.
    FileLost {
        /// Whose.
        proc: ProcId,
        /// Which.
        which: Std,
        /// Bytes that are missing.
        bytes: u64,
    },
    /// Whose connections to the store here are. The launcher passes it on to the hosts that they come from.
    FindOwners(Question),
    /// A rank has ordered something of the job.
    Order(Box<RankOrder>),
    /// A rank was not started: its world is being ended.
    NotStarted {
        /// Which.
        proc: ProcId,
    },
    /// The port that is reserved for a world; 0: none can be had.
    WorldPort {
        /// Which world.
        world: WorldId,
        /// Its MASTER_PORT.
        port: u16,
    },
    /// The knowledge of this host about connections to another host's store.
    OwnersFound(Answer),
    /// About the ranks here that read rlaunch's standard input.
    Input(InputNews),
    /// About the in-process restart of a function.
    Round(RoundUp),
    /// Init, the first process of the PID namespace, is gone and took the ranks with it.
    InitLost,
    /// The guardian is gone; the agent ends the job.
    GuardianLost,
    /// SIGKILL is on its way to everything here: the answer to every `Kill`, also sent when a grace has expired. A node that does not send
    /// it is suspended.
    Killing,
    /// The answer to `Clear`: nothing of this generation of ranks runs here any more, nor is any of its output still to come.
    Cleared {
        /// Processes that still exist nevertheless, because the kernel does not end them.
        left: u32,
        /// The first of them.
        named: Capped<Leftover, NAMED>,
        /// The MASTER_PORT that this node has chosen for the next generation; 0: none.
        port: u16,
    },
    /// No rank is left to wait for: each has ended, was never started, or cannot be killed. After that only output is passed on, for as
    /// long as it takes. Not said where nothing is.
    Draining,
    /// Everything has ended and every stream is drained. The last message.
    Done {
        /// Processes that still exist: counted, never assumed.
        left: u32,
        /// The first of them.
        named: Capped<Leftover, NAMED>,
    },
}

impl WireMessage for ToRoot {}

/// The agent introduces itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The guarantee that holds here.
    pub tier: Tier,
    /// Why it is not the strongest; empty if it is, or is what was asked for.
    pub note: OsBytes,
    /// Nothing else was to be expected for this user: the note belongs to the log, not to the terminal.
    pub usual: bool,
    /// The port in the ranks' environment; 0 where another node chose it.
    pub master_port: u16,
    /// The port is reserved against other rlaunch jobs of this host.
    pub port_reserved: bool,
    /// The agent's process id.
    pub agent: u32,
    /// Init's process id on the host, in tier T1.
    pub init: Option<u32>,
    /// The addresses by which this host is reached, as it sees that itself; `None` for the launcher's own, where that is not needed.
    pub reached: Option<Reached>,
    /// Limits of which ranks here get less than they were to get.
    pub lowered: Capped<Lowered, 16>,
    /// An identity that no other machine has, nor a container of it with a name or a network of its own; empty where there is no other
    /// host, or it is not known.
    pub machine: OsBytes,
    /// Its addresses, from which connections of its ranks to another host's store may come; empty where they are not needed.
    pub addresses: Capped<Address, HOST_ADDRESSES>,
    /// The facts of a host with TPU chips.
    pub tpu: Option<Box<TpuFacts>>,
}

impl Hello {
    /// A host with this guarantee of which nothing else has to be known.
    #[must_use]
    pub fn of(tier: Tier) -> Self {
        Self {
            tier,
            note: OsBytes::default(),
            usual: false,
            master_port: 0,
            port_reserved: true,
            agent: 1,
            init: None,
            reached: None,
            lowered: Capped::default(),
            machine: OsBytes::default(),
            addresses: Capped::default(),
            tpu: None,
        }
    }
}

/// By which numeric addresses a host is reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reached {
    /// Whence its connection came (sshd's SSH_CONNECTION): the launcher's address, or that of the last host on the way. Empty
    /// on the launcher's own host.
    pub from: OsBytes,
    /// Its own, the best first; none where the interface that was asked for has none that could be used.
    pub at: Capped<OsBytes, ADDRESSES>,
    /// For each of these the port at which its agent waits for others that try it; 0: it does not.
    pub probe_ports: Capped<u16, ADDRESSES>,
    /// Then those that have one, separated by blanks.
    pub has: OsBytes,
}

/// Why a node refuses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename = "why", rename_all = "snake_case")]
pub enum NodeRefusal {
    /// `--contain t1|strict` and no PID namespace can be had.
    Contain {
        /// errno of the step that failed.
        errno: i32,
        /// The step.
        step: OsBytes,
    },
    /// The node cannot continue without something of its own (a thread, an epoll set …).
    Resource {
        /// errno of the step that failed.
        errno: i32,
        /// The step.
        step: OsBytes,
    },
    /// No port is free for MASTER_PORT.
    NoPort,
    /// Another job of rlaunch has the MASTER_PORT that the user gave.
    PortTaken {
        /// The port.
        port: u16,
        /// The name of that job; empty: unknown.
        job: OsBytes,
        /// The process id of its agent on this host; `None`: unknown.
        agent: Option<u32>,
    },
    /// The agent cannot listen there, where ranks will look for the store.
    NoStore {
        /// errno of what was tried.
        errno: i32,
        /// Address and port.
        at: OsBytes,
    },
    /// The MASTER_ADDR that the user gave is no address at which other hosts reach this one, where rank 0 was to run.
    MasterAddr {
        /// The address.
        addr: OsBytes,
        /// Every host takes it for itself.
        #[serde(rename = "loopback")]
        is_loopback: bool,
        /// Some addresses of this host, separated by blanks.
        has: OsBytes,
    },
    /// The interface at which rank 0 is to be found has no address on this host, or none that another host could use.
    NoInterface {
        /// Which.
        name: OsBytes,
        /// The existing ones, separated by blanks.
        has: OsBytes,
    },
    /// Rank 0's host cannot be reached from here.
    NoWay {
        /// Its name.
        to: OsBytes,
        /// `--interface`; empty: not given.
        interface: OsBytes,
        /// At which places it was tried.
        tried: Capped<Tried, ADDRESSES>,
    },
    /// No other host reaches this one, on which rank 0 was to run.
    Alone {
        /// The same.
        interface: OsBytes,
        /// The same; what the first of them has found.
        tried: Capped<Tried, ADDRESSES>,
    },
    /// A program could not be started here.
    Program {
        /// Which.
        app: AppIndex,
        /// Why.
        #[serde(rename = "")]
        error: SpawnError,
    },
    /// `--gpus-per-rank`: there are not enough, or the number is unknown.
    Gpus {
        /// How many each rank is to have.
        each: u32,
        /// How many all ranks of the host need.
        needed: u32,
        /// How many a program sees there.
        has: Option<u32>,
    },
    /// Ranks cannot be bound as asked for.
    #[serde(serialize_with = "json::error")]
    Bind(BindError),
    /// The TPU hosts are no whole slices, or chips cannot be shared among the ranks.
    #[serde(serialize_with = "json::error")]
    Slices(SliceError),
    /// Devices of the host are in use.
    Devices {
        /// The first holders; none: this user may not see them.
        holders: Capped<DeviceHolder, HOLDERS>,
        /// The number of the others.
        more: u32,
        /// A device that is held by a process which this user may not see; empty: there is none.
        hidden: OsBytes,
    },
    /// The search for holders of devices did not end in time.
    DevicesUnknown {
        /// How long it was waited for.
        #[serde(rename = "waited")]
        limit: Span,
    },
    /// Messages that make no sense in this order.
    Protocol,
}

/// A place that could not be reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tried {
    /// Address and port.
    pub at: OsBytes,
    /// errno of the attempt; 0: no answer came.
    pub errno: i32,
}

/// A rank that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Started {
    /// Which.
    pub proc: ProcId,
    /// Its process id on the host.
    pub pid: u32,
    /// When it was started.
    pub at: HostTime,
}

/// A rank that could not be started: the step that failed, its errno, and what it was about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpawnError {
    /// The step.
    pub step: SpawnStep,
    /// Linux errno.
    pub errno: i32,
    /// The path concerned: the program, or the working directory.
    pub path: OsBytes,
    /// The file at the program's path there: errno alone is less precise.
    #[serde(rename = "is")]
    pub found: Found,
}

/// The kind of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// The path does not exist, cannot be looked at, or was not looked at.
    #[default]
    #[serde(rename = "")]
    Nothing,
    /// A directory.
    Dir,
    /// A file without a byte in it.
    Empty,
    /// Anything else.
    File,
}

/// Steps between the decision to start a rank and its first instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpawnStep {
    /// Pipes for its output.
    Pipes,
    /// A new process.
    Clone,
    /// The private /proc of a PID namespace.
    MountProc,
    /// Its session.
    Session,
    /// Its standard streams.
    Streams,
    /// Its working directory.
    #[serde(rename = "chdir")]
    ChangeDir,
    /// The caller's limits.
    Limits,
    /// The program itself.
    Exec,
    /// The directory of its log files, looked at before.
    #[serde(rename = "log_dir")]
    LogDirectory,
    /// The GPUs that it is to have, which this host has not.
    Gpus,
    /// The devices of its host, which another process holds.
    Devices,
}

impl SpawnError {
    /// The exit code it gives the job.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self.step {
            SpawnStep::Exec if self.errno == ENOENT || self.errno == ENOTDIR => rlaunch_base::exit::NOT_FOUND,
            SpawnStep::Exec => rlaunch_base::exit::NOT_EXECUTABLE,
            SpawnStep::Pipes
            | SpawnStep::Clone
            | SpawnStep::MountProc
            | SpawnStep::Session
            | SpawnStep::Streams
            | SpawnStep::ChangeDir
            | SpawnStep::Limits
            | SpawnStep::LogDirectory
            | SpawnStep::Gpus
            | SpawnStep::Devices => rlaunch_base::exit::LAUNCH,
        }
    }
}

/// The end of a rank, as its agent saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exited {
    /// Which.
    pub proc: ProcId,
    /// How.
    pub status: Status,
    /// When the agent saw it.
    pub at: HostTime,
    /// When the agent last saw that it had not ended: the end lies between the two.
    pub alive_at: HostTime,
    /// Whether the agent had ordered its ranks to end before it saw this. Otherwise rlaunch did not cause it.
    pub asked: bool,
    /// The resources that it used.
    pub usage: Usage,
}

/// The resources that a process used (getrusage(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// User time in microseconds.
    pub user_us: u64,
    /// System time in microseconds.
    pub system_us: u64,
    /// Peak resident size in KiB.
    pub max_rss_kib: u64,
}

/// Further facts about a failed rank.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The last bytes of its stderr, at most [`TAIL`].
    pub tail: OsBytes,
    /// Path of its core file.
    #[serde(rename = "core_file")]
    pub core: Option<OsBytes>,
    /// The kernel killed it for lack of memory, under this limit in bytes (0: none, the host was full).
    pub oom_limit: Option<u64>,
    /// Contents of its TORCHELASTIC_ERROR_FILE, at most 64 KiB.
    pub error_file: Option<OsBytes>,
    /// Files were not looked at: their file system did not answer in time.
    pub late: bool,
    /// The state of its host just after its end.
    #[serde(rename = "")]
    pub host: Option<HostUse>,
}

/// Memory and load of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostUse {
    /// Bytes of memory that programs could still have.
    #[serde(rename = "memory_available")]
    pub available: u64,
    /// Bytes of memory.
    #[serde(rename = "memory_total")]
    pub total: u64,
    /// Bytes of free swap space.
    pub swap_free: u64,
    /// Bytes of swap space.
    pub swap_total: u64,
    /// The load average of one minute, times 100.
    #[serde(rename = "load_percent")]
    pub load: u32,
}

impl HostUse {
    /// Less than a sixteenth of the memory is left: enough to make programs fail.
    #[must_use]
    pub const fn is_low(&self) -> bool {
        self.available < self.total / 16
    }
}

/// Diagnostics show how much a rank has said, and not what: that is the user's.
impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts")
            .field("tail", &self.tail.len())
            .field("core", &self.core)
            .field("oom_limit", &self.oom_limit)
            .field("error_file", &self.error_file.as_ref().map(|text| text.len()))
            .field("late", &self.late)
            .field("host", &self.host)
            .finish()
    }
}

/// A process that could not be ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leftover {
    /// Its process id on the host.
    pub pid: u32,
    /// Its short name.
    pub comm: OsBytes,
    /// The place in the kernel where it waits.
    pub wchan: OsBytes,
}

impl Leftover {
    /// From names as the guardian keeps and writes them: in fields of one length, filled up with NUL.
    #[must_use]
    pub fn padded(pid: u32, comm: &[u8], wchan: &[u8]) -> Self {
        let text = |field: &[u8]| OsBytes::from(field.split(|b| *b == 0).next().unwrap_or_default());
        Self { pid, comm: text(comm), wchan: text(wchan) }
    }
}
