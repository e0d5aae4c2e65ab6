//! Events and actions of the job machine: the contract with the launcher's driver and with the simulator.

use crate::events::{CloseReason, JobNews, Record};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::{NodeId, Rank, Std, StreamId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::bootstrap::{CarrierEvent, HostFailure};
use rlaunch_plan::hostlist::{Entry, Host};
use rlaunch_plan::place::Placement;
use rlaunch_protocol::ended::Ended;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::to_node::ToNode;
use rlaunch_protocol::wire::to_root::{Leftover, ToRoot};

/// An event of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobEvent {
    /// A message of a node, decoded, in order.
    Message {
        /// The sender.
        node: NodeId,
        /// The message.
        msg: ToRoot,
    },
    /// Answer to [`JobAction::Connect`]: the edge to a node's agent is there.
    EdgeUp {
        /// Which node.
        node: NodeId,
    },
    /// The time that remains for a host to be ready, after `EdgeUp`. The launcher's own host has it from the start.
    ReadyBy {
        /// Which node.
        node: NodeId,
        /// Before this it has to be ready.
        at: Mono,
        /// The whole time that it had.
        limit: Span,
    },
    /// An event of the carriers that bring agents to hosts.
    Carrier(CarrierEvent),
    /// A fact that an edge of the launcher has found, for the log.
    Found(JobNews),
    /// The hosts that the command of `--discover` has printed.
    Discovered(Vec<Entry>),
    /// Answer to [`JobAction::Connect`]: the agent could not be started, and nothing of ours runs there. No carrier has reported it.
    HostFailed {
        /// Which node.
        node: NodeId,
        /// Why.
        why: HostFailure,
    },
    /// A heartbeat of a node.
    Beat {
        /// Which node.
        node: NodeId,
        /// The clocks' readings.
        beat: Beat,
    },
    /// The edge to a node has ended. Normal after its `Done`.
    EdgeClosed {
        /// Which node.
        node: NodeId,
        /// Why.
        why: CloseReason,
    },
    /// The guardian of a node has ended.
    GuardianEnded {
        /// Which node.
        node: NodeId,
        /// The guardian's last report.
        end: GuardianEnd,
    },
    /// A signal reached rlaunch. Signals that were ignored when it was started never do.
    Signal(Signal),
    /// The last byte of a rank's stdout or stderr was received.
    StreamEnd {
        /// Which.
        stream: StreamId,
        /// Bytes in all.
        total: u64,
    },
    /// Our standard output or error has no reader any more (EPIPE).
    ReaderClosed(Std),
    /// The terminal of our stdout or stderr has hung up: no reader will ever come back.
    HungUp(Std),
    /// Our standard output or error cannot be written for another reason; its bytes are dropped from now on.
    SinkFailed {
        /// Which.
        std: Std,
        /// errno of the write.
        errno: i32,
    },
    /// Our standard input could not be read to its end. The rank that reads it gets an end of input.
    InputFailed {
        /// errno of the read.
        errno: i32,
    },
    /// Answer to [`JobAction::DrainOutput`]: everything received was written, or given up.
    OutputDrained {
        /// Bytes that were received but not written.
        lost: u64,
        /// Lines that were broken because another rank waited.
        broken: u64,
    },
}

/// The last report of a guardian.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GuardianEnd {
    /// Its record: what still existed after it had ended the containment.
    Record {
        /// Processes left.
        left: u32,
        /// The first of them.
        named: Vec<Leftover>,
    },
    /// The same of another host whose lease was not renewed in time.
    Expired {
        /// Processes left.
        left: u32,
        /// The first of them.
        named: Vec<Leftover>,
    },
    /// The guardian was gone before it could count.
    Silent,
}

/// An action that a job asks of its driver. Nothing here waits and nothing fails: outcomes are events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobAction {
    /// A host has become known, which is reached by this name from now on.
    Know {
        /// Which node.
        node: NodeId,
        /// Its name.
        host: Host,
    },
    /// Start the agent of a host; answered by `EdgeUp` or `HostFailed`, unless it is given up.
    Connect {
        /// Which.
        node: NodeId,
    },
    /// Do not start that agent any more, and answer `HostFailed` if it was not started.
    GiveUp {
        /// Which.
        node: NodeId,
    },
    /// Send a message to a node. If the edge has ended the message is dropped without a report.
    Send {
        /// To whom.
        node: NodeId,
        /// The message.
        msg: ToNode,
    },
    /// Continue the agent of a node, if it was stopped (SIGCONT).
    WakeAgent {
        /// The node.
        node: NodeId,
    },
    /// Have everything on a node ended without its agent, by its guardian; answered by `GuardianEnded`.
    Sever {
        /// Which node.
        node: NodeId,
    },
    /// Answer a heartbeat.
    Beat {
        /// To whom.
        node: NodeId,
        /// The clocks' readings.
        beat: Beat,
    },
    /// Let go of the edge to a node that is lost.
    CloseEdge {
        /// Which.
        node: NodeId,
    },
    /// From now on ranks run there, and these processes play them: hosts are left out, or processes are about to be started again.
    Place(Arc<Placement>),
    /// From now on the namespace of the store that ranks share has this number, and lives there. No rank uses it before.
    Home {
        /// The node.
        node: NodeId,
        /// Its number.
        namespace: u32,
    },
    /// The programs of the job are to know how a rank has ended; `None`: that of the process before the present one is no longer true.
    Ended {
        /// Its group; empty: its world has no name.
        group: OsBytes,
        /// Its number in its world.
        rank: Rank,
        /// How.
        ended: Option<Box<Ended>>,
    },
    /// No rank uses the namespace of this number any more.
    Homeless {
        /// Its number.
        namespace: u32,
    },
    /// Append a record to the event log, and print what the user has to know of it.
    Emit(Record),
    /// Answer `OutputDrained` once all that was received is written.
    DrainOutput,
    /// Give up what is not written yet and what is still to come: credit is granted for it as if it were written, since a
    /// node without credit cannot say `Done`. A `DrainOutput`, asked for before or after, is answered at once.
    AbandonOutput,
    /// End rlaunch like this. The last action.
    Finish(Ending),
}
