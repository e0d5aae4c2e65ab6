//! Diagnostics for us, off by default. Both ends of an edge write them the same way.

use std::io;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Writes diagnostics to stderr from now on. `filter` is a level, or `target=level` pairs with commas; what is neither
/// means everything, since whoever set it wants to see something.
pub fn start(filter: &[u8]) {
    let filter = String::from_utf8_lossy(filter);
    let targets = filter.parse().unwrap_or_else(|_| Targets::new().with_default(Level::TRACE));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false);
    // It can only have been started before; then it stays as it was.
    let _started = tracing_subscriber::registry().with(lines).with(targets).try_init();
}
