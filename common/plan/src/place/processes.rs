//! Which rank a process plays. Ranks keep their numbers while one process follows another; a process has a number of its own.

use super::Placement;
use alloc::collections::{BTreeMap, BTreeSet};
use rlaunch_base::id::{NodeId, ProcId, Rank};

/// The rank of every process that was asked for. It grows until worlds that have ended are forgotten.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Processes {
    /// By the first of them: processes with numbers in a row, of ranks with numbers in a row.
    runs: BTreeMap<ProcId, Run>,
    /// Node of this generation's first process of rank 0, if a later one runs elsewhere.
    head: Option<NodeId>,
}

/// Processes in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    /// The rank of the first.
    rank: Rank,
    /// How many.
    len: u32,
}

impl Processes {
    /// The first processes of a job with so many ranks.
    #[must_use]
    pub fn of_ranks(ranks: usize) -> Self {
        let mut processes = Self::default();
        processes.begin(ProcId::new(0), ranks);
        processes
    }

    /// A generation of so many ranks begins: rank 0's process has this number, the others follow.
    pub fn begin(&mut self, first: ProcId, ranks: usize) {
        let len = u32::try_from(ranks).unwrap_or(u32::MAX);
        self.runs.insert(first, Run { rank: Rank::new(0), len });
        self.head = None;
    }

    /// Another process of one rank.
    pub fn add(&mut self, proc: ProcId, rank: Rank) {
        self.runs.insert(proc, Run { rank, len: 1 });
    }

    /// The rank of a process; `None`: there is no such process.
    #[must_use]
    pub fn rank_of(&self, proc: ProcId) -> Option<Rank> {
        let (first, run) = self.runs.range(..=proc).next_back()?;
        let at = proc.get().checked_sub(first.get()).filter(|at| *at < run.len)?;
        Some(Rank::new(run.rank.get().checked_add(at)?))
    }

    /// The number of entries.
    pub fn known(&self) -> usize {
        self.runs.len()
    }

    /// Removes processes that ranks which are forgotten had alone.
    pub(super) fn forget(&mut self, ranks: &BTreeSet<Rank>) {
        self.runs.retain(|_, run| run.len > 1 || !ranks.contains(&run.rank));
    }

    /// Ranks are numbered anew, and all start again.
    pub fn renumbered(&self) -> Self {
        Self { head: None, ..self.clone() }
    }

    /// Rank 0 was here until now.
    pub(super) fn moves_from(&mut self, node: NodeId) {
        self.head.get_or_insert(node);
    }
}

impl Placement {
    /// The host on which this generation's rank 0 was started: its standard input goes there, and there the others find it.
    #[must_use]
    pub fn head(&self) -> NodeId {
        let first = || self.ranks.first().map_or(NodeId::new(0), |placed| placed.node);
        self.processes.head.unwrap_or_else(first)
    }

    /// Node on which a rank runs.
    #[must_use]
    pub fn node_of(&self, rank: Rank) -> Option<NodeId> {
        self.ranks.get(rank.index()).map(|placed| placed.node)
    }

    /// The rank that a process plays.
    #[must_use]
    pub fn rank_of(&self, proc: ProcId) -> Option<Rank> {
        self.processes.rank_of(proc)
    }

    /// The ranks of a host.
    pub fn ranks_of(&self, node: NodeId) -> impl Iterator<Item = Rank> + '_ {
        self.ranks.with_ranks().filter(move |(_, placed)| placed.node == node).map(|(rank, _)| rank)
    }

    /// How many ranks there are.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_rank_in_every_generation_and_a_number_that_was_never_given_has_none() {
        let mut processes = Processes::of_ranks(4);
        let (proc, rank) = (ProcId::new, Rank::new);
        processes.add(proc(5), rank(1));
        processes.begin(proc(8), 3);
        processes.add(proc(12), rank(0));
        let ranks = [0, 3, 4, 5, 6, 8, 10, 11, 12, 13].map(|n| processes.rank_of(proc(n)).map(Rank::get));
        let (none, some) = (None, Some);
        assert_eq!(ranks, [some(0), some(3), none, some(1), none, some(0), some(2), none, some(0), none]);
    }

    #[test]
    fn ranks_can_be_added_while_the_job_runs() {
        let mut processes = Processes::of_ranks(2);
        processes.add(ProcId::new(2), Rank::new(2));
        assert_eq!(processes.rank_of(ProcId::new(2)), Some(Rank::new(2)));
    }
}
