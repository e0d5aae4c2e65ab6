//! The Python package: its own tests, the store, and training in PyTorch that continues after faults of a rank.
//!
//! `RLAUNCH_CLIENT` names the package with its library in it; `scripts/build-client` leaves one in `target/client/python`, and scripts/test
//! runs that.

use crate::case::Done;
use crate::place;
use crate::plan::Plan;
use crate::torch;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) fn client() -> Option<PathBuf> {
    let client = place::client();
    if client.is_none() {
        place::absent("the Python package", "RLAUNCH_CLIENT is not set; scripts/build-client makes one");
    }
    client
}

pub(crate) fn with_client(plan: Plan, client: &Path) -> Plan {
    // torch's own server looks up the name of each client: five seconds each where no server answers.
    let plan =
        plan.env("PYTHONPATH", client).env("PYTHONDONTWRITEBYTECODE", "1").env("RES_OPTIONS", "timeout:1 attempts:1");
    plan.env("TORCH_CPP_LOG_LEVEL", "ERROR").env("PYTHONWARNINGS", "ignore")
}

#[test]
fn the_package_passes_its_own_tests() {
    let Some(client) = client() else { return };
    for python in torch::pythons() {
        let tests = place::root().join("tests/python");
        let plan = with_client(Plan::tool(&python, place::Scratch::new()), &client);
        let done = plan.args(["-m", "unittest", "discover"]).args([tests]).start().end();
        assert!(done.exit.is_success(), "{}: {}", python.display(), done.err());
    }
}

/// The ranks' identities, their messages to each other, and missing values.
const STORE: &str = r#"
import os, signal, threading, rlaunch
world, store = rlaunch.world(), rlaunch.Store()
assert (world.world_size, world.hosts) == (3, 1) and len(world.job_id) == 32, world
mine = store.prefix("mine/")
mine.set(f"k{world.rank}", b"\0v%d" % world.rank)
store.barrier("all", 3)
assert mine.get("k1") == b"\0v1" and store.get("mine/k2") == b"\0v2" and store.get("k1") is None
assert mine.keys() == [b"k0", b"k1", b"k2"], mine.keys()
store.add("sum", world.rank + 1)
store.append("text", "x")
store.barrier("all", [0, 1, 2], timeout=30)
assert store.add("sum", 0) == 6 and store.get("text") == b"xxx"
assert store.check(["sum", "text"]) and not store.check(["sum", "none"])
assert store.compare_set("once", None, b"a")[1] == b"a"
assert store.compare_set("once", b"b", b"c") == (False, b"a")
store.barrier("read", 3)
if world.rank == 0:
    assert mine.delete("k0") and not mine.delete("k0")
    for wait in (lambda: store.wait(["sum", "never"], 0.2), lambda: store.barrier("few", 2, 0.2)):
        try:
            wait()
        except rlaunch.StoreTimeout as late:
            os.write(1, f"{late}\n".encode())
    try:
        store.add("text")
    except rlaunch.Refused as refused:
        os.write(1, f"{refused}\n".encode())
    def cut_short(*_):
        raise InterruptedError("a signal")
    signal.signal(signal.SIGUSR1, cut_short)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        store.barrier("nobody else", 2)
    except InterruptedError as cut:
        os.write(1, f"{cut}\n".encode())
store.barrier("end", 3)
"#;

#[test]
fn ranks_share_the_jobs_store() {
    let Some(client) = client() else { return };
    let plan = with_client(Plan::rlaunch(["-n", "3"]), &client);
    let path = plan.scratch().path("store.py");
    std::fs::write(&path, STORE).unwrap();
    let done = plan.args([PathBuf::from("python3"), path]).start().code(0);
    let lines: Vec<String> = done.out().lines().map(str::to_owned).collect();
    assert_eq!((lines.len(), lines[3].as_str()), (4, "a signal"), "{}", done.err());
    assert!(lines[0].contains("never") && !lines[0].contains("sum"), "{lines:?}");
    assert!(lines[1].contains("few") && lines[1].contains('1'), "{lines:?}");
    assert!(lines[2].contains("text"), "{lines:?}");
}

/// Trains, and fails as the options say.
fn train(python: &Path, client: &Path, ranks: &str, words: &[&str]) -> Done {
    let script = place::root().join("examples/torch_resilient.py");
    let plan = with_client(Plan::rlaunch(["-n", ranks]), client).args([python, &script]);
    // Ranks that nothing holds up can be silent for seconds, where they share a processor with others that begin.
    let is_found_by_its_silence = |word: &&str| SILENT.iter().any(|kind| word.starts_with(kind));
    let (soft, hard) = match words.iter().any(is_found_by_its_silence) {
        true if place::full() => ("9", "18"),
        true => ("3", "6"),
        false => ("30", "60"),
    };
    plan.args(["--epochs", "3", "--soft-timeout", soft, "--hard-timeout", hard]).args(words).start().end()
}

/// The output that is not about rounds: the curve, and the checksum of the final weights.
fn curve(done: &Done) -> Vec<String> {
    done.out().lines().filter(|line| !line.starts_with("round")).map(str::to_owned).collect()
}

fn rounds(done: &Done) -> Vec<String> {
    done.out().lines().filter(|line| line.starts_with("round")).map(str::to_owned).collect()
}

/// Checks that the script and rlaunch report the same number of ranks for each round, and that only the planned ranks are lost.
fn agree(done: &Done, sizes: &[usize]) {
    let err = done.err();
    let size_of = |line: &str, before: &str| line.split_once(before)?.0.rsplit_once(' ')?.1.parse::<usize>().ok();
    let size = |line: &str| line.split_once("; continuing with ")?.1.split_once(' ')?.0.parse::<usize>().ok();
    let reported: Vec<usize> = err.lines().filter_map(size).collect();
    let begun: Vec<usize> = rounds(done).iter().filter_map(|line| size_of(line, " ranks, from step")).collect();
    assert_eq!(begun, sizes, "{err}");
    assert_eq!(begun[1..], reported, "{err}");
}

/// The steps that the script has kept when each round begins: the last step that all had done, or the one before, as some were faster.
fn keeps(done: &Done, steps: &[usize]) {
    let from = |line: &String| line.rsplit_once(' ').and_then(|(_, step)| step.parse::<usize>().ok());
    for step in rounds(done).iter().filter_map(from) {
        assert!(steps.iter().any(|of| *of == step || *of == step + 1), "{step}: {}{}", done.out(), done.err());
    }
}

/// All that a rank can do to the others, and how many of them are left by it: of one, if it is not gone itself.
const FAULTS: [(&str, usize); 10] = [
    ("exception", 0),
    ("kill", 1),
    ("stop", 1),
    ("exit", 1),
    ("term", 1),
    ("segfault", 1),
    ("abort", 1),
    ("lock", 1),
    ("sleep", 0),
    ("queue", 0),
];

/// Faults without any other sign than silence.
const SILENT: [&str; 4] = ["stop", "lock", "sleep", "queue"];

#[test]
fn training_continues_from_the_last_step_after_any_fault() {
    let Some(client) = client() else { return };
    let (ranks, kinds) = if place::full() { (8, FAULTS.as_slice()) } else { (4, &FAULTS[..3]) };
    let words = ranks.to_string();
    for python in torch::pythons() {
        let whole = train(&python, &client, &words, &[]);
        assert!(whole.exit.is_success() && curve(&whole).len() == 5, "{}{}", whole.out(), whole.err());
        for &(kind, gone) in kinds {
            // Rank 0 is no other than the rest.
            let rank = if gone == 0 || kind == "kill" { 0 } else { 2 };
            let fault = format!("{kind}:{rank}:30");
            let start = Instant::now();
            let done = train(&python, &client, &words, &["--fault", &fault]);
            assert!(done.exit.is_success(), "{fault}: {}{}", done.out(), done.err());
            assert_eq!(curve(&done), curve(&whole), "{fault}: {}", done.err());
            agree(&done, &[ranks, ranks - gone]);
            keeps(&done, &[0, 30]);
            let report =
                done.err().lines().find(|line| line.contains("; continuing with ")).unwrap_or_default().to_owned();
            println!("{}, {ranks} ranks, {fault}: {:.1} s; {report}", python.display(), start.elapsed().as_secs_f64());
        }
    }
}

/// From the first sign of the decision until the last rank is out, where one is stopped in an all-reduce that all others wait for. gloo
/// alone would wait for half an hour, and the hard limit comes after seconds.
#[test]
fn waiter_for_stopped_rank_is_out_at_once() {
    let Some(client) = client() else { return };
    let ranks = if place::full() { 8 } else { 4 };
    for python in torch::pythons() {
        let script = place::root().join("tests/torch/stopped.py");
        let plan = with_client(Plan::rlaunch(["-n", &ranks.to_string()]), &client).args([&python, &script]);
        let done = plan.start().code(0);
        let lines = done.sorted();
        let numbers = |line: &String| line.split(' ').map(|number| number.parse::<u64>().unwrap()).collect::<Vec<_>>();
        let times: Vec<Vec<u64>> = lines.iter().map(numbers).collect();
        assert_eq!(times.len(), ranks - 1, "{lines:?} {}", done.err());
        let notified = times.iter().map(|times| times[0]).min().unwrap();
        let out = times.iter().map(|times| times[1]).max().unwrap();
        // A thread of torch 1.13 that goes round and round would have 8 ms and more of them, however many are.
        for (at, when) in [(2, "that is out"), (3, "in the next round")] {
            let busy = times.iter().map(|times| times[at]).max().unwrap();
            assert!(busy < 4_000_000, "a rank {when} was busy for {busy} of 100,000,000 ns");
        }
        let took = Duration::from_nanos(out - notified);
        println!("{}, {ranks} ranks: all others out in {:.1} ms", python.display(), took.as_secs_f64() * 1e3);
        assert!(took < Duration::from_millis(500), "{took:?} {}", done.err());
    }
}

#[test]
fn training_continues_through_several_faults() {
    let Some(client) = client() else { return };
    let Some(python) = torch::pythons().into_iter().next() else { return };
    let faults = ["kill:0:10", "kill:3:20", "exception:1:30", "kill:1:40", "segfault:7:50", "exit:2:60"];
    let words: Vec<&str> = faults.into_iter().flat_map(|fault| ["--fault", fault]).collect();
    let done = train(&python, &client, "8", &words);
    assert!(done.exit.is_success(), "{}{}", done.out(), done.err());
    agree(&done, &[8, 7, 6, 6, 5, 4, 3]);
    keeps(&done, &[0, 10, 20, 30, 40, 50, 60]);
    let whole = train(&python, &client, "8", &[]);
    assert_eq!(curve(&done), curve(&whole), "{}", done.err());
}

#[test]
fn policies_of_a_script_select_the_active_ranks() {
    let Some(client) = client() else { return };
    const SCRIPT: &str = r#"
import os, sys
import rlaunch.inprocess as ip
ra = ip.rank_assignment
pairs = ra.FilterCountGroupedByKey(lambda state: f"pair {state.initial_rank // 2}", lambda n: n == 2)

@ip.Wrapper(rank_assignment=ip.Compose(ra.MaxActiveWorldSize(4), ra.ShiftRanks(), pairs))
def fn(call: ip.CallWrapper = None):
    if call.iteration == 0 and call.state.initial_rank == 1:
        os.kill(os.getpid(), 9)
    while call.iteration == 0:
        pass
    os.write(1, f"{call.state.initial_rank} {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\n".encode())
    return True

first = os.environ["RLAUNCH_RANK"]
try:
    os.write(1, f"{first} ends {fn()}\n".encode())
except ra.RankDiscarded:
    os.write(1, f"{first} sent home\n".encode())
"#;
    let plan = with_client(Plan::rlaunch(["-n", "8"]), &client);
    let path = plan.scratch().path("policy.py");
    std::fs::write(&path, SCRIPT).unwrap();
    let done = plan.args([PathBuf::from("python3"), path]).start().code(0);
    let wanted = [
        "0 sent home",
        "2 0 of 4",
        "2 ends True",
        "3 1 of 4",
        "3 ends True",
        "4 2 of 4",
        "4 ends True",
        "5 3 of 4",
        "5 ends True",
        "6 ends None",
        "7 ends None",
    ];
    assert_eq!(done.sorted(), wanted, "{}", done.err());
}

/// One wrapped function after another, and one several times: each has rounds of its own, of the remaining ranks.
#[test]
fn wrapped_functions_follow_one_another() {
    let Some(client) = client() else { return };
    const SCRIPT: &str = r#"
import os
import rlaunch, rlaunch.inprocess as ip
first = os.environ["RLAUNCH_RANK"]

def fails(how):
    def fn(call: ip.CallWrapper = None):
        if call.iteration == 0 and call.state.rank == 1:
            how()
        while call.iteration == 0:
            pass
        rlaunch.Store().prefix(f"{os.environ['RLAUNCH_ROUND']}/").barrier("all", call.state.world_size)
        return f"{call.iteration} {call.state.rank} of {call.state.world_size} in {os.environ['RLAUNCH_ROUND']}"
    return fn

def raises():
    raise ValueError("ordered")

one = ip.Wrapper()(fails(lambda: os.kill(os.getpid(), 9)))
other = ip.Wrapper(rank_assignment=ip.rank_assignment.FillGaps(), completion_timeout=ip.wrap.timedelta(seconds=9))(fails(raises))
for wrapped in (one, other, one):
    os.write(1, f"{first}: {wrapped(call=None)}\n".encode())
"#;
    let plan = with_client(Plan::rlaunch(["-n", "4"]), &client);
    let path = plan.scratch().path("calls.py");
    std::fs::write(&path, SCRIPT).unwrap();
    let done = plan.args([PathBuf::from("python3"), path]).start().code(0);
    let wanted = [
        "0: 1 0 of 2 in 5",
        "0: 1 0 of 3 in 1",
        "0: 1 0 of 3 in 3",
        "2: 1 1 of 3 in 1",
        "2: 1 1 of 3 in 3",
        "3: 1 1 of 2 in 5",
        "3: 1 2 of 3 in 1",
        "3: 1 2 of 3 in 3",
    ];
    assert_eq!(done.sorted(), wanted, "{}", done.err());
    done.says("restart 1: rank 1 ").says("restart 3: rank 2 ").says("restart 5: rank 2 ");
}

#[test]
fn restart_options_that_cannot_hold_are_refused() {
    let Some(client) = client() else { return };
    const SCRIPT: &str = r#"
import os, sys, types
import rlaunch.jax, rlaunch.inprocess as ip
what = sys.argv[1]
if what == "jax":
    sys.modules["jax._src.distributed"] = types.SimpleNamespace(global_state=types.SimpleNamespace(client=1))
soft = ip.wrap.timedelta(seconds=30 + int(os.environ["RANK"])) if what == "terms" else ip.wrap.timedelta(seconds=60)
def fn():
    if what == "jax within":
        sys.modules["jax"] = None
        rlaunch.jax.initialize()
ip.Wrapper(soft_timeout=soft)(fn)()
"#;
    let cases = [
        ("jax", "1", "jax.distributed is initialized: its processes cannot be restarted from within"),
        ("jax within", "2", "in a wrapped function: its processes cannot be restarted from within"),
        ("terms", "2", "RestartRefused: "),
    ];
    for (what, ranks, text) in cases {
        let plan = with_client(Plan::rlaunch(["-n", ranks]), &client);
        let path = plan.scratch().path("refused.py");
        std::fs::write(&path, SCRIPT).unwrap();
        let done = plan.args([PathBuf::from("python3"), path, PathBuf::from(what)]).start().code(1);
        assert!(done.err().contains(text), "{what}: {}", done.err());
    }
}
