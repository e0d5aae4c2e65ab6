//! Causes of the end of a round: all faults that are reported until the next round is assigned.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::rank_fault::{Fault, FaultKind};

/// Number of faults of a round that are kept with their texts: thousands of ranks send the same text.
const TEXTS: usize = 32;

/// Longest time by which a death is reported after complaints of other ranks about it: an agent looks at sockets, clients report at once.
const COMPLAINT: Span = Span::from_millis(100);

/// The faults of a round, and when what followed from them was done.
#[derive(Debug, Default)]
pub(super) struct RoundFaults {
    /// In the order in which they were reported.
    pub(super) faults: Vec<Fault>,
    /// When the first of them was seen.
    first: Option<Mono>,
    /// The first that was not planned, among the faults, and when it was seen.
    unplanned: Option<(usize, Mono)>,
    /// The first death that can be what others complain of, among the faults.
    death: Option<usize>,
    /// The first of those whose coming was all that the round was for, and who have not come after all.
    void: Option<Fault>,
    /// When it was decided to interrupt.
    decided: Option<Mono>,
}

impl RoundFaults {
    pub(super) fn add(&mut self, fault: Fault, at: Mono) {
        self.first.get_or_insert(at);
        if !fault.kind.is_planned() && !self.is_consequence(fault.kind) {
            let (_, first) = *self.unplanned.get_or_insert((self.faults.len(), at));
            if self.death.is_none() && is_death(fault.kind, at, first) {
                self.death = Some(self.faults.len());
            }
        }
        let text = if self.faults.len() < TEXTS { fault.text } else { OsBytes::default() };
        self.faults.push(Fault { text, ..fault });
    }

    /// Whether such a fault now says only that other ranks have left: they were asked to, for something planned.
    pub(super) fn is_consequence(&self, kind: FaultKind) -> bool {
        let planned = self.faults.first().is_some_and(|first| first.kind.is_planned());
        kind == FaultKind::Exception && planned && self.unplanned.is_none()
    }

    /// The fault that ranks receive when they have to leave: a death, about which others may have complained before; else the first fault
    /// that was not planned.
    pub(super) fn fault_for_ranks(&self) -> Option<&Fault> {
        self.real().or(self.first()).map(|(fault, _)| fault).or(self.void.as_ref())
    }

    /// The rank whose complaint was received before the death that it is about.
    pub(super) fn victim(&self) -> Option<Rank> {
        let death = self.death.and_then(|at| self.faults.get(at))?;
        let (first, _) = self.real_first()?;
        (first.kind == FaultKind::Exception && first.initial != death.initial).then_some(first.initial)
    }

    pub(super) fn decide(&mut self, now: Mono) {
        self.decided.get_or_insert(now);
    }

    /// The first fault, and the time at which it was seen.
    pub(super) fn first(&self) -> Option<(&Fault, Mono)> {
        self.faults.first().zip(self.first)
    }

    /// The first fault that was not planned, and the time at which it was seen.
    pub(super) fn real(&self) -> Option<(&Fault, Mono)> {
        let (first, at) = self.real_first()?;
        let death = self.death.and_then(|at| self.faults.get(at));
        Some((death.unwrap_or(first), at))
    }

    /// Many may be planned before it: a whole rack is about to be taken away, and each of its ranks has ended.
    fn real_first(&self) -> Option<(&Fault, Mono)> {
        let (first, at) = self.unplanned?;
        self.faults.get(first).map(|fault| (fault, at))
    }

    /// All of them, that by which the round is called first.
    pub(super) fn into_faults(self) -> Vec<Fault> {
        let Self { mut faults, death, .. } = self;
        if let Some(to_front) = death.and_then(|death| faults.get_mut(..=death)) {
            to_front.rotate_right(1);
        }
        faults
    }

    /// The first process whose coming is among them.
    pub(super) fn on_registered(&self) -> Option<Rank> {
        self.faults.iter().find(|fault| fault.kind == FaultKind::Joined).map(|fault| fault.initial)
    }

    /// Newcomers have not come after all. `lost`: they are gone, and do not wait. If they only wait, nothing changes after only planned
    /// faults.
    pub(super) fn come_not(&mut self, newcomers: &[Rank], lost: bool) {
        if self.unplanned.is_none() && !lost {
            return;
        }
        let newcomers: BTreeSet<Rank> = newcomers.iter().copied().collect();
        let stays = |fault: &Fault| fault.kind != FaultKind::Joined || !newcomers.contains(&fault.initial);
        for index in self.unplanned.iter_mut().map(|(index, _)| index).chain(&mut self.death) {
            *index = self.faults.iter().take(*index).filter(|fault| stays(fault)).count();
        }
        self.void = self.void.take().or_else(|| self.faults.iter().find(|fault| !stays(fault)).cloned());
        self.faults.retain(stays);
    }

    /// From the first fault to the decision to interrupt, and to the last host's ready. The assignment takes no time that a machine
    /// could see.
    pub(super) fn phases(&self, now: Mono) -> [Span; 3] {
        let decided = self.decided.unwrap_or(now);
        let first = self.first.unwrap_or(decided);
        [decided.since(first), now.since(decided), Span::ZERO]
    }
}

/// Whether the faults of others can follow from this one: an exception soon before a death or a loss of a host comes from it.
fn is_death(kind: FaultKind, at: Mono, first: Mono) -> bool {
    match kind {
        FaultKind::Ended(_) => at <= first + COMPLAINT,
        // The loss of a host is known only after its lease.
        FaultKind::HostLost => true,
        // The cause of a rank that was ended because it did not leave is another rank.
        FaultKind::Overdue(_)
        | FaultKind::Exception
        | FaultKind::Hang
        | FaultKind::Left(_)
        | FaultKind::Warned
        | FaultKind::Joined => false,
    }
}
