//! The client of the cloud's metadata server: numeric addresses only, no proxy, no redirect.

mod attributes;
mod pool_watch;
mod watching;

pub use attributes::read_attributes;
pub use pool_watch::wait_for_warning;
pub(super) use watching::Watching;

use rlaunch_plan::metadata::{ADDRESS, HOST_VARIABLE, PRODUCT_FILE, is_google};
use std::net::{IpAddr, SocketAddr};

/// The port of an address without one.
const PORT: u16 = 80;

/// The address of the metadata server, where this host has one: in GCE_METADATA_HOST, or the known one on a machine of Google's.
#[must_use]
pub fn server() -> Option<SocketAddr> {
    let named = std::env::var(HOST_VARIABLE).ok().and_then(|text| parse_address(&text));
    named.or_else(|| {
        let product = std::fs::read(PRODUCT_FILE).ok()?;
        if is_google(&product) { ADDRESS.parse().ok() } else { None }
    })
}

/// An address with or without a port. A name is none: nothing is looked up.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT)))
}

#[cfg(test)]
mod tests;
