//! Committed pictures are those that `scripts/pictures` draws. The picture of policies shows answers of rlaunch.

use crate::root;
use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn committed_pictures_equal_the_output_of_the_script() {
    let out = Command::new("python3").arg(root().join("scripts/pictures")).arg("--check").output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn pictures_of_policies_show_the_answers_of_rlaunch() {
    let text = fs::read_to_string(root().join("scripts/pictures.d/policies.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(rows.len() >= 6, "{} policies are few", rows.len());
    for row in rows {
        let args = row["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        let out = Command::new(env!("CARGO_BIN_EXE_rlaunch")).args(args).current_dir(root()).output().unwrap();
        let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(answer, row["answer"], "rlaunch answers {} differently now", row["args"]);
    }
}
