//! Remarks about rounds: data for the event log. The view composes the sentences.

use alloc::vec::Vec;
use rlaunch_base::id::Rank;
use rlaunch_base::json;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_plan::rank_assign::Misplaced;
use rlaunch_protocol::rank_fault::FaultKind;
use serde::{Serialize, Serializer};

/// A limit on the faults of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct FaultLimit {
    /// Faults that a rank may have.
    #[serde(rename = "limit")]
    pub most: u32,
    /// Whether the command line has set it, and not the program.
    #[serde(rename = "option")]
    pub is_option: bool,
}

/// Time by which the options of the command line are known to have no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename = "")]
pub enum Unused {
    /// A rank has exited, and no rank has registered.
    #[serde(rename = "rank")]
    Exited(Rank),
    /// No rank has registered within this time.
    #[serde(rename = "within")]
    Within(Span),
}

/// An option of the command line that wins over what the program asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename = "name")]
pub enum Override {
    /// The policy.
    #[serde(rename = "policy")]
    Policy {
        /// The policy of the command line.
        option: OsBytes,
        /// The program's. `None`: another one that reads alike.
        #[serde(serialize_with = "or_empty")]
        program: Option<OsBytes>,
    },
    /// A limit.
    #[serde(rename = "")]
    Limit {
        /// The option, without dashes.
        name: &'static str,
        /// The value on the command line.
        option: u32,
        /// The program's value.
        program: u32,
    },
}

fn or_empty<S: Serializer>(text: &Option<OsBytes>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(text.as_ref().map_or(&[], OsBytes::as_slice))
}

/// Something about rounds that the user should know, and that is no round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename = "kind", rename_all = "snake_case")]
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
        #[serde(rename = "")]
        when: Unused,
        /// The number of ranks.
        #[serde(rename = "world_size")]
        ranks: u32,
    },
    /// More faults are waited for before ranks are interrupted (`--fault-window`).
    FaultWindow {
        /// The first fault's rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// The first fault.
        #[serde(rename = "fault", serialize_with = "json::text")]
        kind: FaultKind,
        /// How long.
        window: Span,
    },
    /// A rank is ended although no round ends by it.
    #[serde(rename = "rank_ended")]
    Ended {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// The reason.
        reason: OsBytes,
    },
    /// More ranks are ended in the same way, and are not named.
    #[serde(rename = "more_ranks_ended")]
    MoreEnded,
    /// The next round begins after a pause: the last ones failed one after the other.
    Paused {
        /// The pause.
        pause: Span,
    },
    /// One rank has ended many rounds in a row.
    #[serde(rename = "rank_repeats")]
    Repeats {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// How many rounds.
        rounds: u32,
    },
    /// A rank takes no part any more, because of its faults.
    #[serde(rename = "rank_excluded")]
    Excluded {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// Its faults.
        faults: u32,
        /// The limit.
        #[serde(rename = "")]
        limit: FaultLimit,
    },
    /// A rank is not started again, because of its faults.
    #[serde(rename = "rank_not_restarted")]
    NotRestarted {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// Its faults.
        faults: u32,
        /// The limit.
        #[serde(rename = "")]
        limit: FaultLimit,
    },
    /// A rank is not started again: its last processes could not be started, or exited at once.
    StartsFailed {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// How many in a row.
        tries: u32,
    },
    /// The next process of a rank starts after a pause: its last ones exited soon.
    StartDelayed {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// How many in a row.
        exits: u32,
        /// The pause.
        pause: Span,
    },
    /// A new process of a rank has exited before its first round.
    ExitedEarly {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// How.
        #[serde(rename = "")]
        status: Status,
    },
    /// A new process of a rank has failed before its first round.
    FailedEarly {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// How.
        #[serde(rename = "fault", serialize_with = "json::text")]
        kind: FaultKind,
    },
    /// A new process of a rank has not registered in time, and is ended.
    RegisteredLate {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
        /// The time that it had.
        within: Span,
    },
    /// SIGKILL does not end the process of a rank.
    #[serde(rename = "process_stuck")]
    Stuck {
        /// The rank.
        #[serde(rename = "rank")]
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
    #[serde(rename = "rank_waits")]
    WaitsForRound {
        /// The rank.
        #[serde(rename = "rank")]
        initial: Rank,
    },
    /// The policy cannot use new ranks now.
    #[serde(rename = "ranks_unusable")]
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
