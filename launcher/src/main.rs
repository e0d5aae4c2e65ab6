//! wip
#![forbid(unsafe_code)]

#[cfg_attr(not(test), expect(dead_code, reason = "the driver that says these words is not here yet"))]
mod view;

fn main() {}
