//! All ranks are started again when one has failed (`--max-restarts`).

use crate::bed::Bed;
use crate::case::Done;
use crate::place;
use crate::plan::Plan;
use crate::torch;
use crate::watch::Exit;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::io::Write as _;

/// Ranks of a job that may be started again.
fn again(words: &[&str], script: &str) -> Plan {
    let all = ["--max-restarts", "3", "--restart-delay", "0"];
    Plan::rlaunch(all.iter().chain(words).chain(&["sh", "-c", script]))
}

/// How often all ranks were started again, and which rank had failed how.
fn restarts(done: &Done) -> Vec<(u64, u64, u64)> {
    let number = |event: &serde_json::Value, name: &str| event[name].as_u64().unwrap();
    done.named("restart").map(|e| (number(e, "generation"), number(e, "rank"), number(e, "code"))).collect()
}

#[test]
fn all_ranks_are_started_again_until_none_fails() {
    let script = "echo $RANK $RLAUNCH_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS; \
         echo $MASTER_PORT >>\"$DIR/ports\"; [ $RLAUNCH_RESTART_COUNT = 2 ] && exit 0; \
         [ $RANK = 1 ] && exit $((RLAUNCH_RESTART_COUNT + 5)); exec sleep 1000";
    for tier in place::tiers() {
        let done = again(&["-n", "3", "-r", "0:2", "--log-dir", "l"], script).contain(tier);
        let dir = done.scratch().dir().to_owned();
        let done = done.env("DIR", &dir).cwd(&dir).start().code(0);
        let lines = |n: u32| (0..3).map(move |rank| format!("{rank} {n} {n} 3"));
        let mut expected: Vec<String> = (0..3).flat_map(lines).collect();
        expected.sort();
        // A rank that was asked to end may not have come to say anything.
        let said: BTreeSet<String> = done.sorted().into_iter().collect();
        assert!(said.iter().all(|line| expected.contains(line)), "{tier}: {said:?}");
        let last = |line: &&String| line.contains(" 2 2 3") || line.starts_with('1');
        assert!(expected.iter().filter(last).all(|line| said.contains(line)), "{tier}: {said:?}");
        assert_eq!(restarts(&done), [(1, 1, 5), (2, 1, 6)], "{tier}");
        let ports = std::fs::read_to_string(dir.join("ports")).unwrap();
        assert_eq!(ports.lines().collect::<BTreeSet<_>>().len(), 3, "{tier}: each generation has its own: {ports}");
        done.says("rank 1 failed: exit 6; all ranks are started again now (start 3; 2 of 3 restarts used)");
        let generations: BTreeSet<u64> =
            done.named("rank.started").map(|e| e["generation"].as_u64().unwrap()).collect();
        assert_eq!(generations, BTreeSet::from([0, 1, 2]), "{tier}");
        let run = std::fs::read_dir(dir.join("l")).unwrap().next().unwrap().unwrap().path();
        for attempt in 0..3 {
            assert!(run.join(format!("attempt_{attempt}/0/stderr.log")).exists(), "{tier}: attempt {attempt}");
        }
    }
}

#[test]
fn the_last_generation_says_how_the_job_ends() {
    let script = "[ $RANK = 0 ] && exit $((RLAUNCH_RESTART_COUNT + 5)); exec sleep 1000";
    let done = again(&["-n", "2"], script).start().code(8);
    assert_eq!(restarts(&done), [(1, 0, 5), (2, 0, 6), (3, 0, 7)]);
    done.says("start    2: rank 0 had failed: exit 5 after ")
        .says(" (1 of 3 restarts used)")
        .says("rank 0 failed first: exit 8");
}

#[test]
fn restarts_end_early_without_progress() {
    let words = [
        "--max-restarts",
        "50",
        "--restart-delay",
        "0",
        "--give-up-after",
        "0",
        "-n",
        "2",
        "sh",
        "-c",
        "[ $RANK = 1 ] && exit 4; exec sleep 1000",
    ];
    let done = Plan::rlaunch(words).start().code(4);
    assert_eq!(done.named("restart").count(), 4);
    done.says("rank 1 failed at once 5 times in a row in the same way; the ranks are not started again");
}

#[test]
fn nothing_of_a_generation_is_left_when_the_next_begins() {
    // The holder of the descriptor holds the lock: a process that a rank has started, in a session of its own, and that ignores signals.
    let script = "exec 9>\"$DIR/lock\"; flock -n 9 || exit 8; [ $RLAUNCH_RESTART_COUNT = 2 ] && exit 0; \
         setsid sh -c 'trap \"\" TERM HUP; exec sleep 1000' </dev/null >/dev/null 2>&1 & exit 3";
    for tier in place::tiers() {
        let done = again(&["-n", "1"], script).contain(tier).start().code(0);
        assert_eq!(restarts(&done).len(), 2, "{tier}: {}", done.err());
    }
}

#[test]
fn a_rank_that_does_not_want_to_end_is_killed_first() {
    let script = "[ $RLAUNCH_RESTART_COUNT = 1 ] && exit 0; trap '' TERM; echo > \"$DIR/$RANK\"; \
         if [ $RANK = 0 ]; then until [ -e \"$DIR/1\" ]; do :; done; exit 3; fi; while :; do sleep 1000; done";
    for tier in place::tiers() {
        let done = again(&["-n", "2", "--grace", "100ms"], script).contain(tier).start().code(0);
        assert_eq!(restarts(&done), [(1, 0, 3)], "{tier}");
    }
}

#[test]
fn a_signal_ends_the_job_in_the_pause_and_before() {
    let pause = [
        "--max-restarts",
        "3",
        "--restart-delay",
        "1h",
        "-n",
        "2",
        "sh",
        "-c",
        "[ $RANK = 0 ] && exit 3; exec sleep 1000",
    ];
    for tier in place::tiers() {
        let case = Plan::rlaunch(pause).contain(tier).start();
        case.event("restart");
        case.signal(Signal::SIGINT);
        let done = case.finish(Exit::Signal(Signal::SIGINT));
        done.says("no rank runs, and none is started again");
        done.says(", before the ranks were started again").says("job      ranks 0,1 not started again; 0 left running");
        assert!(done.named("rank.started").all(|e| e["generation"] == 0), "{tier}");
        let limit = ["--timeout", "3s"];
        let done = Plan::rlaunch(limit.iter().chain(&pause)).contain(tier).start().code(124);
        assert_eq!(done.named("restart").count(), 1, "{tier}");
        // While a rank has still to end that does not want to.
        let deaf = "trap '' TERM INT; echo > \"$DIR/$RANK\"; \
             if [ $RANK = 0 ]; then until [ -e \"$DIR/1\" ]; do :; done; exit 3; fi; while :; do sleep 1000; done";
        let case = again(&["-n", "2", "--grace", "1h"], deaf).contain(tier).start();
        case.event("clearing");
        case.signal_to_end(Signal::SIGINT);
    }
}

#[test]
fn the_input_that_no_rank_has_taken_is_for_the_next() {
    let script = "read line; echo $RLAUNCH_RESTART_COUNT $line; [ $RLAUNCH_RESTART_COUNT = 0 ] && exit 3; cat";
    let mut case = again(&["-n", "1"], script).stdin_pipe().start();
    let mut stdin = case.take_stdin();
    stdin.write_all(b"one\n").unwrap();
    case.says_on_stdout("0 one", 1);
    case.until("the next generation", |seen| seen.named("rank.started").find(|e| e["generation"] == 1).cloned());
    stdin.write_all(b"two\nthree\n").unwrap();
    drop(stdin);
    assert_eq!(case.code(0).out(), "0 one\n1 two\nthree\n");
}

/// Ranks meet in each generation, rank 0 later than the others: who found what those before had stored would meet them. Each module that is
/// imported is a sign of life: on a busy machine torch takes longer than is waited for one.
const MEET: &str = "import os, sys, time\n\
    class Life:\n    \
        def find_spec(*names): os.write(2, b'.')\n\
    sys.meta_path.insert(0, Life)\n\
    import torch, torch.distributed as dist\n\
    n, last = int(os.environ['TORCHELASTIC_RESTART_COUNT']), int(os.environ['TORCHELASTIC_MAX_RESTARTS'])\n\
    rank = int(os.environ['RANK'])\n\
    if rank == 0: time.sleep(0.5)\n\
    dist.init_process_group('gloo')\n\
    t = torch.ones(1) * (rank + 1 + 100 * n)\n\
    dist.all_reduce(t)\n\
    os.write(1, f'{n} {rank} {int(t.item())}\\n'.encode())\n\
    dist.barrier()\n\
    if n == last: dist.destroy_process_group()\n\
    elif rank == n % 3: os._exit(3 + n % 5)\n\
    else: time.sleep(1000)\n";

fn met(generations: u32) -> Vec<String> {
    let mut all: Vec<String> =
        (0..generations).flat_map(|n| (0..3).map(move |rank| format!("{n} {rank} {}", 6 + 300 * n))).collect();
    all.sort();
    all
}

#[test]
fn no_rank_reads_an_address_of_an_earlier_start() {
    let Some(python) = torch::pythons().into_iter().next() else { return };
    let (count, stores) = if place::full() { (20, ["agent", "rank0"].as_slice()) } else { (3, ["agent"].as_slice()) };
    for store in stores {
        let most = count.to_string();
        let words = ["--max-restarts", &most, "--restart-delay", "0", "--master-store", store, "-n", "3"];
        let plan = Plan::rlaunch(words).env("RES_OPTIONS", "timeout:1 attempts:1").env("TORCH_CPP_LOG_LEVEL", "ERROR");
        let path = plan.scratch().path("meet.py");
        std::fs::write(&path, MEET).unwrap();
        let done = plan.args([&python, &path]).start().code(0);
        assert_eq!(done.sorted(), met(count + 1), "{store}: {}", done.err());
        assert_eq!(done.named("restart").count(), count as usize, "{store}");
    }
}

#[test]
fn a_failure_on_one_host_has_all_started_again() {
    let Some(bed) = Bed::up(2) else { return };
    let script = "echo $RANK $RLAUNCH_RESTART_COUNT $MASTER_ADDR; exec 9>\"/tmp/rlaunch-lock-$RLAUNCH_JOB_ID-$RANK\"; flock -n 9 || exit 8; \
         rm -f \"/tmp/rlaunch-lock-$RLAUNCH_JOB_ID-$RANK\"; \
         [ $RLAUNCH_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 3 ] && exit $((RLAUNCH_RESTART_COUNT + 5)); exec sleep 1000";
    for user in ["root", "tester"] {
        let words = ["rlaunch", "--ssh-fast", "-H", "node[0-1]:2", "--max-restarts", "2", "--restart-delay", "10ms"];
        let plan = bed.plan(user, "login", words).with_events();
        let done = plan.args(["sh", "-c", script]).start().code(0);
        bed.clean(2);
        assert_eq!(restarts(&done), [(1, 3, 5), (2, 3, 6)], "{user}: {}", done.err());
        let said = done.sorted();
        let last: Vec<&String> = said.iter().filter(|line| line.contains(" 2 ")).collect();
        assert_eq!(last.len(), 4, "{user}: {said:?}");
        assert!(said.iter().all(|line| line.ends_with(" 10.77.1.1")), "{user}: {said:?}");
        // A signal in the pause ends all hosts.
        let words = ["rlaunch", "--ssh-fast", "-H", "node[0-1]:2", "--max-restarts", "2", "--restart-delay", "1h"];
        let case = bed.plan(user, "login", words).with_events().args(["sh", "-c", script]).start();
        case.event("restart");
        case.signal(Signal::SIGTERM);
        assert_eq!(case.end().event("job.end")["raise"], "SIGTERM", "{user}");
        bed.clean(2);
    }
    bed.down();
}
