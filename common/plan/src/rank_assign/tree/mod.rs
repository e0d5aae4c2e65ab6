//! A tree of groups (hosts in racks, say) that says in each layer how many ranks it needs and takes, and where replacements come
//! from (NVRx: `Tree`).
//!
//! The leaves are the ranks, for good: a lost one keeps its place, so that it can come back to it. Each inner node stands for a
//! run of leaves in the order of the tree, so that what holds below it is a look at a slice. The assignment of a round ([`tree_round`]) is a few
//! passes over all leaves.

mod backfill;
mod filter;
mod regrow;
mod reserve;
mod topology;
mod tree_round;
mod tree_spec;

pub use filter::{Filter, Grows};
pub(super) use topology::Topology;
pub(super) use tree_round::assign;
pub use tree_spec::{Flags, Layer, Tree};
