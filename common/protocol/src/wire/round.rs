//! Rounds: what nodes and the launcher say to each other about the in-process restart of a function.
//!
//! A node speaks once for all of its ranks where the launcher can do nothing before the last of them: so a round costs it nodes, not
//! ranks. Faults are sent at once. Everything carries the round that it is about: what comes late is of another, and is dropped. Ranks
//! are named by their initial ranks, which their processes keep.

use crate::rank_fault::{Fault, FaultKind, Leave};
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{ProcId, Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{HostTime, Span};
use rlaunch_plan::allocation::StepLayout;
use rlaunch_plan::rank_assign::Mode;
use serde::{Deserialize, Serialize};

/// Most ranks in one message.
pub const BATCH: usize = 1024;
/// Most values of keys that a rank sends.
pub const KEYS: usize = 16;
/// Longest value of a key, in bytes.
pub const KEY: usize = 4096;
/// Values of a batch are not longer than this together, in bytes: a message is bounded ([`super::frame::MAX_CONTROL`]).
const TOGETHER: usize = 1 << 18;

/// From a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RoundUp {
    /// Processes have registered, and wait for their first round. Sent for all living ranks of the node together at first, and for each
    /// later rank.
    Joined {
        /// For which call of a function: the first of each process is 0.
        call: u32,
        /// The ranks.
        ranks: Capped<Enrolled, BATCH>,
        /// Their terms, as `NAME=value` lines (`restart::terms`); empty: the same as the last ones of this node.
        terms: OsBytes,
    },
    /// Something is wrong with a rank in this round: nothing is waited for.
    Fault {
        /// Which round.
        round: Round,
        /// The fault.
        fault: Fault,
        /// When it was seen, on this host's clock.
        at: HostTime,
    },
    /// All ranks of this node that are still there are out of their function, and ready for another round.
    Ready {
        /// The round that they have left.
        round: Round,
        /// The ranks.
        ranks: Capped<Enrolled, BATCH>,
        /// Whether this is the last part.
        last: bool,
        /// A port that is held here for MASTER_PORT of the next round; 0: none was asked for.
        port: u16,
        /// A rank of this node has said in that round that it makes progress (`ping`): rounds in which some do are not in vain.
        pinged: bool,
    },
    /// The function has returned on all ranks of this node that were active in this round, and are still there.
    Returned {
        /// Which round.
        round: Round,
        /// The number of ranks on which it returned: the others are known to be gone.
        ranks: u32,
    },
    /// The function has returned on this rank, and for a long time has not returned everywhere; here no rank runs it: another host knows
    /// which rank is late.
    Alone {
        /// Which round.
        round: Round,
        /// The rank on which it returned.
        initial: Rank,
    },
    /// Ranks of this node have waited `restart::AWAITED` for other ranks of it to register or to leave their function.
    Awaited {
        /// The awaited ranks.
        ranks: Capped<Rank, BATCH>,
    },
    /// SIGKILL has not ended a process, and the others continue without it: the kernel cannot end it now.
    Stuck {
        /// Which.
        proc: ProcId,
    },
    /// Processes that wanted to register are not taken: what they ask for is none that could be. Said once.
    Refused {
        /// Why, in a sentence.
        text: OsBytes,
    },
}

/// Processes in batches, none of which is too large for a message.
#[must_use]
pub fn batches(ranks: Vec<Enrolled>) -> Vec<Capped<Enrolled, BATCH>> {
    let (mut parts, mut part, mut size) = (Vec::new(), Vec::new(), 0_usize);
    for one in ranks {
        let own = one.keys.iter().map(|key| key.len()).sum::<usize>();
        if size.saturating_add(own) > TOGETHER && !part.is_empty() {
            parts.push(core::mem::take(&mut part));
            size = 0;
        }
        size = size.saturating_add(own);
        part.push(one);
    }
    parts.push(part);
    parts.into_iter().flat_map(Capped::chunks).collect()
}

/// A process that takes part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Enrolled {
    /// Its initial rank.
    pub initial: Rank,
    /// Which of the processes that have had it.
    pub proc: ProcId,
    /// Its values for keys, in the order of the policy's sources that only a program can answer.
    pub keys: Capped<OsBytes, KEYS>,
}

/// To a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RoundDown {
    /// Have all ranks leave their function, of this round; answered by `Ready`.
    Interrupt {
        /// Which round.
        round: Round,
        /// The first fault, as ranks get it.
        fault: Fault,
        /// A planned round: each rank is interrupted where it says that it can be, or after this time. `None`: at once.
        within: Option<Span>,
    },
    /// A round begins: `members` in parts, the last of which is marked. Ranks of this node that have none are not in it.
    Begin {
        /// Which.
        round: Round,
        /// Its rendezvous.
        place: RoundRendezvous,
        /// The role of each rank.
        members: Capped<RoundMember, BATCH>,
        /// Nothing follows.
        last: bool,
    },
    /// The work is done on all active ranks: calls return, those of reserves as well.
    Finish {
        /// Which call is done; another one may follow.
        call: u32,
        /// Its last round.
        round: Round,
    },
    /// No round is possible any more, and the function does not begin again: calls end with this text, and the job's ordinary rule
    /// holds.
    GiveUp {
        /// Why, in a sentence.
        text: OsBytes,
    },
    /// Processes of these ranks that have not registered, and have been in no call that is done, are ended: no round waits for them any
    /// more.
    End {
        /// Whose.
        ranks: Capped<Rank, BATCH>,
    },
    /// Registered ranks are refused: they get the reason, and are outside.
    Refuse {
        /// The ranks; empty: all of this node.
        ranks: Capped<Rank, BATCH>,
        /// Why, in a sentence.
        text: OsBytes,
    },
    /// The function has returned on a rank of another host, and long after that not everywhere. Which rank still runs it here? The answer
    /// is a fault of the late rank, or none.
    Late {
        /// Which round.
        round: Round,
        /// The rank that has returned.
        after: Rank,
    },
}

/// The rendezvous of the ranks of a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoundRendezvous {
    /// MASTER_ADDR.
    pub addr: OsBytes,
    /// MASTER_PORT.
    pub port: u16,
    /// Whether active rank 0 is on this node: the node holds the round's store, and listens there.
    pub here: bool,
    /// The first round of this call: the program counts from it.
    pub first: Round,
    /// The number of the round's space of the store: it grows from one to the next, whatever began it.
    pub namespace: u32,
    /// Healthy ranks.
    pub world_size: u32,
    /// The number of active ranks.
    pub active_world_size: u32,
    /// Processes that there were first.
    pub initial_world_size: u32,
    /// Hosts that have active ranks.
    pub nodes: u32,
    /// Index of this host among them; `None`: it has none.
    pub node_index: Option<u32>,
    /// The fault that ended the round before; `None`: it is the first.
    pub fault: Option<Fault>,
    /// The hosts with active ranks in Slurm's words, where ranks run in a job of Slurm.
    pub slurm: Option<StepLayout>,
}

/// The role of a process in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoundMember {
    /// The process, by its initial rank.
    pub initial: Rank,
    /// Its number among all that are healthy; `None`: it is not wanted any more.
    pub rank: Option<Rank>,
    /// Its number among those that work.
    pub active: Option<Rank>,
}

impl RoundMember {
    /// The role of the process.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match (self.rank, self.active) {
            (None, _) => Mode::Terminated,
            (Some(_), Some(_)) => Mode::Active,
            (Some(_), None) => Mode::Inactive,
        }
    }
}

impl From<Leave> for FaultKind {
    fn from(leave: Leave) -> Self {
        Self::Left(leave)
    }
}
