//! A connection to the socket of a pool.

use rlaunch_base::id::HoldId;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::frozen::pool::{HEADER, MAX_REQUEST, Need, PoolRequest, body_len};
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::{pidfd, rights, signals, socket, unix};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

/// The lowest bits of the token of a connection.
pub(super) const OF_CLIENT: u64 = 6;

/// A connection: a job, or a command.
pub(super) struct Client {
    pub(super) stream: UnixStream,
    /// The process that has connected.
    pub(super) pid: u32,
    /// The same, where it can be signalled.
    pub(super) process: Option<OwnedFd>,
    /// When it connected, in ticks since boot.
    connected: u64,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// Watched for room while something waits to be written.
    pub(super) writable: Option<OwnedFd>,
    pub(super) is_greeted: bool,
    /// Until when it has to say what it wants.
    pub(super) limit: Option<Mono>,
    /// The hosts that it wants.
    pub(super) need: Option<Need>,
    /// Whether the client ends the pool, and stays connected until then.
    pub(super) awaits_end: bool,
    /// How long its job may take to end, if the client has sent that.
    pub(super) ends_within: Option<Span>,
}

impl Client {
    /// A connection without a request yet.
    pub(super) fn new(stream: UnixStream, limit: Mono) -> Self {
        let process = unix::process_of(&stream);
        Self {
            stream,
            pid: process.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
            connected: rights::ticks(),
            process: process.and_then(|pid| pidfd::open(pid).ok()),
            input: Vec::new(),
            output: Vec::new(),
            writable: None,
            is_greeted: false,
            limit: Some(limit),
            need: None,
            awaits_end: false,
            ends_within: None,
        }
    }

    /// Why it may run no program: it has other rights than the pool. `None`: it may.
    pub(super) fn difference(&self) -> Option<String> {
        rights::difference(self.pid.cast_signed(), |started| started <= self.connected)
    }

    /// Ends its process. A stopped process gets SIGTERM only when it continues.
    pub(super) fn end(&self, is_now: bool) {
        let numbers: &[i32] = if is_now { &[signals::KILL] } else { &[signals::TERM, signals::CONT] };
        for number in numbers {
            let _gone = self.process.as_ref().map(|process| pidfd::signal(process, *number));
        }
    }

    /// The token of its descriptors.
    pub(super) fn token(hold: HoldId) -> u64 {
        (u64::from(hold.get()) << 3) | OF_CLIENT
    }

    /// The next whole request of what it has sent.
    pub(super) fn next_request(&mut self) -> Result<Option<PoolRequest>, ()> {
        let Some(header) = self.input.first_chunk::<HEADER>() else { return Ok(None) };
        let len = HEADER + body_len(*header, MAX_REQUEST).map_err(|_| ())?;
        let Some(frame) = self.input.get(..len) else { return Ok(None) };
        let request = PoolRequest::parse(frame).map_err(|_| ())?;
        self.input.drain(..len);
        Ok(Some(request))
    }

    /// Writes the bytes that it takes now; is woken when it takes more.
    pub(super) fn flush(&mut self, set: &ReadySet, hold: HoldId) {
        while !self.output.is_empty() {
            match socket::send(&self.stream, &self.output) {
                Ok(n) => drop(self.output.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.writable.is_none() {
                        let stream = self.stream.as_fd().try_clone_to_owned().ok();
                        self.writable = stream.filter(|stream| set.add_writable(stream, Self::token(hold)).is_ok());
                    }
                    return;
                }
                // Its end is read.
                Err(_) => self.output.clear(),
            }
        }
        if let Some(writable) = self.writable.take() {
            set.remove(&writable);
        }
    }
}
