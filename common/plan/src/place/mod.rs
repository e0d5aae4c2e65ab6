//! Which rank runs where: from hosts, slots and options to a node and a local rank for each rank.
//!
//! Two questions, answered one after the other. *Mapping* says how many ranks of a program each host gets (`--map-by`,
//! `--ppn`, `--nnodes`, slots); *ranking* numbers them (`--rank-by`). Ranks of one program are always consecutive.
//!
//! Units below a host matter here only by their number: an agent finds the unit of each of its ranks from the local rank, which is the
//! order of mapping (`bind`).

mod fewer_hosts;
mod free_slots;
mod host_slots;
pub mod map_by;
mod mapping;
mod new_ranks;
mod place_error;
mod processes;
pub mod rankfile;
mod ranking;
#[cfg(test)]
mod tests;
mod worlds;

pub use fewer_hosts::Share;
pub use new_ranks::NewRanks;
pub use place_error::PlaceError;
pub use processes::Processes;
pub use worlds::{World, Worlds};

use crate::hostlist::{Chips, Entry, Host};
use crate::topology::Level;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use host_slots::Hosts;
use rlaunch_base::by_rank::ByRank;
use rlaunch_base::id::{AppIndex, LocalRank, NodeId};
use rlaunch_base::os_bytes::OsBytes;

/// More ranks than one machine has process ids for are a typing error.
pub const MOST_RANKS: u32 = 1 << 20;

/// `--map-by`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum By {
    /// Fill one host after the other, each up to its slots.
    #[default]
    Slot,
    /// A rank on each host in turn.
    Node,
    /// Fill one host after the other; on a host a rank on each unit in turn.
    Unit(Level),
}

/// `--rank-by`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RankBy {
    /// Host by host, in the order of mapping.
    Slot,
    /// A number for each host in turn.
    Node,
    /// Unit by unit.
    Fill,
    /// A number for each unit of all hosts in turn.
    Span,
}

/// The parts of `--map-by` beside the order of hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// `SPAN`: units of all hosts take turns.
    pub span: bool,
    /// The units of this host.
    pub units_here: u32,
    /// The units of other hosts; one that is missing has as many as this host.
    pub units: BTreeMap<Host, u32>,
    /// The host of each rank, where a file names it.
    pub listed: Option<Vec<Host>>,
}

/// `--nnodes MIN[:MAX]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nodes {
    /// Fewer are refused.
    pub min: u32,
    /// More are not used.
    pub max: u32,
}

/// The request for a placement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The programs, in their order.
    pub apps: Vec<AppRequest>,
    /// The host of the launcher.
    pub here: Here,
    /// Whether the launcher's host gets its agent as the others do.
    pub carries_all: bool,
    /// `--map-by`.
    pub map_by: By,
    /// `--rank-by`; `None`: as mapped.
    pub rank_by: Option<RankBy>,
    /// The other parts of `--map-by`.
    pub layout: Layout,
    /// `--nnodes`.
    pub nnodes: Option<Nodes>,
    /// `--min-hosts`.
    pub min_hosts: Option<u32>,
    /// `--strict`.
    pub strict: bool,
    /// Hosts without ranks are hosts of the job too: the program that leads it starts workers there later (`--lead`).
    pub keeps_hosts: bool,
}

/// A program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AppRequest {
    /// `-n`.
    pub n: Option<u32>,
    /// Ranks of it on each host.
    pub ppn: Option<u32>,
    /// The slots of each host, which all say them, are that: what there is of something was counted on each.
    pub counted: bool,
    /// Slots that each rank takes, where a host was given with slots (`-c`, `PE=N`); 0 or 1: one.
    pub slots_per_rank: u32,
    /// Its own `--map-by`; `None`: that of the job.
    pub map_by: Option<By>,
    /// Its own hosts; empty: those of the other programs, or this machine.
    pub hosts: Vec<Entry>,
    /// The program before it on whose slots it runs (`--share`).
    pub share: Option<AppIndex>,
}

/// The launcher's machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Here {
    /// Its name.
    pub name: String,
    /// The processors that we may use; 0: not known.
    pub cpus: u32,
}

impl Here {
    /// Whether a host is this machine. A host with a user or a port is reached through its sshd, even if it is this machine.
    #[must_use]
    pub fn is(&self, host: &Host) -> bool {
        let Host { name, user: None, port: None } = host else { return false };
        let same = |own: &str| !own.is_empty() && own.eq_ignore_ascii_case(name);
        let short = |name: &str| name.split_once('.').map_or(String::new(), |(first, _)| first.into());
        let is_address = name.contains(':') || name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        same("localhost")
            || same("::1")
            || same("127.0.0.1")
            || same(&self.name)
            // One of the two with its domain, the other without.
            || (!is_address && same(&short(&self.name)))
            || self.guessed(host).is_some()
    }

    /// The host's name, where that is this machine's with a domain of which this machine does not know whether it is its own.
    fn guessed<'a>(&self, host: &'a Host) -> Option<&'a str> {
        let Host { name, user: None, port: None } = host else { return None };
        let is_address = name.contains(':') || name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let (first, _) = name.split_once('.').filter(|_| !is_address)?;
        (!first.is_empty() && first.eq_ignore_ascii_case(&self.name)).then_some(name)
    }
}

/// The place of every rank of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The hosts that have ranks, by their `NodeId`, in the order in which they were given.
    pub nodes: Vec<Node>,
    /// The ranks, in their order.
    pub ranks: ByRank<RankPlacement>,
    /// Notes for the user before the job starts.
    pub notes: Vec<Note>,
    /// Which processes play the ranks.
    pub processes: Processes,
    /// The order of the hosts that have ranks; empty: that of `nodes`.
    pub order: Vec<NodeId>,
    /// Which programs form worlds of their own.
    pub worlds: Worlds,
}

/// A host of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Which, by the name that it was given.
    pub host: Host,
    /// Whether it is this machine: no connection is needed to get there.
    pub local: bool,
    /// The ranks that it takes before it is oversubscribed.
    pub slots: u32,
    /// The ranks that it has.
    pub ranks: u32,
    /// Its TPU chips, where a hostfile has them.
    pub chips: Option<Chips>,
}

impl Node {
    /// Whether nothing is known of it yet: its place is for a host that is discovered later (`--discover`).
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.host.name.is_empty()
    }
}

/// The place of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankPlacement {
    /// Its host.
    pub node: NodeId,
    /// Its rank among those of the host.
    pub local_rank: LocalRank,
    /// Its program.
    pub app: AppIndex,
}

/// A note for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// Nothing said how many ranks there are: one of this program.
    OneRank(AppIndex),
    /// The same program has `-n` and this number among its own arguments.
    PassedOn(AppIndex, OsBytes),
    /// Neither the user nor the scheduler has named a number of ranks: one runs on each host.
    OnePerHost {
        /// The scheduler's job, in words.
        job: String,
        /// The number of hosts.
        hosts: u32,
        /// The number of tasks of the job, whose hosts are not known.
        tasks: Option<u32>,
    },
    /// A scheduler's job is named, and its hosts are not: ranks run here, outside of it.
    NoHosts {
        /// The variable that names the job, with its value.
        set: String,
        /// The variable that should have the hosts.
        lacks: String,
    },
    /// The user has named more slots of a host than the scheduler gives.
    FewerSlots {
        /// The first such host.
        host: String,
        /// The slots that the user has named.
        named: u32,
        /// The slots that the scheduler gives.
        given: u32,
        /// The scheduler's job, in words.
        job: String,
    },
    /// The first run of the command of `--discover` gave no list, for this reason. The named hosts are used.
    Undiscovered(String),
    /// Other jobs of rlaunch have slots of the allocation, and the rest is not enough.
    Beside {
        /// Slots that they have.
        taken: u32,
        /// The scheduler's job, in words.
        job: String,
    },
    /// Another launcher places its ranks in the same allocation for long: the slots that it takes are not known.
    NoTurn {
        /// The scheduler's job, in words.
        job: String,
    },
    /// Settings of a file that another launcher reads for this program.
    Unread {
        /// The file.
        file: String,
        /// Their names.
        settings: String,
    },
    /// Named hosts without ranks, which are no hosts of the job: their number.
    Unused(u32),
    /// A host has more ranks than slots.
    Oversubscribed {
        /// The first such host.
        host: Host,
        /// Its ranks.
        ranks: u32,
        /// Its slots.
        slots: u32,
        /// No host was asked for: its slots are its processors.
        processors: bool,
        /// Further such hosts.
        others: u32,
    },
}

impl Node {
    /// Another host than the launcher's with so many ranks, and slots for them.
    #[must_use]
    pub const fn of(host: Host, ranks: u32) -> Self {
        Self { host, local: false, slots: ranks, ranks, chips: None }
    }

    const fn add_rank(&mut self) {
        self.ranks = self.ranks.saturating_add(1);
    }
}

impl Placement {
    /// All ranks on one host, which is this one: programs with so many ranks each.
    #[must_use]
    pub fn here(name: &str, apps: impl IntoIterator<Item = u32>) -> Self {
        let apps = apps.into_iter().zip((0..).map(AppIndex::new));
        let of_app = apps.flat_map(|(procs, app)| (0..procs).map(move |_| app));
        let placed = |(app, n)| RankPlacement { node: NodeId::new(0), local_rank: LocalRank::new(n), app };
        let placements: Vec<RankPlacement> = of_app.zip(0..).map(placed).collect();
        let ranks = u32::try_from(placements.len()).unwrap_or(u32::MAX);
        Self {
            nodes: vec![Node { local: true, ..Node::of(Host::named(name), ranks) }],
            processes: Processes::of_ranks(placements.len()),
            ranks: placements.into(),
            notes: Vec::new(),
            order: Vec::new(),
            worlds: Worlds::default(),
        }
    }

    /// The TPU slice of a host, where a hostfile or the host itself names it.
    #[must_use]
    pub fn slice(&self, node: NodeId) -> Option<&str> {
        let chips = self.nodes.get(node.index())?.chips.as_ref()?;
        Some(chips.slice.as_str()).filter(|slice| !slice.is_empty())
    }

    /// The only host is this machine.
    #[must_use]
    pub fn is_here(&self) -> bool {
        matches!(self.nodes.as_slice(), [node] if node.local)
    }

    /// The ranks of a program.
    #[must_use]
    pub fn procs(&self, app: AppIndex) -> u32 {
        let own = self.ranks.iter().filter(|placed| placed.app == app).count();
        u32::try_from(own).unwrap_or(u32::MAX)
    }

    /// The first host that is not this machine.
    #[must_use]
    pub fn remote(&self) -> Option<&Host> {
        self.nodes.iter().find(|node| !node.local).map(|node| &node.host)
    }
}

/// Places every rank.
///
/// # Errors
/// The request contradicts itself, or does not fit.
pub fn place(request: &Request) -> Result<Placement, PlaceError> {
    let mut hosts = Hosts::of(request)?;
    let mut notes = Vec::new();
    let mut placements: Vec<(usize, LocalRank, AppIndex)> = Vec::new();
    let mut listed = request.layout.listed.as_deref();
    for (app, index) in request.apps.iter().zip((0..).map(AppIndex::new)) {
        let rank_by = ranking::of(request, app)?;
        if let Some(base) = app.share {
            let shared = worlds::shared(&placements, base, app, index)?;
            placements.extend(shared);
            continue;
        }
        if let Some(rest) = listed {
            let (own, others) = ranking::listed(app, index, rest)?;
            listed = Some(others);
            placements.extend(
                hosts.take_listed(own, app, &request.here)?.into_iter().map(|(host, rank)| (host, rank, index)),
            );
            continue;
        }
        let counts = mapping::counts(request, &hosts, app, index, &mut notes)?;
        if u64::from(MOST_RANKS) < placements.len() as u64 + counts.iter().map(|(_, n)| u64::from(*n)).sum::<u64>() {
            return Err(PlaceError::TooMany);
        }
        let mapped = hosts.mapped(&counts, &request.layout);
        hosts.take(&counts, app);
        placements.extend(ranking::numbered(&mapped, rank_by).into_iter().map(|(host, rank)| (host, rank, index)));
    }
    let used = hosts.nodes(request.keeps_hosts);
    if let Some(nodes) = request.nnodes.filter(|nodes| used.len() < nodes.min as usize) {
        let ranks = u32::try_from(placements.len()).unwrap_or(u32::MAX);
        return Err(PlaceError::TooFewRanks { wanted: nodes.min, ranks });
    }
    if let Some(wanted) = request.min_hosts.filter(|wanted| used.len() < *wanted as usize) {
        return Err(PlaceError::TooFewUsed { wanted, used: u32::try_from(used.len()).unwrap_or(u32::MAX) });
    }
    let unused = hosts.count().saturating_sub(u32::try_from(used.len()).unwrap_or(u32::MAX));
    notes.extend((unused > 0).then_some(Note::Unused(unused)));
    notes.extend(hosts.oversubscribed());
    if let (true, Some(Note::Oversubscribed { host, ranks, slots, processors, .. })) = (request.strict, notes.last()) {
        let (ranks, slots, processors) = (*ranks, *slots, *processors);
        return Err(PlaceError::Strict { host: host.clone(), ranks, slots, processors });
    }
    let processes = Processes::of_ranks(placements.len());
    let ranks: ByRank<RankPlacement> = number_hosts(&placements, &used).into();
    let mut nodes: Vec<Node> = used.into_iter().map(|(_, node)| node).collect();
    // Ranks that share slots are ranks of the host as well.
    for (placed, (_, _, app)) in ranks.iter().zip(&placements) {
        let is_shared = request.apps.get(app.index()).is_some_and(|app| app.share.is_some());
        nodes.get_mut(placed.node.index()).filter(|_| is_shared).into_iter().for_each(Node::add_rank);
    }
    Ok(Placement { ranks, nodes, notes, processes, order: Vec::new(), worlds: Worlds::default() })
}

/// Numbers the hosts that are used.
fn number_hosts(placements: &[(usize, LocalRank, AppIndex)], used: &[(usize, Node)]) -> Vec<RankPlacement> {
    let nodes: BTreeMap<usize, NodeId> =
        used.iter().zip((0..).map(NodeId::new)).map(|((host, _), node)| (*host, node)).collect();
    let placed = |(host, local_rank, app): &(usize, LocalRank, AppIndex)| {
        Some(RankPlacement { node: *nodes.get(host)?, local_rank: *local_rank, app: *app })
    };
    placements.iter().filter_map(placed).collect()
}
