//! A rank that says when it begins a round, and waits until it ends: for `scripts/bench rounds`.
//!
//! `blocked_rank DIRECTORY`: rank 1 fails after a write to the pipe `fail` there.

use rlaunch_client::{Restart, Round};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

fn body(round: &Round, pipe: &PathBuf) -> io::Result<()> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    let at = now.tv_sec() * 1_000_000_000 + now.tv_nsec();
    let rank = round.active_rank().unwrap_or_default();
    let line = format!("begin {} {rank} {} {at}\n", round.number(), std::process::id());
    io::stdout().write_all(line.as_bytes())?;
    if round.number() == 0 && rank == 1 {
        let mut word = [0; 1];
        File::open(pipe)?.read_exact(&mut word)?;
        return Err(io::Error::other("told to fail"));
    }
    while !round.token().wait(Duration::from_secs(3600)) {}
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: blocked_rank DIRECTORY")?);
    let pipe = directory.join("fail");
    Restart::builder().run(|round| body(round, &pipe))?;
    Ok(())
}
