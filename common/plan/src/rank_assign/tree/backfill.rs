//! Backfill without ranks in reserve: the last active ranks of a group take the numbers of lost ones, so that the others keep their
//! numbers.

use super::tree_round::TreeAssignment;
use crate::rank_assign::world::Mode;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;

impl TreeAssignment<'_> {
    /// Returns the numbers that no rank has afterwards, in ascending order.
    pub(super) fn backfill(&mut self, dead: &[u32]) -> Vec<Rank> {
        let mut holes = Vec::new();
        let mut domains: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for &lost in dead {
            match self.domain(lost) {
                Some(domain) => domains.entry(domain).or_default().push(lost),
                None => holes.extend(self.member(lost).active_rank),
            }
        }
        for (domain, dead) in domains {
            if self.tree.minimal {
                self.move_few(domain, &dead, &mut holes);
            } else {
                self.move_last(domain, &dead, &mut holes);
            }
        }
        holes.sort_unstable();
        holes
    }

    /// The largest group within which numbers may move: all layers from there down to the ranks have the flag.
    fn domain(&self, lost: u32) -> Option<usize> {
        let flagged = |at: &usize| self.layer(*at).is_some_and(|layer| layer.flags.backfill);
        self.topology.groups(lost).take_while(flagged).last()
    }

    /// The active ranks of a group, by their numbers.
    fn actives(&self, domain: usize) -> Vec<(Rank, u32)> {
        let active = |initial: &u32| {
            let member = self.member(*initial);
            member.active_rank.filter(|_| member.mode == Mode::Active).map(|rank| (rank, *initial))
        };
        let mut all: Vec<_> = self.topology.below(domain).iter().filter_map(active).collect();
        all.sort_unstable();
        all
    }

    /// As NVRx does: as many of the last ones as there are lost ones move, in order, even where a lost one was among the last.
    fn move_last(&mut self, domain: usize, dead: &[u32], holes: &mut Vec<Rank>) {
        let actives = self.actives(domain);
        let last = actives.len().saturating_sub(dead.len());
        let mut movers = actives.get(last..).unwrap_or_default().iter();
        for &lost in dead {
            let number = self.member(lost).active_rank;
            match movers.next() {
                Some((own, mover)) => {
                    holes.push(*own);
                    self.activate(*mover, number);
                }
                None => holes.extend(number),
            }
        }
    }

    /// Moves the holes to the last numbers, whichever ranks have them; only ranks that have one of these move.
    fn move_few(&mut self, domain: usize, dead: &[u32], holes: &mut Vec<Rank>) {
        let actives = self.actives(domain);
        let mut lost: Vec<Rank> = dead.iter().filter_map(|lost| self.member(*lost).active_rank).collect();
        let mut numbers: Vec<Rank> = actives.iter().map(|(rank, _)| *rank).chain(lost.iter().copied()).collect();
        numbers.sort_unstable();
        lost.sort_unstable();
        let kept = numbers.len().saturating_sub(lost.len());
        let Some((from, last)) = numbers.get(kept).map(|from| (*from, numbers.get(kept..).unwrap_or_default())) else {
            return;
        };
        holes.extend(last);
        let movers = actives.iter().filter(|(rank, _)| *rank >= from);
        for ((_, mover), number) in movers.zip(lost.iter().filter(|rank| **rank < from)) {
            self.activate(*mover, Some(*number));
        }
    }
}
