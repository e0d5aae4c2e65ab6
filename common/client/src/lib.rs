//! For programs of a job: its store, by way of the agent of their host.
//!
//! Everything blocks, and nothing runs in the program's process beside what it calls: no thread, no runtime. Threads may share a
//! [`Store`]; each that asks has a connection of its own meanwhile. A forked child makes new ones.
#![forbid(unsafe_code)]

mod connection;
mod error;
mod idle;
mod store;

pub use error::Error;
pub use rlaunch_core::wire::frozen::client::{Code, Space};
pub use store::{Changed, Store};
