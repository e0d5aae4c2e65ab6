//! The rank that failed first: the root cause that rlaunch reports and whose exit code it takes.
//!
//! Messages arrive in the order in which an agent saw things; times decide which happened first. A rank's end lies between two moments: the
//! rank was last known to run, and the rank was seen to have ended. If such intervals overlap, the first rank cannot be known. The host's
//! own clock decides about two on one host. Otherwise the rank that explains most is named. A rank killed by a signal that rlaunch did not
//! send comes first, because a crash makes its peers fail, not the other way round. A rank that wrote down the reason comes second, and any
//! other rank last.
//!
//! Ranks that ended only because rlaunch ended the job are never the cause.
//!
//! The same holds for hosts. A host was lost between its last message and the news of its loss, or the next message that did not come.
//! Silence is known as a loss only when a lease has expired, and the effects of that loss on others are seen long before. The first of
//! several hosts that was reported is named, unless another was surely lost before. All hosts that may have been lost before are named with
//! it. With a rank, hosts that were silent already when its end was seen are named too. They may be the cause, or their messages may have
//! been late. A host that only did not answer when its ranks were to be ended is never named for that.

use super::hosts::Loss;
use super::notice::{EndingBegan, RankExit};
use super::srun_ends::SrunEnds;
use crate::events::{Cause, Lost};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Mono;

/// The evidence.
#[derive(Debug, Default)]
pub(super) struct RootCause {
    /// Evidence of this generation. Another generation begins without any.
    now: Evidence,
    began: Option<(Cause, Mono)>,
    /// The reason for the loss of hosts.
    pub(super) srun_ends: SrunEnds,
    /// The scheduler ends the job, also if it had begun to end.
    scheduler_ends: Option<Cause>,
    /// Nodes whose init or guardian was lost: what ends there now was killed for it.
    lost_supervisor: BTreeSet<NodeId>,
}

/// The evidence of one generation of ranks.
#[derive(Debug, Default)]
struct Evidence {
    failures: Vec<RankExit>,
    /// Ranks that wrote why they failed.
    explained: BTreeSet<Rank>,
    /// Signals that we passed on while the job continued.
    forwarded: BTreeSet<Signal>,
    /// The time at which the ranks were ordered to end.
    cleared_from: Option<Mono>,
    /// The failure that was decided to be the cause: one that rounds could not absorb.
    decided: Option<RankExit>,
    lost_hosts: Vec<Loss>,
}

impl Loss {
    /// Whether the launcher itself was suspended, so that it could not receive messages.
    const fn is_suspension(&self) -> bool {
        matches!(self.lost, Lost::Starved(_))
    }

    /// Whether it may have been lost before that one. All that we have starved ourselves were lost at once, whenever we have read
    /// what they had said until then.
    fn may_be_before(&self, other: &Self) -> bool {
        self.between.0 <= other.between.1 || (self.is_suspension() && other.is_suspension())
    }
}

impl RootCause {
    /// A rank failed. A failure that was surely only seen after the ending began may have come of that end. A failure that its node saw
    /// after the order to end is our own work. Neither is evidence. A failure that may have been seen before counts, however late the
    /// message arrives: the clock of another host is known only so well.
    pub(super) fn failed(&mut self, failure: RankExit) {
        let began = self.now.cleared_from.or(self.began.as_ref().map(|(_, began)| *began));
        let ours = failure.asked || began.is_some_and(|began| failure.seen_after >= began);
        if !ours && !self.lost_supervisor.contains(&failure.node) {
            self.now.failures.push(failure);
        }
    }

    /// All ranks are being ended, and may be started again.
    pub(super) const fn cleared_from(&mut self, now: Mono) {
        self.now.cleared_from = Some(now);
    }

    /// The failure of a rank that was surely seen before all ranks were ended.
    pub(super) fn failed_before_clearing(&self) -> Option<RankExit> {
        self.root().filter(|failure| self.now.cleared_from.is_some_and(|from| failure.at < from))
    }

    /// Other processes play all ranks now.
    pub(super) fn reset_for_generation(&mut self) {
        self.now = Evidence::default();
    }

    /// Rounds are given up because of this failure; others that came of it, or before, do not matter.
    pub(super) fn decided(&mut self, failure: RankExit) {
        self.now.decided.get_or_insert(failure);
    }

    /// The process of whom that was decided has ended by itself since: it says how.
    pub(super) fn refined(&mut self, failure: RankExit) {
        if let Some(decided) = self.now.decided.as_mut().filter(|decided| decided.rank == failure.rank) {
            *decided = failure;
        }
    }

    /// The node reports events in the order in which it saw them: ranks that failed before are known.
    pub(super) fn on_lost_supervisor(&mut self, node: NodeId) {
        self.lost_supervisor.insert(node);
    }

    pub(super) fn lost(&mut self, loss: Loss) {
        // A part of ours that was killed reports that itself, and nothing about its host.
        if matches!(loss.lost, Lost::Agent(_) | Lost::NoHeartbeat | Lost::Expired | Lost::Starved(_) | Lost::AgentMute)
        {
            self.now.lost_hosts.push(loss);
        }
    }

    /// A host has reported that the scheduler ends the job. In a batch script whose shell has become rlaunch, the scheduler's signal
    /// reaches rlaunch first.
    pub(super) fn on_scheduler_ends(&mut self, cause: Cause) {
        self.scheduler_ends.get_or_insert(cause);
    }

    /// The loss of the host of the first failed rank, if Slurm has killed the whole step there, the rank before the agent.
    fn killed_with_srun(&self) -> Option<Cause> {
        let rank = self.root()?;
        let is_killed = matches!(rank.status, Status::Signaled { sig: Signal::KILL, .. });
        let lost = self.srun_ends.loss_near(rank.at, rank.node).filter(|_| is_killed)?;
        Some(Cause::Lost { node: rank.node, lost })
    }

    fn loss_by_srun(&self, host: &Loss) -> Option<Lost> {
        self.srun_ends.loss_near(host.between.1, host.node)
    }

    fn cause_of(&self, host: &Loss) -> Cause {
        Cause::Lost { node: host.node, lost: self.loss_by_srun(host).unwrap_or(host.lost) }
    }

    /// A host is reached again, with other parts of ours.
    pub(super) fn revive(&mut self, node: NodeId) {
        self.srun_ends.revive(node);
        self.lost_supervisor.remove(&node);
    }

    pub(super) fn explained(&mut self, rank: Rank) {
        self.now.explained.insert(rank);
    }

    pub(super) fn forwarded(&mut self, sig: Signal) {
        self.now.forwarded.insert(sig);
    }

    pub(super) fn on_ending_began(&mut self, began: &EndingBegan) {
        self.began = Some((began.cause.clone(), began.at));
    }

    /// The first cause, as far as it is known now.
    pub(super) fn cause(&self) -> Cause {
        if let (Some((Cause::Signal(Signal::TERM), _)), Some(cause)) = (&self.began, &self.scheduler_ends) {
            return cause.clone();
        }
        let rank = self.root().map(|RankExit { rank, status, .. }| Cause::Rank { rank, status });
        match &self.began {
            Some((named @ Cause::Rank { .. }, _)) => self.killed_with_srun().or(rank).unwrap_or_else(|| named.clone()),
            Some((named @ Cause::Lost { node, .. }, _)) => {
                let known = self.now.lost_hosts.iter().find(|host| host.node == *node);
                let before = known.and_then(|known| self.lost_before(known.between.0));
                let by_srun = known.filter(|host| self.loss_by_srun(host).is_some());
                before.or(by_srun).map_or_else(|| named.clone(), |host| self.cause_of(host))
            }
            Some((
                cause @ (Cause::Success
                | Cause::Lead { .. }
                | Cause::Spawn { .. }
                | Cause::Refused { .. }
                | Cause::Unreachable { .. }
                | Cause::Signal(_)
                | Cause::Scheduler { .. }
                | Cause::Timeout { .. }
                | Cause::ReaderClosed(_)
                | Cause::TooFewSlices { .. }
                | Cause::Preempted { .. }),
                _,
            )) => cause.clone(),
            None => rank.unwrap_or(Cause::Success),
        }
    }

    /// Hosts that may have been lost before the first cause, that one included; none where there is no other. The hosts of an srun are
    /// lost together.
    pub(super) fn together(&self) -> Vec<NodeId> {
        let nodes: BTreeSet<NodeId> = match self.cause() {
            Cause::Lost { node, lost } => {
                let by_srun = lost.is_by_srun().then(|| self.srun_ends.lost_with(node)).flatten();
                let nodes = by_srun.unwrap_or_else(|| self.may_be_lost_before(node));
                if nodes.len() > 1 { nodes } else { BTreeSet::new() }
            }
            // It may have failed for their silence. When it was last known to run says nothing of that: mostly at its start.
            Cause::Rank { .. } => {
                let Some(root) = self.root() else { return Vec::new() };
                self.now.lost_hosts.iter().filter(|host| host.between.1 <= root.at).map(|host| host.node).collect()
            }
            Cause::Success
            | Cause::Lead { .. }
            | Cause::Spawn { .. }
            | Cause::Refused { .. }
            | Cause::Unreachable { .. }
            | Cause::Signal(_)
            | Cause::Scheduler { .. }
            | Cause::Timeout { .. }
            | Cause::ReaderClosed(_)
            | Cause::TooFewSlices { .. }
            | Cause::Preempted { .. } => return Vec::new(),
        };
        nodes.into_iter().collect()
    }

    /// Hosts that may have been lost before this lost host, that one included.
    fn may_be_lost_before(&self, node: NodeId) -> BTreeSet<NodeId> {
        let named = self.now.lost_hosts.iter().find(|host| host.node == node);
        let is_before = |host: &&Loss| named.is_some_and(|named| host.may_be_before(named));
        self.now.lost_hosts.iter().filter(is_before).map(|host| host.node).collect()
    }

    /// A lost host that has sent nothing since that failure: the failure may have come of the loss.
    pub(super) fn lost_before_failure(&self, failure: &RankExit) -> Option<Loss> {
        let is_known = |host: &&Loss| host.lost != Lost::AgentMute && !host.is_suspension();
        let known = self.now.lost_hosts.iter().filter(is_known).filter(|host| host.between.0 < failure.at);
        known.min_by_key(|host| host.between).copied()
    }

    /// The first host that was surely lost before that moment.
    fn lost_before(&self, moment: Mono) -> Option<&Loss> {
        let is_known = |host: &&Loss| host.lost != Lost::AgentMute && !host.is_suspension();
        let known = self.now.lost_hosts.iter().filter(is_known).filter(|host| host.between.1 < moment);
        known.min_by_key(|host| host.between.1)
    }

    /// The failure of a rank that was first, or explains most of those that may have been.
    pub(super) fn root(&self) -> Option<RankExit> {
        if self.now.decided.is_some() {
            return self.now.decided;
        }
        let first_seen = self.now.failures.iter().map(|failure| failure.at).min()?;
        // Two moments of one host are as far apart as its clock says, however badly that is known.
        let mut first_here = BTreeMap::new();
        for RankExit { node, here, .. } in &self.now.failures {
            let first = first_here.entry(*node).or_insert(here.1);
            *first = here.1.min(*first);
        }
        // A rank that still ran when the first one had ended was not the first.
        let later = |f: &RankExit| {
            let (alive, at) = f.here;
            let elsewhere = f.alive_at >= first_seen && f.at != first_seen;
            elsewhere || first_here.get(&f.node).is_some_and(|first| alive >= *first && at != *first)
        };
        self.now.failures.iter().min_by_key(|f| (later(f), self.weight(f), f.at, f.rank)).copied()
    }

    /// Whether a rank was killed by a signal that was passed on to all ranks.
    pub(super) fn is_forwarded(&self, failure: &RankExit) -> bool {
        matches!(failure.status, Status::Signaled { sig, .. } if self.now.forwarded.contains(&sig))
    }

    /// Smaller explains more.
    fn weight(&self, failure: &RankExit) -> u8 {
        match failure.status {
            Status::Signaled { .. } if !self.is_forwarded(failure) => 0,
            Status::Signaled { .. } | Status::Exited(_) | Status::Lost
                if self.now.explained.contains(&failure.rank) =>
            {
                1
            }
            Status::Signaled { .. } | Status::Exited(_) | Status::Lost => 2,
        }
    }
}
