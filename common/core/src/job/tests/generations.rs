//! All ranks are started again when one has failed.

use super::hosts::{OTHER, done, exits, hello, recipients, running, two};
use super::*;
use rlaunch_base::backoff::ALIKE;
use rlaunch_base::capped::Capped;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_node::{PortPlan, Rendezvous};
use rlaunch_protocol::wire::to_root::{Exited, Started, Usage};

pub(super) const DELAY: u64 = 1000;

pub(super) fn may(most: u32, spec: JobSpec) -> JobSpec {
    spec.with(|settings| settings.restarts = Restarts::of(most, Span::from_millis(DELAY)))
}

fn alone(most: u32, ranks: u32) -> Script {
    Script::running(&may(most, spec(ranks)))
}

fn clear(port: PortPlan) -> ToNode {
    ToNode::Clear { sig: Signal::TERM, grace: Span::from_secs(5), port }
}

pub(super) fn cleared(left: u32, port: u16) -> ToRoot {
    ToRoot::Cleared { left, named: Capped::default(), port }
}

/// A process is started, or ends, at that time.
fn runs(s: &mut Script, proc: u32, at: u64) {
    let started = Started { proc: ProcId::new(proc), pid: 100 + proc, at: Script::at(at).host_time() };
    s.receive(ToRoot::Started { procs: Capped::chunks([started]).remove(0) });
}

fn ends(s: &mut Script, proc: u32, status: Status, at: u64, asked: bool) {
    let at = Script::at(at).host_time();
    s.receive(ToRoot::Exited(Exited {
        proc: ProcId::new(proc),
        status,
        at,
        alive_at: at,
        asked,
        usage: Usage::default(),
    }));
}

/// The processes that were asked for, and where they meet.
pub(super) fn asked_for(s: &Script) -> (Vec<u32>, Vec<Rendezvous>) {
    let procs = |msg: &ToNode| {
        let procs = if let ToNode::Spawn { procs, .. } = msg { procs.clone().into_vec() } else { vec![] };
        procs.into_iter().map(|delta| delta.proc.get()).collect::<Vec<_>>()
    };
    let rendezvous = |msg: &ToNode| if let ToNode::Again(rendezvous) = msg { Some(rendezvous.clone()) } else { None };
    (s.sent.iter().flat_map(procs).collect(), s.sent.iter().filter_map(rendezvous).collect())
}

fn restarts(s: &Script) -> Vec<(u32, u32, Status, u64)> {
    let mut all = vec![];
    for what in &s.log {
        if let What::Restart { restart, why: RestartCause::Failed { rank, status, .. }, delay, .. } = what {
            all.push((*restart, rank.get(), *status, delay.millis()));
        }
    }
    all
}

/// The only rank fails, so often; its node is clear at once.
fn fails(s: &mut Script, restart: u32, status: Status) {
    s.sent.clear();
    let at = s.now;
    runs(s, restart, at);
    s.wait(1);
    let at = s.now;
    ends(s, restart, status, at, false);
}

#[test]
fn a_failure_ends_all_ranks_and_starts_them_again_at_another_port() {
    let mut s = alone(2, 3);
    s.wait(50);
    ends(&mut s, 1, exit(3), 50, false);
    assert_eq!(s.sent, [clear(PortPlan::Choose)], "and no node is notified that the job ends");
    ends(&mut s, 0, killed(Signal::TERM), 51, true);
    ends(&mut s, 2, exit(1), 52, true);
    s.wait(10);
    s.receive(cleared(0, 21_000));
    assert_eq!(restarts(&s), [(1, 1, exit(3), DELAY)]);
    s.wait(DELAY - 1);
    assert_eq!(s.sent.len(), 1, "not before the pause has ended");
    s.wait(1);
    let (procs, meetings) = asked_for(&s);
    assert_eq!(procs, [3, 4, 5]);
    let [Rendezvous { port: Some(21_000), restart: 1, world_size: 3, node_index: 0, .. }] = meetings[..] else {
        panic!("{meetings:?}")
    };
    // A late message of the first generation does not concern the second.
    ends(&mut s, 2, exit(9), 52, false);
    s.sent.clear();
    (3..6).for_each(|proc| runs(&mut s, proc, 1100));
    s.wait(200);
    (3..6).for_each(|proc| ends(&mut s, proc, exit(0), 1200, false));
    assert_eq!(s.sent, [ToNode::Finish], "also the only node is notified that there is no other generation");
    let report = s.report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
    assert_eq!(report.restarts.len(), 1);
    assert_eq!(report.restarts[0].why, RestartCause::of_rank(Rank::new(1), NodeId::new(0), exit(3)));
}

#[test]
fn the_last_generation_ends_the_job_with_its_first_failure() {
    let mut s = alone(2, 1);
    for (restart, status) in [(0, exit(3)), (1, crash()), (2, exit(7))] {
        fails(&mut s, restart, status);
        if restart < 2 {
            s.receive(cleared(0, 20_000)).wait(60_000);
        }
    }
    assert!(matches!(s.sent[..], [ToNode::End { .. }]), "{:?}", s.sent);
    assert_eq!(restarts(&s), [(1, 0, exit(3), DELAY), (2, 0, crash(), 2 * DELAY)]);
    s.report();
    assert_eq!(s.finished, Some(Ending::Code(7)));
}

#[test]
fn first_failure_is_known_when_all_are_clear() {
    let mut s = alone(1, 3);
    s.wait(50);
    ends(&mut s, 2, exit(1), 40, false);
    ends(&mut s, 0, exit(5), 20, false);
    ends(&mut s, 1, killed(Signal::TERM), 60, true);
    s.receive(cleared(0, 20_000));
    assert_eq!(restarts(&s), [(1, 0, exit(5), DELAY)]);
}

#[test]
fn without_restarts_nothing_is_cleared() {
    let mut s = alone(0, 2);
    s.wait(5);
    ends(&mut s, 0, exit(1), 5, false);
    assert!(matches!(s.sent[..], [ToNode::End { .. }]));
    let mut s = Script::running(&may(3, spec(2).with(|settings| settings.ending.on_failure = OnFailure::Continue)));
    s.wait(5);
    ends(&mut s, 0, exit(1), 5, false);
    assert_eq!(s.sent, []);
}

#[test]
fn a_program_that_cannot_be_started_is_not_tried_again() {
    let mut s = Script::new(&may(3, spec(1)));
    let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: "x".into(), found: Found::Nothing };
    s.hello().receive(ToRoot::SpawnFailed { proc: ProcId::new(0), error });
    s.report();
    assert_eq!((s.finished, restarts(&s).len()), (Some(Ending::Code(127)), 0));
}

#[test]
fn job_ends_early_without_progress() {
    let mut job = may(100, spec(1));
    job.settings.restarts.give_up_after = Span::ZERO;
    let mut s = Script::running(&job);
    for restart in 0..ALIKE {
        fails(&mut s, restart, exit(3));
        s.receive(cleared(0, 20_000)).wait(60_000);
    }
    assert!(matches!(s.sent.last(), Some(ToNode::End { .. })), "{:?}", s.sent);
    assert_eq!(restarts(&s).len(), 4);
    assert!(s.said.contains(&What::News(JobNews::NoProgress { rank: Rank::new(0), alike: ALIKE })));
    s.report();
    assert_eq!(s.finished, Some(Ending::Code(3)));
}

#[test]
fn a_signal_ends_the_job_whatever_is_between_two_generations() {
    // While ranks are being ended.
    let mut s = alone(3, 2);
    s.wait(5);
    ends(&mut s, 0, exit(1), 5, false);
    s.signal(Signal::INT);
    assert!(matches!(s.sent[..], [ToNode::Clear { .. }, ToNode::End { sig: Signal::INT, .. }]), "{:?}", s.sent);
    s.receive(cleared(0, 20_000)).wait(5000);
    assert_eq!(restarts(&s), [], "what comes too late begins nothing");
    ends(&mut s, 1, killed(Signal::TERM), 6, true);
    s.report();
    assert_eq!((s.finished, s.cause()), (Some(Ending::Signal(Signal::INT)), Cause::Signal(Signal::INT)));
    // In the pause.
    let mut s = alone(3, 1);
    fails(&mut s, 0, exit(1));
    s.receive(cleared(0, 20_000)).wait(10);
    s.signal(Signal::TERM);
    assert!(matches!(s.said.last(), Some(What::Ending { ranks: RanksState::Between, .. })), "{:?}", s.said);
    assert!(matches!(s.sent.last(), Some(ToNode::End { sig: Signal::TERM, .. })));
    s.wait(60_000);
    assert_eq!(asked_for(&s).0, [0_u32; 0]);
    s.report();
    assert_eq!(s.finished, Some(Ending::Signal(Signal::TERM)));
}

#[test]
fn the_time_limit_is_that_of_all_generations() {
    let limit = Span::from_secs(2);
    let mut s = Script::running(&may(3, spec(1).with(|settings| settings.ending.timeout = Some(limit))));
    for (restart, code) in [(0, 1), (1, 2)] {
        fails(&mut s, restart, exit(code));
        s.receive(cleared(0, 20_000)).wait(DELAY);
    }
    assert!(matches!(s.sent.last(), Some(ToNode::End { .. })));
    s.report();
    assert_eq!(s.cause(), Cause::Timeout { limit });
}

#[test]
fn unkillable_process_ends_the_job() {
    let mut s = alone(3, 1);
    fails(&mut s, 0, exit(4));
    s.receive(cleared(1, 0));
    assert!(s.said.contains(&What::News(JobNews::NotClear)));
    assert!(matches!(s.sent.last(), Some(ToNode::End { .. })));
    s.receive(ToRoot::Done { left: 1, named: Capped::default() }).drained();
    assert_eq!((s.finished, restarts(&s).len()), (Some(Ending::Code(4)), 0));
}

#[test]
fn an_agent_that_does_not_clear_its_host_is_not_waited_for() {
    let mut s = alone(3, 1);
    fails(&mut s, 0, exit(4));
    s.wait(14_900);
    assert!(!s.sent.iter().any(|msg| matches!(msg, ToNode::End { .. })));
    s.wait(200);
    assert!(matches!(s.sent.last(), Some(ToNode::End { .. })));
    // A job that waits for the reader of our output is.
    let mut s = alone(3, 1);
    fails(&mut s, 0, exit(4));
    s.receive(ToRoot::Draining).wait(600_000);
    assert_eq!(s.sent, [clear(PortPlan::Choose)]);
    // But not for ever, if the user wants the end.
    s.signal(Signal::INT).wait(2100);
    assert!(s.abandoned);
}

#[test]
fn all_hosts_are_cleared_before_one_starts_a_rank_again() {
    let mut s = Script::new(&may(2, two(false)));
    for node in [NODE, OTHER] {
        s.event(JobEvent::EdgeUp { node });
        s.receive_from(node, &hello("10.0.0.1", "10.0.0.9", 20_000)).receive_from(node, &ToRoot::Ready);
    }
    s.to.clear();
    s.sent.clear();
    exits(&mut s, 3, exit(6), 10);
    assert_eq!((recipients(&s, &clear(PortPlan::Choose)), recipients(&s, &clear(PortPlan::None))), (vec![0], vec![1]));
    s.receive_from(OTHER, &cleared(0, 0)).receive_from(OTHER, &cleared(0, 0));
    s.wait(4000);
    assert_eq!(asked_for(&s).0, [0_u32; 0]);
    s.receive_from(NODE, &cleared(0, 22_000)).wait(DELAY);
    let (procs, meetings) = asked_for(&s);
    assert_eq!(procs, [4, 5, 6, 7]);
    let at: Vec<_> = meetings.iter().map(|m| (m.node_index, m.port, m.restart, m.nodes)).collect();
    assert_eq!(at, [(0, Some(22_000), 1, 2), (1, Some(22_000), 1, 2)]);
    assert!(meetings.iter().all(|rendezvous| *rendezvous.addr == *b"10.0.0.1"));
}

#[test]
fn a_host_that_is_lost_meanwhile_ends_the_job() {
    let mut s = running();
    exits(&mut s, 0, exit(1), 10);
    done(&mut s, NODE, 0);
    assert_eq!(restarts(&s), [], "no restart was allowed there");
    let mut s = alone(3, 1);
    fails(&mut s, 0, exit(1));
    s.receive(cleared(0, 20_000));
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    s.event(JobEvent::GuardianEnded { node: NODE, end: GuardianEnd::Record { left: 0, named: vec![] } }).drained();
    assert_eq!(s.finished, Some(Ending::Code(125)));
    s.wait(60_000);
}

#[test]
fn no_rank_is_started_again_when_the_pause_and_the_time_of_the_job_expire_together() {
    let limit = Span::from_secs(10);
    let mut s = Script::running(&may(3, spec(1).with(|settings| settings.ending.timeout = Some(limit))));
    fails(&mut s, 0, exit(1));
    s.receive(cleared(0, 20_000)).stop(60_000);
    assert!(matches!(s.log.last(), Some(What::Ending { cause: Cause::Timeout { .. }, .. })), "{:?}", s.log.last());
    assert_eq!(asked_for(&s).0, [0_u32; 0]);
}
