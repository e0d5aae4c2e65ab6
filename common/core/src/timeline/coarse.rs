//! Limits of a picture. A log of weeks has more restarts than a picture can show, and they must not cost memory.
//!
//! If a picture has too many things, those that are closer together than a quantum become one. The quantum doubles until
//! there is room again.

use super::{Bar, Phase, Row, Stretch, Time, Timeline};

/// Most rows.
pub(super) const ROWS: usize = 65_536;
/// Things for which each row has room at least.
const EACH: usize = 8;

/// Number of bars, marks and phases, and the most that are kept.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    most: usize,
    used: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self::of(40_000)
    }
}

impl Room {
    /// Room for so many things, and for more where there are many rows.
    #[must_use]
    pub const fn of(most: usize) -> Self {
        Self { most, used: 0 }
    }

    pub(super) const fn used(&mut self, more: usize) {
        self.used = self.used.saturating_add(more);
    }

    /// Makes room if there is none.
    pub(super) fn keep(&mut self, timeline: &mut Timeline) {
        let most = self.most.max(timeline.rows.len().saturating_mul(EACH));
        if self.used <= most {
            return;
        }
        // A picture shows about a thousand moments.
        timeline.quantum = timeline.quantum.max(timeline.last / 8_192).max(1);
        loop {
            self.used = merge(timeline);
            if self.used <= most / 2 || timeline.quantum > timeline.last {
                return;
            }
            timeline.quantum = timeline.quantum.saturating_mul(2);
        }
    }
}

/// Returns the number of things that are left.
fn merge(timeline: &mut Timeline) -> usize {
    let quantum = timeline.quantum;
    timeline.phases.sort_by_key(|phase| phase.from);
    let is_restart = |phase: &Phase| matches!(phase, Phase::Round { .. } | Phase::Generation { .. });
    timeline.phases.dedup_by(|other, kept| {
        let may = is_restart(&kept.what) && is_restart(&other.what);
        may && join(kept, other, quantum)
    });
    timeline.rows.values_mut().for_each(|row| row_merge(row, quantum));
    timeline.phases.len() + timeline.rows.values().map(|row| row.bars.len() + row.marks.len()).sum::<usize>()
}

fn row_merge(row: &mut Row, quantum: Time) {
    row.bars.dedup_by(|other, kept| {
        let (is_longer, finish) = (other.to - other.from > kept.to - kept.from, other.what.finish.clone());
        let is_joined = join(kept, other, quantum);
        if is_joined {
            let what = if is_longer { &other.what } else { &kept.what };
            kept.what = Bar { finish, ..what.clone() };
        }
        is_joined
    });
    row.marks.dedup_by(|mark, kept| {
        let is_near = mark.at.saturating_sub(kept.at) < quantum;
        if is_near {
            kept.count = kept.count.saturating_add(mark.count);
        }
        is_near
    });
}

/// Stretches that together are shorter than the quantum become one.
const fn join<T>(kept: &mut Stretch<T>, other: &Stretch<T>, quantum: Time) -> bool {
    let is_near = other.to.saturating_sub(kept.from) < quantum;
    if is_near {
        kept.to = if other.to > kept.to { other.to } else { kept.to };
        kept.count = kept.count.saturating_add(other.count);
    }
    is_near
}
