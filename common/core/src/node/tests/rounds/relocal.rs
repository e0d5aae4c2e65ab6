//! LOCAL_RANK, where each round numbers ranks anew on their hosts.

use super::*;
use crate::allocation::StepLayout;

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

/// A rank in reserve has none of them.
#[test]
fn a_round_has_its_own_variables_of_slurm() {
    let slurm = StepLayout { hosts: "node[3,0]".into(), tasks: "2,6".into(), most_tasks: 6 };
    let mut rig = Rig::running(4);
    (0..4).for_each(|n| drop(rig.registers(n, "")));
    let place = RoundRendezvous {
        world_size: 9,
        active_world_size: 8,
        nodes: 2,
        node_index: Some(0),
        relocal: true,
        slurm: Some(slurm),
        ..first_place(9)
    };
    let seats = [seat(0, Some(7), Some(7)), seat(2, Some(8), None), seat(3, Some(2), Some(2))];
    let begun = began(&rig.begins(R0, place, &seats));
    for (name, value) in [
        ("SLURM_PROCID", "7"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NODEID", "0"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_NNODES", "2"),
        ("SLURM_NTASKS_PER_NODE", "6"),
        ("SLURM_STEP_NODELIST", "node[3,0]"),
        ("SLURM_TASKS_PER_NODE", "2,6"),
        ("SLURM_STEP_TASKS_PER_NODE", "2,6"),
        ("SLURM_GTIDS", "2,7"),
    ] {
        assert_eq!(var(&begun[0].1, name), is(value), "{name}");
        assert_eq!(var(&begun[1].1, name), Some(None), "{name} of one in reserve");
    }
    assert_eq!(var(&begun[0].1, "SLURM_STEP_ID"), None);
}

#[test]
fn without_being_asked_for_nobody_is_told_of_another() {
    assert_eq!(locals(false), [(0, None), (2, None), (3, None)]);
}
