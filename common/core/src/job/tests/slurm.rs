//! Ranks that run in a job of Slurm: hosts and ranks of the job in Slurm's words.

use super::fewer::three;
use super::hosts::{met, two};
use super::shrink_rule::{beats, cleared, forget, least, node, restart_orders, run};
use super::*;
use alloc::string::{String, ToString as _};
use rlaunch_plan::allocation::HostStep;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::rounds::Rounds;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_node::Rendezvous;

fn in_slurm(mut spec: JobSpec) -> JobSpec {
    spec.apps.iter_mut().for_each(|app| app.base.env.push_pair(b"SLURM_JOB_ID", b"7"));
    spec
}

/// Hosts, their tasks and own ranks, as each node was sent them.
fn steps(sent: Vec<(u32, Rendezvous)>) -> Vec<Option<[String; 3]>> {
    let words = |step: HostStep| [step.layout.hosts, step.layout.tasks, step.task_ids].map(|text| text.to_string());
    sent.into_iter().map(|(_, rendezvous)| rendezvous.slurm.map(|step| words(*step))).collect()
}

fn step(hosts: &str, tasks: &str, ranks: &str) -> Option<[String; 3]> {
    Some([hosts, tasks, ranks].map(String::from))
}

#[test]
fn each_host_gets_the_hosts_with_their_tasks_and_its_ranks() {
    let sent = |spec: JobSpec| {
        let mut s = Script::new(&spec);
        for n in [NODE, node(1)] {
            s.event(JobEvent::EdgeUp { node: n });
            s.receive_from(n, &super::hosts::hello("10.0.0.1", "10.0.0.9", 20_000)).receive_from(n, &ToRoot::Ready);
        }
        steps(met(&s))
    };
    assert_eq!(sent(in_slurm(two(false))), [step("one,two", "2(x2)", "0,1"), step("one,two", "2(x2)", "2,3")]);
    assert_eq!(sent(two(false)), [None, None], "outside Slurm");
}

#[test]
fn the_only_host_gets_its_own() {
    let s = Script::new(&in_slurm(spec(3)));
    let starts = super::hosts::starts(&s).into_iter().map(|(node, start)| (node.get(), start.rendezvous.unwrap()));
    assert_eq!(steps(starts.collect()), [step("here", "3", "0,1,2")]);
}

#[test]
fn the_next_generation_has_the_hosts_that_are_left() {
    let rounds = Rounds { limits: least(Some(4)), ..Rounds::default() };
    let restarts = Restarts::of(1, Span::from_secs(1));
    let mut s =
        run(&in_slurm(JobSpec { rounds, min_hosts: None, ..three(3) }.with(|settings| settings.restarts = restarts)));
    forget(&mut s);
    s.event(JobEvent::EdgeClosed { node: node(0), why: CloseReason::Eof });
    [1, 2].into_iter().for_each(|host| cleared(&mut s, host));
    beats(&mut s, 65, &[1, 2]);
    let sent = steps(restart_orders(&s).0);
    assert_eq!(sent, [step("two,three", "2(x2)", "0,1"), step("two,three", "2(x2)", "2,3")]);
}
