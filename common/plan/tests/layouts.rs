//! Layouts that Open MPI's prterun has made, and ours for the same words.
//!
//! The file has what prterun says about three simulated hosts: for each rank its host, its local rank and its cores. `RLAUNCH_LAYOUTS`
//! names another such file. Where the words leave the choice to the launcher, prterun's own choice is passed to ours: the defaults differ.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]
#![allow(clippy::disallowed_methods, reason = "reads the file of layouts")]

use rlaunch_base::cpu_set::{CpuSet, numbers};
use rlaunch_plan::bind::{self, Bind, BindTo, CpuList};
use rlaunch_plan::hostlist::{Entry, Host};
use rlaunch_plan::place::map_by::{MapBy, Order};
use rlaunch_plan::place::{AppRequest, Here, Layout, Placement, RankBy, Request, place, rankfile};
use rlaunch_plan::topology::{Facts, Level, Topology};
use serde_json::Value;

/// Their local ranks count in another order than their ranks, although nothing maps them so.
const OUT_OF_ORDER: [&str; 2] = ["bind-package", "bind-numa"];

fn layouts() -> Value {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/layouts.json");
    let path = std::env::var("RLAUNCH_LAYOUTS").unwrap_or_else(|_| own.into());
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn topology(name: &str) -> Topology {
    match name {
        // Two packages of four cores; the second thread of core `n` is CPU `n + 8`.
        "2s4c2t" => {
            let core = |n: u32| [n, n + 8].into_iter().collect::<CpuSet>();
            let packages = [0..4, 4..8].map(|cores| CpuSet::union(&cores.map(core).collect::<Vec<_>>())).to_vec();
            let online: CpuSet = (0..16).collect();
            let cores = (0..8).map(core).collect();
            Topology::new(&Facts { allowed: online.clone(), online, packages, cores, ..Facts::default() })
        }
        "1s8l3x8" => {
            let group = |n: u32| (n * 8..n * 8 + 8).collect::<CpuSet>();
            let online: CpuSet = (0..64).collect();
            let l3_groups = (0..8).map(group).collect();
            Topology::new(&Facts { allowed: online.clone(), online, l3_groups, ..Facts::default() })
        }
        other => panic!("{other}"),
    }
}

/// The words of a layout.
#[derive(Default)]
struct Words {
    apps: Vec<Option<u32>>,
    map: Option<String>,
    rank: Option<String>,
    to: Option<String>,
    hosts: Option<String>,
}

impl Words {
    fn of(layout: &Value) -> Self {
        let mut words = Self { apps: vec![None], ..Self::default() };
        let mut args = layout["args"].as_array().unwrap().iter().map(text);
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap().to_string();
            match arg {
                "-n" => *words.apps.last_mut().unwrap() = Some(value().parse().unwrap()),
                "--map-by" => words.map = Some(value()),
                "--rank-by" => words.rank = Some(value()),
                "--bind-to" => words.to = Some(value()),
                "--host" => words.hosts = Some(value()),
                ":" => words.apps.push(None),
                _ => {}
            }
        }
        words
    }
}

fn entry(name: &str, slots: u32) -> Entry {
    Entry { slots: Some(slots), ..Entry::plain(Host::named(name)) }
}

/// The hosts of a layout: the simulator's letters are A, B, D.
fn hosts(layout: &Value, words: &Words) -> Vec<Entry> {
    if let Some(list) = &words.hosts {
        let one = |word: &str| word.split_once(':').map(|(name, slots)| entry(name, slots.parse().unwrap())).unwrap();
        return list.split(',').map(one).collect();
    }
    let counts = text(&layout["nodes"]).split(',').map(|n| n.parse::<u32>().unwrap());
    let slots: Vec<u32> = text(&layout["slots"]).split(',').map(|n| n.parse().unwrap()).collect();
    let groups = counts.zip(["A", "B", "D"]).enumerate();
    let of = |(at, (count, letter)): (usize, (u32, &str))| {
        let slots = slots.get(at).or(slots.last()).copied().unwrap();
        (0..count).map(|n| entry(&format!("node{letter}{n}"), slots)).collect::<Vec<_>>()
    };
    groups.flat_map(of).collect()
}

fn level(word: &str) -> Option<Level> {
    let word = word.split(':').next().unwrap().to_ascii_lowercase();
    let word = if word == "l3cache" { "l3" } else { word.as_str() };
    Level::ALL.into_iter().find(|level| level.word() == word)
}

fn rank_by(word: &str) -> RankBy {
    match word {
        "slot" => RankBy::Slot,
        "node" => RankBy::Node,
        "fill" => RankBy::Fill,
        "span" => RankBy::Span,
        other => panic!("{other}"),
    }
}

/// Places and binds the ranks of a layout: host, local rank and CPUs of each; an error in words.
fn ours(all: &Value, layout: &Value) -> Result<Vec<(String, u32, Option<CpuSet>)>, String> {
    let (words, policy) = (Words::of(layout), &layout["policy"]);
    let policy_word = |name: &str| text(&policy[name]).split(':').next().unwrap().to_string();
    let topology = topology(text(&layout["topology"]));
    let map = match (&words.map, &words.to) {
        (Some(map), _) => MapBy::parse(map).map_err(|error| error.to_string())?,
        (None, Some(_)) => MapBy::default(),
        (None, None) => match policy_word("map").as_str() {
            "" => MapBy::default(),
            map => MapBy::parse(map.trim_start_matches("BY")).unwrap(),
        },
    };
    let to = match words.to.clone().unwrap_or_else(|| policy_word("bind")).to_ascii_lowercase().as_str() {
        "none" => BindTo::None,
        "" => BindTo::Share,
        word => BindTo::Unit(level(word).unwrap()),
    };
    let mut bind = Bind { to, spread: map.spread(), cores: map.cores, threads: map.threads, ..Bind::default() };
    let file = |name: &str| text(&all["files"][name]).to_string();
    let (mut entries, mut cores) = (hosts(layout, &words), Vec::new());
    let mut space = Layout { span: map.span, ..Layout::default() };
    let (mut ppn, mut counted) = (None, false);
    match &map.order {
        Order::EachHost(each) => ppn = Some(*each),
        Order::Each(each, level) => {
            counted = true;
            entries.iter_mut().for_each(|entry| entry.slots = Some(each * topology.count(*level)));
        }
        Order::Sequence(Some(name)) => {
            let list = rankfile::sequence(&file(name)).unwrap();
            space.listed = Some(list.iter().map(|name| Host::named(name)).collect());
        }
        Order::Rankfile(name) => {
            let (list, own): (Vec<String>, Vec<CpuList>) = rankfile::rankfile(&file(name)).unwrap().into_iter().unzip();
            space.listed = Some(list.iter().map(|name| Host::named(name)).collect());
            cores = own;
        }
        Order::Cores(list) => bind.to = BindTo::Lists(vec![CpuList::Cores(list.clone())]),
        Order::Unit(level) => space.units_here = topology.count(*level),
        Order::Default | Order::Slot | Order::Node | Order::Sequence(None) => {}
    }
    let app = |n: &Option<u32>| AppRequest {
        n: *n,
        ppn,
        counted,
        slots_per_rank: map.cores.unwrap_or(1),
        ..AppRequest::default()
    };
    let mut apps: Vec<AppRequest> = words.apps.iter().map(app).collect();
    apps[0].hosts = entries;
    let rank_by = words.rank.as_deref().map(rank_by);
    let map_by = map.by();
    let here = Here { name: "launcher".into(), cpus: 2 };
    let (nnodes, min_hosts) = (None, None);
    let (strict, carries_all, keeps_hosts, layout) = (false, false, false, space);
    let request = Request { apps, here, carries_all, map_by, rank_by, layout, nnodes, min_hosts, strict, keeps_hosts };
    let placement = place(&request).map_err(|error| error.to_string())?;
    bound(&placement, &bind, &cores, &topology)
}

/// Binds the ranks of each host, as its agent does.
fn bound(
    placement: &Placement,
    bind: &Bind,
    cores: &[CpuList],
    topology: &Topology,
) -> Result<Vec<(String, u32, Option<CpuSet>)>, String> {
    let ranks = placement.ranks.iter().map(|placed| {
        let node = &placement.nodes[placed.node.index()];
        let own: Vec<CpuList> =
            placement.ranks_of(placed.node).filter_map(|rank| cores.get(rank.index()).cloned()).collect();
        let bind = if own.is_empty() { bind.clone() } else { Bind { to: BindTo::Lists(own), ..bind.clone() } };
        let host = bind::Host { topology, ranks: node.ranks, has_quota: false, near: &[] };
        let mask =
            bind.ranks_of(host).map_err(|error| error.to_string())?.masks.get(placed.local_rank.index()).cloned();
        Ok((node.host.name.clone(), placed.local_rank.get(), mask))
    });
    ranks.collect()
}

/// `package[0][core:L0-3]`, `package[1][hwt:L8-15]`; `None`: not bound.
fn mask(binding: &str, topology: &Topology) -> Option<CpuSet> {
    let (level, list) = match (binding.split_once("core:L"), binding.split_once("hwt:L")) {
        (Some((_, list)), _) => (Level::Core, list),
        (None, Some((_, list))) => (Level::Hwthread, list),
        (None, None) => return None,
    };
    let picked = numbers(list.trim_end_matches(']')).unwrap().into_iter().map(|n| &topology.all(level)[n as usize]);
    Some(CpuSet::union(picked))
}

#[test]
fn layouts_are_those_of_prterun() {
    let all = layouts();
    let (mut compared, mut wrong) = (0, Vec::new());
    for layout in all["layouts"].as_array().unwrap() {
        let (name, ranks) = (text(&layout["name"]), layout["ranks"].as_array().unwrap());
        let ours = ours(&all, layout);
        if ranks.is_empty() || OUT_OF_ORDER.contains(&name) {
            println!("{name}: {}", ours.map_or_else(|error| error, |ranks| format!("{} ranks", ranks.len())));
            continue;
        }
        let topology = topology(text(&layout["topology"]));
        let reference = |rank: &Value| {
            let local = u32::try_from(rank["local"].as_u64().unwrap()).unwrap();
            (text(&rank["node"]).to_string(), local, mask(text(&rank["binding"]), &topology))
        };
        let expected: Vec<_> = ranks.iter().map(reference).collect();
        compared += 1;
        if ours.as_ref() != Ok(&expected) {
            wrong.push(format!("{name}\n  ours    {ours:?}\n  prterun {expected:?}\n"));
        }
    }
    println!("{compared} layouts compared");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.concat());
    assert!(compared > 0);
}

#[test]
fn layouts_that_prterun_refuses_have_a_placement_or_one_error() {
    let all = layouts();
    let of = |name: &str| {
        let found = all["layouts"].as_array().unwrap().iter().find(|layout| text(&layout["name"]) == name)?;
        Some(ours(&all, found).map(|ranks| ranks.len()))
    };
    // Another file need not have these.
    for (name, expected) in [
        ("map-hwthread", Ok(18)),
        ("bind-hwthread", Ok(4)),
        ("too-many-16-of-12", Ok(16)),
        ("oversubscribe-20-of-16cores", Ok(10)),
        ("hetero-2-4-1-node", Ok(7)),
        ("map-node-rank-fill", Err("--rank-by fill and span number the units of hosts, and --map-by names none")),
        ("map-slot-rank-span", Err("--rank-by fill and span number the units of hosts, and --map-by names none")),
        ("ppr-4-node-n20", Err("-n 20 does not fit: 4 ranks on each of 3 hosts are 12")),
        ("pe9-too-many", Err("1 rank with 9 cores each does not fit: 8 may be used")),
    ] {
        if let Some(found) = of(name) {
            assert_eq!(found, expected.map_err(ToString::to_string), "{name}");
        }
    }
}
