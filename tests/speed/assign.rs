//! How long a tree takes to assign 16,384 ranks in 3 layers; the goal is 5 ms.
//!
//! `cargo run --release -p rlaunch-core --example assign_speed`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "says what it measures")]

use rlaunch_base::id::Rank;
use rlaunch_plan::rank_assign::{Flags, Key, Keys, Layer, Numbers, Policy, Source, Stage, Tree, World, assign};
use std::borrow::Cow;
use std::time::{Duration, Instant};

const WORLD: u32 = 16_384;
const ROUNDS: usize = 21;

/// Names of 64 racks and 2,048 hosts.
struct Site {
    racks: Vec<String>,
    hosts: Vec<String>,
}

impl Keys for Site {
    fn value(&self, source: &Source, who: Numbers) -> Option<Cow<'_, str>> {
        let at = who.initial.index();
        let name = if *source == Source::Rack { self.racks.get(at / 256) } else { self.hosts.get(at / 8) };
        name.map(|name| name.as_str().into())
    }
}

fn layer(key: Key, max_ranks: Option<u32>) -> Layer {
    Layer { key, max_ranks, flags: Flags { reserve: true, backfill: true }, ..Layer::default() }
}

fn measured(what: &str, mut one: impl FnMut() -> Duration) {
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| one()).collect();
    times.sort_unstable();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{what:<28}{:8.2} ms   (worst of {ROUNDS}: {:.2})",
        milliseconds(times[ROUNDS / 2]),
        milliseconds(times[ROUNDS - 1])
    );
}

fn main() {
    let name = |kind: &str, n: u32| (0..n).map(|n| format!("{kind}{n:04}")).collect();
    let site = Site { racks: name("rack", 64), hosts: name("node", 2_048) };
    let layers = vec![
        layer(Key::Same(String::new()), None),
        layer(Key::Of(Source::Rack), Some(252)),
        layer(Key::Of(Source::Host), None),
    ];
    let policy = Policy::chain(vec![Stage::Tree(Tree { layers, ..Tree::default() })]);
    let lost = |step: usize| (0..WORLD).step_by(step).map(Rank::new).collect::<Vec<_>>();
    let timed = |world: &mut World, lost: &[Rank]| {
        let start = Instant::now();
        assign(&policy, world, lost, &site).unwrap();
        start.elapsed()
    };
    measured("built, and the first round", || timed(&mut World::new(WORLD), &[]));
    let mut first = World::new(WORLD);
    assign(&policy, &mut first, &[], &site).unwrap();
    measured("1 lost", || timed(&mut first.clone(), &lost(WORLD as usize)));
    measured("1 of 16 lost", || timed(&mut first.clone(), &lost(16)));
    measured("1 of 2 lost", || timed(&mut first.clone(), &lost(2)));
}
