//! What rlaunch says: single sentences while the job runs, and the closing report, a fold of the event log.

/// One thing that rlaunch says on stderr while the job runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sentence {
    /// placeholder until the schema lands
    Nothing,
}
