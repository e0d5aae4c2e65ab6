//! Hosts with TPU chips.

pub mod chips;
