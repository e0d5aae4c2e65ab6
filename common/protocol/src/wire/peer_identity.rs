//! Whose a connection is: what the agent that holds a store asks, through the launcher, of the host that a connection comes from.
//!
//! The launcher's edges pass these on by the addresses that hosts have; no machine decides anything by them.

use crate::master_store::Guard;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::NodeId;
use serde::{Deserialize, Serialize};

/// Most connections in one message.
pub const BATCH: usize = 256;
/// Most addresses of a host that are sent.
pub const HOST_ADDRESSES: usize = 64;

/// An address as a message has it: an IPv4 one stands within one of IPv6 (RFC 4291, 2.5.5.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Address([u8; 16]);

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self(match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        })
    }
}

impl Address {
    /// A number in place of that of a process, where it does not matter which process of a host connects.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.as_chunks::<8>().0.iter().fold(0, |all, half| all.rotate_left(32) ^ u64::from_ne_bytes(*half))
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        Ipv6Addr::from(address.0).to_canonical()
    }
}

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct End {
    /// The address of the host.
    pub address: Address,
    /// Its port.
    pub port: u16,
}

impl From<SocketAddr> for End {
    fn from(end: SocketAddr) -> Self {
        Self { address: end.ip().into(), port: end.port() }
    }
}

impl From<End> for SocketAddr {
    fn from(end: End) -> Self {
        Self::new(end.address.into(), end.port)
    }
}

/// A connection that has come to a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Comer {
    /// The end that it comes from.
    pub from: End,
    /// Its number among those that came to this store: an answer about one does not hold for another, which comes from the same port
    /// later.
    pub number: u64,
}

/// Connections to a store whose owners are to be found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    /// The asking node.
    pub asker: NodeId,
    /// The address of the store.
    pub to: End,
    /// Which they are.
    pub comers: Capped<Comer, BATCH>,
    /// Whom it serves.
    pub guard: Guard,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The node that has asked.
    pub asker: NodeId,
    /// The verdicts about some of the connections.
    pub verdicts: Capped<Verdict, BATCH>,
}

/// The knowledge about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Which it is.
    pub comer: Comer,
    /// A number for the process of the job that holds it; `None`: no process of the job does.
    pub member: Option<u64>,
    /// Whether it comes from an address that no host of the job has, or several.
    pub foreign: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_itself_again_and_of_the_family_it_was() {
        for text in ["10.0.0.1:7", "[fe80::1]:65535", "127.0.0.1:0"] {
            let end: SocketAddr = text.parse().unwrap();
            assert_eq!(SocketAddr::from(End::from(end)), end);
        }
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:7".parse().unwrap();
        assert_eq!(SocketAddr::from(End::from(mapped)), "10.0.0.1:7".parse().unwrap());
    }
}
