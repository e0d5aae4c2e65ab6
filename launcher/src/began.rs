//! When a job began.

use rlaunch_base::id::JobId;
use rlaunch_base::time::{Mono, WallNs};

/// When rlaunch was started.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    /// The name of its job, if that is known already.
    pub(crate) job: Option<JobId>,
    pub(crate) mono: Mono,
    pub(crate) wall: WallNs,
}
