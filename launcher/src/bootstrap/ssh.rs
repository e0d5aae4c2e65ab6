//! A carrier: a process, as ssh or srun, with a socket for its stdin and stdout, and a pipe for its stderr. Bytes for it wait here until it
//! takes them.

use super::source::Source;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bootstrap::{CarrierEnd, srun};
use rlaunch_sys::child::{self, Child, Stand, Started};
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::fd;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::pidfd::How;
use rlaunch_sys::spawn::Strings;
use rlaunch_sys::ssh_reaper::SshReaper;
use rlaunch_sys::tty::Lent;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Read and written at a time.
const CHUNK: usize = 64 << 10;

/// The subject of a token of the readiness set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Out,
    Err,
    Writable,
    End,
    /// The end of the ssh that was asked about the way there.
    Route,
    /// An agent of a step has connected.
    Arrived,
    /// The end of the command that was asked for the settings of the cluster.
    Config,
}

/// A token: the node, and a part of its ssh.
pub(super) fn token(node: NodeId, part: Part) -> u64 {
    u64::from(node.get()) << 3 | part as u64
}

/// The way back.
pub(super) fn of_token(token: u64) -> (NodeId, Part) {
    let part = match token & 7 {
        0 => Part::Out,
        1 => Part::Err,
        2 => Part::Writable,
        3 => Part::End,
        4 => Part::Route,
        5 => Part::Arrived,
        _ => Part::Config,
    };
    (NodeId::new(u32::try_from(token >> 3).unwrap_or(u32::MAX)), part)
}

/// The bytes that are being written.
#[derive(Debug)]
enum Outgoing {
    Nothing,
    Bytes(Vec<u8>, usize),
    Binary(u64),
}

/// An ssh that runs.
#[derive(Debug)]
pub(super) struct Ssh {
    node: NodeId,
    child: Child,
    /// Gone when it has become an edge.
    stream: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    outgoing: Outgoing,
    /// Watched while something waits to be written.
    writable: Option<OwnedFd>,
    /// While it may ask the user something.
    terminal: Option<Lent>,
}

impl Ssh {
    pub(super) fn start(
        node: NodeId,
        words: &[OsBytes],
        prompt: bool,
        ssh_reaper: &SshReaper,
        origin: &Origin,
        set: &ReadySet,
    ) -> io::Result<Self> {
        // Without another exec, which takes a part of the time that srun takes.
        let (environment, words) = srun::without_env(words);
        let words: Strings = words.iter().map(OsBytes::as_slice).collect();
        let environment: Option<Strings> = environment.map(|pairs| pairs.iter().map(OsBytes::as_slice).collect());
        let mut terminal = if prompt { Lent::new() } else { None };
        let stand = if prompt { Stand::Before(&mut terminal) } else { Stand::Apart };
        let Started { child, stream, stderr } = child::start(&words, environment.as_ref(), stand, ssh_reaper, origin)?;
        let ssh = Self {
            node,
            child,
            stream: Some(stream),
            stderr: Some(stderr),
            outgoing: Outgoing::Nothing,
            writable: None,
            terminal,
        };
        match ssh.watch(set) {
            Ok(()) => Ok(ssh),
            Err(error) => {
                ssh.child.end(true);
                Err(error)
            }
        }
    }

    fn watch(&self, set: &ReadySet) -> io::Result<()> {
        for (fd, part) in [(&self.stream, Part::Out), (&self.stderr, Part::Err)] {
            let Some(fd) = fd else { continue };
            fd::set_nonblocking(fd)?;
            set.add(fd, token(self.node, part))?;
        }
        set.add(&self.child.pidfd, token(self.node, Part::End))
    }

    /// Reads one of its streams; at the end the stream is watched no more.
    pub(super) fn read(&mut self, part: Part, set: &ReadySet) -> Vec<u8> {
        let stream = if part == Part::Out { &mut self.stream } else { &mut self.stderr };
        let Some(from) = stream else { return Vec::new() };
        let mut all = Vec::new();
        loop {
            match fd::read_onto(from.as_raw_fd(), &mut all, CHUNK) {
                Ok(1..) if all.len() < CHUNK => {}
                Ok(1..) => return all,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return all,
                Ok(0) | Err(_) => {
                    set.remove(from);
                    if part == Part::Err {
                        *stream = None;
                    }
                    return all;
                }
            }
        }
    }

    pub(super) fn write(&mut self, bytes: Vec<u8>, source: &Source, set: &ReadySet) {
        self.outgoing = Outgoing::Bytes(bytes, 0);
        self.flush(source, set);
    }

    pub(super) fn send_binary(&mut self, source: &Source, set: &ReadySet) {
        self.outgoing = Outgoing::Binary(0);
        self.flush(source, set);
    }

    /// Writes the bytes that ssh takes now; is woken when it takes more.
    pub(super) fn flush(&mut self, source: &Source, set: &ReadySet) {
        let Some(stream) = &self.stream else { return };
        let mut chunk = Vec::new();
        loop {
            let rest = match &self.outgoing {
                Outgoing::Nothing => break,
                Outgoing::Bytes(bytes, at) => bytes.get(*at..).unwrap_or_default(),
                Outgoing::Binary(at) => {
                    chunk.resize(CHUNK, 0);
                    let n = source.read_at(&mut chunk, *at).unwrap_or_else(|error| {
                        tracing::error!(%error, "our own binary cannot be read");
                        // The host finds that too few bytes came, and reports it.
                        let _gone = stream.try_clone().map(|s| UnixStream::from(s).shutdown(Shutdown::Write));
                        0
                    });
                    chunk.get(..n).unwrap_or_default()
                }
            };
            if rest.is_empty() {
                self.outgoing = Outgoing::Nothing;
                break;
            }
            match fd::write(stream.as_raw_fd(), rest) {
                Ok(n) => match &mut self.outgoing {
                    Outgoing::Nothing => {}
                    Outgoing::Bytes(_, at) => *at += n,
                    Outgoing::Binary(at) => *at += u64::try_from(n).unwrap_or(0),
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.wait_writable(set),
                // The process has ended, and its end will be reported.
                Err(_) => self.outgoing = Outgoing::Nothing,
            }
        }
        if let Some(writable) = self.writable.take() {
            set.remove(&writable);
        }
    }

    fn wait_writable(&mut self, set: &ReadySet) {
        if self.writable.is_some() {
            return;
        }
        let writable = self.stream.as_ref().and_then(|stream| stream.try_clone().ok());
        // Without a descriptor the host's deadline ends the matter.
        self.writable = writable.filter(|stream| set.add_writable(stream, token(self.node, Part::Writable)).is_ok());
    }

    /// Its stdin and stdout, for an edge. Its stderr and its end stay here.
    pub(super) fn take_edge(&mut self, set: &ReadySet) -> Option<UnixStream> {
        if let Some(writable) = self.writable.take() {
            set.remove(&writable);
        }
        let stream = self.stream.take()?;
        set.remove(&stream);
        let edge = UnixStream::from(stream);
        // The next owner expects it so.
        edge.set_nonblocking(false).ok()?;
        Some(edge)
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<CarrierEnd> {
        self.child.ended().map(|how| match how {
            How::Code(code) => CarrierEnd::Code(code),
            How::Signal { number, .. } => CarrierEnd::Signal(number),
        })
    }

    /// Takes the terminal back: ssh has authenticated, and asks nothing more.
    pub(super) fn take_terminal(&mut self) {
        self.terminal = None;
    }

    /// Whether Ctrl-C at the terminal reaches it, and not us.
    const fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// The user has answered its question with Ctrl-C: that was meant for all of us.
    pub(super) fn pass_on(&self, end: CarrierEnd) {
        if let CarrierEnd::Signal(number @ (2 | 3)) = end
            && self.has_terminal()
        {
            rlaunch_sys::signals::send_to_self(number);
        }
    }

    pub(super) fn end(&self, hard: bool) {
        self.child.end(hard);
    }

    /// Before it is dropped: a descriptor that is watched is taken out first.
    pub(super) fn forget(self, set: &ReadySet) {
        set.remove(&self.child.pidfd);
        for fd in [&self.stream, &self.stderr, &self.writable].into_iter().flatten() {
            set.remove(fd);
        }
    }
}
