//! A launch that ends before it is complete.

use super::rounds::another;
use super::*;

#[test]
fn a_failed_start_stops_the_launch_and_leaves_the_rest_to_the_launcher() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..300, false));
    rig.spawned(0);
    let actions = rig.spawn_failed(1);
    let [NodeAction::Withhold, NodeAction::ToRoot(ToRoot::SpawnFailed { .. })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(rig.root(spawn(300..301, true)), [], "nothing else is started");
    for n in 2..257 {
        assert_eq!(rig.receive(NodeEvent::Withheld { proc: p(n) }), [], "and they are not reported one by one");
    }
    assert_eq!(rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) }), [group(0, TERM)]);
    rig.exited(0, by(TERM));
    let killing = says(ToRoot::Killing);
    assert_eq!(rig.examined(0, Facts::default()), [Reap { proc: p(0) }, killing, SWEEP], "the launcher cannot know");
    assert_eq!(rig.left(0), [says(ToRoot::Draining), CloseStreams { proc: p(0) }]);
    assert_eq!(rig.streams_end(0), [done(0), Finish(0)]);
}

#[test]
fn an_ending_starts_nothing_that_was_only_asked_for() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..300, true));
    rig.spawned(0);
    let end = ToNode::End { sig: TERM, grace: Span::from_secs(5) };
    assert_eq!(rig.root(end.clone()), [NodeAction::Withhold, group(0, TERM)]);
    assert_eq!(rig.root(end), [group(0, TERM)], "asked for once");
    rig.exited(0, by(TERM));
    rig.examined(0, Facts::default());
    rig.streams_end(0);
    for n in 1..256 {
        assert_eq!(rig.receive(NodeEvent::Withheld { proc: p(n) }), []);
    }
    let killing = says(ToRoot::Killing);
    assert_eq!(rig.receive(NodeEvent::Withheld { proc: p(256) }), [killing, SWEEP], "all are known not to run");
    assert_eq!(rig.receive(NodeEvent::Withheld { proc: p(256) }), [], "said twice");
    assert_eq!(rig.left(0), [done(0), Finish(0)]);
}

#[test]
fn rank_started_during_the_end_gets_the_signal() {
    for (message, sig) in [(ToNode::End { sig: HUP, grace: Span::from_secs(5) }, HUP), (ToNode::Kill, KILL)] {
        let mut rig = Rig::new();
        rig.root(ToNode::Start(start()));
        rig.receive(NodeEvent::SandboxReady(sandbox()));
        rig.root(app_of(0, &base()));
        rig.root(spawn(0..1, true));
        rig.root(message);
        assert_eq!(rig.spawned(0)[0], group(0, sig));
    }
}

#[test]
fn a_program_arrives_in_parts_and_its_ranks_wait_for_the_last() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    let big = AppBase { argv: [[b'x'; 300_000]].iter().collect(), ..base() };
    let bytes = codec::encode(&big);
    let (one, two) = bytes.split_at(APP_PART);
    let app = AppIndex::new(0);
    assert_eq!(rig.root(ToNode::App { app, last: false, part: one.into() }), []);
    assert_eq!(rig.root(spawn(0..1, true)), []);
    let actions = rig.root(ToNode::App { app, last: true, part: two.into() });
    assert!(matches!(&actions[..], [NodeAction::Spawn { exec, .. }] if *exec.base == big));
}

#[test]
fn failed_respawns_free_their_slots() {
    let mut rig = Rig::in_round(1);
    let begun = |actions: &[NodeAction]| actions.iter().filter(|a| matches!(a, NodeAction::Spawn { .. })).count();
    assert_eq!(begun(&rig.root(spawn(1..300, true))), 256, "so many at once");
    for n in 1..257 {
        let actions = rig.spawn_failed(n);
        assert!(!actions.contains(&NodeAction::Withhold) && begun(&actions) == usize::from(n < 44), "{n}: {actions:?}");
    }
}

#[test]
fn failed_respawn_is_followed_by_another() {
    let mut rig = Rig::in_round(2);
    rig.exited(1, by(KILL));
    rig.examined(1, Facts::default());
    for proc in 300..303 {
        let actions = rig.root(another(proc, 1));
        let spawned = |action: &NodeAction| matches!(action, NodeAction::Spawn { proc: own, .. } if *own == p(proc));
        assert!(actions.iter().any(spawned), "{proc}: {actions:?}");
        rig.spawn_failed(proc);
    }
}
