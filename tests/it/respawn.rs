//! Ranks that have died are started again, and join (`--respawn`).

use crate::case::Case;
use crate::plan::Plan;
use crate::rounds::{hits_newest, train};
use crate::watch::Seen;
use crate::{gpus, place, python, torch};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Number of ranks.
const WORLD: u32 = 4;

/// The last round that has begun, if all ranks work in it.
fn whole(seen: &Seen) -> Option<u64> {
    let last = seen.named("round").last()?;
    (last["active_world_size"] == WORLD).then(|| last["round"].as_u64().unwrap_or_default())
}

/// Waits until all ranks are active in a round after this one. Returns the number of that round.
fn is_whole(case: &Case, after: Option<u64>) -> u64 {
    case.until("a round of all ranks", |seen| whole(seen).filter(|round| after.is_none_or(|after| *round > after)))
}

/// Kills one rank after the other, rank 0 first, and none more often than the others: the pause before the next process of a rank grows
/// with its exits.
fn kills(case: &Case, kills: usize) {
    let mut random = place::Random::new(17);
    let mut round = is_whole(case, None);
    let mut left: Vec<u32> = Vec::new();
    for n in 0..kills {
        if left.is_empty() {
            left = (0..WORLD).collect();
        }
        let at = if n == 0 { 0 } else { random.below(left.len() as u64) };
        let rank = left.swap_remove(usize::try_from(at).unwrap());
        hits_newest(case, rank, Signal::SIGKILL);
        round = is_whole(case, Some(round));
        // One whose processes all get nowhere is given up.
        learns_on(case);
    }
}

/// Waits until rank 0 has printed more.
fn learns_on(case: &Case) {
    let said = case.until("stdout", |seen| Some(seen.out.len()));
    case.until("another epoch", |seen| (seen.out.len() > said).then_some(()));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn count() -> usize {
    if place::full() { 20 } else { 6 }
}

fn trains(options: &[&str], words: &[&str]) -> Option<Case> {
    let train = train()?;
    let plan = Plan::rlaunch(options).args(["-n", &WORLD.to_string()]).args([train]).args(["--resilient"]);
    Some(plan.args(words).start())
}

#[test]
fn after_random_kills_the_world_is_whole_again() {
    let count = count();
    // A fixed number of epochs takes less time than the kills on a fast machine.
    let Some(case) = trains(&["--respawn"], &["--epochs", "1000000"]) else { return };
    case.says_on_stdout("epoch   3", 1);
    kills(&case, count);
    case.signal(Signal::SIGTERM);
    let done = case.end();
    let rounds: Vec<&Value> = done.named("round").collect();
    let joined =
        |round: &&&Value| round["faults"].as_array().is_some_and(|all| all.iter().any(|f| f["kind"] == "joined"));
    assert_eq!(rounds.iter().filter(joined).count(), count, "{}", done.err());
    assert_eq!(rounds.last().unwrap()["active_world_size"], WORLD);
    assert_eq!(done.named("round.again").count(), count);
    assert_eq!(done.named("rank.started").count(), WORLD as usize + count);
    assert_eq!(done.out().matches("epoch   1 ").count(), 1, "what was learnt is kept:\n{}", done.out());
    done.says("rank 0 is started again (pid ").says("rank 0 has rejoined; continuing with 4 ranks");
}

/// A program whose new processes end, or wait for others, before they take part: the others make progress with their work.
fn hasty(options: &[&str], epochs: u32, again: &str) -> Option<Case> {
    let train = train()?;
    let first = format!(
        "mkdir $TMPDIR/$RLAUNCH_RANK 2>/dev/null && exec \"{}\" --resilient --epochs {epochs}",
        train.display()
    );
    let case = Plan::rlaunch(options).args(["-n", "3", "sh", "-c", &format!("{first}; {again}")]).start();
    case.says_on_stdout("epoch   3", 1);
    hits_newest(&case, 1, Signal::SIGKILL);
    Some(case)
}

#[test]
fn repeatedly_exiting_rank_is_given_up_and_others_continue() {
    let Some(case) = hasty(&["--respawn", "--give-up-after", "0"], 1_000_000, "exit 3") else { return };
    case.says_on_stderr("the new process of initial rank 1 exited (exit 3) before it registered");
    case.says_on_stderr("initial rank 1 is not started again: its last 5 processes failed to start or exited");
    learns_on(&case);
    case.signal(Signal::SIGTERM);
    case.end().says("0 left running");
}

/// A file system may be away for a moment.
#[test]
fn failed_start_is_retried() {
    let Some(train) = train() else { return };
    let plan = Plan::rlaunch(["-n", "3", "--respawn", "--give-up-after", "0"]);
    let own = plan.scratch().temporary().join("train");
    std::fs::copy(&train, &own).unwrap();
    let case = plan.args([&own]).args(["--resilient", "--epochs", "1000000"]).start();
    case.says_on_stdout("epoch   3", 1);
    std::fs::remove_file(&own).unwrap();
    hits_newest(&case, 1, Signal::SIGKILL);
    // The first time it is tried again at once, later after a pause.
    case.until("two tries", |seen| (text(&seen.err).matches("could not be started again").count() == 2).then_some(()));
    // A file that is being written cannot be run.
    let whole = own.with_extension("whole");
    std::fs::copy(&train, &whole).unwrap();
    std::fs::rename(&whole, &own).unwrap();
    case.says_on_stderr("rank 1 has rejoined");
    std::fs::remove_file(&own).unwrap();
    hits_newest(&case, 2, Signal::SIGKILL);
    case.says_on_stderr("initial rank 2 is not started again: its last 5 processes failed to start");
    case.signal(Signal::SIGTERM);
    let done = case.end();
    done.says("0 left running");
    assert!(!done.err().contains("never started"), "{}", done.err());
}

#[test]
fn waiting_respawn_is_ended() {
    let Some(case) = hasty(&["--respawn", "--respawn-timeout", "1s"], 1_000_000, "exec sleep 1000") else { return };
    case.says_on_stderr(
        "the new process of initial rank 1 has not registered within 1.0s (--respawn-timeout) and is killed",
    );
    case.signal(Signal::SIGTERM);
    case.end().says("0 left running");
}

/// A short count where not all were asked for: a new process of torch takes seconds to start.
#[test]
fn torch_trains_on_through_kills_and_is_whole_again() {
    let Some(client) = python::client() else { return };
    for interpreter in torch::pythons() {
        let options = ["-n", "4", "--respawn", "--yield-within", "5s"];
        let plan = python::with_client(Plan::rlaunch(options), &client);
        let plan = plan.args([interpreter, place::root().join("examples/torch_resilient.py")]);
        let case = plan.args(["--epochs", "1000000", "--soft-timeout", "3", "--hard-timeout", "6"]).start();
        kills(&case, if place::full() { 20 } else { 3 });
        case.signal(Signal::SIGTERM);
        case.end().says("rank 0 has rejoined").says("0 left running");
    }
}

/// Two kills or segmentation faults and an exception in turn. A new process has joined before the next fault: otherwise a fault would be of a
/// rank that is not there.
#[test]
fn weights_are_equal_after_104_faults() {
    if !place::full() {
        return place::absent("104 faults in a row", "they take minutes (RLAUNCH_TEST_FULL=1)");
    }
    let Some(client) = python::client() else { return };
    let Some(interpreter) = torch::pythons().into_iter().next() else { return };
    let script = place::root().join("examples/torch_resilient.py");
    let train = |words: &[String]| {
        let plan = python::with_client(Plan::rlaunch(["-n", "4", "--respawn"]), &client).args([&interpreter, &script]);
        let plan = plan.args(["--epochs", "190", "--soft-timeout", "20", "--hard-timeout", "40"]).args(words);
        let done = plan.start().code(0);
        let weights = done.out().lines().find(|line| line.starts_with("final weights ")).map(str::to_owned);
        (weights.unwrap_or_else(|| panic!("{}", done.err())), done)
    };
    let kinds = ["kill", "segfault", "exception"];
    let fault = |n: usize| format!("--fault={}:{}:{}", kinds[n % 3], n % 4, 60 + 40 * n);
    let words: Vec<String> = (0..104).map(fault).chain(["--pause=0.05".to_owned()]).collect();
    let (weights, done) = train(&words);
    let restarts = done.err().lines().filter(|line| line.starts_with("rlaunch: restart ")).count();
    assert!(restarts >= 104, "{restarts} restarts: {}", done.err());
    assert_eq!(weights, train(&[]).0, "{}", done.err());
}

/// Ranks 1 and 2 are killed. A process that rank 1 has forked holds a GPU of it, in a process group of its own.
const HOLDS: &str = r#"if mkdir "$TMPDIR/$RLAUNCH_RANK" 2>/dev/null; then
    echo $$ > "$TMPDIR/pid$RLAUNCH_RANK"
    if [ $RLAUNCH_RANK = 1 ]; then set -m; sh -c 'read x < "$TMPDIR/go"' 3</dev/nvidia0 >/dev/null 2>&1 & set +m; fi
fi
exec "$TRAIN" --resilient --epochs 1000000"#;

#[test]
fn a_device_that_is_held_is_waited_for() {
    let Some(train) = train() else { return };
    if !gpus::can_show_some() || !place::has("bash") {
        return;
    }
    let plan = Plan::shell(&format!("exec {} \"$RL\" -n 3 --respawn bash -c \"$HOLDS\"", gpus::FOUR));
    let plan = plan.env("HOLDS", HOLDS).env("TRAIN", train);
    let temporary = plan.scratch().temporary();
    let go = temporary.join("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    // Process ids of ranks are those of the host.
    let case = plan.env("TMPDIR", &temporary).contain("t3").start();
    case.says_on_stdout("epoch   3", 1);
    for rank in [1, 2] {
        let pid = std::fs::read_to_string(temporary.join(format!("pid{rank}"))).unwrap();
        kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    }
    case.says_on_stderr("rank 2 has rejoined");
    let early = case.until("stderr", |seen| Some(text(&seen.err).contains("rank 1 is started again")));
    assert!(!early, "its device is held");
    std::fs::write(&go, "x\n").unwrap();
    case.says_on_stderr("rank 1 has rejoined");
    case.signal(Signal::SIGTERM);
    case.end().says("0 left running");
}
