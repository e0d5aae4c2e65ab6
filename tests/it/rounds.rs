//! Restart within processes, with a program that uses the client: ranks are killed and stopped, the others continue.

use crate::case::Case;
use crate::place;
use crate::plan::Plan;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The example, if it was built.
pub(crate) fn train() -> Option<PathBuf> {
    let train = place::beside("train");
    if !train.is_file() {
        assert!(std::env::var_os("CI").is_none(), "{} was not built", train.display());
        place::absent("rounds", "not built; cargo build --workspace builds it");
        return None;
    }
    Some(train)
}

fn trains(train: &Path, ranks: &str, options: &[&str]) -> Case {
    let words = ["-n".as_ref(), ranks.as_ref(), train.as_os_str(), "--resilient".as_ref()];
    Plan::rlaunch(words).args(options).start()
}

fn hits(case: &Case, rank: u32, signal: Signal) {
    let pid = case.event_of("rank.started", rank)["pid"].as_i64().unwrap();
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// The process that a rank has now.
pub(crate) fn hits_newest(case: &Case, rank: u32, signal: Signal) {
    let pid = case
        .until("a process", |seen| seen.named("rank.started").filter(|e| e["rank"] == rank).last()?["pid"].as_i64());
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

fn accuracy(out: &str) -> f64 {
    let last = out.lines().last().unwrap_or_default();
    let percent = last.strip_prefix("final held-out accuracy ").and_then(|rest| rest.split(' ').next());
    percent.unwrap_or_else(|| panic!("no accuracy in {out:?}")).parse().unwrap()
}

#[test]
fn training_in_rounds_learns_the_same_as_without_rounds() {
    let Some(train) = train() else { return };
    let plain = Case::start(["-n".as_ref(), "3".as_ref(), train.as_os_str()]).code(0);
    let rounds = trains(&train, "3", &[]).code(0);
    assert_eq!(rounds.out(), plain.out());
    assert_eq!(rounds.err_of_any_machine(), "", "nothing happened");
}

#[test]
fn ranks_that_are_killed_cost_rounds_and_not_the_job() {
    let Some(train) = train() else { return };
    let case = trains(&train, "5", &["--epochs", "150"]);
    case.says_on_stdout("epoch   3", 1);
    for (gone, rank) in [0, 3, 1].into_iter().enumerate() {
        hits(&case, rank, Signal::SIGKILL);
        case.says_on_stdout("on with epoch", gone + 1);
    }
    let done = case.code(0);
    assert!(accuracy(&done.out()) >= 95.0, "{}", done.out());
    assert_eq!(done.out().matches("epoch   1 ").count(), 1, "what was learnt is kept:\n{}", done.out());
    done.says("restart 1: rank 0 ")
        .says("continuing with 4 ranks")
        .says("restart 3: rank 1 ")
        .says("continuing with 2 ranks");
}

#[test]
fn suspended_rank_is_found_and_the_others_continue() {
    let Some(train) = train() else { return };
    let case = trains(&train, "3", &["--epochs", "150", "--timeout", "1"]);
    case.says_on_stdout("epoch   3", 1);
    hits(&case, 2, Signal::SIGSTOP);
    case.says_on_stdout("2 ranks go on with", 1);
    let done = case.code(0);
    assert!(accuracy(&done.out()) >= 95.0, "{}", done.out());
    done.says("makes no progress");
}

#[test]
fn when_no_round_is_allowed_any_more_the_job_ends_as_without_rounds() {
    let Some(train) = train() else { return };
    let words = ["--max-rounds".as_ref(), "1".as_ref(), "-n".as_ref(), "3".as_ref(), train.as_os_str()];
    let case = Plan::rlaunch(words).args(["--resilient", "--epochs", "5000"]).start();
    case.says_on_stdout("epoch   3", 1);
    hits(&case, 1, Signal::SIGKILL);
    let done = case.end();
    assert!(!done.exit.is_success());
    done.says("--max-rounds 1 allows no more").says("0 left running");
}

/// The text of a line before which a round begins: for readers by lines only.
#[test]
fn labels_and_log_files_say_where_a_round_begins() {
    let Some(train) = train() else { return };
    // The example meets by a listener of its own.
    let plan = Plan::rlaunch(["-l", "-n", "3", "--master-store", "rank0", "-t", "1", "--log-dir"]);
    let logs = plan.scratch().path("l");
    let case = plan.args([logs.as_os_str(), train.as_os_str()]).args(["--resilient", "--epochs", "150"]).start();
    case.says_on_stdout("epoch   3", 1);
    hits(&case, 0, Signal::SIGKILL);
    case.says_on_stdout("on with epoch", 1);
    let done = case.code(0);
    let (out, mark) = (done.out(), "--- g0 r1: rank 1 is rank 0 of 2 ---\n");
    assert_eq!(out.matches("---").count(), 2, "rank 2 has said nothing, so it has no mark:\n{out}");
    let (before, behind) = out.split_once(&format!("1: {mark}1: 2 ranks go on with epoch")).expect(&out);
    assert!(before.lines().all(|line| line.starts_with("0: ")), "{before}");
    assert!(behind.lines().skip(1).all(|line| line.starts_with("1: ")), "{behind}");
    let file = |rank: u32| {
        let dir = std::fs::read_dir(&logs).unwrap().next().unwrap().unwrap().path();
        std::fs::read_to_string(dir.join(format!("attempt_0/{rank}/stdout.log"))).unwrap()
    };
    assert!(file(1).starts_with(&format!("{mark}2 ranks go on with epoch")), "{}", file(1));
    assert!(!file(0).contains("---") && file(2).is_empty());
}

/// How often the client's thread of a rank has gone to sleep. There is one.
fn naps(case: &Case, rank: u32) -> u64 {
    let pid = case.event_of("rank.started", rank)["pid"].as_i64().unwrap();
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    let ours: Vec<PathBuf> = tasks.filter(|task| read(task.join("comm")).starts_with("rlaunch")).collect();
    let [ours] = ours.as_slice() else { panic!("one thread of the client, not {ours:?}") };
    let status = read(ours.join("status"));
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// A rank that waits for another costs nothing: its client wakes up once in a progress interval at most, here a second.
#[test]
fn the_client_of_a_rank_that_waits_sleeps() {
    /// The possible cost of the round that ends the wait, and of calls that were under way when it began.
    const SLACK: u64 = 12;
    let Some(train) = train() else { return };
    let case = trains(&train, "3", &["--epochs", "5000", "--timeout", "4"]);
    case.says_on_stdout("epoch   3", 1);
    hits(&case, 2, Signal::SIGSTOP);
    let (before, since) = (naps(&case, 1), Instant::now());
    case.says_on_stderr("rank 2 makes no progress");
    let (waited, naps) = (since.elapsed().as_secs(), naps(&case, 1) - before);
    assert!(waited >= 2, "it was found after {waited} s: too soon for a result");
    assert!(naps <= waited + SLACK, "{naps} times in {waited} s");
    case.signal(Signal::SIGTERM);
    assert!(!case.end().exit.is_success());
}

/// A user who asks for spare ranks with a program that does not use the client gets a warning; the job ends as it would.
#[test]
fn a_program_that_never_registers_has_no_spares_and_that_is_said_once() {
    for (options, code) in [(["--spares", "1", "--respawn"], 0), (["--spares", "1", "--respawn"], 3)] {
        let script = format!("exit {code}");
        let done = Case::start(options.into_iter().chain(["-n", "2", "sh", "-c", &script])).code(code);
        done.says("no rank has registered with the rlaunch client").says("--spares 1 and --respawn without effect: ");
        assert_eq!(done.err().matches("has registered").count(), 1, "{}", done.err());
        let started = done.named("rank.started").count();
        assert!(if code == 0 { started == 3 } else { started <= 3 }, "nobody is started again: {started}");
    }
}
