//! The roles of ranks after a loss: the policies that give ranks their numbers, as pure functions over a [`World`].
//!
//! The policies and their results are those of NVIDIA's resiliency extension (NVRx, `inprocess.rank_assignment`), whose users
//! know them by name; `tests/golden/vectors` has what its own code answers. There every rank computes all of it. Here it is
//! computed once, so that a policy is a function of the whole world and a group is counted where it is seen.
//!
//! Two numberings: a *rank* counts all healthy processes, an *active rank* those that work. The program gets the latter as RANK. An
//! *initial rank* names a process for good.

mod activate_all;
mod assign_error;
mod chain;
mod divisible;
mod draft;
mod fill;
mod group;
mod key;
mod max_active;
pub mod parse;
mod shift;
#[cfg(test)]
mod tests;
mod tree;
mod world;

pub use assign_error::{AssignError, Misplaced};
pub use chain::{IllFormed, Policy, Stage};
pub use group::{Condition, Group};
pub use key::{Key, Keys, Numbers, Source, Value};
pub use tree::{Filter, Flags, Grows, Layer, Tree};
pub use world::{JoinError, Mode, World, WorldMember};

use alloc::vec::Vec;
use draft::Draft;
use rlaunch_base::id::Rank;

/// The effects of an assignment beside the change of the world.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Healthy ranks that the policy sends home, by initial rank.
    pub discarded: Vec<Rank>,
    /// The order of the ranks was not that of the tree; said once, when the tree is built.
    pub misplaced: Option<Misplaced>,
}

/// Gives every healthy rank its number, and decides which ranks are active. `lost` are current ranks, in any order; none before the first
/// round. A world without ranks afterwards ([`World::size`] is 0) is no error here.
///
/// # Errors
/// The world stays as it was.
pub fn assign(policy: &Policy, world: &mut World, lost: &[Rank], keys: &dyn Keys) -> Result<Outcome, AssignError> {
    let gone = world.lost(lost)?;
    if let [Stage::Tree(tree)] = policy.stages.as_slice() {
        return tree::assign(tree, policy.regrow, world, gone, keys);
    }
    let mut draft = Draft::of(world, gone, policy.regrow);
    for stage in policy.stages.iter().rev() {
        match stage {
            Stage::ActivateAll => activate_all::apply(&mut draft),
            Stage::MaxActive(max) => max_active::apply(*max, &mut draft),
            Stage::Divisible(by) => divisible::apply(*by, &mut draft),
            Stage::Shift => shift::apply(&mut draft),
            Stage::Fill => fill::apply(&mut draft),
            Stage::Group(group) => group.apply(&mut draft, keys)?,
            Stage::Tree(_) => {
                return Err(policy.check().err().map_or(AssignError::TreeAmongOthers, AssignError::Chain));
            }
        }
    }
    draft.finish(world, lost)
}
