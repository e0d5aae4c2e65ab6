//! Layout of a world: the hosts of its ranks, as each agent knows them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::{JobId, Rank, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_protocol::wire::codec::{decode, encode};
use rlaunch_protocol::wire::to_node::{HostRanks, MpiWorld, Rendezvous, WORLD_NAMESPACE};

/// Longest value that a client of PMI-1 takes.
const LONGEST_MAPPING: usize = 1000;

/// Whether the name of a host means the host itself. Libraries get its own name: all worlds of the job have to know it by the same.
pub fn is_this_host(name: &[u8]) -> bool {
    name == b"localhost"
}

/// Layout of a world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The name of the world: no two on a host have the same at any time.
    pub name: String,
    /// The hosts, in their order.
    pub hosts: Vec<HostRanks>,
    /// Index of this host among them.
    pub here: usize,
    /// Ranks of each program, which are numbered through them.
    pub apps: Vec<u32>,
    /// A host has more ranks than processors for them.
    pub is_crowded: bool,
    /// Words of the MPI library that has started the world (`Origin`); empty: none has.
    pub origin: OsBytes,
    /// The directory for files of the library on this host; empty: there is none.
    pub session_dir: OsBytes,
}

impl Layout {
    /// The layout of a generation of ranks. A host that has been sent none is the only one.
    #[must_use]
    pub fn new(job: JobId, rendezvous: &Rendezvous, host: &OsBytes, is_crowded: bool) -> Self {
        let name = job.world_name(rendezvous.namespace);
        match &rendezvous.mpi {
            Some(world) => {
                let MpiWorld { apps, mut hosts, origin } = (**world).clone();
                for known in hosts.iter_mut().filter(|known| is_this_host(&known.name)) {
                    known.name = host.clone();
                }
                let here = rendezvous.node_index as usize;
                Self { name, hosts, here, apps, is_crowded, origin, session_dir: OsBytes::default() }
            }
            None => {
                let all = RankSet::world(rendezvous.world_size);
                let hosts = alloc::vec![HostRanks::new(host.clone(), &all)];
                let (apps, origin) = (alloc::vec![rendezvous.world_size], OsBytes::default());
                Self { name, hosts, here: 0, apps, is_crowded, origin, session_dir: OsBytes::default() }
            }
        }
    }

    /// The name of another world of the job.
    #[must_use]
    pub(super) fn name_of_other(&self, world: WorldId) -> String {
        let (job, _) = self.name.rsplit_once('-').unwrap_or((&self.name, ""));
        format!("{job}-{}", WORLD_NAMESPACE.saturating_add(world.get()))
    }

    /// Whether a world of the job may have this name.
    pub(super) fn may_be_of_job(&self, name: &[u8]) -> bool {
        let parts =
            |name: &'_ str| name.rsplit_once('-').map(|(job, number)| (job.len(), number.parse::<u32>().is_ok()));
        let Ok(text) = core::str::from_utf8(name) else { return false };
        let (own, other) = (parts(&self.name), parts(text));
        own.is_some_and(|(len, _)| other == Some((len, true)) && self.name.get(..len) == text.get(..len))
    }

    /// The name of this host.
    pub(super) fn host(&self) -> &[u8] {
        self.hosts.get(self.here).map_or(&[], |host| host.name.as_slice())
    }

    /// Encodes this world, for the machines of other worlds.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { hosts, apps, origin, .. } = self.clone();
        encode(&MpiWorld { apps, hosts, origin })
    }

    /// Another world of the job, as this host sees it.
    pub(super) fn of_other(&self, name: &[u8], bytes: &[u8]) -> Option<Self> {
        let MpiWorld { apps, hosts, origin } = decode(bytes).ok()?;
        let here = hosts.iter().position(|host| host.name.as_slice() == self.host()).unwrap_or(usize::MAX);
        let name = core::str::from_utf8(name).ok()?.into();
        let (is_crowded, session_dir) = (false, OsBytes::default());
        Some(Self { name, hosts, here, apps, is_crowded, origin, session_dir })
    }

    /// The number of all ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        let of = |host: &HostRanks| host.ranks().count();
        u32::try_from(self.hosts.iter().map(of).fold(0, usize::saturating_add)).unwrap_or(u32::MAX)
    }

    /// The host of a rank.
    #[must_use]
    pub fn node_of(&self, rank: u32) -> Option<usize> {
        self.hosts.iter().position(|host| host.has(rank))
    }

    /// Whether a rank runs on this host.
    #[must_use]
    pub fn is_here(&self, rank: u32) -> bool {
        self.hosts.get(self.here).is_some_and(|host| host.has(rank))
    }

    /// The ranks of this host.
    #[must_use]
    pub fn own(&self) -> RankSet {
        let mut own = RankSet::new();
        let ranges = self.hosts.get(self.here).into_iter().flat_map(|host| &host.ranges);
        ranges.for_each(|(first, last)| own.insert_range(*first, *last));
        own
    }

    /// The part of some ranks that runs on this host.
    #[must_use]
    pub fn own_of(&self, ranks: &RankSet) -> RankSet {
        ranks.without(&ranks.without(&self.own()))
    }

    /// The hosts of some ranks, without this one.
    pub(super) fn others_of<'a>(&'a self, ranks: &'a RankSet) -> impl Iterator<Item = usize> + 'a {
        let has = |host: &HostRanks| host.ranks().any(|rank| ranks.contains(Rank::new(rank)));
        let others = (0..).zip(&self.hosts).filter(move |(node, host)| *node != self.here && has(host));
        others.map(|(node, _)| node)
    }

    /// The program of a rank, and its number among those of that.
    #[must_use]
    pub fn app_of(&self, rank: u32) -> (u32, u32) {
        let mut rest = rank;
        for (app, size) in (0..).zip(&self.apps) {
            match rest.checked_sub(*size) {
                Some(after) => rest = after,
                None => return (app, rest),
            }
        }
        (0, rank)
    }

    /// All ranks of some that are there.
    #[must_use]
    pub fn world(&self) -> RankSet {
        RankSet::world(self.size())
    }

    /// Whether a set has ranks that do not exist.
    pub(super) fn knows(&self, ranks: &RankSet) -> bool {
        self.world().covers(ranks)
    }

    /// The distribution of ranks in the words of PMI-1: blocks of first host, number of hosts and ranks of each, repeated to the end.
    /// `None`: it is too long for a client.
    #[must_use]
    pub fn mapping(&self) -> Option<String> {
        let blocks = self.blocks();
        let period = (1..=blocks.len()).find(|period| {
            let (first, _) = blocks.split_at_checked(*period).unwrap_or_default();
            blocks.chunks(*period).all(|chunk| chunk == first)
        })?;
        let text = blocks
            .iter()
            .take(period)
            .fold(String::from("(vector"), |text, (node, count, each)| format!("{text},({node},{count},{each})"));
        Some(text + ")").filter(|text| text.len() <= LONGEST_MAPPING)
    }

    fn blocks(&self) -> Vec<(usize, usize, u32)> {
        let mut blocks: Vec<(usize, usize, u32)> = Vec::new();
        let mut run: Option<(usize, u32)> = None;
        let mut end = |(node, each): (usize, u32)| match blocks.last_mut() {
            Some((first, count, same)) if first.saturating_add(*count) == node && *same == each => {
                *count = count.saturating_add(1)
            }
            Some(_) | None => blocks.push((node, 1, each)),
        };
        for node in (0..self.size()).filter_map(|rank| self.node_of(rank)) {
            run = match run {
                Some((same, each)) if same == node => Some((node, each.saturating_add(1))),
                Some(other) => {
                    end(other);
                    Some((node, 1))
                }
                None => Some((node, 1)),
            };
        }
        run.into_iter().for_each(&mut end);
        blocks
    }
}
