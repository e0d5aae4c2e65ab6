//! Every decision rlaunch makes, every message it sends and every text it parses, as pure values and state machines.
//!
//! `no_std` is the wall: a file, a socket, a clock, an environment variable, a thread, a print or a `HashMap` (whose
//! order would break replay) does not compile here. Time, randomness and the environment are inputs.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

pub mod address;
pub mod allocation;
pub mod backoff;
pub mod bind;
pub mod bootstrap;
pub mod by_rank;
pub mod capped;
pub mod cpu_set;
pub mod deadlines;
pub mod discover;
pub mod dispatch;
pub mod duration;
pub mod elf;
pub mod ended;
pub mod env;
pub mod errno;
pub mod error;
pub mod events;
pub mod exit;
pub mod file_pattern;
pub mod framework;
pub mod gpus;
pub mod guard;
pub mod hooks;
pub mod hostlist;
pub mod id;
pub mod interpreter;
pub mod job;
mod json;
pub mod listener;
pub mod logs;
pub mod machine;
pub mod master_store;
pub mod metadata;
pub mod mpi;
pub mod nearest;
pub mod node;
pub mod os_bytes;
pub mod os_strings;
pub mod patience;
pub mod place;
pub mod pool;
pub mod rank_assign;
pub mod rank_fault;
pub mod rank_set;
pub mod report;
pub mod restart;
pub mod restarts;
pub mod rounds;
pub mod settings;
pub mod sharding;
pub mod shell;
pub mod signal;
pub mod slices;
pub mod spec;
pub mod status;
pub mod store;
pub mod stream;
pub mod template;
pub mod time;
pub mod timeline;
pub mod topology;
pub mod tpu;
pub mod travel;
pub mod unproven;
pub mod warnings;
pub mod wire;
