//! Processes that follow others of their rank: when they are started.

use super::*;

/// Two ranks in a round, on a host with devices; rank 1 has been killed and reaped, and another process of it is to follow. What is done.
fn follows() -> (Rig, Vec<NodeAction>) {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.hear(NodeEvent::Grounded(Ground { devices: true, ..ground() }));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..2, true));
    for n in 0..2 {
        rig.spawned(n);
        rig.registers(n, "");
    }
    rig.begins(R0, first_place(2), &[seat(0, Some(0), Some(0)), seat(1, Some(1), Some(1))]);
    rig.exited(1, by(KILL));
    assert_eq!(rig.root(another(300, 1)), [], "the one before is looked at");
    let actions = rig.examined(1, Facts::default());
    (rig, actions)
}

fn spawns(actions: &[NodeAction]) -> bool {
    actions.iter().any(|action| matches!(action, NodeAction::Spawn { proc, .. } if *proc == p(300)))
}

#[test]
fn it_is_started_when_the_devices_of_the_one_before_are_free() {
    let (mut rig, actions) = follows();
    assert!(!spawns(&actions));
    let looks = |action: &NodeAction| matches!(action, NodeAction::LookAtDevices { proc, .. } if *proc == p(1));
    assert_eq!(actions.iter().filter(|action| looks(action)).count(), 1, "{actions:?}");
    assert_eq!(rig.hear(NodeEvent::DevicesSeen { proc: p(1), held: true }), []);
    assert!(!spawns(&rig.interrupt(R0)), "whatever happens meanwhile");
    rig.now = rig.now + Span::from_secs(1);
    rig.node.handle_timeout(rig.now);
    assert!(rig.drain().iter().any(looks), "and looked again");
    assert!(spawns(&rig.hear(NodeEvent::DevicesSeen { proc: p(1), held: false })));
}

/// Its process would be ended at once: that may be done without any wait.
#[test]
fn one_that_nobody_wants_any_more_waits_for_no_device() {
    let (mut rig, _) = follows();
    let actions = rig.down(RoundDown::End { ranks: Capped::chunks([r(1)]).pop().unwrap() });
    assert!(spawns(&actions), "{actions:?}");
    assert!(rig.spawned(300).contains(&group(300, KILL)), "and is over");
}

/// One that takes part by now is wanted: it came while the launcher said that nobody would be.
#[test]
fn one_that_takes_part_is_not_ended_as_unwanted() {
    let mut rig = Rig::in_round(2);
    rig.exited(1, by(KILL));
    rig.root(another(300, 1));
    rig.examined(1, Facts::default());
    rig.spawned(300);
    let end = || RoundDown::End { ranks: Capped::chunks([r(1)]).pop().unwrap() };
    let begun = NodeEvent::SessionBegun { session: s(9), rank: Some(r(1)), terms: Vec::new() };
    let mut other = Rig::in_round(2);
    other.exited(1, by(KILL));
    other.root(another(300, 1));
    other.examined(1, Facts::default());
    other.spawned(300);
    assert_eq!(other.down(end()), [group(300, KILL)], "it has not registered");
    rig.hear(begun);
    assert_eq!(rig.down(end()), []);
}
