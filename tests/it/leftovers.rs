//! Nothing is left behind, however a job ends and whatever its ranks have started.

use crate::case::Case;
use crate::census::{self, Mercy};
use crate::place;
use crate::plan::Plan;
use crate::watch::{Exit, Into};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Read;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// Starts what gets away from a process group, a session, and an environment that could be searched for.
const ESCAPE: &str = "setsid sleep 999 </dev/null >/dev/null 2>&1 & \
     (setsid sh -c 'sleep 999 & exec sleep 998' </dev/null >/dev/null 2>&1 &) ; \
     env -i setsid sleep 997 </dev/null >/dev/null 2>&1 & ";

#[test]
fn descendants_that_got_away_end_with_the_job() {
    for tier in place::tiers() {
        for (end, code) in [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)] {
            let script = format!("{ESCAPE} echo ready; {end}");
            let done = Plan::rlaunch(["-n", "3", "sh", "-c", &script]).contain(tier).start().code(code);
            assert_eq!(done.event("job.end")["left"], 0, "{tier} {end}");
        }
    }
}

/// A warning names the processes that successful ranks left running: rlaunch ends them before they finish.
#[test]
fn processes_that_are_ended_after_a_success_are_named() {
    for tier in place::tiers() {
        for (end, code, is_named) in [("exit 0", 0, true), ("exit 3", 3, false)] {
            let script = format!("setsid sleep 999 </dev/null >/dev/null 2>&1 & sleep 0.2; {end}");
            let done = Plan::rlaunch(["-n", "2", "sh", "-c", &script]).contain(tier).start().code(code);
            let err = done.err();
            let said = err.lines().find(|line| line.contains("had left running"));
            assert_eq!(said.is_some(), is_named, "{tier} {end}: {err}");
            if let Some(line) = said {
                let is_line = line.starts_with("rlaunch: ended 2 processes on ")
                    && line.contains(" that ranks had left running; the first: s");
                assert!(is_line, "{tier}: {line}");
                assert_eq!(done.event("host.left_ended")["count"], 2);
            }
        }
    }
}

#[test]
fn hooks_end_with_an_interrupted_job() {
    for tier in place::tiers() {
        let script = format!("{ESCAPE} echo ready; exec sleep 996");
        let case = Plan::rlaunch(["-n", "3", "sh", "-c", &script]).contain(tier).start();
        case.says_on_stdout("ready", 3);
        case.signal(Signal::SIGTERM);
        let done = case.finish(Exit::Signal(Signal::SIGTERM));
        assert_eq!(done.event("job.end")["left"], 0);
    }
}

#[test]
fn output_holder_gets_two_seconds_after_success() {
    for tier in place::tiers() {
        let script = "(read x <\"$DIR/go\"; echo late; exec sleep 999) & exit 0";
        let plan = Plan::rlaunch(["-n", "1", "sh", "-c", script]).contain(tier);
        let go = plan.scratch().fifo("go");
        let case = plan.start();
        case.event("rank.exited");
        let start = Instant::now();
        std::fs::write(go, "\n").unwrap();
        let done = case.code(0);
        assert_eq!(done.out(), "late\n", "its output is still passed on");
        let waited = done.event("job.end")["t"].as_u64().unwrap() - done.event("rank.exited")["at"].as_u64().unwrap();
        assert!((1_900_000_000..20_000_000_000).contains(&waited), "{tier}: {waited} ns, {:?}", start.elapsed());
    }
}

#[test]
fn exited_hook_is_not_waited_for() {
    let script = "(read x <\"$DIR/go\"; echo late) & exit 0";
    let plan = Plan::rlaunch(["-n", "1", "sh", "-c", script]);
    let go = plan.scratch().fifo("go");
    let case = plan.start();
    case.event("rank.exited");
    std::fs::write(go, "\n").unwrap();
    let done = case.code(0);
    assert_eq!(done.out(), "late\n");
    let waited = done.event("job.end")["t"].as_u64().unwrap() - done.event("rank.exited")["at"].as_u64().unwrap();
    assert!(waited < 1_900_000_000, "{waited} ns");
}

/// A reader that begins on a signal of the test.
struct Late<R>(Option<Receiver<()>>, R);

impl<R: Read> Read for Late<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if let Some(wait) = self.0.take() {
            // The test has failed: no signal will come.
            wait.recv().unwrap_or_default();
        }
        self.1.read(buf)
    }
}

#[test]
fn a_stranger_that_holds_the_output_is_not_waited_for() {
    // A process outside of the job, which we do not end: the bytes in the pipe are still passed on, and then the stream ends.
    for tier in place::tiers() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (go, wait) = std::sync::mpsc::channel();
        let plan = Plan::rlaunch(["-n", "1", "--timeout", "500ms", "yes"]).contain(tier);
        let case = plan.stdout(writer).reads(Late(Some(wait), reader), Into::Out).start();
        let pid = case.event("rank.started")["pid"].clone();
        let held = File::options().write(true).open(format!("/proc/{pid}/fd/1")).unwrap();
        case.event("rank.exited");
        go.send(()).unwrap();
        let done = case.code(124);
        drop(held);
        let all = u64::try_from(done.out.len()).unwrap();
        let total = |e: &serde_json::Value| e["total"].as_u64().filter(|_| e["stream"] == "stdout");
        assert_eq!(done.named("stream.end").find_map(total), Some(all), "{tier}");
    }
}

#[test]
fn after_a_failure_no_process_is_waited_for() {
    for tier in place::tiers() {
        let case = Plan::rlaunch(["-n", "2", "sh", "-c", "sleep 999 & exit 4"]).contain(tier).start();
        let done = case.code(4);
        let last = done.named("rank.exited").map(|e| e["at"].as_u64().unwrap()).max().unwrap();
        let waited = done.event("job.end")["t"].as_u64().unwrap() - last;
        assert!(waited < 1_900_000_000, "{tier}: {waited} ns");
    }
}

#[test]
fn a_stopped_rank_is_ended_too() {
    for tier in place::tiers() {
        let case =
            Plan::rlaunch(["-n", "2", "--grace", "200ms", "sh", "-c", "echo ready; kill -STOP $$"]).contain(tier);
        let case = case.start();
        for rank in case.events("rank.started", 2) {
            census::wait_stopped(pid(&rank), true);
        }
        case.signal(Signal::SIGTERM);
        assert_eq!(case.finish(Exit::Signal(Signal::SIGTERM)).event("job.end")["left"], 0);
    }
}

fn pid(event: &serde_json::Value) -> i32 {
    i32::try_from(event["pid"].as_i64().unwrap()).unwrap()
}

#[test]
fn rank_continues_after_sigstop_and_sigcont() {
    for tier in place::tiers() {
        let plan = Plan::rlaunch(["-n", "2", "sh", "-c", "read x <\"$DIR/go$RANK\"; echo over"]).contain(tier);
        let go = ["go0", "go1"].map(|name| plan.scratch().fifo(name));
        let case = plan.start();
        let ranks = case.events("rank.started", 2);
        let stopped = ranks.iter().find(|e| e["rank"] == 0).map(pid).unwrap();
        kill(Pid::from_raw(stopped), Signal::SIGSTOP).unwrap();
        census::wait_stopped(stopped, true);
        // The other one ends meanwhile: a stop is no end, and the job waits.
        std::fs::write(&go[1], "\n").unwrap();
        case.event_of("rank.exited", 1);
        assert!(census::is_stopped(stopped), "{tier}");
        kill(Pid::from_raw(stopped), Signal::SIGCONT).unwrap();
        std::fs::write(&go[0], "\n").unwrap();
        assert_eq!(case.code(0).out(), "over\nover\n", "{tier}");
    }
}

/// Forks and exits as fast as it can: no list of processes ever holds it. Ends by itself if it is not ended.
const HOPPER: &str = "import os, time\nprint('hopping', flush=True)\nos.dup2(0, 1)\nend = time.time() + 60\nwhile time.time() < end:\n    if os.fork(): os._exit(0)\n";

#[test]
fn ever_forking_process_is_killed() {
    if !place::has("python3") {
        return;
    }
    for tier in place::tiers() {
        let script = "setsid python3 -c \"$HOPPER\" </dev/null 2>/dev/null & read x <\"$DIR/go\"; exit 0";
        let plan = Plan::rlaunch(["-n", "1", "sh", "-c", script]).env("HOPPER", HOPPER).contain(tier);
        let go = plan.scratch().fifo("go");
        let case = plan.start();
        case.says_on_stdout("hopping", 1);
        std::fs::write(go, "\n").unwrap();
        assert_eq!(case.code(0).event("job.end")["left"], 0, "{tier}");
    }
}

/// Process 1 that reaps only its own children. It prints the exit of its program and the processes that were left to it. It interrupts a
/// program that prints a line.
const NO_REAPER: &str = "import os, subprocess, sys
child = subprocess.Popen([os.environ['RL'], *sys.argv[1:]], stdout=subprocess.PIPE)
if child.stdout.readline():
    child.send_signal(2)
code = child.wait()
try:
    print(os.getpid(), code, 'left', os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print(os.getpid(), code, 'left nobody')
";

#[test]
fn no_zombie_is_left_if_process_1_does_not_reap() {
    if !place::tiers().contains(&"t1") || !["python3", "unshare"].into_iter().all(place::has) {
        return;
    }
    let unshare = if place::is_root() { "-pf" } else { "-Urpf" };
    for (words, code) in [
        (&["-n", "2", "true"][..], 0),
        (&["-n", "2", "false"], 1),
        (&["-n", "2", "--on-exit", "true", "true"], 0),
        (&["-n", "1", "sh", "-c", "echo ready; exec sleep 100"], -2),
        (&["-n", "0", "true"], 2),
        (&["--no-such-option", "true"], 2),
        (&["-n", "1", "/no/such/program"], 127),
    ] {
        let plan = Plan::tool("unshare".as_ref(), place::Scratch::new());
        let init = [unshare, "--mount-proc", "--kill-child", "python3", "-c", NO_REAPER];
        let done = plan.args(init).args(words).start().code(0);
        assert_eq!(done.out().trim_end(), format!("1 {code} left nobody"), "{words:?}: {}", done.err());
    }
}

#[test]
fn killed_launcher_takes_all_processes_along() {
    for tier in place::tiers() {
        let script = format!("{ESCAPE} echo ready; exec sleep 996");
        let case = Plan::rlaunch(["-n", "3", "sh", "-c", &script]).contain(tier).start();
        case.says_on_stdout("ready", 3);
        case.signal(Signal::SIGKILL);
        assert_eq!(case.end_with(Mercy::All).exit, Exit::Signal(Signal::SIGKILL));
    }
}

#[test]
fn a_pid_namespace_outlives_none_of_ours() {
    if !place::tiers().contains(&"t1") {
        return;
    }
    // Init alone is left to end the others: it must die with the agent.
    let script = format!("{ESCAPE} echo ready; exec sleep 996");
    let case = Plan::rlaunch(["-n", "3", "sh", "-c", &script]).contain("t1").start();
    case.says_on_stdout("ready", 3);
    let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
    let guardian = census::parent(agent).unwrap();
    // Stopped first, or the first one to see another one die would clean up.
    for sig in [Signal::SIGSTOP, Signal::SIGKILL] {
        for pid in [guardian, agent, case.pid()] {
            kill(Pid::from_raw(pid), sig).unwrap();
        }
    }
    assert_eq!(case.end_with(Mercy::All).exit, Exit::Signal(Signal::SIGKILL));
}

#[test]
fn a_lost_part_is_named_and_counted() {
    for tier in place::tiers() {
        for part in ["agent", "guardian", "init"] {
            if part == "init" && *tier == "t3" {
                continue;
            }
            let script = format!("{ESCAPE} echo ready; exec sleep 996");
            let case = Plan::rlaunch(["-n", "3", "sh", "-c", &script]).contain(tier).start();
            case.says_on_stdout("ready", 3);
            let ready = case.event("host.ready");
            let agent = i32::try_from(ready["agent"].as_i64().unwrap()).unwrap();
            let victim = match part {
                "agent" => agent,
                "guardian" => census::parent(agent).unwrap(),
                _ => i32::try_from(ready["init"].as_i64().unwrap()).unwrap(),
            };
            kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
            let done = case.code(125);
            let end = done.event("job.end");
            assert_eq!((&end["cause"]["kind"], &end["cause"]["lost"]), (&"lost".into(), &part.into()), "{tier}");
            assert_eq!(end["left"], 0, "{tier} {part}");
            done.says(if part == "init" { "the first process of the PID namespace" } else { part })
                .says("0 left running");
        }
    }
}

#[test]
fn usage_is_reported_after_a_sweep() {
    // The agent kills and reaps all at once, the quickest way it has: nothing of a rank's end may be lost by that.
    for tier in place::tiers() {
        let case = Plan::rlaunch(["-n", "64", "sh", "-c", "echo ready; exec sleep 996"]).contain(tier).start();
        case.says_on_stdout("ready", 64);
        let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
        kill(Pid::from_raw(census::parent(agent).unwrap()), Signal::SIGKILL).unwrap();
        let done = case.code(125);
        let unknown = done.named("rank.exited").filter(|e| e["max_rss_kib"].as_u64() == Some(0)).count();
        assert_eq!((done.named("rank.exited").count(), unknown), (64, 0), "{tier}");
    }
}

#[test]
fn suspended_agent_keeps_nothing_alive() {
    // It cannot see that the launcher is gone; the guardian does.
    for tier in place::tiers() {
        let script = format!("{ESCAPE} echo ready; exec sleep 996");
        let case = Plan::rlaunch(["-n", "3", "sh", "-c", &script]).contain(tier).start();
        case.says_on_stdout("ready", 3);
        let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
        kill(Pid::from_raw(agent), Signal::SIGSTOP).unwrap();
        case.signal(Signal::SIGKILL);
        let done = case.end_with(Mercy::All);
        assert_eq!(done.exit, Exit::Signal(Signal::SIGKILL), "{tier}");
    }
}

#[test]
fn suspended_guardian_keeps_nothing_alive() {
    // It cannot see that the launcher is gone; the agent does, and ends what is below it.
    for tier in place::tiers() {
        let script = format!("{ESCAPE} echo ready; exec sleep 996");
        let case = Plan::rlaunch(["-n", "3", "sh", "-c", &script]).contain(tier).start();
        case.says_on_stdout("ready", 3);
        let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
        let guardian = census::parent(agent).unwrap();
        kill(Pid::from_raw(guardian), Signal::SIGSTOP).unwrap();
        census::wait_stopped(guardian, true);
        case.signal(Signal::SIGKILL);
        census::wait_until("the agent's end", || census::children(guardian).iter().all(|p| p.state == 'Z'));
        let left: Vec<_> = case.all_processes().into_iter().filter(|p| p.pid != guardian).collect();
        assert!(left.is_empty(), "{tier}: {left:#?}");
        assert_eq!(case.end_with(Mercy::All).exit, Exit::Signal(Signal::SIGKILL), "{tier}");
    }
}

#[test]
fn orphans_are_reaped_while_the_job_runs() {
    for tier in place::tiers() {
        let script = "for i in 1 2 3 4 5; do (setsid true &); done; echo ready; read x <\"$DIR/go\"";
        let plan = Plan::rlaunch(["-n", "1", "sh", "-c", script]).contain(tier);
        let go = plan.scratch().fifo("go");
        let case = plan.start();
        case.says_on_stdout("ready", 1);
        let ready = case.event("host.ready");
        let parent = if *tier == "t1" { &ready["init"] } else { &ready["agent"] };
        let parent = i32::try_from(parent.as_i64().unwrap()).unwrap();
        census::wait_until("the orphans' end", || census::children(parent).iter().all(|p| p.state != 'Z'));
        std::fs::write(go, "\n").unwrap();
        case.code(0);
    }
}

#[test]
fn a_job_within_a_job_ends_with_the_outer_one() {
    for tier in place::tiers() {
        let case = Plan::rlaunch([
            "-n",
            "2",
            "sh",
            "-c",
            "exec \"$RL\" -n 2 sh -c 'setsid sleep 994 & echo $RLAUNCH_SOCKET ready; echo $TORCHELASTIC_ERROR_FILE ready; wait'",
        ]);
        let case = case.contain(tier).start();
        case.says_on_stdout("ready", 8);
        case.signal(Signal::SIGKILL);
        // The inner jobs end after the outer one.
        let done = case.end_with(Mercy::LostHosts);
        assert_eq!(done.exit, Exit::Signal(Signal::SIGKILL));
        let out = done.out();
        let files: Vec<&str> = out.lines().filter_map(|line| line.strip_suffix(" ready")).collect();
        assert_eq!(files.len(), 8);
        let is_left = |path: &&std::path::Path| path.exists() || path.parent().unwrap().exists();
        let left = files.into_iter().map(std::path::Path::new).filter(is_left);
        assert_eq!(left.count(), 0, "{out}");
    }
}

#[test]
fn short_jobs_never_hang() {
    // In two lanes.
    let count = if place::full() { 5_000 } else { 250 };
    let script = format!("i=0; while [ $i -lt {count} ]; do \"$RL\" -n 4 true || exit; i=$((i + 1)); echo; done");
    let lanes: Vec<Case> = (0..2).map(|_| Plan::shell(&script).start()).collect();
    for lane in lanes {
        assert_eq!(lane.code(0).out().lines().count(), count);
    }
}
