//! How rlaunch ends, as waitpid and as a shell see it: the first cause decides, and the report names it.

use crate::case::Case;
use crate::census;
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The exit code that a shell shows for `rlaunch WORDS`.
fn shell_code(words: &str) -> String {
    Plan::shell(&format!("\"$RL\" {words} 2>\"$DIR/err\"; echo $?")).start().code(0).out()
}

#[test]
fn a_ranks_code_is_ours() {
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -SEGV $$", 139), ("kill -9 $$", 137)]
    {
        for tier in place::tiers() {
            Plan::rlaunch(["-n", "2", "sh", "-c", script]).contain(tier).start().code(code);
        }
        assert_eq!(shell_code(&format!("-n 2 sh -c '{script}'")), format!("{code}\n"));
    }
}

#[test]
fn mistakes_have_codes_of_their_own() {
    for (words, code) in [
        ("-n abc true", 2),
        ("--frobnicate true", 2),
        ("-n 2 --timeout 50ms sleep 100", 124),
        ("-n 2 --wdir /nowhere true", 125),
        ("-n 2 /", 126),
        ("-n 2 /etc/passwd", 126),
        ("-n 2 /nowhere/at-all", 127),
        ("-n 2 no-such-program-anywhere", 127),
    ] {
        assert_eq!(shell_code(words), format!("{code}\n"), "{words}");
    }
}

#[test]
fn a_program_that_cannot_be_run_is_named() {
    for (name, content, mode, code) in
        [("no rights", "#!/bin/sh\n", 0o644, 126), ("no format", "just text\n", 0o755, 126), ("empty", "", 0o755, 126)]
    {
        let plan = Plan::rlaunch(["-n", "3", &format!("./{name}")]);
        let path = plan.scratch().path(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let dir = plan.scratch().dir().to_owned();
        let done = plan.cwd(dir).start().code(code);
        done.says(name);
        assert_eq!(done.event("job.end")["cause"]["kind"], "spawn");
        assert_eq!(done.event("job.end")["left"], 0);
    }
    let done = Case::start(["-n", "3", "./absent"]).code(127);
    done.says("./absent").says("o such file");
    // A directory of PATH that may not be searched does not hold every program.
    let script = "mkdir -m 0 \"$DIR/locked\"; (PATH=\"$DIR/locked\"; \"$RL\" -n 2 surely-absent); echo $?; rmdir \"$DIR/locked\"";
    let done = Plan::shell(script).start().code(0);
    assert_eq!(done.out(), "127\n");
    done.says("surely-absent: no such file (searched in PATH");
    let done = Case::start(["-n", "3", ""]).code(127);
    assert_ne!(done.err(), "");
    // An interpreter that is missing is not the program's absence, but the kernel says no more than that.
    let plan = Plan::rlaunch(["-n", "1", "./script"]);
    let path = plan.scratch().path("script");
    std::fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let dir = plan.scratch().dir().to_owned();
    plan.cwd(dir).start().code(127).says("script");
}

#[test]
fn rlaunch_dies_of_the_signal_that_ended_the_job() {
    let signals = [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGQUIT, 131)];
    for (sig, code) in signals {
        let case = Case::start(["-n", "2", "sleep", "100"]);
        case.events("rank.started", 2);
        case.signal(sig);
        let done = case.finish(Exit::Signal(sig));
        assert_eq!(done.event("job.end")["exit"], code);
        done.says("0 left running");
        // A shell around it shows 128 + the signal.
        let case = Plan::shell("\"$RL\" -n 2 sleep 100; echo $?").with_events().start();
        let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
        case.events("rank.started", 2);
        kill(Pid::from_raw(census::launcher_of(agent)), sig).unwrap();
        assert!(case.code(0).out().starts_with(&code.to_string()));
    }
}

/// Runs a job under a limit, as a user that has no other process.
fn limited(limit: &str, job: &str) -> Plan {
    let words = format!("prlimit {limit} -- \"$RL\" {job}");
    let user = "setpriv --reuid $((700000 + $$)) --regid 61403 --clear-groups";
    Plan::shell(&format!("chmod 1777 \"$DIR\" \"$TMPDIR\"; cd /; exec {user} {words}"))
}

#[test]
fn a_limit_on_processes_is_named_with_a_way_out() {
    if !place::is_root() || !["prlimit", "setpriv"].into_iter().all(place::has) {
        return;
    }
    // Guardian, agent, its thread, and two ranks.
    for most in 1..6 {
        let done = limited(&format!("--nproc={most}"), "-n 2 true").contain("t3").start().code(125);
        done.says("the limit on processes").says("a higher limit: ulimit -u, the cgroup's pids.max, kernel.pid_max");
        assert!(!done.err().contains("crashed") && !done.err().contains("root"), "{most}: {}", done.err());
    }
    limited("--nproc=7", "-n 2 true").contain("t3").start().code(0);
    // The thread that reads standard input is one more.
    let done = limited("--nproc=5", "-n 1 cat </etc/passwd").contain("t3").start().code(0);
    done.says("rlaunch: standard input cannot be read: the limit on processes is reached; rank 0 gets end of file\n  try     a higher limit: ulimit -u");
}

#[test]
fn a_limit_on_memory_is_named_with_a_way_out() {
    if !place::is_root() || !["prlimit", "setpriv"].into_iter().all(place::has) {
        return;
    }
    let mut named = 0;
    for step in 40_u32.. {
        let bytes = step * 100_000;
        assert!(bytes < 1 << 30, "no job runs");
        let done = limited(&format!("--as={bytes}"), "-n 2 true").start().end();
        match done.exit {
            Exit::Code(0) => break,
            // The kernel cannot map the program, or libc cannot prepare it.
            Exit::Signal(Signal::SIGSEGV) => {}
            _ if done.err().starts_with("Fatal glibc error") => {}
            _ => {
                named += 1;
                assert!(done.err().contains("memory"), "{bytes}: {:?}: {}", done.exit, done.err());
                assert!(done.err().contains("ulimit -v"), "{bytes}: {:?}: {}", done.exit, done.err());
            }
        }
    }
    assert!(named > 0);
}

#[test]
fn a_reader_that_leaves_ends_the_job_like_any_program() {
    if !place::has("bash") {
        return;
    }
    let done =
        Plan::bash("\"$RL\" -n 8 yes 2>\"$DIR/err\" | head -n 1; echo ${PIPESTATUS[0]}; cat \"$DIR/err\" >&2").start();
    let done = done.code(0);
    assert_eq!(done.out(), "y\n141\n");
    assert_eq!(done.err_of_any_machine().lines().count(), 1, "{}", done.err());
}

#[test]
fn the_report_names_the_first_failure() {
    let script = "[ $RANK != 2 ] || { echo loss is nan >&2; exit 3; }; exec sleep 60";
    for tier in place::tiers() {
        let case = Plan::rlaunch(["-n", "4", "sh", "-c", script]).contain(tier).start();
        let pid = case.event_of("rank.started", 2)["pid"].to_string();
        let done = case.code(3);
        let err = done.err_of_any_machine();
        let (said, report) = err.split_once('\n').unwrap();
        assert_eq!(said, "loss is nan");
        assert!(report.starts_with("rlaunch: rank 2 failed first: exit 3"), "{report}");
        done.says(&pid)
            .says("local rank 2")
            .says("stderr   | loss is nan")
            .says("ranks 0,1,3 stopped by rlaunch (SIGTERM");
        done.says("0 left running").says("sh -c '[ $RANK != 2 ]");
        assert_eq!(done.event("job.end")["cause"]["rank"], 2);
    }
}

#[test]
fn last_words_that_stand_above_the_report_are_not_repeated() {
    let script = "printf 'one\\ntwo\\nthree\\n' >&2; exit 3";
    let repeated = |before: &[&str], after: &[&str]| {
        let words = [before, &["sh", "-c", script], after].concat();
        Case::start(words).code(3).err().matches("two\n").count()
    };
    assert_eq!(repeated(&["-n", "1"], &[]), 1);
    let group = [":", "--group", "g", "-n", "1", "sleep", "60"];
    assert_eq!(repeated(&["-n", "1", "--lead"], &group), 1);
    let other = [":", "-n", "1", "sleep", "60"];
    assert_eq!(repeated(&["-n", "1"], &other), 2, "another rank may have written meanwhile");
}

#[test]
fn crash_is_reported_with_its_signal() {
    let done = Case::start(["-n", "2", "sh", "-c", "[ $RANK = 0 ] || kill -SEGV $$; exec sleep 60"]).code(139);
    done.says("rank 1 failed first: SIGSEGV");
    let facts = done.named("rank.exited").find(|e| e["rank"] == 1).unwrap();
    assert_eq!(facts["signal"], "SIGSEGV");
}

#[test]
fn a_report_is_short_however_long_its_parts_are() {
    // The error file, the command with its arguments, and the last words.
    let script = "head -c 20M /dev/zero >\"$TORCHELASTIC_ERROR_FILE\"; head -c 5000 /dev/zero >&2; exit 7";
    let long = "x".repeat(100_000);
    let done = Plan::rlaunch(["-n", "1", "sh", "-c", script, &long]).start().code(7);
    let report = done.err().split_once("rlaunch: ").map(|(_, report)| report.to_owned()).unwrap();
    assert!(
        report.len() < 4_000 && report.contains("...\n") && report.ends_with("exit     7\n"),
        "{} bytes",
        report.len()
    );
}

#[test]
fn an_exception_left_in_the_error_file_is_quoted() {
    let message = r#"{"message": {"message": "ValueError: batch of size 7", "extraInfo": {"py_callstack": "x", "timestamp": "1"}}}"#;
    let script = "[ $RANK = 0 ] || { dir=${TORCHELASTIC_ERROR_FILE%/*}; stat -c '%a %n' $dir; \
        printf %s \"$MESSAGE\" >\"$TORCHELASTIC_ERROR_FILE\"; exit 1; }; exec sleep 60";
    let plan = Plan::rlaunch(["-n", "2", "sh", "-c", script]).env("MESSAGE", message);
    let dir = plan.scratch().dir().to_owned();
    let done = plan.env("TMPDIR", &dir).env("XDG_RUNTIME_DIR", "").start().code(1);
    done.says("ValueError: batch of size 7");
    let private = done.out().trim().strip_prefix("700 /").map(|path| std::path::Path::new("/").join(path));
    assert!(private.is_some_and(|dir| !dir.exists()), "no other user can make a file beside it: {}", done.out());
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["events"], "and removed");
}

#[test]
fn crash_is_the_cause_of_two_found_dead_together() {
    // The agent sees both at once, the other one first: what it knows is when it saw both alive.
    for tier in place::tiers() {
        let script = "echo ready; read x <\"$DIR/go$RANK\"; [ $RANK = 1 ] && exit 3; kill -SEGV $$";
        let plan = Plan::rlaunch(["-n", "2", "sh", "-c", script]).contain(tier);
        let go = ["go0", "go1"].map(|name| plan.scratch().fifo(name));
        let case = plan.start();
        case.says_on_stdout("ready", 2);
        let ranks = case.events("rank.started", 2);
        let pid = |rank: u32| {
            let started = ranks.iter().find(|e| e["rank"] == rank).unwrap();
            i32::try_from(started["pid"].as_i64().unwrap()).unwrap()
        };
        let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
        kill(Pid::from_raw(agent), Signal::SIGSTOP).unwrap();
        census::wait_stopped(agent, true);
        for rank in [1, 0] {
            std::fs::write(&go[usize::try_from(rank).unwrap()], "\n").unwrap();
            census::wait_until("a rank's end", || census::is_dead(pid(rank)));
        }
        kill(Pid::from_raw(agent), Signal::SIGCONT).unwrap();
        case.code(139).says("rank 0 ");
    }
}

#[test]
fn failures_after_the_ending_change_nothing() {
    // Rank 0 answers the request to end with a code of its own, rank 1 with a crash.
    let script = "trap '[ $RANK = 0 ] && exit 7; kill -SEGV $$' TERM; echo ready; [ $RANK != 2 ] || { read x <\"$DIR/go\"; exit 3; }; \
                  while :; do sleep 100 & wait; done";
    let plan = Plan::rlaunch(["-n", "3", "sh", "-c", script]);
    let go = plan.scratch().fifo("go");
    let case = plan.start();
    case.says_on_stdout("ready", 3);
    std::fs::write(go, "\n").unwrap();
    let done = case.code(3);
    done.says("rank 2 failed first: exit 3");
}

#[test]
fn first_failure_counts_even_if_the_job_continues() {
    // The crash explains more than an exit code, but it came later.
    let script = "read x <\"$DIR/go$RANK\"; [ $RANK != 0 ] || kill -SEGV $$; exit $((7 - RANK))";
    let plan = Plan::rlaunch(["-n", "3", "--on-failure", "continue", "sh", "-c", script]);
    let go: Vec<_> = (0..3).map(|r| plan.scratch().fifo(&format!("go{r}"))).collect();
    let case = plan.start();
    for rank in [1_u32, 0, 2] {
        case.event_of("rank.started", rank);
        std::fs::write(&go[usize::try_from(rank).unwrap()], "\n").unwrap();
        case.event_of("rank.exited", rank);
    }
    let done = case.code(6);
    done.says("rank 1 failed first: exit 6");
    assert!(done.named("ending").next().is_none(), "nobody was ended");
}

#[test]
fn the_time_limit_ends_the_job_and_says_so() {
    let done = Case::start(["-n", "2", "--timeout", "100ms", "sleep", "100"]).code(124);
    assert_eq!(done.event("job.end")["cause"]["kind"], "timeout");
    done.says("0 left running");
    let plan = Plan::rlaunch(["-n", "2", "sleep", "100"]).env("MPIEXEC_TIMEOUT", "1");
    plan.start().code(124);
    Plan::rlaunch(["-n", "1", "--timeout", "0", "true"]).env("MPIEXEC_TIMEOUT", "1").start().code(0);
}

#[test]
fn success_is_reported_on_request() {
    let done = Case::start(["-v", "-n", "2", "true"]).code(0);
    assert_ne!(done.err(), "");
}

#[test]
fn last_words_are_waited_for_where_the_edge_is_full() {
    // The launcher is stopped, and the end of the rank's output is still in its pipe when it is dead. The pause is the load: what it
    // writes meanwhile fills the edge, and then its pipe.
    let script = "read x <\"$DIR/go\"; seq 100000000 >&2 & sleep 0.3; kill -9 $!; wait $! 2>/dev/null; exit 3";
    let plan = Plan::rlaunch(["-n", "1", "sh", "-c", script]);
    let go = plan.scratch().fifo("go");
    let case = plan.start();
    let rank = i32::try_from(case.event("rank.started")["pid"].as_i64().unwrap()).unwrap();
    case.signal(Signal::SIGSTOP);
    std::fs::write(go, "\n").unwrap();
    // No event reports its end: the process that would write it is stopped.
    census::wait_until("the rank's end", || census::is_dead(rank));
    case.signal(Signal::SIGCONT);
    let done = case.code(3);
    let tail = done.event("rank.facts")["tail"].as_str().unwrap().to_owned();
    let err = done.err();
    let (_, after) = err.split_once(&tail).expect("the tail is a part of what was said");
    assert!(after.trim_start().starts_with("rlaunch:"), "more text follows: {:?}", &after[..after.len().min(80)]);
}

/// Its last words were waited for until no process wrote any more.
#[test]
fn a_descendant_that_floods_stderr_does_not_hold_up_the_end() {
    let script = "echo last >&2; setsid sh -c 'exec yes >&2' & exit 3";
    let done = Case::start(["-n", "2", "--grace", "600s", "sh", "-c", script]).code(3);
    assert_eq!(done.event("job.end")["left"], 0);
}

#[test]
fn the_core_file_is_named() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['|', '@', '/']) {
        return place::absent("a core file", &format!("core_pattern is {pattern}"));
    }
    for tier in place::tiers() {
        let crash = "ulimit -c $(ulimit -H -c); kill -SEGV $$";
        let script = format!("cd \"$DIR\"; mkdir w; exec \"$RL\" -n 1 --wdir w sh -c '{crash}'");
        let done = Plan::shell(&script).contain(tier).with_events().start().code(139);
        let dir = done.scratch.path("w");
        let Some(core) = std::fs::read_dir(&dir).unwrap().next().map(|entry| entry.unwrap().path()) else {
            return place::absent("a core file", "none is written here");
        };
        assert_eq!(done.event("rank.facts")["core_file"], core.to_str().unwrap(), "{tier}");
    }
}

#[test]
fn memory_of_rank_and_host_is_reported_after_a_sigkill_from_elsewhere() {
    for tier in place::tiers() {
        let plan = Plan::rlaunch(["-n", "1", "sh", "-c", "kill -KILL $$"]).contain(tier);
        let done = plan.start().code(137);
        let facts = done.event("rank.facts");
        assert!(facts["memory_total"].as_u64() > facts["memory_available"].as_u64(), "{tier}: {facts}");
        assert!(done.err().contains("memory   the rank had at most"), "{tier}: {}", done.err());
    }
}

/// A memory cgroup below ours with a limit of 8 MiB, removed when it goes. An error where there can be none.
struct SmallMemory(std::path::PathBuf);

impl SmallMemory {
    fn new() -> Result<Self, String> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let mine = |line: &str| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            match controllers {
                "memory" => Some((format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes")),
                "" => Some((format!("/sys/fs/cgroup{path}"), "memory.max")),
                _ => None,
            }
        };
        let has_limit = |(dir, limit): &(String, &str)| std::path::Path::new(dir).join(limit).exists();
        let (dir, limit) = groups.lines().filter_map(mine).find(has_limit).ok_or("no memory cgroup")?;
        let dir = std::path::Path::new(&dir).join(place::unique());
        std::fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let small = Self(dir);
        std::fs::write(small.0.join(limit), "134217728").map_err(|error| format!("{limit}: {error}"))?;
        Ok(small)
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        census::wait_until("an empty cgroup", || std::fs::remove_dir(&self.0).is_ok());
    }
}

/// The counters of such kills are first read 2 ms after the start, or later on a busy host. To fill 128 MiB takes longer.
#[test]
fn a_rank_that_fills_its_memory_at_once_is_reported_as_such() {
    let small = match SmallMemory::new() {
        Ok(small) => small,
        Err(why) => return place::absent("a limit on memory", &why),
    };
    let script = "echo $$ > \"$GROUP/cgroup.procs\" && exec tail /dev/zero";
    for tier in place::tiers() {
        let plan = Plan::rlaunch(["-n", "1", "sh", "-c", script]).contain(tier).env("GROUP", &small.0);
        let done = plan.start().code(137);
        assert!(done.event("rank.facts")["oom_limit"].is_u64(), "{tier}: {}", done.err());
    }
}
