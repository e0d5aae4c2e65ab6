//! Which ranks and devices go to which hosts. A job's hosts come from lists and schedulers. Placement, policies and shares of calls are
//! computed here.
//!
//! Pure, as `rlaunch-base` says.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

pub mod allocation;
pub mod bind;
pub mod bootstrap;
pub mod discover;
pub mod dispatch;
pub mod gpus;
pub mod hostlist;
pub mod metadata;
pub mod place;
pub mod rank_assign;
pub mod sharding;
pub mod slices;
pub mod topology;
pub mod tpu;
