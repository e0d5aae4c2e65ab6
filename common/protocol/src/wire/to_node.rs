//! From the launcher to a node.

use super::codec::WireMessage;
use super::order::Asker;
use super::peer_identity::{Answer, Question};
use super::probe::{Key, Places};
use super::round::RoundDown;
use crate::guard::devices::DeviceStep;
use crate::settings::{Settings, StdinPlan};
use crate::spec::AppBase;
use crate::travel::Travel;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::capped::{Capped, unreserved};
use rlaunch_base::id::{AppIndex, JobId, LocalRank, ProcId, Rank, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_plan::allocation::HostStep;
use rlaunch_plan::tpu::{TpuFacts, TpuHost};
use serde::{Deserialize, Serialize};

/// Longest part of an [`ToNode::App`], so that it never keeps other control traffic waiting.
pub const APP_PART: usize = 256 << 10;
/// Most ranks in one [`ToNode::Spawn`].
pub const SPAWN_BATCH: usize = 1024;

/// A message of the launcher to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToNode {
    /// The first message: the job as this node has to know it.
    Start(Start),
    /// A part of a program's encoded `AppBase`.
    App {
        /// Which program.
        app: AppIndex,
        /// Whether it is complete with this part.
        last: bool,
        /// At most [`APP_PART`] bytes.
        part: Part,
    },
    /// The rendezvous, where `Start` did not have it; before the first `Spawn`.
    Rendezvous(Rendezvous),
    /// Find out which of these places can be reached from here; each is answered by `Probed`. Before `Rendezvous`.
    Probe(Places),
    /// Another host's agent asks whose connections are that come from here.
    FindOwners(Question),
    /// The answer to such a question of this node's.
    OwnersFound(Answer),
    /// Start these ranks.
    Spawn {
        /// As differences to their program's base.
        procs: Capped<Delta, SPAWN_BATCH>,
        /// No further ranks follow.
        last: bool,
        /// How many ranks this node has with them.
        local_size: u32,
    },
    /// Reserve a port as MASTER_PORT of this world, whose rank 0 is to run here; answered by `WorldPort`.
    ReserveWorld(WorldId),
    /// The rendezvous of a world besides the first one. Before its first `Spawn`, and after its programs.
    World(Box<WorldStart>),
    /// The answer to an order of a rank of this host.
    OrderDone {
        /// Whom it is for.
        asker: Asker,
        /// Its words.
        reply: OsBytes,
    },
    /// All ranks of this world have ended, on all hosts.
    CloseWorld(WorldId),
    /// End the ranks of a world besides the first one, and what they have left in their sessions: this signal now, SIGKILL after the grace.
    EndWorld {
        /// Which.
        world: WorldId,
        /// The first, polite signal.
        sig: Signal,
        /// How long it may take.
        grace: Span,
    },
    /// Pass a signal on to every rank's process group.
    Signal {
        /// Which.
        sig: Signal,
    },
    /// End the ranks: this signal to every rank's process group, SIGKILL when `grace` has passed.
    End {
        /// The first, polite one.
        sig: Signal,
        /// How long it may take.
        grace: Span,
    },
    /// The same, for the scheduler ends its job: it sends the signal itself, to the ranks of some hosts or of all. Ranks get it once.
    SchedulerEnds {
        /// The signal.
        sig: Signal,
        /// How long ranks may take.
        grace: Span,
    },
    /// The scheduler suspends this host: it may continue without word from the launcher for so long, until it is resumed.
    HoldLease(Span),
    /// End the ranks as by `End`, and everything that they have left, and make ready for others: they may be started again.
    Clear {
        /// The first, polite signal.
        sig: Signal,
        /// How long it may take.
        grace: Span,
        /// Treatment of MASTER_PORT.
        port: PortPlan,
    },
    /// Sent after the `Cleared` of all nodes: the rendezvous of the next generation; `Spawn` follows.
    Again(Rendezvous),
    /// Prepare the devices for ranks to come; answered by `Devices`. The first look is made without this order.
    Devices(DeviceStep),
    /// SIGKILL for everything that runs here, now.
    Kill,
    /// About the in-process restart of a function.
    Round(RoundDown),
    /// The ranks of all nodes have ended: this one may end too.
    Finish,
}

impl WireMessage for ToNode {}

/// Bytes of a program's encoded `AppBase`: its environment is among them, so diagnostics show how many they are.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part(pub OsBytes);

impl From<&[u8]> for Part {
    fn from(bytes: &[u8]) -> Self {
        Self(OsBytes::from(bytes))
    }
}

impl core::ops::Deref for Part {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0.len())
    }
}

// Not a message by itself: the parts of `ToNode::App`, put together.
impl WireMessage for AppBase {}

impl WireMessage for MpiWorld {}

/// The job, as one node has to know it: the options, and the values for this host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The job's name.
    pub job: JobId,
    /// The values of options. The binding is that of this host.
    pub settings: Box<Settings>,
    /// Hosts that were asked for: the launcher's memory for output is shared among them.
    pub nodes: u32,
    /// Ranks on this host.
    pub local_size: u32,
    /// The rendezvous; `None`: sent later, once it is known.
    pub rendezvous: Option<Rendezvous>,
    /// MASTER_PORT, where rank 0 may come to run here.
    pub port: PortPlan,
    /// The same: say where other hosts find this one.
    pub find: Option<Find>,
    /// Say by which addresses ranks of this host may be seen: another may hold a store for them.
    pub addresses: bool,
    /// The settings that ranks get from the place in which rlaunch was started; `None`: this is its host, and they inherit them.
    pub travel: Option<Box<Travel>>,
    /// Whether the node is the only one: it starts its ranks unasked, and ends by itself when they have ended. Another node first reports
    /// whether it is ready.
    pub sole: bool,
    /// Whether this host has a lease: it is not the launcher's own, and may not live longer than the lease without a word from it.
    pub has_lease: bool,
    /// Whether processes may be started when others have ended: then the only node also waits for the order to end.
    pub can_start_more: bool,
    /// Programs that ranks of this node run.
    pub apps: u32,
    /// The words of the hostfile about the TPU chips of this host.
    pub chips: Option<Box<TpuFacts>>,
    /// The job has several worlds: its ranks do not take part in rounds.
    pub has_worlds: bool,
    /// Time that a round may wait for suspected hosts, and for more faults.
    pub awaits: Span,
    /// The most time that ranks have after the scheduler's SIGTERM, as it kills them then; `None`: unknown.
    pub scheduler_grace: Option<Span>,
}

impl Start {
    /// For the only host of a job that asks for nothing else: it chooses the rendezvous.
    #[must_use]
    pub fn of(job: JobId, local_size: u32) -> Self {
        Self {
            job,
            settings: Box::default(),
            nodes: 1,
            local_size,
            rendezvous: None,
            port: PortPlan::Choose,
            find: None,
            addresses: false,
            travel: None,
            sole: true,
            has_lease: false,
            can_start_more: false,
            apps: 1,
            chips: None,
            has_worlds: false,
            awaits: Span::ZERO,
            scheduler_grace: None,
        }
    }

    /// The same with other values of options.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// How long this node may live without a word from the launcher; `None`: its edge cannot break unnoticed.
    #[must_use]
    pub fn lease(&self) -> Option<Span> {
        self.has_lease.then_some(self.settings.hosts.lease)
    }

    /// The agent is a task of a scheduler's step: a signal to it is a warning to the job.
    #[must_use]
    pub const fn is_in_step(&self) -> bool {
        self.settings.hosts.scheduler.is_some()
    }
}

/// Preparation of MASTER_PORT on a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum PortPlan {
    /// Rank 0 runs on another host.
    #[default]
    None,
    /// Choose a free port, and reserve it.
    Choose,
    /// Claim this port, which the user gave.
    Claim(u16),
}

/// The place where other hosts are to find this one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Find {
    /// Listen there for their agents, and prove to them that it is this one. Until `Rendezvous`.
    pub probe_key: Option<Key>,
}

/// The rendezvous of a job and its ranks: known once it is known which hosts there are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rendezvous {
    /// The MASTER_ADDR of ranks.
    pub addr: OsBytes,
    /// The MASTER_PORT of ranks; `None`: the one that this node chooses.
    pub port: Option<u16>,
    /// All ranks of the job.
    pub world_size: u32,
    /// Hosts that have some.
    pub nodes: u32,
    /// Index of this host among them.
    pub node_index: u32,
    /// The first host's agent holds the TCPStore there.
    pub agent_store: bool,
    /// How often all ranks have been started again.
    pub restart: u32,
    /// The number of the space of the store that their ranks share. It grows from one to the next, whatever began it: a start of all
    /// ranks, or a round.
    pub namespace: u32,
    /// The job in Slurm's words, where ranks run in a job of Slurm.
    pub slurm: Option<Box<HostStep>>,
    /// Part of this host in the slices of the job; `None`: it has no TPU. The only host of a job finds it by itself.
    pub tpu: Option<Box<TpuHost>>,
    /// The ranks of all hosts, where MPI libraries are served; `None`: a single program on a single host.
    pub mpi: Option<Box<MpiWorld>>,
    /// Ranks of this world on this host, where the host may have ranks of other worlds.
    pub ranks_here: Option<u32>,
}

/// The ranks of a job, as MPI libraries have to know them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MpiWorld {
    /// Ranks of each program.
    #[serde(deserialize_with = "unreserved")]
    pub apps: Vec<u32>,
    /// The hosts that have ranks, in their order.
    #[serde(deserialize_with = "unreserved")]
    pub hosts: Vec<HostRanks>,
    /// Words of the MPI library that has started them (`mpi::Origin`); empty: none has.
    pub origin: OsBytes,
}

/// A host, and its ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostRanks {
    /// Its name.
    pub name: OsBytes,
    /// First and last rank of each range.
    #[serde(deserialize_with = "unreserved")]
    pub ranges: Vec<(u32, u32)>,
}

impl HostRanks {
    /// A host with these ranks.
    #[must_use]
    pub fn new(name: OsBytes, ranks: &RankSet) -> Self {
        Self { name, ranges: ranks.ranges().collect() }
    }

    /// Whether a rank is one of them.
    pub fn has(&self, rank: u32) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&rank))
    }

    /// Its ranks, in their order.
    pub fn ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }
}

/// A rank, as a difference to its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Delta {
    /// The process to be.
    pub proc: ProcId,
    /// Its program.
    pub app: AppIndex,
    /// Its rank.
    pub rank: Rank,
    /// Its rank among those of this host.
    pub local_rank: LocalRank,
    /// Its rank among those of its program.
    pub app_rank: u32,
    /// How many these are.
    pub app_size: u32,
    /// The ranks that read rlaunch's standard input, if this is one of them. Otherwise it reads /dev/null.
    pub stdin: StdinPlan,
    /// Its numbers in its world, which are those that it sees.
    pub world_rank: WorldRank,
}

/// The place of a rank in its world.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorldRank {
    /// Its world.
    pub world: WorldId,
    /// Its rank there.
    pub rank: Rank,
    /// Its rank among those of its world on this host.
    pub local_rank: LocalRank,
}

impl WorldRank {
    /// The place of a rank where all ranks are one world.
    #[must_use]
    pub const fn sole(rank: Rank, local_rank: LocalRank) -> Self {
        Self { world: WorldId::new(0), rank, local_rank }
    }
}

/// A world besides the first one, on one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorldStart {
    /// Which.
    pub world: WorldId,
    /// Its rendezvous.
    pub rendezvous: Rendezvous,
    /// A rank has asked for it: the others continue if one of its ranks cannot be started.
    pub is_spawned: bool,
}

/// First number of the namespaces of worlds besides the first one: that of a world is this and its own number.
pub const WORLD_NAMESPACE: u32 = 1 << 31;
