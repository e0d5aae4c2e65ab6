//! A node that is one of several.

use super::*;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::to_node::Rendezvous;

/// On another host than the launcher's, with a lease of 8 s.
fn elsewhere() -> Start {
    Start { sole: false, rendezvous: None, port: PortPlan::None, has_lease: true, ..start() }
        .with(|settings| settings.hosts.lease = Span::from_secs(8))
}

fn rendezvous() -> ToNode {
    ToNode::Rendezvous(Rendezvous {
        addr: "10.0.0.1".into(),
        port: Some(7000),
        world_size: 6,
        nodes: 3,
        node_index: 2,
        ..Rendezvous::default()
    })
}

fn ms(n: u64) -> u64 {
    n * 1_000_000
}

fn beat(own: u64, echo: u64) -> NodeEvent {
    NodeEvent::Beat(Beat { own: ms(own), echo: ms(echo) })
}

fn sent(own: u64, echo: u64) -> NodeAction {
    NodeAction::Beat(Beat { own: ms(own), echo: ms(echo) })
}

/// A node that has said that it is ready, and everything that it did for it.
fn ready() -> (Rig, Vec<NodeAction>) {
    let mut rig = Rig::new();
    let mut actions = rig.root(ToNode::Start(elsewhere()));
    actions.extend(rig.root(app_of(0, &base())));
    actions.extend(rig.receive(NodeEvent::Checked { app: AppIndex::new(0), error: None }));
    actions.extend(rig.receive(NodeEvent::SandboxReady(sandbox())));
    (rig, actions)
}

#[test]
fn node_is_ready_after_program_check_and_sandbox_set_up() {
    let (_, actions) = ready();
    let check = NodeAction::Check { app: AppIndex::new(0), base: Arc::new(base()) };
    assert!(actions.contains(&check));
    assert_eq!(actions.last(), Some(&NodeAction::ToRoot(ToRoot::Ready)));
    let mut rig = Rig::new();
    rig.root(ToNode::Start(elsewhere()));
    rig.root(app_of(0, &base()));
    assert!(
        matches!(rig.receive(NodeEvent::SandboxReady(sandbox()))[..], [NodeAction::ToRoot(ToRoot::Hello(_))]),
        "not checked"
    );
    let error = SpawnError { step: SpawnStep::Exec, errno: 2, path: "./train".into(), found: Found::Nothing };
    let actions = rig.receive(NodeEvent::Checked { app: AppIndex::new(0), error: Some(error.clone()) });
    let refusal = NodeRefusal::Program { app: AppIndex::new(0), error };
    assert_eq!(actions[0], NodeAction::ToRoot(ToRoot::Refused(refusal)));
}

#[test]
fn ranks_get_the_rendezvous() {
    let (mut rig, _) = ready();
    rig.root(rendezvous());
    let actions = rig.root(spawn(0..1, true));
    let [NodeAction::Spawn { exec, .. }] = &actions[..] else { panic!("{actions:?}") };
    let vars: Vec<_> = exec.shared.iter().map(<[u8]>::to_vec).collect();
    assert!(vars.contains(&b"MASTER_ADDR=10.0.0.1".to_vec()) && vars.contains(&b"MASTER_PORT=7000".to_vec()));
}

#[test]
fn a_launcher_that_forgets_where_they_meet_or_says_it_twice_is_refused() {
    let protocol = NodeAction::ToRoot(ToRoot::Refused(NodeRefusal::Protocol));
    let (mut rig, _) = ready();
    assert_eq!(rig.root(spawn(0..1, true))[0], protocol);
    let (mut rig, _) = ready();
    assert_eq!(rig.root(rendezvous()), [NodeAction::Store(StoreAction::Open { here: false, number: 0, ranks: None })]);
    assert_eq!(rig.root(rendezvous())[0], protocol);
    assert_eq!(Rig::new().root(rendezvous())[0], protocol, "before Start");
    assert_eq!(Rig::new().root(ToNode::Finish)[0], protocol, "before Start");
}

#[test]
fn job_ends_when_ranks_of_all_nodes_have_ended() {
    let (mut rig, _) = ready();
    rig.root(rendezvous());
    rig.root(spawn(0..1, true));
    rig.spawned(0);
    rig.streams_end(0);
    assert_eq!(rig.exited(0, exit(0))[1..], [Reap { proc: p(0) }], "not before");
    assert_eq!(rig.root(ToNode::Finish), [NAME_LEFT, SWEEP]);
}

#[test]
fn the_lease_counts_from_the_reading_that_the_launcher_repeats() {
    let (mut rig, actions) = ready();
    assert!(actions.contains(&NodeAction::Lease(LeaseAction::Until(at(9_000)))) && actions.contains(&sent(1_000, 0)));
    // The launcher's clock shows 50,000 when it answers the first beat. The answer comes after 500 ms.
    rig.now = at(1_500);
    assert_eq!(rig.receive(beat(50_000, 1_000)), [sent(1_500, 50_000)], "no longer lease, but an answer at once");
    assert_eq!(rig.wait(1_000), [sent(2_500, 51_000)], "the launcher's clock continues while its reading waits here");
    rig.now = at(2_600);
    assert_eq!(rig.receive(beat(51_100, 2_500)), [NodeAction::Lease(LeaseAction::Until(at(10_500)))]);
    assert_eq!(rig.receive(beat(51_100, 2_000)), [], "an old reading shortens nothing");
    // A launcher from the future grants no more than from now.
    assert_eq!(rig.receive(beat(51_100, 99_000)), [NodeAction::Lease(LeaseAction::Until(at(10_600)))]);
    rig.now = at(10_599);
    assert!(rig.wait(0).iter().all(|action| matches!(action, NodeAction::Beat(_))));
    assert_eq!(rig.wait(1), [SWEEP], "everything is killed, and nothing is reported");
    assert_eq!(rig.left(0), [NodeAction::Finish(1)], "the guardian looks again");
}

/// A launcher that was stopped for long reads this after SIGCONT. The rank must not be its culprit.
#[test]
fn ranks_that_the_guardian_kills_at_the_end_of_the_lease_are_not_reported() {
    let (mut rig, _) = ready();
    rig.root(rendezvous());
    rig.root(spawn(0..1, true));
    rig.spawned(0);
    rig.now = at(9_000);
    let acts = rig.exited(0, Status::Signaled { sig: Signal::KILL, core: false });
    assert!(acts.iter().all(|act| !matches!(act, NodeAction::ToRoot(_))), "{acts:?}");
    assert!(acts.contains(&SWEEP));
}

#[test]
fn the_launchers_own_host_has_no_lease() {
    let mut rig = Rig::running(1);
    assert_eq!(rig.receive(beat(1, 1)), []);
    assert_eq!(rig.wait(100_000), []);
}

/// The order to end and an earlier exit come at once, and the exit is received last.
#[test]
fn failure_before_the_end_was_not_ours() {
    let mut rig = Rig::running(2);
    let seen = rig.now;
    rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) });
    let report = |at: Mono, n, asked| {
        let usage = Usage::default();
        let (at, alive_at) = (at.host_time(), seen.host_time());
        says(ToRoot::Exited(Exited { proc: p(n), status: exit(18), at, alive_at, asked, usage }))
    };
    let mut exits = |at, n| {
        let usage = Usage::default();
        rig.receive(NodeEvent::Exited { proc: p(n), status: exit(18), at, alive_at: seen, usage })
    };
    assert_eq!(exits(seen, 0)[0], report(seen, 0, false));
    let later = seen + Span::from_millis(1);
    assert_eq!(exits(later, 1)[0], report(later, 1, true));
}

#[test]
fn node_of_many_waits_for_launcher() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(Start { sole: false, ..start() }));
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..1, true));
    rig.spawned(0);
    rig.streams_end(0);
    assert_eq!(rig.exited(0, exit(0))[1..], [Reap { proc: p(0) }]);
    assert_eq!(rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) }), [says(ToRoot::Killing), SWEEP]);
}
