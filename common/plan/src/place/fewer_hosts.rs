//! A job that has to do without some of its hosts: whose ranks are dropped, and what the others are called then.

use super::{Placement, RankPlacement};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use rlaunch_base::by_rank::ByRank;
use rlaunch_base::id::{AppIndex, NodeId, Rank};

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
        let stays = |placed: &&RankPlacement| nodes.get(placed.node.index()).is_some_and(|node| node.ranks > 0);
        let processes = self.processes.renumbered();
        let ranks: ByRank<RankPlacement> = self.ranks.iter().filter(stays).copied().collect();
        let programs = |ranks: &ByRank<RankPlacement>| ranks.iter().map(|placed| placed.app).collect::<BTreeSet<_>>();
        let has_all = programs(&ranks) == programs(&self.ranks);
        has_all.then_some(Self {
            nodes,
            ranks,
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
        let placements = hosts.iter().flat_map(of_host).filter_map(|rank| self.ranks.get(rank.index()).copied());
        let (ranks, processes) = (placements.collect(), self.processes.renumbered());
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
        for (rank, placed) in self.ranks.with_ranks() {
            if let Some(own) = ranks.get_mut(placed.node.index()) {
                own.push(rank);
            }
        }
        ranks
    }

    /// The ranks of a program: programs stand in their order.
    #[must_use]
    pub fn share(&self, app: AppIndex) -> Share {
        let own = self.ranks.between(|placed| placed.app < app, |placed| placed.app > app);
        let first = own.first().map_or(Rank::new(0), |(rank, _)| *rank);
        Share { first, size: u32::try_from(own.len()).unwrap_or(u32::MAX) }
    }

    /// The hosts of which one has rank 0 when at most `missing` of all are left out.
    #[must_use]
    pub fn heads(&self, missing: usize) -> BTreeSet<NodeId> {
        let mut heads = BTreeSet::new();
        for placed in &self.ranks {
            heads.insert(placed.node);
            if heads.len() > missing {
                break;
            }
        }
        heads
    }
}
