//! `shift`: ranks after a lost rank move up, and the order stays (NVRx: `ShiftRanks`).

use super::draft::Draft;

pub(super) fn apply(draft: &mut Draft) {
    let left = draft.ranks.iter().zip(&draft.gone).filter(|(_, gone)| !**gone).map(|(initial, _)| *initial).collect();
    draft.renumber(left);
}
