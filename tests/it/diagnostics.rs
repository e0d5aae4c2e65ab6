//! `-vv` and `RLAUNCH_LOG`: their output, the things that they never show, and the message about a filter without meaning.

use crate::place;
use crate::plan::Plan;

#[test]
fn a_filter_that_means_nothing_is_named_and_the_job_runs() {
    let done = Plan::rlaunch(["-n", "1", "echo", "ran"]).env("RLAUNCH_LOG", "nonsense").start().code(0);
    assert_eq!(done.sorted(), ["ran"]);
    done.says("rlaunch: RLAUNCH_LOG (environment): 'nonsense' is left out; it takes LEVEL or TARGET=LEVEL");
    assert_eq!(done.err().lines().count(), 1, "{}", done.err());
    let mixed = Plan::rlaunch(["-n", "1", "true"]).env("RLAUNCH_LOG", "rlaunch_agent=debug,rlaunch=louder");
    mixed.start().code(0).says("'rlaunch=louder'").says("runs: pid");
}

#[test]
fn no_secret_is_ever_shown() {
    let words = ["-n", "2", "-vv", "-x", "TOKEN=hunter2", "sh", "-c", "echo hunter2 >&2; exit 3"];
    let plan = Plan::rlaunch(words)
        .env("RLAUNCH_LOG", "trace")
        .env("PASSWORD", "hunter2")
        .stderr(std::process::Stdio::piped());
    let done = plan.start().code(3);
    let traced: Vec<String> = done.err().lines().filter(|line| line.contains(" TRACE ")).map(str::to_owned).collect();
    assert!(traced.len() > 10, "{}", done.err());
    for line in done.err().lines().filter(|line| line.contains(" TRACE ") || line.contains(" DEBUG ")) {
        assert!(!line.contains("hunter2"), "{line}");
    }
}

#[test]
fn each_step_of_a_launch_is_shown() {
    let done = Plan::rlaunch(["-n", "2", "-vv", "sh", "-c", "setsid sleep 77 & exit 3"]).start().code(3);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim_end();
    let (ready, started) = (done.event("host.ready"), done.named("rank.started").next().unwrap());
    done.says(&format!("{host}: launcher "))
        .says(&format!("{host}: agent {}, guardian ", ready["agent"]))
        .says("limit on descriptors: ")
        .says(&format!("containment {}", ready["tier"].as_str().unwrap()))
        .says(&format!("ports {}-", ready["master_port"]))
        .says(&format!("rank {} runs on {host}: pid {}, ", started["rank"], started["pid"]))
        .says("SIGTERM to all ranks")
        .says("sweep: SIGKILL to ")
        .says("sweep: 0 left");
}

#[test]
fn a_weaker_guarantee_has_its_reason_in_the_log() {
    let done = Plan::rlaunch(["-n", "1", "true"]).start().code(0);
    let ready = done.event("host.ready");
    let note = ready["note"].as_str().unwrap();
    assert_eq!(note.is_empty(), ready["tier"] == "t1", "{ready}");
    if !place::is_root() && !note.starts_with("GPU") {
        assert!(note.starts_with("unshare a PID namespace: ") && note.contains(" (errno "), "{note}");
        assert_eq!(done.err(), "", "what everybody gets is worth no line");
    }
    let asked = Plan::rlaunch(["-n", "1", "true"]).contain("t3").start().code(0);
    assert_eq!(asked.event("host.ready")["note"], "", "what was asked for needs no reason");
}
