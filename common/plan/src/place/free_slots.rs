//! The host for another process of a rank whose host is lost: the rank moves to a host that has room, and stays there.

use super::{Placement, RankPlacement};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::id::{LocalRank, NodeId, Rank};

type Taken = BTreeMap<NodeId, BTreeSet<LocalRank>>;

impl Placement {
    /// Moves each of these ranks to a host that may have it and has room, all to the same while it has. Ranks without such a host move to
    /// their home. Returns where each has found room.
    pub fn move_ranks(
        &mut self,
        homeless: impl ExactSizeIterator<Item = (Rank, NodeId)>,
        may: impl Fn(NodeId) -> bool,
    ) -> Vec<Option<NodeId>> {
        let mut left = u32::try_from(homeless.len()).unwrap_or(u32::MAX);
        let mut chosen: Option<NodeId> = None;
        let mut taken = self.taken();
        let one = |(rank, home)| {
            chosen = chosen.filter(|node| self.free(*node) > 0).or_else(|| self.room(&may, left));
            left = left.saturating_sub(1);
            self.move_rank(rank, chosen.unwrap_or(home), &mut taken);
            chosen
        };
        homeless.map(one).collect()
    }

    /// How many ranks more a host takes without being oversubscribed. A rank that has ended keeps its place.
    fn free(&self, node: NodeId) -> u32 {
        self.nodes.get(node.index()).map_or(0, |node| node.slots.saturating_sub(node.ranks))
    }

    /// The host that takes `many` ranks more: the first that takes all of them, or the one that takes most. Asked are those that have
    /// ranks and may have more.
    fn room(&self, may: impl Fn(NodeId) -> bool, many: u32) -> Option<NodeId> {
        let with_room = || self.used().filter(|node| may(*node) && self.free(*node) > 0);
        let most = || with_room().map(|node| self.free(node)).max();
        let enough = with_room().map(|node| self.free(node)).find(|free| *free >= many).or_else(most)?;
        with_room().find(|node| self.free(*node) == enough)
    }

    /// The numbers that ranks have on each host: found once for all that move.
    fn taken(&self) -> Taken {
        let mut taken = Taken::new();
        for placed in &self.ranks {
            taken.entry(placed.node).or_default().insert(placed.local_rank);
        }
        taken
    }

    /// A rank is on another host from now on: there it is the first number that no other has.
    fn move_rank(&mut self, rank: Rank, node: NodeId, taken: &mut Taken) {
        let Some(placed) = self.ranks.get_mut(rank.index()).filter(|placed| placed.node != node) else { return };
        let there = taken.entry(node).or_default();
        let local_rank = (0..).map(LocalRank::new).find(|local| !there.contains(local)).unwrap_or(LocalRank::new(0));
        there.insert(local_rank);
        let RankPlacement { node: before, app, local_rank: number } = *placed;
        taken.entry(before).or_default().remove(&number);
        *placed = RankPlacement { node, local_rank, app };
        if rank == Rank::new(0) {
            self.processes.moves_from(before);
        }
        if let Some(before) = self.nodes.get_mut(before.index()) {
            before.ranks = before.ranks.saturating_sub(1);
        }
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.ranks = node.ranks.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostlist::Host;
    use crate::place::{Node, Processes, Worlds};
    use alloc::format;
    use alloc::vec;
    use rlaunch_base::id::AppIndex;

    /// Hosts with so many slots and ranks each.
    fn placed(hosts: &[(u32, u32)]) -> Placement {
        let node = |(&(slots, ranks), n): (&(u32, u32), u32)| Node {
            slots,
            ..Node::of(Host::named(&format!("node{n}")), ranks)
        };
        let placements = |(&(_, ranks), n): (&(u32, u32), u32)| {
            (0..ranks).map(move |local| RankPlacement {
                node: NodeId::new(n),
                local_rank: LocalRank::new(local),
                app: AppIndex::new(0),
            })
        };
        Placement {
            nodes: hosts.iter().zip(0..).map(node).collect(),
            ranks: hosts.iter().zip(0..).flat_map(placements).collect(),
            notes: vec![],
            processes: Processes::default(),
            order: vec![],
            worlds: Worlds::default(),
        }
    }

    fn room(hosts: &[(u32, u32)], many: u32) -> Option<u32> {
        placed(hosts).room(|node| node != NodeId::new(0), many).map(NodeId::get)
    }

    #[test]
    fn the_first_host_that_takes_all_or_else_the_one_that_takes_most_has_room() {
        assert_eq!(room(&[(9, 1), (3, 2), (4, 2), (5, 2)], 2), Some(2));
        assert_eq!(room(&[(9, 1), (3, 2), (4, 2), (5, 2)], 3), Some(3));
        assert_eq!(room(&[(9, 1), (3, 2), (4, 2), (4, 2)], 9), Some(2), "none takes all of them");
        assert_eq!(room(&[(9, 1), (2, 2), (1, 3)], 1), None, "one is oversubscribed already");
        assert_eq!(room(&[(9, 1), (8, 0)], 1), None, "nothing of the job is there");
    }

    #[test]
    fn a_rank_that_moves_has_a_number_of_its_own_there() {
        let mut moved = placed(&[(2, 2), (4, 2)]);
        let mut taken = moved.taken();
        moved.move_rank(Rank::new(1), NodeId::new(1), &mut taken);
        let mut taken = moved.taken();
        moved.move_rank(Rank::new(0), NodeId::new(1), &mut taken);
        let at = |rank: usize| (moved.ranks[rank].node.get(), moved.ranks[rank].local_rank.get());
        assert_eq!([at(0), at(1), at(2), at(3)], [(1, 3), (1, 2), (1, 0), (1, 1)]);
        assert_eq!((moved.nodes[0].ranks, moved.nodes[1].ranks), (0, 4));
        assert_eq!(moved.room(|_| true, 1), None);
        let before = moved.clone();
        let mut taken = moved.taken();
        moved.move_rank(Rank::new(2), NodeId::new(1), &mut taken);
        assert_eq!(moved, before, "it is there already");
    }

    #[test]
    fn ranks_that_one_host_does_not_take_fill_one_after_the_other() {
        let mut moved = placed(&[(7, 7), (4, 1), (5, 1), (2, 1)]);
        let homeless = [0, 1, 2, 3, 4, 5, 6].map(|rank| (Rank::new(rank), NodeId::new(0)));
        let rooms = moved.move_ranks(homeless.into_iter(), |node| ![0, 3].contains(&node.get()));
        assert_eq!(rooms, [2, 2, 2, 2, 1, 1, 1].map(|node| Some(NodeId::new(node))));
        let back = [(Rank::new(1), NodeId::new(0)), (Rank::new(2), NodeId::new(3))];
        assert_eq!(moved.move_ranks(back.into_iter(), |node| node == NodeId::new(1)), [None, None], "it is full");
        assert_eq!(moved.nodes.iter().map(|node| node.ranks).collect::<Vec<_>>(), [1, 4, 3, 2], "they are at home");
    }
}
