//! The event log's records: a frozen, versioned schema (`"v":1`), one JSON object per line. The report is a fold of it.

use crate::time::Mono;

/// One thing that happened, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The launcher's monotonic clock when it learned of it.
    pub mono: Mono,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// Superseded by the schema.
    Nothing,
}
