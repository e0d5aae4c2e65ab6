//! Other worlds of the job: their layouts, which their own machines leave in the store of all worlds, and the data of their ranks.

use super::super::fences::Waiter;
use super::super::refusals::Source;
use super::super::remote::{PREFIX, Pending};
use super::super::{Cx, Layout, job_data};
use super::meetings::Purpose;
use super::{ALL_RANKS, FIRST_SPECIAL, Messages, Proc, Writer, reply, send, status};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::time::Span;
use rlaunch_keyvalue::store::Ask;
use rlaunch_protocol::wire::codec::{append, decode_borrowed, raw};
use rlaunch_protocol::wire::frozen::client::Reply;
use serde::{Deserialize, Serialize};

/// How long a world may take to leave its layout.
const PATIENCE: Span = Span::from_secs(10);
/// Most requests that wait for layouts.
const MOST: usize = 100_000;

/// The rank that has started others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parent {
    /// The name of its world.
    pub(crate) world: Vec<u8>,
    pub(crate) rank: u32,
}

/// A rank of another world, and the process that wants its data.
#[derive(Debug)]
pub(crate) struct Foreign {
    waiter: Waiter,
    world: Vec<u8>,
    rank: u32,
}

/// Purpose of a request to the store of all worlds.
#[derive(Debug)]
pub(crate) enum OfWorld {
    /// A world leaves its layout: this one.
    Announced(Vec<u8>),
    /// The layout of a world.
    Layout(Vec<u8>),
    /// A rank has committed something.
    Committed(Foreign),
    /// The data of a rank.
    Data(Foreign),
}

/// A request that needs the layout of another world.
#[derive(Debug)]
pub(super) enum Later {
    /// Ranks meet: processes by their worlds.
    Meet { rank: Rank, waiter: Waiter, purpose: Purpose, procs: Vec<(Vec<u8>, u32)> },
    /// The facts about a world.
    JobData { waiter: Waiter, world: Vec<u8> },
}

impl Later {
    const fn waiter(&self) -> Waiter {
        match self {
            Self::Meet { waiter, .. } | Self::JobData { waiter, .. } => *waiter,
        }
    }
}

/// Other worlds, as far as processes of this one have asked for them.
#[derive(Debug, Default)]
pub(super) struct Worlds {
    known: BTreeMap<Vec<u8>, Layout>,
    /// By the name of a world, requests that wait for its layout.
    waiting: BTreeMap<Vec<u8>, Vec<Later>>,
    /// The layout of this world is in the store of all.
    is_announced: bool,
}

fn key_of_world(world: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), b"/world/", world].concat()
}

/// The key of data of a rank for other worlds.
pub(super) fn key_of_rank(world: &[u8], rank: u32) -> Vec<u8> {
    [PREFIX.as_bytes(), b"/w/", world, b"/", &rank.to_be_bytes()].concat()
}

impl Worlds {
    pub(super) fn knows(&self, world: &[u8]) -> bool {
        self.known.contains_key(world)
    }

    pub(super) fn layout(&self, world: &[u8]) -> Option<&Layout> {
        self.known.get(world)
    }

    /// Leaves the layout of this world for others, which a rank needs.
    pub(super) fn announce(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        if !core::mem::replace(&mut self.is_announced, true) {
            let key = key_of_world(cx.layout.name.as_bytes());
            let source = Source::Ranks(core::iter::once(rank).collect());
            cx.ask_for_all(Ask::Set(&key, &cx.layout.to_bytes()), Pending::Put(source));
        }
    }

    /// Asks for the layout of a world, which a request needs.
    pub(super) fn learn(&mut self, cx: &mut Cx<'_>, world: &[u8], later: Later) {
        if !cx.layout.may_be_of_job(world) {
            return reply(cx, later.waiter(), status::BAD_PARAM);
        }
        if self.waiting.values().map(Vec::len).fold(0, usize::saturating_add) >= MOST {
            return reply(cx, later.waiter(), status::OUT_OF_RESOURCE);
        }
        let waiting = self.waiting.entry(world.to_vec()).or_default();
        waiting.push(later);
        if waiting.len() == 1 {
            let key = key_of_world(world);
            let pending = Pending::OfWorld(OfWorld::Announced(world.to_vec()));
            cx.ask_for_all(Ask::Wait { keys: &[&key], within: Some(PATIENCE) }, pending);
        }
    }

    /// A connection is closed: it waits no more. Its place is kept, as the layout was asked for.
    pub(super) fn closed(&mut self, client: ClientId) {
        self.waiting.values_mut().for_each(|waiting| waiting.retain(|later| later.waiter().client != client));
    }
}

impl Messages {
    /// A request for data of another world.
    pub(super) fn get_of_world(&mut self, cx: &mut Cx<'_>, waiter: Waiter, of: Proc<'_>, is_immediate: bool) {
        let Proc { nspace, rank } = of;
        let layout = self.worlds.layout(nspace);
        let is_absent = layout.is_some_and(|layout| layout.node_of(rank).is_none());
        match rank {
            ALL_RANKS => match layout {
                Some(layout) => send_job_data(cx, waiter, layout),
                None => self.worlds.learn(cx, nspace, Later::JobData { waiter, world: nspace.to_vec() }),
            },
            FIRST_SPECIAL.. => reply(cx, waiter, status::NOT_FOUND),
            _ if is_absent || !cx.layout.may_be_of_job(nspace) => reply(cx, waiter, status::NOT_FOUND),
            rank => {
                let foreign = Foreign { waiter, world: nspace.to_vec(), rank };
                if is_immediate {
                    return foreign.ask(cx);
                }
                let key = foreign.key();
                let pending = Pending::OfWorld(OfWorld::Committed(foreign));
                cx.ask_for_all(Ask::Wait { keys: &[&key], within: None }, pending);
            }
        }
    }

    /// The store of all worlds has answered.
    pub(crate) fn take_of_world(&mut self, cx: &mut Cx<'_>, of: OfWorld, answer: &Reply<'_>) {
        let value = if let Reply::Value(value) = answer { *value } else { None };
        match of {
            OfWorld::Announced(world) if matches!(answer, Reply::Refused(_)) => self.take_world(cx, &world, None),
            OfWorld::Announced(world) => {
                let key = key_of_world(&world);
                cx.ask_for_all(Ask::Get(&key), Pending::OfWorld(OfWorld::Layout(world)));
            }
            OfWorld::Layout(world) => self.take_world(cx, &world, value),
            OfWorld::Committed(foreign) if matches!(answer, Reply::Refused(_)) => {
                reply(cx, foreign.waiter, status::NOT_FOUND);
            }
            OfWorld::Committed(foreign) => foreign.ask(cx),
            OfWorld::Data(foreign) => foreign.hand_out(cx, value),
        }
    }

    /// The layout of a world is known, or there is none.
    fn take_world(&mut self, cx: &mut Cx<'_>, world: &[u8], bytes: Option<&[u8]>) {
        let waiting = self.worlds.waiting.remove(world).unwrap_or_default();
        let Some(layout) = bytes.and_then(|bytes| cx.layout.of_other(world, bytes)) else {
            return waiting.into_iter().for_each(|later| reply(cx, later.waiter(), status::NOT_FOUND));
        };
        self.worlds.known.insert(world.to_vec(), layout);
        for later in waiting {
            let waiter = later.waiter();
            match later {
                Later::Meet { rank, purpose, procs, .. } => {
                    let procs: Vec<Proc<'_>> =
                        procs.iter().map(|(nspace, rank)| Proc { nspace, rank: *rank }).collect();
                    if self.meet(cx, rank, waiter, (purpose, &procs)).is_err() {
                        reply(cx, waiter, status::OUT_OF_RESOURCE);
                    }
                }
                Later::JobData { world, .. } => {
                    self.get_of_world(cx, waiter, Proc { nspace: &world, rank: ALL_RANKS }, true);
                }
            }
        }
    }
}

impl Foreign {
    fn key(&self) -> Vec<u8> {
        key_of_rank(&self.world, self.rank)
    }

    fn ask(self, cx: &mut Cx<'_>) {
        let key = self.key();
        cx.ask_for_all(Ask::Get(&key), Pending::OfWorld(OfWorld::Data(self)));
    }

    fn hand_out(self, cx: &mut Cx<'_>, value: Option<&[u8]>) {
        let Self { waiter, world, rank } = self;
        let own = cx.layout.host().to_vec();
        let parts = value.and_then(Opened::parse).filter(|it| it.is_described == waiter.is_described);
        match parts {
            None => reply(cx, waiter, status::NOT_FOUND),
            Some(Opened { host, local, data, .. }) => {
                let local = if host == own { local } else { &[] };
                super::data::send_data(cx, waiter, &[(Proc { nspace: &world, rank }, [local, data])]);
            }
        }
    }
}

/// Data of a rank, as other worlds find it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Opened<'a> {
    pub(super) is_described: bool,
    pub(super) host: &'a [u8],
    /// For processes of the same host.
    #[serde(serialize_with = "raw")]
    pub(super) local: &'a [u8],
    /// For all processes.
    #[serde(serialize_with = "raw")]
    pub(super) data: &'a [u8],
}

impl<'a> Opened<'a> {
    pub(super) fn write(&self) -> Vec<u8> {
        append(Vec::new(), self)
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        decode_borrowed(bytes).ok()
    }
}

fn send_job_data(cx: &mut Cx<'_>, waiter: Waiter, of: &Layout) {
    let mut data = Writer::new(waiter.is_described);
    data.one_proc(Proc { nspace: of.name.as_bytes(), rank: ALL_RANKS }).raw(&job_data::write(of, waiter.is_described));
    let mut out = Writer::new(waiter.is_described);
    out.status(status::SUCCESS).byte_object(&data.into_bytes());
    send(cx, waiter, out);
}
