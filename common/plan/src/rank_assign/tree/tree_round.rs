//! A round of a tree, step by step as NVRx's documentation has them.

use super::topology::Topology;
use super::tree_spec::{Layer, Tree};
use crate::rank_assign::Outcome;
use crate::rank_assign::assign_error::AssignError;
use crate::rank_assign::key::Keys;
use crate::rank_assign::world::{Mode, World, WorldMember};
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;

/// A round that is being decided.
pub(super) struct TreeAssignment<'a> {
    pub(super) tree: &'a Tree,
    pub(super) topology: Topology,
    /// By initial rank.
    pub(super) members: Vec<WorldMember>,
    /// How many work.
    pub(super) active: u32,
}

/// Decides a round. `gone` says which ranks are lost.
pub(crate) fn assign(
    tree: &Tree,
    regrow: bool,
    world: &mut World,
    gone: Vec<bool>,
    keys: &dyn Keys,
) -> Result<Outcome, AssignError> {
    let fresh = world.topology.is_none();
    let mut grown = None;
    if world.topology.as_ref().is_none_or(|topology| topology.lacks(&world.members)) {
        let mut topology = world.topology.clone().unwrap_or_default();
        let new = topology.grow(tree, &world.members, keys)?;
        new.into_iter().filter(|_| !fresh).for_each(|initial| topology.wait(initial));
        grown = Some(topology);
    }
    // Nothing can fail from here.
    let topology = grown.or_else(|| world.topology.take()).unwrap_or_default();
    let misplaced = if fresh { topology.misplaced() } else { None };
    let active = world.active.unwrap_or_default();
    let mut round = TreeAssignment { tree, topology, members: core::mem::take(&mut world.members), active };
    if fresh {
        round.activate_first();
    }
    let asked: Vec<u32> = marked(&world.ranks, &gone).collect();
    let all = round.end_small_groups(&asked);
    let dead = round.terminate(&world.ranks, &all);
    let left = round.replace(&dead);
    if !left.is_empty() {
        let holes = round.backfill(&left);
        round.shift(&left, &holes);
    }
    if regrow {
        round.regrow();
    } else {
        round.filter();
    }
    let discarded = round.finish(world, &asked, &all);
    Ok(Outcome { discarded, misplaced })
}

/// The initial ranks of marked ranks.
fn marked<'a>(ranks: &'a [u32], marks: &'a [bool]) -> impl Iterator<Item = u32> + 'a {
    ranks.iter().zip(marks).filter(|(_, mark)| **mark).map(|(initial, _)| *initial)
}

impl TreeAssignment<'_> {
    pub(super) fn layer(&self, node: usize) -> Option<&Layer> {
        self.topology.nodes.get(node).and_then(|node| self.tree.layers.get(node.layer))
    }

    pub(super) fn member(&self, initial: u32) -> WorldMember {
        self.members.get(initial as usize).copied().unwrap_or_default()
    }

    /// A rank works from now on.
    pub(super) fn activate(&mut self, initial: u32, active_rank: Option<Rank>) {
        if let Some(member) = self.members.get_mut(initial as usize) {
            (member.mode, member.active_rank) = (Mode::Active, active_rank);
        }
    }

    /// A rank waits from now on.
    pub(super) fn deactivate(&mut self, initial: u32) {
        if let Some(member) = self.members.get_mut(initial as usize) {
            (member.mode, member.active_rank) = (Mode::Inactive, None);
            self.topology.wait(initial);
        }
    }

    /// Whether all groups of a rank take one more, by how many of each work.
    pub(super) fn fits(&self, initial: u32, working: &[u32]) -> bool {
        let fits = |at: usize| {
            let most = self.layer(at).and_then(|layer| layer.max_ranks);
            most.is_none_or(|most| working.get(at).is_none_or(|count| *count < most))
        };
        self.topology.groups(initial).all(fits)
    }

    /// Counts a rank that works in all of its groups.
    pub(super) fn count(&self, initial: u32, working: &mut [u32]) {
        for at in self.topology.groups(initial) {
            working.get_mut(at).into_iter().for_each(|count| *count += 1);
        }
    }

    /// How many work, of each group.
    pub(super) fn working(&self) -> Vec<u32> {
        self.totals(|member, _| member.mode == Mode::Active)
    }

    fn totals(&self, counts: impl Fn(&WorldMember, usize) -> bool) -> Vec<u32> {
        let mut totals = vec![0; self.topology.nodes.len()];
        for ((leaf, member), initial) in self.topology.leaves.iter().zip(&self.members).zip(0..) {
            if counts(member, initial) {
                leaf.parent.and_then(|at| totals.get_mut(at)).into_iter().for_each(|total| *total += 1);
            }
        }
        for at in (0..totals.len()).rev() {
            let parent = self.topology.nodes.get(at).and_then(|node| node.parent);
            let own: u32 = totals.get(at).copied().unwrap_or_default();
            parent.and_then(|parent| totals.get_mut(parent)).into_iter().for_each(|total| *total += own);
        }
        totals
    }

    /// The first time: in the order of the tree all work for whom there is room.
    fn activate_first(&mut self) {
        let mut working = vec![0; self.topology.nodes.len()];
        let order = core::mem::take(&mut self.topology.order);
        self.active = 0;
        for &initial in &order {
            if self.fits(initial, &working) {
                self.activate(initial, Some(Rank::new(self.active)));
                self.count(initial, &mut working);
                self.active += 1;
            } else {
                self.deactivate(initial);
            }
        }
        self.topology.order = order;
    }

    /// Groups with too few healthy ranks are gone whole, which may leave too few in the group above. Says who is gone then, by
    /// initial rank.
    fn end_small_groups(&self, asked: &[u32]) -> Vec<bool> {
        let mut gone = vec![false; self.members.len()];
        for initial in asked {
            gone.get_mut(*initial as usize).into_iter().for_each(|gone| *gone = true);
        }
        let mut healthy = vec![0_u32; self.topology.nodes.len()];
        for ((leaf, member), gone) in self.topology.leaves.iter().zip(&self.members).zip(&gone) {
            if member.mode != Mode::Terminated && !gone {
                leaf.parent.and_then(|at| healthy.get_mut(at)).into_iter().for_each(|count| *count += 1);
            }
        }
        for at in (0..healthy.len()).rev() {
            let own = healthy.get(at).copied().unwrap_or_default();
            let enough = self.layer(at).is_none_or(|layer| own >= layer.min_ranks);
            if enough {
                let parent = self.topology.nodes.get(at).and_then(|node| node.parent);
                parent.and_then(|parent| healthy.get_mut(parent)).into_iter().for_each(|count| *count += own);
                continue;
            }
            for &initial in self.topology.below(at) {
                if self.member(initial).mode != Mode::Terminated {
                    gone.get_mut(initial as usize).into_iter().for_each(|gone| *gone = true);
                }
            }
        }
        gone
    }

    /// Ends the work of ranks that are gone. Says who of them did, by their rank.
    fn terminate(&mut self, ranks: &[u32], gone: &[bool]) -> Vec<u32> {
        let mut dead = Vec::new();
        for &initial in ranks {
            if gone.get(initial as usize).is_some_and(|gone| *gone)
                && let Some(member) = self.members.get_mut(initial as usize)
            {
                if member.mode == Mode::Active {
                    dead.push(initial);
                }
                member.mode = Mode::Terminated;
            }
        }
        dead
    }

    /// Removes active ranks whose place no other took; numbers above a hole close up.
    fn shift(&mut self, left: &[u32], holes: &[Rank]) {
        self.active = self.active.saturating_sub(u32::try_from(left.len()).unwrap_or(u32::MAX));
        for member in self.members.iter_mut().filter(|member| member.mode == Mode::Active) {
            if let Some(rank) = &mut member.active_rank {
                let below = holes.partition_point(|hole| hole < rank);
                *rank = Rank::new(rank.get().saturating_sub(u32::try_from(below).unwrap_or(u32::MAX)));
            }
        }
    }

    /// Reduces the number of active ranks, if the filter demands it.
    fn filter(&mut self) {
        let could = self.active;
        let Some(filter) = &self.tree.filter else { return };
        self.shrink(filter.of(could));
    }

    /// Lets ranks above a number wait.
    pub(super) fn shrink(&mut self, active: u32) {
        let order = core::mem::take(&mut self.topology.order);
        for &initial in &order {
            let member = self.member(initial);
            if member.mode == Mode::Active && member.active_rank.is_some_and(|rank| rank.get() >= active) {
                self.deactivate(initial);
            }
        }
        self.topology.order = order;
        self.active = active;
    }

    /// Numbers all who are healthy in the order of the tree. Returns the discarded ranks.
    fn finish(mut self, world: &mut World, asked: &[u32], gone: &[bool]) -> Vec<Rank> {
        let mut discarded = gone.to_vec();
        for initial in asked {
            discarded.get_mut(*initial as usize).into_iter().for_each(|mine| *mine = false);
        }
        world.ranks.clear();
        for &initial in &self.topology.order {
            let Some(member) = self.members.get_mut(initial as usize) else { continue };
            if member.mode == Mode::Terminated {
                (member.rank, member.active_rank) = (None, None);
            } else {
                member.rank = u32::try_from(world.ranks.len()).ok().map(Rank::new);
                world.ranks.push(initial);
            }
        }
        self.topology.tidy(&self.members);
        world.members = self.members;
        world.active = Some(self.active);
        world.topology = Some(self.topology);
        (0..).map(Rank::new).zip(discarded).filter(|(_, mine)| *mine).map(|(initial, _)| initial).collect()
    }
}
