//! A client of our own listener: its incomplete request, and the answers that it has not taken.

use crate::edges::client_socket;
use crate::edges::mpi::refused;
use crate::edges::sessions::Newcomer;
use rlaunch_base::id::{Rank, WorldId};
use rlaunch_keyvalue::store::Answer;
use rlaunch_keyvalue::store::buffers::{BufferQuota, BufferShare};
use rlaunch_protocol::wire::frozen::Malformed;
use rlaunch_protocol::wire::frozen::client::client_round::ClientMessage;
use rlaunch_protocol::wire::frozen::client::{
    HELLO, NO_RANK, VERSION, frame_len, hello, parse_hello, parse_world, put_answer_frame, put_reply_frame,
};
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::{rights, socket};
use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// With this bit a token says that there is room to write.
pub(super) const WRITABLE: u64 = 1 << 32;
/// With this bit: a client whose requests wait in the kernel has closed its connection.
pub(super) const HANG_UP: u64 = 1 << 33;

/// Room for answers, and for asks, that a client keeps between two of its asks.
const KEPT: usize = 16 << 10;
const KEPT_FOR_ASKS: usize = 1 << 10;
/// Bytes of answers that a client may leave unread and be answered on: it has asked for all of them before it has read the first.
const MOST_UNREAD: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Client {
    socket: UnixStream,
    /// When it came, in ticks since boot: its process began before.
    pub(super) since: u64,
    token: u64,
    has_greeted: bool,
    /// The rank that it speaks for, and whether it has asked something.
    rank: u32,
    has_asked: bool,
    held: Vec<u8>,
    unsent: Vec<u8>,
    /// A copy of the descriptor that says when there is room. Nothing is read meanwhile.
    room: Option<OwnedFd>,
    /// Its ask is under way: nothing more is read of it.
    is_asking: bool,
    watched: Watched,
    /// Share of the buffer quota of all clients.
    share: BufferShare,
}

/// Events of a client's socket that wake the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watched {
    /// Bytes to read, or the end.
    Input,
    /// The end only: the client has closed its connection.
    HangUp,
    Nothing,
}

/// Why a client is let go.
pub(super) enum Parted {
    /// The client has left, or its socket has failed.
    Left,
    /// Its message is malformed, for this reason.
    Wrong(Cow<'static, str>),
}

impl From<io::Error> for Parted {
    fn from(_: io::Error) -> Self {
        Self::Left
    }
}

impl From<Malformed> for Parted {
    fn from(_: Malformed) -> Self {
        Self::Wrong("this is not what a client of rlaunch says".into())
    }
}

impl Client {
    pub(super) fn new(socket: UnixStream, token: u64, set: &ReadySet) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        set.add(&socket, token)?;
        let (held, unsent) = (Vec::new(), Vec::new());
        let (rank, has_asked) = (NO_RANK, false);
        Ok(Self {
            socket,
            since: rights::ticks(),
            token,
            has_greeted: false,
            rank,
            has_asked,
            held,
            unsent,
            room: None,
            is_asking: false,
            watched: Watched::Input,
            share: BufferShare::default(),
        })
    }

    /// Takes what is there to read. How long the frame is that stands in `chunk`, if it is one, all of it, and nothing else; what is not
    /// that is held.
    pub(super) fn read(&mut self, chunk: &mut [u8]) -> Result<usize, Parted> {
        match socket::recv(&self.socket, chunk) {
            Ok(0) => Err(Parted::Left),
            Ok(len) => {
                let came = chunk.get(..len).unwrap_or_default();
                // The first frame says what the connection is for.
                let is_next = self.has_asked && !self.is_asking && self.held.is_empty();
                if is_next && frame_len(came)? == Some(len) {
                    self.is_asking = true;
                    return Ok(len);
                }
                self.held.extend_from_slice(came);
                Ok(0)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// The next frame, if it is all there, nothing else is asked, and it takes its answers. The beginning is answered here.
    pub(super) fn frame(&mut self) -> Result<Option<Vec<u8>>, Parted> {
        if !self.has_greeted {
            let Some(first) = self.held.first_chunk::<HELLO>() else { return Ok(None) };
            let (version, rank) = parse_hello(first)?;
            self.rank = rank;
            self.held.drain(..HELLO);
            self.unsent.extend(hello(0));
            self.has_greeted = true;
            if version != VERSION {
                let why =
                    format!("this client speaks version {version} of the protocol, and this agent version {VERSION}");
                return Err(Parted::Wrong(why.into()));
            }
        }
        let Some(len) = self.next_len()? else { return Ok(None) };
        let rest = self.held.split_off(len);
        self.is_asking = true;
        Ok(Some(std::mem::replace(&mut self.held, rest)))
    }

    /// The length of the frame that [`Self::frame`] takes next. `None`: it takes none now.
    fn next_len(&self) -> Result<Option<usize>, Malformed> {
        if !self.has_greeted || self.is_asking || self.unsent.len() > MOST_UNREAD {
            return Ok(None);
        }
        Ok(frame_len(&self.held)?.filter(|len| *len <= self.held.len()))
    }

    /// Whether this frame, its first, makes its connection a session.
    pub(super) fn registers(&mut self, frame: &[u8]) -> bool {
        !std::mem::replace(&mut self.has_asked, true) && ClientMessage::is_register(frame)
    }

    /// The rank that it speaks for, if it names that.
    pub(super) fn rank(&self) -> Option<Rank> {
        Some(self.rank).filter(|rank| *rank != NO_RANK).map(Rank::new)
    }

    /// The answer to its order, or to its question about a worker group, if its process has other rights than the job's programs.
    pub(super) fn refusal(&self) -> Option<Vec<u8>> {
        let why = match rlaunch_sys::unix::process_of(&self.socket) {
            Some(pid) => rights::difference(pid, |started| started <= self.since)?,
            None => "it cannot be seen from here".to_owned(),
        };
        Some(refused(self.rank(), &why))
    }

    /// The world that this frame names, if it is its first and does. It gets no answer.
    pub(super) fn announces(&mut self, frame: &[u8]) -> Option<WorldId> {
        let world = if self.has_asked { None } else { parse_world(frame) };
        self.is_asking &= world.is_none();
        world
    }

    /// Hands over a client that does not use the store, with its remaining bytes.
    pub(super) fn hand_over(mut self, set: &ReadySet, register: Vec<u8>, world: Option<WorldId>) -> Newcomer {
        self.unwatch(set);
        self.room.iter().for_each(|room| set.remove(room));
        let Self { socket, rank, held, unsent, .. } = self;
        Newcomer { socket, rank, world, register, held, unsent }
    }

    /// A frame that was dealt with: its room is that of the next one, unless it was a large one.
    pub(super) fn done(&mut self, mut frame: Vec<u8>) {
        if self.held.is_empty() && frame.capacity() <= KEPT_FOR_ASKS {
            frame.clear();
            self.held = frame;
        }
    }

    /// Its ask is answered.
    pub(super) fn answer(&mut self, seq: u64, words: &[u8]) {
        put_answer_frame(&mut self.unsent, seq, words);
        self.is_asking = false;
    }

    /// The same for one that is answered at once.
    pub(super) fn reply(&mut self, seq: u64, answer: &Answer) {
        put_reply_frame(&mut self.unsent, seq, answer);
        self.is_asking = false;
    }

    /// Whether another frame is ready: [`Self::frame`] takes it, or refuses it. Nothing else would wake the agent for it.
    pub(super) fn has_more(&self) -> bool {
        !matches!(self.next_len(), Ok(None))
    }

    /// Charges the bytes that are held for the client.
    pub(super) fn charge(&mut self, quota: &mut BufferQuota) -> Result<(), Parted> {
        let held = self.held.len().saturating_add(self.unsent.len());
        quota.resize(&mut self.share, held).map_err(|full| Parted::Wrong(full.to_string().into()))
    }

    /// Gives back the client's share of the quota.
    pub(super) const fn release(&self, quota: &mut BufferQuota) {
        quota.release(&self.share);
    }

    /// Writes what is taken, and waits for what comes next: room, or something to read, unless that has to wait.
    pub(super) fn flush(&mut self, set: &ReadySet, hold: bool) -> io::Result<()> {
        let sent = client_socket::send(&self.socket, &self.unsent)?;
        if sent > 0 {
            self.unsent.drain(..sent);
        }
        if self.unsent.is_empty() && self.unsent.capacity() > KEPT {
            self.unsent = Vec::new();
        }
        match (self.room.take(), self.unsent.is_empty()) {
            (None, false) => {
                let room = OwnedFd::from(self.socket.try_clone()?);
                set.add_writable(&room, self.token | WRITABLE)?;
                self.room = Some(room);
            }
            (Some(room), true) => set.remove(&room),
            (room, _) => self.room = room,
        }
        self.pause(set, hold || self.room.is_some())
    }

    /// Further requests of a client without an answer wait in the kernel. Its end is seen nevertheless: the answer may never come.
    fn pause(&mut self, set: &ReadySet, hold: bool) -> io::Result<()> {
        let hold = hold || (self.is_asking && self.held.len() >= HELLO);
        let wanted = match (hold, self.is_asking) {
            (false, _) => Watched::Input,
            (true, true) => Watched::HangUp,
            // The client is served again, and then read to its end.
            (true, false) => Watched::Nothing,
        };
        if wanted == self.watched {
            return Ok(());
        }
        if self.watched == Watched::Nothing {
            set.add(&self.socket, self.token)?;
        }
        match wanted {
            Watched::Input => set.resume(&self.socket, self.token),
            Watched::HangUp => set.pause(&self.socket, self.token | HANG_UP),
            Watched::Nothing => set.remove(&self.socket),
        }
        self.watched = wanted;
        Ok(())
    }

    fn unwatch(&mut self, set: &ReadySet) {
        if std::mem::replace(&mut self.watched, Watched::Nothing) != Watched::Nothing {
            set.remove(&self.socket);
        }
    }

    /// Says why, as far as that is taken at once, and goes.
    pub(super) fn part(mut self, set: &ReadySet, why: Option<&str>) {
        if let Some(why) = why {
            self.unsent.extend(rlaunch_protocol::wire::frozen::client::bye_frame(why));
        }
        if !self.unsent.is_empty() && self.room.is_none() {
            // A client that does not read it sees the end.
            let _unread = socket::send(&self.socket, &self.unsent);
        }
        self.unwatch(set);
        self.room.iter().for_each(|room| set.remove(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_keyvalue::store::Ask;
    use rlaunch_protocol::wire::frozen::client::{Asked, Space, Words};
    use rlaunch_sys::epoll::Batch;
    use std::io::{Read as _, Write as _};

    const TOKEN: u64 = 7;

    struct Rig {
        far: UnixStream,
        client: Client,
        set: ReadySet,
    }

    impl Rig {
        fn new() -> Self {
            let (far, near) = UnixStream::pair().unwrap();
            let set = ReadySet::new().unwrap();
            let client = Client::new(near, TOKEN, &set).unwrap();
            let mut all = Self { far, client, set };
            all.far.write_all(&hello(0)).unwrap();
            all
        }

        fn ask(&mut self) {
            let words = Words::write(Ask::Get(b"a key that is longer than a hello"));
            self.far.write_all(&Asked { seq: 1, space: Space::Job, words: &words }.to_frame()).unwrap();
        }

        fn read(&mut self) {
            assert!(self.client.read(&mut [0; 4096]).is_ok());
        }

        /// Whether an ask is begun.
        fn begins(&mut self, hold: bool) -> bool {
            let began = matches!(self.client.frame(), Ok(Some(_)));
            self.client.flush(&self.set, hold).unwrap();
            began
        }

        /// For what the kernel would wake us.
        fn ready(&self) -> Vec<u64> {
            let mut batch = Batch::with_room(4);
            self.set.ready(&mut batch);
            batch.tokens().collect()
        }
    }

    #[test]
    fn other_client_version_gets_both_versions() {
        let (mut far, near) = UnixStream::pair().unwrap();
        let set = ReadySet::new().unwrap();
        let mut client = Client::new(near, TOKEN, &set).unwrap();
        let mut other_hello = hello(0);
        // The version follows the name.
        other_hello[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        far.write_all(&other_hello).unwrap();
        assert!(client.read(&mut [0; 4096]).is_ok());
        let Err(Parted::Wrong(why)) = client.frame() else { panic!("it is let in") };
        assert_eq!(why, "this client speaks version 2 of the protocol, and this agent version 1");
    }

    #[test]
    fn further_requests_wait_in_the_kernel() {
        let mut all = Rig::new();
        all.ask();
        all.ask();
        all.read();
        assert!(all.begins(false));
        all.ask();
        assert_eq!(all.ready(), [0_u64; 0], "one waits here already");
        all.client.answer(1, b"");
        assert!(all.begins(false));
        assert_eq!(all.ready(), [TOKEN], "none does");
    }

    #[test]
    fn no_client_is_read_while_too_much_waits_for_launcher() {
        let mut all = Rig::new();
        all.ask();
        assert!(!all.begins(true));
        assert_eq!(all.ready(), [0_u64; 0]);
        assert!(!all.begins(false));
        assert_eq!(all.ready(), [TOKEN]);
    }

    #[test]
    fn client_without_reading_answers_is_paused() {
        let mut all = Rig::new();
        (0..3).for_each(|_| all.ask());
        all.read();
        let answer = Answer::Value(Some(vec![b'x'; 8 << 20].into()));
        assert!(all.begins(false));
        all.client.reply(1, &answer);
        assert!(!all.begins(false) && !all.begins(false), "one answer waits, and no more are made");
        assert!(!all.client.has_more());
        let (mut taken, mut room) = (0, vec![0; 64 << 10]);
        while taken < 8 << 20 {
            taken += all.far.read(&mut room).unwrap();
            all.client.flush(&all.set, false).unwrap();
        }
        assert!(all.client.has_more(), "nothing will wake us for what is here");
        assert!(all.begins(false));
        all.client.reply(2, &Answer::Done);
        assert!(all.begins(false) && !all.client.has_more());
    }

    #[test]
    fn client_with_unread_answer_is_not_read() {
        let mut all = Rig::new();
        all.ask();
        all.read();
        assert!(all.begins(false));
        let answer = vec![b'x'; 8 << 20];
        all.client.answer(1, &answer);
        all.ask();
        assert!(!all.begins(false));
        assert_eq!(all.ready(), [0_u64; 0], "there is no room");
        let mut taken = 0;
        while taken < answer.len() {
            taken += all.far.read(&mut [0; 64 << 10]).unwrap();
            all.client.flush(&all.set, false).unwrap();
        }
        assert_eq!(all.ready(), [TOKEN]);
    }
}
