//! The tree as it stands: which groups there are, who belongs to them, and who waits in them.

use super::tree_spec::Tree;
use crate::rank_assign::assign_error::{AssignError, Misplaced};
use crate::rank_assign::key::{Keys, Numbers, Owned, Value};
use crate::rank_assign::world::{Mode, WorldMember};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use rlaunch_base::id::Rank;
use rlaunch_base::rank_set::RankSet;

/// Most values of a key that a message needs.
const LISTED: usize = 8;

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    /// The group that it is part of; it was made before.
    pub(super) parent: Option<usize>,
    /// Its layer, the root's is 0.
    pub(super) layer: usize,
    name: Owned,
    /// In the order in which they were first seen.
    children: Vec<usize>,
    /// Its ranks: a run of those in the order of the tree.
    pub(super) leaves: Range<usize>,
    /// Ranks that have begun to wait below it, and when. Some have stopped since: the time shows it.
    pub(super) waiting: Vec<(u32, u64)>,
}

/// A rank's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Leaf {
    /// Its group; `None`: it was gone before the tree was built, and who it belongs to is asked when it is back.
    pub(super) parent: Option<usize>,
    /// Since when it waits, if it does.
    since: u64,
}

/// A tree of groups with its ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Topology {
    /// Root first; each node after its parent.
    pub(super) nodes: Vec<Node>,
    /// By initial rank.
    pub(super) leaves: Vec<Leaf>,
    /// Initial ranks in the order of the tree: those that have a group.
    pub(super) order: Vec<u32>,
    by_name: BTreeMap<(usize, Owned), usize>,
    /// Counts those who begin to wait: who began last is the first to be called.
    clock: u64,
}

impl Topology {
    /// Whether any member has no group.
    pub(super) fn lacks(&self, members: &[WorldMember]) -> bool {
        self.homeless(members).next().is_some()
    }

    fn homeless(&self, members: &[WorldMember]) -> impl Iterator<Item = u32> {
        let has_none = |at: usize| self.leaves.get(at).is_none_or(|leaf| leaf.parent.is_none());
        let all = members.iter().enumerate().filter(move |(at, member)| member.rank.is_some() && has_none(*at));
        all.filter_map(|(at, _)| u32::try_from(at).ok())
    }

    /// Gives groups to those who are there and have none yet. Says who they are.
    pub(super) fn grow(
        &mut self,
        tree: &Tree,
        members: &[WorldMember],
        keys: &dyn Keys,
    ) -> Result<Vec<u32>, AssignError> {
        let Some((root, below)) = tree.layers.split_first() else { return Err(AssignError::NoLayer) };
        // Ranks of a group mostly follow each other: group above, group, and its name, of each layer.
        let mut last: Vec<(usize, usize, Value<'_>)> = Vec::new();
        let mut known: Option<Value<'_>> = None;
        let mut roots = Roots::default();
        let homeless: Vec<u32> = self.homeless(members).collect();
        self.leaves.resize(self.leaves.len().max(members.len()), Leaf { parent: None, since: 0 });
        for &initial in &homeless {
            let own = members.get(initial as usize).and_then(|member| member.rank);
            let numbers = Numbers { initial: Rank::new(initial), rank: own.unwrap_or(Rank::new(initial)) };
            let value = root.key.of(numbers, keys)?;
            if !known.as_ref().is_some_and(|known| known.same(&value)) {
                match self.nodes.first() {
                    Some(node) if !node.name.is(&value) => roots.other(value.to_string(), initial),
                    Some(_) => known = Some(value),
                    None => {
                        self.nodes.push(Node::new(None, 0, Owned::from(value.clone())));
                        known = Some(value);
                    }
                }
            }
            let mut node = 0;
            for (layer, depth) in below.iter().zip(1..) {
                let value = layer.key.of(numbers, keys)?;
                let slot = last.get_mut(depth - 1);
                if let Some((parent, at, known)) = &slot
                    && *parent == node
                    && known.same(&value)
                {
                    node = *at;
                    continue;
                }
                let at = self.child(node, depth, Owned::from(value.clone()));
                match slot {
                    Some(slot) => *slot = (node, at, value),
                    None => last.push((node, at, value)),
                }
                node = at;
            }
            self.leaves.get_mut(initial as usize).into_iter().for_each(|leaf| leaf.parent = Some(node));
        }
        roots.check(self.nodes.first(), &self.leaves)?;
        self.lay_out();
        Ok(homeless)
    }

    /// The group of this name, made if it is new.
    fn child(&mut self, parent: usize, layer: usize, name: Owned) -> usize {
        let next = self.nodes.len();
        let at = *self.by_name.entry((parent, name.clone())).or_insert(next);
        if at == next {
            self.nodes.push(Node::new(Some(parent), layer, name));
            self.nodes.get_mut(parent).into_iter().for_each(|node| node.children.push(at));
        }
        at
    }

    /// Finds the order of the tree: depth first, groups and ranks as they were first seen.
    fn lay_out(&mut self) {
        let mut own = vec![0; self.nodes.len()];
        for leaf in &self.leaves {
            leaf.parent.and_then(|at| own.get_mut(at)).into_iter().for_each(|own| *own += 1);
        }
        let (mut next, mut path) = (0, vec![(0, 0)]);
        while let Some((at, child)) = path.pop() {
            let Some(node) = self.nodes.get_mut(at) else { continue };
            if child == 0 {
                node.leaves.start = next;
                next += own.get(at).copied().unwrap_or_default();
            }
            node.leaves.end = next;
            if let Some(below) = node.children.get(child) {
                path.extend([(at, child + 1), (*below, 0)]);
            }
        }
        let mut free: Vec<usize> = self.nodes.iter().map(|node| node.leaves.start).collect();
        self.order = vec![0; next];
        for (leaf, initial) in self.leaves.iter().zip(0..) {
            if let Some(place) = leaf.parent.and_then(|at| free.get_mut(at)) {
                self.order.get_mut(*place).into_iter().for_each(|slot| *slot = initial);
                *place += 1;
            }
        }
    }

    /// Whether the first ranks were in the order of the tree.
    pub(super) fn misplaced(&self) -> Option<Misplaced> {
        let mut first_order = self.order.clone();
        first_order.sort_unstable();
        let places = self.order.iter().zip(&first_order).zip(0..);
        let mut wrong = places.filter(|((initial, wanted), _)| initial != wanted);
        let ((first, _), place) = wrong.next()?;
        let count = 1 + u32::try_from(wrong.count()).unwrap_or(u32::MAX);
        let world = u32::try_from(self.order.len()).unwrap_or(u32::MAX);
        Some(Misplaced { count, world, first: Rank::new(*first), place: Rank::new(place) })
    }

    /// The groups that a rank belongs to, the smallest first.
    pub(super) fn groups(&self, initial: u32) -> impl Iterator<Item = usize> + '_ {
        let first = self.leaves.get(initial as usize).and_then(|leaf| leaf.parent);
        core::iter::successors(first, |at| self.nodes.get(*at).and_then(|node| node.parent))
    }

    /// The ranks of a group.
    pub(super) fn below(&self, node: usize) -> &[u32] {
        self.nodes.get(node).and_then(|node| self.order.get(node.leaves.clone())).unwrap_or_default()
    }

    /// A rank that had left, and has a place, is back.
    pub(crate) fn came(&mut self, initial: u32) {
        self.wait(initial);
    }

    /// From now on a rank waits, in all of its groups.
    pub(super) fn wait(&mut self, initial: u32) {
        self.clock += 1;
        let since = self.clock;
        let Some(leaf) = self.leaves.get_mut(initial as usize) else { return };
        leaf.since = since;
        let mut at = leaf.parent;
        while let Some(node) = at.and_then(|at| self.nodes.get_mut(at)) {
            node.waiting.push((initial, since));
            at = node.parent;
        }
    }

    /// Whether a rank still waits that began to at that time.
    pub(super) fn waits(&self, members: &[WorldMember], (initial, since): (u32, u64)) -> bool {
        members.get(initial as usize).is_some_and(|member| member.mode == Mode::Inactive)
            && self.leaves.get(initial as usize).is_some_and(|leaf| leaf.since == since)
    }

    /// Fails where more of a group work than it takes.
    #[cfg(test)]
    pub(crate) fn within(&self, tree: &Tree, members: &[WorldMember]) {
        for (node, at) in self.nodes.iter().zip(0..) {
            let works = |initial: &&u32| members.get(**initial as usize).is_some_and(|one| one.mode == Mode::Active);
            let count = self.below(at).iter().filter(works).count();
            assert!(tree.layers[node.layer].max_ranks.is_none_or(|most| count <= most as usize), "{members:?}");
        }
    }

    /// The longest list of those who wait.
    #[cfg(test)]
    pub(crate) fn longest(&self) -> usize {
        self.nodes.iter().map(|node| node.waiting.len()).max().unwrap_or_default()
    }

    /// Forgets those who have stopped waiting, where they have become more than the others can be.
    pub(super) fn tidy(&mut self, members: &[WorldMember]) {
        for at in 0..self.nodes.len() {
            let Some(node) = self.nodes.get_mut(at) else { continue };
            if node.waiting.len() > 2 * node.leaves.len() {
                let mut waiting = core::mem::take(&mut node.waiting);
                waiting.retain(|entry| self.waits(members, *entry));
                self.nodes.get_mut(at).into_iter().for_each(|node| node.waiting = core::mem::take(&mut waiting));
            }
        }
    }
}

impl Node {
    const fn new(parent: Option<usize>, layer: usize, name: Owned) -> Self {
        Self { parent, layer, name, children: Vec::new(), leaves: 0..0, waiting: Vec::new() }
    }
}

/// The keys of the root, of which there may be one.
#[derive(Default)]
struct Roots {
    others: BTreeMap<String, RankSet>,
}

impl Roots {
    fn other(&mut self, value: String, initial: u32) {
        self.others.entry(value).or_default().insert(Rank::new(initial));
    }

    fn check(self, root: Option<&Node>, leaves: &[Leaf]) -> Result<(), AssignError> {
        if self.others.is_empty() {
            return Ok(());
        }
        let count = self.others.len() + 1;
        let placed = leaves.iter().zip((0..).map(Rank::new)).filter(|(leaf, _)| leaf.parent.is_some());
        let mut rest: RankSet = placed.map(|(_, rank)| rank).collect();
        self.others.values().for_each(|ranks| rest = rest.without(ranks));
        let first = root.map(|root| (root.name.to_string(), rest));
        Err(AssignError::Roots { values: first.into_iter().chain(self.others).take(LISTED).collect(), count })
    }
}
