//! Messages between the sub-machines of a job.
//!
//! A decision with one reader is a value that a method returns. A notice remains in three cases: several sub-machines listen, the
//! sender is called from several places, or the effect has to follow everything else that the same step does. Timers of one moment are
//! such a step: the losses that they find are handled after the last of them.

use crate::events::{Cause, Lost, What};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{HostTime, Mono, Span};
use rlaunch_plan::hostlist::Chips;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::wire::to_node::ToNode;
use rlaunch_protocol::wire::to_root::NodeRefusal;

/// Something that another sub-machine has to know.
#[derive(Debug)]
pub(super) enum Notice {
    /// To be written to the event log.
    Log(What),
    /// A message for every node.
    Broadcast(ToNode),
    /// The job has to end, for this reason. The first one wins.
    End(Cause),
    /// A process has ended: a failure, unless it has done so by exit 0 or rounds make it good.
    Exited(ProcId, RankExit),
    /// generations: the pause has ended, and all ranks are started again.
    StartGeneration,
    /// The signal that was passed on to all ranks. The job continues.
    Forwarded(Signal),
    /// The ending has begun.
    EndingBegan(EndingBegan),
    /// SIGKILL was sent to everything before the grace had expired.
    Killed,
    /// No rank is left to wait for.
    AllOver,
    /// The agent of a node does not answer.
    AgentUnresponsive(NodeId),
    /// The guardian of a node has ended, and its agent is about to say why.
    GuardianEnded(NodeId),
    /// Suspended agents have to continue.
    WakeAgents,
    /// SIGKILL was sent to one node, which cannot guard its ranks any more.
    Doomed(NodeId),
    /// The scheduler suspends a node, or has resumed it.
    HostSuspended {
        /// Which.
        node: NodeId,
        /// Whether the node was resumed.
        is_over: bool,
    },
    /// No heartbeat of a node has come for so long that the node has ended its ranks.
    MissedLease(NodeId),
    /// node_ends: a part of ours was lost on a node. The job ends, unless it can do without the node.
    Lost {
        /// Which.
        node: NodeId,
        /// The lost part.
        lost: Lost,
    },
    /// bringup: a node that was reached is not ready in time.
    StartupDeadlineExpired {
        /// Which.
        node: NodeId,
        /// The whole time that it had.
        limit: Span,
    },
    /// bringup: ranks start for the first time, and not on all hosts.
    Placed {
        /// The nodes without which the job starts. Hosts of other slices may come yet.
        left_out: Vec<NodeId>,
        /// The placement of the ranks.
        placement: Arc<Placement>,
    },
    /// bringup: a host of a slice does not reach that of rank 0, and its agent is ended for this reason.
    NoWay(NodeId, NodeRefusal),
    /// bringup: the chips of these nodes, as the nodes know them.
    Chips(Vec<(NodeId, Chips)>),
    /// node_ends: a node was ordered to end without its agent, or cannot be reached; if it does not report the outcome, its lease ends it.
    Severed(NodeId),
    /// The user asks to end while only output is waited for: after this it is given up.
    Impatient {
        /// How long it may still take.
        patience: Span,
    },
    /// Output is given up: a node that waited for its reader has nothing to wait for any more.
    Abandoned,
    /// Init or guardian of a node was lost: ends of its ranks that are reported from here on were caused by that.
    LostSupervisor(NodeId),
    /// The guardian of a node was lost: the agent alone can end what is there.
    GuardianLost(NodeId),
    /// A node has no rank that is waited for.
    RanksOver(NodeId),
    /// A node is left out before the start: it was not reached, has refused, or was too late. No rank was started there.
    Absent(NodeId),
    /// A node has reported what remains, or will not.
    NodeOver(NodeId),
    /// All nodes have reported what remains. `None`: it cannot be known.
    Counted {
        /// Processes that still exist.
        left: Option<u32>,
    },
    /// The user wants rlaunch to leave without waiting for anything.
    Leave,
    /// Everything is known and written: say it and finish.
    Close {
        /// Processes that still exist.
        left: Option<u32>,
    },
}

/// The exit of a rank's process. It is a failure, unless its status is success or rounds replace the rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RankExit {
    /// Which.
    pub(super) rank: Rank,
    /// The node of the rank.
    pub(super) node: NodeId,
    /// How.
    pub(super) status: Status,
    /// When it was seen, at the latest.
    pub(super) at: Mono,
    /// When it was last known to run, at the earliest.
    pub(super) alive_at: Mono,
    /// When it was seen, at the earliest.
    pub(super) seen_after: Mono,
    /// When it was last known to run and when it was seen, by its own host's clock.
    pub(super) here: (HostTime, HostTime),
    /// Whether its node had been ordered to end its ranks before.
    pub(super) asked: bool,
}

/// The beginning of the ending.
#[derive(Clone, Debug)]
pub(super) struct EndingBegan {
    /// Why.
    pub(super) cause: Cause,
    /// When.
    pub(super) at: Mono,
    /// When SIGKILL follows; `None`: it was sent.
    pub(super) kill_at: Option<Mono>,
}
