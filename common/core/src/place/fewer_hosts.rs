//! A job that has to do without some of its hosts: whose ranks are dropped, and what the others are called then.

use super::{Placement, RankPlacement};
use crate::id::{AppIndex, NodeId, Rank};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The ranks of a program: they follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The first.
    pub first: Rank,
    /// How many.
    pub size: u32,
}

impl Placement {
    /// The same without these hosts. The ranks of the others are numbered anew, in the same order. Hosts keep their `NodeId`,
    /// by which their edges are known; one that is left out has no ranks. `None`: a program would have none either.
    #[must_use]
    pub fn without(&self, gone: &[NodeId]) -> Option<Self> {
        let mut nodes = self.nodes.clone();
        for node in gone {
            if let Some(node) = nodes.get_mut(node.index()) {
                node.ranks = 0;
            }
        }
        let stays = |seat: &&RankPlacement| nodes.get(seat.node.index()).is_some_and(|node| node.ranks > 0);
        let seats: Vec<RankPlacement> = self.ranks.iter().filter(stays).copied().collect();
        let processes = self.processes.renumbered();
        let has_all = programs(&seats).count() == programs(&self.ranks).count();
        has_all.then_some(Self {
            nodes,
            ranks: seats,
            notes: Vec::new(),
            processes,
            order: self.order.clone(),
            worlds: self.worlds.clone(),
        })
    }

    /// The same ranks of these hosts alone, host by host in this order, and numbered so. All programs are one.
    #[must_use]
    pub fn of_hosts(&self, hosts: &[NodeId]) -> Self {
        let own = self.by_node();
        let taken: BTreeSet<NodeId> = hosts.iter().copied().collect();
        let mut nodes = self.nodes.clone();
        for (node, id) in nodes.iter_mut().zip((0..).map(NodeId::new)) {
            node.ranks = if taken.contains(&id) { node.ranks } else { 0 };
        }
        let of_host = |node: &NodeId| own.get(node.index()).into_iter().flatten();
        let seats = hosts.iter().flat_map(of_host).filter_map(|rank| self.ranks.get(rank.index()).copied());
        let (ranks, processes) = (seats.collect(), self.processes.renumbered());
        let order = hosts.to_vec();
        Self { nodes, ranks, notes: self.notes.clone(), processes, order, worlds: self.worlds.clone() }
    }

    /// The hosts that have ranks. Where one stands among them is its `node_index`.
    pub fn used(&self) -> impl Iterator<Item = NodeId> + '_ {
        let all = (0..).map(NodeId::new).take(if self.order.is_empty() { self.nodes.len() } else { 0 });
        let has_ranks = |id: &NodeId| self.nodes.get(id.index()).is_some_and(|node| node.ranks > 0);
        all.chain(self.order.iter().copied()).filter(has_ranks)
    }

    /// The ranks of each host, in their order.
    #[must_use]
    pub fn by_node(&self) -> Vec<Vec<Rank>> {
        let mut ranks: Vec<Vec<Rank>> = self.nodes.iter().map(|node| Vec::with_capacity(node.ranks as usize)).collect();
        for (seat, rank) in self.ranks.iter().zip((0..).map(Rank::new)) {
            if let Some(own) = ranks.get_mut(seat.node.index()) {
                own.push(rank);
            }
        }
        ranks
    }

    /// The ranks of a program: programs stand in their order.
    #[must_use]
    pub fn share(&self, app: AppIndex) -> Share {
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let first = number(self.ranks.partition_point(|seat| seat.app < app));
        let end = number(self.ranks.partition_point(|seat| seat.app <= app));
        Share { first: Rank::new(first), size: end.saturating_sub(first) }
    }

    /// The hosts of which one has rank 0 when at most `missing` of all are left out.
    #[must_use]
    pub fn heads(&self, missing: usize) -> BTreeSet<NodeId> {
        let mut heads = BTreeSet::new();
        for seat in &self.ranks {
            heads.insert(seat.node);
            if heads.len() > missing {
                break;
            }
        }
        heads
    }
}

/// The ranks of one program after the other.
fn programs(seats: &[RankPlacement]) -> impl Iterator<Item = &[RankPlacement]> {
    seats.chunk_by(|one, next| one.app == next.app)
}
