//! Settings of a job, and the messages between launcher, agents and programs.
//!
//! Pure, as `rlaunch-base` says.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

pub mod ended;
pub mod env;
pub mod framework;
pub mod guard;
pub mod logs;
pub mod master_store;
pub mod rank_fault;
pub mod restarts;
pub mod rounds;
pub mod settings;
pub mod spec;
pub mod stream;
pub mod travel;
pub mod wire;
