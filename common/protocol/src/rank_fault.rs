//! The faults by which a round ends, and their texts for ranks.

use alloc::collections::BTreeSet;
use core::fmt;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use serde::{Deserialize, Serialize};

/// Longest text of a fault, in bytes.
pub const TEXT: usize = 2 << 10;

/// How a rank came to need another round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Its function has raised an exception, or returned an error: it is still there.
    Exception,
    /// No progress for longer than the soft limit: the rank is interrupted.
    Hang,
    /// Its process has ended.
    Ended(Status),
    /// Its agent has ended it, because it did not come out of its function, or make progress, by the hard limit.
    Overdue(Status),
    /// The rank leaves of its own will: its process may continue, but takes no more part.
    #[serde(rename = "")]
    Left(Leave),
    /// Its host is lost.
    HostLost,
    /// Its host, or it, is about to be taken away: a planned round.
    Warned,
    /// A process came (back): a planned round.
    Joined,
}

/// Why a rank leaves although its process is well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename = "kind", rename_all = "snake_case")]
pub enum Leave {
    /// An exception that no restart handles: SystemExit, KeyboardInterrupt.
    BaseException,
    /// The program wants no further restart (`RestartAbort`).
    Abort,
    /// A health check has failed, or a hook that has to succeed.
    Unhealthy,
}

/// A fault, as ranks receive it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// Whose, by the number that its process keeps.
    #[serde(rename = "rank")]
    pub initial: Rank,
    /// How.
    pub kind: FaultKind,
    /// In words of the rank: type and text of an exception. At most [`TEXT`] bytes; may be empty.
    pub text: OsBytes,
}

impl Fault {
    /// The fault by which a round is named, and the number of others like it: see [`named_by`].
    #[must_use]
    pub fn first_of(faults: &[Self]) -> Option<(&Self, usize)> {
        named_by(faults, |fault| fault.kind.word())
    }

    /// Ranks that do not continue after these faults. A rank that had left, and registered again before the next round, continues.
    #[must_use]
    pub fn lost_of(faults: &[Self]) -> RankSet {
        let mut lost = BTreeSet::new();
        for fault in faults {
            if fault.kind.is_loss() {
                lost.insert(fault.initial);
            } else if fault.kind == FaultKind::Joined {
                lost.remove(&fault.initial);
            }
        }
        lost.into_iter().collect()
    }
}

impl FaultKind {
    /// Whether the rank takes no part in the next round, whatever is decided.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        match self {
            Self::Ended(_) | Self::Overdue(_) | Self::Left(_) | Self::HostLost => true,
            Self::Exception | Self::Hang | Self::Warned | Self::Joined => false,
        }
    }

    /// Its name in the event log, and for commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exception => "exception",
            Self::Hang => "hang",
            Self::Ended(_) => "ended",
            Self::Overdue(_) => "overdue",
            Self::Left(Leave::BaseException) => "base_exception",
            Self::Left(Leave::Abort) => "abort",
            Self::Left(Leave::Unhealthy) => "unhealthy",
            Self::HostLost => "host_lost",
            Self::Warned => "warned",
            Self::Joined => "joined",
        }
    }

    /// Whether the round was planned: no rank has failed.
    #[must_use]
    pub const fn is_planned(self) -> bool {
        match self {
            Self::Warned | Self::Joined => true,
            Self::Exception | Self::Hang | Self::Ended(_) | Self::Overdue(_) | Self::Left(_) | Self::HostLost => false,
        }
    }
}

/// The fault by which a round is named, and the number of others like it: the first failure, or the first planned one if no rank has
/// failed. Where a round was ended for something planned, an exception is no failure: other ranks have left already.
///
/// `word`: [`FaultKind::word`], or what a later version says instead.
pub fn named_by<'a, T>(faults: &'a [T], word: impl Fn(&'a T) -> &'a str) -> Option<(&'a T, usize)> {
    let is_planned = |fault: &'a T| [FaultKind::Warned.word(), FaultKind::Joined.word()].contains(&word(fault));
    let (first, others) = faults.split_first()?;
    if !is_planned(first) {
        return Some((first, others.iter().filter(|fault| !is_planned(fault)).count()));
    }
    let mut failures = others.iter().filter(|fault| !is_planned(fault) && word(fault) != FaultKind::Exception.word());
    match failures.next() {
        Some(failure) => Some((failure, failures.count())),
        None => Some((first, others.iter().filter(|fault| is_planned(fault)).count())),
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exception => f.write_str("exception"),
            Self::Hang => f.write_str("hang"),
            Self::Ended(status) => status.fmt(f),
            Self::Overdue(status) => write!(f, "overdue, {status}"),
            Self::Left(Leave::BaseException) => f.write_str("left"),
            Self::Left(Leave::Abort) => f.write_str("wants no restart"),
            Self::Left(Leave::Unhealthy) => f.write_str("unhealthy"),
            Self::HostLost => f.write_str("host lost"),
            Self::Warned => f.write_str("about to be taken away"),
            Self::Joined => f.write_str("joined"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_round_is_called_by_what_has_failed() {
        let of = |kinds: &[FaultKind]| {
            let fault =
                |(kind, n): (&FaultKind, u32)| Fault { initial: Rank::new(n), kind: *kind, text: OsBytes::default() };
            let all: Vec<Fault> = kinds.iter().zip(0..).map(fault).collect();
            Fault::first_of(&all).map(|(first, more)| (first.initial.get(), more))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[FaultKind::Joined, FaultKind::Warned]), Some((0, 1)));
        assert_eq!(of(&[FaultKind::Joined, FaultKind::Hang, FaultKind::Joined, FaultKind::HostLost]), Some((1, 1)));
        assert_eq!(of(&[FaultKind::Joined, FaultKind::Exception, FaultKind::Joined]), Some((0, 1)), "others have left");
        assert_eq!(of(&[FaultKind::Joined, FaultKind::Exception, FaultKind::Hang]), Some((2, 0)));
    }

    #[test]
    fn lost_ranks_differ_from_failed_ranks() {
        let left = FaultKind::Left(Leave::BaseException);
        let ended = FaultKind::Ended(Status::Lost);
        let all = [(3, left), (0, FaultKind::Exception), (2, ended), (1, FaultKind::HostLost), (3, FaultKind::Joined)];
        let faults = all.map(|(n, kind)| Fault { initial: Rank::new(n), kind, text: OsBytes::default() });
        assert_eq!(Fault::lost_of(&faults).ranges().collect::<Vec<_>>(), [(1, 2)]);
        assert!(Fault::lost_of(&[]).is_empty());
    }
}
