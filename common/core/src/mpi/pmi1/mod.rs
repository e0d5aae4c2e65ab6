//! PMI-1: MPICH and Intel MPI.
//!
//! Each `init` of a rank after its first begins a new, empty space of keys: one rank may run several MPI programs, one after the other, and
//! the n-th of each rank meet. The name of a space is new on the host: MPICH names files in /dev/shm after it.

use super::fences::{Fences, Waiter};
use super::remote::{PREFIX, Pending, hash};
use super::{Action, Broken, Cx, Layout, MOST_PER_RANK};
use crate::id::{ClientId, Rank};
use crate::rank_set::RankSet;
use crate::store::Ask;
use crate::wire::pmi1::{Group, LIMITS, Malformed, Reply, Request, line, parse};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Most names that are published at a time.
const MOST_PUBLISHED: usize = 10_000;

/// Which MPI program of a rank it is, from 0.
type Generation = u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    /// The rank is known, if at all.
    #[default]
    Named,
    Inside,
    Finalized,
}

type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

/// A barrier at which all ranks of this host wait.
#[derive(Debug)]
pub(super) struct Barrier {
    generation: Generation,
    tag: Option<Vec<u8>>,
    all: RankSet,
    waiters: Vec<Waiter>,
    /// Its name in the store; empty: all its ranks are here.
    name: String,
}

impl Barrier {
    /// The key of what a host has put.
    fn of_host(&self, node: usize) -> String {
        format!("{}/{node}", self.name)
    }

    fn release(&self, cx: &mut Cx<'_>) {
        let bytes = Reply::Barrier { tag: self.tag.as_deref() }.write();
        self.waiters.iter().for_each(|(client, _)| cx.write(*client, bytes.clone()));
    }
}

/// All hosts have come: asks for what their ranks have put.
pub(super) fn all_have_come(cx: &mut Cx<'_>, barrier: Barrier) {
    let keys: Vec<String> = cx.layout.others_of(&barrier.all).map(|node| barrier.of_host(node)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    cx.ask(Ask::GetAll(&keys), Pending::Keys(barrier));
}

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    rank: Option<Rank>,
    phase: Phase,
    generation: Generation,
    /// Programs of a spawn whose descriptions have not come.
    spawning: u32,
}

/// The PMI-1 life of a rank.
#[derive(Debug, Default)]
struct OfRank {
    /// How often it has called `init`.
    inits: u32,
    /// The connection that has and has not called `finalize`, and whether it is open.
    inside: Option<(ClientId, bool)>,
    /// Bytes that it has put.
    bytes: usize,
}

/// Everything about PMI-1.
#[derive(Debug, Default)]
pub(super) struct Lines {
    ranks: BTreeMap<Rank, OfRank>,
    keys: BTreeMap<Generation, Keys>,
    /// Keys of this host's ranks, kept where there are other hosts.
    own: BTreeMap<Generation, Keys>,
    /// By generation and the words of the client.
    fences: Fences<(Generation, Vec<u8>)>,
    /// How many barriers of each kind other hosts took part in.
    counts: BTreeMap<(Generation, Vec<u8>, RankSet), u64>,
    published: BTreeMap<Vec<u8>, Vec<u8>>,
    mapping: Option<Option<String>>,
}

impl Lines {
    pub(super) fn receive(
        &mut self,
        cx: &mut Cx<'_>,
        session: &mut Session,
        bytes: &[u8],
        speaks_for: &mut dyn FnMut(Rank) -> bool,
    ) -> Result<usize, Broken> {
        let Some((text, used)) = line(bytes)? else { return Ok(0) };
        match (parse(text)?, session.rank) {
            (Request::InitAck { rank }, None) => {
                let named = Rank::new(rank);
                if !cx.layout.is_here(rank) || !speaks_for(named) {
                    return Err(Broken::OtherRank(rank));
                }
                session.rank = Some(named);
                cx.answer(Reply::InitAck { size: cx.layout.size(), rank }.write());
            }
            (Request::InitAck { .. }, Some(_)) | (_, None) => return Err(Broken::Order),
            (request, Some(rank)) => self.serve(cx, session, rank, request)?,
        }
        Ok(used)
    }

    fn serve(
        &mut self,
        cx: &mut Cx<'_>,
        session: &mut Session,
        rank: Rank,
        request: Request<'_>,
    ) -> Result<(), Broken> {
        let reply = match request {
            Request::Init => self.init(cx, session, rank)?,
            Request::GetMaxes => Reply::Maxes,
            Request::GetAppnum => Reply::Appnum(cx.layout.app_of(rank.get()).0),
            Request::GetUniverseSize => Reply::UniverseSize(cx.layout.size()),
            Request::GetKvsName => {
                cx.answer(Reply::KvsName(&space(cx.layout, session.generation)).write());
                return Ok(());
            }
            Request::Put { key, value } => {
                self.put(cx.layout, rank, session.generation, (key, value))?;
                Reply::Put
            }
            Request::Get { key, .. } => {
                let reply = self.get(cx.layout, session.generation, key);
                cx.answer(reply);
                return Ok(());
            }
            Request::Barrier { group } => return self.barrier(cx, session.generation, rank, group),
            Request::Publish { service, port } => self.publish(service, port),
            Request::Lookup { service } => {
                cx.answer(Reply::LookedUp(self.published.get(service).map(Vec::as_slice)).write());
                return Ok(());
            }
            Request::Unpublish { service } => {
                self.published.remove(service);
                Reply::Unpublished
            }
            Request::Finalize => self.finalize(session, rank)?,
            Request::Abort { code, text } => {
                cx.out.push_back(Action::Abort { rank, code, text: text.to_vec() });
                return Ok(());
            }
            Request::Spawn | Request::SpawnPart { .. } | Request::SpawnEnd => match spawn(session, request) {
                Some(reply) => reply,
                None => return Ok(()),
            },
            Request::InitAck { .. } => return Err(Broken::Order),
            Request::Unknown(_) => Reply::Refused { command: "unknown_result", why: "not_supported" },
        };
        cx.answer(reply.write());
        Ok(())
    }

    fn init(&mut self, cx: &Cx<'_>, session: &mut Session, rank: Rank) -> Result<Reply<'static>, Broken> {
        let own = self.ranks.entry(rank).or_default();
        match session.phase {
            Phase::Inside => return Err(Broken::Order),
            Phase::Named | Phase::Finalized if matches!(own.inside, Some((_, true))) => {
                return Err(Broken::Twice(rank.get()));
            }
            Phase::Named | Phase::Finalized => {}
        }
        session.generation = own.inits;
        session.phase = Phase::Inside;
        *own = OfRank { inits: own.inits.saturating_add(1), inside: Some((cx.client, true)), bytes: 0 };
        if self.ranks.len() as u64 == cx.layout.own().len() {
            self.forget_before();
        }
        Ok(Reply::Init)
    }

    /// All ranks of this host have come: forgets generations that all of them have left.
    fn forget_before(&mut self) {
        let oldest = self.ranks.values().map(|own| own.inits.saturating_sub(1)).min().unwrap_or_default();
        self.keys = self.keys.split_off(&oldest);
        self.own = self.own.split_off(&oldest);
        self.counts.retain(|(generation, ..), _| *generation >= oldest);
        self.fences.retain(|(generation, _)| *generation >= oldest);
    }

    fn put(
        &mut self,
        layout: &Layout,
        rank: Rank,
        generation: Generation,
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), Broken> {
        let has_others = layout.hosts.len() > 1;
        let own = self.ranks.get_mut(&rank).filter(|own| own.inside.is_some()).ok_or(Broken::Order)?;
        own.bytes = own.bytes.saturating_add(key.len()).saturating_add(value.len());
        if own.bytes > MOST_PER_RANK {
            return Err(Broken::Full(rank.get()));
        }
        self.keys.entry(generation).or_default().insert(key.to_vec(), value.to_vec());
        if has_others {
            self.own.entry(generation).or_default().insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn get(&mut self, layout: &Layout, generation: Generation, key: &[u8]) -> Vec<u8> {
        if key == b"PMI_process_mapping" {
            let mapping = self.mapping.get_or_insert_with(|| layout.mapping());
            return mapping.as_ref().map_or(Reply::NotFound, |text| Reply::Found(text.as_bytes())).write();
        }
        let value = self.keys.get(&generation).and_then(|keys| keys.get(key));
        value.map_or(Reply::NotFound, |value| Reply::Found(value)).write()
    }

    fn barrier(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        rank: Rank,
        group: Option<(Group<'_>, &[u8])>,
    ) -> Result<(), Broken> {
        let (all, tag) = match group {
            None => (cx.layout.world(), None),
            Some((group, tag)) => (members(cx.layout, group)?, Some(tag)),
        };
        if !all.contains(rank) || !cx.layout.knows(&all) {
            return Err(Malformed::Field("group").into());
        }
        let own = cx.layout.own_of(&all);
        let key = (generation, tag.map(<[u8]>::to_vec).unwrap_or_default());
        if let Some(waiters) = self.fences.arrive(key, (&all, &own), rank, (cx.client, 0))? {
            let tag = tag.map(|tag| if tag.is_empty() { b"0" } else { tag }.to_vec());
            let is_here = own == all;
            let barrier = Barrier { generation, tag, all, waiters, name: String::new() };
            if is_here { barrier.release(cx) } else { self.meet_other_hosts(cx, barrier) }
        }
        Ok(())
    }

    /// All ranks of this host have come: the other hosts get what these have put, and are waited for.
    fn meet_other_hosts(&mut self, cx: &mut Cx<'_>, mut barrier: Barrier) {
        let (generation, all) = (barrier.generation, barrier.all.clone());
        let tag = barrier.tag.clone().unwrap_or_default();
        let count = self.counts.entry((generation, tag.clone(), all.clone())).or_default();
        *count = count.saturating_add(1);
        let ranges: Vec<u8> = all.ranges().flat_map(|(first, last)| [first, last]).flat_map(u32::to_be_bytes).collect();
        let of = hash(&[&tag[..], b" ", &ranges].concat());
        barrier.name = format!("{PREFIX}/1/{generation}/{of:x}/{count}");
        let mut text = Vec::new();
        for (key, value) in self.own.get(&generation).into_iter().flatten() {
            for part in [key, &b"\0"[..], value, b"\n"] {
                text.extend_from_slice(part);
            }
        }
        let name = barrier.name.clone();
        cx.ask(Ask::Set(barrier.of_host(cx.layout.here).as_bytes(), &text), Pending::Quiet);
        cx.fence(name.as_bytes(), &all, Pending::Barrier(barrier));
    }

    /// Takes the keys that ranks of other hosts have put before a barrier.
    pub(super) fn take_keys(&mut self, cx: &mut Cx<'_>, barrier: &Barrier, values: &[Option<&[u8]>]) {
        let keys = self.keys.entry(barrier.generation).or_default();
        for line in values.iter().flatten().flat_map(|text| text.split(|b| *b == b'\n')) {
            let mut parts = line.splitn(2, |b| *b == 0);
            if let (Some(key), Some(value)) = (parts.next(), parts.next()) {
                keys.insert(key.to_vec(), value.to_vec());
            }
        }
        barrier.release(cx);
    }

    fn publish(&mut self, service: &[u8], port: &[u8]) -> Reply<'static> {
        let [longest, ..] = LIMITS;
        if service.len() > longest || self.published.len() >= MOST_PUBLISHED {
            return Reply::Refused { command: "publish_result", why: "too_many_names" };
        }
        if self.published.contains_key(service) {
            return Reply::Refused { command: "publish_result", why: "duplicate_service" };
        }
        self.published.insert(service.to_vec(), port.to_vec());
        Reply::Published
    }

    fn finalize(&mut self, session: &mut Session, rank: Rank) -> Result<Reply<'static>, Broken> {
        if session.phase != Phase::Inside {
            return Err(Broken::Order);
        }
        session.phase = Phase::Finalized;
        if let Some(own) = self.ranks.get_mut(&rank) {
            own.inside = None;
        }
        Ok(Reply::Finalized)
    }

    pub(super) fn closed(&mut self, client: ClientId, session: &Session) {
        self.fences.forget(client);
        let own = session.rank.and_then(|rank| self.ranks.get_mut(&rank));
        if let Some((_, is_open)) = own.and_then(|own| own.inside.as_mut()).filter(|(own, _)| *own == client) {
            *is_open = false;
        }
    }

    pub(super) fn is_inside(&self, rank: Rank) -> bool {
        self.ranks.get(&rank).is_some_and(|own| own.inside.is_some())
    }
}

/// The name of a space of keys.
fn space(layout: &Layout, generation: Generation) -> String {
    format!("kvs_{}_{generation}", layout.name)
}

fn members(layout: &Layout, group: Group<'_>) -> Result<RankSet, Broken> {
    match group {
        Group::World => Ok(layout.world()),
        Group::Node => Ok(layout.own()),
        Group::Ranks(list) => {
            let mut all = RankSet::new();
            let numbers = Group::numbers(list).ok_or(Malformed::Field("group"))?;
            numbers.into_iter().for_each(|rank| all.insert(Rank::new(rank)));
            Ok(all)
        }
    }
}

/// Other programs cannot be started from an MPI program: the request is read to its end and refused.
fn spawn(session: &mut Session, request: Request<'_>) -> Option<Reply<'static>> {
    let number = |value: &[u8]| core::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok());
    if let Request::SpawnPart { name: b"totspawns", value } = request
        && session.spawning == 0
    {
        session.spawning = number(value).unwrap_or(1).max(1);
    }
    if request != Request::SpawnEnd {
        return None;
    }
    session.spawning = session.spawning.saturating_sub(1);
    let refused = Reply::Refused { command: "spawn_result", why: "rlaunch_cannot_spawn_programs" };
    (session.spawning == 0).then_some(refused)
}
