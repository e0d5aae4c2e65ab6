//! The same training as a function that rlaunch runs again in the processes that are left, when one fails.

use crate::data::Digits;
use crate::keep::Keep;
use crate::meet;
use crate::net::Patience;
use crate::options::Options;
use crate::train::train;
use crate::world::World;
use anyhow::{Context, Result};
use rlaunch_client::{Restart, RestartError, Round};
use std::env::VarError;
use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

/// Trains in rounds. The learnt model is kept from one to the next.
pub(crate) fn run(options: &Options, digits: &Digits, out: &mut impl Write) -> Result<()> {
    let mut keep = Keep::default();
    let silence = options.timeout;
    let restart = Restart::builder()
        .soft_timeout(silence)
        .hard_timeout(silence * 3 / 2)
        .barrier_timeout(silence * 2)
        .progress_interval((silence / 4).min(Duration::from_secs(1)))
        .keep_environment();
    match restart.run(|round| in_round(round, options, digits, &mut keep, out)) {
        Ok(_) => Ok(()),
        // The others have enough without this rank; that is no failure.
        Err(RestartError::Discarded(why)) => {
            eprintln!("train: not needed any more: {why}");
            Ok(())
        }
        Err(error) => Err(error).context("no training is possible any more"),
    }
}

fn in_round(round: &Round, options: &Options, digits: &Digits, keep: &mut Keep, out: &mut impl Write) -> Result<()> {
    let world = World::from_environment(|name| var(round, name))?;
    // A rank that is silent for too long is found, and the round ended; so no rank gives up waiting for it before that.
    let patience = Patience { timeout: options.timeout * 4, is_over: &|| round.interrupted() };
    let ring = meet(options, &world, patience)?;
    let streams = ring.streams()?;
    let _ended = round.token().on_interrupt(move || {
        for stream in streams {
            // It may be closed by the other side already.
            stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
    });
    train(options, ring, digits, keep, &mut || Ok(round.ping()?), out)
}

/// A variable of the round; those that are the same in all rounds are in the environment.
fn var(round: &Round, name: &str) -> Result<String, VarError> {
    match round.env().iter().find(|(key, _)| key == name.as_bytes()) {
        Some((_, Some(value))) => Ok(String::from_utf8_lossy(value).into_owned()),
        Some((_, None)) => Err(VarError::NotPresent),
        None => std::env::var(name),
    }
}
