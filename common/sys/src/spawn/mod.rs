//! Starting ranks: one permanent thread, a vfork-class clone over prepared memory, nothing but system calls between fork
//! and exec.

mod clone;
mod memory_policy;
mod prepare;
mod slots;
mod spawn_thread;

pub use clone::{Failure, Found, Step};
pub use prepare::{PreparedApp, PreparedExec, Strings};
pub use spawn_thread::{Launched, Outcome, SpawnPort, stream_token};
