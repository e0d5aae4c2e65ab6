//! Whose a TCP connection or an abstract unix name of this host is, as the kernel has it: sock_diag(7).
//!
//! One question and one answer, in some 10 µs. /proc/net/tcp has the same, but lists all connections there are, and is wrong about
//! those that come and go meanwhile.
//!
//! A connection whose other end has closed has no owner any more: the kernel then says user 0 and inode 0, which must not be taken for
//! root. So only an established one with an inode is reported.

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h): type of the question and of its answer.
const BY_FAMILY: u16 = 20;
/// `TCP_ESTABLISHED` (net/tcp_states.h).
const ESTABLISHED: u8 = 1;
/// `INET_DIAG_CGROUP_ID` (linux/inet_diag.h), since Linux 5.8.
const CGROUP_ID: u16 = 21;
/// `struct nlmsghdr`: length u32, type u16, flags u16, sequence u32, port u32.
const HEADER: usize = 16;
/// `struct inet_diag_req_v2` after it.
const QUESTION: usize = HEADER + 56;
/// `struct inet_diag_msg`.
const ANSWER: usize = 72;
/// `struct unix_diag_req` after the header, and `struct unix_diag_msg` (linux/unix_diag.h).
const UNIX_QUESTION: usize = HEADER + 24;
const UNIX_ANSWER: usize = 16;
/// `UDIAG_SHOW_NAME` and `UDIAG_SHOW_UID`, and their attributes.
const SHOW: u32 = 0x41;
const UNIX_NAME: u16 = 0;
const UNIX_UID: u16 = 7;

/// The owner of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The user who made the socket.
    pub uid: u32,
    /// The socket's inode: /proc/PID/fd of its holder shows it.
    pub inode: u32,
    /// The cgroup that the socket was made in, where the kernel reports it.
    pub cgroup: Option<u64>,
}

/// A line to the kernel, for many questions.
#[derive(Debug)]
pub struct SockDiag {
    line: OwnedFd,
    asked: u32,
}

impl SockDiag {
    /// Opens it. It answers for the network namespace of the thread that calls.
    ///
    /// # Errors
    /// There are no more descriptors, or the kernel has no sock_diag.
    pub fn open() -> io::Result<Self> {
        let line = socket::socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )?;
        Ok(Self { line, asked: 0 })
    }

    /// The owner of the socket that is connected from `own` to `other`; `None`: it is gone.
    ///
    /// # Errors
    /// The kernel does not answer the question.
    pub fn owner(&mut self, own: SocketAddr, other: SocketAddr) -> io::Result<Option<Owner>> {
        let mut room = [0; 512];
        let Some(answer) = self.ask(&mut question(own, other), &mut room)? else { return Ok(None) };
        owner(answer)
    }

    /// The abstract name of a unix socket and the user who made it, by its inode; `None`: it is gone, or has no such name.
    ///
    /// # Errors
    /// The kernel does not answer the question: it has no `unix_diag`, or is older than Linux 5.3.
    pub fn unix_name(&mut self, inode: u32) -> io::Result<Option<(Vec<u8>, u32)>> {
        let mut room = [0; 512];
        let Some(answer) = self.ask(&mut unix_question(inode), &mut room)? else { return Ok(None) };
        let attributes = answer.get(UNIX_ANSWER..).unwrap_or_default();
        let Some((0, name)) = attribute(attributes, UNIX_NAME).and_then(|name| name.split_first()) else {
            return Ok(None);
        };
        let uid = attribute(attributes, UNIX_UID).and_then(|uid| uid.try_into().ok()).map(u32::from_ne_bytes);
        let uid = uid.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Some((name.to_vec(), uid)))
    }

    /// Asks a question, and returns what follows the header of its answer; `None`: there is no such socket.
    fn ask<'a>(&mut self, question: &mut [u8], room: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        self.asked = self.asked.wrapping_add(1);
        question[8..12].copy_from_slice(&self.asked.to_ne_bytes());
        socket::sendto(self.line.as_raw_fd(), question, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        loop {
            let len = match socket::recv(self.line.as_raw_fd(), room, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                received => received?,
            };
            // An answer to an earlier question, that was given up, is none to this one.
            if let Some(answer) = answer(room.get(..len).unwrap_or_default(), self.asked) {
                return Ok(answer?.and_then(|range| room.get(range)));
            }
        }
    }
}

/// An IPv4 address that stands in an IPv6 one is one of IPv4.
fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// A question of some length, with its header and the number still to come.
fn empty_question<const LENGTH: usize>(body: &[&[u8]]) -> [u8; LENGTH] {
    let length = u32::try_from(LENGTH).unwrap_or(u32::MAX).to_ne_bytes();
    let request = u16::try_from(libc::NLM_F_REQUEST).unwrap_or(1).to_ne_bytes();
    let mut question = [0; LENGTH];
    let mut at = 0;
    let header: [&[u8]; 5] = [&length, &BY_FAMILY.to_ne_bytes(), &request, &[0; 4], &[0; 4]];
    for bytes in header.iter().chain(body) {
        question[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    question
}

fn question(own: SocketAddr, other: SocketAddr) -> [u8; QUESTION] {
    let ((own, own_port), (other, other_port)) = (plain(own), plain(other));
    let family = u8::try_from(if own.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET }).unwrap_or(0);
    let tcp = u8::try_from(libc::IPPROTO_TCP).unwrap_or(0);
    empty_question(&[
        &[family, tcp, 0, 0],
        // Which states: all. The one that is found is looked at.
        &u32::MAX.to_ne_bytes(),
        &own_port.to_be_bytes(),
        &other_port.to_be_bytes(),
        &address(own),
        &address(other),
        &[0; 4],
        // INET_DIAG_NOCOOKIE, twice: we know of no cookie.
        &[0xff; 8],
    ])
}

fn unix_question(inode: u32) -> [u8; UNIX_QUESTION] {
    let family = u8::try_from(libc::AF_UNIX).unwrap_or(0);
    let states = u32::MAX.to_ne_bytes();
    empty_question(&[&[family, 0, 0, 0], &states, &inode.to_ne_bytes(), &SHOW.to_ne_bytes(), &[0xff; 8]])
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut room = [0; 16];
            room[..4].copy_from_slice(&ip.octets());
            room
        }
    }
}

/// The range of the answer after its header. `Some(Ok(None))`: no such socket exists. `None`: the message answers another request.
fn answer(bytes: &[u8], number: u32) -> Option<io::Result<Option<std::ops::Range<usize>>>> {
    let garbled = || Some(Err(io::ErrorKind::InvalidData.into()));
    let half = |at: usize| bytes.get(at..at + 2).and_then(|half| half.try_into().ok()).map(u16::from_ne_bytes);
    let (Some(length), Some(kind), Some(of)) = (word(bytes, 0), half(4), word(bytes, 8)) else { return garbled() };
    if of != number {
        return None;
    }
    if i32::from(kind) == libc::NLMSG_ERROR {
        let errno = word(bytes, HEADER).map_or(0, |code| code.cast_signed().wrapping_neg());
        return Some(if errno == libc::ENOENT { Ok(None) } else { Err(io::Error::from_raw_os_error(errno)) });
    }
    let end = usize::try_from(length).map_or(bytes.len(), |length| length.min(bytes.len()));
    if kind == BY_FAMILY && end >= HEADER { Some(Ok(Some(HEADER..end))) } else { garbled() }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes)
}

/// The owner in `struct inet_diag_msg`: after family, state, timer, retransmissions (4), the sockets (48), and three counters (12).
fn owner(answer: &[u8]) -> io::Result<Option<Owner>> {
    let (Some(state), Some(uid), Some(inode)) = (answer.get(1), word(answer, 64), word(answer, 68)) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if *state != ESTABLISHED || inode == 0 {
        return Ok(None);
    }
    let cgroup = attribute(answer.get(ANSWER..).unwrap_or_default(), CGROUP_ID);
    let cgroup = cgroup.and_then(|id| id.try_into().ok()).map(u64::from_ne_bytes);
    Ok(Some(Owner { uid, inode, cgroup }))
}

/// An attribute among several: `struct nlattr` is length u16 and type u16, and the next begins at a multiple of four.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = rest.get(..length.checked_sub(4)?)?;
        if u16::from_ne_bytes([head[2], head[3]]) == wanted {
            return Some(value);
        }
        bytes = rest.get((length.next_multiple_of(4)) - 4..).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv6Addr, TcpListener, TcpStream};

    fn inode(socket: &impl AsRawFd) -> u32 {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let link = link.to_str().unwrap();
        link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).unwrap().parse().unwrap()
    }

    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn each_end_of_a_connection_has_its_owner() {
        let mut diag = SockDiag::open().unwrap();
        let (client, server) = pair("127.0.0.1:0");
        let uid = nix::unistd::getuid().as_raw();
        let (a, b) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        for (socket, own, other) in [(&client, a, b), (&server, b, a)] {
            let owner = diag.owner(own, other).unwrap().unwrap();
            assert_eq!((owner.uid, owner.inode), (uid, inode(socket)));
        }
        assert_eq!(diag.owner(a, a).unwrap(), None, "there is no such connection");
    }

    #[test]
    fn an_ipv4_address_within_an_ipv6_one_is_the_same() {
        let mut diag = SockDiag::open().unwrap();
        let (client, server) = pair("127.0.0.1:0");
        let mapped = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => SocketAddr::from((ip.to_ipv6_mapped(), address.port())),
            IpAddr::V6(_) => address,
        };
        let (own, other) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        assert_eq!(diag.owner(mapped(own), mapped(other)).unwrap().unwrap().inode, inode(&client));
        // A client of a socket for both, as torch's connects.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to =
            SocketAddr::from((std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped(), listener.local_addr().unwrap().port()));
        let client = match TcpStream::connect(to) {
            Ok(client) => client,
            Err(error) => return println!("absent: no IPv6 here: {error}"),
        };
        let (_server, from) = listener.accept().unwrap();
        let owner = diag.owner(from, listener.local_addr().unwrap()).unwrap().unwrap();
        assert_eq!(owner.inode, inode(&client));
    }

    #[test]
    fn ipv6_connections_have_owners() {
        let listener = match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
            Ok(listener) => listener,
            Err(error) => return println!("absent: no IPv6 here: {error}"),
        };
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, from) = listener.accept().unwrap();
        let owner = SockDiag::open().unwrap().owner(from, listener.local_addr().unwrap()).unwrap().unwrap();
        assert_eq!(owner.inode, inode(&client));
    }

    #[test]
    fn closed_connection_is_not_roots() {
        let mut diag = SockDiag::open().unwrap();
        let (client, server) = pair("127.0.0.1:0");
        let (own, other) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        drop(client);
        assert_eq!(diag.owner(own, other).unwrap(), None);
    }

    #[test]
    fn malformed_answer_is_refused() {
        assert!(answer(&[], 1).unwrap().is_err());
        assert!(answer(&[0; 40], 1).is_none(), "one to another question");
        let mut short = [0; 40];
        short[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        short[..4].copy_from_slice(&40u32.to_ne_bytes());
        short[8..12].copy_from_slice(&1u32.to_ne_bytes());
        assert!(owner(&short[answer(&short, 1).unwrap().unwrap().unwrap()]).is_err());
        assert_eq!(attribute(&[12, 0, 21, 0, 1, 2, 3, 4, 5, 6, 7, 8], 21), Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!(attribute(&[5, 0, 8, 0, 9, 0, 0, 0, 6, 0, 21, 0, 1, 2], 21), Some(&[1, 2][..]));
        assert_eq!(attribute(&[3, 0, 21, 0], 21), None);
        assert_eq!(attribute(&[0, 0, 0, 0, 0, 0, 0, 0], 21), None);
        assert_eq!(attribute(&[40, 0, 21, 0, 1], 21), None);
    }
}
