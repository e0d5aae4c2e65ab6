//! Ranks that are too late: to make progress, to leave, to end, and ranks that wait for them.

use super::*;

impl Rig {
    /// All that happens on a host that is awake.
    pub(super) fn awake(&mut self, ms: u64) -> Vec<NodeAction> {
        let (until, mut all) = (self.now + Span::from_millis(ms), Vec::new());
        while let Some(at) = self.node.poll_timeout().filter(|at| self.now < *at && *at < until) {
            self.now = at;
            self.node.handle_timeout(at);
            all.extend(self.drain());
        }
        self.now = until;
        self.node.handle_timeout(until);
        all.extend(self.drain());
        all
    }
}

#[test]
fn hanging_rank_is_reported_and_then_ended() {
    let mut rig = Rig::in_round_by(start(), 2, "soft_timeout=10s hard_timeout=20s barrier_timeout=30s");
    assert_eq!(rig.wait(400_000), [], "nothing is known of how they get on");
    rig.says(1, ClientMessage::Alive(R0, false));
    rig.wait(9000);
    rig.says(0, ClientMessage::Alive(R0, true));
    let actions = rig.wait(1000);
    let hang = fault(1, FaultKind::Hang, "nothing was heard of it for 10.0s");
    assert_eq!(actions, [up(RoundUp::Fault { round: R0, fault: hang, at: rig.now.host_time() })]);
    rig.interrupt(R0);
    let actions = rig.wait(10_000);
    let [NodeAction::ToRoot(ToRoot::Round(RoundUp::Fault { fault, .. })), ended @ ..] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((fault.initial, fault.kind), (r(1), FaultKind::Overdue(by(TERM))));
    let awaited = RoundUp::Awaited { ranks: Capped::chunks([r(0), r(1)]).pop().unwrap() };
    assert_eq!(ended, [group(1, CONT), group(1, TERM), up(awaited)]);
    assert_eq!(rig.is_ready(1, R0), [], "too late");
    assert_eq!(rig.is_ready(0, R0), []);
    assert_eq!(rig.wait(5000), [group(1, CONT), group(1, KILL)]);
    let actions = rig.exited(1, by(KILL));
    assert!(
        actions.contains(&NodeAction::TcpStores(TcpStoreAction::ReservePort { listen: None })),
        "no rank continues before it is gone: {actions:?}"
    );
    let pinged = RoundUp::Ready { round: R0, ranks: enroll(&[0]), last: true, port: 9, pinged: true };
    assert_eq!(rig.receive(NodeEvent::PortReserved { port: 9 }), [up(pinged)]);
}

/// In state D of proc_pid_stat(5).
#[test]
fn a_rank_that_the_kernel_cannot_end_does_not_hold_up_the_round() {
    let mut rig = Rig::in_round(2);
    rig.interrupt(R0);
    rig.is_ready(0, R0);
    assert!(rig.wait(90_000).contains(&group(1, TERM)));
    assert_eq!(rig.wait(5000), [group(1, CONT), group(1, KILL)]);
    assert_eq!(
        rig.wait(10_000),
        [up(RoundUp::Stuck { proc: p(1) }), NodeAction::TcpStores(TcpStoreAction::ReservePort { listen: None })]
    );
    assert_eq!(rig.receive(NodeEvent::PortReserved { port: 9 }), [ready(R0, &[0], 9)]);
    let place = RoundRendezvous { port: 9, namespace: 2, ..first_place(1) };
    rig.begins(R1, place, &[round_member(0, Some(0), Some(0))]);
    assert!(!rig.exited(1, by(KILL)).contains(&group(1, KILL)), "it has been gone for long");
    assert_eq!(rig.interrupt(R1), [interrupted(0, R1)]);
}

#[test]
fn ready_rank_of_planned_round_waits_for_running_ones() {
    for within in [30, 180] {
        let mut rig = Rig::in_round(2);
        let within = Span::from_secs(within);
        let fault = fault(1, FaultKind::Warned, "");
        rig.down(RoundDown::Interrupt { round: R0, fault, within: Some(within) });
        rig.is_ready(0, R0);
        let hard = (within + Span::from_secs(90)).millis();
        let awaited = RoundUp::Awaited { ranks: Capped::chunks([r(1)]).pop().unwrap() };
        assert_eq!(rig.wait(hard - 1), [up(awaited)], "rank 1 may go on, and has its time to leave");
        let actions = rig.wait(1);
        assert!(actions.contains(&group(1, TERM)) && !actions.contains(&group(0, TERM)), "{actions:?}");
        assert!(rig.wait(5000).contains(&group(1, KILL)));
        let actions = rig.exited(1, by(KILL));
        assert!(actions.contains(&NodeAction::TcpStores(TcpStoreAction::ReservePort { listen: None })), "{actions:?}");
    }
}

#[test]
fn rank_waiting_for_missing_round_is_ended() {
    let mut rig = Rig::in_round(1);
    rig.interrupt(R0);
    rig.is_ready(0, R0);
    rig.receive(NodeEvent::PortReserved { port: 9 });
    // 90 s in which others may leave, 5 s and 10 s until they are given up, and 120 s.
    assert_eq!(rig.awake(224_999), []);
    let actions = rig.wait(1);
    assert_eq!(actions[1..], [group(0, CONT), group(0, TERM)]);
}

#[test]
fn a_rank_that_is_gone_does_not_get_on() {
    let mut rig = Rig::in_round(2);
    rig.says(1, ClientMessage::Alive(R0, true));
    rig.exited(1, by(KILL));
    rig.interrupt(R0);
    rig.is_ready(0, R0);
    rig.receive(NodeEvent::PortReserved { port: 9 });
    rig.begins(R1, RoundRendezvous { namespace: 2, port: 9, ..first_place(1) }, &[round_member(0, Some(0), Some(0))]);
    rig.interrupt(R1);
    rig.is_ready(0, R1);
    assert_eq!(rig.receive(NodeEvent::PortReserved { port: 9 }), [ready(R1, &[0], 9)], "that was in another round");
}

/// The other hosts learn at once that a host does not answer. Only at the end of its lease they learn that its ranks have surely ended.
#[test]
fn ready_rank_waits_for_a_lost_hosts_lease() {
    let terms = "soft_timeout=2s hard_timeout=3s barrier_timeout=5s termination_grace=1s";
    let mut rig = Rig::in_round_by(Start { awaits: Span::from_secs(36), ..start() }, 1, terms);
    rig.interrupt(R0);
    rig.says(0, ClientMessage::Ready(R0, Vec::new()));
    rig.receive(NodeEvent::PortReserved { port: 9 });
    let actions = rig.awake(38_000);
    assert!(!actions.contains(&group(0, TERM)), "{actions:?}");
    assert!(rig.awake(10_000).contains(&group(0, TERM)));
}

#[test]
fn process_without_session_is_ended() {
    let mut rig = Rig::in_round(2);
    rig.receive(NodeEvent::SessionLost { session: s(1) });
    let actions = rig.awake(2_000);
    assert!(actions.contains(&group(1, TERM)), "{actions:?}");
    let actions = rig.awake(5_000);
    assert!(actions.contains(&group(1, KILL)), "{actions:?}");
    assert_eq!(
        rig.awake(10_000),
        [up(RoundUp::Stuck { proc: p(1) })],
        "and not waited for if the kernel cannot end it"
    );
}

/// As after any other end of a rank within rounds, the others continue without it. Its children end too, because they keep its devices.
#[test]
fn children_end_with_a_rank_that_continued_without_its_session() {
    let mut rig = Rig::in_round(2);
    rig.receive(NodeEvent::SessionLost { session: s(1) });
    assert!(rig.awake(2_000).contains(&group(1, TERM)));
    let actions = rig.exited(1, by(TERM));
    assert!(actions.contains(&group(1, KILL)), "{actions:?}");
}

#[test]
fn children_end_with_a_killed_rank() {
    let mut rig = Rig::in_round(2);
    let actions = rig.exited(1, by(KILL));
    assert!(actions.contains(&group(1, KILL)), "{actions:?}");
}

/// A rank that leaves, waits for others, or waits for their return.
#[test]
fn ranks_have_their_time_on_a_host_that_has_slept() {
    let terms = "soft_timeout=20s hard_timeout=30s barrier_timeout=40s completion_timeout=50s";
    let is_fault_report = |action: &NodeAction| {
        matches!(action, NodeAction::ToRoot(ToRoot::Round(RoundUp::Fault { .. } | RoundUp::Alone { .. })))
    };
    let leaves = |rig: &mut Rig| drop(rig.interrupt(R0));
    let waits = |rig: &mut Rig| {
        rig.interrupt(R0);
        rig.is_ready(0, R0);
        rig.receive(NodeEvent::PortReserved { port: 9 });
    };
    let returns = |rig: &mut Rig| drop(rig.says(0, ClientMessage::Returned(R0)));
    for (what, begins) in [("leaves", &leaves as &dyn Fn(&mut Rig)), ("waits", &waits), ("returns", &returns)] {
        let mut rig = Rig::in_round_by(start(), 1, terms);
        begins(&mut rig);
        rig.awake(1_000);
        let all = rig.wait(3_600_000);
        assert!(!all.iter().any(is_fault_report), "{what}: {all:?}");
        let all = rig.awake(200_000);
        assert!(all.iter().any(is_fault_report), "{what}, but no longer than that");
    }
}
