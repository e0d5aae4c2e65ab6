//! Rounds on several hosts: some of them lose their power, or are cut off, while a program trains.

use crate::bed::Bed;
use crate::case::Case;
use crate::census::Proc;
use crate::faults::{nanos_of, watch};
use crate::rounds::train;
use crate::watch::{Exit, Seen};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;

/// A training on these hosts that runs until it is ended.
fn trains(bed: &Bed, hosts: &str, options: &[&str]) -> Option<Case> {
    let train = train()?;
    let all = ["rlaunch", "--ssh-fast", "--lease", "4s", "-H", hosts];
    let plan = bed.plan("tester", "login", all.iter().chain(options)).with_events();
    let here = plan.scratch().path("train");
    std::fs::copy(&train, &here).unwrap();
    Some(plan.args([here.as_os_str()]).args(["--resilient", "--epochs", "100000"]).start())
}

/// The record of a round, once it has begun.
fn begun(case: &Case, round: u64) -> Value {
    let is_it = |e: &&Value| e["round"] == round;
    case.until("a round", |seen| seen.named("round").find(is_it).cloned())
}

fn numbers(round: &Value) -> (u64, u64) {
    (round["world_size"].as_u64().unwrap(), round["active_world_size"].as_u64().unwrap())
}

#[test]
fn spare_host_replaces_a_lost_host_and_ranks_that_are_cut_off_end_before_the_others_continue() {
    let Some(bed) = Bed::up(5) else { return };
    let Some(case) = trains(&bed, "node[0-4]:4", &["--spare-hosts", "1"]) else { return bed.down() };
    assert_eq!(numbers(&begun(&case, 0)), (20, 16));
    case.says_on_stdout("epoch   2", 1);
    for (round, host, fault, size) in [(1, "node1", "kill-host", 16), (2, "node2", "partition", 12)] {
        let ranks: Vec<_> = bed.processes().into_iter().filter(|(on, p)| on == host && p.comm == "train").collect();
        assert_eq!(ranks.len(), 4);
        let deaths = watch(ranks.into_iter().map(|(_, p)| p).collect());
        bed.run([fault, host]);
        let begun = begun(&case, round);
        assert_eq!(numbers(&begun), (size, size));
        // By the host's clock and by ours, which are one here.
        let said = nanos_of(&begun);
        for death in deaths {
            let death = death.join().unwrap();
            assert!(death < said, "a rank of {host} ended {} us after the round had begun", (death - said) / 1_000);
        }
        case.says_on_stdout("on with epoch", usize::try_from(round).unwrap());
    }
    case.signal(Signal::SIGINT);
    let done = case.finish(Exit::Code(130));
    done.says("restart 1: rank 4 on node1 was lost with its host").says("continuing with 16 ranks");
    done.says("restart 2: rank 8 on node2 was lost with its host").says("continuing with 12 ranks");
    assert_eq!(done.out().matches("epoch   1 ").count(), 1, "what is learnt is kept");
    bed.run(["heal"]);
    bed.start_host("node1");
    bed.clean(30);
    bed.down();
}

/// Variables in the environment of the program's processes, by rank: the last of each.
fn variables(bed: &Bed, names: &[&str]) -> BTreeMap<String, Vec<String>> {
    let trains = bed.processes().into_iter().filter(|(_, p)| p.comm == "train");
    let of = |(host, p): (String, Proc)| {
        let environ = std::fs::read(format!("/proc/{}/environ", p.pid)).ok()?;
        let all: Vec<_> = environ.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let value = |name: &str| all.iter().find_map(|var| var.strip_prefix(&format!("{name}=")).map(str::to_owned));
        let values = names.iter().filter_map(|name| value(name));
        Some((value("RANK")?, std::iter::once(host).chain(values).collect()))
    };
    trains.filter_map(of).collect()
}

#[test]
fn ranks_of_a_lost_host_return_on_free_slots_and_missing_slots_are_reported() {
    let Some(bed) = Bed::up(3) else { return };
    let options = ["-n", "6", "--respawn"];
    let Some(case) = trains(&bed, "node0:2,node1:2,node2:4", &options) else { return bed.down() };
    case.says_on_stdout("epoch   2", 1);
    let ranks: Vec<_> = bed.processes().into_iter().filter(|(on, p)| on == "node0" && p.comm == "train").collect();
    assert_eq!(ranks.len(), 2);
    let deaths = watch(ranks.into_iter().map(|(_, p)| p).collect());
    bed.run(["partition", "node0"]);
    assert_eq!(numbers(&begun(&case, 1)), (4, 4));
    let again = case.events("round.again", 2);
    for death in deaths {
        let (death, said) = (death.join().unwrap(), nanos_of(&again[0]));
        assert!(death < said, "a rank of node0 ended {} us after it was started again", (death - said) / 1_000);
    }
    let whole = |seen: &Seen| Some(numbers(seen.named("round").last()?)).filter(|sizes| *sizes == (6, 6));
    case.until("a round of all ranks", whole);
    let all = variables(&bed, &["LOCAL_RANK", "LOCAL_WORLD_SIZE"]);
    assert_eq!((&*all["0"].join(" "), &*all["1"].join(" ")), ("node2 2 4", "node2 3 4"), "{all:?}");
    let on: Vec<_> = case.events("rank.started", 8)[6..].iter().map(|e| e["node"].clone()).collect();
    assert_eq!(on, [2, 2]);
    // With the next host more are lost than have room.
    bed.run(["kill-host", "node2"]);
    case.says_on_stderr("ranks 0-1,4-5 of node[0,2] are not started again: no remaining host has a free slot");
    case.signal(Signal::SIGINT);
    let done = case.finish(Exit::Code(130));
    done.says("rank 0 is started again on node2 (pid ");
    assert_eq!(done.out().matches("epoch   1 ").count(), 1, "what is learnt is kept");
    bed.run(["heal"]);
    bed.start_host("node2");
    bed.clean(30);
    bed.down();
}

/// Two ranks on each of three hosts, which know nothing of rounds; they end by themselves where they were started again.
fn plain(bed: &Bed, options: &[&str]) -> Case {
    let says = "echo g$RLAUNCH_RESTART_COUNT rank $RANK of $WORLD_SIZE at $MASTER_ADDR from $(hostname); \
                [ $RLAUNCH_RESTART_COUNT = 0 ] || exit 0; setsid sleep 999 & exec sleep 999";
    let all = ["rlaunch", "--ssh-fast", "--lease", "4s", "-H", "node[0-2]:2", "--max-restarts", "1"];
    let program = ["--restart-delay", "0", "sh", "-c", says];
    let words = all.iter().chain(options).chain(&program);
    let case = bed.plan("tester", "login", words).with_events().start();
    case.events("rank.started", 6);
    crate::census::wait_until("all sleepers", || {
        bed.processes().iter().filter(|(_, p)| p.comm == "sleep").count() == 12
    });
    case
}

#[test]
fn without_rounds_all_are_started_again_on_the_hosts_that_are_left() {
    let Some(bed) = Bed::up(3) else { return };
    let case = plain(&bed, &["--min-world", "4"]);
    let ranks: Vec<_> = bed.processes().into_iter().filter(|(on, p)| on == "node0" && p.comm == "sleep").collect();
    assert_eq!(ranks.len(), 4);
    let deaths = watch(ranks.into_iter().map(|(_, p)| p).collect());
    bed.run(["partition", "node0"]);
    let done = case.finish(Exit::Code(0));
    let again = nanos_of(done.event("restart"));
    for death in deaths {
        assert!(death.join().unwrap() < again, "a process of node0 has outlived its generation");
    }
    // After a lost host the pause is about a second, and --max-restarts does not count it.
    done.says("node0 is lost; without node0 4 ranks are started again in ");
    done.says(" (start 2)");
    let (out, at) = (done.out(), done.sorted());
    let second: Vec<&String> = at.iter().filter(|line| line.starts_with("g1 ")).collect();
    assert_eq!(second.len(), 4, "{out}");
    for (n, line) in second.iter().enumerate() {
        assert!(line.starts_with(&format!("g1 rank {n} of 4 at ")), "{out}");
    }
    // No rank has its rendezvous at the lost host.
    let addr = |line: &str| line.split(' ').nth(6).map(str::to_owned);
    let first = at.iter().find(|line| line.starts_with("g0 ")).and_then(|line| addr(line));
    assert!(second.iter().all(|line| addr(line) == addr(second[0]) && addr(line) != first), "{out}");
    assert_eq!(done.event("hosts.left_out")["world_size"], 4);
    bed.run(["heal"]);
    bed.clean(30);
    bed.down();
}

#[test]
fn without_enough_hosts_the_loss_of_one_ends_the_job() {
    let Some(bed) = Bed::up(3) else { return };
    let case = plain(&bed, &["--min-world", "5"]);
    bed.run(["kill-host", "node1"]);
    let done = case.finish(Exit::Code(125));
    done.says("lost contact with node1: no heartbeat before its lease expired").says("  ended    after ");
    assert_eq!(done.named("restart").count(), 0);
    bed.start_host("node1");
    bed.clean(30);
    bed.down();
}
