//! The edge: one framed stream in each direction, through the real header and codec.

use crate::site::{Site, Spell};
use crate::world::{Ev, World};
use rlaunch_base::id::NodeId;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::codec::{WireMessage, decode, encode};
use rlaunch_protocol::wire::frame::{Flags, HEADER, Header, Lane, parse_header};
use rlaunch_protocol::wire::guardian_count::{LAST, LAST_STREAM};

/// When the last frame of each direction arrives: none overtakes another.
#[derive(Default)]
pub(crate) struct Link {
    to_agent: u64,
    to_launcher: u64,
    /// Delays in microseconds; `None`: those of the plan.
    wire: Option<(u64, u64)>,
    spells: Vec<Spell>,
    end: End,
    /// The launcher writes nothing more.
    shut: bool,
    /// Its ssh is dead.
    dead: bool,
}

/// The launcher's end of an edge to another host.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum End {
    /// Nothing yet.
    #[default]
    Absent,
    Live,
    /// The edge was given up, or has ended.
    Gone,
}

/// A frame with its body.
fn frame(lane: Lane, flags: Flags, stream: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut bytes = Header { len, lane, flags, node: NodeId::new(0), stream }.to_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

pub(crate) fn message<M: WireMessage>(message: &M) -> Vec<u8> {
    frame(Lane::Control, Flags::NONE, 0, &encode(message))
}

pub(crate) fn bytes(stream: u32, count: usize, last: bool) -> Vec<u8> {
    frame(Lane::Data, if last { Flags::END } else { Flags::NONE }, stream, &vec![b'x'; count])
}

pub(crate) fn credit(up_to: u64) -> Vec<u8> {
    frame(Lane::Credit, Flags::NONE, 0, &up_to.to_le_bytes())
}

pub(crate) fn beat(beat: Beat) -> Vec<u8> {
    frame(Lane::Beat, Flags::NONE, 0, &beat.to_bytes())
}

/// A guardian's last words: how many are left, whether its lease had run out, and of each its number.
pub(crate) fn last_words(left: u32, expired: bool, pids: &[u32]) -> Vec<u8> {
    let mut body = vec![0; LAST];
    let count = u32::try_from(pids.len()).unwrap_or(0);
    for (at, word) in [0x6e6c_7267, left, count, u32::from(expired)].into_iter().enumerate() {
        body[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
    }
    for (entry, pid) in body[16..].as_chunks_mut::<60>().0.iter_mut().zip(pids) {
        entry[..4].copy_from_slice(&pid.to_le_bytes());
    }
    frame(Lane::Control, Flags::NONE, LAST_STREAM, &body)
}

impl Link {
    pub(crate) fn of(site: &Site) -> Self {
        let wire = (!site.local).then_some(site.wire);
        Self { wire, spells: site.spells.clone(), ..Self::default() }
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    pub(crate) fn is_live(&self) -> bool {
        self.end == End::Live
    }

    /// Whether the launcher receives nothing more from this link.
    pub(crate) fn is_gone(&self) -> bool {
        self.end == End::Gone
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    pub(crate) fn die(&mut self) {
        self.dead = true;
    }

    /// The agent is there; false if it was given up.
    pub(crate) fn adopt(&mut self) -> bool {
        self.end == End::Absent && {
            self.end = End::Live;
            true
        }
    }

    /// False if the agent is there, or was.
    pub(crate) fn give_up(&mut self) -> bool {
        self.end == End::Absent && {
            self.end = End::Gone;
            true
        }
    }

    /// The launcher lets go of it; false if it had.
    pub(crate) fn let_go(&mut self) -> bool {
        std::mem::replace(&mut self.end, End::Gone) == End::Live
    }

    /// When something arrives that would do so then, if the way were always the same.
    fn through(&self, now: u64, time: u64, way: usize) -> u64 {
        let mut time = time;
        for spell in self.spells.iter().filter(|spell| spell.ways[way]) {
            let meets = now < spell.until && time >= spell.from;
            time = match spell.delay {
                Some(delay) if meets => time.saturating_add(delay),
                None if meets => time.max(spell.until.saturating_add(spell.back)),
                Some(_) | None => time,
            };
        }
        time
    }

    /// Delays messages under way.
    pub(crate) fn postpone(&mut self, by: u64) {
        self.to_agent += by;
        self.to_launcher += by;
    }
}

impl World {
    fn arrival(&mut self, low: u64, high: u64, way: usize, last: u64) -> u64 {
        let time = self.now + self.rng.micros(low, high);
        self.host.link.through(self.now, time, way).max(last)
    }

    fn wire(&self) -> (u64, u64) {
        self.host.link.wire.unwrap_or(self.plan.wire)
    }

    pub(crate) fn send_to_agent(&mut self, frame: Vec<u8>) {
        if self.host.remote && (self.host.link.shut || self.host.link.end != End::Live) {
            return;
        }
        let (low, high) = self.wire();
        let time = self.arrival(low, high, 1, self.host.link.to_agent);
        self.host.link.to_agent = time;
        self.at(time, Ev::AtAgent(frame));
    }

    pub(crate) fn send_to_launcher(&mut self, frame: Vec<u8>) {
        let sent = self.now;
        self.travel_out(Ev::AtLauncher(sent, frame));
    }

    /// Something is on its way to the launcher.
    pub(crate) fn travel_out(&mut self, ev: Ev) {
        if self.host.link.dead {
            return;
        }
        let (low, high) = self.wire();
        let time = self.arrival(low, high, 0, self.host.link.to_launcher);
        self.host.link.to_launcher = time;
        self.at(time, ev);
    }

    /// The launcher's end is closed, or shut; what was sent still arrives. On another host that is the lifeline's end too.
    pub(crate) fn close_to_agent(&mut self) {
        if self.host.remote {
            if std::mem::replace(&mut self.host.link.shut, true) || !self.host.begun {
                return;
            }
            let (low, high) = self.wire();
            let time = self.arrival(low, high, 1, self.host.link.to_agent);
            self.at(time, Ev::LifelineEnds);
            return self.at(time, Ev::AgentEdgeEnds);
        }
        let time = (self.now + self.rng.micros(1, 500)).max(self.host.link.to_agent);
        self.at(time, Ev::AgentEdgeEnds);
    }

    pub(crate) fn close_to_launcher(&mut self) {
        if self.host.remote {
            return self.travel_out(Ev::LauncherEdgeEnds);
        }
        let time = (self.now + self.rng.micros(1, 500)).max(self.host.link.to_launcher);
        self.at(time, Ev::LauncherEdgeEnds);
    }

    /// Takes a frame apart as a connection does.
    pub(crate) fn open<'a>(&mut self, frame: &'a [u8]) -> Option<(Header, &'a [u8])> {
        let parsed = frame.split_first_chunk::<HEADER>().and_then(|(header, body)| {
            let header = parse_header(header).ok()?;
            (u32::try_from(body.len()) == Ok(header.len)).then_some((header, body))
        });
        self.check(parsed.is_some(), || format!("a frame of {} bytes is refused", frame.len()));
        parsed
    }

    pub(crate) fn decode<M: WireMessage>(&mut self, body: &[u8]) -> Option<M> {
        match decode(body) {
            Ok(message) => Some(message),
            Err(error) => {
                self.fail(format!("a message is refused: {error}"));
                None
            }
        }
    }
}
