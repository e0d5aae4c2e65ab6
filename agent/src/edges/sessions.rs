//! Sessions: connections at our socket of processes that take part in rounds. The machine decides; here are only bytes.
//!
//! A session is about nothing else, and its end is an event. So a process that does not read, or sends malformed messages, is cut off: it
//! cannot follow a round any more. Messages from before the end of a process are handled before that end: the process may have announced
//! that it leaves.

use super::{Edges, rank_table};
use crate::edges::live_set::LiveSet;
use crate::edges::part::{Base, Part};
use rlaunch_base::id::{Rank, SessionId, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::node::{NodeEvent, SessionAction};
use rlaunch_keyvalue::store::buffers::{BufferQuota, BufferShare};
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, ClientMessage, Unread};
use rlaunch_protocol::wire::frozen::client::{NO_RANK, bye_frame, frame_len};
use rlaunch_sys::epoll::ReadySet;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::task::Context;

/// With this bit a token says that there is room to write.
const WRITABLE: u64 = 1 << 32;
/// Read at once.
const CHUNK: usize = 64 << 10;
/// Most that is ready at a time.
const BURST: usize = 256;
/// Rounds before others of this process have their turn.
const ROUNDS: usize = 16;
/// Most bytes that a process has not read: a round is some kilobytes of variables, and there is one at a time.
const MOST_UNREAD: usize = 1 << 20;
/// Most bytes that are held for all sessions together.
const MOST_BUFFERED: usize = 128 << 20;

/// The reason for a session that ends although its process has not closed it.
const WRONG: &str = "this is not what a client of rlaunch says";
const TWICE: &str = "a process registers once on a connection";
const STRANGER: &str = "only processes that this job has started take part in its rounds";
const OTHER_RANK: &str =
    "the process is none of the rank whose number it gives; see whether the program changes RLAUNCH_INITIAL_RANK";

/// The terms of a process: names and values.
type Terms = Vec<(OsBytes, OsBytes)>;

/// A connection whose first frame was a `Register`.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) socket: UnixStream,
    /// For which rank it speaks.
    pub(super) rank: u32,
    /// Its world, if that is not the first one.
    pub(super) world: Option<WorldId>,
    /// That frame.
    pub(super) register: Vec<u8>,
    /// Bytes after that frame.
    pub(super) held: Vec<u8>,
    /// Bytes that it has not read.
    pub(super) unsent: Vec<u8>,
}

impl Newcomer {
    /// The initial rank that the process gives, if any.
    fn rank(&self) -> Option<Rank> {
        Some(self.rank).filter(|rank| *rank != NO_RANK).map(Rank::new)
    }

    /// Returns its terms, if it is a process of the job, below the process `above`, and of the rank that it gives, which runs as the
    /// processes `rank`. A rank that runs on another host has none here: the machine refuses it for a better reason.
    fn terms(&self, above: i32, rank: &[i32]) -> Result<Terms, &'static str> {
        let process = rlaunch_sys::unix::process_of(&self.socket);
        let Some(process) = process.filter(|pid| rlaunch_sys::holders::is_below(*pid, above)) else {
            return Err(STRANGER);
        };
        if !rank.is_empty() && !rlaunch_sys::holders::belongs_to(process, rank, above) {
            return Err(OTHER_RANK);
        }
        match ClientMessage::parse(&self.register) {
            Ok(ClientMessage::Register(terms)) => Ok(terms),
            Ok(_) | Err(_) => Err(WRONG),
        }
    }

    /// Closes it with a message, as far as its socket takes that at once: a process that has not read earlier messages is not waited for.
    /// The client sees the end of its connection.
    fn refuse(self, why: &str) {
        let Self { mut socket, unsent, .. } = self;
        let _untold = socket.write(&[unsent, bye_frame(why)].concat());
    }
}

#[derive(Debug)]
struct Session {
    socket: UnixStream,
    held: Vec<u8>,
    unsent: Vec<u8>,
    /// A copy of the descriptor that says when there is room.
    room: Option<OwnedFd>,
    /// Whether it ends: no more is read from it, and it goes when it has read its messages.
    is_ending: bool,
    /// Share of the buffer quota of all sessions.
    share: BufferShare,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Sessions {
    set: LiveSet,
    chunk: Vec<u8>,
    table: BTreeMap<SessionId, Session>,
    buffers: BufferQuota,
    last: u32,
}

/// Takes in those who have come. Before the first of them nothing of this exists.
pub(super) fn admit(edges: &mut Edges) {
    let newcomers = edges.parts.store.as_mut().map(super::store::Store::newcomers).unwrap_or_default();
    for newcomer in newcomers {
        if let Err(error) = take_in(edges, newcomer) {
            tracing::warn!(%error, "a process cannot take part in rounds");
        }
    }
}

fn take_in(edges: &mut Edges, newcomer: Newcomer) -> io::Result<()> {
    if edges.base.ranks.launching() {
        // The process may be of a rank whose start is not taken in yet.
        rank_table::drain_outcomes(&mut edges.base);
    }
    let rank = newcomer.rank();
    // The machine refuses ranks of other worlds.
    let of_first_world = rank.filter(|_| newcomer.world.is_none());
    let processes =
        of_first_world.map(|rank| edges.base.ranks.processes_of((WorldId::new(0), rank))).unwrap_or_default();
    let terms = newcomer.terms(i32::try_from(std::process::id()).unwrap_or(0), &processes);
    let mpi = &mut edges.parts.mpi;
    let mut registered = |terms| {
        let both = of_first_world.zip(mpi.as_mut());
        both.map_or(Ok(()), |(rank, mpi)| mpi.register(rank)).map(|()| terms)
    };
    let terms = match terms.and_then(&mut registered) {
        Ok(terms) => terms,
        Err(why) => {
            tracing::debug!("a session is refused: {why}");
            newcomer.refuse(why);
            return Ok(());
        }
    };
    let Newcomer { socket, held, unsent, .. } = newcomer;
    let sessions = match &mut edges.parts.sessions {
        Some(sessions) => sessions,
        none => none.insert(Sessions::new()?),
    };
    let session = sessions.add(Session::new(socket, held, unsent))?;
    tracing::debug!(?rank, "session {session} begins");
    edges.base.events.push_back(NodeEvent::SessionBegun { session, rank, terms });
    let mut events = Vec::new();
    sessions.unpack(session, &mut events);
    edges.base.events.extend(events);
    Ok(())
}

impl Part for Sessions {
    type Action = SessionAction;

    fn perform(&mut self, base: &mut Base, action: SessionAction) {
        match action {
            SessionAction::Send { session, message } => {
                let mut lost = Vec::new();
                self.write(session, &message.to_frame(), &mut lost);
                base.events.extend(lost);
            }
            SessionAction::End { session } => self.end(session),
        }
    }

    /// Reads the messages of the sessions. Their events come before all others.
    fn poll(&mut self, base: &mut Base, cx: &mut Context<'_>) {
        let ended = base.events.iter().any(|event| matches!(event, NodeEvent::Exited { .. }));
        for event in self.look(cx, ended).into_iter().rev() {
            base.events.push_front(event);
        }
    }
}

impl Sessions {
    fn new() -> io::Result<Self> {
        let (set, chunk) = (LiveSet::with_room(BURST)?, vec![0; CHUNK]);
        let buffers = BufferQuota::new(MOST_BUFFERED);
        Ok(Self { set, chunk, table: BTreeMap::new(), buffers, last: 0 })
    }

    fn add(&mut self, session: Session) -> io::Result<SessionId> {
        // A number would be given twice only after four thousand million of them.
        self.last = self.last.wrapping_add(1);
        let id = SessionId::new(self.last);
        self.set.add(&session.socket, u64::from(id.get()))?;
        self.table.insert(id, session);
        Ok(id)
    }

    /// Reads new bytes. `ended`: a process has, so what it has said last is here, whatever the runtime knows.
    fn look(&mut self, cx: &mut Context<'_>, ended: bool) -> Vec<NodeEvent> {
        let mut events = Vec::new();
        if let Some(tokens) = ended.then(|| self.set.look()).flatten() {
            self.round(tokens, &mut events);
        }
        for _ in 0..ROUNDS {
            let Some(tokens) = self.set.poll(cx) else { return events };
            self.round(tokens, &mut events);
        }
        cx.waker().wake_by_ref();
        events
    }

    fn round(&mut self, tokens: Vec<u64>, events: &mut Vec<NodeEvent>) {
        for token in tokens {
            let id = SessionId::new(u32::try_from(token & (WRITABLE - 1)).unwrap_or(0));
            if token & WRITABLE == 0 { self.read(id, events) } else { self.write(id, &[], events) }
        }
    }

    fn read(&mut self, id: SessionId, events: &mut Vec<NodeEvent>) {
        let Some(session) = self.table.get_mut(&id) else { return };
        match session.socket.read(&mut self.chunk) {
            // Messages of a session that is ending are dropped.
            Ok(1..) if session.is_ending => {}
            Ok(len @ 1..) => {
                session.held.extend_from_slice(self.chunk.get(..len).unwrap_or_default());
                self.unpack(id, events);
                self.charge(id, events);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Ok(_) | Err(_) => self.lose(id, None, events),
        }
    }

    /// Frames that are all there.
    fn unpack(&mut self, id: SessionId, events: &mut Vec<NodeEvent>) {
        while let Some(session) = self.table.get_mut(&id).filter(|session| !session.is_ending) {
            let said = match frame_len(&session.held) {
                Ok(Some(len)) if len <= session.held.len() => {
                    let rest = session.held.split_off(len);
                    ClientMessage::parse(&std::mem::replace(&mut session.held, rest))
                }
                Ok(_) => return,
                Err(malformed) => Err(malformed.into()),
            };
            match said {
                Ok(ClientMessage::Register(_)) => return self.lose(id, Some(TWICE), events),
                Ok(said) => events.push(NodeEvent::SessionMessage { session: id, said }),
                Err(Unread::Kind(kind)) => self.write(id, &AgentMessage::Unsupported(kind).to_frame(), events),
                Err(Unread::Malformed(_)) => return self.lose(id, Some(WRONG), events),
            }
        }
    }

    /// Writes what can be written.
    fn write(&mut self, id: SessionId, frame: &[u8], events: &mut Vec<NodeEvent>) {
        let Some(session) = self.table.get_mut(&id) else { return };
        session.unsent.extend_from_slice(frame);
        if session.unsent.len() > MOST_UNREAD {
            tracing::warn!("session {id} does not read what it is told");
            return self.lose(id, None, events);
        }
        match session.send(&self.set, u64::from(id.get())) {
            Ok(()) if session.is_ending && session.unsent.is_empty() => self.remove(id),
            Ok(()) => self.charge(id, events),
            Err(_) => self.lose(id, None, events),
        }
    }

    /// Charges the bytes that are held for a session. Without room for them, the session ends.
    fn charge(&mut self, id: SessionId, events: &mut Vec<NodeEvent>) {
        let Some(session) = self.table.get_mut(&id) else { return };
        let held = session.held.len().saturating_add(session.unsent.len());
        if let Err(full) = self.buffers.resize(&mut session.share, held) {
            self.lose(id, Some(&full.to_string()), events);
        }
    }

    fn end(&mut self, id: SessionId) {
        let Some(session) = self.table.get_mut(&id) else { return };
        session.is_ending = true;
        if session.unsent.is_empty() {
            self.remove(id);
        }
    }

    /// Ends a session that has ended, or is closed for this reason.
    fn lose(&mut self, id: SessionId, why: Option<&str>, events: &mut Vec<NodeEvent>) {
        let Some(session) = self.table.get_mut(&id) else { return };
        if let Some(why) = why {
            tracing::debug!("session {id} is ended: {why}");
            session.unsent.extend(bye_frame(why));
            // A process that does not read it sees the end.
            let _unread = session.send(&self.set, u64::from(id.get()));
        }
        if !session.is_ending {
            events.push(NodeEvent::SessionLost { session: id });
        }
        self.remove(id);
    }

    fn remove(&mut self, id: SessionId) {
        let Some(session) = self.table.remove(&id) else { return };
        self.buffers.release(&session.share);
        self.set.remove(&session.socket);
        session.room.iter().for_each(|room| self.set.remove(room));
    }
}

impl Session {
    fn new(socket: UnixStream, held: Vec<u8>, unsent: Vec<u8>) -> Self {
        Self { socket, held, unsent, room: None, is_ending: false, share: BufferShare::default() }
    }

    /// Writes what is taken, and waits for room for the rest.
    fn send(&mut self, set: &ReadySet, token: u64) -> io::Result<()> {
        let mut sent = 0;
        while let Some(rest @ [_, ..]) = self.unsent.get(sent..) {
            match self.socket.write(rest) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.unsent.drain(..sent);
        match (self.room.take(), self.unsent.is_empty()) {
            (None, false) => {
                let room = OwnedFd::from(self.socket.try_clone()?);
                set.add_writable(&room, token | WRITABLE)?;
                self.room = Some(room);
            }
            (Some(room), true) => set.remove(&room),
            (room, _) => self.room = room,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::id::Round;
    use std::os::unix::process::parent_id;
    use std::task::Waker;

    const ROUND: Round = Round::new(3);

    /// A process, and its session.
    struct Rig {
        sessions: Sessions,
        id: SessionId,
        client: UnixStream,
    }

    impl Rig {
        fn with(run: impl FnOnce(Self)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
            runtime.block_on(async {
                let mut sessions = Sessions::new().unwrap();
                let (client, socket) = UnixStream::pair().unwrap();
                socket.set_nonblocking(true).unwrap();
                let id = sessions.add(Session::new(socket, Vec::new(), Vec::new())).unwrap();
                run(Self { sessions, id, client });
            });
        }

        /// Returns the events, whatever the runtime knows of them.
        fn look(&mut self) -> Vec<NodeEvent> {
            self.sessions.look(&mut Context::from_waker(Waker::noop()), true)
        }

        fn said(&self, said: ClientMessage) -> NodeEvent {
            NodeEvent::SessionMessage { session: self.id, said }
        }

        fn gone(&self) -> NodeEvent {
            NodeEvent::SessionLost { session: self.id }
        }

        fn say(&mut self, bytes: &[u8]) {
            self.client.write_all(bytes).unwrap();
        }

        /// Returns all messages that the client gets, once no more are sent.
        fn received(&mut self) -> Vec<u8> {
            let mut received = Vec::new();
            self.client.read_to_end(&mut received).unwrap();
            received
        }
    }

    #[test]
    fn frame_is_reported_once_it_is_whole_and_before_the_end() {
        Rig::with(|mut rig| {
            let (alive, left) = (
                ClientMessage::Alive(ROUND, true),
                ClientMessage::Leave(rlaunch_protocol::rank_fault::Leave::Abort, "x".into()),
            );
            let bytes = [alive.to_frame(), left.to_frame()].concat();
            let (first, rest) = bytes.split_at(alive.to_frame().len() + 3);
            rig.say(first);
            assert_eq!(rig.look(), [rig.said(alive)]);
            rig.say(rest);
            rig.client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(rig.look(), [rig.said(left)]);
            assert_eq!(rig.look(), [rig.gone()]);
            assert!(rig.sessions.table.is_empty());
            assert_eq!(rig.look(), []);
        });
    }

    #[test]
    fn unknown_kind_is_answered_and_the_session_continues() {
        Rig::with(|mut rig| {
            rig.say(b"\x03\0\0\0\x63ab");
            assert_eq!(rig.look(), []);
            rig.say(&ClientMessage::Returned(ROUND).to_frame());
            assert_eq!(rig.look(), [rig.said(ClientMessage::Returned(ROUND))]);
            rig.sessions.end(rig.id);
            assert_eq!(rig.received(), AgentMessage::Unsupported(0x63).to_frame());
        });
    }

    #[test]
    fn malformed_session_gets_the_reason_and_is_closed() {
        let twice = ClientMessage::Register(Vec::new()).to_frame();
        for (bytes, why) in [(&b"\x02\0\0\0\x10\x03"[..], WRONG), (b"\xff\xff\xff\xff", WRONG), (&twice, TWICE)] {
            Rig::with(|mut rig| {
                rig.say(bytes);
                assert_eq!(rig.look(), [rig.gone()]);
                assert_eq!(rig.received(), bye_frame(why));
            });
        }
    }

    #[test]
    fn session_that_does_not_read_is_closed() {
        Rig::with(|mut rig| {
            let frame = AgentMessage::Dismissed(
                rlaunch_protocol::wire::frozen::client::client_round::Dismissal::Refused,
                OsBytes::new(vec![b'x'; 64 << 10]),
            );
            let (frame, mut events) = (frame.to_frame(), Vec::new());
            let most = 2 * (MOST_UNREAD + (4 << 20)) / frame.len();
            let written = (0..most).take_while(|_| {
                rig.sessions.write(rig.id, &frame, &mut events);
                events.is_empty()
            });
            assert!(written.count() < most, "what is not read is bounded");
            assert_eq!(events, [rig.gone()]);
        });
    }

    #[test]
    fn messages_before_end_are_read_to_the_end() {
        Rig::with(|mut rig| {
            let frame = AgentMessage::Finish(ROUND).to_frame();
            let (mut events, mut sent) = (Vec::new(), 0);
            while rig.sessions.table[&rig.id].unsent.is_empty() {
                rig.sessions.write(rig.id, &frame, &mut events);
                sent += frame.len();
            }
            rig.sessions.end(rig.id);
            rig.say(&ClientMessage::Returned(ROUND).to_frame());
            assert_eq!(rig.look(), [], "messages of an ending session are dropped");
            let mut read = vec![0; sent];
            let room = read.len() - frame.len();
            rig.client.read_exact(&mut read[..room]).unwrap();
            assert_eq!(rig.look(), []);
            assert_eq!(rig.received().len() + room, sent);
            assert!(read[..room].chunks(frame.len()).all(|own| own == frame));
        });
    }

    #[test]
    fn only_processes_of_the_job_take_part() {
        let (_client, socket) = UnixStream::pair().unwrap();
        let register = ClientMessage::Register(vec![("keys".into(), "1".into())]).to_frame();
        let mut newcomer = Newcomer { socket, rank: 0, world: None, register, held: Vec::new(), unsent: Vec::new() };
        let above = i32::try_from(parent_id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let asked = Ok(vec![("keys".into(), "1".into())]);
        assert_eq!(newcomer.terms(above, &[]), asked);
        assert_eq!(newcomer.terms(above, &[i32::MAX, own]), asked);
        assert_eq!(newcomer.terms(above, &[i32::MAX]), Err(OTHER_RANK));
        assert_eq!(newcomer.terms(own, &[own]), Err(STRANGER));
        newcomer.register.pop();
        assert_eq!(newcomer.terms(above, &[]), Err(WRONG));
    }

    #[test]
    fn refused_session_gets_the_reason_if_it_reads() {
        for reads in [true, false] {
            let (mut client, mut socket) = UnixStream::pair().unwrap();
            socket.set_nonblocking(true).unwrap();
            let mut before = 0;
            while !reads && let Ok(len) = socket.write(&[b'x'; 4096]) {
                before += len;
            }
            let (register, held, unsent) = (Vec::new(), Vec::new(), b"first ".to_vec());
            Newcomer { socket, rank: 0, world: None, register, held, unsent }.refuse(WRONG);
            let mut received = Vec::new();
            client.read_to_end(&mut received).unwrap();
            let wanted = if reads { [b"first ".to_vec(), bye_frame(WRONG)].concat() } else { vec![b'x'; before] };
            assert!(received == wanted, "{} bytes", received.len());
        }
    }
}
