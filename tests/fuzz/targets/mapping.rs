//! `--map-by` with all its modifiers, rankfiles and lists of cores: words that are written back as they were read, ranks that are all
//! placed where slots and units allow, and CPUs of each rank that it may use.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_base::cpu_set::{self, CpuSet};
use rlaunch_base::id::NodeId;
use rlaunch_plan::bind::{Bind, BindTo, CpuList, Host as BoundHost};
use rlaunch_plan::hostlist::{Entry, Host};
use rlaunch_plan::place::map_by::{MapBy, Order};
use rlaunch_plan::place::{
    AppRequest, By, Here, Layout, Note, PlaceError, Placement, RankBy, Request, place, rankfile,
};
use rlaunch_plan::topology::{Facts, Level, Topology};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Ranks of a host that are bound: with more of them one input would take long.
const MOST: u32 = 64;

fn for_a_terminal(error: &impl Display) {
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control), "a terminal must not see {text:?}");
}

fn numbers(list: &[u32]) -> String {
    list.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The words of a mapping.
fn words(map: &MapBy) -> String {
    let file = |name: &str, path: &str| (name.to_owned(), format!(":FILE={path}"));
    let (order, file) = match &map.order {
        Order::Default | Order::Slot => ("slot".to_owned(), String::new()),
        Order::Node => ("node".to_owned(), String::new()),
        Order::Unit(level) => (level.word().to_owned(), String::new()),
        Order::EachHost(each) => (format!("ppr:{each}:node"), String::new()),
        Order::Each(each, level) => (format!("ppr:{each}:{}", level.word()), String::new()),
        Order::Sequence(None) => ("seq".to_owned(), String::new()),
        Order::Sequence(Some(path)) => file("seq", path),
        Order::Rankfile(path) => file("rankfile", path),
        Order::Cores(cores) => (format!("pe-list={}", numbers(cores)), String::new()),
    };
    let cores = map.cores.map(|cores| format!(":PE={cores}")).unwrap_or_default();
    let (span, threads) = (if map.span { ":SPAN" } else { "" }, if map.threads { ":HWTCPUS" } else { "" });
    format!("{order}{cores}{span}{threads}{file}")
}

/// Bytes that choose a site: hosts, ranks, and the processors of each host.
struct Site<'a>(&'a [u8]);

impl Site<'_> {
    fn byte(&mut self) -> u32 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        u32::from(*first)
    }

    /// Topology with each CPU's package, NUMA node, L3 group, and other thread of its core, and whether the CPU may be used.
    fn topology(&mut self) -> Topology {
        let mut groups: [Vec<Vec<u32>>; 5] = [vec![vec![]; 2], vec![vec![]; 2], vec![vec![]; 4], vec![], vec![]];
        let (mut allowed, mut online) = (vec![], vec![]);
        for cpu in 0..self.byte() % 17 {
            let byte = self.byte();
            let at = [byte & 1, byte >> 1 & 1, byte >> 2 & 3];
            at.iter().zip(&mut groups).for_each(|(at, group)| group[*at as usize].push(cpu));
            match groups[3].last_mut() {
                Some(core) if byte & 16 != 0 => core.push(cpu),
                Some(_) | None => groups[3].push(vec![cpu]),
            }
            online.extend((byte & 32 == 0).then_some(cpu));
            allowed.extend((byte & 64 == 0).then_some(cpu));
        }
        Topology::new(&Facts::of([allowed, online, Vec::new()], groups))
    }

    fn hosts(&mut self) -> Vec<Entry> {
        let entry = |n: u32, byte: u32| Entry {
            slots: (byte & 7 != 0).then_some(byte & 7),
            max_slots: (byte & 128 != 0).then_some(byte >> 4 & 7),
            ..Entry::plain(Host::named(&format!("n{n}")))
        };
        (0..self.byte() % 4).map(|n| entry(n, self.byte())).collect()
    }
}

/// Request as the launcher makes it from the options.
fn request(map: &MapBy, site: &mut Site<'_>, topology: &Topology) -> Request {
    let mut hosts = site.hosts();
    let mut layout = Layout { span: map.span, ..Layout::default() };
    // A host has a unit of each kind.
    layout.units_here = map.counts().map_or(0, |level| topology.count(level).max(1));
    let (mut ppn, mut counted, mut slots_per_rank) = (None, false, map.cores.unwrap_or(1));
    match &map.order {
        Order::EachHost(each) => ppn = Some(*each),
        Order::Each(each, _) => {
            counted = true;
            let slots = each.saturating_mul(layout.units_here);
            hosts.iter_mut().for_each(|entry| entry.slots = Some(slots));
            ppn = hosts.is_empty().then_some(slots);
            counted &= !hosts.is_empty();
            slots_per_rank = 1;
        }
        Order::Default
        | Order::Slot
        | Order::Node
        | Order::Unit(_)
        | Order::Sequence(_)
        | Order::Rankfile(_)
        | Order::Cores(_) => {}
    }
    let ways = [None, Some(RankBy::Slot), Some(RankBy::Node), Some(RankBy::Fill), Some(RankBy::Span)];
    let (n, choice) = (site.byte() % 40, site.byte());
    Request {
        apps: vec![AppRequest {
            n: (n > 0).then_some(n),
            ppn,
            counted,
            slots_per_rank,
            hosts,
            ..AppRequest::default()
        }],
        here: Here { name: "here".to_owned(), cpus: choice >> 4 },
        carries_all: choice & 8 != 0,
        map_by: map.by(),
        rank_by: ways[(choice & 7) as usize % ways.len()],
        layout,
        nnodes: None,
        min_hosts: None,
        strict: false,
        keeps_hosts: false,
    }
}

/// Every rank has one place, places of a host are counted without gaps, and no host has more ranks than it takes.
fn placed(request: &Request) -> Option<Placement> {
    let placement = match place(request) {
        Ok(placement) => placement,
        Err(error) => {
            for_a_terminal(&error);
            return None;
        }
    };
    let app = &request.apps[0];
    assert!(app.n.is_none_or(|n| placement.ranks.len() == n as usize) && !placement.ranks.is_empty());
    for (node, id) in placement.nodes.iter().zip((0..).map(NodeId::new)) {
        let own = placement.ranks.iter().filter(|placed| placed.node == id).map(|placed| placed.local_rank.get());
        let own: BTreeSet<u32> = own.collect();
        assert!(own.iter().copied().eq(0..node.ranks) && node.ranks > 0);
        let most = app.hosts.iter().find(|entry| entry.host == node.host).and_then(|entry| entry.max_slots);
        assert!(request.layout.listed.is_some() || most.is_none_or(|most| node.ranks <= most));
    }
    let placements: u32 = placement.nodes.iter().map(|node| node.ranks).sum();
    assert_eq!(placements as usize, placement.ranks.len());
    strictly(request, &placement);
    Some(placement)
}

/// More ranks than slots are noted, and refused by `--strict`.
fn strictly(request: &Request, placement: &Placement) {
    let over = placement.nodes.iter().filter(|node| node.ranks > node.slots).count();
    let noted = placement.notes.iter().find_map(|note| match note {
        Note::Oversubscribed { others, .. } => Some(*others as usize + 1),
        Note::OneRank(_)
        | Note::Unused(_)
        | Note::OnePerHost { .. }
        | Note::NoHosts { .. }
        | Note::Undiscovered(_)
        | Note::PassedOn(..)
        | Note::Beside { .. }
        | Note::NoTurn { .. }
        | Note::Unread { .. }
        | Note::FewerSlots { .. } => None,
    });
    assert_eq!(noted.unwrap_or(0), over);
    let strict = place(&Request { strict: true, ..request.clone() });
    assert!(matches!((over, strict), (0, Ok(_)) | (1.., Err(PlaceError::Strict { .. }))));
}

/// All ranks of each host have CPUs that they may use, or none has any.
fn bound(placement: &Placement, bind: &Bind, lists: &[CpuList], topology: &Topology) {
    for (node, id) in placement.nodes.iter().zip((0..).map(NodeId::new)).filter(|(node, _)| node.ranks <= MOST) {
        let own: Vec<CpuList> = placement.ranks_of(id).filter_map(|rank| lists.get(rank.index()).cloned()).collect();
        let bind = if own.is_empty() { bind.clone() } else { Bind { to: BindTo::Lists(own), ..bind.clone() } };
        match bind.ranks_of(BoundHost { topology, ranks: node.ranks, has_quota: false, near: &[] }) {
            Ok(bound) => masks(&bound.masks, &bind, node.ranks, topology),
            Err(error) => for_a_terminal(&error),
        }
    }
}

fn masks(masks: &[CpuSet], bind: &Bind, ranks: u32, topology: &Topology) {
    if masks.is_empty() {
        return;
    }
    assert_eq!(masks.len(), ranks as usize);
    assert!(masks.iter().all(|mask| !mask.is_empty() && mask.without(topology.allowed()).is_empty()));
    let apart = CpuSet::union(masks).len() == masks.iter().map(CpuSet::len).sum::<u32>();
    let unit = if bind.threads { Level::Hwthread } else { Level::Core };
    match (&bind.to, bind.cores) {
        (BindTo::Share, Some(cores)) => {
            assert!(apart && masks.iter().all(|mask| topology.units_in(unit, mask).len() == cores as usize));
        }
        (BindTo::Unit(Level::Core | Level::Hwthread), None) => assert!(apart),
        (BindTo::Share, None) if bind.least_cpus(ranks) != Some(0) => {
            let least = topology.count(Level::Core) / ranks;
            assert!(apart && masks.iter().all(|mask| topology.units_in(Level::Core, mask).len() >= least as usize));
        }
        (BindTo::Share | BindTo::None | BindTo::Unit(_) | BindTo::Lists(_), _) => {}
    }
}

fn map_by(text: &str, site: &[u8]) {
    let map = match MapBy::parse(text) {
        Ok(map) => map,
        Err(error) => return for_a_terminal(&error),
    };
    assert_eq!(MapBy::parse(&words(&map)).as_ref(), Ok(&map), "{}", words(&map));
    let mut site = Site(site);
    let topology = site.topology();
    let request = request(&map, &mut site, &topology);
    let Some(placement) = placed(&request) else { return };
    let to = match (&map.order, site.byte() % 4) {
        (Order::Cores(cores), _) => BindTo::Lists(vec![CpuList::Cores(cores.clone())]),
        (_, 1) => BindTo::None,
        (_, 2) => BindTo::Unit(Level::ALL[site.byte() as usize % Level::ALL.len()]),
        (_, _) => BindTo::Share,
    };
    let bind =
        Bind { to, spread: map.spread(), cores: map.cores, threads: map.threads, task_cpus: None, report: false };
    bound(&placement, &bind, &[], &topology);
}

/// Each rank is on the host that the file names.
fn listed(hosts: &[String], lists: &[CpuList], site: &[u8]) {
    let topology = Site(site).topology();
    let list: Vec<Host> = hosts.iter().map(|name| Host::named(name)).collect();
    let names: BTreeSet<&Host> = list.iter().collect();
    let app = AppRequest { hosts: names.into_iter().cloned().map(Entry::plain).collect(), ..AppRequest::default() };
    let request = Request {
        apps: vec![app],
        here: Here { name: "here".to_owned(), cpus: 2 },
        carries_all: true,
        map_by: By::Slot,
        rank_by: None,
        layout: Layout { listed: Some(list), ..Layout::default() },
        nnodes: None,
        min_hosts: None,
        strict: false,
        keeps_hosts: false,
    };
    let Some(placement) = placed(&request) else { panic!("a file that was read, and no placement") };
    let placements = placement.ranks.iter().map(|placed| &placement.nodes[placed.node.index()].host.name);
    assert!(placements.eq(hosts));
    bound(&placement, &Bind::default(), lists, &topology);
}

fn ranks(text: &str, site: &[u8]) {
    let ranks = match rankfile::rankfile(text) {
        Ok(ranks) => ranks,
        Err(error) => return for_a_terminal(&error),
    };
    let slots = |list: &CpuList| match list {
        CpuList::Cores(cores) => numbers(cores),
        CpuList::OfPackage { package, cores } => format!("{package}:{}", numbers(cores)),
        CpuList::Cpus(_) | CpuList::Next(..) => panic!("a rankfile counts cores"),
    };
    let line = |(rank, (host, list)): (usize, &(String, CpuList))| format!("rank {rank}={host} slot={}\n", slots(list));
    let written: String = ranks.iter().enumerate().map(line).collect();
    assert_eq!(rankfile::rankfile(&written).as_ref(), Ok(&ranks), "{written}");
    let (hosts, lists): (Vec<String>, Vec<CpuList>) = ranks.into_iter().unzip();
    listed(&hosts, &lists, site);
}

fn sequence(text: &str, site: &[u8]) {
    match rankfile::sequence(text) {
        Ok(hosts) => {
            assert_eq!(rankfile::sequence(&hosts.join("\n")).as_ref(), Ok(&hosts));
            listed(&hosts, &[], site);
        }
        Err(error) => for_a_terminal(&error),
    }
}

fn cpus(text: &str) {
    let list = match cpu_set::numbers(text) {
        Ok(list) => list,
        Err(error) => return for_a_terminal(&error),
    };
    let set = CpuSet::parse(text).unwrap_or_default();
    assert_eq!(CpuSet::parse(&set.to_string()).as_ref(), Ok(&set));
    let own: BTreeSet<u32> = list.into_iter().collect();
    assert!(set.iter().eq(own.iter().copied()) && set.len() as usize == own.len());
    assert!(own.iter().all(|cpu| set.contains(*cpu)) && set.without(&set).is_empty() && set.and(&set) == set);
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(2, |b| *b == 0);
    let (text, site) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else { return };
    match kind {
        b'm' => map_by(text, site),
        b'r' => ranks(text, site),
        b's' => sequence(text, site),
        b'c' => cpus(text),
        _ => {}
    }
});
