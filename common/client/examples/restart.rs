//! The program of docs/reference/rust.md. Its function begins again when a rank fails.
#![allow(clippy::print_stdout, reason = "an example for users")]
#![allow(clippy::disallowed_methods, reason = "the pause stands for work")]

use rlaunch_client::{Interrupted, Restart, Round};
use std::{thread, time::Duration};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut step = 0; // kept from round to round
    let done = Restart::builder().policy("max=8,shift").run(|round: &Round| -> Result<u32, Interrupted> {
        println!("round {}: {} ranks, from step {step}", round.number(), round.active_world_size());
        while step < 20 {
            round.ping()?; // progress; an error if the round has ended
            thread::sleep(Duration::from_millis(100));
            step += 1;
        }
        Ok(step)
    })?;
    println!("done: {done:?}"); // None: this process was inactive
    Ok(())
}
