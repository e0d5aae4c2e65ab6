//! Connections of a job's processes that have a network namespace of their own, on this host.
//!
//! `sock_diag` answers for the namespace in which it was opened. Another namespace is read from /proc/PID/net/tcp of a process there
//! (proc_pid_net(5)): no thread of ours has to enter it. That would need privileges that a job of an ordinary user has not.

use crate::holders;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// `TCP_ESTABLISHED` (net/tcp_states.h), as the tables have it.
const ESTABLISHED: &str = "01";

/// Most namespaces that are looked at: those of a job's ranks are one each at most.
const MOST: usize = 1024;

/// The inodes of the sockets that processes below `above` have connected so, own end first, in namespaces other than ours. Whose they are
/// [`holders::Holders`] knows: an inode is the same in all namespaces.
#[must_use]
pub fn inodes(above: i32, wanted: &[(SocketAddr, SocketAddr)]) -> Vec<Option<u32>> {
    let mut found = vec![None; wanted.len()];
    let wanted: Vec<(SocketAddr, SocketAddr)> =
        wanted.iter().map(|(own, other)| (plain(*own), plain(*other))).collect();
    let mut seen: BTreeSet<PathBuf> = namespace("self").into_iter().collect();
    for pid in holders::below(above) {
        if found.iter().all(Option::is_some) || seen.len() > MOST {
            break;
        }
        if !namespace(&pid.to_string()).is_some_and(|its| seen.insert(its)) {
            continue;
        }
        for table in ["tcp", "tcp6"] {
            let Ok(text) = fs::read_to_string(format!("/proc/{pid}/net/{table}")) else { continue };
            for (own, other, inode) in text.lines().skip(1).filter_map(connection) {
                let at = wanted.iter().position(|ends| *ends == (own, other));
                if let Some(slot) = at.and_then(|at| found.get_mut(at)) {
                    *slot = Some(inode);
                }
            }
        }
    }
    found
}

fn namespace(of: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{of}/ns/net")).ok()
}

fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

/// A line: number, own end, other end, state, queues, timer, retransmissions, user, timeout, inode.
fn connection(line: &str) -> Option<(SocketAddr, SocketAddr, u32)> {
    let mut words = line.split_ascii_whitespace();
    let (_, own, other, state) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let inode = words.nth(5)?.parse().ok().filter(|inode| *inode != 0)?;
    (state == ESTABLISHED).then_some((end(own)?, end(other)?, inode))
}

/// `0100007F:1F90`: the words of an address as this machine has them, whose bytes are in the network's order; the port is a number.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *four = word(at)?;
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    #[test]
    fn the_kernels_table_is_read_as_it_is_meant() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (own, other) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let link = fs::read_link(format!("/proc/self/fd/{}", client.as_raw_fd())).unwrap();
        let text = fs::read_to_string("/proc/self/net/tcp").unwrap();
        let all: Vec<_> = text.lines().skip(1).filter_map(connection).collect();
        let (.., inode) = all.iter().find(|(a, b, _)| (*a, *b) == (own, other)).unwrap();
        assert_eq!(link.to_str().unwrap(), format!("socket:[{inode}]"));
        assert!(!all.iter().any(|(a, ..)| *a == listener.local_addr().unwrap() && a.port() == 0), "one that listens");
        // In our own namespace sock_diag is asked.
        let above = nix::unistd::getppid().as_raw();
        assert_eq!(inodes(above, &[(own, other)]), [None]);
    }

    #[test]
    fn other_sockets_are_no_connections() {
        let line = "  3: 0200C80A:A0B2 0100C80A:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        let ends = |own: &str, other: &str| (own.parse::<SocketAddr>().unwrap(), other.parse::<SocketAddr>().unwrap());
        let (own, other) = ends("10.200.0.2:41138", "10.200.0.1:8080");
        if cfg!(target_endian = "little") {
            assert_eq!(connection(line), Some((own, other, 4711)));
            let mapped = line.replace("0200C80A:", "0000000000000000FFFF00000200C80A:");
            assert_eq!(connection(&mapped), Some((own, other, 4711)));
        }
        for wrong in [line.replace(" 01 ", " 06 "), line.replace("4711", "0"), line.replace(":1F90", ""), String::new()]
        {
            assert_eq!(connection(&wrong), None, "{wrong}");
        }
        assert_eq!(end("0100:1"), None);
        assert_eq!(end("\u{e9}\u{e9}\u{e9}\u{e9}:1"), None);
    }
}
