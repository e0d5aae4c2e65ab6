//! The values of options, by feature. A job has one [`Settings`], and its agents get all of it in their first message: an option is read
//! where it is used, and nothing between passes it on by name.

use crate::framework::MpiPlan;
use crate::guard::devices::DevicePlan;
use crate::master_store::StorePlan;
use crate::restarts::Restarts;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_base::warnings::WarningPlan;
use rlaunch_plan::allocation::Scheduler;
use rlaunch_plan::bind::Bind;
use rlaunch_plan::gpus::Share;
use serde::{Deserialize, Serialize};

/// The values of options. They are the same on all hosts of a job, but for the lists of `bind`, which are those of one host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// The end of ranks, and of the job.
    pub ending: EndingPlan,
    /// How often, and after which pauses, all ranks are started again when one has failed.
    pub restarts: Restarts,
    /// Warnings that a host is about to be taken away.
    pub warnings: WarningPlan,
    /// The connection between the launcher and its hosts.
    pub hosts: HostPlan,
    /// Output and input of ranks.
    pub output: OutputPlan,
    /// The `TCPStore` at MASTER_PORT.
    pub store: StorePlan,
    /// The service for MPI libraries.
    pub mpi: MpiPlan,
    /// Whether a program uses JAX (`--framework`).
    pub jax: bool,
    /// The GPU variables of ranks (`--gpus-per-rank`).
    pub gpus: Share,
    /// The preparation of devices before ranks are started (`--devices`, `--clean-devices`).
    pub devices: DevicePlan,
    /// The binding of ranks (`--bind-to`). Lists of CPUs are by local rank.
    pub bind: Bind,
    /// Diagnostics wanted from agents (`RLAUNCH_LOG` syntax); empty: none.
    pub trace: OsBytes,
}

/// The options about the end of ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EndingPlan {
    /// How leftovers are prevented (`--contain`).
    pub contain: Contain,
    /// The effect of a failing rank on the others (`--on-failure`).
    pub on_failure: OnFailure,
    /// From the request to end until SIGKILL (`--grace`).
    pub grace: Span,
    /// The whole job's time limit (`--timeout`).
    pub timeout: Option<Span>,
}

impl Default for EndingPlan {
    fn default() -> Self {
        Self { contain: Contain::Auto, on_failure: OnFailure::Kill, grace: Span::from_secs(5), timeout: None }
    }
}

/// The options about the connection between the launcher and its hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostPlan {
    /// How long a host other than the launcher's own may live without a word from the launcher (`--lease`).
    pub lease: Span,
    /// How long the scheduler may suspend the job before its hosts count as lost (`--suspend-limit`).
    pub suspend_limit: Span,
    /// The interface of rank 0's host at which the others find it (`--interface`); empty: the one that suits best.
    pub interface: OsBytes,
    /// The scheduler in whose step the agents run: it warns them before it ends the job.
    pub scheduler: Option<Scheduler>,
}

impl Default for HostPlan {
    fn default() -> Self {
        let interface = OsBytes::default();
        Self { lease: Span::from_secs(30), suspend_limit: Span::from_secs(24 * 3_600), interface, scheduler: None }
    }
}

/// The options about output and input of ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputPlan {
    /// The text before each output line. Empty: lines are whole, without a label. `None`: bytes pass through as they are.
    pub label: Option<OsBytes>,
    /// The ranks that read rlaunch's standard input (`--stdin`).
    pub stdin: StdinPlan,
}

impl Default for OutputPlan {
    fn default() -> Self {
        Self { label: None, stdin: StdinPlan::Rank0 }
    }
}

/// `--contain`: which guarantee that nothing outlives the job is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// A PID namespace: the kernel leaves nothing, whatever dies.
    T1,
    /// Guardian and agent, both subreapers: nothing is left if one of the two survives.
    T3,
}

/// `--on-failure`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The first failure ends the job.
    Kill,
    /// The others continue.
    Continue,
}

/// `--stdin`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StdinPlan {
    /// Rank 0 reads it, all others /dev/null.
    Rank0,
    /// Each rank reads all of it.
    All,
    /// All ranks read /dev/null.
    None,
}

impl StdinPlan {
    /// The plan as far as this rank reads.
    #[must_use]
    pub const fn of(self, rank: Rank) -> Self {
        match self {
            Self::Rank0 if rank.get() > 0 => Self::None,
            Self::Rank0 | Self::All | Self::None => self,
        }
    }
}
