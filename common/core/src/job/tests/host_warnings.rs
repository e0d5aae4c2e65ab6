//! Hosts that are warned, and the difference between a preemption and a failure.

use super::fewer::{left_out, three};
use super::hosts::{done, recipients};
use super::shrink_rule::{beats, cleared, ends, forget, least, node, restart_orders, run};
use super::*;
use rlaunch_base::warnings::{OnWarning, Response, WarningPlan, WarningSource};
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::rounds::Rounds;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_node::PortPlan;

const SOURCE: WarningSource = WarningSource::Preempted;
const GRACE: Span = Span::from_secs(25);

/// Two ranks on each of three hosts, of which two are enough.
fn spec(restarts: Restarts) -> JobSpec {
    let rounds = Rounds { limits: least(Some(4)), ..Rounds::default() };
    JobSpec { rounds, min_hosts: None, ..three(3) }.with(|settings| settings.restarts = restarts)
}

fn retries(most: u32, preempt: u32) -> Restarts {
    Restarts { most, delay: Span::from_secs(1), preempt, ..Restarts::default() }
}

fn warns(s: &mut Script, host: u32) {
    s.receive_from(node(host), &ToRoot::Warned(SOURCE));
}

fn responses(s: &Script) -> Vec<(NodeId, Response)> {
    let warned = |what: &What| {
        let What::News(JobNews::HostWarned { node, response, .. }) = what else { return None };
        Some((*node, *response))
    };
    s.log.iter().filter_map(warned).collect()
}

/// The number of each restart, and how its host was lost.
fn restarts(s: &Script) -> Vec<(u32, Option<Lost>)> {
    let restart = |what: &What| {
        let What::Restart { restart, why: RestartCause::Failed { lost, .. }, .. } = what else { return None };
        Some((*restart, *lost))
    };
    s.log.iter().filter_map(restart).collect()
}

#[test]
fn job_continues_without_a_warned_host_whose_ranks_had_the_grace_of_the_warning() {
    let mut s = run(&spec(retries(1, 3)));
    warns(&mut s, 2);
    let clear = ToNode::Clear { sig: Signal::TERM, grace: GRACE, port: PortPlan::Choose };
    assert_eq!(recipients(&s, &clear), [0, 1, 2], "the ranks of the warned host, too, may save their work");
    warns(&mut s, 2);
    assert_eq!(responses(&s), [(node(2), Response::Ends { grace: GRACE })], "a second source is no news");
    forget(&mut s);
    (0..3).for_each(|host| cleared(&mut s, host));
    assert_eq!(recipients(&s, &ToNode::Kill), [2], "its agent ends");
    assert_eq!(restarts(&s), [(1, Some(Lost::Warned(SOURCE)))]);
    done(&mut s, node(2), 0);
    s.wait(1200);
    let (meetings, procs) = restart_orders(&s);
    let hosts: Vec<u32> = meetings.iter().map(|(host, _)| *host).collect();
    assert_eq!((hosts, procs), (vec![0, 1], vec![6, 7, 8, 9]));
    assert_eq!((left_out(&s), s.finished), (vec![(vec![2], 4)], None));
}

#[test]
fn warning_without_a_retry_left_ends_the_job_with_75() {
    for (restarts, world) in [(retries(1, 0), 4), (retries(0, 0), 4), (retries(1, 3), 6)] {
        let rounds = Rounds { limits: least(Some(world)), ..Rounds::default() };
        let mut s = run(&JobSpec { rounds, ..spec(restarts) });
        warns(&mut s, 2);
        let end = ToNode::End { sig: Signal::TERM, grace: GRACE };
        assert_eq!(recipients(&s, &end), [0, 1, 2], "{restarts:?}");
        (0..3).for_each(|host| done(&mut s, node(host), 0));
        s.drained();
        assert_eq!(s.cause(), Cause::Preempted { node: node(2), lost: Lost::Warned(SOURCE) });
        assert_eq!(s.finished, Some(Ending::Code(75)));
    }
}

#[test]
fn warned_host_is_only_marked_where_the_user_wants_a_note() {
    let warnings = WarningPlan { on_warning: OnWarning::Note, ..WarningPlan::default() };
    let mut s = run(&spec(retries(1, 3)).with(|settings| settings.warnings = warnings.clone()));
    warns(&mut s, 2);
    assert_eq!(responses(&s), [(node(2), Response::Noted)]);
    assert!(s.sent.is_empty(), "{:?}", s.sent);
    // A later generation does not use it, whatever has ended this one.
    ends(&mut s, 0, 0, exit(1));
    forget(&mut s);
    (0..3).for_each(|host| cleared(&mut s, host));
    assert_eq!(restarts(&s), [(1, None)], "a rank on another host has failed by itself");
    s.wait(1200);
    assert_eq!(left_out(&s), [(vec![2], 4)]);
}

#[test]
fn failure_on_a_warned_host_is_a_preemption() {
    let warnings = WarningPlan { on_warning: OnWarning::Note, ..WarningPlan::default() };
    let mut s = run(&spec(retries(0, 3)).with(|settings| settings.warnings = warnings.clone()));
    warns(&mut s, 2);
    ends(&mut s, 2, 4, exit(1));
    (0..3).for_each(|host| cleared(&mut s, host));
    assert_eq!(restarts(&s), [(1, Some(Lost::Warned(SOURCE)))]);
}

/// The code must not depend on the number of retries.
#[test]
fn failure_on_a_warned_host_is_a_preemption_without_retries() {
    let warnings = WarningPlan { on_warning: OnWarning::Note, ..WarningPlan::default() };
    for restarts in [retries(0, 0), retries(1, 0)] {
        let mut s = run(&spec(restarts).with(|settings| settings.warnings = warnings.clone()));
        warns(&mut s, 2);
        ends(&mut s, 2, 4, exit(1));
        (0..3).for_each(|host| cleared(&mut s, host));
        (0..3).for_each(|host| done(&mut s, node(host), 0));
        s.drained();
        assert_eq!(s.cause(), Cause::Preempted { node: node(2), lost: Lost::Warned(SOURCE) }, "{restarts:?}");
        assert_eq!(s.finished, Some(Ending::Code(75)));
    }
}

#[test]
fn rank_failure_counts_when_all_hosts_have_answered_since() {
    let mut s = run(&spec(retries(1, 3)));
    beats(&mut s, 1, &[0, 1, 2]);
    ends(&mut s, 1, 2, exit(1));
    (0..3).for_each(|host| cleared(&mut s, host));
    assert_eq!(restarts(&s), [(1, None)]);
}

#[test]
fn failure_before_the_loss_of_a_silent_host_is_known_is_a_preemption() {
    // No restart after a failure is left, and the loss is known only when the lease has expired.
    let mut s = run(&spec(retries(0, 3)));
    beats(&mut s, 1, &[0, 1, 2]);
    s.wait(500);
    ends(&mut s, 1, 2, exit(1));
    [0, 1].into_iter().for_each(|host| cleared(&mut s, host));
    beats(&mut s, 60, &[0, 1]);
    assert_eq!(restarts(&s), [(1, Some(Lost::NoHeartbeat))]);
    assert_eq!((left_out(&s), s.finished), (vec![(vec![2], 4)], None));
}

#[test]
fn failure_ends_job_without_restarts_when_all_hosts_have_answered_since() {
    let mut s = run(&spec(retries(0, 3)));
    beats(&mut s, 1, &[0, 1, 2]);
    ends(&mut s, 1, 2, exit(7));
    (0..3).for_each(|host| cleared(&mut s, host));
    (0..3).for_each(|host| done(&mut s, node(host), 0));
    s.drained();
    assert_eq!((s.finished, restarts(&s)), (Some(Ending::Code(7)), vec![]));
}

#[test]
fn loss_of_a_host_when_all_retries_are_used_up_ends_the_job_with_75() {
    let mut s = run(&JobSpec { rounds: Rounds { limits: least(Some(2)), ..Rounds::default() }, ..spec(retries(1, 1)) });
    let end = || GuardianEnd::Expired { left: 0, named: vec![] };
    s.event(JobEvent::GuardianEnded { node: node(0), end: end() });
    [1, 2].into_iter().for_each(|host| cleared(&mut s, host));
    beats(&mut s, 2, &[1, 2]);
    assert_eq!(restart_orders(&s).0.len(), 2);
    s.event(JobEvent::GuardianEnded { node: node(1), end: end() });
    done(&mut s, node(2), 0);
    s.drained();
    assert_eq!(s.cause(), Cause::Preempted { node: node(1), lost: Lost::Expired });
    assert_eq!(s.finished, Some(Ending::Code(75)));
}
