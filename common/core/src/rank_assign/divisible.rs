//! `divisible=N`: as many work as a multiple of N allows (NVRx: `ActiveWorldSizeDivisibleBy`).
//!
//! Of several such policies each begins with the result of the round before, so 3 after 4 shrinks a world in which no rank was lost. That
//! is what NVRx does; `regrow` begins with all who are healthy.

use super::draft::Draft;
use core::num::NonZeroU32;

pub(super) fn apply(by: NonZeroU32, draft: &mut Draft) {
    let allowed = draft.allowed();
    draft.activate(allowed - allowed % by);
}
