//! Requests to the store about ranks of other hosts and about public names, and the processes that wait for the answers.
//!
//! The store is that of the world's ranks, or that of the first world's for what concerns several worlds. Every agent reaches both. Names of keys and fences begin with [`PREFIX`].

use super::fences::{Kind, Met};
use super::names::{Naming, Taking};
use super::pmi1::{Barrier, KeysWanted};
use super::pmix::{Looking, Meeting, OfWorld, Wanted};
use super::refusals::Source;
use super::spawn::Spawn;
use super::{Action, Cx, Reach};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_keyvalue::store::Ask;
use rlaunch_protocol::wire::frozen::client::Words;
use rlaunch_protocol::wire::node_news::MpiWire;

/// How the names of keys and fences begin.
pub(super) const PREFIX: &str = "rlaunch/mpi";

/// Purpose of a request to the store.
#[derive(Debug)]
pub(super) enum Pending {
    /// Nothing: no rank depends on it.
    Quiet,
    /// Something that processes have put for other hosts.
    Put(Source),
    /// Ranks at a barrier of PMI-1.
    Barrier(Met<Barrier>),
    /// Keys that other hosts have put in a space of PMI-1.
    Keys(KeysWanted),
    /// Ranks at a meeting of PMIx.
    Meeting(Met<Meeting>),
    /// A process that waits until a rank has committed something.
    Committed(Wanted),
    /// The data that ranks of a host have committed.
    Data(Looking),
    /// The ranks that have come on other hosts: those of a fence of a wire.
    Came(MpiWire, RankSet),
    /// About ranks of another world.
    OfWorld(OfWorld),
    /// A process that publishes, looks up or takes back a name of PMI-1.
    Name(ClientId, Naming),
    /// A process that publishes values of PMIx, or takes them back: the names that follow.
    Published(super::fences::Waiter, Vec<Vec<u8>>),
    /// A process that looks up values of PMIx.
    Lookup(Taking),
    /// A process that starts programs.
    Spawn(Spawn),
    /// A help message that another host may have shown.
    Help(super::help::Name),
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

    /// Asks the store.
    pub(super) fn ask(&mut self, out: &mut VecDeque<Action>, reach: Reach, ask: Ask<'_>, pending: Pending) {
        let seq = self.number(pending);
        out.push_back(Action::Ask { seq, reach, words: Words::write(ask) });
    }

    fn number(&mut self, pending: Pending) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.pending.insert(self.last, pending);
        self.last
    }
}

impl Cx<'_> {
    /// Asks the store of the world.
    pub(super) fn ask(&mut self, ask: Ask<'_>, pending: Pending) {
        self.remote.ask(self.out, Reach::World, ask, pending);
    }

    /// Asks the store of all worlds of the job.
    pub(super) fn ask_for_all(&mut self, ask: Ask<'_>, pending: Pending) {
        self.remote.ask(self.out, Reach::Job, ask, pending);
    }

    /// Orders something of the job for a rank.
    pub(super) fn order(&mut self, rank: Rank, words: Vec<u8>, pending: Pending) {
        let seq = self.remote.number(pending);
        self.out.push_back(Action::Order { seq, client: self.client, rank, words });
    }

    /// Waits until the hosts of all these ranks have come.
    pub(super) fn fence<K: Kind>(&mut self, met: Met<K>, pending: fn(Met<K>) -> Pending) {
        let (name, all) = (met.name(), met.all.clone());
        let own = self.layout.own_of(&all);
        self.ask(Ask::Fence { name: name.as_bytes(), all: &all, who: &own, within: None }, pending(met));
    }
}

/// Fowler, Noll and Vo's hash of 64 bits: names of any length become parts of keys. All hosts have the same for the same name.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}
