//! What the user asked for, after the command line was understood: the input of the job machine.

use crate::id::{AppIndex, JobId, LocalRank, NodeId};
use crate::os_bytes::OsBytes;
use crate::time::Span;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A whole job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobSpec {
    /// Its name.
    pub job: JobId,
    /// Its programs; ranks are numbered through them in this order.
    pub apps: Vec<AppSpec>,
    /// How leftovers are prevented.
    pub contain: Contain,
    /// What a failing rank does to the others.
    pub on_failure: OnFailure,
    /// From the request to end until SIGKILL.
    pub grace: Span,
    /// The whole job's time limit.
    pub timeout: Option<Span>,
    /// What stands before each output line; `None`: bytes pass through as they are.
    pub label: Option<OsBytes>,
    /// Who reads rlaunch's standard input.
    pub stdin: StdinPlan,
    /// Where its ranks run.
    pub placement: Placement,
    /// How long a node other than the launcher's own may live without a word from the launcher.
    pub lease: Span,
}

/// The hosts of a job, and each rank's place on them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// The hosts, in the order of their node ids; each has at least one rank.
    pub nodes: Vec<NodeSpec>,
    /// The places, in the order of the ranks.
    pub seats: Vec<Place>,
}

/// A host of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeSpec {
    /// Its name, as the user gave it.
    pub host: OsBytes,
    /// It is the launcher's own: its agent is there already.
    pub local: bool,
}

/// A rank's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The host.
    pub node: NodeId,
    /// Its number there.
    pub local_rank: LocalRank,
    /// Its program.
    pub app: AppIndex,
}

impl Placement {
    /// All ranks of these programs on the launcher's own host.
    #[must_use]
    pub fn here(apps: &[AppSpec], host: OsBytes) -> Self {
        let of_app =
            apps.iter().zip((0..).map(AppIndex::new)).flat_map(|(app, index)| (0..app.procs).map(move |_| index));
        let seats = of_app.zip((0..).map(LocalRank::new));
        let place = |(app, local_rank)| Place { node: NodeId::new(0), local_rank, app };
        Self { nodes: alloc::vec![NodeSpec { host, local: true }], seats: seats.map(place).collect() }
    }

    /// The only host is the launcher's own.
    #[must_use]
    pub fn is_here(&self) -> bool {
        matches!(self.nodes.as_slice(), [node] if node.local)
    }

    /// Ranks of a host.
    #[must_use]
    pub fn local_size(&self, node: NodeId) -> u32 {
        self.seats.iter().filter(|seat| seat.node == node).fold(0, |sum, _| sum.saturating_add(1))
    }
}

impl JobSpec {
    /// The number of ranks of all programs.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.apps.iter().fold(0, |sum, app| sum.saturating_add(app.procs))
    }
}

/// One program of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppSpec {
    /// How many ranks run it.
    pub procs: u32,
    /// What they are started with.
    pub base: AppBase,
}

/// What all ranks of a program have in common; sent to each node once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppBase {
    /// Program and arguments, byte-exact.
    pub argv: Vec<OsBytes>,
    /// `NAME=value` strings: the caller's, minus inherited identities, plus `-x`. The contracts are added per rank.
    pub env: Vec<OsBytes>,
    /// Names that the user set by `-x NAME=value`: no contract overrides them.
    pub pinned: Vec<OsBytes>,
    /// Working directory of the ranks; `None`: the agent's own.
    pub wdir: Option<OsBytes>,
}

/// `--contain`: which guarantee that nothing outlives the job is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Contain {
    /// The strongest that costs the ranks nothing: a PID namespace for root, subreapers otherwise.
    Auto,
    /// A PID namespace, by a user namespace if need be; refused if there is none.
    T1,
    /// Subreapers.
    T3,
    /// Refuse to start without a guarantee by the kernel (a PID namespace).
    Strict,
}

/// The guarantee that holds for a node, as its agent reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Tier {
    /// A PID namespace: the kernel leaves nothing, whatever dies.
    T1,
    /// Guardian and agent, both subreapers: nothing is left if one of the two survives.
    T3,
}

/// `--on-failure`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OnFailure {
    /// The first failure ends the job.
    Kill,
    /// The others go on.
    Continue,
}

/// `--stdin`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StdinPlan {
    /// Rank 0 reads it, all others /dev/null.
    Rank0,
    /// All ranks read /dev/null.
    None,
}
