//! Devices that have to be free before ranks are started, and are looked at after the last.

use super::*;
use crate::node::DevicesFreed;
use rlaunch_protocol::guard::devices::{DeviceKind, DevicePlan, DeviceStep};

fn plan() -> DevicePlan {
    DevicePlan { kind: DeviceKind::Auto, ..DevicePlan::default() }
}

fn free(skips_lock: bool) -> NodeEvent {
    NodeEvent::DevicesFreed(DevicesFreed::Free { skips_lock })
}

/// A node whose devices are being freed, and that is ready otherwise. `sole`: it is the only one.
fn waiting(sole: bool) -> (Rig, Vec<NodeAction>) {
    let mut rig = Rig::new();
    let mut actions = rig.root(ToNode::Start(Start { sole, ..start() }.with(|settings| settings.devices = plan())));
    actions.extend(rig.receive(NodeEvent::SandboxReady(sandbox())));
    actions.extend(rig.root(app_of(0, &base())));
    (rig, actions)
}

fn is_spawn(action: &NodeAction) -> bool {
    matches!(action, NodeAction::Spawn { .. })
}

#[test]
fn ranks_start_when_devices_are_free() {
    let (mut rig, actions) = waiting(true);
    let frees = |action: &&NodeAction| matches!(action, NodeAction::Devices(DeviceAction::Free { .. }));
    assert_eq!(actions.iter().filter(frees).count(), 1, "{actions:?}");
    assert!(!rig.root(spawn(0..2, true)).iter().any(is_spawn));
    let started = rig.receive(free(false));
    assert_eq!(started.iter().filter(|action| is_spawn(action)).count(), 2, "{started:?}");
}

#[test]
fn host_is_ready_when_devices_are_free() {
    let (mut rig, actions) = waiting(false);
    let ready = NodeAction::ToRoot(ToRoot::Ready);
    assert!(!actions.contains(&ready));
    assert!(!rig.receive(NodeEvent::Checked { app: AppIndex::new(0), error: None }).contains(&ready));
    assert_eq!(rig.receive(free(false)), [ready]);
}

fn steps(actions: &[NodeAction]) -> Vec<DeviceStep> {
    let step = |action: &NodeAction| {
        if let NodeAction::Devices(DeviceAction::Free { step, .. }) = action { Some(*step) } else { None }
    };
    actions.iter().filter_map(step).collect()
}

const FOUND: NodeEvent = NodeEvent::DevicesFreed(DevicesFreed::Found);

fn checked(error: Option<SpawnError>) -> NodeEvent {
    NodeEvent::Checked { app: AppIndex::new(0), error }
}

fn missing() -> SpawnError {
    SpawnError { step: SpawnStep::Exec, errno: 2, path: "prog".into(), found: Found::Nothing }
}

/// Among several hosts, holders are ended by order of the launcher: the others may have no program.
#[test]
fn host_with_holders_reports_them_and_waits_for_the_order() {
    let (mut rig, actions) = waiting(false);
    assert_eq!(steps(&actions), [DeviceStep::Look]);
    assert_eq!(rig.receive(FOUND), []);
    let [held, none] = [true, false].map(|held| NodeAction::ToRoot(ToRoot::Devices { held }));
    assert_eq!(rig.receive(checked(None)), [held.clone(), NodeAction::ToRoot(ToRoot::Ready)]);
    let actions = rig.root(ToNode::Devices(DeviceStep::Free));
    assert_eq!(steps(&actions), [DeviceStep::Free]);
    assert_eq!(rig.receive(free(false)), [none]);
    // Before another generation.
    assert_eq!(steps(&rig.root(ToNode::Devices(DeviceStep::Look))), [DeviceStep::Look]);
    assert_eq!(rig.receive(FOUND), [held]);
    assert_eq!(steps(&rig.root(ToNode::Devices(DeviceStep::Free))), [DeviceStep::Free]);
    let refused = NodeAction::ToRoot(ToRoot::Refused(NodeRefusal::Protocol));
    assert!(rig.root(ToNode::Devices(DeviceStep::Free)).contains(&refused), "twice at once");
}

#[test]
fn only_host_ends_holders_once_its_programs_are_found() {
    // The look may be over before the sandbox and the program are there, or after.
    for is_early in [true, false] {
        let mut rig = Rig::new();
        rig.root(ToNode::Start(Start { sole: true, ..start() }.with(|settings| settings.devices = plan())));
        let mut actions = if is_early { rig.receive(FOUND) } else { vec![] };
        actions.extend(rig.root(app_of(0, &base())));
        actions.extend(rig.root(spawn(0..2, true)));
        if !is_early {
            actions.extend(rig.receive(FOUND));
        }
        let check = |action: &NodeAction| matches!(action, NodeAction::Check { .. });
        assert_eq!((actions.iter().filter(|one| check(one)).count(), steps(&actions)), (1, vec![]), "{actions:?}");
        assert_eq!(steps(&rig.receive(checked(None))), []);
        assert_eq!(steps(&rig.receive(NodeEvent::SandboxReady(sandbox()))), [DeviceStep::Free]);
        let started = rig.receive(free(false));
        assert_eq!(started.iter().filter(|action| is_spawn(action)).count(), 2, "{started:?}");
    }
}

#[test]
fn only_host_ends_no_holder_for_a_program_that_is_missing() {
    let (mut rig, _) = waiting(true);
    rig.root(spawn(0..2, true));
    rig.receive(FOUND);
    let actions = rig.receive(checked(Some(missing())));
    let why = NodeRefusal::Program { app: AppIndex::new(0), error: missing() };
    assert!(actions.contains(&NodeAction::ToRoot(ToRoot::Refused(why))), "{actions:?}");
    assert!(!actions.iter().any(is_spawn) && steps(&actions).is_empty(), "{actions:?}");
}

#[test]
fn host_without_preparation_refuses_an_order_about_devices() {
    let mut rig = Rig::running(1);
    let refused = NodeAction::ToRoot(ToRoot::Refused(NodeRefusal::Protocol));
    assert!(rig.root(ToNode::Devices(DeviceStep::Look)).contains(&refused));
}

#[test]
fn host_refuses_when_devices_are_held() {
    let (mut rig, _) = waiting(true);
    rig.root(spawn(0..2, true));
    let why = NodeRefusal::Devices { holders: Capped::default(), more: 0, hidden: "/dev/vfio/0".into() };
    let actions = rig.receive(NodeEvent::DevicesFreed(DevicesFreed::Refused(why.clone())));
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
    rig.receive(NodeEvent::DevicesEnding);
    assert!(!rig.wait(60_000).contains(&overdue), "holders have the grace, and time to exit");
    assert!(rig.receive(free(false)).iter().any(is_spawn));
    assert!(!rig.wait(60_000).contains(&overdue));
}

#[test]
fn lock_that_is_in_the_way_is_skipped_by_ranks() {
    for (skips_lock, expected) in [(true, true), (false, false)] {
        let (mut rig, _) = waiting(true);
        rig.root(spawn(0..1, true));
        let actions = rig.receive(free(skips_lock));
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
    rig.receive(free(false));
    rig.spawned(0);
    rig.exited(0, exit(0));
    rig.streams_end(0);
    rig
}

#[test]
fn devices_are_looked_at_before_the_last_message() {
    let mut rig = with_ended_rank();
    let examine = NodeAction::Devices(DeviceAction::Examine { kind: DeviceKind::Auto });
    assert_eq!(rig.left(0), [examine]);
    assert_eq!(rig.receive(NodeEvent::DevicesExamined), [done(0), Finish(0)]);
}

#[test]
fn last_message_does_not_wait_long_for_the_look_at_devices() {
    let mut rig = with_ended_rank();
    rig.left(0);
    assert_eq!(rig.wait(1_999), []);
    assert_eq!(rig.wait(1), [done(0), Finish(0)]);
}
