//! Events before all ranks of a host have registered.

use super::*;
use rlaunch_base::warnings::WarningSource;

/// The others wait for it, and its process may continue for long.
#[test]
fn session_end_before_registration_is_a_leave() {
    let mut rig = Rig::running(2);
    rig.registers(0, "");
    assert_eq!(rig.receive(NodeEvent::SessionLost { session: s(0) }), []);
    let text = "its session has ended without a word";
    let left = fault(0, FaultKind::Ended(Status::Lost), text);
    let actions = rig.wait(3000);
    let [NodeAction::ToRoot(ToRoot::Round(RoundUp::Fault { round: R0, fault, .. }))] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(*fault, left);
}

fn warned(actions: &[NodeAction]) -> Vec<(Rank, FaultKind)> {
    let one = |action: &NodeAction| {
        let NodeAction::ToRoot(ToRoot::Round(RoundUp::Fault { fault, .. })) = action else { return None };
        Some((fault.initial, fault.kind))
    };
    actions.iter().filter_map(one).collect()
}

/// The host is still about to be taken away.
#[test]
fn warned_host_is_reported_in_the_next_generation() {
    let mut rig = another_generation(|rig| drop(rig.receive(NodeEvent::Warned(WarningSource::Preempted))));
    assert_eq!(warned(&rig.registers(0, "")), [(r(0), FaultKind::Warned)]);
}

/// A rank that registers there, or is started again, is drained as the others.
#[test]
fn host_warned_early_is_reported_when_ranks_register() {
    let mut rig = Rig::running(2);
    rig.registers(0, "");
    assert_eq!(warned(&rig.receive(NodeEvent::Warned(WarningSource::Preempted))), [], "the launcher knows no rank");
    let both = [(r(0), FaultKind::Warned), (r(1), FaultKind::Warned)];
    assert_eq!(warned(&rig.registers(1, "")), both);
}
