//! The edge: one framed stream in each direction, through the real header and codec.

use crate::world::{Ev, World};
use rlaunch_core::id::NodeId;
use rlaunch_core::wire::codec::{WireMessage, decode, encode};
use rlaunch_core::wire::frame::{Flags, HEADER, Header, Lane, parse_header};

/// When the last frame of each direction arrives: none overtakes another.
#[derive(Default)]
pub(crate) struct Link {
    to_agent: u64,
    to_launcher: u64,
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

impl Link {
    /// What is under way arrives so much later.
    pub(crate) fn postpone(&mut self, by: u64) {
        self.to_agent += by;
        self.to_launcher += by;
    }
}

impl World {
    pub(crate) fn send_to_agent(&mut self, frame: Vec<u8>) {
        let (low, high) = self.plan.wire;
        let time = (self.now + self.rng.micros(low, high)).max(self.link.to_agent);
        self.link.to_agent = time;
        self.at(time, Ev::AtAgent(frame));
    }

    pub(crate) fn send_to_launcher(&mut self, frame: Vec<u8>) {
        let (low, high) = self.plan.wire;
        let time = (self.now + self.rng.micros(low, high)).max(self.link.to_launcher);
        self.link.to_launcher = time;
        self.at(time, Ev::AtLauncher(self.now, frame));
    }

    /// The launcher's end is closed; what was sent still arrives.
    pub(crate) fn close_to_agent(&mut self) {
        let time = (self.now + self.rng.micros(1, 500)).max(self.link.to_agent);
        self.at(time, Ev::AgentEdgeEnds);
    }

    pub(crate) fn close_to_launcher(&mut self) {
        let time = (self.now + self.rng.micros(1, 500)).max(self.link.to_launcher);
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
