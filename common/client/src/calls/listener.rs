//! The worker's end before a connection is one of calls: listening, and the proof of the other end.

use super::peer::Stream;
use super::record::{Record, addresses, machine, nonce, own_addresses, random};
use nix::sys::socket::{Backlog, getsockopt, listen, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use rlaunch_base::unproven::Unproven;
use rlaunch_protocol::wire::frozen::calls::hello::{self, ASK, CONFIRM, HelloError, Nonce, Secret};
use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::time::{Duration, Instant};

/// How long a connection may take to prove itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// Silent connections, and those that were answered.
const MOST_PENDING: usize = 64;
/// Pause of the listening sockets after a shortage of descriptors.
const AGAIN: Duration = Duration::from_secs(1);

/// A connection that has not proved itself.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) stream: Stream,
    /// The secret of connections to its address.
    secret: Secret,
    got: Vec<u8>,
    /// The controller's nonce and the own one, after its first message.
    nonces: Option<(Nonce, Nonce)>,
    until: Instant,
}

/// The state of a connection after bytes have come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// More bytes are needed.
    Part,
    /// The other end has the secret; these bytes belong to its first frames.
    Proven(Vec<u8>),
    /// The other end does not prove itself.
    Refused,
}

/// The listening sockets.
#[derive(Debug)]
pub(super) struct Listener {
    secret: Secret,
    rank: u32,
    pub(super) unix: UnixListener,
    pub(super) tcp: Option<TcpListener>,
    pending: Unproven<Pending>,
    /// The end of a pause, in which the sockets are not watched.
    paused_until: Option<Instant>,
}

impl Listener {
    /// Listens for processes of this host, and with `is_far` for those of others. Returns the entry for the job's store as well.
    pub(super) fn open(secret: Secret, rank: u32, is_far: bool) -> io::Result<(Self, Record)> {
        let random: [u8; 16] = random()?;
        let name = random.iter().fold(String::from("rlaunch-calls-"), |name, byte| format!("{name}{byte:02x}"));
        // A name without a file: nothing of it is left when the process has ended.
        let unix = UnixListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?;
        unix.set_nonblocking(true)?;
        let any: [SocketAddr; 2] = [(Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()];
        // A socket of IPv6 takes both kinds of addresses, where there are both.
        let tcp = if is_far { Some(TcpListener::bind(any.as_slice())?) } else { None };
        let mut record = Record { rank, machine: machine(), unix: name, ..Record::default() };
        if let Some(tcp) = &tcp {
            tcp.set_nonblocking(true)?;
            // std's listeners let 128 connections wait: strangers would fill that at once.
            listen(tcp, Backlog::MAXCONN)?;
            let at = tcp.local_addr()?;
            let is_served = |ip: &IpAddr| at.is_ipv6() || ip.is_ipv4();
            record.tcp = addresses().into_iter().filter(is_served).map(|ip| (ip, at.port()).into()).collect();
        }
        let pending = Unproven::new(MOST_PENDING);
        Ok((Self { secret, rank, unix, tcp, pending, paused_until: None }, record))
    }

    /// Takes one connection that has come, and returns its number. Connections of other users at the unix socket are closed at
    /// once, which is no shortage.
    pub(super) fn accept(&mut self, is_tcp: bool) -> io::Result<u64> {
        let (stream, secret) = match (&self.tcp, is_tcp) {
            (Some(tcp), true) => {
                let (stream, _) = tcp.accept()?;
                // Small frames are not held back.
                let _slow = stream.set_nodelay(true);
                let at = stream.local_addr()?;
                (Stream::Tcp(stream), self.secret.at(at))
            }
            _ => {
                let (stream, _) = self.unix.accept()?;
                let user = getsockopt(&stream, PeerCredentials)?.uid();
                if user != 0 && user != geteuid().as_raw() {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                (Stream::Unix(stream), self.secret.clone())
            }
        };
        stream.set_nonblocking()?;
        let until = Instant::now() + PATIENCE;
        Ok(self.pending.add(Pending { stream, secret, got: Vec::new(), nonces: None, until }))
    }

    /// Reads what a connection has sent.
    pub(super) fn read(&mut self, number: u64) -> Proof {
        let Some(pending) = self.pending.get_mut(number) else { return Proof::Refused };
        let proof = pending.read(self.rank);
        if pending.nonces.is_some() {
            self.pending.set_answered(number);
        }
        proof
    }

    pub(super) fn get(&self, number: u64) -> Option<&Pending> {
        self.pending.get(number)
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Pending> {
        self.pending.remove(number)
    }

    /// Closes the oldest connection of too many. A connection is read before, so a controller is spared.
    pub(super) fn drop_surplus(&mut self) {
        if let Some(oldest) = self.pending.surplus() {
            self.pending.remove(oldest);
        }
    }

    /// Begins a pause in which the sockets are not watched.
    pub(super) fn pause(&mut self) {
        self.paused_until = Some(Instant::now() + AGAIN);
    }

    /// Ends a pause that is over. Whether there was one.
    pub(super) fn resume(&mut self) -> bool {
        self.paused_until.take_if(|until| *until <= Instant::now()).is_some()
    }

    /// Closes connections that have taken too long. Returns the time until the next one has, or until a pause is over.
    pub(super) fn expire(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.pending.retain(|pending| pending.until > now);
        let next = self.pending.iter().map(|(_, pending)| pending.until).chain(self.paused_until).min()?;
        Some(next.saturating_duration_since(now))
    }
}

/// Whether no descriptor or memory was left for a connection. The connection waits, and its socket stays ready.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted)
}

impl Stream {
    fn is_from_far_or_ours(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(stream) => is_from_far_or_ours(stream).unwrap_or(false),
        }
    }
}

/// Whether a connection comes from another host, or from our user or root. Else it is closed, as at the unix socket: a stranger on this
/// host could pass on the proofs of a controller that a stranger on its host has caught at the same address.
fn is_from_far_or_ours(stream: &TcpStream) -> io::Result<bool> {
    let (near, far) = (stream.local_addr()?, stream.peer_addr()?);
    let ip = far.ip().to_canonical();
    if !ip.is_loopback() && !own_addresses()?.contains(&ip) {
        return Ok(true);
    }
    // A row of /proc/net/tcp: number, both ends from the other process's side, state, three fields, user.
    let is_row = |fields: &[&str], shown: fn(SocketAddr) -> String| {
        fields.get(1..4) == Some(&[shown(far).as_str(), shown(near).as_str(), "01"])
    };
    let tables = [
        std::fs::read_to_string("/proc/self/net/tcp")?,
        std::fs::read_to_string("/proc/self/net/tcp6").unwrap_or_default(),
    ];
    let user = tables.iter().flat_map(|table| table.lines()).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = is_row(&fields, shown_v4) || is_row(&fields, shown_v6);
        if is_it { fields.get(7)?.parse::<u32>().ok() } else { None }
    });
    Ok(user.is_some_and(|user| user == 0 || user == geteuid().as_raw()))
}

/// An address of IPv4 as /proc/net/tcp has it; empty: it is none.
fn shown_v4(at: SocketAddr) -> String {
    match at.ip().to_canonical() {
        IpAddr::V4(ip) => format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), at.port()),
        IpAddr::V6(_) => String::new(),
    }
}

/// An address as /proc/net/tcp6 has it.
fn shown_v6(at: SocketAddr) -> String {
    let ip = match at.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let words = ip.octets();
    let words = words.as_chunks::<4>().0.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word)));
    format!("{}:{:04X}", words.collect::<String>(), at.port())
}

impl Pending {
    fn read(&mut self, rank: u32) -> Proof {
        let mut scratch = [0; 512];
        loop {
            match (&self.stream).read(&mut scratch) {
                Ok(0) => return Proof::Refused,
                Ok(read) => self.got.extend_from_slice(scratch.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Proof::Part,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Proof::Refused,
            }
            match self.check(rank) {
                Proof::Part => {}
                proof => return proof,
            }
        }
    }

    fn check(&mut self, rank: u32) -> Proof {
        let secret = &self.secret;
        if self.nonces.is_none() {
            if !hello::may_be_asked(&self.got) {
                return Proof::Refused;
            }
            let Some(first) = self.got.first_chunk::<ASK>() else { return Proof::Part };
            let Ok(own) = nonce() else { return Proof::Refused };
            match hello::asked(secret, rank, first) {
                // Before anything is proved. A stranger without a controller's message does not get here, and costs little.
                Ok(_) if !self.stream.is_from_far_or_ours() => return Proof::Refused,
                Ok(peer_nonce) => {
                    self.got.drain(..ASK);
                    self.nonces = Some((peer_nonce, own));
                    if !self.send(&hello::answer(secret, rank, &peer_nonce, &own)) {
                        return Proof::Refused;
                    }
                }
                Err(HelloError::Version(_)) => {
                    self.send(&hello::answer_version());
                    return Proof::Refused;
                }
                Err(HelloError::Stranger) => return Proof::Refused,
            }
        }
        let (Some((peer_nonce, own)), Some(last)) = (&self.nonces, self.got.first_chunk::<CONFIRM>()) else {
            return Proof::Part;
        };
        if !hello::is_confirmed(secret, rank, peer_nonce, own, last) {
            return Proof::Refused;
        }
        Proof::Proven(self.got.split_off(CONFIRM))
    }

    /// Sends a short message whole, which a new connection has room for.
    fn send(&self, bytes: &[u8]) -> bool {
        self.stream.send(&[IoSlice::new(bytes)]).is_ok_and(|sent| sent == bytes.len())
    }
}
