//! The agent's machine: the life of the ranks of one node, from the first message to the count of what is left.
//!
//! [`Node`] only routes. Each concern is a private sub-machine in its own file that changes only itself and speaks to the
//! others by notices.

mod event;

pub use event::{ExecSpec, Ground, GroundPlan, NodeAction, NodeEvent, Scope};
