//! Check of a MASTER_ADDR that the user gave.
//!
//! Ranks on other hosts wait without a message for a rendezvous that they cannot reach. A wrong address is therefore refused before any
//! rank starts.

use core::net::IpAddr;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::master_store::{ForRank0, Holder};
use rlaunch_protocol::wire::peer_identity::{Address, HOST_ADDRESSES};
use rlaunch_protocol::wire::to_root::{Hello, NodeRefusal};

/// Most addresses that a refusal suggests.
const SUGGESTED: usize = 4;
/// Names of the loopback interface in the hosts files of Debian and Red Hat. Names under `localhost` belong to it too (RFC 6761, 6.3).
const LOOPBACK_NAMES: [&str; 6] =
    ["localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"];

/// The facts about an address that the user gave.
pub(super) struct Given<'a> {
    pub(super) addr: &'a OsBytes,
    /// Ranks run on several hosts.
    pub(super) is_shared: bool,
    /// The address is the name of a host of the job without rank 0.
    pub(super) is_other_host: bool,
    pub(super) holder: Holder,
    /// The hello of rank 0's host.
    pub(super) hello: Option<&'a Hello>,
}

/// Why the ranks could not meet at the address. An address that only others use for rank 0's host (NAT) needs `--master-store rank0`.
pub(super) fn fault(given: &Given<'_>) -> Option<NodeRefusal> {
    let Given { addr, is_shared, is_other_host, holder, hello } = given;
    let is_loopback = *is_shared && is_loopback(addr);
    let may_be_translated = *holder == Holder::Rank0(ForRank0::Asked);
    let must_be_own = holder.is_agent() || (*is_shared && !may_be_translated);
    let is_wrong = is_loopback || (must_be_own && (*is_other_host || !is_of(addr, *hello)));
    is_wrong.then(|| NodeRefusal::MasterAddr { addr: (*addr).clone(), is_loopback, has: list(*hello) })
}

/// Whether a host can listen at the address. A name is not resolved, and a host whose addresses are unknown may have any address.
pub(super) fn is_of(addr: &OsBytes, hello: Option<&Hello>) -> bool {
    let own = hello.map(|hello| &*hello.addresses).unwrap_or_default();
    let is_complete = (1..HOST_ADDRESSES).contains(&own.len());
    !is_complete || parse(addr).is_none_or(|at| at.is_loopback() || own.contains(&Address::from(at)))
}

/// Whether every host takes the address for itself.
fn is_loopback(addr: &[u8]) -> bool {
    if let Some(addr) = parse(addr) {
        return addr.is_loopback() || addr.is_unspecified();
    }
    let name = addr.strip_suffix(b".").unwrap_or(addr);
    // The short forms of inet_aton(3): 127.1.
    let is_short = name.starts_with(b"127.") && name.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    let top = name.rsplit(|b| *b == b'.').next().unwrap_or_default();
    is_short
        || top.eq_ignore_ascii_case(b"localhost")
        || LOOPBACK_NAMES.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
}

fn parse(addr: &[u8]) -> Option<IpAddr> {
    core::str::from_utf8(addr).ok()?.parse::<IpAddr>().ok().map(|addr| addr.to_canonical())
}

/// Addresses at which other hosts find this one, separated by blanks.
fn list(hello: Option<&Hello>) -> OsBytes {
    let at = hello.and_then(|hello| hello.reached.as_ref()).map(|reached| &*reached.at).unwrap_or_default();
    let at: alloc::vec::Vec<&[u8]> = at.iter().take(SUGGESTED).map(OsBytes::as_slice).collect();
    OsBytes::new(at.join(&b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_and_names_are_known() {
        for addr in [
            "127.0.0.1",
            "127.0.1.1",
            "127.1",
            "::1",
            "0.0.0.0",
            "::",
            "::ffff:127.0.0.1",
            "localhost",
            "LocalHost",
            "localhost.",
            "a.localhost",
            "localhost.localdomain",
            "ip6-localhost",
        ] {
            assert!(is_loopback(addr.as_bytes()), "{addr}");
        }
        for addr in ["10.0.0.1", "fe80::1", "::ffff:10.0.0.1", "localhost.example", "mylocalhost", "127.example", ""] {
            assert!(!is_loopback(addr.as_bytes()), "{addr}");
        }
    }
}
