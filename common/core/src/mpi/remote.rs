//! Requests to the store about ranks of other hosts, and the processes that wait for the answers.
//!
//! The store is that of the ranks' generation, which every agent reaches. Names of keys and fences begin with [`PREFIX`].

use super::pmi1::Barrier;
use super::pmix::{Met, Wanted};
use super::{Action, Cx};
use crate::rank_set::RankSet;
use crate::store::Ask;
use crate::wire::frozen::client::Words;
use alloc::collections::BTreeMap;

/// How the names of keys and fences begin.
pub(super) const PREFIX: &str = "rlaunch/mpi";

/// Purpose of a request to the store.
#[derive(Debug)]
pub(super) enum Pending {
    /// Nothing: something was stored.
    Quiet,
    /// Ranks at a barrier of PMI-1.
    Barrier(Barrier),
    /// The same after all hosts have come: their keys are on the way.
    Keys(Barrier),
    /// Ranks at a meeting of PMIx.
    Meeting(Met),
    /// A process that waits until a rank has committed something.
    Committed(Wanted),
    /// A process that is about to get what a rank has committed.
    Data(Wanted),
}

/// Requests to the store.
#[derive(Debug, Default)]
pub(super) struct Remote {
    last: u64,
    pending: BTreeMap<u64, Pending>,
}

impl Remote {
    /// Takes the purpose of a request that was answered.
    pub(super) fn take(&mut self, seq: u64) -> Option<Pending> {
        self.pending.remove(&seq)
    }
}

impl Cx<'_> {
    /// Asks the store.
    pub(super) fn ask(&mut self, ask: Ask<'_>, pending: Pending) {
        self.remote.last = self.remote.last.wrapping_add(1);
        self.remote.pending.insert(self.remote.last, pending);
        self.out.push_back(Action::Ask { seq: self.remote.last, words: Words::write(ask) });
    }

    /// Waits until the hosts of all these ranks have come.
    pub(super) fn fence(&mut self, name: &[u8], all: &RankSet, pending: Pending) {
        let own = self.layout.own_of(all);
        self.ask(Ask::Fence { name, all, who: &own, within: None }, pending);
    }
}

/// Fowler, Noll and Vo's hash of 64 bits: names of any length become parts of keys. All hosts have the same for the same name.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}
