//! Places for the ranks of a world that is started while the job runs: free slots first, then the hosts with the least load.

use super::{Placement, RankPlacement};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, LocalRank, NodeId, Rank};

/// New ranks of one program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewRanks {
    /// The program.
    pub app: AppIndex,
    /// How many.
    pub ranks: u32,
    /// The hosts that they may run on.
    pub nodes: Vec<NodeId>,
}

/// The use of a host.
struct Load {
    slots: u32,
    taken: BTreeSet<LocalRank>,
}

impl Load {
    fn used(&self) -> u32 {
        u32::try_from(self.taken.len()).unwrap_or(u32::MAX)
    }

    fn is_free(&self) -> bool {
        self.used() < self.slots
    }

    fn take(&mut self) -> LocalRank {
        let free = (0..).map(LocalRank::new).find(|local| !self.taken.contains(local)).unwrap_or(LocalRank::new(0));
        self.taken.insert(free);
        free
    }
}

impl Placement {
    /// Adds ranks, and says whether hosts have more ranks than slots for them. Ranks that have ended take no slot.
    pub fn add_ranks(&mut self, new: &[NewRanks], lives: impl Fn(Rank) -> bool) -> bool {
        let mut loads: BTreeMap<NodeId, Load> = BTreeMap::new();
        for (node, id) in self.nodes.iter().zip((0..).map(NodeId::new)) {
            loads.insert(id, Load { slots: node.slots, taken: BTreeSet::new() });
        }
        for (rank, placed) in self.ranks.with_ranks() {
            if let Some(load) = loads.get_mut(&placed.node).filter(|_| lives(rank)) {
                load.taken.insert(placed.local_rank);
            }
        }
        let mut is_crowded = false;
        for NewRanks { app, ranks, nodes } in new {
            for _ in 0..*ranks {
                let free = nodes.iter().find(|node| loads.get(node).is_some_and(Load::is_free));
                is_crowded |= free.is_none();
                let least = || nodes.iter().min_by_key(|node| loads.get(node).map_or(u64::MAX, weight));
                let Some(node) = free.or_else(least).copied() else { continue };
                let local_rank = loads.get_mut(&node).map_or(LocalRank::new(0), Load::take);
                self.add_rank(RankPlacement { node, local_rank, app: *app });
            }
        }
        is_crowded
    }

    /// Adds ranks of a program on the places of these.
    pub fn add_sharing(&mut self, app: AppIndex, base: &[Rank]) {
        for rank in base {
            if let Some(placed) = self.ranks.get(rank.index()).copied() {
                self.add_rank(RankPlacement { app, ..placed });
            }
        }
    }

    fn add_rank(&mut self, placed: RankPlacement) {
        self.ranks.push(placed);
        if let Some(node) = self.nodes.get_mut(placed.node.index()) {
            node.ranks = node.ranks.saturating_add(1);
        }
        if !self.order.is_empty() && !self.order.contains(&placed.node) {
            self.order.push(placed.node);
        }
    }
}

/// Ranks for each thousand slots.
fn weight(load: &Load) -> u64 {
    u64::from(load.used()).saturating_mul(1000) / u64::from(load.slots.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostlist::Host;
    use crate::place::{Node, Processes, Worlds};
    use alloc::vec;

    /// Hosts with so many slots, and ranks on the first.
    fn placed(slots: &[u32], ranks: u32) -> Placement {
        let node = |(slots, at): (&u32, u32)| Node {
            slots: *slots,
            ..Node::of(Host::named(&alloc::format!("node{at}")), if at == 0 { ranks } else { 0 })
        };
        let placed = |n| RankPlacement { node: NodeId::new(0), local_rank: LocalRank::new(n), app: AppIndex::new(0) };
        Placement {
            nodes: slots.iter().zip(0..).map(node).collect(),
            ranks: (0..ranks).map(placed).collect(),
            notes: vec![],
            processes: Processes::default(),
            order: vec![],
            worlds: Worlds::default(),
        }
    }

    fn added(placement: &mut Placement, ranks: u32, lives: impl Fn(Rank) -> bool) -> (bool, Vec<(u32, u32)>) {
        let nodes = (0..).map(NodeId::new).take(placement.nodes.len()).collect();
        let before = placement.ranks.len();
        let is_crowded = placement.add_ranks(&[NewRanks { app: AppIndex::new(1), ranks, nodes }], lives);
        let placements = placement.ranks.iter().skip(before).map(|placed| (placed.node.get(), placed.local_rank.get()));
        (is_crowded, placements.collect())
    }

    #[test]
    fn free_slots_are_filled_host_by_host() {
        let mut placement = placed(&[2, 2], 1);
        assert_eq!(added(&mut placement, 3, |_| true), (false, vec![(0, 1), (1, 0), (1, 1)]));
        assert_eq!((placement.nodes[0].ranks, placement.nodes[1].ranks), (2, 2));
        assert_eq!(added(&mut placement, 2, |_| true), (true, vec![(0, 2), (1, 2)]), "then each has one more");
    }

    #[test]
    fn slot_of_an_ended_rank_is_free() {
        let mut placement = placed(&[2], 2);
        assert_eq!(added(&mut placement, 1, |rank| rank != Rank::new(0)), (false, vec![(0, 0)]));
    }

    #[test]
    fn sharing_ranks_have_the_same_places() {
        let mut placement = placed(&[2], 2);
        placement.add_sharing(AppIndex::new(1), &[Rank::new(1)]);
        let last = placement.ranks[2];
        assert_eq!((last.node.get(), last.local_rank.get(), last.app.get()), (0, 1, 1));
        assert_eq!(placement.nodes[0].ranks, 3);
    }
}
