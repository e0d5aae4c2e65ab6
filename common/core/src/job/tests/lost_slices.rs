//! TPU hosts that are lost: the variables of the next generation are those of its hosts, or the job ends with the reason.

use super::fewer::three;
use super::hosts::hello;
use super::shrink_rule::{cleared, forget, least, node, started};
use super::*;
use crate::events::NoRestart;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::warnings::WarningSource;
use rlaunch_plan::hostlist::Chips;
use rlaunch_plan::tpu::{SliceError, TpuFacts, TpuHost};
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::rounds::Rounds;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_root::Hello;

/// Three hosts of one slice with two ranks each; two hosts are enough.
fn spec(allow_partial: bool, retries: u32, min_world: Option<u32>) -> JobSpec {
    let rounds = Rounds { limits: least(min_world), ..Rounds::default() };
    let restarts = Restarts { most: 1, delay: Span::from_secs(1), preempt: retries, ..Restarts::default() };
    JobSpec { rounds, min_hosts: None, ..three(3) }.with(|settings| {
        settings.restarts = restarts;
        settings.devices.allow_partial = allow_partial;
    })
}

/// Ranks run on hosts 0 to 2 of slice a, which has no others.
fn run_on_chips(spec: &JobSpec) -> Script {
    let mut s = Script::new(spec);
    s.net = "10.0.0";
    for n in 0..3 {
        s.event(JobEvent::EdgeUp { node: node(n) });
        let ToRoot::Hello(greeting) = hello(&alloc::format!("10.0.0.{}", n + 1), "10.0.0.9", 20_000) else {
            unreachable!()
        };
        let facts = TpuFacts::of_words(&Chips { hosts: 3, ..Chips::of("a", n, 4) });
        s.receive_from(node(n), &ToRoot::Hello(Hello { tpu: Some(alloc::boxed::Box::new(facts)), ..greeting }));
        s.receive_from(node(n), &ToRoot::Ready);
    }
    started(&mut s, 0, &[0, 1, 2]);
    forget(&mut s);
    s
}

/// Host 2 is warned, and all hosts end their ranks.
fn warned(spec: &JobSpec) -> Script {
    let mut s = run_on_chips(spec);
    s.receive_from(node(2), &ToRoot::Warned(WarningSource::Preempted));
    (0..3).for_each(|host| cleared(&mut s, host));
    forget(&mut s);
    s.wait(1200);
    s
}

fn why(s: &Script) -> Vec<NoRestart> {
    let why = |what: &What| {
        if let What::News(JobNews::NotStartedAgain { why }) = what { Some(why.clone()) } else { None }
    };
    s.log.iter().filter_map(why).collect()
}

fn parts(s: &Script) -> Vec<(u32, TpuHost)> {
    let part = |(node, msg): (&NodeId, &ToNode)| {
        let ToNode::Again(rendezvous) = msg else { return None };
        Some((node.get(), TpuHost::clone(rendezvous.tpu.as_deref()?)))
    };
    s.to.iter().zip(&s.sent).filter_map(part).collect()
}

#[test]
fn remaining_hosts_of_a_slice_are_numbered_anew_if_a_part_is_allowed() {
    let s = warned(&spec(true, 3, Some(4)));
    let seen: Vec<_> = parts(&s).iter().map(|(node, tpu)| (*node, tpu.worker, tpu.addresses.clone())).collect();
    let both = OsBytes::from("10.0.0.1,10.0.0.2");
    assert_eq!((seen, why(&s)), (vec![(0, 0, both.clone()), (1, 1, both)], vec![]));
}

#[test]
fn remaining_hosts_of_a_slice_are_refused_by_its_name() {
    let s = warned(&spec(false, 3, Some(4)));
    let error = SliceError::Partial { slice: "a".into(), has: 2, of: 3 };
    assert_eq!((parts(&s).len(), why(&s)), (0, vec![NoRestart::Slices { reason: error }]));
}

#[test]
fn end_by_a_preemption_has_its_reason() {
    let (hosts, of, ranks) = (2, 3, 4);
    assert_eq!(why(&warned(&spec(true, 0, Some(4)))), [NoRestart::NoRetries]);
    assert_eq!(why(&warned(&spec(true, 3, None))), [NoRestart::NoLimit { hosts, of, ranks }]);
    assert_eq!(why(&warned(&spec(true, 3, Some(6)))), [NoRestart::TooFew { hosts, of, ranks }]);
}
