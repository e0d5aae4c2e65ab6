//! The reasons why no further round is possible, and the words for them.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use rlaunch_base::error::hinted;
use rlaunch_base::id::Rank;
use rlaunch_base::time::Span;
use rlaunch_plan::rank_assign::{AssignError, Policy};
use rlaunch_protocol::rank_fault::FaultKind;

/// Reason why no further round is possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// No healthy rank is left.
    NoHealthyRank,
    /// The limit of rounds is reached.
    MaxRounds {
        /// Number of rounds that have begun.
        begun: u32,
        /// The limit.
        limit: SetLimit,
    },
    /// Fewer ranks are healthy than the limit asks for.
    MinWorld {
        /// Number of healthy ranks.
        healthy: u32,
        /// The limit.
        limit: SetLimit,
    },
    /// Fewer ranks can work than the limit asks for.
    MinActive {
        /// Number of ranks that can work.
        active: u32,
        /// The limit.
        limit: SetLimit,
    },
    /// Rounds in a row have ended without progress.
    NoProgress(QuickRounds),
    /// The policy discards all healthy ranks.
    AllDiscarded {
        /// The policy.
        policy: Box<Policy>,
        /// Number of healthy ranks that the policy could choose from.
        healthy: usize,
    },
    /// The policy keeps healthy ranks and makes none of them active.
    NoneActive {
        /// The policy.
        policy: Box<Policy>,
        /// Number of healthy ranks.
        healthy: u32,
    },
    /// The policy cannot number the ranks.
    Assign(AssignError),
}

/// Value of a limit, and where the limit is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetLimit {
    /// The value.
    pub value: u32,
    /// The command line sets the limit. If not, the program does.
    pub is_option: bool,
}

/// Rounds in a row that ended soon after their begin, all by a fault of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuickRounds {
    /// Number of rounds.
    pub rounds: u32,
    /// All faults have the same text.
    pub is_same_text: bool,
    /// The kind of the faults.
    pub kind: FaultKind,
    /// The rank that ended the last round.
    pub last: Rank,
    /// The same rank ended all rounds.
    pub is_same_rank: bool,
    /// Each round ended within this time of its begin.
    pub within: Span,
    /// `--give-up-after`, which has passed.
    pub limit: Span,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHealthyRank => f.write_str("no healthy rank is left"),
            Self::MaxRounds { begun, limit } => {
                let rounds = if *begun == 1 { "1 round has".to_string() } else { format!("{begun} rounds have") };
                write!(f, "{rounds} begun, and {} allows no more", limit.named("max-rounds"))
            }
            Self::MinWorld { healthy, limit } => {
                write!(f, "{} healthy, and {} asks for more", ranks(*healthy), limit.named("min-world"))
            }
            Self::MinActive { active, limit } => {
                write!(f, "{} able to work, and {} asks for more", ranks(*active), limit.named("min-active"))
            }
            Self::NoProgress(rounds) => rounds.fmt(f),
            Self::AllDiscarded { policy, healthy } => {
                let ranks = if *healthy == 1 { "1 healthy rank".into() } else { format!("{healthy} healthy ranks") };
                write!(f, "the policy {policy} has none of the {ranks} left to it go on")
            }
            Self::NoneActive { policy, healthy } => {
                let ranks =
                    if *healthy == 1 { "the 1 rank that is".into() } else { format!("the {healthy} ranks that are") };
                write!(f, "the policy {policy} has none of {ranks} healthy work")
            }
            Self::Assign(error) => f.write_str(&hinted(error)),
        }
    }
}

impl fmt::Display for QuickRounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, is_same_text, kind, last, is_same_rank, within, limit } = self;
        let way = if *is_same_text { " in the same way" } else { "" };
        let quick = match kind {
            FaultKind::Hang => format!("each silent from within {within} of its begin"),
            FaultKind::Exception | FaultKind::Ended(_) | FaultKind::Overdue(_) | FaultKind::Left(_) => {
                format!("each within {within} of its begin")
            }
            FaultKind::HostLost | FaultKind::Warned | FaultKind::Joined => format!("each within {within} of its begin"),
        };
        if *is_same_rank {
            write!(
                f,
                "initial rank {last} has ended {rounds} rounds in a row{way} ({kind}), {quick} (--give-up-after {limit})"
            )
        } else {
            write!(
                f,
                "{rounds} rounds in a row have ended{way} ({kind}), {quick}, the last by initial rank {last} (--give-up-after {limit})"
            )
        }
    }
}

impl SetLimit {
    /// The limit's name and value.
    fn named(self, name: &str) -> String {
        format!("{} {}", limit_name(name, self.is_option), self.value)
    }
}

/// The name of a limit at the place where it is set: on the command line, or by the program.
pub(super) fn limit_name(name: &str, is_option: bool) -> String {
    if is_option { format!("--{name}") } else { format!("the program's {}", name.replace('-', "_")) }
}

fn ranks(count: u32) -> String {
    match count {
        0 => "no rank is".into(),
        1 => "1 rank is".into(),
        n => format!("{n} ranks are"),
    }
}
