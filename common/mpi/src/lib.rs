//! The server of MPI libraries: the ranks of a world, the data that each has put for the others, and the fences at which they wait.
//!
//! One machine per agent. A connection speaks PMI-1 (MPICH, Intel MPI) or PMIx (Open MPI); its first bytes show the protocol. Sockets are
//! the business of an edge. The machine asks it whether a connection may speak for a rank.
//!
//! Pure, as `rlaunch-base` says.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

mod fences;
mod help;
mod init_wait;
mod job_data;
mod layout;
mod looks;
mod names;
mod origin;
mod pmi1;
mod pmix;
mod refusals;
mod remote;
mod shm_names;
mod spawn;
#[cfg(test)]
mod tests;

pub use help::Name as HelpName;
pub use init_wait::PATIENCE;
pub use layout::Layout;
pub use layout::is_this_host;
use origin::Origin;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use init_wait::InitWait;
use looks::Looks;
use pmix::Looking;
use remote::{Pending, Remote};
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::machine::earliest_of;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Mono;
use rlaunch_keyvalue::store::Table;
use rlaunch_protocol::wire::frozen::client::Reply;
use rlaunch_protocol::wire::node_news::{MpiNews, MpiWire};
use rlaunch_protocol::wire::pmi1::Malformed as BadLine;
use rlaunch_protocol::wire::pmix::{Hello, Malformed as BadMessage};

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
    /// Ranks wait at too many fences, or have used too many.
    #[error("the table of MPI's fences is full: it has {0} entries")]
    ManyFences(usize),
    /// The store has refused a request.
    #[error("the store has refused a request of MPI: {0}")]
    Store(String),
    /// The rank has another process that has called `MPI_Init` and not `MPI_Finalize`.
    #[error("another process of rank {0} is in MPI already: a rank is one process of MPI at a time")]
    Twice(u32),
    /// The rank takes part in rounds.
    #[error("rank {0} takes part in in-process restarts, which MPI cannot survive: use --max-restarts, or no MPI")]
    InRounds(u32),
    /// The rank has put too many bytes.
    #[error("rank {0} has put more than {1} bytes")]
    Full(u32, usize),
}

/// The worlds that share a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The ranks' own world.
    World,
    /// All worlds of the job: the store is that of the first one.
    Job,
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
    /// Ask a store; answered by [`Mpi::answered`].
    Ask {
        /// The number of the request.
        seq: u64,
        /// Which store.
        reach: Reach,
        /// The request.
        words: Vec<u8>,
    },
    /// Order something of the job for a rank; answered by [`Mpi::answered`].
    Order {
        /// The number of the request.
        seq: u64,
        /// The connection that asks: its process needs the rights of the job.
        client: ClientId,
        /// Whose order.
        rank: Rank,
        /// The order (`frozen::client::order`).
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
    /// A fact for the launcher.
    News(MpiNews),
    /// Look for an MPI library that a rank of this host has loaded; answered by [`Mpi::loaded`] if there is one.
    Look,
    /// A library of this rank has words for the user.
    Log {
        /// Which.
        rank: Rank,
        /// The words.
        text: Vec<u8>,
        /// The help message that this is. [`Mpi::help_written`] gets the result.
        help: Option<HelpName>,
    },
    /// The library of a process makes files in /dev/shm, which are to be removed when the ranks of the host are gone.
    Cleanup {
        /// The connection of the process: the files are of its user.
        client: ClientId,
        /// The names of the files; `.NUMBER.` is a part of the names that Open MPI makes.
        names: [String; 2],
    },
}

/// Protocol of a connection, and its state.
#[derive(Debug)]
enum Session {
    /// No byte has come from this process.
    New(u64),
    Lines(pmi1::Session),
    Messages(pmix::Session),
    /// The connection is being closed.
    Broken,
}

impl Session {
    /// Its wire, if it speaks for a rank.
    fn wire(&self) -> Option<MpiWire> {
        match self {
            Self::Lines(session) => session.rank().map(|_| MpiWire::Pmi1),
            Self::Messages(session) => session.rank().map(|_| MpiWire::Pmix),
            Self::New(_) | Self::Broken => None,
        }
    }
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
    init_wait: InitWait,
    looks: Looks,
    /// Ranks that take part in rounds.
    in_rounds: RankSet,
    /// The launcher knows that MPI is used.
    is_used: bool,
    /// The user has read the cause of a failure that may be the same for many ranks.
    is_reported: bool,
    out: VecDeque<Action>,
}

/// Whether the process at the other end belongs to a rank; `None`: not known yet.
type SpeaksFor<'a> = dyn FnMut(Rank) -> Option<bool> + 'a;

/// The parts of the machine that all sessions share.
struct Cx<'a> {
    layout: &'a Layout,
    out: &'a mut VecDeque<Action>,
    remote: &'a mut Remote,
    init_wait: &'a mut InitWait,
    in_rounds: &'a RankSet,
    client: ClientId,
    now: Mono,
}

impl Cx<'_> {
    fn write(&mut self, client: ClientId, bytes: Vec<u8>) {
        self.out.push_back(Action::Write { client, bytes });
    }

    fn answer(&mut self, bytes: Vec<u8>) {
        self.write(self.client, bytes);
    }

    /// Whether the process at the other end may speak for a rank of this host. False: that is not known yet.
    fn may_speak_for(&self, rank: Rank, speaks_for: &mut SpeaksFor<'_>) -> Result<bool, Broken> {
        let number = rank.get();
        if !self.layout.is_here(number) {
            return Err(Broken::OtherRank(number));
        }
        match speaks_for(rank) {
            None => Ok(false),
            Some(false) => Err(Broken::OtherRank(number)),
            Some(true) if self.in_rounds.contains(rank) => Err(Broken::InRounds(number)),
            Some(true) => Ok(true),
        }
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
            init_wait: InitWait::default(),
            looks: Looks::default(),
            in_rounds: RankSet::new(),
            is_used: false,
            is_reported: false,
            out: VecDeque::new(),
        }
    }

    /// A connection of a process of the job.
    pub fn open(&mut self) -> ClientId {
        let client = self.sessions.free_from(self.next);
        self.open_as(client, 0);
        client
    }

    /// A connection that has this number already: several machines share the numbers. `process`: a number of the process that has made it.
    pub fn open_as(&mut self, client: ClientId, process: u64) {
        self.next = client.get().wrapping_add(1);
        self.sessions.insert(client, Session::New(process));
    }

    /// Bytes from a connection: those that were left over, and what has come after them. Returns the number of bytes that are done with.
    /// `speaks_for`: whether the process at the other end belongs to this rank. `None`: the rank is being started, and its process is not
    /// known yet. Then the bytes are left over.
    pub fn receive(
        &mut self,
        now: Mono,
        client: ClientId,
        bytes: &[u8],
        mut speaks_for: impl FnMut(Rank) -> Option<bool>,
    ) -> usize {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            if rest.is_empty() {
                return used;
            }
            match self.first(now, client, rest, &mut speaks_for) {
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
        now: Mono,
        client: ClientId,
        bytes: &[u8],
        speaks_for: &mut SpeaksFor<'_>,
    ) -> Result<usize, Broken> {
        let Self { layout, sessions, lines, messages, remote, init_wait, looks, in_rounds, is_used, out, .. } = self;
        let Some(session) = sessions.get_mut(client) else { return Ok(bytes.len()) };
        let mut cx = Cx { layout, out, remote, init_wait, in_rounds, client, now };
        if let Session::New(process) = session {
            match begins(bytes, *process)? {
                Some(begun) => *session = begun,
                None => return Ok(0),
            }
        }
        let used = match session {
            Session::Lines(session) => lines.receive(&mut cx, session, bytes, speaks_for)?,
            Session::Messages(session) => messages.receive(&mut cx, session, bytes, speaks_for)?,
            Session::New(_) | Session::Broken => bytes.len(),
        };
        if let Some(wire) = session.wire().filter(|_| !*is_used) {
            *is_used = true;
            looks.end();
            out.push_back(Action::News(MpiNews::Used { wire }));
        }
        Ok(used)
    }

    fn break_off(&mut self, client: ClientId, why: Broken) {
        self.forget(client);
        let Some(session) = self.sessions.get_mut(client) else { return };
        let session = core::mem::replace(session, Session::Broken);
        if let (Some(rank), Broken::ManyFences(_)) = (session.rank(), &why) {
            self.report(rank, &why);
        }
        self.out.push_back(Action::Close { client, why });
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
            Some(Session::New(_) | Session::Broken) | None => {}
        }
    }

    /// The store has answered a request.
    pub fn answered(&mut self, now: Mono, seq: u64, words: &[u8]) {
        let (Some(pending), Ok(reply)) = (self.remote.take(seq), Reply::parse(words)) else { return };
        if let Reply::Refused(refused) = &reply
            && self.handle_refusal(&pending, refused)
        {
            return;
        }
        let Self { layout, sessions, lines, messages, remote, init_wait, in_rounds, out, .. } = self;
        let mut cx = Cx { layout, out, remote, init_wait, in_rounds, client: ClientId::new(0), now };
        let values: &[Option<&[u8]>] = if let Reply::Values(values) = &reply { values } else { &[] };
        match pending {
            Pending::Quiet | Pending::Put(_) => {}
            Pending::Name(client, request) => names::answer_line(&mut cx, client, request, &reply),
            Pending::Published(waiter, rest) => names::answer_published(&mut cx, waiter, rest, &reply),
            Pending::Lookup(taking) if sessions.get(taking.waiter.client).is_none() => {}
            Pending::Lookup(taking) => taking.answered(&mut cx, &reply),
            Pending::Spawn(spawn) => spawn.answered(&mut cx, &reply),
            Pending::Help(name) => messages.help.answered(&mut cx, &name, &reply),
            Pending::OfWorld(of) => messages.take_of_world(&mut cx, of, &reply),
            Pending::Keys(wanted) => lines.take_keys(&mut cx, wanted, &reply),
            Pending::Data(Looking::Host(wanted)) => messages.take_data(&mut cx, wanted, &reply),
            Pending::Data(Looking::One(wanted)) => {
                let data = if let Reply::Value(data) = reply { data } else { None };
                pmix::hand_out_far(&mut cx, wanted, data);
            }
            Pending::Came(wire, all) => {
                let inside = |rank| lines.is_inside(rank) || messages.is_inside(rank);
                cx.init_wait.learn((wire, &all), values, (cx.layout, cx.out), inside);
            }
            Pending::Barrier(met) => lines.all_have_come(&mut cx, &met),
            Pending::Meeting(met) => messages.release(&mut cx, &met),
            Pending::Committed(wanted) => pmix::ask_for(&mut cx, wanted),
        }
    }

    /// Help messages of Open MPI that were not shown again, since the last call.
    pub fn repeated_help(&mut self) -> Vec<MpiNews> {
        self.messages.help.report()
    }

    /// A help message was written to the stderr of a rank, or that had no room for it.
    pub fn help_written(&mut self, name: &HelpName, is_written: bool) {
        self.out.extend(self.messages.help.written(name, is_written));
    }

    /// The stderr of a rank is about to end: texts that wait for an answer are shown now.
    pub fn show_last(&mut self, now: Mono, rank: Rank) {
        let Self { layout, messages, remote, init_wait, in_rounds, out, .. } = self;
        let mut cx = Cx { layout, out, remote, init_wait, in_rounds, client: ClientId::new(0), now };
        messages.help.show_last(&mut cx, rank);
    }

    /// A rank takes part in rounds from now on.
    pub fn register(&mut self, rank: Rank) {
        self.in_rounds.insert(rank);
    }

    /// Whether a rank has used MPI.
    #[must_use]
    pub fn has_come(&self, rank: Rank) -> bool {
        self.lines.has_come(rank) || self.messages.has_come(rank)
    }

    /// A rank has loaded an MPI library.
    pub fn loaded(&mut self, library: OsBytes) {
        if !self.is_used {
            self.looks.end();
            self.out.push_back(Action::News(MpiNews::Loaded { library }));
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        let Self { layout, lines, messages, remote, init_wait, looks, in_rounds, out, .. } = self;
        if layout.size() > 1 && looks.is_due(now) {
            out.push_back(Action::Look);
        }
        let inside = |rank| lines.is_inside(rank) || messages.is_inside(rank);
        init_wait.on_timeout(now, (layout, out, remote), inside);
        messages.on_timeout(&mut Cx { layout, out, remote, init_wait, in_rounds, client: ClientId::new(0), now });
    }

    /// When `handle_timeout` is to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        earliest_of([self.init_wait.deadline(), self.messages.deadline(), self.looks.deadline()])
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

/// Protocol of a connection of a process that begins with these bytes; `None`: too few bytes.
fn begins(bytes: &[u8], process: u64) -> Result<Option<Session>, Broken> {
    let starts = |whole: &[u8]| whole.starts_with(bytes) || bytes.starts_with(whole);
    match () {
        () if starts(b"cmd=") => Ok((bytes.len() >= 4).then(|| Session::Lines(pmi1::Session::default()))),
        () if starts(&Hello::BEGINNING) => {
            Ok((bytes.len() >= 4).then(|| Session::Messages(pmix::Session::of(process))))
        }
        () => Err(Broken::OtherProtocol),
    }
}
