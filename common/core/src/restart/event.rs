//! What the machine of rounds hears and asks for.

use super::awaited::Step;
use super::fault::Fault;
use crate::id::{NodeId, ProcId, Rank, Round};
use crate::os_bytes::OsBytes;
use crate::rank_set::RankSet;
use crate::status::Status;
use crate::time::{Mono, Span};
use crate::wire::round::{Enrolled, RoundDown};
use alloc::vec::Vec;

/// What can happen to rounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestartEvent {
    /// Processes have registered.
    Joined {
        /// Of this node.
        node: NodeId,
        /// For which call of a function: the first of each process is 0.
        call: u32,
        /// Who.
        ranks: Vec<Enrolled>,
        /// Under which terms; empty: as this node's others.
        terms: OsBytes,
    },
    /// A rank says, or its agent does, that something is wrong with it.
    Fault {
        /// In this round.
        round: Round,
        /// What.
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
        /// Who.
        ranks: Vec<Enrolled>,
        /// Nobody of that node follows.
        last: bool,
        /// A port that is held there; 0: none.
        port: u16,
        /// Some of them have got on in that round.
        pinged: bool,
    },
    /// The function has returned on all active ranks of a node.
    Returned {
        /// Which node.
        node: NodeId,
        /// In this round.
        round: Round,
    },
    /// It has on this rank, and long after that not everywhere; of its node no rank is late.
    Alone {
        /// Which node.
        node: NodeId,
        /// In this round.
        round: Round,
        /// Where it returned.
        initial: Rank,
    },
    /// Ranks of a node wait for others of it: these have not registered, or not left their function, for [`super::AWAITED`].
    Awaited {
        /// Which node.
        node: NodeId,
        /// Which ranks.
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
        /// The host that has room for it; `None`: none has, and nobody comes.
        node: Option<NodeId>,
    },
    /// We have stopped hearing of a host: its ranks are lost. They may run still, but will have ended by `NodeLost`.
    NodeMissed {
        /// Which.
        node: NodeId,
        /// When, on our clock.
        at: Mono,
    },
    /// A host is lost, with all of its ranks: they are dead by now, or will never be heard of again.
    NodeLost {
        /// Which.
        node: NodeId,
    },
    /// These ranks are about to be taken away.
    Warned {
        /// Who.
        ranks: RankSet,
    },
    /// The job ends, or all of its processes are started again: no round follows.
    Off,
}

/// What the machine of rounds wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestartAction {
    /// Tell a node.
    Send {
        /// Which.
        node: NodeId,
        /// What.
        msg: RoundDown,
    },
    /// The end of a rank is a matter of rounds from now on, and not of the job.
    Opened,
    /// The end of a rank is a matter of the job again.
    Closed(Given),
    /// Start a process again for this initial rank.
    Respawn {
        /// Which.
        initial: Rank,
    },
    /// A process that was asked for again is not needed, or has not registered in time: end it.
    End {
        /// Of this rank.
        initial: Rank,
    },
    /// For events, the report and the user.
    Note(RoundNote),
}

/// How rounds ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Given {
    /// The work is done.
    Done,
    /// No round is possible any more, because of this fault, for this reason: the job's ordinary rule holds for it.
    Up {
        /// The first fault that is not made good.
        fault: Fault,
        /// A sentence.
        text: OsBytes,
    },
}

/// What there is to tell of a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoundNote {
    /// A round has begun: the first, or another after the faults given.
    Began {
        /// Which.
        round: Round,
        /// What ended the one before, the first of them first.
        faults: Vec<Fault>,
        /// Healthy ranks.
        world_size: u32,
        /// Those that work.
        active_world_size: u32,
        /// Healthy ranks that the policy has sent home.
        discarded: RankSet,
        /// From the first fault to the decision to interrupt, to the last node's ready, to the assignment's end.
        phases: [Span; 3],
    },
    /// A rank in reserve is lost, or one that had returned: the others need no round for that.
    Spared {
        /// What has happened to it.
        fault: Fault,
    },
    /// A process was started again for a rank whose own has ended.
    Again {
        /// In this round.
        round: Round,
        /// Which.
        initial: Rank,
        /// Its process id, on its host.
        pid: u32,
    },
    /// The others wait for these ranks, and have for [`super::AWAITED`].
    Awaited {
        /// The round that they are to leave; `None`: none has begun.
        round: Option<Round>,
        /// What they have not done.
        step: Step,
        /// Which.
        ranks: RankSet,
    },
    /// Processes have registered that are not taken.
    Refused {
        /// Why, in a sentence.
        text: OsBytes,
    },
    /// Something about the policy or the limits is worth a sentence.
    Policy {
        /// Which.
        text: OsBytes,
    },
}
