//! The closing report as a value, a fold of the event log. The launcher decides its words, and whether it is printed at all (`-q`, a pipe).

#![allow(clippy::wildcard_enum_match_arm, reason = "a reader of facts names those that it cares about")]

mod became;
mod event_fold;
mod forgotten;
mod groups;
mod round_summary;

pub use became::Became;
pub use event_fold::{Began, End, Fate, Group, RankLine, Report, Restarted, fold};
pub use forgotten::Forgotten;
pub use round_summary::{Behind, RoundLine, Rounds};
