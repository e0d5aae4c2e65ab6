//! `rlaunch report` with logs of real jobs, and with files that are none.

use crate::case::Done;
use crate::census;
use crate::place::{Scratch, rlaunch};
use crate::plan::Plan;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn report(words: &[&str], dir: &Path) -> Output {
    census::output(Command::new(rlaunch()).arg("report").args(words).current_dir(dir).stdin(Stdio::null()))
}

/// stdout, stderr and the exit code.
fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// A job whose rank 1 fails twice; its log is `log` in its scratch directory.
fn job() -> Done {
    let script = "[ $RANK != 1 ] || [ $RLAUNCH_RESTART_COUNT = 2 ] || exit 3";
    let case = "exec \"$RL\" -n 3 --max-restarts 2 --restart-delay 10ms --events \"$DIR/log\" sh -c \"$SCRIPT\"";
    Plan::shell(case).env("SCRIPT", script).start().code(0)
}

#[test]
fn report_shows_the_course_of_a_job() {
    let done = job();
    let (out, err, code) = said(&report(&["log"], done.scratch.dir()));
    assert_eq!((err.as_str(), code), ("", Some(0)));
    for part in [
        ": 3 ranks on",
        "launch: ",
        "start 2: rank 1 failed (exit code 3); all ranks started again after ",
        "start 3: ",
    ] {
        assert!(out.contains(part.trim_start_matches(": ")), "{part}: {out}");
    }
    assert!(out.trim_end().ends_with("success; exit code 0"), "{out}");
}

#[test]
fn pictures_are_whole_files() {
    let done = job();
    let dir = done.scratch.dir();
    fs::write(dir.join("a.svg"), "an old one").unwrap();
    for file in ["a.svg", "a.json"] {
        assert_eq!(said(&report(&["--timeline", file, "log"], dir)), (String::new(), String::new(), Some(0)), "{file}");
    }
    let svg = fs::read_to_string(dir.join("a.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("prefers-color-scheme:dark"));
    assert!(svg.contains("rank 1 failed (exit code 3)"), "{svg}");
    let trace: Value = serde_json::from_str(&fs::read_to_string(dir.join("a.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let processes = events.iter().filter(|event| event["ph"] == "X" && event["name"] == "rank 1").count();
    assert_eq!(processes, 3, "{trace}");
    assert!(events.iter().all(|event| event["ph"] == "M" || event["ts"].as_f64().is_some_and(|ts| ts >= 0.0)));
    let left: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".part")), "{left:?}");
}

#[test]
fn log_that_is_cut_off_is_shown_up_to_the_cut() {
    let done = job();
    let dir = done.scratch.dir();
    let log = fs::read(dir.join("log")).unwrap();
    // In the middle of a line.
    let cut = log[..log.len() * 2 / 3].iter().rposition(|b| *b == b'\n').unwrap() + 10;
    fs::write(dir.join("cut"), &log[..cut]).unwrap();
    let (out, err, code) = said(&report(&["cut"], dir));
    assert!(err.starts_with("rlaunch: cut is cut off in line ") && code == Some(0), "{err}");
    assert!(out.contains("the log ends before the job does"), "{out}");
    // Whole lines, of a job that still runs.
    let whole = log.split_inclusive(|b| *b == b'\n').take(6).collect::<Vec<_>>().concat();
    fs::write(dir.join("running"), whole).unwrap();
    let (_, err, code) = said(&report(&["running", "--timeline", "r.svg"], dir));
    assert!(err.starts_with("rlaunch: running has no job.end") && code == Some(0), "{err}");
    // A line in the middle that is no record.
    let mut lines: Vec<&[u8]> = log.split_inclusive(|b| *b == b'\n').collect();
    lines.insert(3, b"what is this\n");
    fs::write(dir.join("odd"), lines.concat()).unwrap();
    let (_, err, code) = said(&report(&["odd"], dir));
    assert_eq!((err.as_str(), code), ("rlaunch: a line of odd is no record and is left out\n", Some(0)));
}

#[test]
fn files_that_are_no_log_are_refused() {
    let scratch = Scratch::new();
    let dir = scratch.dir();
    let start = "{\"v\":1,\"t\":0,\"wall\":0,\"ev\":\"job.start\",\"world_size\":1}\n";
    fs::write(dir.join("good"), start).unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("newer"), start.replace("\"v\":1", "\"v\":2")).unwrap();
    fs::write(dir.join("text"), "not a log\n").unwrap();
    fs::write(dir.join("json"), "{\"a\":1}\n").unwrap();
    fs::write(dir.join("binary"), [0_u8, 255, 10, 200]).unwrap();
    fs::write(dir.join("middle"), "{\"v\":1,\"t\":0,\"wall\":0,\"ev\":\"job.end\",\"exit\":0}\n").unwrap();
    for (words, what, code) in [
        (&["absent"][..], "error: cannot read the event log absent: no such file or directory", 2),
        (&["."], "error: cannot read the event log .: is a directory", 2),
        (&["empty"], "error: empty is empty: ", 2),
        (&["newer"], "error: newer has version 2 of the event log; this rlaunch reads version 1", 2),
        (&["text"], "error: text is no event log", 2),
        (&["json"], "error: json is no event log", 2),
        (&["binary"], "error: binary is no event log", 2),
        (&["middle"], "error: middle is no event log", 2),
        (&["--timeline", "a.png", "good"], "error: --timeline takes a file that ends in .svg or .json, got 'a.png'", 2),
        (&["--timeline", "no/a.svg", "good"], "error: cannot write no/a.svg: no such file or directory", 1),
        (&["--timeline", "a.svg"], "error: rlaunch report needs a value: EVENTS", 2),
    ] {
        let (out, err, got) = said(&report(words, dir));
        assert!(out.is_empty() && err.starts_with(what) && got == Some(code), "{words:?}: {got:?} {err}");
    }
    fs::rename(dir.join("good"), dir.join("log.json")).unwrap();
    let (_, err, code) = said(&report(&["--timeline", "log.json", "log.json"], dir));
    assert!(err.starts_with("error: log.json is the event log itself\n  try     ") && code == Some(2), "{err}");
    assert_eq!(fs::read_to_string(dir.join("log.json")).unwrap(), start);
    let files = fs::read_dir(dir).unwrap().count();
    assert_eq!(files, 7, "no picture, and no part of one");
}
