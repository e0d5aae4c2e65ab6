//! The world of a job: who is in it, by which number, and who is at work.

use super::assign_error::AssignError;
use super::tree::Topology;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;

/// The role of a process in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Not yet decided.
    #[default]
    Initialized,
    /// The process works.
    Active,
    /// The process waits in reserve.
    Inactive,
    /// The process is gone.
    Terminated,
}

/// A process, for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorldMember {
    /// Its number among all that are healthy; `None`: it is gone.
    pub rank: Option<Rank>,
    /// Its number among those that work.
    pub active_rank: Option<Rank>,
    /// Its role.
    pub mode: Mode,
}

/// All processes of a job that ever were, and what was decided about them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct World {
    /// By initial rank.
    pub(super) members: Vec<WorldMember>,
    /// The initial rank of each rank.
    pub(super) ranks: Vec<u32>,
    /// How many work; `None`: nothing has decided about it.
    pub(super) active: Option<u32>,
    /// The tree of a job whose policy is a tree, once it is built.
    pub(super) topology: Option<Topology>,
}

/// A process cannot join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// The process has not left.
    #[error("initial rank {initial} cannot join: it is in the world, as rank {rank}")]
    Here {
        /// The process.
        initial: Rank,
        /// Its number.
        rank: Rank,
    },
    /// A number that leaves a gap.
    #[error("initial rank {initial} cannot join: the next new one is {next}")]
    Gap {
        /// The process.
        initial: Rank,
        /// The next number that may join.
        next: u32,
    },
}

impl World {
    /// Ranks 0 to `size` - 1, about whom nothing is decided.
    #[must_use]
    pub fn new(size: u32) -> Self {
        let member = |rank| WorldMember { rank: Some(rank), active_rank: None, mode: Mode::Initialized };
        Self {
            members: (0..size).map(Rank::new).map(member).collect(),
            ranks: (0..size).collect(),
            active: None,
            topology: None,
        }
    }

    /// How many are healthy.
    #[must_use]
    pub fn size(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    /// How many work; `None` where no policy decides about that.
    #[must_use]
    pub const fn active_size(&self) -> Option<u32> {
        self.active
    }

    /// All processes, by initial rank.
    #[must_use]
    pub fn members(&self) -> &[WorldMember] {
        &self.members
    }

    /// The initial rank of a rank.
    #[must_use]
    pub fn at(&self, rank: Rank) -> Option<Rank> {
        self.ranks.get(rank.index()).copied().map(Rank::new)
    }

    /// A process comes back, or a new one comes, whose number is the next. It is in reserve, as the last rank, until the next assignment.
    /// With `max`, `divisible` and trees it stays so without `regrow`, unless it replaces another.
    ///
    /// # Errors
    /// It is here, or its number leaves a gap.
    pub fn join(&mut self, initial: Rank) -> Result<(), JoinError> {
        let next = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        if initial.get() > next {
            return Err(JoinError::Gap { initial, next });
        }
        if initial.get() == next {
            self.members.push(WorldMember { mode: Mode::Terminated, ..WorldMember::default() });
        }
        let rank = Rank::new(self.size());
        if let Some(member) = self.members.get_mut(initial.index()) {
            if let Some(rank) = member.rank {
                return Err(JoinError::Here { initial, rank });
            }
            *member = WorldMember { rank: Some(rank), active_rank: None, mode: Mode::Inactive };
            self.ranks.push(initial.get());
            if let Some(topology) = &mut self.topology {
                topology.came(initial.get());
            }
        }
        Ok(())
    }

    /// The same processes for other work, about whom nothing is decided: those that stay, by initial rank, in the order of their ranks.
    #[must_use]
    pub fn renewed(&self, stays: impl Fn(usize) -> bool) -> Self {
        let ranks: Vec<u32> = self.ranks.iter().copied().filter(|initial| stays(*initial as usize)).collect();
        let mut members = vec![WorldMember { mode: Mode::Terminated, ..WorldMember::default() }; self.members.len()];
        for (rank, initial) in (0..).map(Rank::new).zip(&ranks) {
            if let Some(member) = members.get_mut(*initial as usize) {
                *member = WorldMember { rank: Some(rank), ..WorldMember::default() };
            }
        }
        Self { members, ranks, active: None, topology: None }
    }

    /// Which of the ranks are lost.
    pub(super) fn lost(&self, lost: &[Rank]) -> Result<Vec<bool>, AssignError> {
        let mut gone = vec![false; self.ranks.len()];
        for rank in lost {
            match gone.get_mut(rank.index()) {
                Some(gone) => *gone = true,
                None => return Err(AssignError::NoSuchRank { rank: *rank, world: self.size() }),
            }
        }
        Ok(gone)
    }
}
