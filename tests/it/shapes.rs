//! A script that is written for NVRx's wrapper: ours takes it with another import, and NVRx's own takes it at the agent's store.

use crate::case::Done;
use crate::plan::Plan;
use crate::{place, python, torch};
use std::path::Path;

/// Shape of the script, what befalls whom in the first round, and who is left.
const CASES: [(&str, &str, &str, &[usize]); 4] = [
    ("whole", "exception", "1", &[0, 1, 2]),
    ("whole", "kill", "0", &[1, 2]),
    ("loop", "exception", "0", &[0, 1, 2]),
    ("loop", "kill", "1", &[0, 2]),
];

/// A remaining rank has moved up, continued from the checkpoint, and reached the same result as all: the model at the end.
fn recovers(plan: Plan, python: &Path, package: &str, case: (&str, &str, &str, &[usize]), code: i32) -> String {
    let (shape, what, whom, left) = case;
    let kept = plan.scratch().path("checkpoint.pt");
    let path = place::root().join("tests/torch/inprocess_shapes.py");
    let done: Done = plan.args([python, &path]).args([package, shape, what, whom]).args([kept]).start().code(code);
    let lines = done.sorted();
    let digest = |line: &String| line.rsplit_once(' ').map(|(_, digest)| digest.to_owned());
    let end = lines.first().and_then(digest).unwrap_or_default();
    let size = left.len();
    let line = |(rank, was): (usize, &usize)| format!("was {was}, round 1, rank {rank} of {size}, from step 20, {end}");
    let expected: Vec<String> = left.iter().enumerate().map(line).collect();
    assert_eq!(lines, expected, "{package}, {shape}, {what} {whom}: {}", done.err());
    end
}

#[test]
fn a_script_for_nvrx_needs_another_import_and_nothing_else() {
    let Some(client) = python::client() else { return };
    for python in torch::pythons() {
        let run = |case| {
            recovers(python::with_client(Plan::rlaunch(["-n", "3"]), &client), &python, "rlaunch.inprocess", case, 0)
        };
        // Each import of torch costs a processor two seconds.
        let cases = if place::full() { CASES.as_slice() } else { &CASES[1..3] };
        let ends: Vec<String> = cases.iter().copied().map(run).collect();
        assert!(!ends[0].is_empty() && ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    }
}

#[test]
fn the_same_script_is_restarted_by_nvrx_at_the_agents_store() {
    let Some(client) = python::client() else { return };
    let Some(python) = place::newer_torch() else {
        return place::absent("NVRx", "RLAUNCH_TORCH names no Python that has it");
    };
    for case in CASES {
        let code = if case.1 == "kill" { 137 } else { 0 };
        let plan = Plan::rlaunch(["-n", "3", "--on-failure", "continue", "--master-store", "agent"]);
        recovers(python::with_client(plan, &client), &python, "nvidia_resiliency_ext.inprocess", case, code);
    }
}
