//! TPU hosts: their facts, the slices that they form, and the variables that programs expect there.
//!
//! A *slice* is a group of TPU hosts that are wired together. A program runs on all of them or on none. libtpu waits for the others
//! without end.

mod bounds;
pub mod chips;
mod environment;
mod facts;
mod slices;

pub use bounds::Bounds;
pub use environment::{RankChips, TpuHost};
pub use facts::{Attributes, FactsSource, PEERS, TpuFacts};
pub use slices::{SliceError, SliceHost, plan};
