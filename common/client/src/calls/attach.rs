//! The controller's end before a connection is one of calls.

use super::peer::Stream;
use super::record::{self, Record, network, nonce, own_addresses};
use super::{Attached, Calls};
use crate::kernel::send_all;
use crate::{Error, Store};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rlaunch_protocol::wire::frozen::calls::hello::{self, ANSWER, HelloError, Secret};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::time::{Duration, Instant};

/// Longest wait for one of several addresses.
const CONNECT: Duration = Duration::from_secs(2);
/// Longest wait for a worker's proof, if none was given.
const PROOF: Duration = Duration::from_secs(600);
/// The pauses before other tries, from the first to the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(250)];

impl Calls {
    /// Connects to the worker of a rank, as soon as the job's store knows where it is.
    pub(crate) fn attach(
        &self,
        store: &Store,
        group: &str,
        rank: u32,
        within: Option<Duration>,
    ) -> Result<Attached, Error> {
        let began = Instant::now();
        let left = || within.unwrap_or(PROOF).saturating_sub(began.elapsed());
        let mut record = Record::wait(store, group, rank, within)?;
        let secret = record::secret(store, group)?;
        let is_near = record.machine == record::machine();
        let failed = |source| Error::Worker { group: group.into(), rank, host: record.host.clone(), source };
        let stream = connect(&record, &secret, rank, is_near, left).map_err(failed)?;
        if let Stream::Unix(stream) = &stream {
            // The entry of the store may name the process of another user.
            record.pid = getsockopt(stream, PeerCredentials).map_or(0, |worker| worker.pid().unsigned_abs());
        }
        // A child of the worker may hold the connection open after its end.
        let process = if is_near { rlaunch_sys_client::open_process(record.pid).ok() } else { None };
        let peer = self.add(&mut self.inner(), stream, process, &[])?;
        Ok(Attached { peer, record, is_near })
    }
}

/// Connects, and each end proves to have the secret. A worker closes some connections unread while strangers open many: so a connection
/// that it closed without an answer is made again.
fn connect(
    record: &Record,
    secret: &Secret,
    rank: u32,
    is_near: bool,
    left: impl Fn() -> Duration,
) -> io::Result<Stream> {
    let [mut pause, longest] = PAUSES;
    loop {
        let stream = if is_near { near(record) } else { far(record, left()) }?;
        let secret = match &stream {
            Stream::Unix(_) => secret.clone(),
            Stream::Tcp(stream) => secret.at(stream.peer_addr()?),
        };
        match prove(&stream, &secret, rank, left().max(Duration::from_millis(1))) {
            Ok(()) => return Ok(stream),
            Err(error) if !is_closed(&error) || left() <= pause => return Err(error),
            Err(_) => std::thread::sleep(pause),
        }
        pause = longest.min(2 * pause);
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

fn near(record: &Record) -> io::Result<Stream> {
    Ok(Stream::Unix(UnixStream::connect_addr(&UnixAddr::from_abstract_name(&record.unix)?)?))
}

fn far(record: &Record, within: Duration) -> io::Result<Stream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the worker has no address for other hosts");
    // An address that this host has too leads to this host: a stranger may listen there.
    let here = record::machine();
    let is_same_network = network(&record.machine) == network(&here) && !here.starts_with('-');
    let own = if is_same_network { Vec::new() } else { own_addresses()? };
    for at in record.tcp.iter().filter(|at| is_same_network || !(at.ip().is_loopback() || own.contains(&at.ip()))) {
        let patience = within.clamp(Duration::from_millis(1), CONNECT);
        match TcpStream::connect_timeout(at, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Stream::Tcp(stream));
            }
            Err(error) => last = io::Error::new(error.kind(), format!("{at}: {error}")),
        }
    }
    Err(last)
}

/// Proves to have the secret, and has the worker prove the same.
fn prove(stream: &Stream, secret: &Secret, rank: u32, within: Duration) -> io::Result<()> {
    let own = nonce()?;
    set_timeout(stream, Some(within))?;
    send(stream, &hello::ask(secret, rank, &own))?;
    let mut answer = [0; ANSWER];
    let mut reader: &Stream = stream;
    reader.read_exact(&mut answer).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "the worker does not answer"),
        _ => error,
    })?;
    let refused = |error: HelloError| io::Error::new(ErrorKind::PermissionDenied, error.to_string());
    let peer_nonce = hello::answered(secret, rank, &own, &answer).map_err(refused)?;
    send(stream, &hello::confirm(secret, rank, &own, &peer_nonce))?;
    set_timeout(stream, None)
}

fn set_timeout(stream: &Stream, within: Option<Duration>) -> io::Result<()> {
    match stream {
        Stream::Unix(stream) => stream.set_read_timeout(within),
        Stream::Tcp(stream) => stream.set_read_timeout(within),
    }
}

fn send(stream: &Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Unix(stream) => send_all(stream, bytes),
        Stream::Tcp(stream) => (&mut &*stream).write_all(bytes),
    }
}
