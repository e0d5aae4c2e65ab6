//! A world while a chain of policies changes it: what becomes of it only when all of them agreed.

use super::Outcome;
use super::assign_error::AssignError;
use super::world::{Mode, World, WorldMember};
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;

/// A world that is being changed.
pub(super) struct Draft {
    members: Vec<WorldMember>,
    /// The initial rank of each rank.
    pub(super) ranks: Vec<u32>,
    /// Ranks that are lost, or discarded, and have not been taken out yet.
    pub(super) gone: Vec<bool>,
    /// How many work, as far as it was decided.
    active: Option<u32>,
}

impl Draft {
    pub(super) fn of(world: &World, gone: Vec<bool>, regrow: bool) -> Self {
        let active = if regrow { None } else { world.active };
        Self { members: world.members.clone(), ranks: world.ranks.clone(), gone, active }
    }

    /// How many there are, lost or not.
    pub(super) fn size(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    /// How many may work before this policy says something about it: never more than in the round before.
    pub(super) fn allowed(&self) -> u32 {
        self.active.map_or(self.size(), |active| active.min(self.size()))
    }

    /// The first `active` ranks work, the others are in reserve.
    pub(super) fn activate(&mut self, active: u32) {
        for (&initial, rank) in self.ranks.iter().zip(0..) {
            if let Some(member) = self.members.get_mut(initial as usize) {
                let works = rank < active;
                member.mode = if works { Mode::Active } else { Mode::Inactive };
                member.active_rank = works.then(|| Rank::new(rank));
            }
        }
        self.active = Some(active);
    }

    /// Sets the ranks from now on; none of them is lost.
    pub(super) fn renumber(&mut self, ranks: Vec<u32>) {
        self.gone = vec![false; ranks.len()];
        self.ranks = ranks;
    }

    /// Writes the chain's result into the world.
    pub(super) fn finish(self, world: &mut World, lost: &[Rank]) -> Result<Outcome, AssignError> {
        if let Some(rank) = self.gone.iter().position(|gone| *gone) {
            let rank = Rank::new(u32::try_from(rank).unwrap_or(u32::MAX));
            return Err(AssignError::NotRenumbered { rank });
        }
        let Self { mut members, ranks, active, .. } = self;
        let mut here = vec![false; members.len()];
        for (&initial, rank) in ranks.iter().zip((0..).map(Rank::new)) {
            if let Some(member) = members.get_mut(initial as usize) {
                member.rank = Some(rank);
                here.get_mut(initial as usize).into_iter().for_each(|here| *here = true);
            }
        }
        let mut asked = vec![false; members.len()];
        for initial in lost.iter().filter_map(|rank| world.at(*rank)) {
            asked.get_mut(initial.index()).into_iter().for_each(|asked| *asked = true);
        }
        let mut discarded = Vec::new();
        for (((member, initial), here), asked) in members.iter_mut().zip((0..).map(Rank::new)).zip(here).zip(asked) {
            if !here && member.rank.is_some() {
                *member = WorldMember { mode: Mode::Terminated, ..WorldMember::default() };
                if !asked {
                    discarded.push(initial);
                }
            }
        }
        (world.members, world.ranks, world.active) = (members, ranks, active);
        Ok(Outcome { discarded, misplaced: None })
    }
}
