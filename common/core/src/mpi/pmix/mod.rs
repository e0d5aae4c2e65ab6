//! PMIx: Open MPI.
//!
//! A rank may have several connections, one after the other or at a time. Its data is forgotten when a program of the
//! rank connects after the program before has ended.

use super::fences::{Fences, Waiter};
use super::remote::{PREFIX, Pending, hash};
use super::{Action, Broken, Cx, Layout, MOST_PER_RANK, job_data};
use crate::id::{ClientId, Rank};
use crate::rank_set::RankSet;
use crate::store::Ask;
use crate::wire::pmix::{
    ALL_RANKS, FIRST_SPECIAL, HEADER, Header, Hello, Malformed, Proc, RawValue, Request, Writer, status,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Most values that are public at a time, and their bytes.
const MOST_PUBLIC: usize = 10_000;
const LONGEST_PUBLIC: usize = 1 << 20;
/// Most requests that wait for data of a rank.
const MOST_WAITING: usize = 100_000;
/// Most bytes that a rank may put where there are other hosts: a value of the store.
const MOST_FAR: usize = 7 << 20;
/// The bit of numbers of groups that have ranks on several hosts.
const FAR_GROUP: u64 = 1 << 30;
/// Scope of a value for processes of the same host.
const LOCAL: u8 = 1;

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    rank: Option<Rank>,
    is_described: bool,
    is_finalized: bool,
}

/// Data that a rank has committed.
#[derive(Debug, Default)]
struct OfRank {
    /// For all, and for those of the host.
    data: Vec<u8>,
    local: Vec<u8>,
    is_described: bool,
    is_committed: bool,
    /// Connections that have not finalized, and all that are open.
    inside: u32,
    open: u32,
    /// A connection has been lost that had not finalized.
    is_torn: bool,
}

/// A public value.
#[derive(Debug)]
struct Public {
    by: Rank,
    kind: u16,
    value: Vec<u8>,
    is_once: bool,
}

/// A request for public values that waits.
#[derive(Debug)]
struct Lookup {
    waiter: Waiter,
    keys: Vec<Vec<u8>>,
    is_described: bool,
}

/// Ranks of this host that have all come to a meeting.
#[derive(Debug)]
pub(super) struct Met {
    meeting: Meeting,
    all: RankSet,
    waiters: Vec<Waiter>,
    is_described: bool,
    /// How many meetings like this there were with other hosts.
    count: u64,
}

/// A process that wants the data of a rank of another host.
#[derive(Debug)]
pub(super) struct Wanted {
    waiter: Waiter,
    of: u32,
    is_described: bool,
}

/// Why ranks meet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Meeting {
    Fence,
    Connect,
    Disconnect,
    Group(Vec<u8>),
}

/// Everything about PMIx.
#[derive(Debug, Default)]
pub(super) struct Messages {
    ranks: BTreeMap<Rank, OfRank>,
    fences: Fences<Meeting>,
    /// Requests for data of a rank that has committed none.
    gets: Vec<(Waiter, Rank, bool)>,
    public: BTreeMap<Vec<u8>, Public>,
    lookups: Vec<Lookup>,
    groups: u32,
    /// How many meetings of each kind other hosts took part in.
    counts: BTreeMap<(Meeting, RankSet), u64>,
    /// The facts about the job, described and not.
    job: [Option<Vec<u8>>; 2],
}

impl Messages {
    pub(super) fn receive(
        &mut self,
        cx: &mut Cx<'_>,
        session: &mut Session,
        bytes: &[u8],
        speaks_for: &mut dyn FnMut(Rank) -> bool,
    ) -> Result<usize, Broken> {
        let Some(rank) = session.rank else { return self.hello(cx, session, bytes, speaks_for) };
        let Some(header) = Header::parse(bytes)? else { return Ok(0) };
        let end = HEADER.saturating_add(header.len);
        let Some(body) = bytes.get(HEADER..end) else { return Ok(0) };
        match Request::parse(body, session.is_described) {
            Ok(request) => self.serve(cx, session, (rank, header.tag), request)?,
            // The command is known and a value in it is not: the client gets an answer.
            Err(Malformed::Kind(_)) => reply(cx, (cx.client, header.tag), session.is_described, status::NOT_SUPPORTED),
            Err(error) => return Err(error.into()),
        }
        Ok(end)
    }

    fn hello(
        &mut self,
        cx: &mut Cx<'_>,
        session: &mut Session,
        bytes: &[u8],
        speaks_for: &mut dyn FnMut(Rank) -> bool,
    ) -> Result<usize, Broken> {
        let Some((hello, used)) = Hello::parse(bytes)? else { return Ok(0) };
        if hello.role != 0 || hello.nspace != cx.layout.name.as_bytes() {
            return Err(Broken::Stranger);
        }
        let rank = Rank::new(hello.rank);
        if !cx.layout.is_here(hello.rank) || !speaks_for(rank) {
            return Err(Broken::OtherRank(hello.rank));
        }
        let own = self.ranks.entry(rank).or_default();
        if own.open == 0 {
            *own = OfRank::default();
        }
        own.open = own.open.saturating_add(1);
        own.inside = own.inside.saturating_add(1);
        (session.rank, session.is_described) = (Some(rank), hello.is_described);
        cx.answer(Hello::answer(cx.client.get()));
        Ok(used)
    }

    fn serve(
        &mut self,
        cx: &mut Cx<'_>,
        session: &mut Session,
        (rank, tag): (Rank, u32),
        request: Request<'_>,
    ) -> Result<(), Broken> {
        let is_described = session.is_described;
        let waiter = (cx.client, tag);
        let answer = match request {
            Request::JobData => {
                let mut out = Writer::new(is_described);
                out.string(cx.layout.name.as_bytes()).raw(self.job_data(cx.layout, is_described));
                send(cx, waiter, out);
                return Ok(());
            }
            Request::Abort { status, text } => {
                cx.out.push_back(Action::Abort { rank, code: status, text: text.to_vec() });
                status::SUCCESS
            }
            Request::Commit(parts) => self.commit(cx, rank, is_described, &parts)?,
            Request::Fence(procs) => return self.meet(cx, session, waiter, Meeting::Fence, &procs),
            Request::Connect(procs) => return self.meet(cx, session, waiter, Meeting::Connect, &procs),
            Request::Disconnect(procs) => return self.meet(cx, session, waiter, Meeting::Disconnect, &procs),
            Request::GroupConstruct { name, procs } => {
                return self.meet(cx, session, waiter, Meeting::Group(name.to_vec()), &procs);
            }
            Request::Get { of, is_immediate } => return self.get(cx, waiter, is_described, of, is_immediate),
            Request::Finalize => self.finalize(session, rank),
            Request::Publish { values, is_once } => self.publish(cx, rank, &values, is_once),
            Request::Lookup { keys, waits } => {
                let keys = keys.into_iter().map(<[u8]>::to_vec).collect();
                self.lookup(cx, Lookup { waiter, keys, is_described }, waits);
                return Ok(());
            }
            Request::Unpublish(keys) => self.unpublish(rank, &keys),
            Request::Events | Request::GroupDestruct => status::SUCCESS,
            Request::NoEvents => return Ok(()),
            Request::Log(texts) => {
                texts.iter().for_each(|text| cx.out.push_back(Action::Log { rank, text: text.to_vec() }));
                status::SUCCESS
            }
            Request::JobControl { cleanup } => {
                cleanup.iter().for_each(|path| cx.out.push_back(Action::Cleanup { rank, path: path.to_vec() }));
                let mut out = Writer::new(is_described);
                out.status(status::SUCCESS).size(0);
                send(cx, waiter, out);
                return Ok(());
            }
            Request::Unsupported(_) => status::NOT_SUPPORTED,
        };
        reply(cx, waiter, is_described, answer);
        Ok(())
    }

    fn finalize(&mut self, session: &mut Session, rank: Rank) -> i32 {
        if !core::mem::replace(&mut session.is_finalized, true) {
            let own = self.ranks.entry(rank).or_default();
            own.inside = own.inside.saturating_sub(1);
        }
        status::SUCCESS
    }

    fn unpublish(&mut self, rank: Rank, keys: &[&[u8]]) -> i32 {
        self.public.retain(|key, own| own.by != rank || !keys.is_empty() && !keys.contains(&key.as_slice()));
        status::SUCCESS
    }

    fn job_data(&mut self, layout: &Layout, is_described: bool) -> &[u8] {
        let [plain, described] = &mut self.job;
        let known = if is_described { described } else { plain };
        known.get_or_insert_with(|| job_data::write(layout, is_described))
    }

    fn commit(
        &mut self,
        cx: &mut Cx<'_>,
        rank: Rank,
        is_described: bool,
        parts: &[(u8, &[u8])],
    ) -> Result<i32, Broken> {
        let own = self.ranks.entry(rank).or_default();
        let has = own.data.len().saturating_add(own.local.len());
        let more = parts.iter().fold(0, |sum: usize, (_, bytes)| sum.saturating_add(bytes.len()));
        let most = if cx.layout.hosts.len() > 1 { MOST_FAR } else { MOST_PER_RANK };
        if has.saturating_add(more) > most {
            return Err(Broken::Full(rank.get()));
        }
        for (scope, bytes) in parts {
            let to = if *scope == LOCAL { &mut own.local } else { &mut own.data };
            to.extend_from_slice(bytes);
        }
        (own.is_committed, own.is_described) = (true, is_described);
        if cx.layout.hosts.len() > 1 {
            let value = [&[u8::from(is_described)], own.data.as_slice()].concat();
            cx.ask(Ask::Set(key_of(rank.get()).as_bytes(), &value), Pending::Quiet);
        }
        let (due, rest) = core::mem::take(&mut self.gets).into_iter().partition(|(_, of, _)| *of == rank);
        self.gets = rest;
        for (waiter, of, is_described) in Vec::<_>::from_iter::<Vec<(Waiter, Rank, bool)>>(due) {
            self.hand_out(cx, waiter, is_described, of);
        }
        Ok(status::SUCCESS)
    }

    /// Sends the data that a rank has committed. Buffers of another kind than the client's cannot be passed on.
    fn hand_out(&self, cx: &mut Cx<'_>, waiter: Waiter, is_described: bool, of: Rank) {
        let own = self.ranks.get(&of).filter(|own| own.is_described == is_described);
        let Some(own) = own.filter(|own| !own.data.is_empty() || !own.local.is_empty()) else {
            return reply(cx, waiter, is_described, status::NOT_FOUND);
        };
        let mut data = Writer::new(is_described);
        data.one_proc(Proc { nspace: cx.layout.name.as_bytes(), rank: of.get() }).raw(&own.local).raw(&own.data);
        let mut out = Writer::new(is_described);
        out.status(status::SUCCESS).byte_object(&data.into_bytes());
        send(cx, waiter, out);
    }

    fn get(
        &mut self,
        cx: &mut Cx<'_>,
        waiter: Waiter,
        is_described: bool,
        of: Proc<'_>,
        is_immediate: bool,
    ) -> Result<(), Broken> {
        let is_ours = of.nspace == cx.layout.name.as_bytes();
        let rank = Rank::new(of.rank);
        if is_ours && of.rank == ALL_RANKS {
            let mut data = Writer::new(is_described);
            data.one_proc(of).raw(self.job_data(cx.layout, is_described));
            let mut out = Writer::new(is_described);
            out.status(status::SUCCESS).byte_object(&data.into_bytes());
            send(cx, waiter, out);
        } else if !is_ours || of.rank >= FIRST_SPECIAL || cx.layout.node_of(of.rank).is_none() {
            reply(cx, waiter, is_described, status::NOT_FOUND);
        } else if !cx.layout.is_here(of.rank) {
            let wanted = Wanted { waiter, of: of.rank, is_described };
            if is_immediate {
                ask_for(cx, wanted);
            } else {
                let key = key_of(of.rank);
                cx.ask(Ask::Wait { keys: &[key.as_bytes()], within: None }, Pending::Committed(wanted));
            }
        } else if is_immediate || self.ranks.get(&rank).is_some_and(|own| own.is_committed) {
            self.hand_out(cx, waiter, is_described, rank);
        } else if self.gets.len() < MOST_WAITING {
            self.gets.push((waiter, rank, is_described));
        } else {
            reply(cx, waiter, is_described, status::OUT_OF_RESOURCE);
        }
        Ok(())
    }

    /// Ranks wait for each other.
    fn meet(
        &mut self,
        cx: &mut Cx<'_>,
        session: &Session,
        waiter: Waiter,
        meeting: Meeting,
        procs: &[Proc<'_>],
    ) -> Result<(), Broken> {
        let is_described = session.is_described;
        let all = members(cx.layout, procs);
        let Some((all, rank)) = all.zip(session.rank).filter(|(all, rank)| all.contains(*rank)) else {
            reply(cx, waiter, is_described, status::BAD_PARAM);
            return Ok(());
        };
        let own = cx.layout.own_of(&all);
        if let Some(waiters) = self.fences.arrive(meeting.clone(), (&all, &own), rank, waiter)? {
            let mut met = Met { meeting, all, waiters, is_described, count: 0 };
            if own == met.all {
                self.release(cx, &met);
            } else {
                let count = self.counts.entry((met.meeting.clone(), met.all.clone())).or_default();
                *count = count.saturating_add(1);
                met.count = *count;
                let (name, all) = (format!("{PREFIX}/x/{:x}", met.hash()), met.all.clone());
                cx.fence(name.as_bytes(), &all, Pending::Meeting(met));
            }
        }
        Ok(())
    }

    /// All have come.
    pub(super) fn release(&mut self, cx: &mut Cx<'_>, met: &Met) {
        let Met { meeting, all, waiters, is_described, count } = met;
        let is_described = *is_described;
        let mut out = Writer::new(is_described);
        out.status(status::SUCCESS);
        match meeting {
            Meeting::Fence | Meeting::Disconnect => {}
            Meeting::Connect => {
                let mut of = out.another();
                of.string(cx.layout.name.as_bytes()).raw(self.job_data(cx.layout, is_described));
                out.byte_object(&of.into_bytes());
            }
            Meeting::Group(_) => {
                self.groups = self.groups.wrapping_add(1);
                // All hosts have to find the same number by themselves, and a number of this host must not be the same.
                let far = FAR_GROUP | met.hash() & (FAR_GROUP - 1);
                let number = if *count > 0 { far } else { u64::from(self.groups & 0x3fff_ffff) };
                let ranks: Vec<u32> = all.ranges().flat_map(|(first, last)| first..=last).collect();
                out.procs(ranks.iter().map(|rank| Proc { nspace: cx.layout.name.as_bytes(), rank: *rank }));
                out.size(1).info_size(b"pmix.grp.ctxid", number);
            }
        }
        let bytes = out.into_bytes();
        for (client, tag) in waiters {
            cx.write(*client, Header::frame(client.get(), *tag, &bytes));
        }
    }

    fn publish(&mut self, cx: &mut Cx<'_>, by: Rank, values: &[(&[u8], RawValue<'_>)], is_once: bool) -> i32 {
        let fits = |(_, value): &(&[u8], RawValue<'_>)| value.bytes.len() <= LONGEST_PUBLIC;
        if !values.iter().all(fits) || self.public.len().saturating_add(values.len()) > MOST_PUBLIC {
            return status::OUT_OF_RESOURCE;
        }
        for (key, RawValue { kind, bytes }) in values {
            self.public.insert(key.to_vec(), Public { by, kind: *kind, value: bytes.to_vec(), is_once });
        }
        for lookup in core::mem::take(&mut self.lookups) {
            self.lookup(cx, lookup, true);
        }
        status::SUCCESS
    }

    fn lookup(&mut self, cx: &mut Cx<'_>, lookup: Lookup, waits: bool) {
        let Lookup { waiter, keys, is_described } = &lookup;
        let found: Vec<&Vec<u8>> = keys.iter().filter(|key| self.public.contains_key(*key)).collect();
        if found.len() < keys.len() && waits {
            if self.lookups.len() < MOST_WAITING {
                return self.lookups.push(lookup);
            }
            return reply(cx, *waiter, *is_described, status::OUT_OF_RESOURCE);
        }
        if found.is_empty() {
            return reply(cx, *waiter, *is_described, status::NOT_FOUND);
        }
        let nspace = cx.layout.name.as_bytes();
        let all: Vec<_> = found
            .iter()
            .filter_map(|key| {
                let Public { by, kind, value, .. } = self.public.get(*key)?;
                Some((Proc { nspace, rank: by.get() }, key.as_slice(), RawValue { kind: *kind, bytes: value }))
            })
            .collect();
        let mut out = Writer::new(*is_described);
        out.status(status::SUCCESS).published(&all);
        send(cx, *waiter, out);
        for key in found {
            if self.public.get(key).is_some_and(|public| public.is_once) {
                self.public.remove(key);
            }
        }
    }

    pub(super) fn closed(&mut self, client: ClientId, session: &Session) {
        self.fences.forget(client);
        self.gets.retain(|((other, _), ..)| *other != client);
        self.lookups.retain(|lookup| lookup.waiter.0 != client);
        if let Some(own) = session.rank.and_then(|rank| self.ranks.get_mut(&rank)) {
            own.open = own.open.saturating_sub(1);
            if !session.is_finalized {
                own.inside = own.inside.saturating_sub(1);
                own.is_torn = true;
            }
        }
    }

    pub(super) fn is_inside(&self, rank: Rank) -> bool {
        self.ranks.get(&rank).is_some_and(|own| own.inside > 0 || own.is_torn)
    }
}

impl Met {
    /// The same on all hosts, and another for each meeting.
    fn hash(&self) -> u64 {
        let (kind, name): (&[u8], &[u8]) = match &self.meeting {
            Meeting::Fence => (b"fence ", b""),
            Meeting::Connect => (b"connect ", b""),
            Meeting::Disconnect => (b"disconnect ", b""),
            Meeting::Group(name) => (b"group ", name),
        };
        let ranges = self.all.ranges().flat_map(|(first, last)| [first, last]).flat_map(u32::to_be_bytes);
        hash(&[kind, name, b" ", &ranges.collect::<Vec<u8>>(), &self.count.to_be_bytes()].concat())
    }
}

/// The key of what a rank has committed for other hosts.
fn key_of(rank: u32) -> String {
    format!("{PREFIX}/x/rank/{rank}")
}

/// Asks for what a rank of another host has committed.
pub(super) fn ask_for(cx: &mut Cx<'_>, wanted: Wanted) {
    let key = key_of(wanted.of);
    cx.ask(Ask::Get(key.as_bytes()), Pending::Data(wanted));
}

/// Sends the data of a rank of another host; `None`: it has committed none.
pub(super) fn hand_out_far(cx: &mut Cx<'_>, wanted: &Wanted, data: Option<&[u8]>) {
    let Wanted { waiter, of, is_described } = wanted;
    let known = data.and_then(<[u8]>::split_first).filter(|(described, _)| **described == u8::from(*is_described));
    let Some((_, data)) = known.filter(|(_, data)| !data.is_empty()) else {
        return reply(cx, *waiter, *is_described, status::NOT_FOUND);
    };
    let mut own = Writer::new(*is_described);
    own.one_proc(Proc { nspace: cx.layout.name.as_bytes(), rank: *of }).raw(data);
    let mut out = Writer::new(*is_described);
    out.status(status::SUCCESS).byte_object(&own.into_bytes());
    send(cx, *waiter, out);
}

/// The ranks of some processes; `None`: there are those of other jobs, or ranks that do not exist.
fn members(layout: &Layout, procs: &[Proc<'_>]) -> Option<RankSet> {
    let mut all = RankSet::new();
    for Proc { nspace, rank } in procs {
        match *rank {
            _ if *nspace != layout.name.as_bytes() => return None,
            ALL_RANKS => all.extend(&layout.world()),
            rank => all.insert(Rank::new(rank)),
        }
    }
    Some(all).filter(|all| layout.knows(all))
}

fn send(cx: &mut Cx<'_>, (client, tag): Waiter, out: Writer) {
    cx.write(client, Header::frame(client.get(), tag, &out.into_bytes()));
}

fn reply(cx: &mut Cx<'_>, waiter: Waiter, is_described: bool, status: i32) {
    let mut out = Writer::new(is_described);
    out.status(status);
    send(cx, waiter, out);
}
