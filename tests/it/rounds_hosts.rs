//! Rounds on several hosts: some of them lose their power, or are cut off, while a program trains.

use crate::bed::Bed;
use crate::case::Case;
use crate::faults::{nanos_of, watch};
use crate::rounds::train;
use crate::watch::Exit;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Four hosts of four ranks, and one that waits; it trains until it is told to end.
fn trains(bed: &Bed, options: &[&str]) -> Option<Case> {
    let train = train()?;
    let all = ["rlaunch", "--ssh-fast", "--lease", "4s", "-H", "node[0-4]:4"];
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
fn a_spare_host_replaces_one_without_power_and_who_is_cut_off_has_ended_before_the_others_go_on() {
    let Some(bed) = Bed::up(5) else { return };
    let Some(case) = trains(&bed, &["--spare-hosts", "1"]) else { return bed.down() };
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
    done.says("g0 r1: rank 4 on node1 is lost with its host").says("16 ranks go on");
    done.says("g0 r2: rank 8 on node2 is lost with its host").says("12 ranks go on");
    assert_eq!(done.out().matches("epoch   1 ").count(), 1, "what is learnt is kept");
    bed.run(["heal"]);
    bed.start_host("node1");
    bed.clean(30);
    bed.down();
}
