//! A rank that goes through many rounds, for tests and for measurements: in each of them another one fails.
//!
//! `soak_rank DIRECTORY ROUND...`: in these rounds the rank that is to fail prints that to stdout, and waits for a write to the pipe `go`
//! there. In the last of them no rank fails: the work is done.

use rlaunch_client::{Restart, Round};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn body(round: &Round, pipe: &Path, stops: &[u32]) -> io::Result<()> {
    if round.ping().is_err() {
        return Ok(());
    }
    let last = stops.last().copied().unwrap_or_default();
    if round.active_rank() != Some(round.number() % round.active_world_size()) {
        let ends = round.number() == last || round.token().wait(Duration::from_secs(3600));
        return if ends { Ok(()) } else { Err(io::Error::other("no other rank has failed")) };
    }
    if stops.contains(&round.number()) {
        io::stdout().write_all(format!("round {}\n", round.number()).as_bytes())?;
        File::open(pipe)?.read_exact(&mut [0; 1])?;
    }
    if round.number() == last { Ok(()) } else { Err(io::Error::other("told to fail")) }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let directory = PathBuf::from(words.next().ok_or("usage: soak_rank DIRECTORY ROUND...")?);
    let stops: Vec<u32> = words.filter_map(|word| word.to_str()?.parse().ok()).collect();
    let pipe = directory.join("go");
    Restart::builder().run(|round| body(round, &pipe, &stops))?;
    Ok(())
}
