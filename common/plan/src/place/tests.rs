//! The ranks of each host.

use super::*;
use crate::hostlist;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::ToString;
use proptest::prelude::*;
use rlaunch_base::error::Hint as _;

fn hosts(text: &str) -> Vec<Entry> {
    if text.is_empty() {
        return Vec::new();
    }
    let lines = text.replace(';', "\n");
    hostlist::files([("hosts", lines.as_bytes())], &mut hostlist::Alone).unwrap()
}

fn app(n: u32, text: &str) -> AppRequest {
    AppRequest { n: Some(n).filter(|n| *n > 0), hosts: hosts(text), ..AppRequest::default() }
}

fn request(apps: Vec<AppRequest>) -> Request {
    let here = Here { name: "me.cluster".into(), cpus: 2 };
    Request {
        apps,
        here,
        carries_all: false,
        map_by: By::Slot,
        rank_by: None,
        layout: Layout::default(),
        nnodes: None,
        min_hosts: None,
        strict: false,
        keeps_hosts: false,
    }
}

/// The ranks of each host: `a 0 1 | b 2`.
fn shown(request: &Request) -> String {
    let placement = match place(request) {
        Ok(placement) => placement,
        Err(error) => return format!("{error} ({})", error.hint().unwrap_or_default()),
    };
    let of = |(node, index): (&Node, u32)| {
        let own = placement.ranks.iter().zip(0u32..).filter(|(placed, _)| placed.node == NodeId::new(index));
        let ranks: Vec<String> = own.map(|(_, rank)| format!(" {rank}")).collect();
        assert_eq!(ranks.len(), node.ranks as usize);
        format!("{}{}", node.host, ranks.concat())
    };
    placement.nodes.iter().zip(0..).map(of).collect::<Vec<_>>().join(" | ")
}

fn notes(request: &Request) -> Vec<Note> {
    place(request).unwrap().notes
}

#[test]
fn slots_are_filled_one_host_after_the_other() {
    for (n, list, expected) in [
        (3, "a:2;b:2", "a 0 1 | b 2"),
        (2, "a:2;b:2", "a 0 1"),
        (0, "a:2;b:2", "a 0 1 | b 2 3"),
        (0, "a;b;a", "a 0 1 | b 2"),
        (6, "a:2;b:2", "a 0 1 2 | b 3 4 5"),
        (5, "a:2;b:2", "a 0 1 2 | b 3 4"),
        (18, "a:8;b:1", "a 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 | b 16 17"),
        (4, "a;b", "a 0 1 | b 2 3"),
        (5, "a slots=2 max_slots=2;b", "a 0 1 | b 2 3 4"),
        (
            5,
            "a slots=2 max_slots=2;b max_slots=2",
            "5 ranks do not fit: max_slots leaves room for 4 (-n 4, or more hosts)",
        ),
        (2_000_000, "a;b", "more than 1048576 ranks ()"),
    ] {
        assert_eq!(shown(&request(vec![app(n, list)])), expected, "-n {n} {list}");
    }
}

#[test]
fn hosts_take_turns() {
    let by = |map_by, rank_by, n, list: &str| shown(&Request { map_by, rank_by, ..request(vec![app(n, list)]) });
    assert_eq!(by(By::Node, None, 5, "a:4;b:4;c:1"), "a 0 3 | b 1 4 | c 2");
    assert_eq!(by(By::Node, None, 8, "a:4;b:4;c:1"), "a 0 3 5 7 | b 1 4 6 | c 2");
    assert_eq!(by(By::Node, None, 6, "a;b"), "a 0 2 4 | b 1 3 5");
    assert_eq!(by(By::Node, Some(RankBy::Slot), 5, "a:4;b:4"), "a 0 1 2 | b 3 4");
    assert_eq!(by(By::Slot, Some(RankBy::Node), 6, "a:4;b:4"), "a 0 2 4 5 | b 1 3");
    assert_eq!(by(By::Node, None, 5, "a max_slots=1;b"), "a 0 | b 1 2 3 4");
    assert_eq!(by(By::Node, None, 0, "a:2;b:1"), "a 0 2 | b 1");
}

#[test]
fn so_many_on_each_host() {
    let with = |n, ppn, list: &str| {
        let app = AppRequest { ppn: Some(ppn), ..app(n, list) };
        shown(&request(vec![app]))
    };
    assert_eq!(with(0, 2, "a;b"), "a 0 1 | b 2 3");
    assert_eq!(with(3, 2, "a;b"), "a 0 1 | b 2");
    assert_eq!(with(2, 2, "a;b"), "a 0 1");
    assert_eq!(with(0, 1, "a:4;b:4"), "a 0 | b 1");
    assert_eq!(with(0, 4, ""), "me.cluster 0 1 2 3");
    assert_eq!(with(8, 2, "a;b;c"), "-n 8 does not fit: 2 ranks on each of 3 hosts are 6 (--ppn 3, or 4 hosts (-H))");
    assert_eq!(with(8, 1, ""), "-n 8 does not fit: 1 rank on 1 host (--ppn 8, or 8 hosts (-H))");
    assert_eq!(with(8, 4, ""), "-n 8 does not fit: 4 ranks on 1 host (--ppn 8, or 2 hosts (-H))");
    assert_eq!(with(0, 4, "a max_slots=2"), "4 ranks do not fit: max_slots leaves room for 2 (-n 2, or more hosts)");
    let uncounted = AppRequest { ppn: Some(4), ..app(0, "a;b") };
    assert_eq!(notes(&request(vec![uncounted])), [], "where a host has no count, --ppn is one");
    let counted = AppRequest { ppn: Some(4), ..app(0, "a:2;b") };
    assert!(matches!(notes(&request(vec![counted]))[..], [Note::Oversubscribed { ranks: 4, slots: 2, others: 0, .. }]));
}

#[test]
fn so_many_hosts() {
    let with =
        |min, max, n, list: &str| shown(&Request { nnodes: Some(Nodes { min, max }), ..request(vec![app(n, list)]) });
    assert_eq!(with(2, 2, 4, "a:4;b:4;c:4"), "a 0 1 | b 2 3");
    assert_eq!(with(2, 2, 0, "a:4;b:4;c:4"), "a 0 1 2 3 | b 4 5 6 7");
    assert_eq!(with(2, 2, 8, "a:6;b:2;c:2"), "a 0 1 2 3 4 5 | b 6 7");
    assert_eq!(with(1, 4, 3, "a:4;b:4"), "a 0 1 | b 2");
    assert_eq!(with(1, 1, 3, ""), "me.cluster 0 1 2");
    assert_eq!(
        with(3, 4, 4, "a;b"),
        "--nnodes asks for 3 hosts, but there are 2 (more hosts, as -H host1,host2; or a smaller --nnodes)"
    );
    assert_eq!(
        with(2, 2, 4, ""),
        "--nnodes asks for 2 hosts, but there is 1 (more hosts, as -H host1,host2; or a smaller --nnodes)"
    );
    assert_eq!(with(3, 3, 2, "a;b;c"), "--nnodes asks for 3 hosts, but there are ranks for 2 only (-n 3 or more)");
}

#[test]
fn hosts_that_are_enough() {
    let with = |least, n, list: &str| shown(&Request { min_hosts: Some(least), ..request(vec![app(n, list)]) });
    assert_eq!(with(1, 4, "a:2;b:2"), "a 0 1 | b 2 3");
    assert_eq!(with(2, 4, "a:2;b:2"), "a 0 1 | b 2 3");
    assert_eq!(with(3, 4, "a:2;b:2"), "--min-hosts asks for 3 hosts, but the job has 2 (--min-hosts 2, or more hosts)");
    assert_eq!(with(2, 2, "a:2;b:2"), "--min-hosts asks for 2 hosts, but the job has 1 (--min-hosts 1, or more hosts)");
    assert_eq!(with(1, 3, ""), "me.cluster 0 1 2");
}

#[test]
fn without_a_host_the_ranks_of_the_others_move_up() {
    let whole = place(&Request { map_by: By::Node, ..request(vec![app(3, "a:2;b:2;c:2"), app(3, "")]) }).unwrap();
    let shown = |placement: &Placement| -> Vec<(u32, u32, u32)> {
        placement.ranks.iter().map(|s| (s.node.get(), s.local_rank.get(), s.app.get())).collect()
    };
    assert_eq!(shown(&whole), [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 1), (1, 1, 1), (2, 1, 1)]);
    let fewer = whole.without(&[NodeId::new(0)]).unwrap();
    assert_eq!(shown(&fewer), [(1, 0, 0), (2, 0, 0), (1, 1, 1), (2, 1, 1)], "hosts keep their numbers");
    assert_eq!(fewer.used().collect::<Vec<_>>(), [1, 2].map(NodeId::new));
    let shares = [0, 1, 2].map(|app| fewer.share(AppIndex::new(app))).map(|share| (share.first.get(), share.size));
    assert_eq!(shares, [(0, 2), (2, 2), (0, 0)]);
    let apart = place(&request(vec![app(1, "a"), app(2, "b;c")])).unwrap();
    assert_eq!(apart.without(&[NodeId::new(0)]), None, "a program would have no rank");
    assert!(apart.without(&[NodeId::new(2)]).is_some());
}

#[test]
fn this_machine_without_hosts() {
    assert_eq!(shown(&request(vec![app(3, "")])), "me.cluster 0 1 2");
    assert_eq!(notes(&request(vec![app(2, "")])), []);
    assert_eq!(notes(&request(vec![app(0, ""), app(0, "")])), [0, 1].map(|n| Note::OneRank(AppIndex::new(n))));
    let host = Host::named("me.cluster");
    let over = Note::Oversubscribed { host, ranks: 3, slots: 2, processors: true, others: 0 };
    assert_eq!(notes(&request(vec![app(3, "")])), [over]);
    let strict = Request { strict: true, ..request(vec![app(3, "")]) };
    assert_eq!(
        shown(&strict),
        "--strict: 3 ranks on 2 processors of me.cluster (fewer ranks, more slots, or leave --strict out)"
    );
    assert_eq!(shown(&Request { strict: true, ..request(vec![app(2, "")]) }), "me.cluster 0 1");
    let unknown = Request { here: Here { name: "x".into(), cpus: 0 }, strict: true, ..request(vec![app(99, "")]) };
    assert_eq!(notes(&unknown), []);
}

#[test]
fn names_of_this_machine() {
    let here = Here { name: "me.cluster".into(), cpus: 2 };
    for name in ["localhost", "LOCALHOST", "me", "ME", "me.cluster", "127.0.0.1", "::1"] {
        assert!(here.is(&Host::named(name)), "{name}");
    }
    for name in ["me2", "me.other", "other", "", "cluster"] {
        assert!(!here.is(&Host::named(name)), "{name}");
    }
    let short = Here { name: "me".into(), cpus: 2 };
    assert!(short.is(&Host::named("me.cluster")) && !short.is(&Host::named("you.me")));
    let both = |text| shown(&Request { here: short.clone(), ..request(vec![app(0, text)]) });
    assert_eq!(both("me.siteA;ME.sitea;me;a"), "me.siteA 0 1 2 | a 3");
    let refused = both("me.siteA;a;me.siteB");
    assert!(
        refused.starts_with("me.siteA and me.siteB would both be this machine, which is called me (me for"),
        "{refused}"
    );
    assert_eq!(both("me.siteA;bob@me.siteB"), "me.siteA 0 | bob@me.siteB 1", "that one is reached by ssh");
    let number = Here { name: "10".into(), cpus: 2 };
    assert!(!number.is(&Host::named("10.0.0.1")));
    assert!(!here.is(&Host { user: Some("bob".into()), ..Host::named("me") }));
    assert!(!here.is(&Host { port: Some(22), ..Host::named("localhost") }));
    assert!(!Here { name: String::new(), cpus: 0 }.is(&Host::named("")));
    assert_eq!(shown(&request(vec![app(0, "localhost:2;a;me")])), "localhost 0 1 2 | a 3", "two names, one host");
    let placement = place(&request(vec![app(0, "localhost:2;a")])).unwrap();
    assert_eq!(placement.remote().map(ToString::to_string).as_deref(), Some("a"));
}

#[test]
fn programs_share_hosts() {
    let of = |apps| shown(&request(apps));
    assert_eq!(of(vec![app(2, "a:2;b:2"), app(2, "")]), "a 0 1 | b 2 3", "the second continues where there is room");
    assert_eq!(of(vec![app(2, "a:2"), app(0, "b:3")]), "a 0 1 | b 2 3 4");
    assert_eq!(of(vec![app(1, "b"), app(1, "a")]), "b 0 | a 1");
    assert_eq!(of(vec![app(1, ""), app(1, "a:2")]), "a 0 1", "hosts are those of the job");
    assert_eq!(of(vec![app(1, "a:4"), app(0, "a:2;b")]), "a 0 1 2 | b 3");
    assert_eq!(
        of(vec![app(0, "a:2"), app(0, "")]),
        "no slot is left for program 2, and no -n says how many ranks it has (-n N, or hosts by -H, for this program too)"
    );
    assert_eq!(of(vec![app(1, ""), app(2, "")]), "me.cluster 0 1 2");
    let one = Request { nnodes: Some(Nodes { min: 1, max: 1 }), ..request(vec![app(1, "a"), app(1, "b")]) };
    assert_eq!(
        shown(&one),
        "no host is left for program 2: --nnodes takes the first 1 hosts of the job (a smaller --nnodes, or more hosts)"
    );
    assert_eq!(of(vec![app(6, "a:2"), app(4, "a:2;b:2")]), "a 0 1 2 3 4 5 | b 6 7 8 9", "a is loaded already");
    let placement = place(&request(vec![app(2, "a:2;b:2"), app(3, "")])).unwrap();
    let placements: Vec<(u32, u32, u32)> =
        placement.ranks.iter().map(|s| (s.node.get(), s.local_rank.get(), s.app.get())).collect();
    assert_eq!(placements, [(0, 0, 0), (0, 1, 0), (0, 2, 1), (1, 0, 1), (1, 1, 1)]);
    assert_eq!([0, 1].map(|n| placement.procs(AppIndex::new(n))), [2, 3]);
}

#[test]
fn strictness_names_the_host() {
    let strict = |n| shown(&Request { strict: true, ..request(vec![app(n, "a:2;b")]) });
    assert_eq!(strict(3), "a 0 1 | b 2");
    assert_eq!(strict(4), "--strict: 3 ranks on 2 slots of a (fewer ranks, more slots, or leave --strict out)");
}

#[test]
fn many_ranks_cost_no_time() {
    let list: String = (0..20_000).map(|n| format!("h{n}:3;")).collect();
    for map_by in [By::Slot, By::Node] {
        let request = Request { map_by, ..request(vec![app(1 << 20, &list)]) };
        assert_eq!(place(&request).unwrap().ranks.len(), 1 << 20);
    }
}

fn any_app() -> impl Strategy<Value = AppRequest> {
    let entry = ("[a-e]", proptest::option::of(1u32..5), proptest::option::weighted(0.1, 5u32..8));
    let hosts = proptest::collection::btree_map("[a-e]", entry, 0..5).prop_map(|entries| {
        let entry = |(name, (_, slots, max_slots)): (String, (String, Option<u32>, Option<u32>))| Entry {
            slots,
            max_slots,
            ..Entry::plain(Host::named(&name))
        };
        entries.into_iter().map(entry).collect()
    });
    (proptest::option::of(1u32..30), proptest::option::weighted(0.3, 1u32..6), hosts)
        .prop_map(|(n, ppn, hosts)| AppRequest { n, ppn, hosts, ..AppRequest::default() })
}

proptest! {
    #[test]
    fn every_rank_has_one_place(
        apps in proptest::collection::vec(any_app(), 1..4),
        by_node in any::<(bool, Option<bool>)>(),
        nnodes in proptest::option::weighted(0.3, (1u32..4, 0u32..3)),
    ) {
        let by = |node| if node { By::Node } else { By::Slot };
        let rank_by = |node| if node { RankBy::Node } else { RankBy::Slot };
        let nnodes = nnodes.map(|(min, more)| Nodes { min, max: min + more });
        let request = Request { map_by: by(by_node.0), rank_by: by_node.1.map(rank_by), nnodes, ..request(apps) };
        let Ok(placement) = place(&request) else { return Ok(()) };
        let Placement { nodes, ranks: placements, .. } = &placement;
        prop_assert!(!placements.is_empty() && placements.iter().is_sorted_by_key(|placed| placed.app));
        prop_assert_eq!(placements[0].local_rank, LocalRank::new(0));
        for (node, id) in nodes.iter().zip((0..).map(NodeId::new)) {
            let local: Vec<u32> = placements.iter().filter(|s| s.node == id).map(|s| s.local_rank.get()).collect();
            prop_assert_eq!(&local, &(0..node.ranks).collect::<Vec<_>>());
            prop_assert!(node.ranks > 0);
        }
        prop_assert_eq!(nodes.iter().map(|node| node.ranks as usize).sum::<usize>(), placements.len());
        if let Some(Nodes { min, max }) = nnodes {
            prop_assert!((min..=max).contains(&u32::try_from(nodes.len()).unwrap()));
        }
        for (app, index) in request.apps.iter().zip((0..).map(AppIndex::new)) {
            let own: Vec<&RankPlacement> = placements.iter().filter(|placed| placed.app == index).collect();
            prop_assert!(!own.is_empty());
            if let Some(n) = app.n {
                prop_assert_eq!(own.len(), n as usize);
            }
            let hosts: BTreeSet<&str> = app.hosts.iter().map(|e| e.host.name.as_str()).collect();
            for (node, id) in nodes.iter().zip((0..).map(NodeId::new)) {
                let here = own.iter().filter(|placed| placed.node == id).count();
                prop_assert!(here == 0 || hosts.is_empty() || hosts.contains(node.host.name.as_str()));
                if let Some(ppn) = app.ppn {
                    prop_assert!(here <= ppn as usize);
                }
            }
        }
        for node in nodes {
            let entries = request.apps.iter().flat_map(|app| &app.hosts).filter(|e| e.host == node.host);
            if let Some(max) = entries.filter_map(|e| e.max_slots).min() {
                prop_assert!(node.ranks <= max);
            }
        }
    }

    #[test]
    fn fewer_hosts_keep_what_they_have(
        apps in proptest::collection::vec(any_app(), 1..4),
        by_node in any::<bool>(),
        gone in proptest::collection::vec(0u32..5, 0..4),
    ) {
        let map_by = if by_node { By::Node } else { By::Slot };
        let Ok(whole) = place(&Request { map_by, ..request(apps) }) else { return Ok(()) };
        let gone: Vec<NodeId> = gone.into_iter().map(NodeId::new).collect();
        let stays = |placed: &&RankPlacement| !gone.contains(&placed.node);
        let placements: ByRank<RankPlacement> = whole.ranks.iter().filter(stays).copied().collect();
        let programs = |placements: &ByRank<RankPlacement>| placements.iter().map(|placed| placed.app).collect::<BTreeSet<_>>();
        let fewer = whole.without(&gone);
        prop_assert_eq!(fewer.is_some(), programs(&placements) == programs(&whole.ranks));
        let Some(fewer) = fewer else { return Ok(()) };
        prop_assert_eq!(&fewer.ranks, &placements, "in the same order, each where it was");
        for (id, (node, before)) in (0..).map(NodeId::new).zip(fewer.nodes.iter().zip(&whole.nodes)) {
            prop_assert_eq!(node.ranks, if gone.contains(&id) { 0 } else { before.ranks });
            prop_assert_eq!(fewer.used().any(|used| used == id), node.ranks > 0);
        }
        // Each rank is one of its program, and all of them are counted.
        for app in placements.iter().map(|placed| placed.app).collect::<BTreeSet<_>>() {
            let share = fewer.share(app);
            let first = share.first.index();
            let mut own = placements.iter().skip(first).take(share.size as usize);
            prop_assert!(own.all(|placed| placed.app == app) && fewer.procs(app) == share.size);
        }
        let missing = gone.iter().filter(|node| node.index() < whole.nodes.len()).collect::<BTreeSet<_>>().len();
        prop_assert!(whole.heads(missing).contains(&placements[0].node), "it was asked to choose a port");
        prop_assert!(whole.heads(missing).len() <= missing + 1);
    }

    #[test]
    fn no_host_is_oversubscribed_while_there_is_room(slots in proptest::collection::vec(1u32..6, 1..6), n in 1u32..40) {
        let list: Vec<String> = slots.iter().enumerate().map(|(at, n)| format!("h{at}:{n}")).collect();
        for map_by in [By::Slot, By::Node] {
            let request = Request { map_by, ..request(vec![app(n, &list.join(";"))]) };
            let over = place(&request).unwrap().notes.iter().any(|note| matches!(note, Note::Oversubscribed { .. }));
            prop_assert_eq!(over, n > slots.iter().sum());
        }
    }
}

#[test]
fn hosts_without_ranks_are_kept_for_a_program_that_leads() {
    let apps = vec![app(1, "a:2;b:3")];
    let nodes = |keeps_hosts| {
        let placement = place(&Request { keeps_hosts, ..request(apps.clone()) }).unwrap();
        placement.nodes.iter().map(|node| (node.host.name.clone(), node.slots, node.ranks)).collect::<Vec<_>>()
    };
    assert_eq!(nodes(false), [("a".into(), 2, 1)]);
    assert_eq!(nodes(true), [("a".into(), 2, 1), ("b".into(), 3, 0)]);
}

#[test]
fn slots_are_counted_by_the_cores_of_each_program() {
    let with = |apps: &[(u32, u32)]| {
        let app = |(n, cores): &(u32, u32)| AppRequest { slots_per_rank: *cores, ..app(*n, "") };
        let mut apps: Vec<AppRequest> = apps.iter().map(app).collect();
        apps[0].hosts = hosts("a:8;b:8");
        request(apps)
    };
    for (apps, expected) in [
        (&[(1, 8), (8, 1)][..], "a 0 | b 1 2 3 4 5 6 7 8"),
        (&[(4, 1), (3, 4)], "a 0 1 2 3 4 | b 5 6"),
        (&[(1, 3), (1, 3), (6, 1)], "a 0 1 2 3 | b 4 5 6 7"),
    ] {
        assert_eq!(shown(&with(apps)), expected);
        assert!(!notes(&with(apps)).iter().any(|note| matches!(note, Note::Oversubscribed { .. })), "{apps:?}");
    }
    let slots =
        |apps: &[(u32, u32)]| place(&with(apps)).unwrap().nodes.iter().map(|node| node.slots).collect::<Vec<_>>();
    assert_eq!(slots(&[(1, 8), (6, 1)]), [1, 8]);
    let over = notes(&with(&[(1, 8), (9, 1)]));
    assert!(matches!(over[..], [Note::Oversubscribed { ranks: 2, slots: 1, others: 0, .. }]), "{over:?}");
}
