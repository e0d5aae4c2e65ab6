//! Rounds in the closing report.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::id::{Rank, Round};
use rlaunch_base::time::Span;
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_restart::{EndReason, RoundNote, RoundsEnd};

/// Most rounds that are kept: of more the last ones are reported.
const KEPT: usize = 5;

/// The rounds of a generation of ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rounds {
    /// Whether there was one.
    pub any: bool,
    /// How many there were after the first.
    pub count: u32,
    /// The last of them.
    pub last: Vec<RoundLine>,
    /// Ranks without which a round continued, with the reason: they are lost, have left, or were discarded (`None`).
    pub lost: BTreeMap<Rank, Option<Fault>>,
    /// Lost ranks for which another process was started since, which need not have taken part.
    pub again: BTreeSet<Rank>,
    /// Why no other round was possible, and the fault that is not made good.
    pub given_up: Option<(Fault, EndReason)>,
}

/// The fate of a rank without which a round continued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// The rank is lost.
    Lost,
    /// The rank was lost, and is started again: it is not known whether it has come to take part.
    Again,
    /// The rank was discarded.
    Discarded,
}

/// A round, after the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoundLine {
    /// Which.
    pub round: Round,
    /// The first fault that ended the one before, and the number of others.
    pub fault: Option<(Fault, usize)>,
    /// Healthy ranks, and those that work.
    pub sizes: (u32, u32),
    /// From the first fault to its begin.
    pub took: Span,
}

impl Rounds {
    pub(super) fn add(&mut self, note: &RoundNote) {
        match note {
            RoundNote::Began { round, faults, world_size, active_world_size, discarded, reserve: _, phases } => {
                let another = core::mem::replace(&mut self.any, true);
                for fault in faults {
                    if fault.kind.is_loss() {
                        self.loses(fault);
                    } else if fault.kind == FaultKind::Joined {
                        self.lost.remove(&fault.initial);
                    }
                }
                let home = discarded.ranges().flat_map(|(first, last)| first..=last).map(Rank::new);
                self.lost.extend(home.map(|rank| (rank, None)));
                // A round that begins without a fault is the first of a call.
                if another && !faults.is_empty() {
                    self.count = self.count.saturating_add(1);
                    if self.last.len() == KEPT {
                        self.last.remove(0);
                    }
                    let took = phases.iter().fold(Span::ZERO, |sum, phase| sum + *phase);
                    let fault = Fault::first_of(faults).map(|(fault, more)| (fault.clone(), more));
                    let sizes = (*world_size, *active_world_size);
                    self.last.push(RoundLine { round: *round, fault, sizes, took });
                }
            }
            RoundNote::NoRoundNeeded { fault } if fault.kind.is_loss() => self.loses(fault),
            RoundNote::Respawned { initial, .. } => {
                self.again.insert(*initial);
            }
            RoundNote::NoRoundNeeded { .. } | RoundNote::Awaited { .. } => {}
            RoundNote::Refused { .. } | RoundNote::Remark(_) => {}
        }
    }

    fn loses(&mut self, fault: &Fault) {
        self.again.remove(&fault.initial);
        self.lost.insert(fault.initial, Some(fault.clone()));
    }

    pub(super) fn over(&mut self, given: &RoundsEnd) {
        if let RoundsEnd::Impossible { fault, reason } = given {
            self.given_up = Some((fault.clone(), reason.clone()));
        }
    }
}
