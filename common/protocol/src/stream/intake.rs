//! Intake of standard input: when the launcher may read rlaunch's standard input, how much of it, and which hosts get it.
//!
//! The launcher reads nothing before a rank waits for input. It announces to the agents that there is something to read; an agent
//! answers when one of its ranks waits. At a terminal each line needs such a demand: a line that no rank asks for is the shell's.
//! From files and pipes the launcher reads on after the first demand, as far as there is credit.

use super::window::Window;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;

/// How far one demand reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// One read. A read of a terminal returns one line.
    Line,
    /// All that follows, within the window.
    Stream,
}

/// State of a host's ranks as readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its ranks have not all been started.
    Starting,
    /// Its ranks take input.
    Open,
    /// Its ranks have closed their input.
    Closed,
}

/// A host whose ranks get input.
#[derive(Debug)]
struct Reader {
    window: Window,
    state: State,
    /// Whether it got the end of input.
    has_end: bool,
}

/// The permission to read and send.
#[derive(Debug)]
pub struct Intake {
    pace: Pace,
    readers: BTreeMap<NodeId, Reader>,
    /// Hosts that are used now; the others keep their windows.
    used: Vec<NodeId>,
    is_announced: bool,
    is_wanted: bool,
    /// Bytes that were sent.
    sent: u64,
    /// Bytes that the reading thread was allowed to read, as an offset.
    allowed: u64,
    is_ended: bool,
}

impl Intake {
    /// For ranks on these hosts.
    #[must_use]
    pub fn new(pace: Pace, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut intake = Self {
            pace,
            readers: BTreeMap::new(),
            used: Vec::new(),
            is_announced: false,
            is_wanted: false,
            sent: 0,
            allowed: 0,
            is_ended: false,
        };
        intake.place(nodes);
        intake
    }

    /// Other ranks, or ranks on other hosts, get it from now on. They have asked for nothing yet.
    pub fn place(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        self.used = nodes.into_iter().collect();
        for node in &self.used {
            let fresh = || Reader { window: Window::new(0), state: State::Starting, has_end: false };
            self.readers.entry(*node).or_insert_with(fresh);
        }
        (self.is_announced, self.is_wanted) = (false, false);
    }

    /// The ranks of a host take input up to this offset.
    pub fn grant(&mut self, node: NodeId, up_to: u64) {
        if let Some(reader) = self.readers.get_mut(&node) {
            reader.window.grant(up_to);
            reader.state = State::Open;
        }
    }

    /// The ranks of a host have closed their input, or the host is lost: the others do not wait for it.
    pub fn close(&mut self, node: NodeId) {
        if let Some(reader) = self.readers.get_mut(&node) {
            reader.state = State::Closed;
        }
    }

    /// A rank waits for what was announced.
    pub const fn want(&mut self) {
        self.is_wanted = self.is_wanted || self.is_announced;
    }

    /// Whether the ranks should be notified as soon as there is something to read.
    #[must_use]
    pub fn can_announce(&self) -> bool {
        !self.is_announced && !self.is_wanted && self.room() > 0
    }

    /// Records that the agent has the announcement.
    pub const fn announced(&mut self) {
        self.is_announced = true;
    }

    /// Returns the hosts that take input.
    pub fn open(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.used().filter(|(_, reader)| reader.state == State::Open).map(|(node, _)| node)
    }

    fn used(&self) -> impl Iterator<Item = (NodeId, &Reader)> {
        self.used.iter().filter_map(|node| Some((*node, self.readers.get(node)?)))
    }

    /// Returns the number of bytes that all hosts which read take now. The slowest of them holds the others back.
    #[must_use]
    pub fn room(&self) -> u64 {
        if self.used().any(|(_, reader)| reader.state == State::Starting) {
            return 0;
        }
        let open = self.used().filter(|(_, reader)| reader.state == State::Open);
        open.map(|(_, reader)| reader.window.room()).min().unwrap_or(0)
    }

    /// Returns how many more bytes may be read now than were allowed before.
    pub fn allow(&mut self) -> u64 {
        let is_under_way = self.pace == Pace::Line && self.allowed > self.sent;
        if !self.is_wanted || is_under_way {
            return 0;
        }
        let up_to = self.sent.saturating_add(self.room());
        let more = up_to.saturating_sub(self.allowed);
        self.allowed = self.allowed.max(up_to);
        more
    }

    /// A piece that was read has been sent to all [`Self::open`] hosts.
    pub fn pass(&mut self, bytes: u64) {
        for node in &self.used {
            if let Some(reader) = self.readers.get_mut(node).filter(|reader| reader.state == State::Open) {
                let _within = reader.window.spend(bytes);
            }
        }
        self.sent = self.sent.saturating_add(bytes);
        if self.pace == Pace::Line {
            (self.is_announced, self.is_wanted, self.allowed) = (false, false, self.sent);
        }
    }

    /// All was read.
    pub const fn end(&mut self) {
        self.is_ended = true;
    }

    /// The next host that must be notified of the end.
    pub fn take_end(&mut self) -> Option<NodeId> {
        if !self.is_ended {
            return None;
        }
        let Self { used, readers, .. } = self;
        let unaware =
            |node: &&NodeId| readers.get(*node).is_some_and(|reader| reader.state == State::Open && !reader.has_end);
        let node = used.iter().find(unaware).copied()?;
        readers.get_mut(&node)?.has_end = true;
        Some(node)
    }

    /// Whether all was read.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.is_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId::new(0);
    const B: NodeId = NodeId::new(1);

    #[test]
    fn nothing_is_read_before_a_rank_wants_it() {
        for pace in [Pace::Line, Pace::Stream] {
            let mut intake = Intake::new(pace, [A]);
            assert!(!intake.can_announce(), "no rank runs");
            intake.grant(A, 100);
            intake.want();
            assert_eq!(intake.allow(), 0, "a demand answers an announcement");
            assert!(intake.can_announce());
            intake.announced();
            assert!(!intake.can_announce());
            assert_eq!(intake.allow(), 0);
            intake.want();
            assert_eq!(intake.allow(), 100);
            assert_eq!(intake.allow(), 0);
        }
    }

    #[test]
    fn each_line_of_a_terminal_needs_a_demand_and_a_stream_needs_one() {
        let begin = |pace| {
            let mut intake = Intake::new(pace, [A]);
            intake.grant(A, 100);
            intake.announced();
            intake.want();
            assert_eq!(intake.allow(), 100);
            intake.grant(A, 140);
            intake
        };
        let mut line = begin(Pace::Line);
        assert_eq!(line.allow(), 0, "a read is under way");
        line.pass(10);
        assert_eq!((line.allow(), line.can_announce()), (0, true));
        line.announced();
        line.want();
        assert_eq!(line.allow(), 130);
        let mut stream = begin(Pace::Stream);
        assert_eq!(stream.allow(), 40);
        stream.pass(10);
        stream.grant(A, 150);
        assert_eq!((stream.allow(), stream.can_announce()), (10, false));
    }

    #[test]
    fn the_slowest_host_holds_the_others_back_until_it_closes_its_input() {
        let mut intake = Intake::new(Pace::Stream, [A, B]);
        intake.grant(A, 100);
        assert_eq!(intake.room(), 0, "the ranks of one host are not started");
        intake.grant(B, 30);
        intake.announced();
        intake.want();
        assert_eq!(intake.allow(), 30);
        intake.pass(30);
        intake.grant(A, 130);
        assert_eq!(intake.allow(), 0);
        intake.close(B);
        assert_eq!(intake.allow(), 100);
        assert_eq!(intake.open().collect::<Vec<_>>(), [A]);
        intake.close(A);
        assert_eq!((intake.room(), intake.allow()), (0, 0));
    }

    #[test]
    fn host_of_new_generation_asks_for_input_and_is_notified_of_the_end() {
        let mut intake = Intake::new(Pace::Stream, [A]);
        intake.grant(A, 100);
        intake.announced();
        intake.want();
        assert_eq!(intake.allow(), 100);
        intake.pass(100);
        intake.place([B]);
        intake.grant(A, 200);
        assert_eq!((intake.room(), intake.can_announce()), (0, false));
        intake.grant(B, 50);
        assert!(intake.can_announce());
        assert_eq!(intake.allow(), 0);
        intake.announced();
        intake.want();
        assert_eq!(intake.allow(), 50, "the window of the new host counts from its own start");
        assert_eq!(intake.take_end(), None);
        intake.end();
        assert_eq!((intake.take_end(), intake.take_end()), (Some(B), None));
        intake.place([A]);
        assert_eq!((intake.take_end(), intake.take_end()), (Some(A), None));
    }
}
