//! The job machine and the node machine in one thread, on a virtual clock, through the real frames and messages: a seed fixes
//! what the ranks do, how long everything takes, and what goes wrong when.
//!
//! After every step the promises are checked: each process is started once and reaped once, no signal goes to a number that may belong to
//! another process, no process outlives the job, the job ends, and it ends by its first cause.
#![forbid(unsafe_code)]

mod agent;
mod check;
mod discovery;
mod generations;
mod guardian;
mod host;
mod kernel;
mod launcher;
mod link;
mod plan;
mod rng;
mod rounds;
mod scheduler;
mod site;
mod slices;
mod srun;
mod still;
mod truth;
mod ways;
mod world;
mod worlds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Kind, World};

/// Runs one seed.
///
/// # Errors
/// The broken promise, with the log of all events up to it.
pub fn run(seed: u64) -> Result<(), String> {
    attempt(seed, Kind::Plain)
}

/// Runs the same job with the same faults, on a host that is suspended now and then, or under a launcher that is: no part may be ended,
/// given up or lost because of that alone.
///
/// # Errors
/// The broken promise, with the log of all events up to it.
pub fn run_standing(seed: u64) -> Result<(), String> {
    attempt(seed, Kind::Standing)
}

/// Runs a job on several hosts: some may not be reached, are lost, cut off or stopped, and their clocks run apart.
///
/// # Errors
/// The broken promise, with the log of all events up to it.
pub fn run_hosts(seed: u64) -> Result<(), String> {
    attempt(seed, Kind::Hosts)
}

/// Runs a job whose ranks are started again when one of them fails, on one host or several: no two generations ever run at once.
///
/// # Errors
/// The broken promise, with the log of all events up to it.
pub fn run_restarts(seed: u64) -> Result<(), String> {
    attempt(seed, Kind::Restarts)
}

/// Runs the jobs of [`run_restarts`] in a scheduler's step: it warns hosts by signals, and kills what is left some time later.
///
/// # Errors
/// The broken promise, with the log of all events up to it.
pub fn run_scheduled(seed: u64) -> Result<(), String> {
    attempt(seed, Kind::Scheduled)
}

/// Runs a job on slices, of which hosts are lost, warned, late and back again: its ranks always have whole slices, and two generations
/// never run at once.
///
/// # Errors
/// The broken promise, with the log of all events up to it.
pub fn run_slices(seed: u64) -> Result<(), String> {
    attempt(seed, Kind::Slices)
}

/// Runs a job with groups, a program that leads, and worlds that its ranks ask for: it ends with the program that leads, and no rank of
/// any world is left.
///
/// # Errors
/// The broken promise, with the log of all events up to it.
pub fn run_worlds(seed: u64) -> Result<(), String> {
    attempt(seed, Kind::Worlds)
}

/// Runs a job whose function is begun again in the same processes when ranks or hosts are lost: no rank begins a round while another is
/// still in an earlier one.
///
/// # Errors
/// The broken promise, with the log of all events up to it.
pub fn run_rounds(seed: u64) -> Result<(), String> {
    let attempt = |logged: bool| {
        let ran = catch_unwind(AssertUnwindSafe(|| rounds::attempt(seed, logged)));
        ran.unwrap_or_else(|_| Some(("a panic".to_owned(), Vec::new())))
    };
    if attempt(false).is_none() {
        return Ok(());
    }
    let (what, log) = attempt(true).unwrap_or_default();
    Err(format!("seed {seed}, rounds: {what}\n{}\nseed {seed}, rounds: {what}", log.join("\n")))
}

fn attempt(seed: u64, kind: Kind) -> Result<(), String> {
    let attempt = |logged: bool| {
        let mut world = World::new(seed, kind, logged);
        let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
        let broken = ran.unwrap_or_else(|_| Some("a panic".to_owned()));
        broken.map(|what| (what, world.log()))
    };
    if attempt(false).is_none() {
        return Ok(());
    }
    let (what, log) = attempt(true).unwrap_or_default();
    let seed = match kind {
        Kind::Plain => format!("seed {seed}"),
        Kind::Standing => format!("seed {seed}, standing still"),
        Kind::Hosts => format!("seed {seed}, several hosts"),
        Kind::Restarts => format!("seed {seed}, restarts"),
        Kind::Scheduled => format!("seed {seed}, in a scheduler's step"),
        Kind::Slices => format!("seed {seed}, slices"),
        Kind::Worlds => format!("seed {seed}, worlds"),
    };
    Err(format!("{seed}: {what}\n{}\n{seed}: {what}", log.join("\n")))
}

/// A seed from any text: the first of those that stand for it.
#[must_use]
pub fn seed_of(text: &str) -> u64 {
    // FNV-1a: the same on every machine and in every version.
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
