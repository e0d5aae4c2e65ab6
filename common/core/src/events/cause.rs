//! Why a job ended: one value, from which follow the exit code, the report and the event log.

use alloc::vec::Vec;
use rlaunch_base::exit::{self, Ending};
use rlaunch_base::id::{NodeId, Rank, Std};
use rlaunch_base::json;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_base::warnings::WarningSource;
use rlaunch_plan::allocation::Scheduler;
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierKind};
use rlaunch_protocol::wire::to_root::{NodeRefusal, SpawnError};
use serde::{Serialize, Serializer};

/// The exit code of srun for a task that was killed.
const KILLED: u8 = Signal::KILL.exit_code();

/// The first cause of a job's end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Every rank exited with 0.
    Success,
    /// A rank failed.
    Rank {
        /// The one that failed first.
        rank: Rank,
        /// How.
        #[serde(rename = "")]
        status: Status,
    },
    /// The program with `--lead` has finished, and the others are ended.
    Lead {
        /// Its last rank.
        rank: Rank,
    },
    /// A rank could not be started.
    Spawn {
        /// Which.
        rank: Rank,
        /// Why.
        #[serde(rename = "")]
        error: SpawnError,
    },
    /// A host cannot do what was asked for.
    Refused {
        /// Which.
        node: NodeId,
        /// Why.
        why: NodeRefusal,
    },
    /// Hosts cannot be reached, and nothing was started.
    Unreachable {
        /// The first of them.
        node: NodeId,
        /// How many.
        failed: u32,
        /// Number of hosts that were asked for.
        asked: u32,
    },
    /// rlaunch was asked to end.
    Signal(Signal),
    /// The scheduler ends its job, with this signal to the processes of the step.
    Scheduler {
        /// Which.
        #[serde(serialize_with = "json::text")]
        scheduler: Scheduler,
        /// The signal.
        #[serde(rename = "signal")]
        sig: Signal,
    },
    /// `--timeout` ran out.
    Timeout {
        /// The limit.
        limit: Span,
    },
    /// rlaunch's output has no reader any more.
    ReaderClosed(Std),
    /// Something of ours was lost on a host.
    Lost {
        /// Which host.
        node: NodeId,
        /// The lost part.
        lost: Lost,
    },
    /// A host was taken away, or is about to be, and no other start is left for that (`--preempt-retries`).
    Preempted {
        /// Which host.
        node: NodeId,
        /// How that is known.
        lost: Lost,
    },
    /// Too few slices are up (`--slices`).
    TooFewSlices {
        /// The valid sizes.
        asked: Vec<u32>,
        /// The number of slices that are up.
        up: u32,
    },
}

/// Why an edge ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename = "why", rename_all = "snake_case")]
pub enum CloseReason {
    /// The other side closed it.
    Eof,
    /// The other side sent something that is no message.
    Malformed,
    /// The other side does not read its messages.
    Slow,
    /// The kernel refused to read or write.
    Failed {
        /// errno of that.
        errno: i32,
    },
    /// The process that carries it ended first: it was killed, or the connection or what runs there was lost.
    #[serde(rename = "")]
    Carrier(CarrierKind, CarrierEnd),
}

impl CloseReason {
    /// Whether the connection of a killed agent may end so. The agent may have sent a part of a message.
    pub(crate) const fn may_be_kill(self) -> bool {
        match self {
            Self::Eof | Self::Failed { .. } | Self::Malformed => true,
            Self::Slow | Self::Carrier(..) => false,
        }
    }
}

/// A part of ours that a job cannot do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// The edge to the agent ended in mid-job.
    Agent(CloseReason),
    /// The agent said that it was done while ranks still ran.
    AgentEarly,
    /// The agent did not end its ranks in time, nor say why.
    AgentMute,
    /// The host sends no heartbeats; by now it has ended its ranks, or is suspended with them.
    NoHeartbeat,
    /// The host has ended its ranks, because its lease was not renewed in time.
    Expired,
    /// The host has ended its ranks, because rlaunch itself was suspended for so long and renewed no lease.
    Starved(Span),
    /// The guardian.
    Guardian,
    /// The first process of the PID namespace.
    Init,
    /// The host is about to be taken away.
    Warned(WarningSource),
}

/// The three ends of an agent are one part in the log.
impl Serialize for Lost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename = "why", rename_all = "snake_case")]
        enum End {
            #[serde(rename = "")]
            Closed(CloseReason),
            Early,
            Mute,
        }
        #[derive(Serialize)]
        #[serde(rename = "lost", rename_all = "snake_case")]
        enum Part {
            Agent(End),
            #[serde(rename = "unheard")]
            NoHeartbeat,
            Expired,
            Starved {
                stood: Span,
            },
            Guardian,
            Init,
            Warned(WarningSource),
        }
        match *self {
            Self::Agent(why) => Part::Agent(End::Closed(why)),
            Self::AgentEarly => Part::Agent(End::Early),
            Self::AgentMute => Part::Agent(End::Mute),
            Self::NoHeartbeat => Part::NoHeartbeat,
            Self::Expired => Part::Expired,
            Self::Starved(stood) => Part::Starved { stood },
            Self::Guardian => Part::Guardian,
            Self::Init => Part::Init,
            Self::Warned(source) => Part::Warned(source),
        }
        .serialize(serializer)
    }
}

impl Lost {
    /// Whether the same text fits a host that was lost in that way.
    #[must_use]
    pub fn is_like(self, other: Self) -> bool {
        self == other || matches!((self, other), (Self::Starved(_), Self::Starved(_)))
    }

    /// Whether the host was lost with the srun that had started its agent, and with it all hosts of the step.
    #[must_use]
    pub const fn is_by_srun(self) -> bool {
        matches!(self, Self::Agent(CloseReason::Carrier(CarrierKind::Srun, _)))
    }
}

impl Cause {
    /// Its name in the event log, and for commands.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Rank { .. } => "rank",
            Self::Lead { .. } => "lead",
            Self::Spawn { .. } => "spawn",
            Self::Refused { .. } => "refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Signal(_) => "signal",
            Self::Scheduler { .. } => "scheduler",
            Self::Timeout { .. } => "timeout",
            Self::ReaderClosed(_) => "reader_closed",
            Self::Lost { .. } => "lost",
            Self::Preempted { .. } => "preempted",
            Self::TooFewSlices { .. } => "too_few_slices",
        }
    }

    /// How rlaunch ends for this reason. Output that could not be written makes a success a failure.
    #[must_use]
    pub const fn exit(&self, unwritten: bool) -> Ending {
        match self {
            Self::Success | Self::Lead { .. } if unwritten => Ending::Code(exit::LAUNCH),
            Self::Success | Self::Lead { .. } => Ending::Code(0),
            Self::Rank { status, .. } => Ending::Code(status.exit_code()),
            Self::Spawn { error, .. } => Ending::Code(error.exit_code()),
            Self::Refused { why: NodeRefusal::Program { error, .. }, .. } => Ending::Code(error.exit_code()),
            // srun exits so if its step was killed, as by `scancel JOB.STEP`.
            Self::Lost {
                lost: Lost::Agent(CloseReason::Carrier(CarrierKind::Srun, CarrierEnd::Code(KILLED))), ..
            } => Ending::Code(KILLED),
            Self::Refused { .. } | Self::Unreachable { .. } | Self::Lost { .. } => Ending::Code(exit::LAUNCH),
            Self::Signal(sig) | Self::Scheduler { sig, .. } => Ending::Signal(*sig),
            Self::Timeout { .. } => Ending::Code(exit::TIMEOUT),
            Self::Preempted { .. } | Self::TooFewSlices { .. } => Ending::Code(exit::PREEMPTED),
            Self::ReaderClosed(_) => Ending::Signal(Signal::PIPE),
        }
    }
}
