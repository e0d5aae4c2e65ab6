//! Actions of the node machine for single parts of the agent.

use super::node_event::Depth;
use super::world_plan::TcpStorePlan;
use alloc::boxed::Box;
use rlaunch_base::id::{JobId, ProcId, Rank, SessionId, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::guard::devices::{DeviceKind, DevicePlan, DeviceStep};
use rlaunch_protocol::wire::frozen::client::client_round::AgentMessage;
use rlaunch_protocol::wire::order::Asker;
use rlaunch_protocol::wire::probe::Place;

/// Probes of addresses between hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeAction {
    /// Find out whether rank 0's agent can be reached there; answered by `Probed`, if it is before `End`.
    Call(Place),
    /// No agent tries to reach another any more, and this agent waits for none that does.
    End,
}

/// The lease, as the guardian knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseAction {
    /// The end of the lease, which the guardian has to know.
    Until(Mono),
    /// The host shuts down. Until then the end of the connection does not end the ranks, also if the guardian notices it first.
    Spare(Mono),
    /// The host is in a scheduler's step. The guardian ends nothing for so long after the end of the connection, so that the agent decides.
    HoldAfterCut(Span),
}

/// Processes that take part in rounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionAction {
    /// Send one a message. Where its session has ended, that is no error.
    Send {
        /// Which.
        session: SessionId,
        /// The message.
        message: Box<AgentMessage>,
    },
    /// End its session, after the messages that were sent to it.
    End {
        /// The session.
        session: SessionId,
    },
}

/// `TCPStore`s and the ports for them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TcpStoreAction {
    /// Hold the job's store there, before any rank is started, or for a round, in place of the one before; `Unserved` where that cannot be:
    /// nothing is started then.
    Open(TcpStorePlan),
    /// Hold the job's store no more: its round has ended.
    Close,
    /// Choose another port as MASTER_PORT, for the next round, beside that of this one; answered by `PortReserved`.
    ReservePort {
        /// Listen there, at this numeric address of this host, for those who come before the store is held there.
        listen: Option<OsBytes>,
    },
    /// Whether it is MASTER_PORT now, and the one before is not. Or it is not used: false.
    UsePort(bool),
    /// Reserve a port for a world besides the first one; answered by `WorldReserved`.
    ReserveWorldPort {
        /// Which.
        world: WorldId,
    },
}

/// The store of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreAction {
    /// Ranks may ask the store from now on: the namespace that they share lives here, or on another host.
    Open {
        /// Whether it lives here.
        here: bool,
        /// The number of the namespace: each generation and each round has another one.
        number: u32,
        /// Ranks of this host that share it; `None`: those that are started here.
        ranks: Option<RankSet>,
    },
    /// Give a client the answer to its order. A client that has gone gets none.
    OrderDone {
        /// Which.
        asker: Asker,
        /// The words of the answer.
        reply: OsBytes,
    },
}

/// Devices and their holders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceAction {
    /// Prepare devices as the plan says, before ranks are started; answered by `DevicesFreed`.
    Free {
        /// The plan.
        plan: DevicePlan,
        /// The job of this node: its processes are no holders that are in the way.
        job: JobId,
        /// From SIGTERM to SIGKILL.
        grace: Span,
        /// How far.
        step: DeviceStep,
    },
    /// Look which processes hold devices after the last rank; answered by `DevicesExamined`.
    Examine {
        /// Which devices.
        kind: DeviceKind,
    },
    /// Wait until no process that this one, which has been reaped, has left holds a device; answered by `DevicesReleased`. There is no
    /// answer where that cannot be found out.
    AwaitRelease {
        /// Which.
        proc: ProcId,
        /// Its process id, and so that of its session.
        pid: u32,
        /// Its rank.
        rank: Rank,
    },
}

/// A look at a rank that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExamineAction {
    /// Which.
    pub proc: ProcId,
    /// How it ended.
    pub status: Status,
    /// How closely to look.
    pub depth: Depth,
}
