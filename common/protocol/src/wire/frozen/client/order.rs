//! Orders of a rank to its job: start another program as a world of the same job, or end such a world.
//!
//! A frame of kind 3: a number as that of an ask, an operation, and what it needs. The answer is that of an ask.

use super::super::fields::{Body, Fields, Malformed};
use super::WorldId;
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;

/// The kind of the frame.
pub(super) const ORDER: u8 = 3;
/// Longest order, with what is added on its way to the launcher.
pub const LONGEST_ORDER: usize = 768 << 10;

const TOLERANT: u32 = 1;
const BOUND: u32 = 2;
const ORIGIN: u32 = 4;

/// An order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Start programs as a new world.
    Spawn(Request),
    /// End a world: SIGTERM, and SIGKILL after this time (`None`: the job's own grace).
    EndWorld(WorldId, Option<Span>),
}

/// A world to be started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Its programs; ranks are numbered through them in this order.
    pub programs: Vec<Program>,
    /// The name of the world; empty: `world-N`.
    pub group: OsBytes,
    /// The group on whose slots and devices its ranks run; empty: on free slots.
    pub share: OsBytes,
    /// Ranks that are tied together; 0: none.
    pub tied: u32,
    /// The failure of one of its ranks does not end the job.
    pub tolerant: bool,
    /// The world is ended when the rank that asks has ended.
    pub bound: bool,
    /// Words of the asking MPI library for the new ranks (`mpi::Origin`); empty: MPI does not ask.
    pub origin: OsBytes,
}

/// A program of such a world.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// How many ranks run it.
    pub ranks: u32,
    /// Program and arguments.
    pub argv: Vec<OsBytes>,
    /// Variables that go over those of the program of the rank that asks.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// Its working directory; `None`: that of the program of the rank that asks.
    pub wdir: Option<OsBytes>,
    /// The hosts that it may run on, by their names in the job; none: all.
    pub hosts: Vec<OsBytes>,
}

/// A world that was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spawned {
    /// Its number.
    pub world: WorldId,
    /// Its name.
    pub group: OsBytes,
    /// The host of each of its ranks.
    pub hosts: Vec<OsBytes>,
}

fn owned(all: &mut Fields<'_>) -> Result<OsBytes, Malformed> {
    all.bytes().map(OsBytes::from)
}

impl Order {
    /// From its words.
    ///
    /// # Errors
    /// They are no order.
    pub fn parse(words: &[u8]) -> Result<Self, Malformed> {
        let mut all = Fields(words);
        let order = match all.byte()? {
            1 => Self::Spawn(Request::read(&mut all)?),
            2 => Self::EndWorld(WorldId::new(all.word()?), all.within()?),
            _ => return Err(Malformed),
        };
        all.end()?;
        Ok(order)
    }

    /// Its words.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut body = Body::default();
        match self {
            Self::Spawn(request) => request.write(body.byte(1)),
            Self::EndWorld(world, grace) => {
                body.byte(2).word(world.get()).within(*grace);
            }
        }
        body.0
    }
}

/// The frame of an order.
#[must_use]
pub fn order_frame(seq: u64, words: &[u8]) -> Vec<u8> {
    let mut body = Body::default();
    body.count(9usize.saturating_add(words.len())).byte(ORDER).long(seq);
    body.0.extend_from_slice(words);
    body.0
}

impl Request {
    fn read(all: &mut Fields<'_>) -> Result<Self, Malformed> {
        let (flags, tied) = (all.word()?, all.word()?);
        let (group, share) = (owned(all)?, owned(all)?);
        let programs = all.list(Program::read)?;
        let (tolerant, bound) = (flags & TOLERANT != 0, flags & BOUND != 0);
        let origin = if flags & ORIGIN != 0 { owned(all)? } else { OsBytes::default() };
        Ok(Self { programs, group, share, tied, tolerant, bound, origin })
    }

    fn write(&self, body: &mut Body) {
        let has_origin = !self.origin.is_empty();
        let flags = [(self.tolerant, TOLERANT), (self.bound, BOUND), (has_origin, ORIGIN)];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
        body.word(flags).word(self.tied).bytes(&self.group).bytes(&self.share).count(self.programs.len());
        self.programs.iter().for_each(|program| program.write(body));
        if has_origin {
            body.bytes(&self.origin);
        }
    }
}

impl Program {
    fn read(all: &mut Fields<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            ranks: all.word()?,
            argv: all.list(owned)?,
            env: all.list(|pair| Ok((owned(pair)?, owned(pair)?)))?,
            wdir: all.optional(owned)?,
            hosts: all.list(owned)?,
        })
    }

    fn write(&self, body: &mut Body) {
        let list = |items: &[OsBytes], body: &mut Body| {
            body.count(items.len());
            items.iter().for_each(|item| {
                body.bytes(item);
            });
        };
        body.word(self.ranks);
        list(&self.argv, body);
        body.count(self.env.len());
        for (name, value) in &self.env {
            body.bytes(name).bytes(value);
        }
        body.optional(self.wdir.as_deref());
        list(&self.hosts, body);
    }
}

impl Spawned {
    /// From the value of the answer.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let mut all = Fields(value);
        let spawned = Self { world: WorldId::new(all.word()?), group: owned(&mut all)?, hosts: all.list(owned)? };
        all.end()?;
        Ok(spawned)
    }

    /// The value of the answer.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut body = Body::default();
        body.word(self.world.get()).bytes(&self.group).count(self.hosts.len());
        self.hosts.iter().fold(&mut body, |body, host| body.bytes(host));
        body.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClientFrame, parse_world, world_frame};
    use super::*;
    use alloc::vec;

    fn request() -> Request {
        let program = Program {
            ranks: 2,
            argv: vec!["./a".into(), "\u{ff}".into()],
            env: vec![("A".into(), "1".into())],
            wdir: Some("/w".into()),
            hosts: vec!["node1".into()],
        };
        Request {
            programs: vec![program, Program::default()],
            group: "gen".into(),
            share: "policy".into(),
            tied: 2,
            tolerant: true,
            bound: true,
            origin: OsBytes::default(),
        }
    }

    #[test]
    fn orders_are_read_as_they_were_written() {
        let span = Span::from_millis(5);
        for order in [
            Order::Spawn(request()),
            Order::Spawn(Request { origin: "1".into(), ..request() }),
            Order::Spawn(Request::default()),
            Order::EndWorld(WorldId::new(3), None),
            Order::EndWorld(WorldId::new(3), Some(span)),
        ] {
            let words = order.write();
            assert_eq!(Order::parse(&words), Ok(order));
            for end in 0..words.len() {
                assert_eq!(Order::parse(&words[..end]), Err(Malformed), "{end}");
            }
            assert_eq!(Order::parse(&[words, vec![0]].concat()), Err(Malformed));
        }
        assert_eq!(Order::parse(&[9]), Err(Malformed));
    }

    #[test]
    fn bytes_of_an_order_stay_the_same() {
        let end = order_frame(7, &Order::EndWorld(WorldId::new(3), None).write());
        assert_eq!(end, [&[22, 0, 0, 0, 3, 7, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0][..], &[255; 8]].concat());
        let frame = order_frame(1, &[2]);
        assert_eq!(ClientFrame::parse(&frame), Ok(ClientFrame::Order(1, &[2])));
        assert_eq!((parse_world(&world_frame(WorldId::new(5))), parse_world(&end)), (Some(WorldId::new(5)), None));
        assert_eq!(world_frame(WorldId::new(5)), [5, 0, 0, 0, 4, 5, 0, 0, 0]);
    }

    #[test]
    fn answer_is_read_as_it_was_written() {
        let spawned = Spawned { world: WorldId::new(4), group: "gen".into(), hosts: vec!["a".into(), "b".into()] };
        assert_eq!(Spawned::parse(&spawned.write()), Ok(spawned));
        assert_eq!(Spawned::parse(b""), Err(Malformed));
    }
}
