//! What is decided about the bytes of ranks, without touching a descriptor: the agent cuts streams into labelled lines,
//! keeps last words and marks where a round begins; the launcher puts pieces of many streams in an order in which no line is torn;
//! and both count the same credit.

pub mod cut;
pub mod label;
pub mod lines;
pub mod mark;
pub mod tail;
pub mod turn;
pub mod window;
