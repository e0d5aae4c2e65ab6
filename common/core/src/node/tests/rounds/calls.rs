//! The end of a call: who waits for it, and what follows.

use super::*;

#[test]
fn returned_rank_waits_with_a_limit() {
    let mut rig = Rig::in_round_by(start(), 2, "completion_timeout=40s");
    rig.says(1, ClientMessage::Returned(R0));
    rig.says(0, ClientMessage::Section(R0, None));
    assert_eq!(rig.wait(39_999), []);
    let hang = fault(0, FaultKind::Hang, "it has not returned after rank 1 did, within 40.0s (completion_timeout)");
    assert_eq!(rig.wait(1), [up(RoundUp::Fault { round: R0, fault: hang, at: rig.now.host_time() })]);
    assert_eq!(rig.interrupt(R0), [interrupted(0, R0), interrupted(1, R0)], "all begin again");
    let mut elsewhere = Rig::in_round_by(start(), 2, "completion_timeout=40s");
    (0..2).for_each(|n| drop(elsewhere.says(n, ClientMessage::Returned(R0))));
    let actions = elsewhere.wait(40_000);
    assert_eq!(actions, [up(RoundUp::Alone { round: R0, initial: r(0) })], "nobody here is late: one word for all");
    assert_eq!(elsewhere.wait(400_000), [], "once");
}

#[test]
fn rank_waiting_in_vain_is_reported_in_each_round() {
    let mut rig = Rig::in_round_by(start(), 2, "completion_timeout=40s");
    for round in [R0, R1] {
        (0..2).for_each(|n| drop(rig.says(n, ClientMessage::Returned(round))));
        let actions = rig.awake(41_000);
        assert!(actions.contains(&up(RoundUp::Alone { round, initial: r(0) })), "{round}: {actions:?}");
        rig.interrupt(round);
        (0..2).for_each(|n| drop(rig.is_ready(n, round)));
        rig.receive(NodeEvent::PortReserved { port: 9 });
        rig.begins(R1, first_place(2), &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), Some(1))]);
    }
}

/// Ranks of another host wait for one of this.
#[test]
fn late_rank_is_reported_by_its_own_host() {
    let mut rig = Rig::in_round_by(start(), 3, "completion_timeout=40s");
    rig.says(0, ClientMessage::Returned(R0));
    let asked = |round| RoundDown::Late { round, after: r(7) };
    let hang = fault(1, FaultKind::Hang, "it has not returned after rank 7 did, within 40.0s (completion_timeout)");
    let at = rig.now.host_time();
    assert_eq!(rig.down(asked(R0)), [up(RoundUp::Fault { round: R0, fault: hang, at })]);
    assert_eq!(rig.down(asked(R1)), [], "of another round");
    (1..3).for_each(|n| drop(rig.says(n, ClientMessage::Returned(R0))));
    assert_eq!(rig.down(asked(R0)), [], "nobody is late any more");
    rig.interrupt(R0);
    assert_eq!(rig.down(asked(R0)), []);
}

pub(super) fn finish(call: u32, round: Round) -> RoundDown {
    RoundDown::Finish { call, round }
}

#[test]
fn processes_register_again_behind_a_call_that_is_done() {
    let mut rig = Rig::in_round(3);
    rig.says(2, ClientMessage::Leave(Leave::Abort, "enough".into()));
    (0..2).for_each(|n| drop(rig.says(n, ClientMessage::Returned(R0))));
    assert_eq!(rig.down(finish(0, R0)), [0, 1].map(|n| notify(n, AgentMessage::Finish(R0))));
    assert_eq!(rig.down(finish(0, R0)), [], "it is known");
    let begun = |session: u32, rank: u32| NodeEvent::SessionBegun {
        session: s(session),
        rank: Some(r(rank)),
        terms: terms("soft_timeout=9s"),
    };
    assert_eq!(rig.receive(begun(10, 0)), [], "rank 1 is waited for, and rank 2 is not");
    assert_eq!(rig.receive(NodeEvent::SessionLost { session: s(0) }), [], "that was the call before");
    let ranks = enroll(&[0, 1]);
    let joined = RoundUp::Joined { call: 1, ranks, terms: "soft_timeout=9s\n".into() };
    assert_eq!(rig.receive(begun(11, 1)), [up(joined)]);
    assert_eq!(
        rig.interrupt(R0),
        [NodeAction::TcpStores(TcpStoreAction::ReservePort { listen: None })],
        "nobody has to leave anything"
    );
    assert_eq!(rig.receive(NodeEvent::PortReserved { port: 9 }), [ready(R0, &[], 9)]);
    let place = RoundRendezvous { first: R1, port: 9, namespace: 2, ..first_place(2) };
    let actions = rig.begins(R1, place, &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), Some(1))]);
    let begun = began(&actions[2..]);
    assert_eq!(begun.iter().map(|(session, begin)| (*session, begin.round)).collect::<Vec<_>>(), [(10, R0), (11, R0)]);
    assert_eq!(var(&begun[0].1, "RLAUNCH_ROUND"), is("1"), "as the job counts");
    assert_eq!(rig.says(0, ClientMessage::Returned(R0)), [], "of a session that has ended");
    let at = rig.now.host_time();
    let actions = rig.says(11, ClientMessage::Fault(R0, "x".into()));
    assert_eq!(actions, [up(RoundUp::Fault { round: R1, fault: fault(1, FaultKind::Exception, "x"), at })]);
    assert_eq!(rig.interrupt(R1), [interrupted(10, R0), interrupted(11, R0)], "as they count");
}

#[test]
fn late_process_skips_finished_calls() {
    let mut rig = Rig::in_round(2);
    rig.exited(1, by(KILL));
    rig.root(another(300, 1));
    rig.examined(1, Facts::default());
    rig.spawned(300);
    rig.says(0, ClientMessage::Returned(R0));
    rig.down(finish(0, R0));
    let begun = |session: u32, rank: u32| NodeEvent::SessionBegun {
        session: s(session),
        rank: Some(r(rank)),
        terms: terms(""),
    };
    let joined = |call: u32, one: Enrolled, terms: &str| {
        up(RoundUp::Joined { call, ranks: Capped::chunks([one]).pop().unwrap_or_default(), terms: terms.into() })
    };
    assert_eq!(rig.receive(begun(10, 0)), [joined(1, enrolled(0, &[]), "keys=0\n")], "nobody waits for it");
    assert_eq!(rig.receive(begun(11, 1)), [notify(11, AgentMessage::Finish(R0))]);
    assert_eq!(rig.receive(NodeEvent::SessionLost { session: s(11) }), []);
    let late = Enrolled { proc: p(300), ..enrolled(1, &[]) };
    assert_eq!(rig.receive(begun(12, 1)), [joined(1, late, "")], "and is in the next");
}
