//! wip
#![forbid(unsafe_code)]
fn main() {}
