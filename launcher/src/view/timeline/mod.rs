//! A job over time in words: `rlaunch report`.

pub(crate) mod summary;
pub(crate) mod words;
