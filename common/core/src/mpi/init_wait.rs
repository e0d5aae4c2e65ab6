//! Ranks that wait in `MPI_Init` for ranks that do not come: reported once.
//!
//! A host knows its own ranks. Hosts whose ranks wait leave in the store which ranks have come, and each looks there before it reports.
//! The host of the first rank that waits reports for all.

use super::remote::{PREFIX, Pending, Remote};
use super::{Action, Layout, Reach};
use crate::id::Rank;
use crate::machine::earliest_of;
use crate::rank_set::RankSet;
use crate::store::Ask;
use crate::time::{Mono, Span};
use crate::wire::node_news::NodeNews;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

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

/// The ranks that have come, and those that wait for others.
#[derive(Debug, Default)]
pub(super) struct InitWait {
    /// Ranks that have called `MPI_Init`, as far as this host knows.
    came: RankSet,
    /// Sets of ranks in which one waits for all, some of which have not come, and the time at which the first has begun.
    open: Vec<(RankSet, Mono)>,
    announce_at: Option<Mono>,
    stage: Stage,
}

impl InitWait {
    /// A rank has called `MPI_Init`.
    pub(super) fn come(&mut self, rank: Rank) {
        if self.stage != Stage::Over && !self.came.contains(rank) {
            self.came.insert(rank);
            self.settle();
        }
    }

    /// A rank waits for all of these ranks. PMI-1 does so from its beginning: MPICH waits at places that only the ranks know.
    pub(super) fn wait(&mut self, now: Mono, all: &RankSet, rank: Rank) {
        if self.stage == Stage::Over {
            return;
        }
        self.come(rank);
        if !self.came.covers(all) && !self.open.iter().any(|(other, _)| other == all) {
            self.open.push((all.clone(), now));
        }
        if !self.open.is_empty() {
            self.announce_at.get_or_insert(now + ANNOUNCED);
        }
    }

    /// All these ranks have come to a fence.
    pub(super) fn over(&mut self, all: &RankSet) {
        if self.stage != Stage::Over {
            self.came.extend(all);
            self.settle();
        }
    }

    fn settle(&mut self) {
        let came = &self.came;
        self.open.retain(|(all, _)| !came.covers(all));
        if self.open.is_empty() {
            self.announce_at = None;
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        if self.stage != Stage::Watching {
            return None;
        }
        earliest_of([self.announce_at, self.report_at()])
    }

    fn report_at(&self) -> Option<Mono> {
        self.open.iter().map(|(_, since)| *since + PATIENCE).min()
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
                let (key, value) = (key_of(layout.here), to_bytes(&self.came));
                remote.ask(out, Reach::World, Ask::Set(key.as_bytes(), &value), Pending::Quiet);
            }
        }
        let Some((all, _)) = self.open.iter().find(|(_, since)| *since + PATIENCE <= now) else { return };
        let all = all.clone();
        if layout.own().covers(&all) {
            return self.report(&all, layout, out, inside);
        }
        self.stage = Stage::Asking;
        let keys: Vec<String> = layout.others_of(&all).map(key_of).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        remote.ask(out, Reach::World, Ask::GetAll(&keys), Pending::Came(all));
    }

    /// The ranks that have come on other hosts.
    pub(super) fn learn(
        &mut self,
        all: &RankSet,
        values: &[Option<&[u8]>],
        (layout, out): (&Layout, &mut VecDeque<Action>),
        inside: impl Fn(Rank) -> bool,
    ) {
        if self.stage != Stage::Asking {
            return;
        }
        self.stage = Stage::Watching;
        let is_open = self.open.iter().any(|(other, _)| other == all);
        values.iter().flatten().for_each(|bytes| from_bytes(bytes, &mut self.came));
        self.settle();
        if is_open && !self.came.covers(all) {
            self.report(all, layout, out, inside);
        }
    }

    fn report(&mut self, all: &RankSet, layout: &Layout, out: &mut VecDeque<Action>, inside: impl Fn(Rank) -> bool) {
        self.stage = Stage::Over;
        let missing = all.without(&self.came);
        let came = all.without(&missing);
        let own = layout.own_of(&came);
        let gone: RankSet =
            own.ranges().flat_map(|(a, b)| a..=b).map(Rank::new).filter(|rank| !inside(*rank)).collect();
        let waiting = came.without(&gone);
        let first = waiting.ranges().next().map(|(first, _)| first);
        if first.is_some_and(|first| layout.is_here(first)) {
            let [waiting, missing] = [waiting, missing].map(|ranks| ranks.ranges().collect());
            out.push_back(Action::News(NodeNews::MpiWaits { waiting, missing }));
        }
    }
}

/// The key under which a host leaves which ranks have come.
fn key_of(node: usize) -> String {
    format!("{PREFIX}/came/{node}")
}

fn to_bytes(ranks: &RankSet) -> Vec<u8> {
    ranks.ranges().flat_map(|(first, last)| [first, last]).flat_map(u32::to_be_bytes).collect()
}

fn from_bytes(bytes: &[u8], ranks: &mut RankSet) {
    for pair in bytes.chunks_exact(8) {
        if let Some(([first, last], _)) = Some(pair.as_chunks::<4>()).and_then(|(words, _)| words.split_first_chunk()) {
            ranks.insert_range(u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        }
    }
}
