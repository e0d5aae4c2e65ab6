//! Values that every part uses: identifiers, times, signals, texts, sets of ranks.
//!
//! `no_std` is the wall: files, sockets, clocks, threads and prints do not compile here. The order of a `HashMap` would break
//! replay, and there is none. Time, randomness and the environment are inputs.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

pub mod address;
pub mod backoff;
pub mod by_rank;
pub mod capped;
pub mod cpu_set;
pub mod deadlines;
pub mod duration;
pub mod elf;
pub mod errno;
pub mod error;
pub mod exit;
pub mod file_pattern;
pub mod id;
pub mod interpreter;
pub mod json;
pub mod machine;
pub mod nearest;
pub mod os_bytes;
pub mod os_strings;
pub mod patience;
pub mod rank_set;
pub mod shell;
pub mod signal;
pub mod status;
pub mod template;
pub mod time;
pub mod unproven;
pub mod warnings;
