//! Devices that have to be free before ranks are started, and are looked at after the last.

use super::*;
use crate::guard::devices::{DeviceKind, DevicePlan};
use crate::node::DevicesFreed;

fn plan() -> DevicePlan {
    DevicePlan { kind: DeviceKind::Auto, ..DevicePlan::default() }
}

fn free(skips_lock: bool) -> NodeEvent {
    NodeEvent::DevicesFreed(DevicesFreed::Free { skips_lock })
}

/// A node whose devices are being freed, and that is ready otherwise. `sole`: it is the only one.
fn waiting(sole: bool) -> (Rig, Vec<NodeAction>) {
    let mut rig = Rig::new();
    let mut actions = rig.root(ToNode::Start(Start { devices: Box::new(plan()), sole, ..start() }));
    actions.extend(rig.hear(NodeEvent::SandboxReady(sandbox())));
    actions.extend(rig.root(app_of(0, &base())));
    (rig, actions)
}

fn is_spawn(action: &NodeAction) -> bool {
    matches!(action, NodeAction::Spawn { .. })
}

#[test]
fn ranks_start_when_devices_are_free() {
    let (mut rig, actions) = waiting(true);
    let frees = |action: &&NodeAction| matches!(action, NodeAction::FreeDevices { .. });
    assert_eq!(actions.iter().filter(frees).count(), 1, "{actions:?}");
    assert!(!rig.root(spawn(0..2, true)).iter().any(is_spawn));
    let started = rig.hear(free(false));
    assert_eq!(started.iter().filter(|action| is_spawn(action)).count(), 2, "{started:?}");
}

#[test]
fn host_is_ready_when_devices_are_free() {
    let (mut rig, actions) = waiting(false);
    let ready = NodeAction::ToRoot(ToRoot::Ready);
    assert!(!actions.contains(&ready));
    assert!(!rig.hear(NodeEvent::Checked { app: AppIndex::new(0), error: None }).contains(&ready));
    assert_eq!(rig.hear(free(false)), [ready]);
}

#[test]
fn host_refuses_when_devices_are_held() {
    let (mut rig, _) = waiting(true);
    rig.root(spawn(0..2, true));
    let why = NodeRefusal::Devices { holders: Capped::default(), more: 0, hidden: "/dev/vfio/0".into() };
    let actions = rig.hear(NodeEvent::DevicesFreed(DevicesFreed::Refused(why.clone())));
    assert!(actions.contains(&NodeAction::ToRoot(ToRoot::Refused(why))), "{actions:?}");
    assert!(!actions.iter().any(is_spawn));
}

/// A file system or a process that does not answer holds the search.
#[test]
fn host_refuses_when_the_search_for_holders_does_not_end() {
    let overdue = NodeAction::ToRoot(ToRoot::Refused(NodeRefusal::DevicesUnknown { limit: Span::from_secs(30) }));
    for sole in [true, false] {
        let (mut rig, _) = waiting(sole);
        assert!(!rig.wait(29_999).contains(&overdue));
        assert!(rig.wait(1).contains(&overdue));
    }
    let (mut rig, _) = waiting(true);
    rig.root(spawn(0..1, true));
    rig.wait(29_000);
    rig.hear(NodeEvent::DevicesEnding);
    assert!(!rig.wait(60_000).contains(&overdue), "holders have the grace, and time to exit");
    assert!(rig.hear(free(false)).iter().any(is_spawn));
    assert!(!rig.wait(60_000).contains(&overdue));
}

#[test]
fn lock_that_is_in_the_way_is_skipped_by_ranks() {
    for (skips_lock, expected) in [(true, true), (false, false)] {
        let (mut rig, _) = waiting(true);
        rig.root(spawn(0..1, true));
        let actions = rig.hear(free(skips_lock));
        let shared = actions.iter().find_map(|action| {
            let NodeAction::Spawn { exec, .. } = action else { return None };
            Some(exec.shared.clone())
        });
        let has = shared.unwrap().iter().any(|entry| entry == b"ALLOW_MULTIPLE_LIBTPU_LOAD=1");
        assert_eq!(has, expected);
    }
}

/// A node whose only rank has ended.
fn with_ended_rank() -> Rig {
    let (mut rig, _) = waiting(true);
    rig.root(spawn(0..1, true));
    rig.hear(free(false));
    rig.spawned(0);
    rig.exited(0, exit(0));
    rig.streams_end(0);
    rig
}

#[test]
fn devices_are_looked_at_before_the_last_message() {
    let mut rig = with_ended_rank();
    let examine = NodeAction::ExamineDevices { kind: DeviceKind::Auto };
    assert_eq!(rig.left(0), [examine]);
    assert_eq!(rig.hear(NodeEvent::DevicesExamined), [done(0), Finish(0)]);
}

#[test]
fn last_message_does_not_wait_long_for_the_look_at_devices() {
    let mut rig = with_ended_rank();
    rig.left(0);
    assert_eq!(rig.wait(1_999), []);
    assert_eq!(rig.wait(1), [done(0), Finish(0)]);
}
