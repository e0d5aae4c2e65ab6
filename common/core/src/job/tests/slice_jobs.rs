//! Jobs on slices: the choice of slices, and the consequences of hosts that come, go and come back.

mod discovered;

use super::hosts::{done, hello, met};
use super::*;
use crate::events::{Obstacle, SliceNews};
use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::string::String;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, LocalRank};
use rlaunch_base::warnings::{Response, WarningSource};
use rlaunch_plan::bootstrap::HostFailure;
use rlaunch_plan::hostlist::{Chips, Host};
use rlaunch_plan::place::{Node, Placement, Processes, RankPlacement};
use rlaunch_plan::slices::{Grow, Sizes, SlicePlan, SlotId, slots};
use rlaunch_plan::tpu::TpuFacts;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_node::{Rendezvous, ToNode};
use rlaunch_protocol::wire::to_root::{Exited, Started, Usage};

const SECOND: u64 = 1000;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Five slices of two hosts with a rank each.
fn sliced(sizes: &[i64], restarts: Restarts) -> JobSpec {
    sliced_with(sizes, restarts, Grow::Next)
}

fn sliced_with(sizes: &[i64], restarts: Restarts, grow: Grow) -> JobSpec {
    let chips = |n: u32| Chips { hosts: 2, ..Chips::of(NAMES[n as usize / 2], n % 2, 4) };
    let node = |n: u32| Node { chips: Some(chips(n)), ..Node::of(Host::named(&alloc::format!("n{n}")), 1) };
    let nodes: Vec<Node> = (0..10).map(node).collect();
    let placed = |n: u32| RankPlacement { node: NodeId::new(n), local_rank: LocalRank::new(0), app: AppIndex::new(0) };
    let plan = SlicePlan {
        sizes: Sizes::new(sizes, 5).unwrap(),
        slots: slots(&nodes).unwrap(),
        spares: 1,
        timeout: Span::from_secs(60),
        grow,
    };
    let ranks = (0..10).map(placed).collect();
    let whole = Placement {
        nodes,
        ranks,
        notes: vec![],
        processes: Processes::default(),
        order: vec![],
        worlds: rlaunch_plan::place::Worlds::default(),
    };
    let order = plan.hosts((0..5).map(SlotId::new));
    JobSpec { placement: whole.of_hosts(&order), slices: Some(plan), ..spec(10) }.with(|settings| {
        settings.restarts = restarts;
        settings.hosts.lease = Span::from_secs(3600);
    })
}

fn retries() -> Restarts {
    Restarts { most: 0, delay: Span::from_secs(1), preempt: 9, ..Restarts::default() }
}

fn node(n: u32) -> NodeId {
    NodeId::new(n)
}

/// A host comes up.
fn up(s: &mut Script, n: u32) {
    s.event(JobEvent::EdgeUp { node: node(n) });
    let ToRoot::Hello(mut hello) =
        hello(&alloc::format!("10.0.0.{}", n + 1), "10.0.0.99", 20_000 + u16::try_from(n).unwrap())
    else {
        panic!()
    };
    hello.tpu = Some(Box::new(TpuFacts::of_hostfile(NAMES[n as usize / 2], n % 2, 4)));
    s.receive_from(node(n), &ToRoot::Hello(hello)).receive_from(node(n), &ToRoot::Ready);
}

fn slice_up(s: &mut Script, slice: u32) {
    up(s, 2 * slice);
    up(s, 2 * slice + 1);
}

fn forget(s: &mut Script) {
    s.sent.clear();
    s.to.clear();
    s.asked.clear();
    s.log.clear();
}

/// The rendezvous of hosts that start ranks: `(host, again, rendezvous)`.
fn started(s: &Script) -> Vec<(u32, bool, Rendezvous)> {
    let meet = |(node, msg): (&NodeId, &ToNode)| {
        let is_again = matches!(msg, ToNode::Again(_));
        let (ToNode::Rendezvous(rendezvous) | ToNode::Again(rendezvous)) = msg else { return None };
        Some((node.get(), is_again, rendezvous.clone()))
    };
    s.to.iter().zip(&s.sent).filter_map(meet).collect()
}

/// The hosts of all ranks, and whether they had ranks before.
fn hosts(s: &Script) -> Vec<(u32, bool)> {
    started(s).into_iter().map(|(host, again, _)| (host, again)).collect()
}

/// The number of the slice of each host, and of all slices.
fn numbers(s: &Script) -> Vec<(u32, u32, u32)> {
    let of = |(host, _, rendezvous): (u32, bool, Rendezvous)| {
        let tpu = rendezvous.tpu.unwrap();
        (host, tpu.slice_number, tpu.slices)
    };
    started(s).into_iter().map(of).collect()
}

/// All ranks run.
fn runs(s: &mut Script) {
    let asked: Vec<(NodeId, ProcId)> =
        s.to.iter()
            .zip(&s.sent)
            .filter_map(|(node, msg)| {
                if let ToNode::Spawn { procs, .. } = msg { Some((*node, procs.clone().into_vec())) } else { None }
            })
            .flat_map(|(node, procs)| procs.into_iter().map(move |delta| (node, delta.proc)))
            .collect();
    for (node, proc) in asked {
        let started = Started { proc, pid: 100 + proc.get(), at: Script::at(s.now).host_time() };
        s.receive_from(node, &ToRoot::Started { procs: Capped::chunks([started]).remove(0) });
    }
}

fn cleared(s: &mut Script, n: u32) {
    s.receive_from(
        node(n),
        &ToRoot::Cleared { left: 0, named: Capped::default(), port: 30_000 + u16::try_from(n).unwrap() },
    );
}

/// Four slices run, and the fifth is spare.
fn running() -> Script {
    let mut s = Script::new(&sliced(&[2, 4], retries()));
    (0..5).for_each(|slice| slice_up(&mut s, slice));
    runs(&mut s);
    forget(&mut s);
    s
}

/// The agent of a host is gone, and its guardian has counted.
fn lose(s: &mut Script, n: u32) {
    s.event(JobEvent::GuardianEnded { node: node(n), end: GuardianEnd::Record { left: 0, named: vec![] } });
}

fn news(s: &Script) -> Vec<JobNews> {
    s.log.iter().filter_map(|what| if let What::News(news) = what { Some(news.clone()) } else { None }).collect()
}

fn slices(s: &Script) -> Vec<(String, usize)> {
    let of = |what: &What| {
        let What::Slices(taken) = what else { return None };
        let names: Vec<String> = taken.slices.iter().map(alloc::string::ToString::to_string).collect();
        Some((names.concat(), taken.spares.len()))
    };
    s.log.iter().filter_map(of).collect()
}

#[test]
fn largest_size_starts_as_soon_as_it_is_up_and_later_slices_are_spare() {
    let mut s = Script::new(&sliced(&[2, 4], retries()));
    assert_eq!(s.asked.len(), 10, "all hosts are reached at a time");
    [4, 2, 0].into_iter().for_each(|slice| slice_up(&mut s, slice));
    assert_eq!(met(&s).len(), 0, "three are up, and the largest size may still come");
    slice_up(&mut s, 1);
    let order: Vec<(u32, bool)> = [0, 1, 2, 3, 4, 5, 8, 9].map(|host| (host, false)).to_vec();
    assert_eq!(hosts(&s), order, "slices close up in the order of the hostfile");
    assert_eq!(numbers(&s)[6], (8, 3, 4));
    assert_eq!(slices(&s), [("abce".into(), 0)]);
    runs(&mut s);
    forget(&mut s);
    slice_up(&mut s, 3);
    assert_eq!((started(&s), s.finished), (vec![], None));
}

#[test]
fn fewer_slices_start_at_the_deadline() {
    let mut s = Script::new(&sliced(&[2, 4], retries()));
    [0, 1, 3].into_iter().for_each(|slice| slice_up(&mut s, slice));
    s.wait(59 * SECOND);
    assert_eq!(started(&s), []);
    s.wait(2 * SECOND);
    assert_eq!(hosts(&s), [0, 1, 2, 3].map(|host| (host, false)));
    assert_eq!(slices(&s), [("ab".into(), 1)]);
    runs(&mut s);
    forget(&mut s);
    slice_up(&mut s, 2);
    s.wait(58 * SECOND);
    assert_eq!(news(&s), []);
    s.wait(3 * SECOND);
    assert_eq!(
        news(&s),
        [JobNews::Slices(SliceNews::Larger { size: 4, running: 2, restarts: false })],
        "a healthy run is not disturbed"
    );
    assert_eq!(started(&s), []);
}

/// Two slices run since the deadline, with `--grow now`, and the other two are up.
fn before_growth() -> Script {
    before_growth_with(retries())
}

fn before_growth_with(restarts: Restarts) -> Script {
    let mut s = Script::new(&sliced_with(&[2, 4], restarts, Grow::Now));
    [0, 1, 3].into_iter().for_each(|slice| slice_up(&mut s, slice));
    s.wait(61 * SECOND);
    runs(&mut s);
    forget(&mut s);
    slice_up(&mut s, 2);
    s.wait(58 * SECOND);
    assert_eq!(news(&s), []);
    s
}

/// The hosts that were ordered to end their ranks.
fn clears(s: &Script) -> Vec<u32> {
    let all = s.to.iter().zip(&s.sent).filter(|(_, msg)| matches!(msg, ToNode::Clear { .. }));
    all.map(|(to, _)| to.get()).collect()
}

/// A rank exits. `asked`: after the order to end.
fn exits(s: &mut Script, proc: u32, host: u32, status: Status, asked: bool) {
    let at = Script::at(s.now).host_time();
    let exited = Exited { proc: ProcId::new(proc), status, at, alive_at: at, asked, usage: Usage::default() };
    s.receive_from(node(host), &ToRoot::Exited(exited));
}

fn restarts(s: &Script) -> Vec<(u32, RestartCause)> {
    let of = |what: &What| if let What::Restart { restart, why, .. } = what { Some((*restart, *why)) } else { None };
    s.log.iter().filter_map(of).collect()
}

#[test]
fn ranks_start_again_on_more_slices_when_the_job_grows_now() {
    let mut s = before_growth();
    s.wait(3 * SECOND);
    assert_eq!(news(&s), [JobNews::Slices(SliceNews::Larger { size: 4, running: 2, restarts: true })]);
    assert_eq!(clears(&s), [0, 1, 2, 3]);
    // Ranks that the order to end has killed are no failures.
    (0..4).for_each(|rank| exits(&mut s, rank, rank, killed(Signal::TERM), true));
    (0..4).for_each(|host| cleared(&mut s, host));
    s.wait(1);
    assert_eq!(restarts(&s), [(1, RestartCause::Grown { size: 4, running: 2 })]);
    assert_eq!(slices(&s), [("abcd".into(), 0)]);
    let expected: Vec<(u32, bool)> = (0..8).map(|host| (host, host < 4)).collect();
    assert_eq!(hosts(&s), expected, "no healthy slice has left its place");
    runs(&mut s);
    forget(&mut s);
    s.wait(200 * SECOND);
    assert_eq!((clears(&s), news(&s), s.finished), (vec![], vec![], None));
}

/// `--preempt-retries 0` without `--max-restarts`.
#[test]
fn job_grows_without_any_restart_or_retry_and_then_ends_with_the_first_failure_or_loss() {
    let grown = || {
        let mut s =
            before_growth_with(Restarts { most: 0, delay: Span::from_secs(1), preempt: 0, ..Restarts::default() });
        s.wait(3 * SECOND);
        assert_eq!(news(&s), [JobNews::Slices(SliceNews::Larger { size: 4, running: 2, restarts: true })]);
        (0..4).for_each(|rank| exits(&mut s, rank, rank, killed(Signal::TERM), true));
        (0..4).for_each(|host| cleared(&mut s, host));
        s.wait(1);
        assert_eq!(restarts(&s), [(1, RestartCause::Grown { size: 4, running: 2 })]);
        assert_eq!(slices(&s), [("abcd".into(), 0)]);
        let of_host = |(to, msg): (&NodeId, &ToNode)| {
            let ToNode::Spawn { procs, .. } = msg else { return None };
            procs.clone().into_vec().first().map(|delta| delta.proc).filter(|_| *to == node(7))
        };
        let last = s.to.iter().zip(&s.sent).filter_map(of_host).next().unwrap();
        runs(&mut s);
        (s, last.get())
    };
    let (mut s, _) = grown();
    lose(&mut s, 5);
    [0, 1, 2, 3, 4, 6, 7, 8, 9].into_iter().for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    assert!(matches!(s.cause(), Cause::Lost { .. }) && s.finished.is_some(), "{:?}", s.cause());
    let (mut s, last) = grown();
    exits(&mut s, last, 7, exit(3), false);
    (0..10).for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    assert_eq!(s.finished, Some(Ending::Code(3)));
}

#[test]
fn slice_that_is_lost_while_the_job_grows_is_not_taken() {
    let mut s = before_growth();
    s.wait(3 * SECOND);
    lose(&mut s, 5);
    (0..4).for_each(|host| cleared(&mut s, host));
    s.wait(1);
    assert_eq!(slices(&s), [("ab".into(), 1)]);
    assert_eq!(hosts(&s), [0, 1, 2, 3].map(|host| (host, true)));
}

#[test]
fn failure_before_the_job_grows_counts_as_a_failure() {
    let mut s = before_growth();
    let at = Script::at(s.now).host_time();
    s.wait(3 * SECOND);
    // Its report was on its way when ranks were ordered to end.
    let exited =
        Exited { proc: ProcId::new(1), status: exit(3), at, alive_at: at, asked: false, usage: Usage::default() };
    s.receive_from(node(1), &ToRoot::Exited(exited));
    (0..4).for_each(|host| cleared(&mut s, host));
    s.wait(1);
    (0..10).for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    assert_eq!((s.finished, restarts(&s)), (Some(Ending::Code(3)), vec![]));
}

#[test]
fn job_whose_ranks_have_finished_does_not_grow() {
    let mut s = before_growth();
    exits(&mut s, 1, 1, exit(0), false);
    s.wait(3 * SECOND);
    assert_eq!(news(&s), [JobNews::Slices(SliceNews::Larger { size: 4, running: 2, restarts: false })]);
    assert_eq!(clears(&s), [0_u32; 0]);
    // All of them finish while the order to end is on its way.
    let mut s = before_growth();
    s.wait(3 * SECOND);
    (0..4).for_each(|rank| exits(&mut s, rank, rank, exit(0), false));
    (0..4).for_each(|host| cleared(&mut s, host));
    (0..10).for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    assert_eq!((s.finished, s.cause(), restarts(&s)), (Some(Ending::Code(0)), Cause::Success, vec![]));
}

#[test]
fn failing_host_is_reached_again_after_longer_and_longer_pauses_and_each_missing_slice_is_named() {
    let mut s = Script::new(&sliced(&[2, 4], retries()));
    slice_up(&mut s, 2);
    let fails = |s: &mut Script, n: u32| {
        let why = HostFailure { why: "name does not resolve".into(), ..HostFailure::default() };
        s.event(JobEvent::HostFailed { node: node(n), why });
    };
    fails(&mut s, 0);
    s.asked.clear();
    let mut pauses = vec![];
    while pauses.len() < 5 {
        let before = s.now;
        while s.asked.is_empty() {
            s.wait(10);
        }
        pauses.push(s.now - before);
        s.asked.clear();
        fails(&mut s, 0);
    }
    let expected = [1, 2, 4, 8, 16].map(|seconds| seconds * SECOND);
    for (pause, expected) in pauses.iter().zip(expected) {
        assert!((expected * 8 / 10..=expected * 12 / 10 + 10).contains(pause), "{pauses:?}");
    }
    assert_eq!(s.log.iter().filter(|what| matches!(what, What::HostFailed { .. })).count(), 1, "the same is no news");
    s.wait(60 * SECOND);
    let missing: Vec<(String, u32, bool)> = news(&s)
        .into_iter()
        .filter_map(|news| {
            let JobNews::Slices(SliceNews::Missing { slice, node, why }) = news else { return None };
            Some((alloc::string::ToString::to_string(&slice), node.get(), matches!(*why, Obstacle::Failed(_))))
        })
        .collect();
    let rest = |name: &str, node| (name.into(), node, false);
    assert_eq!(missing, [("a".into(), 0, true), rest("b", 2), rest("d", 6), rest("e", 8)]);
    s.given_up.clone().into_iter().for_each(|node| {
        s.event(JobEvent::HostFailed { node, why: HostFailure::default() });
    });
    [4, 5].into_iter().for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    assert_eq!(s.cause(), Cause::TooFewSlices { asked: vec![2, 4], up: 1 });
    assert_eq!(s.finished, Some(Ending::Code(75)));
}

#[test]
fn lost_slice_is_replaced_by_a_spare_one_and_the_others_keep_their_places() {
    for (lost, other, order) in [(3, 2, [0, 1, 8, 9, 4, 5, 6, 7]), (0, 1, [8, 9, 2, 3, 4, 5, 6, 7])] {
        let mut s = running();
        lose(&mut s, lost);
        let clears = s.to.iter().zip(&s.sent).filter(|(_, msg)| matches!(msg, ToNode::Clear { .. })).count();
        assert_eq!(clears, 7, "all other hosts of the job, and not the spare ones");
        (0..8).filter(|host| *host != lost).for_each(|host| cleared(&mut s, host));
        s.wait(1500);
        let expected: Vec<(u32, bool)> = order.iter().map(|host| (*host, *host < 8)).collect();
        assert_eq!(hosts(&s), expected);
        let numbers: Vec<(u32, u32)> = numbers(&s).into_iter().map(|(_, number, of)| (number, of)).collect();
        assert_eq!(numbers, [(0, 4), (0, 4), (1, 4), (1, 4), (2, 4), (2, 4), (3, 4), (3, 4)]);
        let first = &started(&s)[0].2;
        let (addr, port) = if lost == 0 { ("10.0.0.9", 20_008) } else { ("10.0.0.1", 30_000) };
        assert_eq!((first.addr.as_slice(), first.port), (addr.as_bytes(), Some(port)));
        assert_eq!(slices(&s), [(if lost == 0 { "ebcd" } else { "aecd" }.into(), 0)]);
        let closed =
            s.to.iter().zip(&s.sent).filter(|(to, msg)| matches!(msg, ToNode::Kill) && **to == node(other)).count();
        assert_eq!(closed, 0, "the other host of the slice keeps its agent");
        // The lost host comes back, and its slice is spare.
        runs(&mut s);
        s.wait(2 * SECOND);
        assert_eq!(s.asked, [node(lost)]);
        forget(&mut s);
        up(&mut s, lost);
        assert_eq!((started(&s), news(&s)), (vec![], vec![]));
        // … and takes a place again.
        lose(&mut s, 8);
        [2, 3, 4, 5, 6, 7, 9].into_iter().chain([0, 1].into_iter().filter(|_| lost > 1)).for_each(|host| {
            if s.to.contains(&node(host)) {
                cleared(&mut s, host);
            }
        });
        s.wait(4 * SECOND);
        assert_eq!(slices(&s), [("abcd".into(), 0)]);
        let came = hosts(&s).into_iter().find(|(host, _)| *host == lost);
        assert_eq!(came, Some((lost, false)), "its agent is a new one");
    }
}

#[test]
fn without_a_spare_slice_the_lost_one_is_waited_for_and_then_fewer_do() {
    let waits = || {
        let mut s = Script::new(&sliced(&[2, 4], retries()));
        (0..4).for_each(|slice| slice_up(&mut s, slice));
        runs(&mut s);
        forget(&mut s);
        lose(&mut s, 5);
        (0..8).filter(|host| *host != 5).for_each(|host| cleared(&mut s, host));
        s.wait(10 * SECOND);
        assert_eq!(started(&s), []);
        assert!(
            matches!(news(&s)[..], [JobNews::Slices(SliceNews::Awaited { wanted: 4, up: 3, .. })]),
            "{:?}",
            news(&s)
        );
        assert_eq!(s.asked, [node(5)], "once: the attempt is under way");
        s
    };
    let mut back = waits();
    up(&mut back, 5);
    back.wait(1);
    assert_eq!(slices(&back), [("abcd".into(), 0)]);
    let again: Vec<bool> = hosts(&back).into_iter().map(|(_, again)| again).collect();
    assert_eq!(again, [true, true, true, true, true, false, true, true]);
    let mut fewer = waits();
    fewer.wait(52 * SECOND);
    assert_eq!(slices(&fewer), [("ab".into(), 1)]);
    assert_eq!(numbers(&fewer)[3], (3, 1, 2));
    assert_eq!(fewer.finished, None);
}

#[test]
fn lost_spare_host_disturbs_no_run_and_is_reached_again() {
    let mut s = running();
    lose(&mut s, 9);
    assert_eq!(s.to.iter().zip(&s.sent).filter(|(_, msg)| matches!(msg, ToNode::Clear { .. })).count(), 0);
    s.wait(2 * SECOND);
    assert_eq!(s.asked, [node(9)]);
    assert_eq!(s.finished, None);
}

#[test]
fn warned_slice_is_replaced_and_is_not_up_until_its_host_has_come_back() {
    let mut s = running();
    s.receive_from(node(2), &ToRoot::Warned(WarningSource::Preempted));
    (0..8).for_each(|host| cleared(&mut s, host));
    s.wait(1500);
    assert_eq!(slices(&s), [("aecd".into(), 0)], "the warned slice is no spare");
    runs(&mut s);
    forget(&mut s);
    lose(&mut s, 2);
    s.wait(2 * SECOND);
    assert_eq!(s.asked, [node(2)]);
    up(&mut s, 2);
    s.event(JobEvent::EdgeClosed { node: node(8), why: CloseReason::Eof });
    lose(&mut s, 8);
    [0, 1, 4, 5, 6, 7, 9].into_iter().for_each(|host| cleared(&mut s, host));
    s.wait(4 * SECOND);
    assert_eq!(slices(&s), [("abcd".into(), 0)]);
}

#[test]
fn program_that_no_host_has_ends_the_job_at_once() {
    let mut s = Script::new(&sliced(&[2, 4], retries()));
    let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: "./train".into(), found: Found::Nothing };
    let why = NodeRefusal::Program { app: AppIndex::new(0), error };
    for host in 0..10 {
        s.event(JobEvent::EdgeUp { node: node(host) });
        s.receive_from(node(host), &ToRoot::Refused(why.clone()));
    }
    (0..10).for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    assert_eq!(s.cause(), Cause::Refused { node: node(0), why });
}

#[test]
fn failure_of_a_rank_is_no_preemption() {
    let mut s = running();
    let at = Script::at(s.now).host_time();
    let exited =
        Exited { proc: ProcId::new(1), status: exit(3), at, alive_at: at, asked: false, usage: Usage::default() };
    s.receive_from(node(1), &ToRoot::Exited(exited));
    (0..8).for_each(|host| cleared(&mut s, host));
    (0..10).for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    assert_eq!(s.finished, Some(Ending::Code(3)));
}

#[test]
fn job_that_succeeds_ends_its_spare_hosts_too() {
    let mut s = running();
    for rank in 0..8 {
        let at = Script::at(s.now).host_time();
        let exited = Exited {
            proc: ProcId::new(rank),
            status: exit(0),
            at,
            alive_at: at,
            asked: false,
            usage: Usage::default(),
        };
        s.receive_from(node(rank), &ToRoot::Exited(exited));
    }
    let recipients = |what: &ToNode| {
        s.to.iter().zip(&s.sent).filter(|(_, msg)| *msg == what).map(|(to, _)| to.get()).collect::<Vec<_>>()
    };
    assert_eq!((recipients(&ToNode::Finish), recipients(&ToNode::Kill)), ((0..8).collect(), vec![8, 9]));
    (0..10).for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    assert_eq!((s.finished, s.cause()), (Some(Ending::Code(0)), Cause::Success));
}
