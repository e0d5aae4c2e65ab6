//! Hosts that are lost after the start, and another generation without them.

use super::fewer::{left_out, three};
use super::hosts::{done, hello, recipients};
use super::*;
use rlaunch_base::capped::Capped;
use rlaunch_base::time::HostTime;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::rounds::{Limits, Rounds};
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::round::{Enrolled, RoundUp};
use rlaunch_protocol::wire::to_node::{PortPlan, Rendezvous};
use rlaunch_protocol::wire::to_root::{Exited, Started, Usage};

const UNHEARD: Lost = Lost::NoHeartbeat;
const EOF: CloseReason = CloseReason::Eof;

pub(super) fn node(n: u32) -> NodeId {
    NodeId::new(n)
}

pub(super) fn least(min_world: Option<u32>) -> Limits {
    Limits { min_world, ..Limits::default() }
}

/// Two ranks on each of three hosts, which run; they may be started again once.
fn runs(limits: Limits) -> Script {
    let rounds = Rounds { limits, ..Rounds::default() };
    let restarts = Restarts::of(1, Span::from_secs(1));
    run(&JobSpec { rounds, min_hosts: None, ..three(3) }.with(|settings| settings.restarts = restarts))
}

/// Ranks run.
pub(super) fn run(spec: &JobSpec) -> Script {
    run_at(spec, "10.0.0")
}

/// The same; this is the network in which hosts reach each other.
fn run_at(spec: &JobSpec, net: &'static str) -> Script {
    let mut s = Script::new(spec);
    s.net = net;
    for n in 0..3 {
        if !spec.placement.nodes[n as usize].local {
            s.event(JobEvent::EdgeUp { node: node(n) });
        }
        s.receive_from(node(n), &hello(&alloc::format!("10.0.0.{}", n + 1), "10.0.0.9", 20_000));
        s.receive_from(node(n), &ToRoot::Ready);
    }
    started(&mut s, 0, &[0, 1, 2]);
    forget(&mut s);
    s
}

pub(super) fn forget(s: &mut Script) {
    s.to.clear();
    s.sent.clear();
}

/// Starts the ranks of these hosts, in their order, after the process of this number.
pub(super) fn started(s: &mut Script, first: u32, hosts: &[u32]) {
    for (n, host) in (0..).zip(hosts.iter().flat_map(|host| [host, host])) {
        let started = Started { proc: ProcId::new(first + n), pid: 100 + n, at: Script::at(s.now).host_time() };
        s.receive_from(node(*host), &ToRoot::Started { procs: Capped::chunks([started]).remove(0) });
    }
}

pub(super) fn ends(s: &mut Script, host: u32, proc: u32, status: Status) {
    let at = HostTime(Script::at(s.now).nanos());
    let (proc, usage) = (ProcId::new(proc), Usage::default());
    s.receive_from(node(host), &ToRoot::Exited(Exited { proc, status, at, alive_at: at, asked: false, usage }));
}

pub(super) fn cleared(s: &mut Script, host: u32) {
    let port = 31_000 + u16::try_from(host).unwrap();
    s.receive_from(node(host), &ToRoot::Cleared { left: 0, named: Capped::default(), port });
}

/// Time passes, in which these hosts send heartbeats.
pub(super) fn beats(s: &mut Script, seconds: u32, hosts: &[u32]) {
    for _ in 0..seconds {
        s.wait(1000);
        let own = Script::at(s.now).nanos();
        hosts.iter().for_each(|host| {
            s.event(JobEvent::Beat { node: node(*host), beat: Beat { own, echo: own } });
        });
    }
}

/// The rendezvous of the next generation, and its processes.
pub(super) fn restart_orders(s: &Script) -> (Vec<(u32, Rendezvous)>, Vec<u32>) {
    let to = || s.to.iter().zip(&s.sent);
    let rendezvous = |(node, msg): (&NodeId, &ToNode)| {
        if let ToNode::Again(rendezvous) = msg { Some((node.get(), rendezvous.clone())) } else { None }
    };
    let procs = |(_, msg): (&NodeId, &ToNode)| {
        let ToNode::Spawn { procs, .. } = msg else { return vec![] };
        procs.clone().into_vec().iter().map(|delta| delta.proc.get()).collect()
    };
    (to().filter_map(rendezvous).collect(), to().flat_map(procs).collect())
}

/// The report to the user: the lost part, the hosts that are missing, the number of ranks.
fn said(s: &Script) -> Vec<(Option<NodeId>, Vec<NodeId>, u32)> {
    let fewer = |what: &What| {
        let What::Restart { fewer: Some(fewer), why: RestartCause::Failed { lost, node, .. }, .. } = what else {
            return None;
        };
        Some((lost.map(|_| *node), fewer.without.clone(), fewer.ranks))
    };
    s.said.iter().filter_map(fewer).collect()
}

/// Hosts 1 and 2 remain: ranks meet at the first of them.
fn meets_without_the_first(s: &Script) {
    let (meetings, procs) = restart_orders(s);
    let place = |(node, m): &(u32, Rendezvous)| (*node, m.node_index, m.nodes, m.world_size, m.restart, m.port);
    let places: Vec<_> = meetings.iter().map(place).collect();
    assert_eq!(places, [(1, 0, 2, 4, 1, Some(31_001)), (2, 1, 2, 4, 1, Some(31_001))]);
    assert!(meetings.iter().all(|(_, m)| m.addr == "10.0.0.2".into()), "{meetings:?}");
    assert_eq!(procs, [6, 7, 8, 9], "one number never means two ranks");
    assert_eq!((left_out(s), s.homes.last().copied()), (vec![(vec![0], 4)], Some((node(1), 1))));
    assert_eq!(s.placements.last().unwrap().ranks.len(), 4);
}

#[test]
fn ranks_are_started_again_on_the_hosts_that_are_left_when_those_of_the_lost_one_have_surely_ended() {
    let mut s = runs(least(Some(4)));
    s.event(JobEvent::EdgeClosed { node: node(0), why: EOF });
    assert_eq!(recipients(&s, &ToNode::Kill), [0], "the host may still receive it");
    let clear = ToNode::Clear { sig: Signal::TERM, grace: Span::from_secs(5), port: PortPlan::Choose };
    assert_eq!(recipients(&s, &clear), [1, 2]);
    [1, 2].into_iter().for_each(|host| cleared(&mut s, host));
    beats(&mut s, 5, &[1, 2]);
    assert_eq!((said(&s), restart_orders(&s).0.len()), (vec![], 0), "the ranks of the lost one may still run");
    // It would be reported again.
    s.event(JobEvent::EdgeClosed { node: node(0), why: EOF });
    beats(&mut s, 60, &[1, 2]);
    assert_eq!(said(&s), [(Some(node(0)), vec![node(0)], 4)]);
    meets_without_the_first(&s);
    forget(&mut s);
    started(&mut s, 6, &[1, 2]);
    // A late message of the first generation does not concern the second.
    ends(&mut s, 1, 3, exit(9));
    for (proc, host) in [(6, 1), (7, 1), (8, 2), (9, 2)] {
        ends(&mut s, host, proc, exit(0));
    }
    assert!(recipients(&s, &ToNode::Finish).ends_with(&[1, 2]), "{:?}", s.sent);
    [1, 2].into_iter().for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    let report = s.last_report();
    assert_eq!((s.finished, report.ranks.len(), report.restarts.len()), (Some(Ending::Code(0)), 4, 1));
    let RestartCause::Failed { node: of, lost, .. } = report.restarts[0].why else { panic!("no host was lost") };
    assert_eq!((of, lost), (node(0), Some(Lost::Agent(EOF))));
    assert_eq!((report.left, report.uncounted()), (None, vec![node(0)]), "nobody has counted there");
}

/// Its agent alone can end its ranks, and says nothing more, not even that it is there.
#[test]
fn a_host_that_is_lost_with_its_guardian_is_given_up_when_it_does_not_answer() {
    for loss in [ToRoot::GuardianLost, ToRoot::InitLost] {
        let mut s = runs(least(Some(4)));
        beats(&mut s, 1, &[0, 1, 2]);
        s.receive_from(node(0), &loss);
        assert_eq!(recipients(&s, &ToNode::Kill), [0], "{loss:?}");
        [1, 2].into_iter().for_each(|host| cleared(&mut s, host));
        beats(&mut s, 10, &[1, 2]);
        assert_eq!((s.severed, said(&s)), (0, vec![]), "the network may be slow");
        beats(&mut s, 1, &[1, 2]);
        let awaited = |what: &&What| matches!(what, What::News(JobNews::HostAwaited { .. }));
        assert_eq!((s.severed, s.said.iter().filter(awaited).count(), said(&s).len()), (1, 1, 0));
        beats(&mut s, 30, &[1, 2]);
        assert_eq!(said(&s), [(Some(node(0)), vec![node(0)], 4)], "its lease has expired");
        meets_without_the_first(&s);
    }
}

/// Its ssh may come by another one.
#[test]
fn a_host_that_comes_to_have_rank_0_is_met_by_the_address_by_which_it_had_found_that_of_rank_0() {
    for (net, met) in [("10.1.0", "10.1.0.2"), ("10.0.0", "10.0.0.2")] {
        let restarts = Restarts::of(1, Span::from_secs(1));
        let rounds = Rounds { limits: least(Some(4)), ..Rounds::default() };
        let mut s =
            run_at(&JobSpec { rounds, min_hosts: None, ..three(3) }.with(|settings| settings.restarts = restarts), net);
        s.event(JobEvent::GuardianEnded { node: node(0), end: GuardianEnd::Expired { left: 0, named: vec![] } });
        [1, 2].into_iter().for_each(|host| cleared(&mut s, host));
        beats(&mut s, 5, &[1, 2]);
        let (meetings, _) = restart_orders(&s);
        assert_eq!(meetings.len(), 2);
        assert!(meetings.iter().all(|(_, m)| m.addr == met.into()), "{meetings:?}");
    }
}

#[test]
fn without_the_users_word_or_without_enough_hosts_the_loss_ends_the_job() {
    for limits in [least(None), least(Some(5)), Limits { min_active: Some(5), ..least(None) }] {
        let mut s = runs(limits);
        s.event(JobEvent::GuardianEnded { node: node(0), end: GuardianEnd::Expired { left: 0, named: vec![] } });
        assert!(s.sent.iter().any(|msg| matches!(msg, ToNode::End { .. })), "{:?}", s.sent);
        [1, 2].into_iter().for_each(|host| done(&mut s, node(host), 0));
        s.drained();
        assert_eq!(s.cause(), Cause::Lost { node: node(0), lost: Lost::Expired });
        assert_eq!(s.finished, Some(Ending::Code(125)));
    }
}

/// Its guardian has still to end what ranks have left there.
#[test]
fn a_host_that_is_lost_when_all_ranks_have_succeeded_begins_nothing_anew() {
    let mut s = runs(least(Some(4)));
    (0..6).for_each(|proc| ends(&mut s, proc / 2, proc, exit(0)));
    s.event(JobEvent::GuardianEnded { node: node(0), end: GuardianEnd::Expired { left: 0, named: vec![] } });
    assert!(!s.sent.iter().any(|msg| matches!(msg, ToNode::Clear { .. })), "{:?}", s.sent);
}

#[test]
fn a_rank_may_fail_before_its_peers_host_is_known_as_lost() {
    let mut s = runs(least(Some(4)));
    beats(&mut s, 2, &[0, 1, 2]);
    ends(&mut s, 1, 2, exit(7));
    [1, 2].into_iter().for_each(|host| cleared(&mut s, host));
    beats(&mut s, 25, &[1, 2]);
    assert_eq!((s.finished, restart_orders(&s).0.len()), (None, 0), "by now a host that is there would be clear");
    beats(&mut s, 60, &[1, 2]);
    assert_eq!(said(&s), [(None, vec![node(0)], 4)]);
    meets_without_the_first(&s);
    assert!(s.log.iter().any(|what| matches!(what, What::HostLost { lost: UNHEARD, .. })));
}

#[test]
fn a_host_that_is_clear_may_be_lost_until_the_others_start() {
    for enough in [true, false] {
        let mut s = runs(least(Some(if enough { 4 } else { 6 })));
        ends(&mut s, 1, 2, exit(7));
        [0, 1, 2].into_iter().for_each(|host| cleared(&mut s, host));
        s.event(JobEvent::EdgeClosed { node: node(0), why: EOF });
        s.wait(1200);
        if enough {
            meets_without_the_first(&s);
            assert!(matches!(s.said.last(), Some(What::LeftOut { .. })), "all ranks were to start: {:?}", s.said);
        } else {
            assert_eq!(restart_orders(&s).0.len(), 0);
            assert!(s.sent.iter().any(|msg| matches!(msg, ToNode::End { .. })), "{:?}", s.sent);
        }
    }
}

#[test]
fn a_second_loss_counts_together_with_the_first() {
    for (enough, restarts) in [(2, 1), (3, 0)] {
        let mut s = runs(least(Some(enough)));
        for host in [0, 2] {
            let end = GuardianEnd::Expired { left: 0, named: vec![] };
            s.event(JobEvent::GuardianEnded { node: node(host), end });
        }
        cleared(&mut s, 1);
        s.wait(1200);
        assert_eq!(restart_orders(&s).0.len(), restarts, "{enough}");
    }
}

#[test]
fn rounds_that_are_used_up_when_a_host_is_lost_lead_to_a_generation_without_it() {
    let mut s = runs(Limits { max_rounds: Some(1), ..least(None) });
    for host in 0..3 {
        let one = |n: u32| Enrolled { initial: Rank::new(n), proc: ProcId::new(n), keys: Capped::default() };
        let ranks = Capped::chunks([2 * host, 2 * host + 1].map(one)).remove(0);
        s.receive_from(node(host), &ToRoot::Round(RoundUp::Joined { call: 0, ranks, terms: OsBytes::default() }));
    }
    s.event(JobEvent::GuardianEnded { node: node(0), end: GuardianEnd::Expired { left: 0, named: vec![] } });
    for host in [1, 2] {
        let round = rlaunch_base::id::Round::new(0);
        let up = RoundUp::Ready { round, ranks: Capped::default(), last: true, port: 21_000, pinged: false };
        s.receive_from(node(host), &ToRoot::Round(up));
    }
    [1, 2].into_iter().for_each(|host| cleared(&mut s, host));
    s.wait(1200);
    assert_eq!(said(&s), [(Some(node(0)), vec![node(0)], 4)]);
    let (meetings, procs) = restart_orders(&s);
    assert_eq!((meetings.len(), procs), (2, vec![6, 7, 8, 9]));
}

#[test]
fn a_given_port_is_claimed_by_the_host_that_gets_rank_0_and_no_other() {
    let rounds = Rounds { limits: least(Some(4)), ..Rounds::default() };
    let restarts = Restarts::of(1, Span::from_secs(1));
    let mut spec = JobSpec { rounds, min_hosts: None, ..three(3) }.with(|settings| settings.restarts = restarts);
    spec.apps[0].base.env = ["MASTER_PORT=5000"].iter().collect();
    spec.apps[0].base.pinned = ["MASTER_PORT"].iter().collect();
    let mut s = run(&spec);
    s.event(JobEvent::EdgeClosed { node: node(0), why: EOF });
    let clear = |port| ToNode::Clear { sig: Signal::TERM, grace: Span::from_secs(5), port };
    let ordered = (recipients(&s, &clear(PortPlan::Claim(5000))), recipients(&s, &clear(PortPlan::None)));
    assert_eq!(ordered, (vec![1], vec![2]));
}
