//! Places where ranks meet: fences, connections and groups, of one world or of several.

use super::super::fences::{Kind, Met, Waiter, bytes_of};
use super::super::remote::Pending;
use super::super::{Broken, Cx, Layout};
use super::worlds::Later;
use super::{ALL_RANKS, Header, Messages, Proc, Writer, reply, status};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::id::Rank;
use rlaunch_base::rank_set::RankSet;
use rlaunch_keyvalue::store::Ask;
use rlaunch_protocol::wire::node_news::MpiWire;
use rlaunch_protocol::wire::pmix::GroupForm;

/// The bit of numbers of groups that have ranks on several hosts, or of several worlds.
const FAR_GROUP: u64 = 1 << 30;
/// Groups whose members are remembered: the end of one beyond them waits for no member that its client does not name.
const MOST_OPEN: usize = 4096;
/// Ranks of several worlds are counted from here: no rank has such a number, so the store of a host waits for no other of its ranks.
const FIRST_COUNTED: u32 = 1 << 24;

/// The ranks of each of several worlds, by its name.
pub(super) type Members = BTreeMap<Vec<u8>, RankSet>;

/// Why ranks meet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Purpose {
    Fence,
    Connect,
    Disconnect,
    Group(Vec<u8>),
    /// The end of a group.
    GroupEnd(Vec<u8>),
}

/// A meeting of ranks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Meeting {
    purpose: Purpose,
    /// All members, if they are of several worlds; else empty.
    members: Members,
}

impl Kind for Meeting {
    const WIRE: MpiWire = MpiWire::Pmix;

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = match &self.purpose {
            Purpose::Fence => b"fence ".to_vec(),
            Purpose::Connect => b"connect ".to_vec(),
            Purpose::Disconnect => b"disconnect ".to_vec(),
            Purpose::Group(name) => [b"group ", name.as_slice()].concat(),
            // A name may begin with "end".
            Purpose::GroupEnd(name) => [b"end of group ", name.as_slice()].concat(),
        };
        for (world, ranks) in &self.members {
            bytes.extend([&b"\0"[..], world, b"\0", &bytes_of(ranks)].concat());
        }
        bytes
    }

    fn has_other_worlds(&self) -> bool {
        !self.members.is_empty()
    }
}

/// Groups that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// How many have begun.
    made: u32,
    /// By name and the ranks of this world: all members, as [`Meeting`] has them.
    open: BTreeMap<(Vec<u8>, RankSet), Members>,
}

impl Groups {
    fn begin(&mut self, name: &[u8], all: &RankSet, members: &Members) {
        self.made = self.made.wrapping_add(1);
        if self.open.len() < MOST_OPEN {
            self.open.insert((name.to_vec(), all.clone()), members.clone());
        }
    }

    fn end(&mut self, name: &[u8], all: &RankSet) {
        self.open.remove(&(name.to_vec(), all.clone()));
    }

    /// The group of this name that has this rank.
    fn of(&self, name: &[u8], rank: Rank) -> Option<(RankSet, Members)> {
        let is_it = |((other, all), _): &(&(Vec<u8>, RankSet), &Members)| other == name && all.contains(rank);
        self.open.iter().find(is_it).map(|((_, all), members)| (all.clone(), members.clone()))
    }
}

impl Messages {
    /// Ranks wait for each other.
    pub(super) fn meet(
        &mut self,
        cx: &mut Cx<'_>,
        rank: Rank,
        waiter: Waiter,
        (purpose, procs): (Purpose, &[Proc<'_>]),
    ) -> Result<(), Broken> {
        let own = cx.layout.name.as_bytes();
        if let Some(other) =
            procs.iter().map(|proc| proc.nspace).find(|world| *world != own && !self.worlds.knows(world))
        {
            let procs = procs.iter().map(|proc| (proc.nspace.to_vec(), proc.rank)).collect();
            self.worlds.learn(cx, other, Later::Meet { rank, waiter, purpose, procs });
            return Ok(());
        }
        let Some(mut members) = self.members(cx.layout, procs) else {
            reply(cx, waiter, status::BAD_PARAM);
            return Ok(());
        };
        let Some(all) = members.get(own).filter(|all| all.contains(rank)).cloned() else {
            reply(cx, waiter, status::BAD_PARAM);
            return Ok(());
        };
        if members.len() == 1 {
            members.clear();
        }
        self.arrive(cx, (Meeting { purpose, members }, all), rank, waiter)
    }

    fn arrive(
        &mut self,
        cx: &mut Cx<'_>,
        meeting: (Meeting, RankSet),
        rank: Rank,
        waiter: Waiter,
    ) -> Result<(), Broken> {
        if let Some(met) = self.fences.arrive(cx, meeting, rank, waiter)? {
            self.arrived(cx, met);
        }
        Ok(())
    }

    /// A rank waits for the other members of a group, which ends. The library of version 4.2 names no members: they are those that have
    /// made the group. Without such a group, the rank waits for none.
    pub(super) fn end_group(
        &mut self,
        cx: &mut Cx<'_>,
        rank: Rank,
        waiter: Waiter,
        (name, members): (&[u8], &[Proc<'_>]),
    ) -> Result<(), Broken> {
        let purpose = Purpose::GroupEnd(name.to_vec());
        if !members.is_empty() {
            self.meet(cx, rank, waiter, (purpose, members))?;
        } else if let Some((all, members)) = self.groups.of(name, rank) {
            self.arrive(cx, (Meeting { purpose, members }, all), rank, waiter)?;
        } else {
            reply(cx, waiter, status::SUCCESS);
        }
        self.excuse_finalized(cx);
        Ok(())
    }

    /// The end of a group waits for no member of this host that has finalized.
    pub(super) fn excuse_finalized(&mut self, cx: &mut Cx<'_>) {
        let is_end = |meeting: &Meeting| matches!(meeting.purpose, Purpose::GroupEnd(_));
        if !self.fences.has(is_end) {
            return;
        }
        let finalized = self.ranks.iter().filter(|(_, own)| own.inside == 0).map(|(rank, _)| *rank).collect();
        let met = self.fences.excuse(cx.layout, &finalized, is_end);
        met.into_iter().for_each(|met| self.arrived(cx, met));
    }

    /// All ranks of this host have come.
    fn arrived(&mut self, cx: &mut Cx<'_>, met: Met<Meeting>) {
        if met.count == 0 {
            self.release(cx, &met);
        } else if met.kind.has_other_worlds() {
            self.data.send(cx);
            self.data.open_to_worlds(cx, &met.all);
            fence_of_worlds(cx, met);
        } else {
            self.data.send(cx);
            cx.fence(met, Pending::Meeting);
        }
    }

    /// The ranks of some processes, by world; `None`: there are ranks that do not exist.
    fn members(&self, layout: &Layout, procs: &[Proc<'_>]) -> Option<Members> {
        let mut members = Members::new();
        for Proc { nspace, rank } in procs {
            let of = if *nspace == layout.name.as_bytes() { layout } else { self.worlds.layout(nspace)? };
            let ranks = members.entry(nspace.to_vec()).or_default();
            match *rank {
                ALL_RANKS => ranks.extend(&of.world()),
                rank => ranks.insert(Rank::new(rank)),
            }
            if !of.knows(ranks) {
                return None;
            }
        }
        Some(members)
    }

    /// All have come.
    pub(crate) fn release(&mut self, cx: &mut Cx<'_>, met: &Met<Meeting>) {
        cx.init_wait.over(MpiWire::Pmix, &met.all);
        self.data.on_meeting(cx.layout, &met.all);
        match &met.kind.purpose {
            Purpose::Group(name) => self.groups.begin(name, &met.all, &met.kind.members),
            Purpose::GroupEnd(name) => self.groups.end(name, &met.all),
            Purpose::Fence | Purpose::Connect | Purpose::Disconnect => {}
        }
        let kinds: BTreeSet<_> = met.waiters.iter().map(|waiter| (waiter.is_described, waiter.group_form)).collect();
        for kind in kinds {
            let waiters = met.waiters.iter().filter(|waiter| (waiter.is_described, waiter.group_form) == kind);
            let bytes = self.words(cx.layout, met, kind).into_bytes();
            waiters.for_each(|Waiter { client, tag, .. }| cx.write(*client, Header::frame(client.get(), *tag, &bytes)));
        }
    }

    /// The answer to all that have met.
    fn words(&mut self, layout: &Layout, met: &Met<Meeting>, (is_described, form): (bool, GroupForm)) -> Writer {
        let Meeting { purpose, members } = &met.kind;
        let own = || BTreeMap::from([(layout.name.as_bytes().to_vec(), met.all.clone())]);
        let members = if members.is_empty() { &own() } else { members };
        let mut out = Writer::new(is_described);
        out.status(status::SUCCESS);
        match purpose {
            Purpose::Fence | Purpose::Disconnect | Purpose::GroupEnd(_) => {}
            Purpose::Connect => {
                for world in members.keys() {
                    let mut of = out.another();
                    of.string(world);
                    match self.worlds.layout(world) {
                        Some(other) => of.raw(&super::job_data::write(other, is_described)),
                        None => of.raw(self.job_data(layout, is_described)),
                    };
                    out.byte_object(&of.into_bytes());
                }
            }
            Purpose::Group(_) => {
                // All hosts have to find the same number by themselves, and a number of this host must not be the same.
                let far = FAR_GROUP | met.hash() & (FAR_GROUP - 1);
                let number = if met.count > 0 { far } else { u64::from(self.groups.made & 0x3fff_ffff) };
                let of = |ranks: &RankSet| ranks.ranges().flat_map(|(first, last)| first..=last).collect::<Vec<u32>>();
                let procs: Vec<Proc<'_>> = members
                    .iter()
                    .flat_map(|(world, ranks)| of(ranks).into_iter().map(|rank| Proc { nspace: world, rank }))
                    .collect();
                out.group(form, procs.into_iter(), number);
            }
        }
        out
    }
}

/// Waits until the hosts of all these ranks, which are of several worlds, have come.
fn fence_of_worlds(cx: &mut Cx<'_>, met: Met<Meeting>) {
    let (mut all, mut own) = (RankSet::new(), RankSet::new());
    let mut next = FIRST_COUNTED;
    for (world, ranks) in &met.kind.members {
        let is_own = *world == cx.layout.name.as_bytes();
        for rank in ranks.ranges().flat_map(|(first, last)| first..=last) {
            all.insert(Rank::new(next));
            if is_own && cx.layout.is_here(rank) {
                own.insert(Rank::new(next));
            }
            next = next.saturating_add(1);
        }
    }
    let name = met.name();
    cx.ask_for_all(Ask::Fence { name: name.as_bytes(), all: &all, who: &own, within: None }, Pending::Meeting(met));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_meetings_have_bytes_of_their_own() {
        let name = |text: &str| text.as_bytes().to_vec();
        let purposes = ["a", "end a", "of group a"].into_iter();
        let purposes = purposes.flat_map(|text| [Purpose::Group(name(text)), Purpose::GroupEnd(name(text))]);
        let meetings: Vec<Meeting> = [Purpose::Fence, Purpose::Connect, Purpose::Disconnect]
            .into_iter()
            .chain(purposes)
            .map(|purpose| Meeting { purpose, members: Members::new() })
            .collect();
        let different: BTreeSet<Vec<u8>> = meetings.iter().map(Kind::bytes).collect();
        assert_eq!(different.len(), meetings.len());
    }
}
