//! Jobs of several hosts.

use super::*;
use crate::report::Became;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, LocalRank};
use rlaunch_base::time::HostTime;
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierKind, HostFailure};
use rlaunch_plan::hostlist::Host;
use rlaunch_plan::place::{Node, Placement, Processes, RankPlacement, Worlds};
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::to_node::{PortPlan, Rendezvous, Start};
use rlaunch_protocol::wire::to_root::{Exited, Hello, Reached, Started, Usage};

pub(super) const OTHER: NodeId = NodeId::new(1);
pub(super) const MS: u64 = 1_000_000;

/// Four ranks, two on each of two hosts; `local`: the first is the launcher's own.
pub(super) fn two(local: bool) -> JobSpec {
    let placed =
        |n: u32| RankPlacement { node: NodeId::new(n / 2), local_rank: LocalRank::new(n % 2), app: AppIndex::new(0) };
    let node = |(host, local): (&str, bool)| Node { local, ..Node::of(Host::named(host), 2) };
    let nodes = [("one", local), ("two", false)].map(node).to_vec();
    JobSpec {
        placement: Placement {
            nodes,
            ranks: (0..4).map(placed).collect(),
            notes: vec![],
            processes: Processes::default(),
            order: vec![],
            worlds: Worlds::default(),
        },
        ..spec(4)
    }
}

pub(super) fn hello(at: &str, from: &str, port: u16) -> ToRoot {
    let own = at.split(' ').filter(|at| !at.is_empty()).map(OsBytes::from);
    let at: Capped<OsBytes, { rlaunch_protocol::wire::to_root::ADDRESSES }> =
        Capped::chunks(own).pop().unwrap_or_default();
    let probe_ports = Capped::chunks(at.iter().map(|_| 20_000)).pop().unwrap_or_default();
    let reached = Some(Reached { from: from.into(), at, probe_ports, has: OsBytes::default() });
    let reached = reached.filter(|reached| !reached.at.is_empty());
    ToRoot::Hello(Hello { master_port: port, agent: 5, reached, ..Hello::of(Tier::T3) })
}

pub(super) fn starts(s: &Script) -> Vec<(NodeId, Start)> {
    let start = |(node, msg): (&NodeId, &ToNode)| {
        if let ToNode::Start(start) = msg { Some((*node, start.clone())) } else { None }
    };
    s.to.iter().zip(&s.sent).filter_map(start).collect()
}

/// The ranks that each node was ordered to run.
pub(super) fn ranks(s: &Script) -> Vec<(u32, u32, u32)> {
    let spawn = |(node, msg): (&NodeId, &ToNode)| {
        let procs = if let ToNode::Spawn { procs, .. } = msg { procs.clone().into_vec() } else { vec![] };
        procs.into_iter().map(|d| (node.get(), d.rank.get(), d.local_rank.get())).collect::<Vec<_>>()
    };
    s.to.iter().zip(&s.sent).flat_map(spawn).collect()
}

/// The rendezvous that each node was sent.
pub(super) fn met(s: &Script) -> Vec<(u32, Rendezvous)> {
    let meet = |(node, msg): (&NodeId, &ToNode)| {
        if let ToNode::Rendezvous(rendezvous) = msg { Some((node.get(), rendezvous.clone())) } else { None }
    };
    s.to.iter().zip(&s.sent).filter_map(meet).collect()
}

pub(super) fn recipients(s: &Script, what: &ToNode) -> Vec<u32> {
    s.to.iter().zip(&s.sent).filter(|(_, msg)| *msg == what).map(|(node, _)| node.get()).collect()
}

/// Both hosts have their ranks.
pub(super) fn running() -> Script {
    running_by(&two(false))
}

pub(super) fn running_by(spec: &JobSpec) -> Script {
    let mut s = Script::new(spec);
    for node in [NODE, OTHER] {
        s.event(JobEvent::EdgeUp { node });
        s.receive_from(node, &hello("10.0.0.1", "10.0.0.9", 20_000)).receive_from(node, &ToRoot::Ready);
    }
    for n in 0..4 {
        let started = Started { proc: ProcId::new(n), pid: 100 + n, at: HostTime(MS) };
        s.receive_from(NodeId::new(n / 2), &ToRoot::Started { procs: Capped::chunks([started]).remove(0) });
    }
    s.to.clear();
    s.sent.clear();
    s
}

pub(super) fn exits(s: &mut Script, rank: u32, status: Status, at: u64) {
    let (proc, at) = (ProcId::new(rank), HostTime(at * MS));
    let asked = status == killed(Signal::TERM);
    let exited = Exited { proc, status, at, alive_at: at, asked, usage: Usage::default() };
    s.receive_from(NodeId::new(rank / 2), &ToRoot::Exited(exited));
}

pub(super) fn done(s: &mut Script, node: NodeId, left: u32) {
    s.receive_from(node, &ToRoot::Done { left, named: Capped::default() });
}

#[test]
fn no_rank_starts_before_all_hosts_are_ready() {
    let mut s = Script::new(&two(false));
    assert_eq!((s.asked.clone(), s.sent.len()), (vec![NODE, OTHER], 0));
    s.event(JobEvent::EdgeUp { node: OTHER }).event(JobEvent::EdgeUp { node: NODE });
    let starts: Vec<_> = starts(&s)
        .into_iter()
        .map(|(node, s)| (node.get(), s.local_size, s.nodes, s.port, s.sole, s.rendezvous))
        .collect();
    assert_eq!(starts, [(1, 2, 2, PortPlan::None, false, None), (0, 2, 2, PortPlan::Choose, false, None)]);
    s.receive_from(NODE, &hello("10.0.0.1", "10.0.0.9", 20_000)).receive_from(NODE, &ToRoot::Ready);
    s.receive_from(OTHER, &hello("10.0.0.2", "10.0.0.9", 0));
    assert_eq!(ranks(&s), [], "one has not checked its program");
    s.receive_from(OTHER, &ToRoot::Ready);
    assert_eq!(ranks(&s), [(0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 3, 1)]);
    let at = |node_index| Rendezvous {
        addr: "10.0.0.1".into(),
        port: Some(20_000),
        world_size: 4,
        nodes: 2,
        node_index,
        ..Rendezvous::default()
    };
    assert_eq!(met(&s), [(0, at(0)), (1, at(1))]);
    assert!(starts_have_lease(&s));
}

fn starts_have_lease(s: &Script) -> bool {
    starts(s).iter().all(|(_, start)| start.lease() == Some(Span::from_secs(30)))
}

#[test]
fn ranks_meet_at_the_launchers_host_by_the_address_that_others_see() {
    let mut s = Script::new(&two(true));
    assert_eq!(s.asked, [OTHER], "its own agent is there");
    assert!(starts(&s)[0].1.lease().is_none(), "its edge cannot break unnoticed");
    s.receive_from(NODE, &hello("10.1.0.9 10.0.0.9", "", 20_000)).receive_from(NODE, &ToRoot::Ready);
    s.event(JobEvent::EdgeUp { node: OTHER })
        .receive_from(OTHER, &hello("10.0.0.2", "10.0.0.9", 0))
        .receive_from(OTHER, &ToRoot::Ready);
    let places: Vec<_> =
        met(&s).into_iter().map(|(node, rendezvous)| (node, rendezvous.addr, rendezvous.port)).collect();
    assert_eq!(places, [(0, "10.0.0.9".into(), Some(20_000)), (1, "10.0.0.9".into(), Some(20_000))]);
}

#[test]
fn an_address_that_is_not_rank_0s_own_leaves_the_store_to_it() {
    use rlaunch_protocol::master_store::{ForAgent, Holder};
    for (own, why, held) in [
        ("10.0.0.1", ForAgent::Python, true),
        ("192.168.0.1", ForAgent::Python, false),
        ("192.168.0.1", ForAgent::Asked, true),
    ] {
        let mut s = Script::new(&two(false).with(|settings| settings.store.holder = Holder::Agent(why)));
        s.event(JobEvent::EdgeUp { node: OTHER }).event(JobEvent::EdgeUp { node: NODE });
        let ToRoot::Hello(first) = hello("10.0.0.1", "10.0.0.9", 20_000) else { unreachable!() };
        let own: core::net::IpAddr = own.parse().unwrap();
        let addresses = Capped::chunks([own.into()]).remove(0);
        s.receive_from(NODE, &ToRoot::Hello(Hello { addresses, ..first })).receive_from(NODE, &ToRoot::Ready);
        s.receive_from(OTHER, &hello("10.0.0.2", "10.0.0.9", 0)).receive_from(OTHER, &ToRoot::Ready);
        assert!(met(&s).iter().all(|(_, rendezvous)| rendezvous.agent_store == held), "{own} {why:?}");
        let left = What::News(JobNews::StoreLeft { addr: "10.0.0.1".into() });
        assert_eq!(s.said.contains(&left), !held, "{own} {why:?}");
    }
}

#[test]
fn all_hosts_that_fail_are_waited_for_and_named() {
    let mut s = Script::new(&two(false));
    let why = |text: &str| HostFailure { why: text.into(), ..HostFailure::default() };
    s.event(JobEvent::HostFailed { node: OTHER, why: why("no such name") });
    assert!(s.finished.is_none() && s.given_up.is_empty());
    s.event(JobEvent::HostFailed { node: NODE, why: why("denied") }).drained();
    assert_eq!(s.finished, Some(Ending::Code(125)));
    assert_eq!(s.cause(), Cause::Unreachable { node: NODE, failed: 2, asked: 2 });
    let report = s.last_report();
    assert_eq!(report.unreached.iter().map(|(node, _)| node.get()).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(report.left, Some(0), "nothing was started");
}

#[test]
fn failing_host_rolls_back_the_others() {
    let mut s = Script::new(&two(false));
    s.event(JobEvent::HostFailed { node: NODE, why: HostFailure::default() });
    s.event(JobEvent::EdgeUp { node: OTHER }).receive_from(OTHER, &hello("10.0.0.2", "10.0.0.9", 0));
    assert_eq!(recipients(&s, &ToNode::Kill), [0_u32; 0]);
    s.receive_from(OTHER, &ToRoot::Ready);
    assert_eq!(recipients(&s, &ToNode::Kill), [1]);
    assert_eq!(ranks(&s), []);
    done(&mut s, OTHER, 0);
    s.drained();
    assert_eq!(s.cause(), Cause::Unreachable { node: NODE, failed: 1, asked: 2 });
}

#[test]
fn an_ending_gives_up_hosts_that_are_not_there() {
    let mut s = Script::new(&two(false));
    s.event(JobEvent::EdgeUp { node: OTHER }).signal(Signal::INT);
    assert_eq!((s.given_up.clone(), recipients(&s, &ToNode::Kill)), (vec![NODE], vec![]));
    s.event(JobEvent::EdgeUp { node: NODE });
    assert_eq!(recipients(&s, &ToNode::Kill), [0], "it came too late");
    done(&mut s, NODE, 0);
    done(&mut s, OTHER, 0);
    s.drained();
    assert_eq!(s.finished, Some(Ending::Signal(Signal::INT)));
}

#[test]
fn nodes_are_notified_when_all_ranks_have_ended() {
    let mut s = running();
    for rank in [2, 3, 0] {
        exits(&mut s, rank, exit(0), 5);
    }
    assert_eq!(s.sent, []);
    exits(&mut s, 1, exit(0), 6);
    assert_eq!(recipients(&s, &ToNode::Finish), [0, 1]);
    done(&mut s, OTHER, 0);
    assert_eq!(s.drains, 0, "the other has not counted");
    done(&mut s, NODE, 0);
    s.drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(0)), Some(0)));
}

#[test]
fn a_failure_ends_the_ranks_of_all_nodes_and_what_is_left_is_summed() {
    let mut s = running();
    exits(&mut s, 2, exit(3), 5);
    assert_eq!(recipients(&s, &ToNode::End { sig: Signal::TERM, grace: Span::from_secs(5) }), [0, 1]);
    for rank in [0, 1, 3] {
        exits(&mut s, rank, killed(Signal::TERM), 6);
    }
    done(&mut s, NODE, 1);
    done(&mut s, OTHER, 2);
    s.drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(3)), Some(3)));
}

#[test]
fn a_node_cannot_speak_of_ranks_of_another() {
    let mut s = running();
    let exited = |rank| Exited {
        proc: ProcId::new(rank),
        status: exit(9),
        at: HostTime(5 * MS),
        alive_at: HostTime(5 * MS),
        asked: false,
        usage: Usage::default(),
    };
    s.receive_from(OTHER, &ToRoot::Exited(exited(0))).receive_from(
        OTHER,
        &ToRoot::SpawnFailed {
            proc: ProcId::new(1),
            error: SpawnError { step: SpawnStep::Exec, errno: 2, path: OsBytes::default(), found: Found::Nothing },
        },
    );
    assert_eq!(s.sent, []);
}

#[test]
fn silent_host_is_lost_only_after_its_lease_has_surely_expired() {
    let mut s = running();
    s.wait(20_000).event(JobEvent::Beat { node: NODE, beat: Beat { own: 7, echo: 0 } });
    assert_eq!(s.beats.last().map(|(node, beat)| (node.get(), beat.echo)), Some((0, 7)), "its own reading is repeated");
    // 30 s, 1 % of drift, and 6 s for a guardian that is slow.
    s.wait(16_299);
    assert_eq!(s.closed, []);
    s.wait(1);
    assert_eq!(s.closed, [OTHER]);
    let grace = two(false).settings.ending.grace;
    assert_eq!(
        recipients(&s, &ToNode::End { sig: Signal::TERM, grace }),
        [0, 1],
        "the others are asked as after any failure"
    );
    for rank in [0, 1] {
        exits(&mut s, rank, killed(Signal::TERM), 6);
    }
    done(&mut s, NODE, 0);
    s.drained();
    assert_eq!(s.cause(), Cause::Lost { node: OTHER, lost: Lost::NoHeartbeat });
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(125)), None), "nobody could count there");
    assert_eq!((s.last_report().uncounted(), s.last_report().other_losses()), (vec![OTHER], vec![]));
    assert_eq!(s.last_report().others().last().unwrap().became, Became::NoContact);
}

#[test]
fn host_lost_after_another_is_reported_with_its_own_loss() {
    let mut s = running();
    s.wait(20_000).event(JobEvent::Beat { node: NODE, beat: Beat { own: 7, echo: 0 } });
    s.wait(16_300).event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    s.event(JobEvent::GuardianEnded { node: NODE, end: GuardianEnd::Record { left: 0, named: vec![] } }).drained();
    assert_eq!(s.cause(), Cause::Lost { node: OTHER, lost: Lost::NoHeartbeat });
    let report = s.last_report();
    assert_eq!((report.together.len(), report.other_losses()), (0, vec![(Lost::Agent(CloseReason::Eof), vec![NODE])]));
    let became: Vec<_> = report.others().iter().map(|group| (group.became, group.ranks.len())).collect();
    assert_eq!(became, [(Became::Ended, 2), (Became::NoContact, 2)], "of one host somebody has counted");
}

#[test]
fn failures_of_different_hosts_are_compared_within_what_is_known_of_their_clocks() {
    // The other host's clock is 100 s ahead; a beat took 20 ms there and back.
    let script = |earlier: u64| {
        let mut s = running();
        let now = harness::START + 1_000;
        s.wait(1_000);
        let first = Beat { own: (now + 100_000 - 30) * MS, echo: 0 };
        let beat = Beat { own: (now + 100_000 - 10) * MS, echo: (now - 20) * MS };
        s.event(JobEvent::Beat { node: OTHER, beat: first }).event(JobEvent::Beat { node: OTHER, beat });
        exits(&mut s, 2, exit(2), now - 30 + 100_000 - earlier);
        exits(&mut s, 0, crash(), now - 30);
        exits(&mut s, 1, killed(Signal::TERM), now + 1);
        exits(&mut s, 3, killed(Signal::TERM), now + 100_001);
        done(&mut s, NODE, 0);
        done(&mut s, OTHER, 0);
        s.drained();
        s.cause()
    };
    let rank = |cause| if let Cause::Rank { rank, .. } = cause { rank.get() } else { panic!("{cause:?}") };
    assert_eq!(rank(script(0)), 0, "the order is not known: the crash explains more");
    assert_eq!(rank(script(9)), 0, "10 ms either way");
    assert_eq!(rank(script(11)), 2, "it was surely earlier");
}

#[test]
fn a_host_whose_lease_ran_out_has_counted_and_says_so() {
    let mut s = running();
    s.event(JobEvent::GuardianEnded { node: OTHER, end: GuardianEnd::Expired { left: 0, named: vec![] } });
    s.event(JobEvent::EdgeClosed { node: OTHER, why: CloseReason::Eof });
    let grace = two(false).settings.ending.grace;
    assert_eq!(recipients(&s, &ToNode::End { sig: Signal::TERM, grace }), [0, 1]);
    for rank in [0, 1] {
        exits(&mut s, rank, killed(Signal::TERM), 6);
    }
    done(&mut s, NODE, 0);
    s.drained();
    assert_eq!(s.cause(), Cause::Lost { node: OTHER, lost: Lost::Expired });
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(125)), Some(0)));
    assert_eq!(s.last_report().others().last().unwrap().became, Became::Ended);
}

#[test]
fn host_with_killed_carrier_is_awaited_until_its_lease_expires() {
    let mut s = running();
    let why = CloseReason::Carrier(CarrierKind::Ssh, CarrierEnd::Signal(9));
    s.wait(1_000).event(JobEvent::EdgeClosed { node: OTHER, why });
    let awaited = What::News(JobNews::HostAwaited { node: OTHER, within: Span::from_millis(35_300) });
    assert!(s.said.contains(&awaited), "the user knows how long: {:?}", s.said);
    for rank in [0, 1] {
        exits(&mut s, rank, killed(Signal::TERM), 6);
    }
    done(&mut s, NODE, 0);
    s.wait(35_299);
    assert_eq!(s.drains, 0, "its ranks may live");
    s.wait(1).drained();
    assert_eq!(s.cause(), Cause::Lost { node: OTHER, lost: Lost::Agent(why) });
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(125)), None));
}

/// A job whose other host's clock is 100 s ahead, 80 ms there and back, which are 40 ms either way; and what time it is, in ms.
fn far_away() -> (Script, u64) {
    let mut s = running();
    let now = harness::START + 1_000;
    s.wait(1_000);
    let first = Beat { own: (now + 100_000 - 60) * MS, echo: 0 };
    let beat = Beat { own: (now + 100_000 - 40) * MS, echo: (now - 80) * MS };
    s.event(JobEvent::Beat { node: OTHER, beat: first }).event(JobEvent::Beat { node: OTHER, beat });
    (s, now)
}

/// The uncertainty about a host's clock does not matter between two of its ranks.
#[test]
fn earlier_failure_on_one_host_is_named_with_any_clock() {
    let (mut s, now) = far_away();
    exits(&mut s, 2, exit(3), now - 30 + 100_000);
    exits(&mut s, 3, crash(), now - 26 + 100_000);
    exits(&mut s, 0, killed(Signal::TERM), now + 10);
    exits(&mut s, 1, killed(Signal::TERM), now + 10);
    done(&mut s, NODE, 0);
    done(&mut s, OTHER, 0);
    s.drained();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(2), status: exit(3) });
}

/// Its word is long under way, and its clock is known only as well as that: it may have been first.
#[test]
fn an_earlier_failure_elsewhere_counts_though_its_time_is_known_badly() {
    let (mut s, now) = far_away();
    exits(&mut s, 0, exit(1), now - 1);
    s.wait(30);
    exits(&mut s, 2, crash(), now - 20 + 100_000);
    exits(&mut s, 1, killed(Signal::TERM), now + 10);
    exits(&mut s, 3, killed(Signal::TERM), now + 100_010);
    done(&mut s, NODE, 0);
    done(&mut s, OTHER, 0);
    s.drained();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(2), status: crash() });
    let others = s.last_report().others();
    let failed = others.iter().find(|group| group.became == Became::Failed(exit(1))).unwrap();
    assert_eq!(failed.ranks, [Rank::new(0)], "it failed by itself too");
}

#[test]
fn all_hosts_that_refuse_are_waited_for_and_named() {
    let refuse = |n| NodeRefusal::Program {
        app: AppIndex::new(n),
        error: SpawnError { step: SpawnStep::ChangeDir, errno: 2, path: "/data".into(), found: Found::Nothing },
    };
    let mut s = Script::new(&two(false));
    for node in [NODE, OTHER] {
        s.event(JobEvent::EdgeUp { node });
    }
    s.receive_from(OTHER, &hello("10.0.0.2", "10.0.0.9", 0)).receive_from(OTHER, &ToRoot::Refused(refuse(0)));
    done(&mut s, OTHER, 0);
    assert_eq!((s.finished, recipients(&s, &ToNode::Kill)), (None, vec![]), "the other may have something to say, too");
    s.receive_from(NODE, &ToRoot::Refused(refuse(1)));
    done(&mut s, NODE, 0);
    s.drained();
    assert_eq!(s.finished, Some(Ending::Code(125)));
    assert_eq!(s.cause(), Cause::Refused { node: NODE, why: refuse(1) });
    let report = s.last_report();
    assert_eq!(report.refused, [(OTHER, refuse(0)), (NODE, refuse(1))]);
    assert_eq!(report.left, Some(0));
}

#[test]
fn a_host_that_refuses_and_one_that_is_not_reached_are_both_missing() {
    let mut s = Script::new(&two(false));
    s.event(JobEvent::EdgeUp { node: NODE }).receive_from(NODE, &ToRoot::Refused(NodeRefusal::NoPort));
    done(&mut s, NODE, 0);
    s.event(JobEvent::HostFailed { node: OTHER, why: HostFailure::default() }).drained();
    assert_eq!(s.cause(), Cause::Unreachable { node: OTHER, failed: 2, asked: 2 });
    assert_eq!(s.last_report().left, Some(0));
}

/// The rendezvous that nodes are sent in a job whose rank 0 runs here, at `own`, and whose other host has seen us at `from`.
fn met_here(own: &str, from: &str) -> (Option<OsBytes>, usize) {
    let mut s = Script::new(&two(true));
    s.receive_from(NODE, &hello(own, "", 20_000))
        .receive_from(NODE, &ToRoot::Ready)
        .event(JobEvent::EdgeUp { node: OTHER });
    s.receive_from(OTHER, &hello("10.0.0.2", from, 0)).receive_from(OTHER, &ToRoot::Ready);
    let meet =
        |msg: &ToNode| if let ToNode::Rendezvous(rendezvous) = msg { Some(rendezvous.addr.clone()) } else { None };
    (s.sent.iter().find_map(meet), s.said.len())
}

#[test]
fn rank_0_here_is_found_at_an_address_of_its_own() {
    let own = "10.0.0.9 192.168.0.9 172.17.0.1";
    for (own, from, addr, notes) in [
        (own, "10.0.0.9", "10.0.0.9", 0),
        (own, "192.168.0.9", "192.168.0.9", 0),
        // Seen there, so it is no accident.
        (own, "172.17.0.1", "172.17.0.1", 0),
        // The jump host's.
        (own, "10.9.9.9", "10.0.0.9", 0),
        (own, "127.0.0.1", "10.0.0.9", 0),
    ] {
        assert_eq!(met_here(own, from), (Some(addr.into()), notes), "{from}");
    }
}

#[test]
fn limits_that_are_lower_elsewhere_are_said_once_for_all_hosts() {
    let mut s = Script::new(&two(false));
    let lowered = rlaunch_protocol::travel::Lowered { on: rlaunch_protocol::travel::Resource::Core, to: 0 };
    for node in [NODE, OTHER] {
        let ToRoot::Hello(hello) = hello("10.0.0.1", "10.0.0.9", 20_000) else { panic!() };
        let hello = Hello { lowered: Capped::chunks([lowered]).remove(0), ..hello };
        s.event(JobEvent::EdgeUp { node }).receive_from(node, &ToRoot::Hello(hello)).receive_from(node, &ToRoot::Ready);
    }
    assert_eq!(s.said, [What::News(JobNews::LimitLowered { lowered, nodes: vec![NODE, OTHER] })]);
}

/// Each letter is one host of the job, named `h0`, `h1` ..., and the machine that it is.
#[test]
fn hosts_that_are_one_machine_are_said_in_one_line() {
    for (machines, said) in [
        ("m m", Some((&[0, 1][..], 0))),
        ("n m m o", Some((&[1, 2], 0))),
        ("m n n m n", Some((&[0, 3], 1))),
        ("m m m m m m", Some((&[0, 1, 2, 3, 4, 5], 0))),
        ("m n", None),
        // The machines are not known.
        (" ", None),
    ] {
        let machines: Vec<&str> = machines.split(' ').collect();
        let placed = |n| RankPlacement { node: NodeId::new(n), local_rank: LocalRank::new(0), app: AppIndex::new(0) };
        let named = |n| Host::named(&alloc::format!("h{n}"));
        let node = |(n, _): (usize, &&str)| Node::of(named(n), 1);
        let nodes: Vec<Node> = machines.iter().enumerate().map(node).collect();
        let ranks = u32::try_from(nodes.len()).unwrap();
        let placement = Placement {
            nodes,
            ranks: (0..ranks).map(placed).collect(),
            notes: vec![],
            processes: Processes::default(),
            order: vec![],
            worlds: Worlds::default(),
        };
        let mut s = Script::new(&JobSpec { placement, ..spec(ranks) });
        for (node, machine) in (0..).map(NodeId::new).zip(machines.iter().copied()) {
            let ToRoot::Hello(hello) = hello("10.0.0.1", "10.0.0.9", 20_000) else { panic!() };
            let hello = ToRoot::Hello(Hello { machine: machine.into(), ..hello });
            s.event(JobEvent::EdgeUp { node }).receive_from(node, &hello).receive_from(node, &ToRoot::Ready);
        }
        let news = |(nodes, more): (&[u32], u32)| {
            What::News(JobNews::OneMachine { nodes: nodes.iter().copied().map(NodeId::new).collect(), more })
        };
        assert_eq!(s.said, said.map(news).into_iter().collect::<Vec<_>>(), "{machines:?}");
    }
}

#[test]
fn travelling_settings_go_to_other_hosts_only() {
    let travel = rlaunch_protocol::travel::Travel { umask: 0o27, dir: "/data".into(), ..Default::default() };
    let setting = Setting { travel: travel.clone(), ..Setting::default() };
    let mut s = Script::with(&two(true), &setting);
    s.event(JobEvent::EdgeUp { node: OTHER });
    let sent: Vec<_> = starts(&s).into_iter().map(|(_, start)| (start.find.is_some(), start.travel)).collect();
    assert_eq!(sent, [(true, None), (false, Some(alloc::boxed::Box::new(travel)))]);
    assert_eq!(starts(&Script::with(&spec(1), &setting))[0].1.find, None, "nobody has to find the only host");
}
