//! Wires that stay as they are: who speaks them may be of another version than we are.

pub mod calls;
pub mod client;
pub(in crate::wire) mod fields;
pub mod pool;

pub use fields::Malformed;
