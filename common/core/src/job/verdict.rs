//! Which rank failed first: the root cause that rlaunch reports and whose exit code it takes.
//!
//! Messages arrive in the order in which an agent saw things; what happened first is decided by times. A rank's end lies
//! between the moment when it was last known to run and the moment when it was seen to have ended. Where such intervals
//! overlap, nobody can tell which rank was first (of two on one host its own clock tells), and the one that explains most is named: one killed by a signal that we
//! did not send (a crash makes its peers fail, not the other way round), then one that wrote down why, then any other.
//!
//! Ranks that ended only because we ended the job are never the cause.
//!
//! So with hosts: one was lost between its last word and the news of its loss, or the next word that did not come. The one
//! of which we heard first is named, and with it all others that may have been lost before.

use super::notice::{Began, Failure};
use crate::events::{Cause, Lost};
use crate::id::{NodeId, Rank};
use crate::signal::Signal;
use crate::status::Status;
use crate::time::Mono;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The evidence.
#[derive(Debug)]
pub(super) struct Verdict {
    failures: Vec<Failure>,
    /// Ranks that wrote why they failed.
    explained: BTreeSet<Rank>,
    /// Signals that we passed on while the job went on.
    forwarded: BTreeSet<Signal>,
    began: Option<(Cause, Mono)>,
    gone: Vec<Gone>,
    /// Nodes whose init or guardian was lost: what ends there now was killed for it.
    bereft: BTreeSet<NodeId>,
}

/// A host that was lost.
#[derive(Debug)]
struct Gone {
    node: NodeId,
    lost: Lost,
    /// Between these two.
    between: (Mono, Mono),
}

impl Gone {
    /// Whether nobody can tell which of the two was first. All that we have starved ourselves were lost at once.
    fn is_with(&self, other: &Self) -> bool {
        let starved = |gone: &Self| matches!(gone.lost, Lost::Starved(_));
        let overlap = self.between.0 <= other.between.1 && other.between.0 <= self.between.1;
        starved(self) == starved(other) && (starved(self) || overlap)
    }
}

impl Verdict {
    pub(super) const fn new() -> Self {
        Self {
            failures: Vec::new(),
            explained: BTreeSet::new(),
            forwarded: BTreeSet::new(),
            began: None,
            gone: Vec::new(),
            bereft: BTreeSet::new(),
        }
    }

    /// A rank failed. What was surely only seen after the ending began may have come of that end, and what its node saw when
    /// it had been told to end is our own work: neither is evidence. What may have been seen before is, however late the
    /// message comes: the clock of another host is known only so well.
    pub(super) fn failed(&mut self, failure: Failure) {
        let began = self.began.as_ref().map(|(_, began)| *began);
        let ours = failure.asked || began.is_some_and(|began| failure.seen_after >= began);
        if !ours && !self.bereft.contains(&failure.node) {
            self.failures.push(failure);
        }
    }

    /// The node tells things in the order in which it saw them: whoever failed before is known.
    pub(super) fn bereft(&mut self, node: NodeId) {
        self.bereft.insert(node);
    }

    pub(super) fn lost(&mut self, node: NodeId, lost: Lost, between: (Mono, Mono)) {
        // A part of ours that was killed says so itself, and nothing of its host.
        if matches!(lost, Lost::Agent(_) | Lost::Unheard | Lost::Expired | Lost::Starved(_)) {
            self.gone.push(Gone { node, lost, between });
        }
    }

    pub(super) fn explained(&mut self, rank: Rank) {
        self.explained.insert(rank);
    }

    pub(super) fn forwarded(&mut self, sig: Signal) {
        self.forwarded.insert(sig);
    }

    pub(super) fn began(&mut self, began: &Began) {
        self.began = Some((began.cause.clone(), began.at));
    }

    /// The first cause, as far as it is known now.
    pub(super) fn cause(&self) -> Cause {
        let root = || self.root().map(|Failure { rank, status, .. }| Cause::Rank { rank, status });
        match &self.began {
            Some((named @ Cause::Rank { .. }, _)) => root().unwrap_or_else(|| named.clone()),
            Some((
                cause @ (Cause::Success
                | Cause::Spawn { .. }
                | Cause::Refused { .. }
                | Cause::Unreachable { .. }
                | Cause::Signal(_)
                | Cause::Timeout(_)
                | Cause::ReaderClosed(_)
                | Cause::Lost { .. }),
                _,
            )) => cause.clone(),
            None => root().unwrap_or(Cause::Success),
        }
    }

    /// The hosts of which one was lost first, and nobody can tell which; none where no host's loss is the first cause.
    pub(super) fn together(&self) -> Vec<NodeId> {
        let Some((Cause::Lost { node, .. }, _)) = &self.began else { return Vec::new() };
        let Some(first) = self.gone.iter().find(|gone| gone.node == *node) else { return Vec::new() };
        let nodes: BTreeSet<NodeId> =
            self.gone.iter().filter(|gone| gone.is_with(first)).map(|gone| gone.node).collect();
        nodes.into_iter().collect()
    }

    fn root(&self) -> Option<Failure> {
        let first_seen = self.failures.iter().map(|failure| failure.at).min()?;
        // Two moments of one host are as far apart as its clock says, however badly that is known.
        let mut first_here = BTreeMap::new();
        for Failure { node, here, .. } in &self.failures {
            let first = first_here.entry(*node).or_insert(here.1);
            *first = here.1.min(*first);
        }
        // Whoever still ran when the first one had ended was not the first.
        let later = |f: &Failure| {
            let (alive, at) = f.here;
            let elsewhere = f.alive_at >= first_seen && f.at != first_seen;
            elsewhere || first_here.get(&f.node).is_some_and(|first| alive >= *first && at != *first)
        };
        self.failures.iter().min_by_key(|f| (later(f), self.weight(f), f.at, f.rank)).copied()
    }

    /// Smaller explains more.
    fn weight(&self, failure: &Failure) -> u8 {
        match failure.status {
            Status::Signaled { sig, .. } if !self.forwarded.contains(&sig) => 0,
            Status::Signaled { .. } | Status::Exited(_) | Status::Lost if self.explained.contains(&failure.rank) => 1,
            Status::Signaled { .. } | Status::Exited(_) | Status::Lost => 2,
        }
    }
}
