//! `fill`: the last ranks take the numbers of lost ones, and every other rank keeps its number (NVRx: `FillGaps`).
//!
//! NVRx gives the i-th of the last ranks the wrong number where one of these is lost too: of 8 without 1, 4 and 5 its own picture
//! shows 6 → 1 and 7 → 4, while its code answers 4 and 5, of which 5 is outside the new world. This is the picture.

use super::draft::Draft;
use alloc::vec::Vec;

pub(super) fn apply(draft: &mut Draft) {
    let left = draft.gone.iter().filter(|gone| !**gone).count();
    let (kept, last) = draft.ranks.split_at(left.min(draft.ranks.len()));
    let mut movers =
        last.iter().zip(draft.gone.iter().skip(left)).filter(|(_, gone)| !**gone).map(|(initial, _)| *initial);
    // Among those that keep their place are as many lost ones as there are healthy ones behind them.
    let numbered = |(initial, gone): (&u32, &bool)| if *gone { movers.next() } else { Some(*initial) };
    let ranks: Vec<u32> = kept.iter().zip(&draft.gone).filter_map(numbered).collect();
    draft.renumber(ranks);
}
