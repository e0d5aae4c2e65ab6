//! A MASTER_PORT for a job: eight ports in a row that are free now and that no other rlaunch job of this host will take.
//!
//! The reservation is an abstract unix name, `\0rlaunch-port-N`: it has the port's scope (the network namespace), is
//! nothing on disk, and goes with its owner. Everybody can read it in /proc/net/unix. So a socket is bound to the first port before the
//! name is taken. It is closed when the agent listens there, or when ranks start: it would break programs that bind without SO_REUSEADDR.
//! The ports lie outside `ip_local_port_range`, so that no outgoing connection takes them.

pub mod claim;

use crate::abstract_name::hold;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage, bind,
    setsockopt, socket, sockopt,
};
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};
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
    /// Keeps other users from the first port; only of a chosen port.
    placeholder: Option<OwnedFd>,
}

impl Port {
    /// A listener at this port. No other user can take a chosen port before.
    ///
    /// # Errors
    /// As `listen`.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<TcpListener> {
        let replaced = self.placeholder.take().map(|placeholder| replace(placeholder, address));
        replaced.and_then(Result::ok).map_or_else(|| listen(address), Ok)
    }

    /// Lets programs bind the port.
    pub fn release(&mut self) {
        self.placeholder = None;
    }
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
        // Before the name shows the port to other users.
        let placeholder = placeholder(port)?;
        let name = match hold(&reservation(port)) {
            Ok(held) => Some(held),
            Err(error) if crate::is_shortage(&error) => return Err(error),
            Err(_) if unreserved.is_some() => continue,
            Err(_) => None,
        };
        if !all_free(port, placeholder.is_some())? {
            continue;
        }
        let is_held = name.is_some() && placeholder.is_some() && !claim::is_in(port)?;
        let reservation = name.filter(|_| is_held);
        let chosen = Port { number: port, reservation, label: None, placeholder };
        if is_held {
            return Ok(chosen);
        }
        // The names may be a stranger's, which must not keep us from the ports.
        unreserved = Some(chosen);
    }
    unreserved.ok_or_else(|| io::Error::from(io::ErrorKind::AddrInUse))
}

/// The name that reserves a block.
fn reservation(first: u16) -> String {
    format!("rlaunch-port-{first}")
}

/// Whether a block is free; an error where that cannot be found out. `is_held`: its first port is ours.
fn all_free(first: u16, is_held: bool) -> io::Result<bool> {
    for port in first + u16::from(is_held)..first + BLOCK {
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
    let fd = tcp_socket(AddressFamily::Inet)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    bind(fd.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, port))
}

/// A socket that is bound to a port of all addresses. Without SO_REUSEADDR no other socket can be bound there, and by SO_REUSEPORT only one
/// of the same user. `None`: the port is in use, or was a moment ago.
fn placeholder(port: u16) -> io::Result<Option<OwnedFd>> {
    let all = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
    let bound = tcp_socket(AddressFamily::Inet6)
        .and_then(|fd| {
            setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
            bind_shared(fd, &SockaddrIn6::from(all))
        })
        .or_else(|error| match error {
            Errno::EADDRINUSE => Err(error),
            // This host may have no IPv6.
            _ => bind_shared(tcp_socket(AddressFamily::Inet)?, &SockaddrIn::new(0, 0, 0, 0, port)),
        });
    match bound.map_err(io::Error::from) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if crate::is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

fn bind_shared(fd: OwnedFd, address: &dyn SockaddrLike) -> nix::Result<OwnedFd> {
    setsockopt(&fd, sockopt::ReusePort, &true)?;
    bind(fd.as_raw_fd(), address)?;
    Ok(fd)
}

fn tcp_socket(family: AddressFamily) -> nix::Result<OwnedFd> {
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// A listener at a port of a block that is ours. On any address no other process can listen there then, not on `[::]` either.
///
/// # Errors
/// As `bind(2)` and `listen(2)`: the port is taken, the address is not ours.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let fd = tcp_socket(family(address))?;
    // Connections in TIME_WAIT do not count.
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    begin_to_listen(&fd)?;
    Ok(fd.into())
}

/// All ranks may come at once: as many as the kernel lets wait (net.core.somaxconn).
fn begin_to_listen(fd: &OwnedFd) -> nix::Result<()> {
    nix::sys::socket::listen(fd, Backlog::MAXALLOWABLE)
}

/// A listener in place of a placeholder. One of the two is bound to the port at any moment, and neither has SO_REUSEADDR.
fn replace(placeholder: OwnedFd, address: SocketAddr) -> nix::Result<TcpListener> {
    let fd = bind_shared(tcp_socket(family(address))?, &SockaddrStorage::from(address))?;
    drop(placeholder);
    // From `listen` on, which looks at it, programs of this user cannot share the port either.
    setsockopt(&fd, sockopt::ReusePort, &false)?;
    if begin_to_listen(&fd).is_err() {
        // A process that is being started has a copy of the placeholder for a moment.
        setsockopt(&fd, sockopt::ReusePort, &true)?;
        begin_to_listen(&fd)?;
    }
    // Connections inherit it, and do not keep others from the port when they are in TIME_WAIT.
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
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
    fn nobody_else_can_bind_a_chosen_port_until_it_listens_or_is_released() {
        for ip in ["127.0.0.1", "::1", "::"] {
            let mut port = choose(17).unwrap();
            let at = SocketAddr::new(ip.parse().unwrap(), port.number);
            let others =
                ["127.0.0.1", "127.0.0.2", "0.0.0.0"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port.number));
            assert!(others.into_iter().all(|other| listen(other).is_err()), "{at}: a stranger can listen");
            let listener = match port.listen(at) {
                Err(error) if at.is_ipv6() && error.kind() != io::ErrorKind::AddrInUse => continue,
                listens => listens.unwrap(),
            };
            assert_eq!(listener.local_addr().unwrap(), at);
            let shared = bind_shared(tcp_socket(family(at)).unwrap(), &SockaddrStorage::from(at));
            assert!(listen(at).is_err() && shared.is_err(), "{at}: another program can listen");
        }
        let mut port = choose(17).unwrap();
        port.release();
        listen(SocketAddr::from(([127, 0, 0, 1], port.number))).unwrap();
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
