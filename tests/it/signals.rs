//! The table of docs/reference/signals.md, on real processes.

use crate::case::Case;
use crate::census;
use crate::place::{self, Random};
use crate::plan::Plan;
use crate::stopped::Frozen;
use crate::watch::Exit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

/// Says what it gets, and ends with 0 on anything but a user's signal.
const TALKER: &str = "for s in INT TERM HUP QUIT; do trap \"echo got $s; exit 0\" $s; done; \
     for s in USR1 USR2; do trap \"echo got $s\" $s; done; echo ready; while :; do sleep 100 & wait; done";
/// Ignores every polite request.
const DEAF: &str = "trap '' INT TERM HUP QUIT; echo ready; while :; do sleep 100; done";

#[test]
fn end_of_job_reaches_every_rank() {
    for sig in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        for tier in place::tiers() {
            let case = Plan::rlaunch(["-n", "3", "sh", "-c", TALKER]).contain(tier).start();
            case.says_on_stdout("ready", 3);
            case.signal(sig);
            let done = case.finish(Exit::Signal(sig));
            let name = sig.as_str().trim_start_matches("SIG");
            assert_eq!(done.out().matches(&format!("got {name}\n")).count(), 3, "{}", done.out());
            let ended = done.event("signal");
            assert_eq!((ended["signal"].as_str(), ended["answer"].as_str()), (Some(sig.as_str()), Some("ended")));
        }
    }
}

#[test]
fn user_signals_are_passed_on_and_the_job_continues() {
    for tier in place::tiers() {
        let case = Plan::rlaunch(["-n", "2", "sh", "-c", TALKER]).contain(tier).start();
        case.says_on_stdout("ready", 2);
        for (sig, name) in [(Signal::SIGUSR1, "USR1"), (Signal::SIGUSR2, "USR2"), (Signal::SIGUSR1, "USR1")] {
            let before = case.until("output", |seen| Some(String::from_utf8_lossy(&seen.out).matches(name).count()));
            case.signal(sig);
            case.says_on_stdout(&format!("got {name}\n"), before + 2);
        }
        case.signal(Signal::SIGTERM);
        case.finish(Exit::Signal(Signal::SIGTERM));
    }
}

#[test]
fn a_rank_that_dies_of_a_forwarded_signal_failed() {
    let case = Case::start(["-n", "2", "sleep", "100"]);
    case.events("rank.started", 2);
    case.signal(Signal::SIGUSR1);
    case.code(128 + 10).says("SIGUSR1");
}

#[test]
fn ranks_that_ignore_the_request_are_killed_after_the_grace() {
    let case = Case::start(["-n", "2", "--grace", "300ms", "sh", "-c", DEAF]);
    case.says_on_stdout("ready", 2);
    case.signal(Signal::SIGTERM);
    let done = case.finish(Exit::Signal(Signal::SIGTERM));
    let began = done.event("ending")["t"].as_u64().unwrap();
    for exited in done.named("rank.exited") {
        assert_eq!(exited["signal"], "SIGKILL");
        assert!(exited["at"].as_u64().unwrap() >= began + 300_000_000, "{exited} too early after {began}");
    }
    done.says("0 left running");
}

#[test]
fn a_second_interrupt_kills() {
    for tier in place::tiers() {
        let case = Plan::rlaunch(["-n", "2", "--grace", "600s", "sh", "-c", DEAF]).contain(tier).start();
        case.says_on_stdout("ready", 2);
        case.signal(Signal::SIGINT);
        case.event("ending");
        case.signal_again(Signal::SIGINT);
        let done = case.finish(Exit::Signal(Signal::SIGINT));
        let answers: Vec<_> = done.named("signal").map(|e| e["answer"].as_str().unwrap()).collect();
        assert_eq!(answers, ["ended", "killed"]);
        assert!(done.named("rank.exited").all(|e| e["signal"] == "SIGKILL"));
        done.says("0 left running");
        // No key of a terminal has made them.
        done.says("got SIGINT: sent SIGINT, SIGKILL in 10m00s; send it again to kill now");
        done.says("got SIGINT: sent SIGKILL; send it again to leave at once");
    }
}

#[test]
fn an_echo_of_an_interrupt_does_not_kill() {
    // One keystroke may arrive twice: from the terminal, and from a wrapper that passes it on.
    for _ in 0..20 {
        let case = Case::start(["-n", "1", "--grace", "600s", "sh", "-c", "trap '' INT; echo ready; exec sleep 100"]);
        case.says_on_stdout("ready", 1);
        case.signal(Signal::SIGINT);
        case.event("signal");
        case.signal(Signal::SIGINT);
        let signals = case.events("signal", 2);
        let at = |n: usize| signals[n]["t"].as_u64().unwrap();
        let echo = at(1) - at(0) < 50_000_000;
        assert_eq!(signals[1]["answer"], if echo { "ignored" } else { "killed" });
        if echo {
            case.signal_again(Signal::SIGINT);
        }
        case.finish(Exit::Signal(Signal::SIGINT));
        if echo {
            return;
        }
    }
    panic!("this machine is too slow for an echo");
}

#[test]
fn a_third_interrupt_leaves_at_once_and_the_guardian_finishes() {
    for tier in place::tiers() {
        let case = Plan::rlaunch(["-n", "2", "--grace", "600s", "sh", "-c", DEAF]).contain(tier).start();
        case.says_on_stdout("ready", 2);
        let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
        // An agent that does nothing any more: only the guardian can end the ranks.
        let Some(_frozen) = Frozen::agent(agent) else { return case.signal_to_end(Signal::SIGTERM) };
        case.signal(Signal::SIGINT);
        case.event("ending");
        case.signal_again(Signal::SIGINT);
        case.signal_again(Signal::SIGINT);
        let done = case.end_with(census::Mercy::All);
        assert_eq!(done.exit, Exit::Signal(Signal::SIGINT));
        let answers: Vec<_> = done.named("signal").map(|e| e["answer"].as_str().unwrap()).collect();
        assert_eq!(answers, ["ended", "killed", "left"]);
        assert!(!done.err().contains("0 left running"), "nobody counted: {}", done.err());
    }
}

#[test]
fn ignored_signals_stay_ignored() {
    // nohup's HUP; the INT and QUIT of a background job of a plain shell.
    for (sig, name) in [(Signal::SIGHUP, "HUP"), (Signal::SIGINT, "INT"), (Signal::SIGQUIT, "QUIT")] {
        let script = format!("exec env --ignore-signal={name} \"$RL\" -n 2 sh -c \"$TALKER\"");
        let case = Plan::shell(&script).env("TALKER", TALKER).with_events().start();
        case.says_on_stdout("ready", 2);
        case.signal(sig);
        // Comes after it: had it ended the job, there would be no answer.
        case.signal(Signal::SIGUSR1);
        case.says_on_stdout("got USR1", 2);
        case.signal(Signal::SIGTERM);
        let done = case.finish(Exit::Signal(Signal::SIGTERM));
        assert!(!done.out().contains(&format!("got {name}")));
    }
}

#[test]
fn nohup_is_honoured() {
    if !place::has("nohup") {
        return;
    }
    let case = Plan::shell("exec nohup \"$RL\" -n 1 sh -c \"$TALKER\"").env("TALKER", TALKER).start();
    case.says_on_stdout("ready", 1);
    case.signal(Signal::SIGHUP);
    case.signal(Signal::SIGUSR2);
    case.says_on_stdout("got USR2", 1);
    case.signal(Signal::SIGTERM);
    case.finish(Exit::Signal(Signal::SIGTERM));
}

#[test]
fn as_the_first_process_of_a_container_the_code_stands_for_the_signal() {
    let unshare = if place::is_root() { "unshare -pf" } else { "unshare -Urpf" };
    if !place::has("unshare") {
        return;
    }
    if !Plan::shell(&format!("{unshare} true")).start().end().exit.is_success() {
        return place::absent("rlaunch as process 1", "no PID namespace can be made");
    }
    let script = format!("{unshare} --mount-proc --kill-child \"$RL\" -n 2 --contain t3 sleep 100; echo $?");
    let case = Plan::shell(&script).with_events().start();
    case.events("rank.started", 2);
    let unshare = census::children(case.pid()).remove(0);
    let launcher = census::children(unshare.pid).remove(0);
    kill(Pid::from_raw(launcher.pid), Signal::SIGTERM).unwrap();
    assert_eq!(case.code(0).out(), "143\n");
}

#[test]
fn signal_at_any_moment_of_the_launch_ends_the_job() {
    let mut random = Random::new(1);
    for _ in 0..if place::full() { 200 } else { 30 } {
        let case = Case::start(["-n", "8", "sleep", "100"]);
        // The pause is the fault: its moment.
        std::thread::sleep(Duration::from_micros(random.below(12_000)));
        let sig = *random.pick(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
        case.signal(sig);
        case.finish(Exit::Signal(sig));
    }
}

/// Shell that does not handle the signal, with a program in its process group that saves. The child of the program holds no output,
/// because a signal between its fork and its exec does not end it.
const WRAPPER: &str = "exec 3<>\"$DIR/go\"; (trap 'read x <&3; echo saved; exit 0' USR1; sleep 100 >/dev/null 2>&1 & \
     echo ready; while :; do wait; done); echo over";

/// The report blamed the rank, and all that was being saved was killed with the wrappers.
#[test]
fn a_wrapper_killed_by_a_signal_that_was_passed_on_costs_no_program_its_grace() {
    for tier in place::tiers() {
        let plan = Plan::rlaunch(["-n", "2", "--grace", "600s", "sh", "-c", WRAPPER]).contain(tier);
        let go = plan.scratch().fifo("go");
        let case = plan.start();
        case.says_on_stdout("ready", 2);
        case.signal(Signal::SIGUSR1);
        case.events("rank.exited", 2);
        // No process reads the pipe if none is left.
        let mut options = std::fs::OpenOptions::new();
        let go = std::os::unix::fs::OpenOptionsExt::custom_flags(options.write(true), nix::libc::O_NONBLOCK).open(go);
        go.and_then(|mut go| std::io::Write::write_all(&mut go, b"1\n2\n")).unwrap_or_default();
        let done = case.code(138);
        assert_eq!(done.out().matches("saved").count(), 2, "{tier}: {}", done.err());
        done.says("SIGUSR1, which rlaunch was sent and passed on, after").says("trap : USR1").says("0 left running");
    }
}
