//! For programs of a job: its store, and the in-process restart of a function, by way of the agent of their host.
//!
//! Everything blocks, and there is no runtime. [`Store`] runs nothing in the program's process beside what it calls; threads may share one:
//! each that asks has a connection of its own meanwhile. A forked child makes new ones. [`Restart`] has one thread of its own while its
//! function runs; a forked child has nothing to say to it.
//!
//! The same for C is `include/rlaunch.h`.

mod call_guard;
mod calls;
mod caught;
mod connection;
mod error;
mod ffi;
pub mod groups;
mod hooks;
mod idle;
mod kernel;
mod own_store;
mod restart;
mod round;
mod session;
mod spawn;
mod state;
mod store;
mod token;
mod world;

pub use error::{Error, Interrupted};
pub use hooks::BoxError;
pub use restart::{Restart, RestartError};
pub use rlaunch_protocol::wire::frozen::client::{Code, Space};
pub use round::{Handle, Round};
pub use spawn::{Program, Request, SpawnedWorld, end_world, spawn};
pub use state::{Fault, FaultKind, Leave, Mode, State};
pub use store::{Changed, Store};
pub use token::{OnInterrupt, Token};
pub use world::World;
