//! What rlaunch says: single sentences while the job runs, and the closing report, a fold of the event log.
//!
//! Both are values. Which words they become, and whether they are said at all (`-q`, a pipe), is the launcher's to decide.

mod fold;
mod rounds;
mod sentence;

pub use fold::{Became, Began, End, Fate, Group, RankLine, Report, Restarted, fold};
pub use rounds::{Behind, RoundLine, Rounds};
pub use sentence::{Fewer, Sentence};
