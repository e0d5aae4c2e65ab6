//! `all`: every healthy rank works (NVRx: `ActivateAllRanks`).

use super::draft::Draft;

pub(super) fn apply(draft: &mut Draft) {
    draft.activate(draft.size());
}
