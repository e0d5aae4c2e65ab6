//! Processes that follow others of their rank: when they are started.

use super::calls::finish;
use super::*;
use rlaunch_plan::gpus::{Devices, Share};
use rlaunch_protocol::wire::to_root::SpawnStep;

/// Two ranks in a round, on a host with devices; rank 1 has been killed and reaped, and another process of it is to follow. Returns the
/// actions.
fn follows() -> (Rig, Vec<NodeAction>) {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.receive(NodeEvent::SandboxReady(Sandbox { devices: true, ..sandbox() }));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..2, true));
    for n in 0..2 {
        rig.spawned(n);
        rig.registers(n, "");
    }
    rig.begins(R0, first_place(2), &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), Some(1))]);
    rig.exited(1, by(KILL));
    assert_eq!(rig.root(another(300, 1)), [], "the one before is looked at");
    let actions = rig.examined(1, Facts::default());
    (rig, actions)
}

fn spawns(actions: &[NodeAction]) -> bool {
    actions.iter().any(|action| matches!(action, NodeAction::Spawn { proc, .. } if *proc == p(300)))
}

#[test]
fn respawn_starts_when_devices_are_free() {
    let (mut rig, actions) = follows();
    assert!(!spawns(&actions));
    let awaits = |action: &NodeAction| matches!(action, NodeAction::Devices(DeviceAction::AwaitRelease { proc, .. }) if *proc == p(1));
    assert_eq!(actions.iter().filter(|action| awaits(action)).count(), 1, "{actions:?}");
    assert!(!spawns(&rig.interrupt(R0)), "whatever happens meanwhile");
    assert!(spawns(&rig.receive(NodeEvent::DevicesReleased { proc: p(1), taken: OsBytes::default() })));
}

/// Another program has taken the chip meanwhile.
#[test]
fn respawn_fails_when_another_process_has_taken_the_device() {
    let (mut rig, _) = follows();
    let actions = rig.receive(NodeEvent::DevicesReleased { proc: p(1), taken: "/dev/vfio/0".into() });
    assert!(!spawns(&actions));
    let error = SpawnError { step: SpawnStep::Devices, errno: 16, path: "/dev/vfio/0".into(), found: Found::Nothing };
    assert!(actions.contains(&says(ToRoot::SpawnFailed { proc: p(300), error })), "{actions:?}");
}

#[test]
fn respawn_starts_when_devices_are_not_released_in_time() {
    let (mut rig, _) = follows();
    rig.now = rig.now + Span::from_secs(49);
    rig.node.handle_timeout(rig.now);
    assert!(!spawns(&rig.drain()));
    rig.now = rig.now + Span::from_secs(1);
    rig.node.handle_timeout(rig.now);
    assert!(spawns(&rig.drain()));
}

/// If it cannot be started, the rank that waits for it is started all the same.
#[test]
fn respawn_is_requested_as_optional() {
    let follows = |actions: &[NodeAction]| {
        let one = |action: &NodeAction| {
            let NodeAction::Spawn { proc, exec } = action else { return None };
            Some((proc.get(), exec.is_respawn))
        };
        actions.iter().filter_map(one).collect::<Vec<_>>()
    };
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    rig.root(app_of(0, &base()));
    assert_eq!(follows(&rig.root(spawn(0..2, true))), [(0, false), (1, false)]);
    let mut rig = Rig::in_round(2);
    rig.exited(1, by(KILL));
    rig.root(another(300, 1));
    assert_eq!(follows(&rig.examined(1, Facts::default())), [(300, true)]);
    rig.spawn_failed(300);
    assert_eq!(follows(&rig.root(another(302, 1))), [(302, true)], "and again");
}

/// Its process would be ended at once: that may be done without any wait.
#[test]
fn dismissed_process_waits_for_no_device() {
    let (mut rig, _) = follows();
    let actions = rig.down(RoundDown::End { ranks: Capped::chunks([r(1)]).pop().unwrap() });
    assert!(spawns(&actions), "{actions:?}");
    assert!(rig.spawned(300).contains(&group(300, KILL)), "and has ended");
}

/// Rank 1 has another process, which has not registered.
fn started_again() -> Rig {
    let mut rig = Rig::in_round(2);
    rig.exited(1, by(KILL));
    rig.root(another(300, 1));
    rig.examined(1, Facts::default());
    rig.spawned(300);
    rig
}

/// A process that takes part by now is needed: it came while the launcher dismissed it.
#[test]
fn participant_is_not_dismissed() {
    let mut rig = started_again();
    let end = || RoundDown::End { ranks: Capped::chunks([r(1)]).pop().unwrap() };
    let begun = NodeEvent::SessionBegun { session: s(9), rank: Some(r(1)), terms: Vec::new() };
    let mut other = Rig::in_round(2);
    other.exited(1, by(KILL));
    other.root(another(300, 1));
    other.examined(1, Facts::default());
    other.spawned(300);
    assert_eq!(other.down(end()), [group(300, KILL)], "it has not registered");
    rig.receive(begun);
    assert_eq!(rig.down(end()), []);
}

/// Lets a process come for a rank of a lost host.
fn comes(rig: &mut Rig) -> Vec<NodeAction> {
    let delta = Delta {
        proc: p(305),
        app: AppIndex::new(0),
        rank: r(5),
        local_rank: LocalRank::new(2),
        app_rank: 5,
        app_size: 6,
        stdin: StdinPlan::None,
        world_rank: rlaunch_protocol::wire::to_node::WorldRank::sole(r(5), LocalRank::new(2)),
    };
    rig.root(ToNode::Spawn { procs: Capped::chunks([delta]).pop().unwrap(), last: true, local_size: 3 })
}

#[test]
fn respawn_elsewhere_knows_local_size() {
    let mut rig = Rig::in_round(2);
    let actions = comes(&mut rig);
    let [NodeAction::Spawn { proc, exec }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(*proc, p(305));
    let all: OsStrings = exec.shared.iter().chain(exec.vars.iter()).collect();
    let value = |name: &str| rlaunch_protocol::env::value(&all, name.as_bytes()).map(<[u8]>::to_vec);
    assert_eq!((value("LOCAL_RANK"), value("LOCAL_WORLD_SIZE")), (Some(b"2".to_vec()), Some(b"3".to_vec())));
    // Events before the start are reported after it.
    rig.spawned(305);
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0), interrupted(1, R0)], "it is in no round yet");
}

#[test]
fn respawn_elsewhere_without_gpus_fails_and_others_continue() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(Start { local_size: 2, ..start() }.with(|settings| settings.gpus = Share::Each(2))));
    rig.receive(NodeEvent::SandboxReady(Sandbox { gpus: Devices { amd: false, count: Some(4) }, ..sandbox() }));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..2, true));
    for n in 0..2 {
        rig.spawned(n);
        rig.registers(n, "");
    }
    rig.begins(R0, first_place(2), &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), Some(1))]);
    let [NodeAction::ToRoot(ToRoot::SpawnFailed { proc, error })] = &comes(&mut rig)[..] else { panic!() };
    assert_eq!((*proc, error.step), (p(305), SpawnStep::Gpus));
    rig.exited(1, by(KILL));
    assert!(rig.root(another(301, 1)).is_empty(), "the one before is looked at");
    let actions = rig.examined(1, Facts::default());
    assert!(actions.iter().any(|action| matches!(action, NodeAction::Spawn { .. })), "{actions:?}");
}

/// The process has come for work that is done by now, and is about to return from its call.
#[test]
fn participant_of_done_work_is_not_dismissed() {
    let mut rig = started_again();
    rig.receive(NodeEvent::SessionBegun { session: s(9), rank: Some(r(1)), terms: Vec::new() });
    rig.down(RoundDown::Finish { call: 0, round: R0 });
    assert_eq!(rig.down(RoundDown::End { ranks: Capped::chunks([r(1)]).pop().unwrap() }), []);
}

/// The files that it left open do not belong to a rank that the job has failed by.
#[test]
fn descendants_have_their_time_after_a_loss_that_was_made_good() {
    let sweeps = |actions: &[NodeAction]| actions.contains(&NodeAction::Sweep);
    let mut rig = Rig::in_round(2);
    rig.exited(1, by(KILL));
    rig.examined(1, Facts::default());
    rig.down(finish(0, R0));
    assert!(!sweeps(&rig.exited(0, exit(0))), "their streams are open");
    (0..7).for_each(|_| assert!(!sweeps(&rig.wait(250))));
    assert!(sweeps(&rig.wait(250)));
}

/// Its driver hangs before it registers, and the work is done: it is killed, and not waited for if that does not end it.
#[test]
fn unkillable_dismissed_process_is_reported() {
    let mut rig = started_again();
    assert_eq!(rig.down(RoundDown::End { ranks: Capped::chunks([r(1)]).pop().unwrap() }), [group(300, KILL)]);
    rig.down(finish(0, R0));
    let stuck = |action: &NodeAction| matches!(action, NodeAction::ToRoot(ToRoot::Round(RoundUp::Stuck { .. })));
    assert!(rig.awake(11_000).iter().any(stuck));
}

/// Its directory is still being made, on a file system that does not answer: nothing was killed, and nothing exists.
#[test]
fn rank_never_started_is_not_reported_as_unkillable() {
    let mut rig = Rig::in_round(2);
    rig.exited(1, by(KILL));
    rig.root(another(300, 1));
    rig.examined(1, Facts::default());
    rig.down(RoundDown::End { ranks: Capped::chunks([r(1)]).pop().unwrap() });
    let stuck = |action: &NodeAction| matches!(action, NodeAction::ToRoot(ToRoot::Round(RoundUp::Stuck { .. })));
    let actions = rig.awake(11_000);
    assert!(!actions.iter().any(stuck), "{actions:?}");
    assert!(rig.spawned(300).contains(&group(300, KILL)));
    assert!(rig.awake(11_000).iter().any(stuck), "from then on it counts");
}

#[test]
fn no_process_follows_a_living_one_or_outside_of_rounds() {
    is_refused(&mut Rig::in_round(2), another(300, 1));
    let mut before = Rig::running(2);
    before.exited(1, exit(0));
    is_refused(&mut before, another(300, 1));
    let mut after = Rig::in_round(2);
    after.exited(1, by(KILL));
    after.down(RoundDown::GiveUp { text: "enough".into() });
    is_refused(&mut after, another(300, 1));
}

/// Another call may have begun elsewhere, and no round of it yet.
#[test]
fn exited_rank_may_be_respawned_after_a_call() {
    let mut rig = Rig::in_round(2);
    rig.exited(1, by(KILL));
    rig.down(RoundDown::Finish { call: 0, round: R0 });
    rig.root(another(300, 1));
    let actions = rig.examined(1, Facts::default());
    assert!(actions.iter().any(|action| matches!(action, NodeAction::Spawn { proc, .. } if *proc == p(300))));
    rig.spawned(300);
    rig.registers(1, "");
    let begun = NodeEvent::SessionBegun { session: s(10), rank: Some(r(1)), terms: terms("") };
    rig.receive(NodeEvent::SessionLost { session: s(1) });
    let joined = rig.receive(begun);
    assert!(
        !joined.iter().any(|action| matches!(action, NodeAction::Sessions(SessionAction::Send { .. }))),
        "it has missed one, and is in the next: {joined:?}"
    );
}

#[test]
fn a_process_that_has_ended_may_be_followed_by_another_that_joins() {
    let mut rig = Rig::in_round(2);
    rig.exited(1, by(KILL));
    assert_eq!(rig.root(another(300, 1)), [], "the one before is looked at");
    let actions = rig.examined(1, Facts::default());
    let [NodeAction::ToRoot(ToRoot::Postmortem { .. }), Reap { .. }, NodeAction::Spawn { proc, .. }] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(*proc, p(300));
    rig.spawned(300);
    rig.receive(NodeEvent::SessionLost { session: s(1) });
    let begun = NodeEvent::SessionBegun { session: s(9), rank: Some(r(1)), terms: Vec::new() };
    let ranks = Capped::chunks([Enrolled { proc: p(300), ..enrolled(1, &[]) }]).pop().unwrap();
    assert_eq!(rig.receive(begun), [up(RoundUp::Joined { call: 0, ranks, terms: OsBytes::default() })], "at once");
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0)], "it is in no round yet");
    assert_eq!(rig.is_ready(0, R0), [reserve_port(None)]);
    assert_eq!(rig.receive(NodeEvent::PortReserved { port: 9 }), [ready(R0, &[0], 9)]);
    let place = RoundRendezvous { namespace: 2, port: 9, ..first_place(2) };
    let actions = rig.begins(R1, place, &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), Some(1))]);
    let begun: Vec<u32> = began(&actions).iter().map(|(session, _)| *session).collect();
    assert_eq!(begun, [0, 9]);
    let said = says_exit(&rig, 300, exit(1));
    assert_eq!(rig.exited(300, exit(1))[..2], [said, group(300, KILL)]);
}
