//! Ranks that wait in `MPI_Init` for ranks that do not come: reported once.
//!
//! Ranks whose libraries speak different wires do not meet. A host knows its own ranks. Hosts whose ranks wait leave in the store which ranks have come, and each looks there before it reports.
//! The host of the first rank that waits reports for all.

use super::remote::{PREFIX, Pending, Remote};
use super::{Action, Layout, Reach};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;
use rlaunch_base::machine::earliest_of;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::{Mono, Span};
use rlaunch_keyvalue::store::Ask;
use rlaunch_protocol::wire::codec::{append, decode_borrowed};
use rlaunch_protocol::wire::node_news::{MpiNews, MpiWire};

/// How long ranks wait before that is reported.
pub const PATIENCE: Span = Span::from_secs(30);
/// How long ranks wait before other hosts can see who has come.
const ANNOUNCED: Span = Span::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Watching,
    /// The store is asked for the ranks that have come on other hosts.
    Asking,
    Over,
}

/// The ranks that have come, by the wire of their library.
#[derive(Debug, Default)]
struct Came {
    pmi1: RankSet,
    pmix: RankSet,
}

impl Came {
    const fn by(&self, wire: MpiWire) -> &RankSet {
        match wire {
            MpiWire::Pmi1 => &self.pmi1,
            MpiWire::Pmix => &self.pmix,
        }
    }

    const fn by_other_than(&self, wire: MpiWire) -> &RankSet {
        match wire {
            MpiWire::Pmi1 => &self.pmix,
            MpiWire::Pmix => &self.pmi1,
        }
    }

    const fn by_mut(&mut self, wire: MpiWire) -> &mut RankSet {
        match wire {
            MpiWire::Pmi1 => &mut self.pmi1,
            MpiWire::Pmix => &mut self.pmix,
        }
    }
}

/// The ranks that have come, and those that wait for others.
#[derive(Debug, Default)]
pub(super) struct InitWait {
    /// Ranks that have called `MPI_Init`, as far as this host knows.
    came: Came,
    /// Sets of ranks in which one waits for all, some of which have not come, and the time at which the first has begun.
    open: Vec<(MpiWire, RankSet, Mono)>,
    announce_at: Option<Mono>,
    stage: Stage,
}

impl InitWait {
    /// A rank has called `MPI_Init`.
    pub(super) fn come(&mut self, wire: MpiWire, rank: Rank) {
        if self.stage != Stage::Over && !self.came.by(wire).contains(rank) {
            self.came.by_mut(wire).insert(rank);
            self.drop_met();
        }
    }

    /// A rank waits for all of these ranks. PMI-1 does so from its beginning: MPICH waits at places that only the ranks know.
    pub(super) fn wait(&mut self, now: Mono, (wire, all): (MpiWire, &RankSet), rank: Rank) {
        if self.stage == Stage::Over {
            return;
        }
        self.come(wire, rank);
        if !self.came.by(wire).covers(all) && !self.is_open(wire, all) {
            self.open.push((wire, all.clone(), now));
        }
        if !self.open.is_empty() {
            self.announce_at.get_or_insert(now + ANNOUNCED);
        }
    }

    /// All these ranks have come to a fence.
    pub(super) fn over(&mut self, wire: MpiWire, all: &RankSet) {
        if self.stage != Stage::Over {
            self.came.by_mut(wire).extend(all);
            self.drop_met();
        }
    }

    fn drop_met(&mut self) {
        let came = &self.came;
        self.open.retain(|(wire, all, _)| !came.by(*wire).covers(all));
        if self.open.is_empty() {
            self.announce_at = None;
        }
    }

    fn is_open(&self, wire: MpiWire, all: &RankSet) -> bool {
        self.open.iter().any(|(on, other, _)| *on == wire && other == all)
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        if self.stage != Stage::Watching {
            return None;
        }
        earliest_of([self.announce_at, self.report_at()])
    }

    fn report_at(&self) -> Option<Mono> {
        self.open.iter().map(|(.., since)| *since + PATIENCE).min()
    }

    /// `inside`: whether a rank of this host is in MPI.
    pub(super) fn on_timeout(
        &mut self,
        now: Mono,
        (layout, out, remote): (&Layout, &mut VecDeque<Action>, &mut Remote),
        inside: impl Fn(Rank) -> bool,
    ) {
        if self.deadline().is_none_or(|at| now < at) {
            return;
        }
        if self.announce_at.is_some_and(|at| at <= now) {
            self.announce_at = None;
            if layout.hosts.len() > 1 {
                let [first, second] = keys_of(layout.here);
                let [ours, others] = [&self.came.pmi1, &self.came.pmix].map(|ranks| append(Vec::new(), ranks));
                let pairs: [(&[u8], &[u8]); 2] = [(first.as_bytes(), &ours), (second.as_bytes(), &others)];
                remote.ask(out, Reach::World, Ask::SetAll(&pairs), Pending::Quiet);
            }
        }
        let Some((wire, all, _)) = self.open.iter().find(|(.., since)| *since + PATIENCE <= now) else { return };
        let (wire, all) = (*wire, all.clone());
        if layout.own().covers(&all) {
            return self.report((wire, &all), layout, out, inside);
        }
        self.stage = Stage::Asking;
        let keys: Vec<String> = layout.others_of(&all).flat_map(keys_of).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        remote.ask(out, Reach::World, Ask::GetAll(&keys), Pending::Came(wire, all));
    }

    /// The ranks that have come on other hosts.
    pub(super) fn learn(
        &mut self,
        (wire, all): (MpiWire, &RankSet),
        values: &[Option<&[u8]>],
        (layout, out): (&Layout, &mut VecDeque<Action>),
        inside: impl Fn(Rank) -> bool,
    ) {
        if self.stage != Stage::Asking {
            return;
        }
        self.stage = Stage::Watching;
        let is_open = self.is_open(wire, all);
        // As many for each host as it has keys.
        for (value, wire) in values.iter().zip([MpiWire::Pmi1, MpiWire::Pmix].into_iter().cycle()) {
            let ranks: Option<RankSet> = value.and_then(|bytes| decode_borrowed(bytes).ok());
            ranks.iter().for_each(|ranks| self.came.by_mut(wire).extend(ranks));
        }
        self.drop_met();
        if is_open && !self.came.by(wire).covers(all) {
            self.report((wire, all), layout, out, inside);
        }
    }

    fn report(
        &mut self,
        (wire, all): (MpiWire, &RankSet),
        layout: &Layout,
        out: &mut VecDeque<Action>,
        inside: impl Fn(Rank) -> bool,
    ) {
        self.stage = Stage::Over;
        let missing = all.without(self.came.by(wire));
        let apart = missing.without(&missing.without(self.came.by_other_than(wire)));
        let came = all.without(&missing);
        let own = layout.own_of(&came);
        let gone: RankSet =
            own.ranges().flat_map(|(a, b)| a..=b).map(Rank::new).filter(|rank| !inside(*rank)).collect();
        let waiting = came.without(&gone);
        let first = waiting.ranges().next().map(|(first, _)| first);
        if first.is_some_and(|first| layout.is_here(first)) {
            let [waiting, missing, apart] = [waiting, missing, apart].map(|ranks| ranks.ranges().collect());
            out.push_back(Action::News(MpiNews::Waits { waiting, missing, apart }));
        }
    }
}

/// The keys under which a host leaves which ranks have come, by wire.
fn keys_of(node: usize) -> [String; 2] {
    [format!("{PREFIX}/came/{node}"), format!("{PREFIX}/came/{node}/pmix")]
}
