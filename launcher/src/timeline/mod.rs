//! Pictures of a job over time: `rlaunch report --timeline`. The words in them are the view's.

pub(crate) mod chrome;
mod lanes;
pub(crate) mod svg;

#[cfg(test)]
mod tests;
