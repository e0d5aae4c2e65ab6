//! Commands at restarts and at the job's end (`--on-restart`, `--on-exit`): their variables, their time limit, and that they change
//! nothing.

use crate::census::Mercy;
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PRINT: &str = "echo $RLAUNCH_HOOK $RLAUNCH_HOOK_LEVEL g$RLAUNCH_HOOK_GENERATION r$RLAUNCH_HOOK_ROUND \
     $RLAUNCH_HOOK_KIND rank $RLAUNCH_HOOK_RANKS $RLAUNCH_HOOK_WORLD_BEFORE to $RLAUNCH_HOOK_WORLD code $RLAUNCH_HOOK_EXIT_CODE";

#[test]
fn hooks_run_for_generations_and_for_the_end() {
    let words = ["-n", "2", "--max-restarts", "1", "--restart-delay", "0", "--on-restart", PRINT, "--on-exit", PRINT];
    let script = "[ $RANK = 1 ] && exit 7; exec sleep 1000";
    for tier in place::tiers() {
        let plan = Plan::rlaunch(words).args(["sh", "-c", script]);
        let done = plan.contain(tier).start().code(7);
        done.says("on-restart: restart generation g1 r ended rank 1 2 to 2 code\n");
        done.says("on-exit: exit g1 r rank rank 1 to 2 code 7\n");
        assert_eq!(done.out(), "", "what they write is no output of the job");
    }
}

#[test]
fn hooks_run_for_rounds() {
    let train = place::beside("train");
    if !train.is_file() {
        assert!(std::env::var_os("CI").is_none(), "{} was not built", train.display());
        return place::absent("hooks", "train was not built; cargo build --workspace builds it");
    }
    let words = ["-n", "3", "--on-restart", PRINT, "--on-exit", PRINT];
    let plan = Plan::rlaunch(words).args([train.as_os_str()]).args(["--resilient", "--epochs", "150"]);
    let case = plan.start();
    case.says_on_stdout("epoch   3", 1);
    let pid = case.event_of("rank.started", 1)["pid"].as_i64().unwrap();
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
    let done = case.code(0);
    done.says("on-restart: restart round g0 r1 ended rank 1 3 to 2 code\n");
    done.says("on-exit: exit g0 r1 success rank to 2 code 0\n");
}

#[test]
fn failing_or_hanging_hook_changes_nothing() {
    // It and what it has started are deaf.
    let deaf = "trap '' TERM; (trap '' TERM; sleep 1000) & sleep 1000";
    let done =
        Plan::rlaunch(["-n", "1", "--hook-timeout", "200ms", "--on-exit", deaf, "sh", "-c", "exit 5"]).start().code(5);
    let late = "rlaunch: --on-exit took longer than 0.2s (--hook-timeout) and is killed\n";
    assert!(done.says(late).err().ends_with(late), "it was killed, and needed nobody else for that: {}", done.err());
    let done = Plan::rlaunch(["-n", "1", "--on-exit", "echo a; exit 3", "true"]).start().code(0);
    assert_eq!(
        done.err_of_any_machine(),
        "on-exit: a\nrlaunch: --on-exit has failed (exit 3); the result of the job stays the same\n"
    );
    // Its background processes end with it.
    Plan::rlaunch(["--on-exit", "sleep 1000 & true", "true"]).start().code(0);
}

/// SIGTERM comes first, also to processes in sessions of their own. Processes that ignore it are killed.
#[test]
fn interrupt_sends_sigterm_to_all_hook_processes() {
    let polite = "trap 'echo asked; exit 0' TERM; echo polite is up; sleep 1000 & wait";
    let deaf = "trap '' TERM; echo deaf is up; sleep 1000";
    let command =
        "trap : TERM; setsid sh -c \"$POLITE\" & setsid sh -c \"$DEAF\" & while :; do sleep 1000 & wait; done";
    let plan = Plan::rlaunch(["--on-exit", command, "true"]).env("POLITE", polite).env("DEAF", deaf);
    let case = plan.start();
    case.says_on_stderr("on-exit: polite is up");
    case.says_on_stderr("on-exit: deaf is up");
    case.signal(Signal::SIGINT);
    let done = case.code(0);
    assert_eq!(done.err().matches("on-exit: asked\n").count(), 1, "{}", done.err());
    assert!(!done.err().contains("cannot be ended"), "{}", done.err());
}

#[test]
fn slow_hook_delays_only_the_end() {
    let script = "[ $RLAUNCH_RESTART_COUNT = 2 ] && exit 0; exit 3";
    let words = ["--max-restarts", "2", "--restart-delay", "0", "--on-restart", "exec sleep 1000"];
    let case = Plan::rlaunch(words).args(["sh", "-c", script]).start();
    // The generations come and go, and the first command still runs.
    case.event("job.end");
    case.signal(Signal::SIGINT);
    let done = case.code(0);
    assert_eq!(done.named("restart").count(), 2);
    done.says("rlaunch: --on-restart was not run for 1 restart: its earlier runs took too long\n");
}

#[test]
fn exit_hook_runs_on_interrupt_and_ends_with_a_killed_launcher() {
    let case = Plan::rlaunch(["--on-exit", PRINT, "sleep", "1000"]).start();
    case.event("rank.started");
    case.signal(Signal::SIGINT);
    let done = case.finish(Exit::Signal(Signal::SIGINT));
    done.says("on-exit: exit g0 r signal rank to 1 code 130\n");
    let case = Plan::rlaunch(["--on-exit", "echo up; sleep 1000 & sleep 1000", "true"]).mercy(Mercy::All).start();
    case.says_on_stderr("on-exit: up");
    kill(Pid::from_raw(case.pid()), Signal::SIGKILL).unwrap();
    case.finish(Exit::Signal(Signal::SIGKILL));
}

#[test]
fn hook_has_callers_environment_and_no_descriptor_of_ours() {
    let command = "echo $A,$RANK,$RLAUNCH_ON_EXIT,$RLAUNCH_N; ls /proc/self/fd | wc -l; cat";
    let plan = Plan::rlaunch(["true"]).env("A", "b").env("RANK", "9").env("RLAUNCH_N", "1");
    let done = plan.env("RLAUNCH_ON_EXIT", command).start().code(0);
    done.says("on-exit: b,9,,\n").says("on-exit: 4\n");
}

#[test]
fn invalid_command_is_refused() {
    let done = Plan::rlaunch(["--on-restart", " ", "true"]).start().code(2);
    done.says("error: --on-restart takes a command for sh -c, got ' '");
    let done = Plan::rlaunch(["--hook-timeout", "1ms", "true"]).start().code(2);
    done.says("error: --hook-timeout takes a duration").says("at least 0.1s");
    let done = Plan::rlaunch(["--on-exit", "true"]).start().code(2);
    done.says("--on-exit");
}
