//! Ranks of worlds that ended long before the job: the report only has their number.

use super::{Fate, Report};
use rlaunch_base::rank_set::RankSet;

/// Ranks of which only their number is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forgotten {
    /// All of them.
    pub ranks: usize,
    /// Ranks that failed by themselves, or could not be started.
    pub failed: usize,
    /// Ranks that were not started, because another rank of their world could not be.
    pub pending: usize,
}

impl Forgotten {
    fn add(&mut self, fate: Fate) {
        self.ranks += 1;
        match fate {
            Fate::Ended { status, asked, .. } => self.failed += usize::from(!asked && !status.is_success()),
            Fate::NotStarted => self.failed += 1,
            Fate::Pending => self.pending += 1,
            Fate::Running => {}
        }
    }
}

impl Report {
    /// Only counts these ranks from now on.
    pub(super) fn forget(&mut self, ranks: &RankSet) {
        for (_, line) in self.ranks.with_ranks().filter(|(rank, _)| ranks.contains(*rank)) {
            self.forgotten.add(line.fate);
        }
        self.ranks.remove(|rank| ranks.contains(rank));
        self.spawned.retain(|first, _| !ranks.contains(*first));
        self.facts.retain(|rank, _| !ranks.contains(*rank));
        self.peaks.retain(|rank, _| !ranks.contains(*rank));
    }
}
