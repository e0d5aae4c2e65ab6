//! The messages between our processes: frames, and the messages of each direction.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod beat;
pub mod codec;
pub mod frame;
pub mod frozen;
pub mod guardian_count;
pub mod limit;
pub mod node_news;
pub mod order;
pub mod peer_identity;
pub mod pmi1;
pub mod pmix;
pub mod probe;
pub mod round;
pub mod store;
pub mod tcpstore_wire;
#[cfg(test)]
mod tests;
pub mod to_node;
pub mod to_root;
