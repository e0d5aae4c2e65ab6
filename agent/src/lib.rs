//! wip
#![forbid(unsafe_code)]
