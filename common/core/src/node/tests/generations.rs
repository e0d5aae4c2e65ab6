//! A generation of ranks is cleared away, and another follows.

use super::*;

fn clear(ms: u64) -> ToNode {
    ToNode::Clear { sig: TERM, grace: Span::from_millis(ms), port: PortPlan::Choose }
}

fn again(restart: u32) -> ToNode {
    let rendezvous = start().rendezvous.unwrap_or_default();
    ToNode::Again(Rendezvous { port: Some(21_000), restart, namespace: restart, ..rendezvous })
}

fn cleared(left: u32, port: u16) -> NodeAction {
    let NodeAction::ToRoot(ToRoot::Done { named, .. }) = done(left) else { unreachable!() };
    says(ToRoot::Cleared { left, named, port })
}

const RENEW: NodeAction = NodeAction::Renew { port: PortPlan::Choose };

/// The only node of a job that may be started again; its ranks run.
fn rig(count: u32) -> Rig {
    Rig::running_by(Start { can_start_more: true, ..start() }.with(|settings| settings.restarts.most = 2), count)
}

/// A rank has failed, and nothing is left of it.
fn fails(rig: &mut Rig, n: u32) {
    rig.exited(n, exit(1));
    rig.examined(n, Facts::default());
    rig.streams_end(n);
}

/// Nothing runs; the launcher knows.
fn waiting() -> Rig {
    let mut rig = rig(1);
    fails(&mut rig, 0);
    assert_eq!(rig.root(clear(5000)), [SWEEP]);
    assert_eq!(rig.left(0), [RENEW]);
    assert_eq!(rig.receive(NodeEvent::Renewed { port: 21_000 }), [cleared(0, 21_000)]);
    rig
}

fn vars(exec: &ExecSpec) -> Vec<String> {
    exec.shared.iter().chain(exec.vars.iter()).map(|e| String::from_utf8_lossy(e).into_owned()).collect()
}

#[test]
fn processes_are_gone_before_the_report_and_the_next_generation() {
    let mut rig = rig(2);
    fails(&mut rig, 0);
    assert_eq!(rig.root(clear(5000)), [group(0, TERM), group(1, TERM)].split_off_first());
    let said = asked(says_exit(&rig, 1, by(TERM)));
    assert_eq!(
        rig.exited(1, by(TERM)),
        [said, NodeAction::Examine(ExamineAction { proc: p(1), status: by(TERM), depth: Depth::ErrorFile })]
    );
    let actions = rig.examined(1, Facts::default());
    assert_eq!(actions, [Reap { proc: p(1) }, says(ToRoot::Killing), SWEEP]);
    assert_eq!(rig.left(3), [], "something is still there");
    assert_eq!(rig.wait(1), [SWEEP]);
    // All holders of a stream are gone too.
    assert_eq!(rig.left(0), [says(ToRoot::Draining), CloseStreams { proc: p(1) }]);
    assert_eq!(rig.streams_end(1), [RENEW]);
    assert_eq!(rig.receive(NodeEvent::InitLost), [], "it went with the rest");
    assert_eq!(rig.receive(NodeEvent::Renewed { port: 21_000 }), [cleared(0, 21_000)]);
    assert_eq!(rig.wait(100_000), []);
    assert_eq!(rig.root(again(1)), [NodeAction::Store(StoreAction::Open { here: true, number: 1, ranks: None })]);
    let actions = rig.root(spawn(2..4, true));
    let [NodeAction::Spawn { proc, exec }, NodeAction::Spawn { .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(*proc, p(2));
    let vars = vars(exec);
    for entry in ["MASTER_PORT=21000", "TORCHELASTIC_RESTART_COUNT=1", "TORCHELASTIC_MAX_RESTARTS=2"] {
        assert!(vars.iter().any(|e| e == entry), "{entry} in {vars:?}");
    }
    // A SIGTERM of another process is none of ours now.
    rig.spawned(2);
    rig.spawned(3);
    let said = says_exit(&rig, 2, by(TERM));
    assert_eq!(
        rig.exited(2, by(TERM)),
        [said, NodeAction::Examine(ExamineAction { proc: p(2), status: by(TERM), depth: Depth::Full })]
    );
    // Init is guarded as before.
    assert_eq!(rig.receive(NodeEvent::InitLost).first(), Some(&says(ToRoot::InitLost)));
}

trait SplitOffFirst {
    /// A rank that has ended is not signalled.
    fn split_off_first(self) -> Vec<NodeAction>;
}

impl SplitOffFirst for [NodeAction; 2] {
    fn split_off_first(self) -> Vec<NodeAction> {
        self.into_iter().skip(1).collect()
    }
}

#[test]
fn late_hook_is_killed_and_later_hooks_run() {
    let mut rig = rig(1);
    assert_eq!(rig.root(clear(100)), [group(0, TERM)]);
    assert_eq!(rig.wait(100), [says(ToRoot::Killing), group(0, KILL), SWEEP]);
    let said = asked(says_exit(&rig, 0, by(KILL)));
    assert_eq!(
        rig.exited(0, by(KILL)),
        [said, NodeAction::Examine(ExamineAction { proc: p(0), status: by(KILL), depth: Depth::ErrorFile })]
    );
    rig.examined(0, Facts::default());
    rig.streams_end(0);
    assert_eq!(rig.left(0), [SWEEP], "that was before it was reaped");
    assert_eq!(rig.left(0), [RENEW]);
    rig.receive(NodeEvent::Renewed { port: 0 });
    rig.root(again(1));
    assert!(matches!(rig.root(spawn(1..2, true))[..], [NodeAction::Spawn { .. }]));
    rig.spawned(1);
    assert_eq!(rig.wait(60_000), [], "no grace has expired");
}

#[test]
fn node_waits_for_the_end_if_others_may_start() {
    let mut rig = rig(1);
    rig.streams_end(0);
    assert_eq!(rig.exited(0, exit(0)).last(), Some(&Reap { proc: p(0) }));
    assert_eq!(rig.wait(60_000), []);
    assert_eq!(rig.root(ToNode::Finish), [NAME_LEFT, SWEEP]);
    assert_eq!(rig.left(0), [done(0), Finish(0)]);
}

#[test]
fn the_end_ends_everything_whatever_was_going_on() {
    let end = || ToNode::End { sig: TERM, grace: Span::from_secs(9) };
    // While ranks are asked to end.
    let mut all = rig(1);
    all.root(clear(100));
    assert_eq!(all.root(end()), [group(0, TERM)]);
    assert_eq!(all.wait(100), [says(ToRoot::Killing), group(0, KILL), SWEEP], "never later than they were notified");
    all.exited(0, by(KILL));
    all.examined(0, Facts::default());
    all.streams_end(0);
    all.left(0);
    assert_eq!(all.left(0), [done(0), Finish(0)]);
    // While what is left is swept away.
    let mut all = rig(1);
    fails(&mut all, 0);
    all.root(clear(100));
    all.root(ToNode::Kill);
    assert_eq!(all.left(0), [done(0), Finish(0)]);
    // While the sandbox is set up: init may be about to exist.
    let mut all = rig(1);
    fails(&mut all, 0);
    all.root(clear(100));
    all.left(0);
    assert_eq!(all.root(end()), [says(ToRoot::Killing)]);
    assert_eq!(all.receive(NodeEvent::Renewed { port: 7 }), [SWEEP]);
    assert_eq!(all.left(0), [done(0), Finish(0)]);
    // In the pause.
    let mut all = waiting();
    assert_eq!(all.root(end()), [says(ToRoot::Killing), SWEEP]);
    assert_eq!(all.left(0), [done(0), Finish(0)]);
    let mut all = waiting();
    assert!(all.root(ToNode::Kill).contains(&SWEEP));
    assert_eq!(all.left(0), [done(0), Finish(0)]);
    // A sandbox that cannot be had is the end, too.
    let mut all = rig(1);
    fails(&mut all, 0);
    all.root(clear(100));
    all.left(0);
    assert_eq!(
        all.receive(NodeEvent::Refused(NodeRefusal::NoPort)),
        [says(ToRoot::Refused(NodeRefusal::NoPort)), SWEEP]
    );
    assert_eq!(all.left(0), [done(0), Finish(0)]);
}

#[test]
fn the_end_does_not_wait_for_a_sandbox_that_could_not_be_renewed() {
    let mut rig = rig(1);
    fails(&mut rig, 0);
    rig.root(clear(5000));
    assert_eq!(rig.left(0), [RENEW]);
    assert_eq!(rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) }), [says(ToRoot::Killing)]);
    assert_eq!(rig.receive(NodeEvent::Refused(NodeRefusal::NoPort)), [SWEEP]);
}

#[test]
fn unkillable_process_is_reported_and_counted_at_the_end() {
    let mut rig = rig(1);
    fails(&mut rig, 0);
    rig.root(clear(100));
    let mut actions = rig.left(1);
    for _ in 0..60 {
        actions.extend(rig.wait(50));
        if actions.contains(&cleared(1, 0)) {
            break;
        }
        actions.extend(rig.left(1));
    }
    assert!(actions.contains(&cleared(1, 0)), "{actions:?}");
    assert_eq!(rig.root(ToNode::End { sig: TERM, grace: Span::ZERO }).last(), Some(&SWEEP));
    assert_eq!(rig.left(0), [done(0), Finish(0)]);
}

#[test]
fn a_launcher_that_breaks_the_order_of_generations_is_refused() {
    is_refused(&mut Rig::new(), clear(1));
    is_refused(&mut Rig::new(), again(1));
    is_refused(&mut rig(1), again(1));
    let mut all = rig(1);
    all.root(clear(1000));
    is_refused(&mut all, clear(1000));
    is_refused(&mut waiting(), clear(1000));
    let mut all = waiting();
    all.root(again(1));
    all.root(spawn(1..2, true));
    is_refused(&mut all, spawn(2..3, true));
    assert_eq!(waiting().root(spawn(1..2, true)), [], "nothing is started that nobody can know of");
}
