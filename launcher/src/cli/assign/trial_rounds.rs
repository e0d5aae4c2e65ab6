//! The rounds of a trial: what is lost or comes back, in the order of the command line, and what the policy makes of it.

use super::keys::Named;
use super::{CliError, Said, ranks, refuse};
use crate::view::assign::{RankFates, Round};
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::rank_assign::{self, AssignError, Key, Policy, Source, World};
use std::borrow::Cow;

/// The losses and joins that begin a round.
#[derive(Debug)]
pub(super) struct Step {
    said: Said,
    ranks: Vec<Rank>,
    joins: bool,
}

impl Step {
    pub(super) fn lose(said: Said) -> Result<Self, CliError> {
        Ok(Self { ranks: ranks(&said)?, said, joins: false })
    }

    pub(super) fn join(said: Said) -> Result<Self, CliError> {
        Ok(Self { ranks: ranks(&said)?, said, joins: true })
    }
}

pub(super) fn play(policy: Policy, size: u32, keys: Named, steps: &[Step]) -> Result<RankFates, CliError> {
    let mut world = World::new(size);
    let mut fates = RankFates { policy, hosts: Vec::new(), note: None, rounds: Vec::new() };
    let start = OsBytes::from("--assign");
    round(&mut fates, &mut world, [&[], &[]], &keys).map_err(|error| explain(&start, &error))?;
    for step in steps {
        let of = OsBytes::from(format!("{}, round {}", step.said.option, fates.rounds.len()));
        let (mut lost, mut joined) = (&[][..], &[][..]);
        if step.joins {
            joined = &step.ranks;
            joined.iter().try_for_each(|initial| world.join(*initial)).map_err(|error| CliError::Assign {
                at: of.to_string(),
                what: error.to_string(),
                hint: Some("initial ranks that are gone, or the next new one".into()),
            })?;
        } else {
            lost = &step.ranks;
        }
        round(&mut fates, &mut world, [lost, joined], &keys).map_err(|error| explain(&of, &error))?;
    }
    let all = u32::try_from(world.members().len()).unwrap_or(u32::MAX);
    fates.hosts = (0..all).map(|initial| keys.host(initial)).collect();
    Ok(fates)
}

/// Plays a round.
fn round(
    fates: &mut RankFates,
    world: &mut World,
    [lost, joined]: [&[Rank]; 2],
    keys: &Named,
) -> Result<(), AssignError> {
    let mut gone: Vec<Rank> = lost.iter().filter_map(|rank| world.at(*rank)).collect();
    gone.sort_unstable();
    let outcome = rank_assign::assign(&fates.policy, world, lost, keys)?;
    fates.note = fates.note.take().or_else(|| outcome.misplaced.map(|misplaced| misplaced.to_string()));
    fates.rounds.push(Round {
        lost: gone,
        joined: joined.to_vec(),
        discarded: outcome.discarded,
        size: world.size(),
        active: world.active_size().unwrap_or_default(),
        members: world.members().to_vec(),
    });
    Ok(())
}

/// An error, with what to do about it here.
fn explain(of: &OsBytes, error: &AssignError) -> CliError {
    let hint: Option<Cow<'static, str>> = match error {
        AssignError::UnknownKey { key: Key::Of(Source::Host), .. } => {
            Some("--ranks-per-host 8   or   -H node[0-3]:8".into())
        }
        AssignError::UnknownKey { key: Key::Of(source), .. } => Some(format!("--ranks-per {source}=16").into()),
        AssignError::NoSuchRank { .. } => {
            Some("the numbers of that round, not the initial ones: those in brackets, or alone".into())
        }
        AssignError::UnknownKey { .. }
        | AssignError::Roots { .. }
        | AssignError::Chain(_)
        | AssignError::TreeAmongOthers
        | AssignError::NoLayer
        | AssignError::NotRenumbered { .. } => return refuse(of, error),
    };
    CliError::Assign { at: of.to_string(), what: error.to_string(), hint }
}
