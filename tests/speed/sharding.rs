//! Time of the plan of a sharded call. There are 4,096 workers on 4 axes, and the goal is 2 ms.
//!
//! `cargo run --release -p rlaunch-core --example sharding_speed`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "prints what it measures")]

use rlaunch_plan::dispatch::Sharded;
use rlaunch_plan::sharding::NamedSharding;
use std::time::{Duration, Instant};

const ROUNDS: usize = 101;

fn main() {
    let names = ["data_parallel", "pipeline_parallel", "context_parallel", "tensor_parallel"];
    let sharding =
        NamedSharding::new(vec![64, 8, 2, 4], (0..4096).collect(), names.iter().map(|name| (*name).into()).collect());
    let sharding = sharding.unwrap();
    let call = Sharded {
        in_sharded_axes: &names[..1],
        replicate_on_axes: &names[1..],
        output_is_replicated: &names[1..],
        data: Some(&[64]),
        ..Sharded::default()
    };
    let one = || {
        let start = Instant::now();
        assert_eq!(call.plan(Some(&sharding), 4096).unwrap().calls.len(), 4096);
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| one()).collect();
    times.sort_unstable();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "plan for 4,096 workers {:8.3} ms   (worst of {ROUNDS}: {:.3})",
        milliseconds(times[ROUNDS / 2]),
        milliseconds(times[ROUNDS - 1])
    );
}
