//! Framed streams between our processes, over tokio.
#![forbid(unsafe_code)]

mod alarm;
mod connection;
pub mod diagnostics;
mod early;
mod frames;
mod halves;
mod inbox;
mod outbox;
pub mod ready;
pub mod seal;

pub use alarm::Alarm;
pub use connection::Connection;
pub use early::Early;
pub use frames::{Body, Closed, Frame};
pub use outbox::Overflow;
