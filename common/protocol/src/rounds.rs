//! The user's options for the in-process restart of a function, from the command line. A program's own terms have lower priority.

use alloc::string::String;
use rlaunch_base::error::hinted;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::rank_assign::{Policy, parse};

/// The options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rounds {
    /// `--assign`, or what `--spares` comes to: who plays which role after a loss.
    pub policy: Option<Policy>,
    /// `--max-rounds` and its like.
    pub limits: Limits,
    /// How long further faults are waited for after the first of a round.
    pub fault_window: Span,
    /// How long a rank may continue before it is interrupted for a round that was planned.
    pub yield_within: Span,
    /// Whether processes that have ended are started again.
    pub respawn: bool,
    /// How long such a process may take to register.
    pub respawn_timeout: Span,
    /// Which options have asked to hold ranks back, or to replace them: they do nothing for a program that does not take part.
    pub asked: OsBytes,
}

impl Rounds {
    /// The default of `yield_within`.
    pub const YIELD: Span = Span::from_secs(30);
    /// The default of `respawn_timeout`.
    pub const RESPAWN: Span = Span::from_secs(300);
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            policy: None,
            limits: Limits::default(),
            fault_window: Span::ZERO,
            yield_within: Self::YIELD,
            respawn: false,
            respawn_timeout: Self::RESPAWN,
            asked: OsBytes::default(),
        }
    }
}

/// Limits of the user or the program; `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Most rounds, the first included. Planned ones do not count.
    pub max_rounds: Option<u32>,
    /// Fewest healthy ranks.
    pub min_world: Option<u32>,
    /// Fewest active ranks.
    pub min_active: Option<u32>,
    /// A rank that has more faults of its own than this takes no part any more.
    pub max_rank_faults: Option<u32>,
}

impl Limits {
    /// The limits of the command line, and the program's where it sets none.
    #[must_use]
    pub fn or(self, program: Self) -> Self {
        Self {
            max_rounds: self.max_rounds.or(program.max_rounds),
            min_world: self.min_world.or(program.min_world),
            min_active: self.min_active.or(program.min_active),
            max_rank_faults: self.max_rank_faults.or(program.max_rank_faults),
        }
    }
}

/// Reads a policy that a program asks for: words, or the text of a file, which the launcher's edges understand.
#[derive(Clone, Copy, Debug)]
pub struct PolicyReader(pub fn(&str) -> Result<Policy, String>);

/// Words alone.
impl Default for PolicyReader {
    fn default() -> Self {
        Self(|text| parse::policy(text).map_err(|error| hinted(&error)))
    }
}

/// A reader is no part of what is read.
impl PartialEq for PolicyReader {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for PolicyReader {}
