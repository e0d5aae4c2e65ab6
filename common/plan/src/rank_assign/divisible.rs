//! `divisible=N`: as many work as a multiple of N allows (NVRx: `ActiveWorldSizeDivisibleBy`).
//!
//! The stage begins with the active ranks that the stage before it has left. The first stage begins with those of the round before. So
//! `divisible=4,divisible=3` can shrink the world in each round, also if no rank was lost. That is what NVRx does. With `regrow` a round
//! begins with all healthy ranks.

use super::draft::Draft;
use core::num::NonZeroU32;

pub(super) fn apply(by: NonZeroU32, draft: &mut Draft) {
    let allowed = draft.allowed();
    draft.activate(allowed - allowed % by);
}
