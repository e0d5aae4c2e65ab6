//! Framed streams between our processes, over tokio.
#![forbid(unsafe_code)]

mod alarm;
mod connection;
pub mod diagnostics;
mod halves;
mod outbox;
pub mod ready;

pub use alarm::Alarm;
pub use connection::{Body, Closed, Connection, Early, Frame};
pub use outbox::Overflow;
