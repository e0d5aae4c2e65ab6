//! At a terminal: job control of an interactive shell, and Ctrl-C.

use crate::case::Case;
use crate::census;
use crate::place;
use crate::plan::Plan;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write as _;
use std::process::ChildStdin;

/// A terminal with this in it; what the test writes to stdin is typed.
fn terminal(command: &str) -> Option<Case> {
    if !place::has("script") || !place::has("bash") {
        return None;
    }
    let plan = Plan::shell("exec script -qec \"$COMMAND\" /dev/null").env("COMMAND", command).stdin_pipe();
    Some(plan.env("PS1", "").env("HISTFILE", "").start())
}

/// Until then the terminal must not see the end of what is typed.
fn outlasts(typed: ChildStdin, case: &Case) {
    case.until("the end", |seen| seen.exit);
    drop(typed);
}

#[test]
fn a_background_job_of_an_interactive_shell_ends() {
    let Some(mut case) = terminal("bash --norc -ic '\"$RL\" -n 2 true & wait; echo over'") else { return };
    let typed = case.take_stdin();
    case.says_on_stdout("over", 1);
    outlasts(typed, &case);
    assert!(!case.code(0).out().contains("topped"));
}

#[test]
fn an_interrupt_stops_a_loop() {
    let script =
        "for i in 1 2 3 4 5; do echo job $i; \"$RL\" -n 2 sh -c \"echo ready; exec sleep 100\"; done; echo never";
    let Some(mut case) = terminal(&format!("bash --norc -ic '{script}'")) else { return };
    let mut typed = case.take_stdin();
    case.says_on_stdout("ready", 2);
    typed.write_all(b"\x03").unwrap();
    outlasts(typed, &case);
    let done = case.end();
    let out = done.out();
    assert!(out.contains("job 1") && !out.contains("job 2") && !out.contains("never"), "{out}");
    assert!(out.contains("0 left running"), "{out}");
    assert!(out.contains("Ctrl-C: sent SIGINT"), "{out}");
}

#[test]
fn an_interrupt_reaches_the_ranks_once() {
    let script = "trap \"echo got INT\" INT; echo ready; while :; do sleep 100 & wait; done";
    let Some(mut case) = terminal(&format!("\"$RL\" -n 2 --grace 600s sh -c '{script}'")) else { return };
    let mut typed = case.take_stdin();
    case.says_on_stdout("ready", 2);
    typed.write_all(b"\x03").unwrap();
    case.says_on_stdout("got INT", 2);
    // The pause is what is asked for: a second key press is slower than an echo of the first.
    std::thread::sleep(crate::case::ECHO);
    typed.write_all(b"\x03").unwrap();
    outlasts(typed, &case);
    let done = case.code(130);
    assert_eq!(done.out().matches("got INT").count(), 2, "{}", done.out());
}

#[test]
fn job_in_the_foreground_reads_typed_input() {
    let Some(mut case) = terminal("\"$RL\" -n 1 cat") else { return };
    let mut typed = case.take_stdin();
    typed.write_all(b"hello\n").unwrap();
    // Once from the terminal's echo, once from cat.
    case.says_on_stdout("hello", 2);
    typed.write_all(b"\x04").unwrap();
    outlasts(typed, &case);
    case.code(0);
}

#[test]
fn line_that_no_rank_reads_is_left_to_the_shell() {
    let Some(mut case) = terminal("bash --norc -i") else { return };
    let mut typed = case.take_stdin();
    // The pause is what is asked for: there is time to read ahead.
    typed.write_all(b"\"$RL\" -n 1 sh -c 'echo rea''dy; sleep 0.3'\n").unwrap();
    case.says_on_stdout("ready", 1);
    typed.write_all(b"echo typed-$((40+2)); exit 7\n").unwrap();
    case.says_on_stdout("typed-42", 1);
    outlasts(typed, &case);
    case.code(7);
}

#[test]
fn line_after_the_input_of_a_rank_is_left_to_the_shell() {
    let Some(mut case) = terminal("bash --norc -i") else { return };
    let mut typed = case.take_stdin();
    typed.write_all(b"\"$RL\" -n 1 sh -c 'echo rea''dy; head -n 1; read x; echo got $x; sleep 0.3'\n").unwrap();
    case.says_on_stdout("ready", 1);
    typed.write_all(b"first\nsecond\necho typed-$((40+2)); exit 7\n").unwrap();
    case.says_on_stdout("got second", 1);
    case.says_on_stdout("typed-42", 1);
    outlasts(typed, &case);
    let done = case.code(7);
    // Once from the terminal's echo, once from the rank.
    assert_eq!(done.out().matches("first").count(), 2, "{}", done.out());
}

#[test]
fn job_that_is_brought_to_the_foreground_reads_typed_input() {
    let Some(mut case) = terminal("bash --norc -i") else { return };
    let mut typed = case.take_stdin();
    typed.write_all(b"\"$RL\" -n 1 sh -c 'echo rea''dy; cat' &\n").unwrap();
    case.says_on_stdout("ready", 1);
    typed.write_all(b"fg\n").unwrap();
    // The shell names the job after it has left the terminal to the kernel's line editing and echo.
    case.until("the job in the foreground", |seen| {
        let out = String::from_utf8_lossy(&seen.out).into_owned();
        out.get(out.rfind("fg")?..)?.contains("cat'").then_some(())
    });
    typed.write_all(b"typed\n").unwrap();
    case.says_on_stdout("typed", 2);
    typed.write_all(b"\x04").unwrap();
    typed.write_all(b"echo c''ode $?; exit 7\n").unwrap();
    case.says_on_stdout("code 0", 1);
    outlasts(typed, &case);
    case.code(7);
}

#[test]
fn stopped_job_continues_in_the_foreground() {
    let Some(mut case) = terminal("env PS1=prompt: bash --norc -i") else { return };
    let mut typed = case.take_stdin();
    typed.write_all(b"\"$RL\" -n 1 sh -c 'echo rea''dy; read x; echo got \"$x\"'\n").unwrap();
    case.says_on_stdout("ready", 1);
    // Ctrl-Z means nothing to a job.
    typed.write_all(b"\x1a").unwrap();
    case.says_on_stdout("^Z", 1);
    let launcher = case.ours("rlaunch").unwrap();
    kill(Pid::from_raw(launcher), Signal::SIGSTOP).unwrap();
    case.says_on_stdout("topped", 1);
    typed.write_all(b"fg\n").unwrap();
    census::wait_stopped(launcher, false);
    typed.write_all(b"this\n").unwrap();
    case.says_on_stdout("got this", 1);
    // Input that is typed while the job runs is the job's.
    census::wait_until("the launcher's end", || census::is_dead(launcher));
    // Nor is it the shell's before that has the terminal again: at the start, after the stop, now.
    case.says_on_stdout("prompt:", 3);
    typed.write_all(b"echo c''ode $?; exit 7\n").unwrap();
    case.says_on_stdout("code 0", 1);
    outlasts(typed, &case);
    case.code(7);
}

#[test]
fn terminal_is_restored() {
    let script =
        "before=$(stty -a); \"$RL\" -n 2 true; \"$RL\" -n 1 false; [ \"$before\" = \"$(stty -a)\" ] && echo same";
    let Some(mut case) = terminal(&format!("sh -c '{script}'")) else { return };
    let typed = case.take_stdin();
    outlasts(typed, &case);
    assert!(case.code(0).out().contains("same"));
}
