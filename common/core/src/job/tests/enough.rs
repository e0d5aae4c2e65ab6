//! Whether the hosts that are left are enough for another generation, and whether there may be one.

use super::fewer::{left_out, three};
use super::hosts::recipients;
use super::shrink_rule::{cleared, ends, forget, least, node, restart_orders, run, started};
use super::*;
use rlaunch_plan::rank_assign::parse;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::rounds::{Limits, Rounds};
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_node::PortPlan;

/// Two ranks on each of three hosts.
fn asked(most: u32, limits: Limits, policy: Option<&str>) -> JobSpec {
    let policy = policy.map(|words| parse::policy(words).unwrap());
    let rounds = Rounds { limits, policy, ..Rounds::default() };
    JobSpec { rounds, min_hosts: None, ..three(3) }
        .with(|settings| settings.restarts = Restarts::of(most, Span::from_secs(1)))
}

/// A host is lost, and says itself that nothing runs there.
fn is_lost(s: &mut Script, host: u32) {
    s.event(JobEvent::GuardianEnded { node: node(host), end: GuardianEnd::Expired { left: 0, named: vec![] } });
}

/// Nodes that were ordered to be ready for others, and nodes that were ordered to end.
fn cleared_or_ended(s: &Script) -> (Vec<u32>, bool) {
    let clear = |port| recipients(s, &ToNode::Clear { sig: Signal::TERM, grace: Span::from_secs(5), port });
    (clear(PortPlan::Choose), s.sent.iter().any(|msg| matches!(msg, ToNode::End { .. })))
}

#[test]
fn the_policy_says_how_many_would_work() {
    let works = |least| Limits { min_active: Some(least), ..Limits::default() };
    for (limits, policy, enough) in [
        (works(2), "max=2,shift", true),
        (works(3), "max=2,shift", false),
        // Four are left, of which none can work.
        (works(0), "divisible=4,shift", true),
        (works(0), "divisible=5,shift", false),
    ] {
        let mut s = run(&asked(1, limits, Some(policy)));
        is_lost(&mut s, 0);
        let expected = if enough { (vec![1, 2], false) } else { (vec![], true) };
        assert_eq!(cleared_or_ended(&s), expected, "{policy} {limits:?}");
    }
}

#[test]
fn restarts_that_are_used_up_make_no_host_good() {
    let once = Restarts { preempt: 1, ..Restarts::default() };
    let mut s = run(&asked(1, least(Some(2)), None).with(|settings| settings.restarts = once));
    is_lost(&mut s, 0);
    [1, 2].into_iter().for_each(|host| cleared(&mut s, host));
    s.wait(1200);
    assert_eq!(restart_orders(&s).0.len(), 2);
    forget(&mut s);
    started(&mut s, 6, &[1, 2]);
    is_lost(&mut s, 1);
    assert_eq!(cleared_or_ended(&s), (vec![], true), "there is no other generation to be ready for");
}

#[test]
fn job_ends_without_the_launchers_own_host() {
    let mut spec = asked(1, least(Some(2)), None);
    spec.placement.nodes[0].local = true;
    let mut s = run(&spec);
    s.event(JobEvent::EdgeClosed { node: node(0), why: CloseReason::Eof });
    assert_eq!(cleared_or_ended(&s), (vec![], true));
}

#[test]
fn hosts_are_left_out_once() {
    let mut s = run(&asked(2, least(Some(2)), None));
    is_lost(&mut s, 0);
    for generation in 0..2 {
        [1, 2].into_iter().for_each(|host| cleared(&mut s, host));
        s.wait(3000);
        assert_eq!(left_out(&s), [(vec![0], 4)], "generation {generation}");
        forget(&mut s);
        let first = 6 * (generation + 1);
        started(&mut s, first, &[1, 2]);
        ends(&mut s, 1, first, exit(7));
    }
    assert!(s.placements.iter().all(|now| now.ranks == s.placements[0].ranks), "ranks stay where they are");
}
