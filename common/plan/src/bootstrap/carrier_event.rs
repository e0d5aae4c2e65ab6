//! Events of carriers: what the job and its observers learn from them. A value passes unchanged from the carrier's machine to the job.

use super::carrier::CarrierEnd;
use super::failure::Failure;
use super::step_dial::FallBack;
use super::tcp_hello::Refusal;
use alloc::boxed::Box;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use serde::Serialize;

/// An event of a carrier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CarrierEvent {
    /// A host could not be had, and nothing of ours runs there.
    Failed {
        /// Which.
        node: NodeId,
        /// Why.
        failure: Box<Failure>,
    },
    /// The scheduler kills the processes of a job so long after its warning.
    KillWait(Span),
    /// A fact for the log.
    News(CarrierNews),
}

/// A fact about carriers. The names in the event log are those of the type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum CarrierNews {
    /// Hosts are reached by an srun for each of them, and not over TCP.
    #[serde(rename = "transport.stdio")]
    FellBack {
        /// The hosts.
        nodes: Vec<NodeId>,
        /// Why.
        why: FallBack,
    },
    /// The scheduler's launcher has started no agent for a while, and has printed something. Recorded once for each step.
    #[serde(rename = "step.waits")]
    StepWaits {
        /// Its words.
        words: OsBytes,
    },
    /// An srun has ended before the job, and the agents of these hosts had connected. They may live on without it, or Slurm ends them.
    #[serde(rename = "step.end")]
    SrunEnded {
        /// The hosts.
        nodes: Vec<NodeId>,
        /// How it has ended.
        #[serde(rename = "")]
        end: CarrierEnd,
        /// Its last lines.
        words: OsBytes,
    },
    /// A connection to the port for agents was refused. Only the first few are recorded.
    #[serde(rename = "agent.refused")]
    StrangerRefused {
        /// Address of the sender.
        address: OsBytes,
        /// Why.
        why: Refusal,
    },
}
