//! The end of a call: who waits for it, and what follows.

use super::*;

#[test]
fn who_has_returned_does_not_wait_for_others_for_ever() {
    let mut rig = Rig::in_round_by(start(), 2, "completion_timeout=40s");
    rig.says(1, Said::Returned(R0));
    rig.says(0, Said::Section(R0, None));
    assert_eq!(rig.wait(39_999), []);
    let hang = fault(0, FaultKind::Hang, "it has not returned after rank 1 did, within 40.0s (completion_timeout)");
    assert_eq!(rig.wait(1), [up(RoundUp::Fault { round: R0, fault: hang, at: rig.now.host_time() })]);
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0), interrupted(1, R0)], "all begin again");
    let mut elsewhere = Rig::in_round_by(start(), 2, "completion_timeout=40s");
    (0..2).for_each(|n| drop(elsewhere.says(n, Said::Returned(R0))));
    let actions = elsewhere.wait(40_000);
    let text = "it has returned, and not all on other hosts have, within 40.0s (completion_timeout)";
    let at = elsewhere.now.host_time();
    let told = [0, 1].map(|n| up(RoundUp::Fault { round: R0, fault: fault(n, FaultKind::Exception, text), at }));
    assert_eq!(actions, told);
    assert_eq!(elsewhere.wait(400_000), [], "once");
}
