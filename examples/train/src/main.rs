//! A training job as a user would write it: it reads only the environment that every launcher of its kind sets, and knows nothing of rlaunch, but for
//! what is in [`resilient`].
//!
//! Each rank holds a copy of a small network and computes the gradient of its share of every batch; a ring all-reduce adds the shares up, so all
//! copies take the same step. The curve that rank 0 prints is therefore the same for every number of ranks, up to the order of additions.
#![forbid(unsafe_code)]

mod data;
mod keep;
mod model;
mod net;
mod options;
mod rendezvous;
mod resilient;
mod ring;
mod rng;
mod shard;
mod train;
mod world;

use anyhow::{Context, Result};
use keep::Keep;
use net::Patience;
use options::{Asked, Options};
use ring::Ring;
use std::env;
use std::io::Write;
use std::process::ExitCode;
use world::World;

fn main() -> ExitCode {
    let options = match options::parse(env::args_os().skip(1)) {
        Ok(Asked::Train(options)) => options,
        Ok(Asked::Help) => return help(),
        Err(error) => {
            eprintln!("train: {error:#}");
            return ExitCode::from(2);
        }
    };
    let world = match World::from_environment(|name| env::var(name)) {
        Ok(world) => world,
        Err(error) => {
            eprintln!("train: {error:#}");
            return ExitCode::from(2);
        }
    };
    match run(&options, &world) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("train: {}: {error:#}", world.name());
            ExitCode::FAILURE
        }
    }
}

/// Loads the data, meets the other ranks and trains.
fn run(options: &Options, world: &World) -> Result<()> {
    let digits = data::load()?;
    let out = &mut std::io::stdout().lock();
    if options.resilient {
        return resilient::run(options, &digits, out);
    }
    let ring = meet(options, world, Patience::of(options.timeout))?;
    train::train(options, ring, &digits, &mut Keep::default(), &mut || Ok(()), out)
}

/// Meets the other ranks, if there are any.
fn meet(options: &Options, world: &World, patience: Patience<'_>) -> Result<Ring> {
    let Some(master) = &world.master else { return Ok(Ring::alone()) };
    let circle = rendezvous::meet(world, master, &options.agreed(), patience)
        .with_context(|| format!("meeting the other ranks at {master}"))?;
    Ring::close(world.rank, &circle, patience).context("joining the ring")
}

fn help() -> ExitCode {
    match std::io::stdout().lock().write_all(options::HELP.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
