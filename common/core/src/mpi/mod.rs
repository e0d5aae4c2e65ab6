//! The server of MPI libraries: the ranks of a world, the data that each has put for the others, and the fences at which they wait.
//!
//! One machine per agent. A connection speaks PMI-1 (MPICH, Intel MPI) or PMIx (Open MPI); its first bytes show the protocol. Sockets are
//! the business of an edge. The machine asks it whether a connection may speak for a rank.

mod fences;
mod job_data;
mod layout;
mod pmi1;
mod pmix;
mod remote;
#[cfg(test)]
mod tests;

pub use layout::{HostRanks, Layout};

use crate::id::{ClientId, Rank};
use crate::store::Table;
use crate::wire::frozen::client::Reply;
use crate::wire::pmi1::Malformed as BadLine;
use crate::wire::pmix::{Hello, Malformed as BadMessage};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use remote::{Pending, Remote};

/// Most bytes that one rank may have put.
pub const MOST_PER_RANK: usize = 16 << 20;
/// Most bytes that wait for a client that does not read.
pub const MAX_UNREAD: usize = 64 << 20;

/// Why a connection is closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    /// The connection speaks neither wire.
    #[error("its first bytes are neither PMI-1 nor PMIx")]
    OtherProtocol,
    /// A line is no message of PMI-1.
    #[error(transparent)]
    Line(#[from] BadLine),
    /// A message is none of PMIx.
    #[error(transparent)]
    Message(#[from] BadMessage),
    /// The process speaks for a rank that it does not belong to.
    #[error("it speaks for rank {0}, of which it is no process")]
    OtherRank(u32),
    /// A tool, or a process of another job.
    #[error("it is no process of this job")]
    Stranger,
    /// A message that must not come at this point.
    #[error("a message comes out of order")]
    Order,
    /// The rank has another process that has called `MPI_Init` and not `MPI_Finalize`.
    #[error("another process of rank {0} is in MPI already: a rank is one process of MPI at a time")]
    Twice(u32),
    /// The rank has put too many bytes.
    #[error("rank {0} has put more than {MOST_PER_RANK} bytes")]
    Full(u32),
}

/// An action for the owner of the sockets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send these bytes.
    Write {
        /// To whom.
        client: ClientId,
        /// After what was to be sent before.
        bytes: Vec<u8>,
    },
    /// Ask the store of the ranks' generation; answered by [`Mpi::answered`].
    Ask {
        /// The number of the request.
        seq: u64,
        /// The request.
        words: Vec<u8>,
    },
    /// Close the connection.
    Close {
        /// Whose.
        client: ClientId,
        /// Why.
        why: Broken,
    },
    /// A rank has called `MPI_Abort`.
    Abort {
        /// Which.
        rank: Rank,
        /// The code with which the job ends.
        code: i32,
        /// Its words.
        text: Vec<u8>,
    },
    /// A library of this rank has words for the user.
    Log {
        /// Which.
        rank: Rank,
        /// The words.
        text: Vec<u8>,
    },
    /// These files are to be removed when the rank is gone.
    Cleanup {
        /// Which.
        rank: Rank,
        /// Its files.
        path: Vec<u8>,
    },
}

/// Protocol of a connection, and its state.
#[derive(Debug)]
enum Session {
    /// No byte has come.
    New,
    Lines(pmi1::Session),
    Messages(pmix::Session),
    /// The connection is being closed.
    Broken,
}

/// The machine.
#[derive(Debug)]
pub struct Mpi {
    layout: Layout,
    sessions: Table<Session>,
    next: u32,
    lines: pmi1::Lines,
    messages: pmix::Messages,
    remote: Remote,
    out: VecDeque<Action>,
}

/// The parts of the machine that all sessions share.
struct Cx<'a> {
    layout: &'a Layout,
    out: &'a mut VecDeque<Action>,
    remote: &'a mut Remote,
    client: ClientId,
}

impl Cx<'_> {
    fn write(&mut self, client: ClientId, bytes: Vec<u8>) {
        self.out.push_back(Action::Write { client, bytes });
    }

    fn answer(&mut self, bytes: Vec<u8>) {
        self.write(self.client, bytes);
    }
}

impl Mpi {
    /// The machine of a host.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            sessions: Table::default(),
            next: 0,
            lines: pmi1::Lines::default(),
            messages: pmix::Messages::default(),
            remote: Remote::default(),
            out: VecDeque::new(),
        }
    }

    /// A connection of a process of the job.
    pub fn open(&mut self) -> ClientId {
        let client = self.sessions.free_from(self.next);
        self.next = client.get().wrapping_add(1);
        self.sessions.insert(client, Session::New);
        client
    }

    /// Bytes from a connection: those that were left over, and what has come after them. Returns the number of bytes that are done with.
    /// `speaks_for`: whether the process at the other end belongs to this rank.
    pub fn receive(&mut self, client: ClientId, bytes: &[u8], mut speaks_for: impl FnMut(Rank) -> bool) -> usize {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            if rest.is_empty() {
                return used;
            }
            match self.first(client, rest, &mut speaks_for) {
                Ok(0) => return used,
                Ok(more) => used = used.saturating_add(more),
                Err(why) => {
                    self.break_off(client, why);
                    return bytes.len();
                }
            }
        }
    }

    /// Handles the first message of some bytes: the number of its bytes, or 0 if it is not complete.
    fn first(
        &mut self,
        client: ClientId,
        bytes: &[u8],
        speaks_for: &mut dyn FnMut(Rank) -> bool,
    ) -> Result<usize, Broken> {
        let Self { layout, sessions, lines, messages, remote, out, .. } = self;
        let Some(session) = sessions.get_mut(client) else { return Ok(bytes.len()) };
        let mut cx = Cx { layout, out, remote, client };
        if matches!(session, Session::New) {
            match begins(bytes)? {
                Some(begun) => *session = begun,
                None => return Ok(0),
            }
        }
        match session {
            Session::Lines(session) => lines.receive(&mut cx, session, bytes, speaks_for),
            Session::Messages(session) => messages.receive(&mut cx, session, bytes, speaks_for),
            Session::New | Session::Broken => Ok(bytes.len()),
        }
    }

    fn break_off(&mut self, client: ClientId, why: Broken) {
        self.forget(client);
        if let Some(session) = self.sessions.get_mut(client) {
            *session = Session::Broken;
            self.out.push_back(Action::Close { client, why });
        }
    }

    /// A connection is closed.
    pub fn closed(&mut self, client: ClientId) {
        self.forget(client);
        self.sessions.remove(client);
    }

    fn forget(&mut self, client: ClientId) {
        match self.sessions.get(client) {
            Some(Session::Lines(session)) => self.lines.closed(client, session),
            Some(Session::Messages(session)) => self.messages.closed(client, session),
            Some(Session::New | Session::Broken) | None => {}
        }
    }

    /// The store has answered a request.
    pub fn answered(&mut self, seq: u64, words: &[u8]) {
        let Self { layout, lines, messages, remote, out, .. } = self;
        let (Some(pending), Ok(reply)) = (remote.take(seq), Reply::parse(words)) else { return };
        let mut cx = Cx { layout, out, remote, client: ClientId::new(0) };
        match (pending, reply) {
            // The store ends with the ranks: they are being ended.
            (_, Reply::Refused(_)) | (Pending::Quiet, _) => {}
            (Pending::Barrier(barrier), _) => pmi1::all_have_come(&mut cx, barrier),
            (Pending::Keys(barrier), Reply::Values(values)) => lines.take_keys(&mut cx, &barrier, &values),
            (Pending::Meeting(met), _) => messages.release(&mut cx, &met),
            (Pending::Committed(wanted), _) => pmix::ask_for(&mut cx, wanted),
            (Pending::Data(wanted), Reply::Value(data)) => pmix::hand_out_far(&mut cx, &wanted, data),
            (Pending::Keys(_) | Pending::Data(_), _) => {}
        }
    }

    /// Whether a rank has called `MPI_Init` and not `MPI_Finalize`.
    #[must_use]
    pub fn is_inside(&self, rank: Rank) -> bool {
        self.lines.is_inside(rank) || self.messages.is_inside(rank)
    }

    /// Whether any rank has come.
    #[must_use]
    pub fn was_used(&self) -> bool {
        self.next > 0
    }

    /// The next thing to do.
    #[must_use]
    pub fn poll_action(&mut self) -> Option<Action> {
        self.out.pop_front()
    }
}

/// Protocol of a connection that begins with these bytes; `None`: too few bytes.
fn begins(bytes: &[u8]) -> Result<Option<Session>, Broken> {
    let starts = |whole: &[u8]| whole.starts_with(bytes) || bytes.starts_with(whole);
    match () {
        () if starts(b"cmd=") => Ok((bytes.len() >= 4).then(|| Session::Lines(pmi1::Session::default()))),
        () if starts(&Hello::BEGINNING) => Ok((bytes.len() >= 4).then(|| Session::Messages(pmix::Session::default()))),
        () => Err(Broken::OtherProtocol),
    }
}
