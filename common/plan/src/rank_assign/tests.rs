//! Beside the vectors: what holds for every policy and every loss, refusals, and rlaunch's own options.

mod chains;
mod properties;
mod trees;
mod words;

use super::*;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// Two letters for each initial rank would be too much: its active rank, `r` in reserve, `.` gone, `?` undecided.
fn shown(world: &World) -> String {
    let one = |member: &WorldMember| match (member.mode, member.active_rank) {
        (Mode::Active, Some(rank)) => rank.to_string(),
        (Mode::Active, None) => "!".into(),
        (Mode::Inactive, _) => "r".into(),
        (Mode::Terminated, _) => ".".into(),
        (Mode::Initialized, _) => "?".into(),
    };
    world.members().iter().map(one).collect::<Vec<_>>().join(" ")
}

fn ranks(list: &[u32]) -> Vec<Rank> {
    list.iter().copied().map(Rank::new).collect()
}
