//! Resources of a host that must be free before ranks are started.

pub mod devices;
mod news;

pub use news::DeviceNews;
