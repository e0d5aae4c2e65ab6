//! `rlaunch assign`, as it is typed: what it prints, reads and refuses.

use crate::census;
use crate::place::{Scratch, rlaunch};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output, Stdio};

fn said(words: &[&str]) -> Output {
    census::output(Command::new(rlaunch()).arg("assign").args(words).stdin(Stdio::null()))
}

#[test]
fn a_policy_is_tried_without_a_job() {
    let out = said(&[
        "--world",
        "16",
        "--policy",
        "max=12,shift,group(host)==4",
        "--ranks-per-host=4",
        "--lose",
        "3,7",
        "--lose",
        "0",
    ]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{text}");
    let lines: Vec<&str> = text.lines().take(6).collect();
    assert_eq!(
        lines,
        [
            "max=12,shift,group(host)==4",
            "",
            "round  lost  back  discarded  healthy  active  reserve",
            "0      -     -     -          16       12      4",
            "1      3,7   -     0-2,4-6    8        8       0",
            "2      8     -     9-11       4        4       0",
        ]
    );
}

#[test]
fn a_tree_of_a_file_and_hosts_of_another() {
    let scratch = Scratch::new();
    let (policy, hosts) = (scratch.dir().join("policy.toml"), scratch.dir().join("hosts"));
    fs::write(&hosts, "a slots=2\nb slots=2\nc slots=2\n").unwrap();
    fs::write(&policy, "[[assign.tree.layer]]\nmax_ranks = 4\nflags = ['reserve']\n\n[[assign.tree.layer]]\nkey = 'host'\nmin_ranks = 2\nflags = ['reserve']\n").unwrap();
    let at = format!("@{}", policy.display());
    let hosts = hosts.display().to_string();
    let out = said(&["--assign", &at, "--hostfile", &hosts, "--lose", "1", "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    // Host a goes whole, and c replaces it.
    assert_eq!(report["rounds"][1]["active_rank"], serde_json::json!([null, null, 2, 3, 1, 0]));
    fs::write(&policy, "[[assign.tree.layer]]\nkeey = 'host'\n").unwrap();
    let out = said(&["--assign", &at, "--hostfile", &hosts]);
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(error.ends_with("policy.toml, line 2: [[assign.tree.layer]] has no 'keey'\n  try     key\n"), "{error}");
}

#[test]
fn chains_that_cannot_work_are_refused() {
    let out = said(&["--world", "8", "--assign", "shift,max=4"]);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0));
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(
        error,
        "error: --assign: max=4 runs before shift (the last one runs first), which changes the numbers by which max=4 has chosen\n  try     max=4,shift\n"
    );
    // A job says the same before anything of it is started.
    let job = ["-n", "8", "--assign", "shift,max=4", "echo", "ran"];
    let out = census::output(Command::new(rlaunch()).args(job).stdin(Stdio::null()));
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0));
    assert_eq!(String::from_utf8(out.stderr).unwrap(), error);
}
