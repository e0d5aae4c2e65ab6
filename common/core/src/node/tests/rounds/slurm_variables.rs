//! Variables of Slurm in a round.

use super::*;
use rlaunch_plan::allocation::StepLayout;

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
        slurm: Some(slurm),
        ..first_place(9)
    };
    let members =
        [round_member(0, Some(7), Some(7)), round_member(2, Some(8), None), round_member(3, Some(2), Some(2))];
    let begun = began(&rig.begins(R0, place, &members));
    for (name, value) in [
        ("SLURM_PROCID", "7"),
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
