//! Decisions about the bytes of ranks, without touching a descriptor. The agent cuts streams into labelled lines, keeps last words and
//! marks the begin of a round. The launcher puts pieces of many streams in an order in which no line is torn. Both count the same credit.
//! Input is read only after a rank has waited for it.

pub mod cut;
pub mod demand;
pub mod intake;
pub mod label;
pub mod lines;
pub mod mark;
pub mod tail;
pub mod turn;
pub mod window;
