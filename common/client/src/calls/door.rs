//! The worker's end before a connection is one of calls: listening, and the proof of the other end.

use super::peer::Stream;
use super::record::{Record, addresses, machine, nonce, random};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use rlaunch_core::wire::frozen::calls::hello::{self, ASK, CONFIRM, HelloError, Nonce, Secret};
use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::time::{Duration, Instant};

/// How long a connection may take to prove itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections that may be proving themselves: the oldest makes room.
const MOST_PENDING: usize = 64;

/// A connection that has not proved itself.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) number: u64,
    pub(super) stream: Stream,
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
pub(super) struct Door {
    secret: Secret,
    rank: u32,
    pub(super) unix: UnixListener,
    pub(super) tcp: Option<TcpListener>,
    pub(super) pending: Vec<Pending>,
    next: u64,
}

impl Door {
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
            let at = tcp.local_addr()?;
            let is_served = |ip: &IpAddr| at.is_ipv6() || ip.is_ipv4();
            record.tcp = addresses().into_iter().filter(is_served).map(|ip| (ip, at.port()).into()).collect();
        }
        Ok((Self { secret, rank, unix, tcp, pending: Vec::new(), next: 0 }, record))
    }

    /// Takes one connection that has come; `None`: there is none. Processes of other users are closed at once.
    pub(super) fn accept(&mut self, is_tcp: bool) -> Option<&Pending> {
        let stream = match (&self.tcp, is_tcp) {
            (Some(tcp), true) => {
                let (stream, _) = tcp.accept().ok()?;
                // Small frames are not held back.
                let _slow = stream.set_nodelay(true);
                Stream::Tcp(stream)
            }
            _ => {
                let (stream, _) = self.unix.accept().ok()?;
                let user = getsockopt(&stream, PeerCredentials).ok()?.uid();
                if user != 0 && user != geteuid().as_raw() {
                    return None;
                }
                Stream::Unix(stream)
            }
        };
        stream.set_nonblocking().ok()?;
        if self.pending.len() >= MOST_PENDING {
            self.pending.remove(0);
        }
        self.next += 1;
        let until = Instant::now() + PATIENCE;
        self.pending.push(Pending { number: self.next, stream, got: Vec::new(), nonces: None, until });
        self.pending.last()
    }

    /// Reads what a connection has sent.
    pub(super) fn read(&mut self, number: u64) -> Proof {
        let (secret, rank) = (self.secret.clone(), self.rank);
        match self.pending.iter_mut().find(|pending| pending.number == number) {
            Some(pending) => pending.read(&secret, rank),
            None => Proof::Refused,
        }
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Pending> {
        let at = self.pending.iter().position(|pending| pending.number == number)?;
        Some(self.pending.remove(at))
    }

    /// Closes connections that have taken too long. How long the next one still may take.
    pub(super) fn expire(&mut self) -> Option<Duration> {
        if self.pending.is_empty() {
            return None;
        }
        let now = Instant::now();
        self.pending.retain(|pending| pending.until > now);
        self.pending.iter().map(|pending| pending.until.saturating_duration_since(now)).min()
    }
}

impl Pending {
    fn read(&mut self, secret: &Secret, rank: u32) -> Proof {
        let mut scratch = [0; 512];
        loop {
            match (&self.stream).read(&mut scratch) {
                Ok(0) => return Proof::Refused,
                Ok(read) => self.got.extend_from_slice(scratch.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Proof::Part,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Proof::Refused,
            }
            match self.check(secret, rank) {
                Proof::Part => {}
                proof => return proof,
            }
        }
    }

    fn check(&mut self, secret: &Secret, rank: u32) -> Proof {
        if self.nonces.is_none() {
            if !hello::may_be_asked(&self.got) {
                return Proof::Refused;
            }
            let Some(first) = self.got.first_chunk::<ASK>() else { return Proof::Part };
            let Ok(own) = nonce() else { return Proof::Refused };
            match hello::asked(secret, rank, first) {
                Ok(theirs) => {
                    self.got.drain(..ASK);
                    self.nonces = Some((theirs, own));
                    if !self.send(&hello::answer(secret, rank, &theirs, &own)) {
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
        let (Some((theirs, own)), Some(last)) = (&self.nonces, self.got.first_chunk::<CONFIRM>()) else {
            return Proof::Part;
        };
        if !hello::is_confirmed(secret, rank, theirs, own, last) {
            return Proof::Refused;
        }
        Proof::Proven(self.got.split_off(CONFIRM))
    }

    /// Sends a short message whole, which a new connection has room for.
    fn send(&self, bytes: &[u8]) -> bool {
        self.stream.send(&[IoSlice::new(bytes)]).is_ok_and(|sent| sent == bytes.len())
    }
}
