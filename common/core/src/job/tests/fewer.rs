//! Jobs that continue without some of their hosts.

use super::hosts::{done, hello, met, ranks, recipients, starts};
use super::*;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, LocalRank};
use rlaunch_base::time::HostTime;
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierKind, HostFailure};
use rlaunch_plan::hostlist::Host;
use rlaunch_plan::place::{Node, Placement, Processes, RankPlacement, Worlds};
use rlaunch_protocol::settings::StdinPlan;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::to_node::PortPlan;
use rlaunch_protocol::wire::to_root::{Exited, Hello, Reached, Started, Usage};

/// Three hosts with two ranks each; at least so many have to be ready.
pub(super) fn three(least: u32) -> JobSpec {
    let placed =
        |n: u32| RankPlacement { node: NodeId::new(n / 2), local_rank: LocalRank::new(n % 2), app: AppIndex::new(0) };
    let node = |host| Node::of(Host::named(host), 2);
    let nodes = ["one", "two", "three"].map(node).to_vec();
    let placement = Placement {
        nodes,
        ranks: (0..6).map(placed).collect(),
        notes: vec![],
        processes: Processes::default(),
        order: vec![],
        worlds: Worlds::default(),
    };
    JobSpec { placement, min_hosts: Some(least), ..spec(6) }
}

pub(super) fn up(s: &mut Script, node: u32) {
    s.event(JobEvent::EdgeUp { node: NodeId::new(node) });
}

fn introduces(s: &mut Script, node: u32) {
    let (at, port) = (alloc::format!("10.0.0.{}", node + 1), 20_000 + u16::try_from(node).unwrap());
    s.receive_from(NodeId::new(node), &hello(&at, "10.0.0.9", port));
}

fn is_ready(s: &mut Script, node: u32) {
    up(s, node);
    introduces(s, node);
    s.receive_from(NodeId::new(node), &ToRoot::Ready);
}

pub(super) fn fails(s: &mut Script, node: u32) {
    let why = HostFailure { why: "denied".into(), ..HostFailure::default() };
    s.event(JobEvent::HostFailed { node: NodeId::new(node), why });
}

fn refuses(s: &mut Script, node: u32) {
    up(s, node);
    s.receive_from(NodeId::new(node), &ToRoot::Refused(NodeRefusal::NoPort));
}

pub(super) fn left_out(s: &Script) -> Vec<(Vec<u32>, u32)> {
    let of = |what: &What| {
        let What::LeftOut { nodes, world_size, procs, .. } = what else { return None };
        assert_eq!(procs.iter().sum::<u32>(), *world_size);
        Some((nodes.iter().map(|node| node.get()).collect(), *world_size))
    };
    s.log.iter().filter_map(of).collect()
}

/// The starts that nodes were sent: node, `node_index`, hosts, ranks.
fn parts(s: &Script) -> Vec<(u32, u32, u32, u32)> {
    met(s).into_iter().map(|(node, m)| (node, m.node_index, m.nodes, m.world_size)).collect()
}

/// The ranks that were started, of a job of the hosts 1 and 2, run and end in peace.
fn succeeds(s: &mut Script) {
    for n in 0..4 {
        let node = NodeId::new(1 + n / 2);
        let started = Started { proc: ProcId::new(n), pid: 100 + n, at: HostTime(1) };
        s.receive_from(node, &ToRoot::Started { procs: Capped::chunks([started]).remove(0) });
        let (status, at) = (exit(0), HostTime(9));
        let usage = Usage::default();
        let exited = Exited { proc: ProcId::new(n), status, at, alive_at: at, asked: false, usage };
        s.receive_from(node, &ToRoot::Exited(exited));
    }
    assert_eq!(recipients(s, &ToNode::Finish), [1, 2]);
    done(s, NodeId::new(1), 0);
    done(s, NodeId::new(2), 0);
    s.drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(0)), Some(0)));
}

#[test]
fn a_host_that_cannot_be_had_is_left_out_and_the_others_are_numbered_anew() {
    let mut s = Script::new(&three(2));
    is_ready(&mut s, 1);
    fails(&mut s, 0);
    assert_eq!((met(&s), left_out(&s)), (vec![], vec![]), "the third may have something to say");
    is_ready(&mut s, 2);
    assert_eq!(parts(&s), [(1, 0, 2, 4), (2, 1, 2, 4)]);
    let (addr, port) = (met(&s)[0].1.addr.clone(), met(&s)[0].1.port);
    assert_eq!((addr, port), ("10.0.0.2".into(), Some(20_001)), "they meet where rank 0 is now");
    assert_eq!(ranks(&s), [(1, 0, 0), (1, 1, 1), (2, 2, 0), (2, 3, 1)]);
    let stdin =
        |msg: &ToNode| if let ToNode::Spawn { procs, .. } = msg { procs[0].stdin == StdinPlan::Rank0 } else { false };
    assert_eq!(s.sent.iter().filter(|msg| stdin(msg)).count(), 1);
    assert_eq!(left_out(&s), [(vec![0], 4)]);
    assert_eq!(s.placements.len(), 1);
    assert!(matches!(s.said.first(), Some(What::LeftOut { .. })), "{:?}", s.said);
    succeeds(&mut s);
    let report = s.last_report();
    assert_eq!((report.left_out.len(), report.unreached.len(), report.asked()), (1, 1, 3));
    assert_eq!((report.ranks.len(), report.launch().is_some()), (4, true));
    assert_eq!(report.app(Rank::new(4)), None, "there is no such rank any more");
}

#[test]
fn only_possible_hosts_of_rank_0_choose_a_port() {
    for (least, chosen) in [(3, [true, false, false]), (2, [true, true, false]), (1, [true, true, true])] {
        let mut given = three(least);
        given.apps[0].base.env = ["MASTER_PORT=5000"].iter().collect();
        given.apps[0].base.pinned = ["MASTER_PORT"].iter().collect();
        for (spec, plan) in [(three(least), PortPlan::Choose), (given, PortPlan::Claim(5000))] {
            let mut s = Script::new(&spec);
            (0..3).for_each(|node| up(&mut s, node));
            let sent: Vec<(PortPlan, bool)> =
                starts(&s).into_iter().map(|(_, start)| (start.port, start.find.is_some())).collect();
            let expected = chosen.map(|chosen| (if chosen { plan } else { PortPlan::None }, chosen));
            assert_eq!(sent, expected, "{least}");
        }
    }
}

#[test]
fn no_host_is_left_out_if_all_are_ready() {
    let mut s = Script::new(&three(1));
    (0..3).for_each(|node| is_ready(&mut s, node));
    assert_eq!(parts(&s), [(0, 0, 3, 6), (1, 1, 3, 6), (2, 2, 3, 6)]);
    assert_eq!((left_out(&s), s.placements.len(), s.said.len()), (vec![], 0, 0));
}

#[test]
fn fewer_than_were_asked_for_start_nothing() {
    for (least, failing) in [(2, [0, 1].as_slice()), (3, &[2]), (1, &[0, 1, 2])] {
        let mut s = Script::new(&three(least));
        for node in 0..3 {
            if failing.contains(&node) { fails(&mut s, node) } else { is_ready(&mut s, node) }
        }
        assert_eq!((met(&s), left_out(&s)), (vec![], vec![]));
        (0..3).filter(|node| !failing.contains(node)).for_each(|node| done(&mut s, NodeId::new(node), 0));
        s.drained();
        assert_eq!(s.finished, Some(Ending::Code(125)));
        let failed = u32::try_from(failing.len()).unwrap();
        assert_eq!(s.cause(), Cause::Unreachable { node: NodeId::new(failing[0]), failed, asked: 3 });
        assert_eq!(s.last_report().ready(), 3 - failing.len());
        assert_eq!(s.last_report().start.as_ref().unwrap().min_hosts, Some(least));
    }
}

#[test]
fn refusing_host_is_left_out() {
    let mut s = Script::new(&three(2));
    refuses(&mut s, 0);
    is_ready(&mut s, 1);
    is_ready(&mut s, 2);
    assert_eq!(left_out(&s), [(vec![0], 4)]);
    assert_eq!(recipients(&s, &ToNode::Kill), [0], "whatever is there has nothing to do");
    // It reports the outcome, or does not; its edge ends, and its guardian is lost: nothing follows.
    done(&mut s, NODE, 7);
    s.receive_from(NODE, &ToRoot::GuardianLost);
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    s.event(JobEvent::GuardianEnded { node: NODE, end: GuardianEnd::Silent });
    assert!(recipients(&s, &ToNode::Kill).len() == 1 && s.finished.is_none());
    succeeds(&mut s);
}

#[test]
fn a_host_that_is_lost_before_the_start_is_left_out() {
    let why = CloseReason::Carrier(CarrierKind::Ssh, CarrierEnd::Signal(9));
    let losses: [fn(&mut Script, CloseReason); 4] = [
        |s, why| _ = s.event(JobEvent::EdgeClosed { node: NODE, why }),
        |s, _| {
            let end = GuardianEnd::Expired { left: 0, named: vec![] };
            s.event(JobEvent::GuardianEnded { node: NODE, end });
        },
        |s, _| _ = s.receive_from(NODE, &ToRoot::InitLost),
        |s, _| {
            s.wait(30_000);
            for node in [1, 2].map(NodeId::new) {
                s.event(JobEvent::Beat { node, beat: Beat { own: 7, echo: 0 } });
            }
            s.wait(7_000);
        },
    ];
    for (n, loses) in losses.into_iter().enumerate() {
        let mut s = Script::new(&three(2));
        is_ready(&mut s, 0);
        is_ready(&mut s, 1);
        up(&mut s, 2);
        loses(&mut s, why);
        assert!(s.finished.is_none() && recipients(&s, &ToNode::Kill).is_empty(), "{n}");
        introduces(&mut s, 2);
        s.receive_from(NodeId::new(2), &ToRoot::Ready);
        assert_eq!((left_out(&s), parts(&s)), (vec![(vec![0], 4)], vec![(1, 0, 2, 4), (2, 1, 2, 4)]), "{n}");
        let awaited = s.said.iter().any(|what| matches!(what, What::News(JobNews::HostAwaited { .. })));
        assert!(!awaited, "no rank of the job is there");
        succeeds(&mut s);
    }
}

#[test]
fn a_host_that_cannot_be_spared_ends_the_job_as_ever() {
    let mut s = Script::new(&three(3));
    is_ready(&mut s, 0);
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    assert_eq!(s.given_up, [1, 2].map(NodeId::new));
    let mut s = Script::new(&three(2));
    is_ready(&mut s, 0);
    is_ready(&mut s, 1);
    fails(&mut s, 2);
    assert_eq!(parts(&s).len(), 2, "it runs");
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    assert_eq!(recipients(&s, &ToNode::End { sig: Signal::TERM, grace: Span::from_secs(5) }), [0, 1]);
}

#[test]
fn hosts_that_were_lost_are_named_with_the_others_where_too_few_are_left() {
    let mut s = Script::new(&three(2));
    is_ready(&mut s, 0);
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    fails(&mut s, 1);
    is_ready(&mut s, 2);
    done(&mut s, NodeId::new(2), 0);
    s.drained();
    assert_eq!(s.cause(), Cause::Unreachable { node: NODE, failed: 2, asked: 3 });
    let report = s.last_report();
    assert_eq!(report.lost_hosts, [(NODE, Lost::Agent(CloseReason::Eof))]);
    assert_eq!((report.ready(), report.left), (1, Some(0)));
}

#[test]
fn a_program_does_not_lose_all_its_ranks() {
    let mut spec = three(1);
    spec.apps.push(spec.apps[0].clone());
    (spec.apps[0].procs, spec.apps[1].procs) = (2, 4);
    spec.placement.ranks.iter_mut().skip(2).for_each(|placed| placed.app = AppIndex::new(1));
    let mut s = Script::new(&spec);
    fails(&mut s, 0);
    is_ready(&mut s, 1);
    is_ready(&mut s, 2);
    assert_eq!(met(&s), []);
    let mut s = Script::new(&spec);
    is_ready(&mut s, 0);
    fails(&mut s, 1);
    is_ready(&mut s, 2);
    let of_app = |msg: &ToNode| {
        let ToNode::Spawn { procs, .. } = msg else { return vec![] };
        procs.iter().map(|d| (d.app.get(), d.app_rank, d.app_size)).collect()
    };
    let spawned: Vec<_> = s.sent.iter().flat_map(of_app).collect();
    assert_eq!(spawned, [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)]);
}

/// Two hosts, of which the first may have to be found at an interface that it has not.
fn by_interface(least: u32) -> Script {
    let mut s = Script::new(&three(least).with(|settings| settings.hosts.interface = "ib0".into()));
    for (node, at) in (0..3).zip([None, Some("10.9.0.2"), None]) {
        up(&mut s, node);
        let ToRoot::Hello(hello) = hello("10.0.0.1", "10.0.0.9", 20_000) else { panic!() };
        let at = Capped::chunks(at.map(OsBytes::from)).pop().unwrap_or_default();
        let probe_ports = Capped::chunks(at.iter().map(|_| 20_000)).pop().unwrap_or_default();
        let reached = Some(Reached { from: "10.0.0.9".into(), at, probe_ports, has: "lo eth0".into() });
        let node = NodeId::new(node);
        s.receive_from(node, &ToRoot::Hello(Hello { reached, ..hello })).receive_from(node, &ToRoot::Ready);
    }
    s
}

#[test]
fn an_interface_is_asked_of_rank_0s_host_only() {
    let mut s = by_interface(3);
    (0..3).for_each(|node| done(&mut s, NodeId::new(node), 0));
    s.drained();
    let why = NodeRefusal::NoInterface { name: "ib0".into(), has: "lo eth0".into() };
    assert_eq!(s.cause(), Cause::Refused { node: NODE, why });
    let s = by_interface(2);
    assert_eq!((left_out(&s), parts(&s)), (vec![(vec![0], 4)], vec![(1, 0, 2, 4), (2, 1, 2, 4)]));
    assert_eq!(met(&s)[0].1.addr, "10.9.0.2".into());
}
