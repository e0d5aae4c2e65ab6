//! A MASTER_PORT for a job: eight ports in a row that are free now and that no other rlaunch job of this host will take.
//!
//! The reservation is an abstract unix name, `\0rlaunch-port-N`: it has the port's scope (the network namespace), is
//! nothing on disk, and goes with its owner. No TCP socket is held, because a held one breaks programs that bind without
//! SO_REUSEADDR. The ports lie outside `ip_local_port_range`, so that no outgoing connection takes them.

pub mod claim;

use crate::abstract_name::hold;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Ports in a block: frameworks bind MASTER_PORT + 1, + 2 … too.
pub const BLOCK: u16 = 8;
/// How many blocks are tried before we continue without a reservation: a stranger who has taken all names costs no more.
const TRIES: u32 = 48;
const LOWEST: u16 = 10_000;

/// A chosen port, or one that the user gave.
#[derive(Debug)]
pub struct Port {
    /// The first of the block, or the given one.
    pub number: u16,
    /// Holds the reservation; `None`: all names tried were taken.
    pub reservation: Option<OwnedFd>,
    /// Holds the name of the job; only of a given port.
    pub label: Option<OwnedFd>,
}

/// Chooses a block. `random` decides where the search begins.
///
/// # Errors
/// `AddrInUse`: no block that was tried is free. Else what ran out.
pub fn choose(random: u64) -> io::Result<Port> {
    let (low, high) = local_range();
    let blocks = Blocks::outside(low, high);
    let mut unreserved = None;
    let mut state = random;
    for _ in 0..TRIES {
        // Steele and Vigna's SplitMix64 step: well spread, and reproducible from one input.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let port = blocks.nth((mixed ^ (mixed >> 27)) % blocks.count());
        let name = match hold(&reservation(port)) {
            Ok(held) => Some(held),
            Err(error) if crate::is_shortage(&error) => return Err(error),
            Err(_) if unreserved.is_some() => continue,
            Err(_) => None,
        };
        if !all_free(port)? {
            continue;
        }
        match name {
            Some(held) if !claim::is_in(port)? => {
                return Ok(Port { number: port, reservation: Some(held), label: None });
            }
            // The names may be a stranger's, which must not keep us from the ports.
            _ => unreserved = Some(port),
        }
    }
    match unreserved {
        Some(number) => Ok(Port { number, reservation: None, label: None }),
        None => Err(io::Error::from(io::ErrorKind::AddrInUse)),
    }
}

/// The name that reserves a block.
fn reservation(first: u16) -> String {
    format!("rlaunch-port-{first}")
}

/// Whether a block is free; an error where that cannot be found out.
fn all_free(first: u16) -> io::Result<bool> {
    for port in first..first + BLOCK {
        match is_free(port).map_err(io::Error::from) {
            Ok(()) => {}
            Err(error) if crate::is_shortage(&error) => return Err(error),
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Binds the port for a moment, and never listens. With SO_REUSEADDR one in TIME_WAIT counts as free; one with a listener,
/// or bound without that option, does not (socket(7)).
fn is_free(port: u16) -> nix::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt};
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    bind(fd.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, port))
}

/// A listener at a port of a block that is ours. On any address no other process can listen there then, not on `[::]` either.
///
/// # Errors
/// As `bind(2)` and `listen(2)`: the port is taken, the address is not ours.
pub fn listen(address: std::net::SocketAddr) -> io::Result<std::net::TcpListener> {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
    };
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, None)?;
    // Connections in TIME_WAIT do not count.
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    // All ranks may come at once: as many as the kernel lets wait (net.core.somaxconn).
    listen(&fd, Backlog::MAXALLOWABLE)?;
    Ok(fd.into())
}

fn local_range() -> (u16, u16) {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|n| n.parse().ok());
    // The kernel's default, where /proc is not mounted.
    (numbers.next().unwrap_or(32_768), numbers.next().unwrap_or(60_999))
}

/// The aligned blocks outside a range.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    below: u16,
    above_from: u16,
    above: u16,
}

impl Blocks {
    fn outside(low: u16, high: u16) -> Self {
        let below = low.saturating_sub(LOWEST) / BLOCK;
        let above_from = (high / BLOCK + 1).saturating_mul(BLOCK);
        // The last block would end at 65,535; MASTER_PORT + 8 must still be a port.
        let above = if above_from < high { 0 } else { (u16::MAX - above_from) / BLOCK };
        if below + above == 0 { Self { below: 64, above_from, above: 0 } } else { Self { below, above_from, above } }
    }

    fn count(self) -> u64 {
        u64::from(self.below) + u64::from(self.above)
    }

    fn nth(self, n: u64) -> u16 {
        let n = u16::try_from(n).unwrap_or(0);
        if n < self.below { LOWEST + n * BLOCK } else { self.above_from + (n - self.below) * BLOCK }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_outside_the_range() {
        for (low, high) in [(32_768, 60_999), (1_024, 65_535), (10_001, 65_000), (40_000, 40_010), (1, 9)] {
            let blocks = Blocks::outside(low, high);
            assert!(blocks.count() > 0);
            for n in 0..blocks.count() {
                let first = blocks.nth(n);
                assert_eq!(first % BLOCK, 0);
                assert!(first >= LOWEST || first > high, "{low}-{high}: {first}");
                assert!(first.checked_add(BLOCK).is_some());
                let everything_taken = low <= LOWEST + BLOCK && high >= 65_000;
                assert!(everything_taken || first + BLOCK <= low || first > high, "{low}-{high}: {first}");
            }
        }
    }

    #[test]
    fn a_reserved_port_is_not_chosen_again() {
        let mut held = Vec::new();
        let mut numbers = std::collections::BTreeSet::new();
        for _ in 0..64 {
            // The same random number each time: only the reservation keeps them apart.
            match choose(7) {
                Ok(port) if port.reservation.is_some() => {
                    assert!(numbers.insert(port.number));
                    held.push(port);
                }
                Ok(port) => assert!(held.len() >= 40, "unreserved {} after {}", port.number, held.len()),
                Err(e) => panic!("{e}"),
            }
        }
    }
}
