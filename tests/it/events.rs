//! The event log: it parses, its times go forward, and a launch can be drawn from it.

use crate::case::{Case, Done};
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::Signal;

/// Properties of every log.
fn check(done: &Done) {
    let events = &done.events;
    assert!(events.iter().all(|e| e["v"] == 1 && e["t"].is_u64() && e["wall"].is_u64() && e["ev"].is_string()));
    for pair in events.windows(2) {
        let [a, b] = pair else { unreachable!() };
        assert!(a["t"].as_u64() <= b["t"].as_u64(), "{a} before {b}");
        let offset = |e: &serde_json::Value| e["wall"].as_u64().unwrap() - e["t"].as_u64().unwrap();
        assert_eq!(offset(a), offset(b), "one clock");
    }
    assert_eq!((&events[0]["ev"], &events[events.len() - 1]["ev"]), (&"job.start".into(), &"job.end".into()));
}

#[test]
fn launch_can_be_drawn_from_events() {
    for tier in place::tiers() {
        let done = Plan::rlaunch(["-n", "5", "sh", "-c", "echo out; echo err >&2"]).contain(tier).start().code(0);
        check(&done);
        let start = done.event("job.start");
        assert_eq!((&start["world_size"], &start["apps"][0]["argv"][0]), (&5.into(), &"sh".into()));
        let end = done.event("job.end")["t"].as_u64().unwrap();
        let ready = done.event("host.ready")["t"].as_u64().unwrap();
        for rank in 0..5 {
            let of = |ev| done.named(ev).find(|e| e["rank"] == rank).unwrap();
            let (started, exited) = (of("rank.started"), of("rank.exited"));
            let (from, to) = (started["at"].as_u64().unwrap(), exited["at"].as_u64().unwrap());
            assert!(from <= to && to <= end && started["pid"].as_u64() > Some(1), "{started} {exited}");
            assert!(started["at"].as_u64().unwrap() <= started["t"].as_u64().unwrap(), "{started}");
            let bytes: Vec<_> = done.named("stream.end").filter(|e| e["rank"] == rank).map(|e| &e["total"]).collect();
            assert_eq!(bytes, [4, 4], "{tier}");
        }
        assert!(ready <= end);
        assert_eq!(done.event("job.end")["left"], 0);
        assert!(done.event("job.end")["launch"].as_u64().unwrap() <= end);
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let said = u128::from(done.event("job.end")["wall"].as_u64().unwrap());
        assert!(wall.abs_diff(said) < 600_000_000_000, "{said} is not about now");
    }
}

#[test]
fn logs_of_failures_are_as_good() {
    check(&Case::start(["-n", "3", "sh", "-c", "exit $RANK"]).code_of_any(&[1, 2]));
    check(&Case::start(["-n", "3", "/nowhere/at-all"]).code(127));
    check(&Case::start(["-n", "2", "--timeout", "50ms", "sleep", "100"]).code(124));
    let case = Case::start(["-n", "2", "sleep", "100"]);
    case.events("rank.started", 2);
    case.signal(Signal::SIGINT);
    check(&case.finish(Exit::Signal(Signal::SIGINT)));
}

#[test]
fn event_log_goes_to_a_file_or_a_descriptor() {
    let script = "\"$RL\" --events \"$DIR/a\" -n 2 true; \"$RL\" --events fd:5 -n 2 true 5>\"$DIR/b\"; \
                  RLAUNCH_EVENTS=\"$DIR/c\" \"$RL\" -n 2 sh -c 'echo ${RLAUNCH_EVENTS-none}'; \
                  \"$RL\" --events \"$DIR/a\" -n 1 true; \"$RL\" --events fd:1 -q -n 1 true >\"$DIR/d\"";
    let done = Plan::shell(script).start().code(0);
    assert_eq!(done.out(), "none\nnone\n");
    for (name, ranks) in [("a", 1), ("b", 2), ("c", 2), ("d", 1)] {
        let text = std::fs::read_to_string(done.scratch.path(name)).unwrap();
        assert_eq!(text.matches("\"ev\":\"rank.exited\"").count(), ranks, "{name}: {text}");
        assert_eq!(text.matches("\"ev\":\"job.end\"").count(), 1, "{name}");
        assert!(text.ends_with("}\n"), "{name}");
    }
}

#[test]
fn words_that_are_no_text_survive_in_events() {
    use std::os::unix::ffi::OsStrExt as _;
    let odd = std::ffi::OsStr::from_bytes(b"\xff\n\"\\");
    let done = Case::start([std::ffi::OsStr::new("-n"), "1".as_ref(), "echo".as_ref(), odd]).code(0);
    assert_eq!(done.event("job.start")["apps"][0]["argv"][1], "\\xff\n\"\\\\");
}

#[test]
fn a_reader_of_the_log_that_leaves_does_not_end_the_job() {
    let script = "\"$RL\" --events fd:3 -n 2 sh -c 'read x <\"$DIR/go$RANK\"; echo on' 3>&1 >\"$DIR/out\" | head -n 1 >\"$DIR/first\"; \
                  cat \"$DIR/out\"";
    let plan = Plan::shell(script);
    let go = [plan.scratch().fifo("go0"), plan.scratch().fifo("go1")];
    let case = plan.start();
    // `head` has what it wants long before the ranks are let go.
    go.iter().for_each(|path| std::fs::write(path, "\n").unwrap());
    assert_eq!(case.code(0).out(), "on\non\n");
}

#[test]
fn full_disk_ends_the_log_and_not_the_job_and_is_reported() {
    let done = Plan::shell("\"$RL\" --events /dev/full -n 2 echo ran; echo $?").start().code(0);
    assert_eq!(done.out(), "ran\nran\n0\n");
    assert_eq!(done.err().matches("cannot write the event log: no space left on device").count(), 1, "{}", done.err());
}

#[test]
fn session_without_reader_can_be_interrupted() {
    // The pause lets rlaunch wait for a reader of its log, which no event shows. An earlier signal has the same effect.
    let script =
        "mkfifo \"$DIR/e\"; \"$RL\" -n 1 --events \"$DIR/e\" true & sleep 0.2; kill -TERM $!; wait $!; echo $?";
    assert_eq!(Plan::shell(script).start().code(0).out(), "143\n");
}
