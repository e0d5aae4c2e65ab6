//! How the address of rank 0's host is found: by whom it is tried, when, and what comes of it.

use super::fewer::{fails, left_out, three, up};
use super::hosts::{done, hello, met, ranks, starts, two};
use super::*;
use rlaunch_base::errno::EACCES;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::probe::Key;
use rlaunch_protocol::wire::to_root::Tried;

const OWN: [&str; 3] = ["10.0.0.1", "10.1.0.1", "10.2.0.1"];
const REFUSED: i32 = 111;

fn node(n: u32) -> NodeId {
    NodeId::new(n)
}

/// A job whose hosts find out by themselves what they reach.
fn job(spec: &JobSpec) -> Script {
    let setting = Setting { secret: Key::new([9; 32]), ..Setting::default() };
    let mut s = Script::with(spec, &setting);
    s.all_reach = false;
    s
}

/// A host is there and ready; every one has the addresses that rank 0's has.
fn ready(s: &mut Script, n: u32) {
    up(s, n);
    s.receive_from(node(n), &hello(&OWN.join(" "), "10.0.0.9", 20_000)).receive_from(node(n), &ToRoot::Ready);
}

/// All three of them.
fn all_ready(least: u32) -> Script {
    let mut s = job(&three(least));
    (0..3).for_each(|n| ready(&mut s, n));
    s
}

/// The hosts that were ordered to try, and the places.
fn asked(s: &Script) -> Vec<(u32, Vec<u32>)> {
    let probe = |(node, msg): (&NodeId, &ToNode)| {
        let ToNode::Probe(places) = msg else { return None };
        Some((node.get(), places.iter().map(|place| place.number).collect()))
    };
    s.to.iter().zip(&s.sent).filter_map(probe).collect()
}

/// A host has tried a place; `errno` 0: it was reached.
fn finds(s: &mut Script, n: u32, number: u32, errno: i32) {
    let by: core::net::IpAddr = [10, 0, 0, 9].into();
    let found = if errno == 0 { Ok(by.into()) } else { Err(errno) };
    s.receive_from(node(n), &ToRoot::Probed { number, found });
}

/// The rendezvous that every host was sent.
fn place(s: &Script) -> Option<OsBytes> {
    let met = met(s);
    assert!(met.windows(2).all(|pair| pair[0].1.addr == pair[1].1.addr));
    met.first().map(|(_, rendezvous)| rendezvous.addr.clone())
}

fn tried(list: &[(&str, i32)]) -> rlaunch_base::capped::Capped<Tried, { rlaunch_protocol::wire::to_root::ADDRESSES }> {
    let tried = list.iter().map(|(addr, errno)| Tried { at: alloc::format!("{addr}:20000").into(), errno: *errno });
    rlaunch_base::capped::Capped::chunks(tried).remove(0)
}

#[test]
fn hosts_try_all_places_while_others_get_ready() {
    let mut s = job(&three(3));
    up(&mut s, 1);
    s.receive_from(node(1), &hello("10.0.0.2", "10.0.0.9", 0));
    assert_eq!(asked(&s), [], "nobody knows where rank 0 is");
    up(&mut s, 0);
    s.receive_from(node(0), &hello(&OWN.join(" "), "10.0.0.9", 20_000));
    assert_eq!(asked(&s), [(1, vec![0, 1, 2])], "host 1 is asked before any host is ready");
    up(&mut s, 2);
    assert_eq!(asked(&s)[1..], [(2, vec![0, 1, 2])], "host 2 is asked before its first message");
    s.receive_from(node(2), &hello("10.0.0.3", "10.0.0.9", 0));
    finds(&mut s, 1, 0, 0);
    finds(&mut s, 2, 0, 0);
    assert_eq!((asked(&s).len(), met(&s).len()), (2, 0));
    for n in 0..3 {
        assert_eq!(place(&s), None);
        s.receive_from(node(n), &ToRoot::Ready);
    }
    assert_eq!((place(&s), ranks(&s).len()), (Some(OWN[0].into()), 6), "other places are not waited for");
    assert_eq!((s.said.len(), asked(&s).len()), (0, 2));
}

#[test]
fn no_rank_starts_before_every_other_host_has_found_it() {
    let mut s = all_ready(3);
    assert_eq!(asked(&s), [(1, vec![0, 1, 2]), (2, vec![0, 1, 2])]);
    finds(&mut s, 2, 0, 0);
    // Sent twice, or about a place that does not exist, or by a host that was not asked.
    for (n, number) in [(2, 0), (1, 7), (0, 0)] {
        finds(&mut s, n, number, 0);
        finds(&mut s, n, number, REFUSED);
    }
    assert_eq!((place(&s), asked(&s).len()), (None, 2));
    finds(&mut s, 1, 0, 0);
    assert_eq!((place(&s), ranks(&s).len()), (Some(OWN[0].into()), 6));
    // A later failure changes nothing: the address is chosen.
    finds(&mut s, 1, 0, REFUSED);
    assert!(asked(&s).len() == 2 && s.finished.is_none());
    s.wait(60_000);
    assert_eq!(s.said, []);
}

#[test]
fn next_place_in_order_is_taken_if_first_fails() {
    let mut s = all_ready(3);
    finds(&mut s, 1, 0, REFUSED);
    for n in [1, 2] {
        finds(&mut s, n, 2, 0);
    }
    finds(&mut s, 1, 1, 0);
    assert_eq!(place(&s), None, "a better one may come");
    s.wait(200);
    assert_eq!(place(&s), None);
    finds(&mut s, 2, 1, 0);
    assert_eq!(place(&s), Some(OWN[1].into()));
    let (addr, instead_of) = (OWN[1].into(), OWN[0].into());
    let detour = JobNews::AddrDetour { addr, instead_of, node: node(0), missed_by: vec![node(1), node(2)] };
    assert_eq!(s.said, [What::News(detour)]);
    // It does not come, or is not waited for.
    for known in [false, true] {
        let mut s = all_ready(3);
        finds(&mut s, 1, 0, REFUSED);
        if known {
            finds(&mut s, 2, 1, REFUSED);
        }
        for n in [1, 2] {
            finds(&mut s, n, 2, 0);
        }
        assert_eq!(place(&s).is_some(), known);
        s.wait(250);
        assert_eq!(place(&s), Some(OWN[2].into()));
    }
    // The failure of the better one decides, too.
    let mut s = all_ready(3);
    for n in [1, 2] {
        finds(&mut s, n, 1, 0);
    }
    assert_eq!(place(&s), None);
    finds(&mut s, 2, 0, REFUSED);
    assert_eq!(place(&s), Some(OWN[1].into()));
}

#[test]
fn a_first_one_that_never_answers_is_waited_for_only_so_long() {
    let mut s = all_ready(3);
    finds(&mut s, 2, 0, 0);
    finds(&mut s, 1, 1, 0);
    finds(&mut s, 2, 1, 0);
    s.wait(1499);
    assert_eq!(place(&s), None);
    s.wait(1);
    assert_eq!(place(&s), Some(OWN[1].into()));
    // After that time the next one is taken at once; the first one may answer after all.
    for at in [1, 0] {
        let mut s = all_ready(3);
        s.wait(1500);
        finds(&mut s, 1, at, 0);
        assert_eq!(place(&s), None);
        finds(&mut s, 2, at, 0);
        assert_eq!((place(&s), s.said.len()), (Some(OWN[usize::try_from(at).unwrap()].into()), at as usize));
    }
}

#[test]
fn a_job_whose_hosts_do_not_reach_that_of_rank_0_is_refused_and_they_are_named() {
    for silent in [false, true] {
        let mut s = all_ready(3);
        finds(&mut s, 1, 0, REFUSED);
        for number in [0, 1] {
            finds(&mut s, 2, number, 0);
        }
        finds(&mut s, 2, 2, REFUSED);
        finds(&mut s, 1, 1, EACCES);
        assert!(s.finished.is_none() && s.log.iter().all(|what| !matches!(what, What::HostRefused { .. })));
        if silent {
            s.wait(9_999);
            assert!(s.log.iter().all(|what| !matches!(what, What::HostRefused { .. })));
            s.wait(1);
        } else {
            finds(&mut s, 1, 2, REFUSED);
        }
        assert_eq!((place(&s), ranks(&s)), (None, vec![]));
        (0..3).for_each(|n| done(&mut s, node(n), 0));
        s.drained();
        let last = if silent { 0 } else { REFUSED };
        let tried = tried(&[(OWN[0], REFUSED), (OWN[1], EACCES), (OWN[2], last)]);
        let why = NodeRefusal::NoWay { to: "one".into(), interface: OsBytes::default(), tried };
        assert_eq!(s.cause(), Cause::Refused { node: node(1), why });
        assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(125)), Some(0)));
    }
}

#[test]
fn host_without_addresses_cannot_be_reached() {
    let mut s = job(&two(false));
    for n in 0..2 {
        up(&mut s, n);
        s.receive_from(node(n), &hello("", "", 20_000)).receive_from(node(n), &ToRoot::Ready);
        if n == 1 {
            done(&mut s, node(0), 0);
            done(&mut s, node(1), 0);
        }
    }
    s.drained();
    let why = NodeRefusal::NoWay { to: "one".into(), interface: OsBytes::default(), tried: Default::default() };
    assert_eq!((s.cause(), asked(&s)), (Cause::Refused { node: node(1), why }, vec![]));
}

#[test]
fn a_host_that_does_not_reach_it_is_left_out_where_the_others_are_enough() {
    let mut s = all_ready(2);
    finds(&mut s, 2, 0, 0);
    finds(&mut s, 1, 0, REFUSED);
    for number in [1, 2] {
        finds(&mut s, 1, number, REFUSED);
        finds(&mut s, 2, number, 0);
    }
    assert_eq!(left_out(&s), [(vec![1], 4)]);
    assert_eq!((place(&s), ranks(&s).len()), (Some(OWN[0].into()), 4));
}

#[test]
fn rank_0_moves_to_the_next_host_when_the_first_cannot_be_reached() {
    let mut s = all_ready(2);
    for (n, number) in [(1, 0), (2, 0), (1, 1), (1, 2), (2, 1), (2, 2)] {
        assert_eq!(left_out(&s), []);
        finds(&mut s, n, number, REFUSED);
    }
    assert_eq!(asked(&s).last(), Some(&(2, vec![3, 4, 5])), "with numbers of its own");
    // The first one sends nothing any more.
    finds(&mut s, 2, 0, 0);
    assert_eq!(place(&s), None);
    finds(&mut s, 2, 3, 0);
    assert_eq!((left_out(&s), place(&s)), (vec![(vec![0], 4)], Some(OWN[0].into())));
    let why = NodeRefusal::Alone {
        interface: OsBytes::default(),
        tried: tried(&[(OWN[0], REFUSED), (OWN[1], REFUSED), (OWN[2], REFUSED)]),
    };
    assert!(s.log.contains(&What::HostRefused { node: node(0), why }));
}

#[test]
fn hosts_that_are_lost_meanwhile_are_waited_for_no_more() {
    let lose = |s: &mut Script, n: u32| {
        s.event(JobEvent::EdgeClosed { node: node(n), why: CloseReason::Eof });
        s.event(JobEvent::GuardianEnded { node: node(n), end: GuardianEnd::Record { left: 0, named: vec![] } });
    };
    let mut s = all_ready(2);
    finds(&mut s, 2, 0, 0);
    lose(&mut s, 1);
    assert_eq!((left_out(&s), place(&s)), (vec![(vec![1], 4)], Some(OWN[0].into())));
    // That of rank 0 itself: the others begin again with the next.
    let mut s = all_ready(2);
    finds(&mut s, 1, 0, 0);
    lose(&mut s, 0);
    assert_eq!((asked(&s).last(), place(&s)), (Some(&(2, vec![3, 4, 5])), None));
    finds(&mut s, 2, 3, 0);
    assert_eq!((left_out(&s), place(&s)), (vec![(vec![0], 4)], Some(OWN[0].into())));
    // Where all are needed the job ends, and no more is asked.
    let mut s = all_ready(3);
    lose(&mut s, 1);
    finds(&mut s, 2, 0, REFUSED);
    s.wait(20_000);
    assert_eq!((asked(&s).len(), ranks(&s)), (2, vec![]));
    assert!(s.log.iter().any(|what| matches!(what, What::Ending { cause: Cause::Lost { .. }, .. })));
}

#[test]
fn a_host_that_was_never_had_is_asked_nothing() {
    let mut s = job(&three(2));
    fails(&mut s, 0);
    ready(&mut s, 1);
    assert_eq!(asked(&s), []);
    ready(&mut s, 2);
    assert_eq!(asked(&s), [(2, vec![0, 1, 2])], "the next one is tried");
    finds(&mut s, 2, 0, 0);
    assert_eq!((place(&s), left_out(&s)), (Some(OWN[0].into()), vec![(vec![0], 4)]));
    // A single host needs no other to find it.
    let mut s = job(&three(1));
    fails(&mut s, 0);
    fails(&mut s, 2);
    ready(&mut s, 1);
    assert_eq!((place(&s), asked(&s)), (Some("127.0.0.1".into()), vec![]));
}

#[test]
fn an_ending_names_who_has_not_found_it() {
    let mut s = all_ready(3);
    finds(&mut s, 1, 0, 0);
    s.signal(Signal::INT);
    assert_eq!(s.ending_of(), (Signal::INT, RanksState::NotStarted { awaited: vec![node(2)] }));
    finds(&mut s, 2, 0, 0);
    (0..3).for_each(|n| done(&mut s, node(n), 0));
    s.drained();
    assert_eq!((s.finished, ranks(&s)), (Some(Ending::Signal(Signal::INT)), vec![]));
}

#[test]
fn our_own_host_is_tried_first_where_another_has_seen_us_come_from() {
    let mut s = job(&two(true));
    s.receive_from(NODE, &hello("10.0.0.9 192.168.0.9 172.17.0.1", "", 20_000)).receive_from(NODE, &ToRoot::Ready);
    up(&mut s, 1);
    s.receive_from(node(1), &hello("192.168.0.2", "192.168.0.9", 0)).receive_from(node(1), &ToRoot::Ready);
    finds(&mut s, 1, 0, 0);
    assert_eq!((place(&s), asked(&s)), (None, vec![(1, vec![0, 1, 2])]), "the likely one may still answer");
    finds(&mut s, 1, 1, 0);
    assert_eq!((place(&s), s.said.len()), (Some("192.168.0.9".into()), 0));
}

#[test]
fn an_address_that_the_user_gives_is_taken_untried() {
    let mut spec = two(false);
    spec.apps[0].base.env = ["MASTER_ADDR=10.0.0.77"].iter().collect();
    spec.apps[0].base.pinned = ["MASTER_ADDR"].iter().collect();
    let mut s = job(&spec);
    (0..2).for_each(|n| ready(&mut s, n));
    assert_eq!((place(&s), asked(&s)), (Some("10.0.0.77".into()), vec![]));
    assert!(starts(&s).iter().all(|(_, start)| start.find.as_ref().is_none_or(|find| find.probe_key.is_none())));
}

#[test]
fn every_host_that_may_have_rank_0_proves_something_else() {
    let s = all_ready(2);
    let keys: Vec<_> = starts(&s).into_iter().filter_map(|(_, start)| start.find?.probe_key).collect();
    assert!(keys.len() == 2 && keys[0] != keys[1]);
    let places = s.sent.iter().find_map(|msg| if let ToNode::Probe(places) = msg { Some(places) } else { None });
    for place in places.unwrap().iter() {
        assert_eq!(place.key, keys[0].at(&place.addr, 20_000));
    }
}
