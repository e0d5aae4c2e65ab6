//! Remarks about rounds: data for the event log. The view composes the sentences.

use super::rank_fault::FaultKind;
use crate::id::Rank;
use crate::os_bytes::OsBytes;
use crate::rank_assign::Misplaced;
use crate::rank_set::RankSet;
use crate::status::Status;
use crate::time::Span;
use alloc::vec::Vec;

/// A limit on the faults of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultLimit {
    /// Faults that a rank may have.
    pub most: u32,
    /// Whether the command line has set it, and not the program.
    pub is_option: bool,
}

/// Time by which the options of the command line are known to have no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unused {
    /// This rank has exited, and no rank has registered.
    Exited(Rank),
    /// No rank has registered within this time.
    Within(Span),
}

/// An option of the command line that wins over what the program asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Override {
    /// The policy.
    Policy {
        /// The policy of the command line.
        option: OsBytes,
        /// The program's. `None`: another one that reads alike.
        program: Option<OsBytes>,
    },
    /// A limit.
    Limit {
        /// The option, without dashes.
        name: &'static str,
        /// The value on the command line.
        option: u32,
        /// The program's value.
        program: u32,
    },
}

/// Something about rounds that the user should know, and that is no round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Remark {
    /// Options of the command line win over what the program asks for.
    Overrides {
        /// Which.
        options: Vec<Override>,
    },
    /// Restart options are set, and no rank uses the client.
    OptionsUnused {
        /// The options, as the user wrote them.
        options: OsBytes,
        /// How that is known.
        when: Unused,
        /// The number of ranks.
        ranks: u32,
    },
    /// More faults are waited for before ranks are interrupted (`--fault-window`).
    FaultWindow {
        /// The first fault's rank.
        initial: Rank,
        /// The first fault.
        kind: FaultKind,
        /// How long.
        window: Span,
    },
    /// A rank is ended although no round ends by it.
    Ended {
        /// The rank.
        initial: Rank,
        /// The reason.
        reason: OsBytes,
    },
    /// More ranks are ended in the same way, and are not named.
    MoreEnded,
    /// The next round begins after a pause: the last ones failed one after the other.
    Paused {
        /// The pause.
        pause: Span,
    },
    /// One rank has ended many rounds in a row.
    Repeats {
        /// The rank.
        initial: Rank,
        /// How many rounds.
        rounds: u32,
    },
    /// A rank takes no part any more, because of its faults.
    Excluded {
        /// The rank.
        initial: Rank,
        /// Its faults.
        faults: u32,
        /// The limit.
        limit: FaultLimit,
    },
    /// A rank is not started again, because of its faults.
    NotRestarted {
        /// The rank.
        initial: Rank,
        /// Its faults.
        faults: u32,
        /// The limit.
        limit: FaultLimit,
    },
    /// A rank is not started again: its last processes could not be started, or exited at once.
    StartsFailed {
        /// The rank.
        initial: Rank,
        /// How many in a row.
        tries: u32,
    },
    /// The next process of a rank starts after a pause: its last ones exited soon.
    StartDelayed {
        /// The rank.
        initial: Rank,
        /// How many in a row.
        exits: u32,
        /// The pause.
        pause: Span,
    },
    /// A new process of a rank has exited before its first round.
    ExitedEarly {
        /// The rank.
        initial: Rank,
        /// How.
        status: Status,
    },
    /// A new process of a rank has failed before its first round.
    FailedEarly {
        /// The rank.
        initial: Rank,
        /// How.
        kind: FaultKind,
    },
    /// A new process of a rank has not registered in time, and is ended.
    RegisteredLate {
        /// The rank.
        initial: Rank,
        /// The time that it had.
        within: Span,
    },
    /// SIGKILL does not end the process of a rank.
    Stuck {
        /// The rank.
        initial: Rank,
        /// Its host; empty: the only one.
        host: OsBytes,
    },
    /// No host has room for ranks of lost hosts.
    NoRoom {
        /// The ranks.
        ranks: RankSet,
        /// The lost hosts.
        hosts: OsBytes,
        /// Whether GPUs are missing, too.
        lacks_gpus: bool,
    },
    /// A rank that has come back waits for the next round, in which no more ranks would work than now.
    WaitsForRound {
        /// The rank.
        initial: Rank,
    },
    /// The policy cannot use new ranks now.
    Unusable {
        /// The ranks.
        ranks: RankSet,
        /// The policy's reason.
        reason: OsBytes,
    },
    /// The policy cannot continue after a planned round: all ranks continue as before.
    Unchanged {
        /// The policy's reason.
        reason: OsBytes,
    },
    /// The policy cannot continue without the ranks that are about to be taken away: they continue until then.
    KeepsWarned {
        /// The policy's reason.
        reason: OsBytes,
    },
    /// The numbers of initial ranks do not follow the topology.
    Misplaced(Misplaced),
    /// The host of rank 0 could reserve no port for a round.
    NoPort {
        /// The host.
        host: OsBytes,
    },
}
