//! Programs that break the rules of rounds: each of them is one Python script, and the job continues, or ends with a message.

use crate::case::{Case, Done};
use crate::plan::Plan;
use crate::python::{client, with_client};
use std::path::Path;

const SCRIPT: &str = r#"
import datetime, os, signal, sys, threading, time
import rlaunch, rlaunch.inprocess as ip

what, rank = sys.argv[1], int(os.environ.get("RLAUNCH_RANK", "0"))
DEAF = sys.argv[0] + ".deaf"
HOOKS = {"initialize": ip.initialize.Initialize, "abort": ip.abort.Abort, "finalize": ip.finalize.Finalize,
         "health_check": ip.health_check.HealthCheck, "completion": ip.completion.Completion,
         "terminate": ip.terminate.Terminate}

def out(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())

def seconds(number):
    return datetime.timedelta(seconds=number)

def hook(name, function):
    def call(self, state):
        function(state)
        return state
    return type(name, (HOOKS[name],), {"__call__": call})()

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def for_ever():
    while True:
        time.sleep(1)

def ignore():
    """Nothing raises here, and no signal comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    open(DEAF, "x").close()
    time.sleep(1000)

def fail():
    raise ValueError("ordered")

def fail_after_deaf():
    """Fails only after the other rank blocks signals: before that it would receive the interrupt."""
    while not os.path.exists(DEAF):
        time.sleep(0.01)
    fail()

def in_first_round(who):
    return lambda call: who.get(rank, for_ever)() if call.iteration == 0 else None

def in_hook(who, round=0):
    return lambda state: who.get(rank, lambda: None)() if state.iteration == round and state.fault is not None else None

def hundred(call):
    call.ping()
    if call.iteration < 100:
        fail() if call.iteration % 3 == rank else for_ever()

def forks(call):
    if call.iteration == 0 and os.fork() == 0:
        call.ping()
        for_ever()
    if call.iteration == 0:
        die() if rank == 1 else for_ever()

def late(call):
    while call.iteration == 0 and rank == 1:
        call.ping()
        time.sleep(0.01)

def slow_hooks():
    return {"abort": hook("abort", lambda state: for_ever() if rank == 1 else None),
            "finalize": hook("finalize", in_hook({2: for_ever}))}

def phases():
    return {"abort": hook("abort", lambda state: die() if rank == 1 and state.iteration == 0 else None),
            "finalize": hook("finalize", in_hook({2: die})),
            "health_check": hook("health_check", in_hook({3: die})),
            "initialize": hook("initialize", in_hook({4: die}, 1))}

def busy(call):
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass

def gets_on(call):
    end = time.monotonic() + 4
    while time.monotonic() < end:
        call.ping()
        time.sleep(0.05)

def of_one(name, function):
    return {name: hook(name, lambda state: function() if rank == 1 else None)}

spare = ip.Compose(ip.rank_assignment.MaxActiveWorldSize(2), ip.rank_assignment.ShiftRanks())
waits = hook("initialize", lambda state: for_ever() if state.active_rank is None else None)
policy = ip.rank_assignment.MaxActiveWorldSize(1 + rank)
function, named = {
    "never": (in_first_round({0: fail_after_deaf, 3: ignore}), slow_hooks()),
    "phases": (in_first_round({0: fail}), phases()),
    "ill": (in_first_round({0: fail}), {"health_check": hook("health_check", in_hook({0: fail, 1: fail, 2: fail}))}),
    "all": (lambda call: fail() if call.iteration == 0 else None, {}),
    "zero": (lambda call: fail() if rank == 0 else for_ever(), {}),
    "hundred": (hundred, {}),
    "forks": (forks, {}),
    "late": (late, {"completion_timeout": seconds(1)}),
    "policies": (in_first_round({}), {"rank_assignment": ip.Compose(policy, ip.rank_assignment.ShiftRanks())}),
    "outside": (lambda call: fail() if os.environ["RANK"] != "0" or int(os.environ["MASTER_PORT"]) == 0 else None, {}),
    "exits": (in_first_round({0: fail}), of_one("abort", lambda: sys.exit(7))),
    "busy": (busy, {}),
    "thread": (busy, {}),
    "completion": (lambda call: None, of_one("completion", for_ever)),
    "terminate": (lambda call: sys.exit(7) if rank == 1 else None, of_one("terminate", for_ever)),
    "reserve": (gets_on, {"rank_assignment": spare, "initialize": waits}),
}[what]

def train(call: ip.CallWrapper = None):
    function(call)
    return f"{call.iteration} {call.state.world_size}"

soft = 60 if what == "late" else 1
wrapped = ip.Wrapper(soft_timeout=seconds(soft), hard_timeout=seconds(2 * soft), barrier_timeout=seconds(60 * soft),
                     termination_grace_time=seconds(0.5), progress_watchdog_interval=seconds(0.1), **named)(train)
def call():
    out(rank, wrapped(call=None))

for _ in range(2 if what == "outside" else 1):
    if what == "thread":
        one = threading.Thread(target=call)
        one.start()
        one.join()
    else:
        call()
"#;

fn script(client: &Path, plan: Plan, what: &str) -> Plan {
    let path = plan.scratch().path("trouble.py");
    std::fs::write(&path, SCRIPT).unwrap();
    with_client(plan, client).args(["python3".as_ref(), path.as_os_str(), what.as_ref()])
}

fn started(client: &Path, ranks: &str, what: &str) -> Case {
    script(client, Plan::rlaunch(["-n", ranks, "--give-up-after", "0"]), what).start()
}

fn runs(client: &Path, ranks: &str, what: &str) -> Done {
    started(client, ranks, what).end()
}

#[test]
fn others_continue_whatever_ranks_do() {
    let Some(client) = client() else { return };
    for (what, ranks, wanted, said) in [
        // Hooks that never return, and one that ignores every interrupt: their ranks are ended.
        (
            "never",
            "5",
            &["0 1 2", "4 1 2"][..],
            &["; ranks 1-3 were killed (it has not come out of its function and the hooks behind it within 2.0s)"][..],
        ),
        ("phases", "6", &["0 2 2", "5 2 2"], &["restart 1: ", "restart 2: rank 4 "]),
        ("all", "3", &["0 1 3", "1 1 3", "2 1 3"], &["continuing with 3 ranks"]),
        ("hundred", "3", &["0 100 3", "1 100 3", "2 100 3"], &["restart 100: rank 0 "]),
        // A child that lives on keeps nothing of its parent.
        ("forks", "3", &["0 1 2", "2 1 2"], &["restart 1: rank 1 was killed (SIGKILL)"]),
        ("exits", "3", &["0 1 3", "1 1 3", "2 1 3"], &["initial rank 1: the abort hook has failed", "SystemExit: 7"]),
        ("late", "2", &["0 1 2", "1 1 2"], &["it has not returned after rank 0 did, within 1.0s"]),
    ] {
        let done = runs(&client, ranks, what);
        assert!(done.exit.is_success(), "{what}: {}{}", done.out(), done.err());
        assert_eq!(done.sorted(), wanted, "{what}: {}", done.err());
        for said in said {
            done.says(said);
        }
    }
}

/// Hooks run outside the function, and after the work.
#[test]
fn hooks_that_never_return_cost_their_rank_everywhere() {
    let Some(client) = client() else { return };
    for (what, wanted, code, said) in [
        (
            "completion",
            &["0 0 3", "2 0 3"],
            143,
            "initial rank 1 is killed: it has not come out of its hooks within 2.0s",
        ),
        ("terminate", &["0 1 2", "2 1 2"], 0, "initial rank 1 is killed: it has not come out of its hooks within 2.0s"),
        ("reserve", &["0 0 3", "1 0 3"], 0, "it has not come out of its hooks within 2.0s"),
    ] {
        let done = started(&client, "3", what).code(code);
        assert_eq!(done.sorted(), wanted, "{what}: {}", done.err());
        done.says(said);
    }
}

/// Until Python 3.12 a main thread that never gives up the interpreter looks at pending calls only when another thread takes it away.
#[test]
fn bytecode_is_no_hang() {
    let Some(client) = client() else { return };
    let done = runs(&client, "2", "busy");
    assert_eq!(done.sorted(), ["0 0 2", "1 0 2"], "{}", done.err());
}

/// Only the main thread runs what Python has pending.
#[test]
fn a_thread_that_is_not_the_main_one_may_be_silent() {
    let Some(client) = client() else { return };
    let done = runs(&client, "2", "thread");
    assert_eq!(done.sorted(), ["0 0 2", "1 0 2"], "{}", done.err());
}

#[test]
fn unrecoverable_failure_ends_the_job_with_a_message() {
    let Some(client) = client() else { return };
    for (what, said) in [
        ("ill", "no healthy rank is left"),
        ("zero", "rank 0"),
        ("policies", "all ranks have to ask for the same, and policy is "),
    ] {
        let done = runs(&client, "3", what);
        assert!(!done.exit.is_success() && done.out().is_empty(), "{what}: {}{}", done.out(), done.err());
        done.says(said).says("0 left running");
    }
}

/// Each of them would do the work of all.
#[test]
fn ranks_that_cannot_reach_their_agent_are_not_worlds_of_one() {
    let Some(client) = client() else { return };
    let plan = Plan::rlaunch(["-n", "2", "env", "-u", "RLAUNCH_SOCKET"]);
    let done = script(&client, plan, "outside").start().end();
    assert!(!done.exit.is_success() && done.out().is_empty(), "{}{}", done.out(), done.err());
    done.says("RLAUNCH_SOCKET is missing in a job of 2 ranks");
}

#[test]
fn outside_rlaunch_a_program_is_alone_and_says_so_once() {
    let Some(client) = client() else { return };
    let plan = Plan::shell("exec \"$@\"").args(["sh"]);
    let done = script(&client, plan, "outside").start().end();
    assert!(done.exit.is_success(), "{}", done.err());
    assert_eq!(done.sorted(), ["0 0 1", "0 0 1"]);
    assert_eq!(done.err().matches("it is a world of one").count(), 1, "{}", done.err());
}
