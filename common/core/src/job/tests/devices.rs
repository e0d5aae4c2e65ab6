//! Devices of all hosts: no holder is ended before every host could start, and no rank starts before every host is free.

use super::generations::{DELAY, asked_for, cleared, may};
use super::hosts::{OTHER, exits, hello, ranks, recipients, two};
use super::*;
use rlaunch_protocol::guard::devices::{DeviceKind, DevicePlan, DeviceStep};
use rlaunch_protocol::spec::JobSpec;

const LOOK: ToNode = ToNode::Devices(DeviceStep::Look);
const FREE: ToNode = ToNode::Devices(DeviceStep::Free);

fn prepared(spec: JobSpec) -> JobSpec {
    spec.with(|settings| settings.devices = DevicePlan { kind: DeviceKind::Auto, ..DevicePlan::default() })
}

fn held(held: bool) -> ToRoot {
    ToRoot::Devices { held }
}

/// Both hosts are up; the first has holders, and is ready.
fn waiting(spec: &JobSpec) -> Script {
    let mut s = Script::new(spec);
    for node in [NODE, OTHER] {
        s.event(JobEvent::EdgeUp { node }).receive_from(node, &hello("10.0.0.1", "10.0.0.9", 20_000));
    }
    s.receive_from(NODE, &held(true)).receive_from(NODE, &ToRoot::Ready);
    s
}

fn in_use() -> ToRoot {
    ToRoot::Refused(NodeRefusal::Devices {
        holders: rlaunch_base::capped::Capped::default(),
        more: 0,
        hidden: "/dev/vfio/0".into(),
    })
}

fn is_refused(s: &Script) -> bool {
    s.log.iter().any(|what| matches!(what, What::Ending { cause: Cause::Refused { .. }, .. }))
}

#[test]
fn holders_are_ended_once_all_hosts_could_start() {
    let mut s = waiting(&prepared(two(false)));
    assert_eq!(recipients(&s, &FREE), [0_u32; 0]);
    s.receive_from(OTHER, &ToRoot::Ready);
    assert_eq!((recipients(&s, &FREE), ranks(&s)), (vec![0], vec![]));
    s.receive_from(NODE, &held(false));
    assert_eq!(ranks(&s).len(), 4);
}

#[test]
fn no_holder_is_ended_if_another_host_refuses() {
    let missing = SpawnError { step: SpawnStep::Exec, errno: 2, path: "prog".into(), found: Found::Nothing };
    let missing = ToRoot::Refused(NodeRefusal::Program { app: rlaunch_base::id::AppIndex::new(0), error: missing });
    for refusal in [missing, in_use()] {
        let mut s = waiting(&prepared(two(false)));
        s.receive_from(OTHER, &refusal);
        assert_eq!((recipients(&s, &FREE), ranks(&s)), (vec![], vec![]));
        assert!(is_refused(&s), "{:?}", s.log.last());
    }
}

#[test]
fn rank_is_started_on_no_host_if_a_holder_stays() {
    let mut s = waiting(&prepared(two(false)));
    s.receive_from(OTHER, &ToRoot::Ready).receive_from(NODE, &in_use());
    assert_eq!(ranks(&s), []);
    assert!(is_refused(&s), "{:?}", s.log.last());
}

/// The ranks of the first generation have been cleared away.
fn between() -> Script {
    let mut s = Script::new(&prepared(may(2, two(false))));
    for node in [NODE, OTHER] {
        s.event(JobEvent::EdgeUp { node });
        s.receive_from(node, &hello("10.0.0.1", "10.0.0.9", 20_000)).receive_from(node, &ToRoot::Ready);
    }
    s.to.clear();
    s.sent.clear();
    exits(&mut s, 3, exit(6), 10);
    s.receive_from(OTHER, &cleared(0, 0)).receive_from(NODE, &cleared(0, 22_000)).wait(DELAY);
    assert_eq!((recipients(&s, &LOOK), asked_for(&s).0), (vec![0, 1], vec![]));
    s
}

#[test]
fn all_hosts_look_before_a_later_generation_starts() {
    let mut s = between();
    s.receive_from(NODE, &held(false)).wait(10_000);
    assert_eq!((recipients(&s, &LOOK), asked_for(&s).0), (vec![0, 1], vec![]), "the other host has not looked");
    s.receive_from(OTHER, &held(true)).wait(1);
    assert_eq!((recipients(&s, &FREE), asked_for(&s).0), (vec![1], vec![]));
    s.receive_from(OTHER, &held(false)).wait(1);
    assert_eq!(asked_for(&s).0, [4, 5, 6, 7]);
}

#[test]
fn later_generation_starts_on_no_host_if_one_is_in_use() {
    let mut s = between();
    s.receive_from(NODE, &held(true)).receive_from(OTHER, &in_use()).wait(10_000);
    assert_eq!((recipients(&s, &FREE), asked_for(&s).0), (vec![], vec![]));
    assert!(is_refused(&s), "{:?}", s.log.last());
}
