//! Ranks in reserve take the places of lost ones: the one that began to wait last first, from the smallest group that has one.

use super::tree_round::TreeAssignment;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

impl TreeAssignment<'_> {
    /// Says who was not replaced. A layer without the flag ends the search, even if one above it has it.
    pub(super) fn replace(&mut self, dead: &[u32]) -> Vec<u32> {
        let mut working = if self.tree.strict && !dead.is_empty() { self.working() } else { Vec::new() };
        let mut full = BTreeMap::new();
        let mut left = Vec::new();
        for &lost in dead {
            let groups: Vec<usize> = self.topology.groups(lost).collect();
            let mut searched = groups.into_iter().take_while(|at| self.may_search(*at)).collect::<Vec<_>>().into_iter();
            match searched.find_map(|at| self.call(at, &working, &mut full)) {
                Some(reserve) => {
                    self.activate(reserve, self.member(lost).active_rank);
                    if self.tree.strict {
                        self.count(reserve, &mut working);
                    }
                }
                None => left.push(lost),
            }
        }
        for (at, waiting) in full {
            let node = self.topology.nodes.get_mut(at);
            node.into_iter().for_each(|node| node.waiting.extend(waiting.iter().rev()));
        }
        left
    }

    fn may_search(&self, node: usize) -> bool {
        self.layer(node).is_some_and(|layer| layer.flags.reserve)
    }

    /// The one that began to wait last in a group. Where `max_ranks` is strict those whose groups are full are put aside: groups
    /// only become fuller.
    fn call(&mut self, at: usize, working: &[u32], full: &mut BTreeMap<usize, Vec<(u32, u64)>>) -> Option<u32> {
        loop {
            let entry = self.topology.nodes.get_mut(at)?.waiting.pop()?;
            if !self.topology.waits(&self.members, entry) {
                continue;
            }
            if !self.tree.strict || self.fits(entry.0, working) {
                return Some(entry.0);
            }
            full.entry(at).or_default().push(entry);
        }
    }
}
