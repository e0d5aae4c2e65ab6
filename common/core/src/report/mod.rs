//! The messages of rlaunch as values: single sentences while the job runs, and the closing report, a fold of the event log.
//!
//! Both are values. The launcher decides their words, and whether they are printed at all (`-q`, a pipe).

mod fold;
mod rounds;
mod sentence;

pub use fold::{Became, Began, End, Fate, Group, RankLine, Report, Restarted, fold};
pub use rounds::{Behind, RoundLine, Rounds};
pub use sentence::{Fewer, Sentence};
