//! PMI-1: MPICH and Intel MPI.
//!
//! Each `init` of a rank after its first begins a new, empty space of keys: one rank may run several MPI programs, one after the other, and
//! the n-th of each rank meet. The name of a space is new on the host: MPICH names files in /dev/shm after it.

mod spaces;
mod spawning;

use super::fences::{Fences, Kind, Met, Waiter};
use super::remote::Pending;
use super::spawn::Asker;
use super::{Action, Broken, Cx, Layout, MOST_PER_RANK, Origin, SpeaksFor, names, shm_names};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_protocol::wire::frozen::client::Reply as Stored;
use rlaunch_protocol::wire::node_news::MpiWire;
use rlaunch_protocol::wire::pmi1::{Group, Malformed, Reply, Request, line, parse};
use rlaunch_protocol::wire::pmix::GroupForm;
use spaces::Spaces;
pub(super) use spaces::{Keys, KeysWanted};
use spawning::Spawning;

/// Which MPI program of a rank it is, from 0.
pub(super) type Generation = u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    /// The rank is known, if at all.
    #[default]
    Named,
    Inside,
    Finalized,
}

/// Barrier of a program, by the words of the client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Barrier {
    generation: Generation,
    tag: Option<Vec<u8>>,
}

impl Kind for Barrier {
    const WIRE: MpiWire = MpiWire::Pmi1;

    fn bytes(&self) -> Vec<u8> {
        let tag = self.tag.as_deref().map_or_else(Vec::new, |tag| [b":", tag].concat());
        [b"barrier ", &self.generation.to_be_bytes()[..], &tag].concat()
    }
}

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    rank: Option<Rank>,
    phase: Phase,
    generation: Generation,
    /// A spawn of which all has not come.
    spawning: Option<Box<Spawning>>,
}

impl Session {
    /// The rank that it speaks for.
    pub(super) const fn rank(&self) -> Option<Rank> {
        self.rank
    }

    /// Whether the process is in this program of its rank.
    pub(super) fn is_in(&self, generation: Generation) -> bool {
        self.phase == Phase::Inside && self.generation == generation
    }
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
    spaces: Spaces,
    fences: Fences<Barrier>,
    mapping: Option<Option<String>>,
    /// Programs that a rank of this host has begun.
    begun: Generation,
}

impl Lines {
    pub(super) fn receive(
        &mut self,
        cx: &mut Cx<'_>,
        session: &mut Session,
        bytes: &[u8],
        speaks_for: &mut SpeaksFor<'_>,
    ) -> Result<usize, Broken> {
        let Some((text, used)) = line(bytes)? else { return Ok(0) };
        match (parse(text)?, session.rank) {
            (Request::InitAck { rank }, None) => {
                let named = Rank::new(rank);
                if !cx.may_speak_for(named, speaks_for)? {
                    return Ok(0);
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
                self.get(cx, session.generation, key);
                return Ok(());
            }
            Request::Barrier { group } => return self.barrier(cx, session.generation, rank, group),
            Request::Name(request) => match names::serve_line(cx, request) {
                Some(reply) => reply,
                None => return Ok(()),
            },
            Request::Finalize => self.finalize(session, rank)?,
            Request::Abort { code, text } => {
                cx.out.push_back(Action::Abort { rank, code, text: text.to_vec() });
                return Ok(());
            }
            Request::Spawn | Request::SpawnPart { .. } | Request::SpawnEnd => {
                spawn(cx, session, rank, request);
                return Ok(());
            }
            Request::InitAck { .. } => return Err(Broken::Order),
            Request::Unknown(_) => Reply::Refused { command: "unknown_result", why: "not_supported" },
        };
        cx.answer(reply.write());
        Ok(())
    }

    fn init(&mut self, cx: &mut Cx<'_>, session: &mut Session, rank: Rank) -> Result<Reply<'static>, Broken> {
        let own = self.ranks.entry(rank).or_default();
        match session.phase {
            Phase::Inside => return Err(Broken::Order),
            Phase::Named | Phase::Finalized if matches!(own.inside, Some((_, true))) => {
                return Err(Broken::Twice(rank.get()));
            }
            Phase::Named | Phase::Finalized => {}
        }
        cx.init_wait.wait(cx.now, (MpiWire::Pmi1, &cx.layout.world()), rank);
        session.generation = own.inits;
        session.phase = Phase::Inside;
        // A single rank makes them when it meets the ranks that it has started.
        if session.generation >= self.begun {
            let names = shm_names::of_mpich(cx.layout, &space(cx.layout, session.generation));
            cx.out.push_back(Action::Cleanup { client: cx.client, names });
        }
        self.begun = self.begun.max(session.generation.saturating_add(1));
        *own = OfRank { inits: own.inits.saturating_add(1), inside: Some((cx.client, true)), bytes: 0 };
        if self.ranks.len() as u64 == cx.layout.own().len() {
            self.forget_before();
        }
        Ok(Reply::Init)
    }

    /// All ranks of this host have come: forgets generations that all of them have left.
    fn forget_before(&mut self) {
        let oldest = self.ranks.values().map(|own| own.inits.saturating_sub(1)).min().unwrap_or_default();
        self.spaces.forget_before(oldest);
        self.fences.retain(|barrier| barrier.generation >= oldest);
    }

    fn put(&mut self, layout: &Layout, rank: Rank, generation: Generation, pair: (&[u8], &[u8])) -> Result<(), Broken> {
        let (key, value) = pair;
        let own = self.ranks.get_mut(&rank).filter(|own| own.inside.is_some()).ok_or(Broken::Order)?;
        own.bytes = own.bytes.saturating_add(key.len()).saturating_add(value.len());
        if own.bytes > MOST_PER_RANK {
            return Err(Broken::Full(rank.get(), MOST_PER_RANK));
        }
        self.spaces.put(layout, generation, pair);
        Ok(())
    }

    fn get(&mut self, cx: &mut Cx<'_>, generation: Generation, key: &[u8]) {
        if key == b"PMI_process_mapping" {
            let mapping = self.mapping.get_or_insert_with(|| cx.layout.mapping());
            let reply = mapping.as_ref().map_or(Reply::NotFound, |text| Reply::Found(text.as_bytes()));
            return cx.answer(reply.write());
        }
        // The second program of a rank was not started by another one.
        let origin = if generation == 0 { Origin::parse(&cx.layout.origin) } else { None };
        if let Some(Origin::Keys(keys)) = origin
            && let Some(value) = keys.get(key)
        {
            return cx.answer(Reply::Found(value).write());
        }
        self.spaces.get(cx, generation, key);
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
            Some((group, tag)) => (members(cx.layout, group)?, Some(tag.to_vec())),
        };
        if !all.contains(rank) || !cx.layout.knows(&all) {
            return Err(Malformed::Field("group").into());
        }
        let waiter = Waiter { client: cx.client, tag: 0, is_described: false, group_form: GroupForm::default() };
        if let Some(met) = self.fences.arrive(cx, (Barrier { generation, tag }, all), rank, waiter)? {
            if met.count == 0 {
                release(cx, &met);
            } else {
                self.spaces.send(cx, generation);
                cx.fence(met, Pending::Barrier);
            }
        }
        Ok(())
    }

    /// All hosts have come to a barrier.
    pub(super) fn all_have_come(&mut self, cx: &mut Cx<'_>, met: &Met<Barrier>) {
        self.spaces.on_barrier(met.kind.generation);
        release(cx, met);
    }

    /// The keys of other hosts.
    pub(super) fn take_keys(&mut self, cx: &mut Cx<'_>, wanted: KeysWanted, answer: &Stored<'_>) {
        self.spaces.take(cx, wanted, answer);
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
        self.spaces.forget(client);
        let own = session.rank.and_then(|rank| self.ranks.get_mut(&rank));
        if let Some((_, is_open)) = own.and_then(|own| own.inside.as_mut()).filter(|(own, _)| *own == client) {
            *is_open = false;
        }
    }

    pub(super) fn is_inside(&self, rank: Rank) -> bool {
        self.ranks.get(&rank).is_some_and(|own| own.inside.is_some())
    }

    /// Whether a rank has called `init`.
    pub(super) fn has_come(&self, rank: Rank) -> bool {
        self.ranks.contains_key(&rank)
    }
}

fn release(cx: &mut Cx<'_>, Met { kind, all, waiters, .. }: &Met<Barrier>) {
    cx.init_wait.over(MpiWire::Pmi1, all);
    // A tag that is empty is 0.
    let tag = kind.tag.as_deref().map(|tag| if tag.is_empty() { b"0" } else { tag });
    let bytes = Reply::Barrier { tag }.write();
    waiters.iter().for_each(|waiter| cx.write(waiter.client, bytes.clone()));
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

/// A part of a spawn has come. The last one begins it.
fn spawn(cx: &mut Cx<'_>, session: &mut Session, rank: Rank, request: Request<'_>) {
    let spawning = session.spawning.get_or_insert_default();
    if let Request::SpawnPart { name, value } = request {
        return spawning.take(name, value);
    }
    if request != Request::SpawnEnd || !spawning.end_part() {
        return;
    }
    let Some(spawning) = session.spawning.take() else { return };
    super::spawn::note_keys(cx, rank, spawning.info_keys());
    match spawning.finish() {
        Ok(request) => super::spawn::begin(cx, rank, Asker::Line(cx.client), request),
        Err(why) => super::spawn::refuse(cx, (Asker::Line(cx.client), rank), &[why.as_bytes()]),
    }
}
