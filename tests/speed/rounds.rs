//! The time that the root computes in a round of 16,384 ranks on 2,048 hosts, and the bytes for each host; the goal is 200 ms.
//!
//! `cargo run --release -p rlaunch-core --example round_speed`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "says what it measures")]

use rlaunch_base::capped::Capped;
use rlaunch_base::id::{NodeId, ProcId, Rank, Round};
use rlaunch_base::machine::Machine;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::rank_assign::{Flags, Key, Layer, Policy, Source, Stage, Tree, parse};
use rlaunch_protocol::rounds::Limits;
use rlaunch_protocol::wire::round::{Enrolled, RoundDown, RoundUp};
use rlaunch_restart::{Restart, RestartAction, RestartEvent, Setup, Site};
use std::time::{Duration, Instant};

const HOSTS: u32 = 2_048;
const PER: u32 = 8;
const ROUNDS: u32 = 21;

fn setup(policy: Policy, in_slurm: bool) -> Setup {
    let site = |n| Site { name: format!("node{n:04}"), addr: OsBytes::from(format!("10.0.{}.{}", n / 256, n % 256)) };
    Setup {
        ranks: (0..HOSTS * PER).map(|rank| NodeId::new(rank / PER)).collect(),
        nodes: (0..HOSTS).map(|n| (NodeId::new(n), site(n))).collect(),
        rendezvous: (NodeId::new(0), 7000),
        agent_store: true,
        in_slurm,
        namespace: 0,
        policy: Some(policy),
        read_policy: |text| parse::policy(text).map_err(|error| error.to_string()),
        known: Vec::new(),
        limits: Limits::default(),
        fault_window: Span::ZERO,
        yield_within: Span::from_secs(30),
        give_up_after: Span::ZERO,
        respawn: false,
        respawn_timeout: Span::from_secs(300),
    }
}

fn enrolled(host: u32, gone: &[u32]) -> Vec<Enrolled> {
    let here = (host * PER..(host + 1) * PER).filter(|rank| !gone.contains(rank));
    here.map(|n| Enrolled { initial: Rank::new(n), proc: ProcId::new(n), keys: Capped::default() }).collect()
}

/// The cost of a round.
#[derive(Clone, Copy, Default)]
struct Cost {
    time: Duration,
    messages: usize,
    /// Bytes to the host that gets most, and from one.
    down: usize,
    up: usize,
}

/// Performs the actions of the machine, and counts the bytes that are sent to each host.
fn drained(machine: &mut Restart, cost: &mut Cost, sent_bytes: &mut [usize]) {
    while let Some(action) = machine.poll_action() {
        if let RestartAction::Send { node, msg } = action {
            let frame = postcard::to_allocvec::<RoundDown>(&msg).unwrap();
            cost.messages += 1;
            sent_bytes[node.index()] += frame.len();
        }
    }
}

/// A process is killed; all hosts answer.
fn round(machine: &mut Restart, number: u32, gone: &mut Vec<u32>) -> Cost {
    let (mut cost, mut sent_bytes) = (Cost::default(), vec![0; HOSTS as usize]);
    let victim = number * 777 + 3;
    gone.push(victim);
    let status = Status::Signaled { sig: Signal::KILL, core: false };
    let answers: Vec<Vec<u8>> = (0..HOSTS)
        .map(|host| {
            let ranks = Capped::chunks(enrolled(host, gone)).pop().unwrap_or_default();
            let round = Round::new(number);
            postcard::to_allocvec(&RoundUp::Ready { round, ranks, last: true, port: 7001, pinged: true }).unwrap()
        })
        .collect();
    cost.up = answers.iter().map(Vec::len).max().unwrap();
    let now = Mono::from_nanos(u64::from(number) * 1_000_000_000);
    let start = Instant::now();
    let (initial, proc) = (Rank::new(victim), ProcId::new(victim));
    machine.handle(now, RestartEvent::Ended { initial, proc, status, at: now });
    drained(machine, &mut cost, &mut sent_bytes);
    for (answer, host) in answers.iter().zip(0..) {
        let RoundUp::Ready { round, ranks, last, port, pinged } = postcard::from_bytes::<RoundUp>(answer).unwrap()
        else {
            continue;
        };
        let (node, ranks) = (NodeId::new(host), ranks.into_vec());
        machine.handle(now, RestartEvent::Ready { node, round, ranks, last, port, pinged });
        drained(machine, &mut cost, &mut sent_bytes);
    }
    cost.time = start.elapsed();
    cost.down = sent_bytes.iter().copied().max().unwrap();
    cost
}

fn measured(what: &str, policy: Policy, in_slurm: bool) {
    let mut machine = Restart::new(setup(policy, in_slurm));
    for host in 0..HOSTS {
        let (node, ranks) = (NodeId::new(host), enrolled(host, &[]));
        machine.handle(Mono::default(), RestartEvent::Joined { call: 0, node, ranks, terms: OsBytes::default() });
    }
    drained(&mut machine, &mut Cost::default(), &mut vec![0; HOSTS as usize]);
    let mut gone = Vec::new();
    let mut costs: Vec<Cost> = (0..ROUNDS).map(|number| round(&mut machine, number, &mut gone)).collect();
    assert_eq!(machine.round(), Some(Round::new(ROUNDS)), "every fault led to a round");
    costs.sort_unstable_by_key(|cost| cost.time);
    let Cost { time, messages, down, up } = costs[costs.len() / 2];
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let worst = milliseconds(costs[costs.len() - 1].time);
    println!(
        "{what:<12}{:8.2} ms   (worst of {ROUNDS}: {worst:.2})   {messages} messages, {down} bytes to a host, {up} from it",
        milliseconds(time)
    );
}

fn main() {
    measured("all,shift", parse::policy("all,shift").unwrap(), false);
    measured("in Slurm", parse::policy("all,shift").unwrap(), true);
    let layer =
        |key, max_ranks| Layer { key, max_ranks, flags: Flags { reserve: true, backfill: true }, ..Layer::default() };
    let layers = vec![layer(Key::Same(String::new()), Some(16_000)), layer(Key::Of(Source::Host), None)];
    measured("a tree", Policy::chain(vec![Stage::Tree(Tree { layers, ..Tree::default() })]), false);
}
