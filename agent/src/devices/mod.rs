//! Devices of this host that one process at a time can use, their holders, and their release.
//!
//! A search for holders reads /proc of every process. An agent does it on a thread of its own, never on the machine thread.

mod free;
mod look;

pub use free::{Freed, Freeing, lock_files, lock_news};
pub(crate) use look::is_tpu_container;
pub use look::{Holder, Look, Site};
