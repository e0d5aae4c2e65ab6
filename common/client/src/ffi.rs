//! The only room of this crate with unsafe code: the face for C (`include/rlaunch.h`, which a test compares with it), and what the kernel
//! offers and no safe crate does.
//!
//! Panics do not cross the border: what a call does runs in [`error::guarded`]. What callers give us is as the header says; beyond that,
//! pointers are looked at whether they are null, and lengths are the callers'.
#![allow(unsafe_code, reason = "this is the room for it; every block says why it is sound")]
#![allow(unreachable_pub, reason = "C reaches what Rust does not")]

mod error;
pub(crate) mod gloo;
pub(crate) mod kernel;
mod run;
mod session;
mod store;
#[cfg(test)]
mod tests;
mod types;
mod world;
