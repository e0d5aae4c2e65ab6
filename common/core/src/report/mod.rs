//! The messages of rlaunch as values: single sentences while the job runs, and the closing report, a fold of the event log.
//!
//! Both are values. The launcher decides their words, and whether they are printed at all (`-q`, a pipe).

mod event_fold;
mod round_summary;
mod sentence;

pub use event_fold::{Became, Began, End, Fate, Group, RankLine, Report, Restarted, fold};
pub use round_summary::{Behind, RoundLine, Rounds};
pub use sentence::{Fewer, Sentence};
