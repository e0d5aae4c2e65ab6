//! The key-value store of a job. It has one owner, and a cache on each host. Programs speak a wire of ours or that of torch's TCPStore.
//!
//! Pure, as `rlaunch-base` says.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

pub mod listener;
pub mod store;
