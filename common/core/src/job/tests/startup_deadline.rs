//! Hosts that were reached, and are not ready in time.

use super::hosts::{done, hello, met, ranks, recipients, two};
use super::*;
use rlaunch_protocol::spec::JobSpec;

const OTHER: NodeId = NodeId::new(1);
const LIMIT: Span = Span::from_secs(5);

fn is_up(s: &mut Script, node: NodeId) {
    let at = Script::at(5_000);
    s.event(JobEvent::EdgeUp { node }).event(JobEvent::ReadyBy { node, at, limit: LIMIT });
}

fn introduces(s: &mut Script, node: NodeId) {
    s.receive_from(node, &hello("10.0.0.1", "10.0.0.9", 20_000));
}

/// Two hosts, the first of which is ready.
fn one_of_two(least: Option<u32>) -> Script {
    let mut s = Script::new(&JobSpec { min_hosts: least, ..two(false) });
    is_up(&mut s, NODE);
    is_up(&mut s, OTHER);
    introduces(&mut s, NODE);
    s.receive_from(NODE, &ToRoot::Ready);
    s
}

#[test]
fn a_host_that_is_not_ready_in_time_is_named_and_not_waited_for() {
    for (introduced, awaited) in [
        (false, "not ready within 5.0s: its agent has started, and is not heard of"),
        (true, "not ready within 5.0s: its agent is still looking for the directory and the program"),
    ] {
        let mut s = one_of_two(None);
        if introduced {
            introduces(&mut s, OTHER);
        }
        s.wait(4_999);
        assert_eq!((s.severed, recipients(&s, &ToNode::Kill)), (0, vec![]));
        s.wait(1);
        assert_eq!((s.severed, recipients(&s, &ToNode::Kill)), (1, vec![0]), "its guardian ends it");
        done(&mut s, NODE, 0);
        s.drained();
        assert_eq!(s.cause(), Cause::Unreachable { node: OTHER, failed: 1, asked: 2 });
        let report = s.last_report();
        let unreached: Vec<_> = report.unreached.iter().map(|(node, why)| (*node, why.why.clone())).collect();
        assert_eq!(unreached, [(OTHER, awaited.into())]);
        assert_eq!((s.finished, report.left), (Some(Ending::Code(125)), Some(0)), "no rank was asked for there");
    }
}

/// The messages of hosts were not read meanwhile.
#[test]
fn time_in_which_the_launcher_was_stopped_is_taken_from_no_host() {
    let mut s = one_of_two(None);
    s.wait(1_000);
    s.stop(10_000).wait(3_700);
    assert_eq!(s.severed, 0);
    s.wait(300);
    assert_eq!(s.severed, 1);
}

#[test]
fn job_continues_without_a_late_host_that_it_can_spare() {
    let mut s = one_of_two(Some(1));
    s.wait(5_000);
    assert_eq!((s.severed, s.placements.len(), met(&s).len()), (1, 1, 1));
    assert_eq!(ranks(&s), [(0, 0, 0), (0, 1, 1)]);
    // It was slow, or its guardian has ended it: nothing follows.
    introduces(&mut s, OTHER);
    s.receive_from(OTHER, &ToRoot::Ready);
    s.event(JobEvent::GuardianEnded { node: OTHER, end: GuardianEnd::Record { left: 1, named: vec![] } });
    s.event(JobEvent::EdgeClosed { node: OTHER, why: CloseReason::Eof });
    assert!(s.finished.is_none() && recipients(&s, &ToNode::Kill) == [1], "what is there has nothing to do");
}

#[test]
fn a_host_that_was_ready_is_never_late() {
    let mut s = one_of_two(None);
    introduces(&mut s, OTHER);
    s.receive_from(OTHER, &ToRoot::Ready);
    s.wait(6_000);
    assert_eq!((s.severed, ranks(&s).len()), (0, 4));
}

#[test]
fn startup_deadline_ends_with_the_job() {
    let mut s = one_of_two(None);
    s.signal(Signal::INT).wait(6_000);
    let failed = s.log.iter().filter(|what| matches!(what, What::HostFailed { .. })).count();
    assert_eq!((s.severed, failed), (0, 0));
}
