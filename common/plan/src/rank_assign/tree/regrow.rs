//! `regrow`: a world that has become smaller grows again when there are enough ranks in reserve. NVRx's never does.

use super::tree_round::TreeAssignment;
use crate::rank_assign::world::Mode;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;

impl TreeAssignment<'_> {
    /// As many work as the filter says of all that could. It is asked once, of a round's whole number, so that one like `spare=1`
    /// does not take one more in every round.
    pub(super) fn regrow(&mut self) {
        let mut working = self.working();
        let mut could = Vec::new();
        for &initial in &self.topology.order {
            if self.member(initial).mode == Mode::Inactive && self.fits(initial, &working) {
                self.count(initial, &mut working);
                could.push(initial);
            }
        }
        let all = self.active.saturating_add(u32::try_from(could.len()).unwrap_or(u32::MAX));
        let target = self.tree.filter.as_ref().map_or(all, |filter| filter.of(all));
        for initial in could {
            if self.active >= target {
                break;
            }
            self.activate(initial, Some(Rank::new(self.active)));
            self.active += 1;
        }
        self.shrink(target);
    }
}
