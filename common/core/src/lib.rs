//! The machines of launcher and agent, the facts that they report, and the readers of facts.
//!
//! Pure, as `rlaunch-base` says.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

pub mod events;
pub mod hooks;
pub mod job;
pub mod node;
pub mod pool;
pub mod report;
pub mod timeline;
