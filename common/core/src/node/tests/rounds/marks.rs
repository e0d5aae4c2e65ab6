//! Marks of rounds in the output of ranks.

use super::*;

fn labelled() -> Start {
    start().with(|settings| settings.output.label = Some("%r: ".into()))
}

/// Another round for three ranks: one is active, one is in reserve, one is discarded.
fn another(rig: &mut Rig) -> Vec<NodeAction> {
    rig.interrupt(R0);
    (0..3).for_each(|n| drop(rig.is_ready(n, R0)));
    rig.receive(NodeEvent::PortReserved { port: 21000 });
    let place = RoundRendezvous { port: 21000, namespace: 2, world_size: 2, active_world_size: 1, ..first_place(3) };
    rig.begins(
        R1,
        place,
        &[round_member(0, None, None), round_member(1, Some(1), None), round_member(2, Some(0), Some(0))],
    )
}

#[test]
fn labelled_output_is_marked_before_a_rank_is_notified_of_the_round() {
    let mut rig = Rig::in_round_by(labelled(), 3, "");
    let actions = another(&mut rig);
    let seen: Vec<String> = actions.iter().filter_map(words).collect();
    let lines = [
        "1: --- g0 r1: rank 1 is in reserve ---\n",
        "1 is notified",
        "2: --- g0 r1: rank 2 is rank 0 of 1 ---\n",
        "2 is notified",
    ];
    assert_eq!(seen, [&["0 is notified"][..], &lines].concat());
}

fn words(action: &NodeAction) -> Option<String> {
    if let NodeAction::Mark { proc, line } = action {
        return Some(format!("{proc}: {}", String::from_utf8_lossy(line)));
    }
    if let NodeAction::Sessions(SessionAction::Send { session, .. }) = action {
        Some(format!("{session} is notified"))
    } else {
        None
    }
}

#[test]
fn nothing_is_marked_in_raw_output_or_before_the_first_restart() {
    let marks =
        |actions: &[NodeAction]| actions.iter().filter(|action| matches!(action, NodeAction::Mark { .. })).count();
    assert_eq!(marks(&another(&mut Rig::in_round(3))), 0);
    let mut rig = Rig::running_by(labelled(), 1);
    rig.registers(0, "");
    assert_eq!(marks(&rig.begins(R0, first_place(1), &[round_member(0, Some(0), Some(0))])), 0);
}

/// Another call begins without a fault: output continues unmarked, except for ranks with a new number.
#[test]
fn another_call_is_marked_only_where_it_changes_something() {
    let marked = |working: u32| {
        let mut rig = Rig::in_round_by(labelled(), 2, "");
        (0..2).for_each(|n| drop(rig.says(n, ClientMessage::Returned(R0))));
        rig.down(RoundDown::Finish { call: 0, round: R0 });
        for n in 0..2 {
            rig.receive(NodeEvent::SessionBegun { session: s(10 + n), rank: Some(r(n)), terms: terms("") });
        }
        let place = RoundRendezvous { first: R1, namespace: 2, active_world_size: working, ..first_place(2) };
        let actions = rig.begins(
            R1,
            place,
            &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), (working > 1).then_some(1))],
        );
        actions.iter().filter_map(words).collect::<Vec<_>>()
    };
    assert_eq!(marked(2), ["10 is notified", "11 is notified"]);
    let lines = ["0: --- g0 r1: rank 0 is rank 0 of 1 ---\n", "1: --- g0 r1: rank 1 is in reserve ---\n"];
    assert_eq!(marked(1), [lines[0], "10 is notified", lines[1], "11 is notified"]);
}
