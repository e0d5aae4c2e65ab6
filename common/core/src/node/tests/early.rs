//! Requests before anything runs.

use super::*;

#[test]
fn an_end_before_anything_runs_starts_nothing() {
    let mut rig = Rig::new();
    rig.root(ToNode::Start(start()));
    rig.root(app_of(0, &base()));
    rig.root(spawn(0..1, false));
    let said = rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) });
    assert_eq!(said, [says(ToRoot::Killing)], "there is nobody to be patient with, but init may be about to exist");
    let actions = rig.receive(NodeEvent::SandboxReady(sandbox()));
    assert!(matches!(&actions[..], [NodeAction::ToRoot(ToRoot::Hello(_)), HERE, SWEEP]), "{actions:?}");
    assert_eq!(rig.left(0), [done(0), Finish(0)]);
}

/// No signal has reached a process whose start is not known yet.
#[test]
fn rank_that_fails_before_its_start_is_known_has_failed_by_itself() {
    for (status, is_asked) in [(exit(31), false), (by(TERM), false), (by(KILL), true)] {
        let mut rig = Rig::new();
        rig.root(ToNode::Start(start()));
        rig.receive(NodeEvent::SandboxReady(sandbox()));
        rig.root(app_of(0, &base()));
        rig.root(spawn(0..1, true));
        rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) });
        rig.wait(1);
        rig.exited(0, status);
        let said = says_exit(&rig, 0, status);
        let said = if is_asked { asked(said) } else { said };
        assert!(rig.spawned(0).contains(&said), "{status:?}");
    }
}
