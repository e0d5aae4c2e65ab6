//! Actions of the node machine: the contract with the agent's driver and with the simulator.

use super::node_event::ExecSpec;
use super::part_actions::{
    DeviceAction, ExamineAction, LeaseAction, ProbeAction, SessionAction, StoreAction, TcpStoreAction,
};
use super::world_plan::WorldPlan;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, ProcId, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_mpi::Layout;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::to_node::{PortPlan, Start};
use rlaunch_protocol::wire::to_root::ToRoot;

/// An action that a node asks of its driver. Nothing here waits and nothing fails: outcomes are events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeAction {
    /// Make ready for ranks; answered by `SandboxReady` or `Refused`.
    SetUpSandbox(Arc<Start>),
    /// Find out whether a program could be started here: its directory, its file, the limits. Answered by `Checked`.
    Check {
        /// Which program.
        app: AppIndex,
        /// The program.
        base: Arc<AppBase>,
    },
    /// Probes of addresses between hosts.
    Probes(ProbeAction),
    /// The lease, as the guardian knows it.
    Lease(LeaseAction),
    /// Processes that take part in rounds.
    Sessions(SessionAction),
    /// `TCPStore`s and the ports for them.
    TcpStores(TcpStoreAction),
    /// The store of ours.
    Store(StoreAction),
    /// Devices and their holders.
    Devices(DeviceAction),
    /// Find out why a failed rank failed, before it is reaped; answered by `Examined`.
    Examine(ExamineAction),
    /// Send a heartbeat to the launcher.
    Beat(Beat),
    /// Nothing runs here: make ready for ranks again, as at first, and let go of the store of those before; answered by `Renewed` or
    /// `Refused`.
    Renew {
        /// Treatment of MASTER_PORT. A port that is claimed already stays claimed.
        port: PortPlan,
    },
    /// Output of this rank from here on belongs to another round: this line stands before it, where its output has labels or a file.
    Mark {
        /// The process.
        proc: ProcId,
        /// The line.
        line: Box<[u8]>,
    },
    /// Serve a world besides the first one: its namespace, its `TCPStore`, its MPI libraries. Before its first rank.
    OpenWorld(Box<WorldPlan>),
    /// Let go of all that belongs to a world: none of its ranks runs on any host.
    CloseWorld {
        /// Which.
        world: WorldId,
    },
    /// SIGKILL for everything in the sessions of ranks. Where a rank was reaped, that is no error.
    KillSessions {
        /// The processes.
        procs: Vec<ProcId>,
    },
    /// Measure the processor time of the ranks of this host: `RanksMeasured`.
    MeasureRanks,
    /// Serve the MPI libraries of these ranks. Those before are gone.
    ServeMpi(Box<Layout>),
    /// Run this command again and again while ranks of a generation run or may come: its end with 0 is `Warned`.
    WatchPreemption {
        /// The words for a shell.
        command: OsBytes,
    },
    /// Start a rank; answered by `Spawned`, `SpawnFailed` or `Withheld`.
    Spawn {
        /// Which.
        proc: ProcId,
        /// How.
        exec: Box<ExecSpec>,
    },
    /// Start nothing of what was asked for and is not under way.
    Withhold,
    /// Send a signal to a rank's process group. Where it has gone meanwhile, that is no error.
    Signal {
        /// The process.
        proc: ProcId,
        /// Which.
        sig: Signal,
    },
    /// Reap a rank for good, and remove its error file.
    Reap {
        /// Which.
        proc: ProcId,
    },
    /// Pass on what is in a rank's streams now, then treat them as ended; answered by `StreamEnd` for each still open.
    CloseStreams {
        /// The process.
        proc: ProcId,
    },
    /// Name the remaining processes of ranks, in a `News`, if there are any. SIGKILL for all of them follows.
    NameLeft,
    /// Count what exists beside us, after SIGKILL for all of it; answered by `Left`, once.
    Sweep,
    /// Send a message to the launcher.
    ToRoot(ToRoot),
    /// End the agent with this code: 0 only after a `Done` that left nothing, with the guardian still there. The last
    /// action.
    Finish(u8),
}
