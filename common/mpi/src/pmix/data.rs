//! Data that ranks commit, for those of their host and of others.
//!
//! Data that ranks of this host commit goes to the store with the next fence, or after a moment. After a fence the first look at a rank of
//! another host brings the data of all ranks of that host. A process that asks for data of a rank of its own host gets that of all ranks
//! that have met since: without that, each of n ranks would ask n times.

use super::super::fences::Waiter;
use super::super::refusals::Source;
use super::super::remote::{PREFIX, Pending};
use super::super::{Broken, Cx, Layout, MOST_PER_RANK, Reach};
use super::worlds::{Opened, key_of_rank};
use super::{FIRST_SPECIAL, MOST_WAITING, Proc, Writer, reply, send, status};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::{Mono, Span};
use rlaunch_keyvalue::store::Ask;
use rlaunch_keyvalue::store::owner::LIMITS;
use rlaunch_protocol::wire::frozen::client::{Code, Refused, Reply};
use rlaunch_protocol::wire::to_node::HostRanks;

/// Most bytes that a rank may put where there are other hosts: with what stands around it, a value of the store.
const MOST_FAR: usize = LIMITS.value - (4 << 10);
/// Most bytes of one request, unless a single value is longer.
const MOST_AT_ONCE: usize = 256 << 10;
/// Bytes of a value in a request, beside itself and its key.
const HEAD: usize = 16;
/// Most bytes of ranks that a process has not asked for.
const MOST_UNASKED: usize = 256 << 10;
/// How long data waits for a fence.
const PAUSE: Span = Span::from_millis(20);
/// Scope of a value for processes of the same host.
const LOCAL: u8 = 1;

/// Data that a rank of this host has committed.
#[derive(Debug, Default)]
struct OfRank {
    /// For all, and for those of the host.
    data: Vec<u8>,
    local: Vec<u8>,
    is_described: bool,
    /// Bytes of both that other worlds can read.
    opened: usize,
    /// The rank has met others since it began.
    has_met: bool,
}

impl OfRank {
    const fn len(&self) -> usize {
        self.data.len().saturating_add(self.local.len())
    }

    /// Its data for a process of the same host.
    fn parts<'a>(&'a self, nspace: &'a [u8], rank: Rank) -> (Proc<'a>, [&'a [u8]; 2]) {
        (Proc { nspace, rank: rank.get() }, [self.local.as_slice(), self.data.as_slice()])
    }
}

/// Data of a rank of another host.
#[derive(Debug, Default)]
struct FarRank {
    value: Option<Vec<u8>>,
    /// Processes that have got the value. A process that asks again looks for a newer value.
    given: BTreeSet<ClientId>,
}

/// Another host, after a meeting with it.
#[derive(Debug, Default)]
struct FarHost {
    /// Meetings with ranks of it that are over, and how many were when `ranks` was read.
    meetings: u64,
    read: u64,
    ranks: BTreeMap<u32, FarRank>,
    /// By the number of meetings before, the requests for data of its ranks that have no answer yet.
    looks: BTreeMap<u64, usize>,
    /// Processes that wait for data, with the number of meetings before.
    gets: Vec<(Wanted, u64)>,
}

/// A process that wants the data of a rank of another host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) waiter: Waiter,
    of: u32,
    /// At once, even if nothing is committed.
    is_immediate: bool,
}

/// A look at other hosts' data.
#[derive(Debug)]
pub(crate) enum Looking {
    /// At that of one rank.
    One(Wanted),
    /// At that of ranks of a host.
    Host(HostWanted),
}

/// A request for data of ranks of another host.
#[derive(Debug)]
pub(crate) struct HostWanted {
    node: usize,
    /// How many meetings were over.
    meetings: u64,
    ranks: Vec<u32>,
}

/// Everything that ranks have committed.
#[derive(Debug, Default)]
pub(super) struct Data {
    own: BTreeMap<Rank, OfRank>,
    /// Ranks whose newest data the store has not got, and when it gets it.
    new: BTreeSet<Rank>,
    send_at: Option<Mono>,
    /// Requests for data of ranks of this host that have committed none.
    gets: Vec<(Waiter, Rank)>,
    far: BTreeMap<usize, FarHost>,
    /// Meetings after which there was new data of this host, and whether there is some for the next.
    exchanges: u64,
    is_new: bool,
    /// How many of them there were when a process got the data of all.
    given: BTreeMap<ClientId, u64>,
}

impl Data {
    /// A rank begins anew.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.own.remove(&rank);
    }

    pub(super) fn commit(
        &mut self,
        cx: &mut Cx<'_>,
        (rank, is_described): (Rank, bool),
        parts: &[(u8, &[u8])],
    ) -> Result<(), Broken> {
        let has_others = cx.layout.hosts.len() > 1;
        let own = self.own.entry(rank).or_default();
        let has = own.len();
        let more = parts.iter().fold(0, |sum: usize, (_, bytes)| sum.saturating_add(bytes.len()));
        let most = if has_others { MOST_FAR } else { MOST_PER_RANK };
        if has.saturating_add(more) > most {
            return Err(Broken::Full(rank.get(), most));
        }
        for (scope, bytes) in parts {
            let to = if *scope == LOCAL { &mut own.local } else { &mut own.data };
            to.extend_from_slice(bytes);
        }
        own.is_described = is_described;
        self.is_new = true;
        if has_others {
            self.new.insert(rank);
            self.send_at.get_or_insert(cx.now + PAUSE);
        }
        let due: Vec<_> = self.gets.extract_if(.., |(_, of)| *of == rank).collect();
        due.into_iter().for_each(|(waiter, of)| self.hand_out(cx, waiter, of));
        Ok(())
    }

    /// The store gets what is new.
    pub(super) fn send(&mut self, cx: &mut Cx<'_>) {
        self.send_at = None;
        let new = core::mem::take(&mut self.new);
        let entries = new.into_iter().filter_map(|rank| {
            let own = self.own.get(&rank)?;
            let value = [&[u8::from(own.is_described)], own.data.as_slice()].concat();
            Some(Entry { rank, key: key_of(rank.get()).into_bytes(), value })
        });
        set_all(cx, Reach::World, entries);
    }

    /// The store of all worlds gets what is new of the data of these ranks.
    pub(super) fn open_to_worlds(&mut self, cx: &mut Cx<'_>, ranks: &RankSet) {
        let (world, host) = (cx.layout.name.as_bytes(), cx.layout.host());
        let new = self.own.iter_mut().filter(|(rank, _)| ranks.contains(**rank)).filter_map(|(rank, own)| {
            let all = own.len();
            let OfRank { data, local, is_described, .. } = own;
            let opened = Opened { is_described: *is_described, host, local, data };
            let key = key_of_rank(world, rank.get());
            (core::mem::replace(&mut own.opened, all) < all).then(|| Entry { rank: *rank, key, value: opened.write() })
        });
        set_all(cx, Reach::Job, new.collect::<Vec<_>>());
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.send_at
    }

    /// A request for the data of a rank of this world.
    pub(super) fn get(&mut self, cx: &mut Cx<'_>, waiter: Waiter, of: Proc<'_>, is_immediate: bool) {
        let rank = Rank::new(of.rank);
        let Some(node) = cx.layout.node_of(of.rank).filter(|_| of.rank < FIRST_SPECIAL) else {
            return reply(cx, waiter, status::NOT_FOUND);
        };
        if node != cx.layout.here {
            self.get_far(cx, node, Wanted { waiter, of: of.rank, is_immediate });
        } else if is_immediate || self.own.contains_key(&rank) {
            self.hand_out(cx, waiter, rank);
        } else if self.gets.len() < MOST_WAITING {
            self.gets.push((waiter, rank));
        } else {
            reply(cx, waiter, status::OUT_OF_RESOURCE);
        }
    }

    fn get_far(&mut self, cx: &mut Cx<'_>, node: usize, wanted: Wanted) {
        let host = self.far.entry(node).or_default();
        if host.read < host.meetings {
            let is_asked = host.gets.iter().any(|(_, meetings)| *meetings == host.meetings);
            host.gets.push((wanted, host.meetings));
            if !is_asked {
                let (meetings, ranks) = (host.meetings, ranks_of(cx.layout, node).collect());
                host.ask(cx, HostWanted { node, meetings, ranks });
            }
            return;
        }
        let far = host.ranks.get_mut(&wanted.of).filter(|far| far.value.is_some());
        match far.map(|far| (far.given.insert(wanted.waiter.client), far)) {
            Some((true, far)) => hand_out_far(cx, wanted, far.value.as_deref()),
            Some((false, _)) => ask_for(cx, wanted),
            None if wanted.is_immediate => ask_for(cx, wanted),
            None => wait_for(cx, wanted),
        }
    }

    /// Data of ranks of a host.
    pub(super) fn take(&mut self, cx: &mut Cx<'_>, wanted: HostWanted, answer: &Reply<'_>) {
        let HostWanted { node, meetings: read, mut ranks } = wanted;
        let Some(host) = self.far.get_mut(&node) else { return };
        let open = host.looks.entry(read).or_default();
        *open = open.saturating_sub(1);
        match answer {
            Reply::Values(values) => {
                let far = |value: &Option<&[u8]>| FarRank { value: value.map(<[u8]>::to_vec), given: BTreeSet::new() };
                host.ranks.extend(ranks.into_iter().zip(values.iter().map(far)));
            }
            // The data together is longer than an answer of the store.
            Reply::Refused(Refused { code: Code::Limit, .. }) if ranks.len() > 1 => {
                let second = ranks.split_off(ranks.len() / 2);
                for ranks in [ranks, second] {
                    host.ask(cx, HostWanted { node, meetings: read, ranks });
                }
            }
            Reply::Done
            | Reply::Missing
            | Reply::Value(_)
            | Reply::Number(_)
            | Reply::Compared(..)
            | Reply::Keys(_)
            | Reply::Changed(..)
            | Reply::Refused(_) => ranks.iter().for_each(|rank| _ = host.ranks.remove(rank)),
        }
        if host.looks.get(&read).is_some_and(|open| *open > 0) {
            return;
        }
        host.looks.remove(&read);
        host.read = host.read.max(read);
        let due: Vec<(Wanted, u64)> = host.gets.extract_if(.., |(_, meetings)| *meetings <= read).collect();
        for (wanted, _) in due {
            match host.ranks.get_mut(&wanted.of) {
                Some(far) if far.value.is_some() => {
                    far.given.insert(wanted.waiter.client);
                    hand_out_far(cx, wanted, far.value.as_deref());
                }
                Some(_) | None if wanted.is_immediate => hand_out_far(cx, wanted, None),
                Some(_) | None => wait_for(cx, wanted),
            }
        }
    }

    /// Handles the end of a meeting of these ranks.
    pub(super) fn on_meeting(&mut self, layout: &Layout, all: &RankSet) {
        self.own.iter_mut().filter(|(rank, _)| all.contains(**rank)).for_each(|(_, own)| own.has_met = true);
        self.exchanges = self.exchanges.saturating_add(u64::from(core::mem::take(&mut self.is_new)));
        for node in layout.others_of(all) {
            let host = self.far.entry(node).or_default();
            host.meetings = host.meetings.saturating_add(1);
        }
    }

    /// Sends the data that a rank has committed. Buffers of another kind than the client's cannot be passed on.
    fn hand_out(&mut self, cx: &mut Cx<'_>, waiter: Waiter, of: Rank) {
        let (exchanges, nspace) = (self.exchanges, cx.layout.name.as_bytes());
        let fits = |own: &&OfRank| own.is_described == waiter.is_described && own.len() > 0;
        let Some(asked) = self.own.get(&of).filter(fits) else {
            return reply(cx, waiter, status::NOT_FOUND);
        };
        let mut parts = Vec::from([asked.parts(nspace, of)]);
        if asked.has_met && self.given.get(&waiter.client).is_none_or(|given| *given < exchanges) {
            let others = || self.own.iter().filter(|(rank, own)| **rank != of && own.has_met && fits(own));
            if others().map(|(_, own)| own.len()).fold(0, usize::saturating_add) <= MOST_UNASKED {
                parts.extend(others().map(|(rank, own)| own.parts(nspace, *rank)));
                self.given.insert(waiter.client, exchanges);
            }
        }
        send_data(cx, waiter, &parts);
    }

    /// A connection is closed: it waits no more.
    pub(super) fn closed(&mut self, client: ClientId) {
        self.gets.retain(|(waiter, _)| waiter.client != client);
        self.given.remove(&client);
        for host in self.far.values_mut() {
            host.gets.retain(|(wanted, _)| wanted.waiter.client != client);
            host.ranks.values_mut().for_each(|far| _ = far.given.remove(&client));
        }
    }
}

impl FarHost {
    fn ask(&mut self, cx: &mut Cx<'_>, wanted: HostWanted) {
        let open = self.looks.entry(wanted.meetings).or_default();
        *open = open.saturating_add(1);
        let keys: Vec<String> = wanted.ranks.iter().copied().map(key_of).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        cx.ask(Ask::GetAll(&keys), Pending::Data(Looking::Host(wanted)));
    }
}

/// Data of a rank for the store.
struct Entry {
    rank: Rank,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Stores values, in requests that are not too long.
fn set_all(cx: &mut Cx<'_>, reach: Reach, entries: impl IntoIterator<Item = Entry>) {
    let (mut part, mut bytes): (Vec<Entry>, usize) = (Vec::new(), 0);
    for entry in entries {
        let more = entry.key.len().saturating_add(entry.value.len()).saturating_add(HEAD);
        bytes = bytes.saturating_add(more);
        if bytes > MOST_AT_ONCE {
            set_part(cx, reach, &core::mem::take(&mut part));
            bytes = more;
        }
        part.push(entry);
    }
    set_part(cx, reach, &part);
}

fn set_part(cx: &mut Cx<'_>, reach: Reach, part: &[Entry]) {
    if !part.is_empty() {
        let pairs: Vec<(&[u8], &[u8])> =
            part.iter().map(|Entry { key, value, .. }| (key.as_slice(), value.as_slice())).collect();
        let ranks = part.iter().map(|entry| entry.rank).collect();
        cx.remote.ask(cx.out, reach, Ask::SetAll(&pairs), Pending::Put(Source::Ranks(ranks)));
    }
}

fn ranks_of(layout: &Layout, node: usize) -> impl Iterator<Item = u32> + '_ {
    layout.hosts.get(node).into_iter().flat_map(HostRanks::ranks)
}

/// The key of what a rank has committed for other hosts.
fn key_of(rank: u32) -> String {
    format!("{PREFIX}/x/{rank}")
}

/// Waits until a rank of another host has committed something.
fn wait_for(cx: &mut Cx<'_>, wanted: Wanted) {
    let key = key_of(wanted.of);
    cx.ask(Ask::Wait { keys: &[key.as_bytes()], within: None }, Pending::Committed(wanted));
}

/// Asks for what a rank of another host has committed.
pub(crate) fn ask_for(cx: &mut Cx<'_>, wanted: Wanted) {
    cx.ask(Ask::Get(key_of(wanted.of).as_bytes()), Pending::Data(Looking::One(wanted)));
}

/// Sends the data of a rank of another host; `None`: it has committed none.
pub(crate) fn hand_out_far(cx: &mut Cx<'_>, Wanted { waiter, of, .. }: Wanted, data: Option<&[u8]>) {
    let known =
        data.and_then(<[u8]>::split_first).filter(|(described, _)| **described == u8::from(waiter.is_described));
    match known.filter(|(_, data)| !data.is_empty()) {
        Some((_, data)) => {
            send_data(cx, waiter, &[(Proc { nspace: cx.layout.name.as_bytes(), rank: of }, [data])]);
        }
        None => reply(cx, waiter, status::NOT_FOUND),
    }
}

/// Sends data of ranks: a client takes in that of each.
pub(super) fn send_data<const N: usize>(cx: &mut Cx<'_>, waiter: Waiter, ranks: &[(Proc<'_>, [&[u8]; N])]) {
    let mut out = Writer::new(waiter.is_described);
    out.status(status::SUCCESS);
    for (of, parts) in ranks {
        let mut data = out.another();
        data.one_proc(*of);
        parts.iter().for_each(|part| _ = data.raw(part));
        out.byte_object(&data.into_bytes());
    }
    send(cx, waiter, out);
}
