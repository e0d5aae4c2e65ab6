//! Events and actions of the restart machine.

use super::awaited::Step;
use super::end_reason::EndReason;
use super::remark::Remark;
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, ProcId, Rank, Round};
use rlaunch_base::json;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::rank_fault::Fault;
use rlaunch_protocol::wire::round::{Enrolled, RoundDown};
use serde::{Serialize, Serializer};

/// An event of the restart machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestartEvent {
    /// Processes have registered.
    Joined {
        /// The sending node.
        node: NodeId,
        /// For which call of a function: the first of each process is 0.
        call: u32,
        /// The ranks.
        ranks: Vec<Enrolled>,
        /// Under which terms; empty: as this node's others.
        terms: OsBytes,
    },
    /// A rank says, or its agent does, that something is wrong with it.
    Fault {
        /// In this round.
        round: Round,
        /// The fault.
        fault: Fault,
        /// When, on our clock.
        at: Mono,
    },
    /// Ranks of a node are out of their function.
    Ready {
        /// Which node.
        node: NodeId,
        /// Out of the function of this round.
        round: Round,
        /// The ranks.
        ranks: Vec<Enrolled>,
        /// No more ranks of that node follow.
        last: bool,
        /// A port that is held there; 0: none.
        port: u16,
        /// Some of them have made progress in that round.
        pinged: bool,
    },
    /// The function has returned on all active ranks of a node.
    Returned {
        /// Which node.
        node: NodeId,
        /// In this round.
        round: Round,
    },
    /// The function has returned on this rank, and for a long time has not returned everywhere. No rank of the sending node is late.
    Alone {
        /// Which node.
        node: NodeId,
        /// In this round.
        round: Round,
        /// The rank on which it returned.
        initial: Rank,
    },
    /// Ranks of a node have waited [`super::AWAITED`] for other ranks of it to register or to leave their function.
    Awaited {
        /// The node.
        node: NodeId,
        /// The awaited ranks.
        ranks: RankSet,
    },
    /// A process has ended.
    Ended {
        /// Its initial rank.
        initial: Rank,
        /// Which of those that have had it.
        proc: ProcId,
        /// How.
        status: Status,
        /// When, on our clock.
        at: Mono,
    },
    /// A process that was asked for again runs.
    Started {
        /// Its initial rank.
        initial: Rank,
        /// Which.
        proc: ProcId,
    },
    /// A process that was asked for will not run where the one before did.
    Placed {
        /// Its initial rank.
        initial: Rank,
        /// The host that has room for it. `None`: no host has, and no process comes.
        node: Option<NodeId>,
    },
    /// A host sends no heartbeats: its ranks are lost. They may run still, but will have ended by `HostLost`.
    HostSuspected {
        /// Which.
        node: NodeId,
        /// When, on our clock.
        at: Mono,
    },
    /// A host is lost, with all of its ranks: they are dead by now, or will never be reached again.
    HostLost {
        /// Which.
        node: NodeId,
    },
    /// Ranks are about to be taken away.
    Warned {
        /// The ranks.
        ranks: RankSet,
    },
    /// The job ends, or all of its processes are started again: no round follows.
    Off,
}

/// An action of the restart machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestartAction {
    /// Send a message to a node.
    Send {
        /// Which.
        node: NodeId,
        /// The message.
        msg: RoundDown,
    },
    /// The end of a rank is a matter of rounds from now on, and not of the job.
    Opened,
    /// The end of a rank is a matter of the job again.
    Closed(RoundsEnd),
    /// Start a process again for this initial rank.
    Respawn {
        /// Which.
        initial: Rank,
    },
    /// A process that was asked for again is not needed, or has not registered in time: end it.
    End {
        /// The rank.
        initial: Rank,
    },
    /// For events, the report and the user.
    Note(RoundNote),
}

/// How rounds ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename = "how")]
pub enum RoundsEnd {
    /// The work is done.
    #[serde(rename = "done")]
    Done,
    /// No round is possible any more, because of this fault, for this reason: the job's ordinary rule holds for it.
    #[serde(rename = "given_up")]
    Impossible {
        /// The first fault that is not made good.
        fault: Fault,
        /// Why.
        #[serde(rename = "text", serialize_with = "json::text")]
        reason: EndReason,
    },
}

/// The names of the parts of a round's pause.
fn named<S: Serializer>([decided, drained, assigned]: &[Span; 3], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Phases<'a> {
        decided: &'a Span,
        drained: &'a Span,
        assigned: &'a Span,
    }
    Phases { decided, drained, assigned }.serialize(serializer)
}

/// A report about a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum RoundNote {
    /// A round has begun: the first, or another after the faults given.
    #[serde(rename = "round")]
    Began {
        /// Which.
        round: Round,
        /// The faults that ended the round before, the first one first.
        faults: Vec<Fault>,
        /// Healthy ranks.
        world_size: u32,
        /// The number of active ranks.
        active_world_size: u32,
        /// Healthy ranks that the policy has discarded.
        discarded: RankSet,
        /// From the first fault to the decision to interrupt, to the last node's ready, to the assignment's end.
        #[serde(rename = "", serialize_with = "named")]
        phases: [Span; 3],
        /// Healthy ranks that are not active: they wait as spares.
        reserve: RankSet,
    },
    /// A rank in reserve is lost, or one that had returned: the others need no round for that.
    #[serde(rename = "round.spared")]
    NoRoundNeeded {
        /// The fault.
        #[serde(rename = "")]
        fault: Fault,
    },
    /// A process was started again for a rank whose own has ended.
    #[serde(rename = "round.again")]
    Respawned {
        /// In this round.
        round: Round,
        /// Which.
        #[serde(rename = "rank")]
        initial: Rank,
        /// Its process id, on its host.
        pid: u32,
    },
    /// The other ranks have waited [`super::AWAITED`] for these ranks.
    #[serde(rename = "round.awaits")]
    Awaited {
        /// The round that the ranks are to leave. `None`: no round has begun.
        round: Option<Round>,
        /// The step that these ranks have not done.
        #[serde(rename = "for")]
        step: Step,
        /// The awaited ranks.
        ranks: RankSet,
    },
    /// Processes have registered that are not taken.
    #[serde(rename = "round.refused")]
    Refused {
        /// Why, in a sentence.
        text: OsBytes,
    },
    /// A remark about the policy, the limits or a rank.
    #[serde(rename = "round.note")]
    Remark(Remark),
}
