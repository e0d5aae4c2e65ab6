//! How each rank has ended, for the programs of the job: a key of the job's store, once the last words are known.

use super::notice::RankExit;
use super::{Cx, JobAction};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::ended::{Ended, How};
use rlaunch_protocol::wire::to_root::Facts;

/// How long the last words of a rank are waited for.
const PATIENCE: Span = Span::from_millis(200);

/// A rank whose last words are not known yet.
#[derive(Debug)]
struct Waiting {
    rank: Rank,
    until: Mono,
    ended: Box<Ended>,
}

/// The ranks that have ended.
#[derive(Debug, Default)]
pub(super) struct EndedRanks {
    waiting: BTreeMap<ProcId, Waiting>,
    /// Ranks that have a key.
    published: BTreeSet<Rank>,
    pids: BTreeMap<Rank, u32>,
    /// The job ends: no program is left that reads it.
    is_off: bool,
}

impl EndedRanks {
    /// A rank runs. The end of the process before it is not its own.
    pub(super) fn on_started(&mut self, cx: &mut Cx<'_>, proc: ProcId, pid: u32) {
        let Some(rank) = cx.facts.placement().rank_of(proc) else { return };
        self.pids.insert(rank, pid);
        if self.published.remove(&rank) {
            act(cx, rank, None);
        }
    }

    pub(super) fn on_exited(&mut self, cx: &mut Cx<'_>, proc: ProcId, exit: &RankExit) {
        if self.is_off || cx.facts.hosts.is_recently_lost(exit.node) && self.published.contains(&exit.rank) {
            return;
        }
        let pid = self.pids.remove(&exit.rank).unwrap_or(0);
        let host = cx.facts.host_name(exit.node);
        let ended = Ended { pid, asked: exit.asked, ..Ended::of(How::Unknown, host).with_status(exit.status) };
        if exit.status.is_success() {
            return self.publish(cx, exit.rank, ended);
        }
        let (until, ended) = (cx.now + PATIENCE, Box::new(ended));
        self.waiting.insert(proc, Waiting { rank: exit.rank, until, ended });
    }

    pub(super) fn on_facts(&mut self, cx: &mut Cx<'_>, proc: ProcId, facts: &Facts) {
        if let Some(Waiting { rank, ended, .. }) = self.waiting.remove(&proc) {
            self.publish(cx, rank, ended.with_facts(facts));
        }
    }

    /// The host of a rank was lost: later messages about the rank do not count.
    pub(super) fn on_host_lost(&mut self, cx: &mut Cx<'_>, rank: Rank, node: NodeId) {
        let pid = self.pids.remove(&rank).unwrap_or(0);
        self.waiting.retain(|_, waiting| waiting.rank != rank);
        let host = cx.facts.host_name(node);
        self.publish(cx, rank, Ended { pid, ..Ended::of(How::HostLost, host) });
    }

    /// A rank could not be started.
    pub(super) fn on_not_started(&mut self, cx: &mut Cx<'_>, proc: ProcId, node: NodeId) {
        let Some(rank) = cx.facts.placement().rank_of(proc).filter(|_| !self.is_off) else { return };
        let host = cx.facts.host_name(node);
        self.publish(cx, rank, Ended::of(How::NotStarted, host));
    }

    /// Ranks are forgotten: their keys are removed.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, ranks: &BTreeSet<Rank>) {
        self.waiting.retain(|_, waiting| !ranks.contains(&waiting.rank));
        for rank in ranks {
            if self.published.remove(rank) {
                act(cx, *rank, None);
            }
        }
    }

    /// No rank is left that would read it.
    pub(super) fn on_ending_began(&mut self) {
        self.is_off = true;
        self.waiting.clear();
        self.pids.clear();
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        while let Some(proc) = self.waiting.iter().find(|(_, waiting)| waiting.until <= now).map(|(proc, _)| *proc) {
            if let Some(Waiting { rank, ended, .. }) = self.waiting.remove(&proc) {
                self.publish(cx, rank, *ended);
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.waiting.values().map(|waiting| waiting.until).min()
    }

    fn publish(&mut self, cx: &mut Cx<'_>, rank: Rank, ended: Ended) {
        self.published.insert(rank);
        act(cx, rank, Some(Box::new(ended)));
    }
}

fn act(cx: &mut Cx<'_>, rank: Rank, ended: Option<Box<Ended>>) {
    let placement = cx.facts.placement();
    let group = OsBytes::from(placement.worlds.group(placement.world_of(rank)));
    let rank = placement.in_world(rank);
    cx.act(JobAction::Ended { group, rank, ended });
}
