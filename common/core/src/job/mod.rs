//! The launcher's machine: what a job is waiting for, when it ends, and why it ended.
//!
//! [`Job`] only routes. Each concern is a private sub-machine in its own file that changes only itself and speaks to the
//! others by notices.

mod event;

pub use event::{CloseReason, GuardianEnd, JobAction, JobEvent};
