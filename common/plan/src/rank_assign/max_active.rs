//! `max=N`: no more than N ranks work, the others are in reserve (NVRx: `MaxActiveWorldSize`).

use super::draft::Draft;

pub(super) fn apply(max: Option<u32>, draft: &mut Draft) {
    let allowed = draft.allowed();
    draft.activate(max.map_or(allowed, |max| max.min(allowed)));
}
