//! LOCAL_RANK, where each round numbers ranks anew on their hosts.

use super::*;

const LOCAL: [&str; 4] = ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK", "MPI_LOCALRANKID"];

/// A round of a job whose other ranks are on other hosts: of four here one is lost, one waits.
fn locals(relocal: bool) -> Vec<(u32, Option<Option<String>>)> {
    let mut rig = Rig::running(4);
    (0..4).for_each(|n| drop(rig.registers(n, "")));
    let place = RoundRendezvous { world_size: 9, active_world_size: 8, relocal, ..first_place(9) };
    // A later rank of another host has come to the front, as policies do.
    let seats = [seat(0, Some(7), Some(7)), seat(2, Some(8), None), seat(3, Some(2), Some(2))];
    let begun = began(&rig.begins(R0, place, &seats));
    for (_, begin) in &begun {
        assert!(LOCAL.iter().all(|name| var(begin, name) == var(begin, LOCAL[0])), "{:?}", begin.env);
        assert_eq!(var(begin, "RLAUNCH_LOCAL_RANK"), None, "the process keeps its number");
    }
    begun.iter().map(|(n, begin)| (*n, var(begin, "LOCAL_RANK"))).collect()
}

#[test]
fn active_ranks_are_numbered_in_order_without_gaps() {
    assert_eq!(locals(true), [(0, is("1")), (2, Some(None)), (3, is("0"))]);
}

#[test]
fn without_being_asked_for_nobody_is_told_of_another() {
    assert_eq!(locals(false), [(0, None), (2, None), (3, None)]);
}
