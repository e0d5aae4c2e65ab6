//! Ranks that other ranks wait for are reported to the launcher.

use super::*;

fn awaited(ranks: &[u32]) -> NodeAction {
    up(RoundUp::Awaited { ranks: Capped::chunks(ranks.iter().map(|n| r(*n))).pop().unwrap() })
}

#[test]
fn a_rank_that_does_not_register_is_reported_after_ten_seconds_and_once() {
    let mut rig = Rig::running_by(start(), 3);
    assert_eq!(rig.wait(60_000), [], "no rank waits for another");
    rig.registers(0, "");
    assert_eq!(rig.wait(9_000), []);
    rig.registers(2, "");
    assert_eq!(rig.wait(1_000), [awaited(&[1])]);
    assert_eq!(rig.wait(60_000), []);
    assert_eq!(rig.registers(1, ""), [joined(&[0, 1, 2], "keys=0\n")]);
}

#[test]
fn a_rank_that_does_not_leave_its_function_is_reported_in_each_round() {
    let mut rig = Rig::in_round(2);
    for round in [0, 1].map(Round::new) {
        assert_eq!(rig.wait(60_000), []);
        rig.interrupt(round);
        rig.is_ready(0, round);
        assert_eq!(rig.wait(10_000), [awaited(&[1])]);
        rig.is_ready(1, round);
        rig.receive(NodeEvent::PortReserved { port: 9 });
        assert_eq!(rig.wait(60_000), [], "the launcher is waited for");
        let next = Round::new(round.get() + 1);
        rig.begins(
            next,
            RoundRendezvous { port: 9, ..first_place(2) },
            &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), Some(1))],
        );
    }
}
