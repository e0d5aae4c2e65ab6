//! The state of each rank: no report yet, running, ended.

use super::Cx;
use super::clock::{Clock, Offset, Offsets};
use super::facts::JobFacts;
use super::notice::{Notice, RankExit};
use crate::events::{Cause, Lost, RankInGroup, Tried, What};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::by_rank::ByRank;
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::time::{HostTime, Mono};
use rlaunch_plan::place::Placement;
use rlaunch_protocol::wire::to_root::{Exited, Facts, SpawnError, Started};

/// A rank's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Asked for.
    Pending,
    /// Started.
    Running,
    /// SIGKILL does not end it. It still exists, but is not waited for.
    Stuck,
    /// Ended, or could not be started.
    Over,
}

/// The knowledge about the end of a rank's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The process has not ended, as far as is known.
    Open,
    /// Its end was seen.
    Seen,
}

/// The ranks.
#[derive(Debug)]
pub(super) struct Procs {
    clock: Clock,
    offsets: Offsets,
    /// The distance from a process of a rank to the next: the number of requested ranks. A number thus shows which rank it is.
    stride: u32,
    ranks: ByRank<RankProc>,
    /// For each node: its ranks that are not over, and whether it says that it has none left to wait for.
    nodes: Vec<(usize, bool)>,
    /// Nodes with ranks that are waited for.
    busy: usize,
}

/// A rank and its process.
#[derive(Clone, Copy, Debug)]
struct RankProc {
    proc: ProcId,
    state: State,
    started: Option<Mono>,
    /// Whether it has exited with 0 by itself.
    is_finished: bool,
}

impl Procs {
    pub(super) fn new(placement: &Placement, clock: Clock) -> Self {
        let offsets = Offsets::new(placement.nodes.len());
        let stride = placement.world_size();
        let mut procs = Self { clock, offsets, stride, ranks: ByRank::default(), nodes: Vec::new(), busy: 0 };
        procs.begin(placement, ProcId::new(0));
        procs
    }

    /// Counters are the number of what they count, and each process is known as its rank's.
    pub(super) fn check(&self, facts: &JobFacts) -> Result<(), String> {
        let placement = facts.placement();
        if self.ranks.len() != placement.ranks.len() {
            return Err(format!("{} ranks are placed, and {} are watched", placement.ranks.len(), self.ranks.len()));
        }
        let mut open = vec![0_usize; self.nodes.len()];
        for ((rank, rank_proc), (placed, place)) in self.ranks.with_ranks().zip(placement.ranks.with_ranks()) {
            if rank != placed {
                return Err(format!("rank {placed} is placed, and {rank} is watched"));
            }
            if placement.rank_of(rank_proc.proc) != Some(rank) {
                return Err(format!(
                    "{:?} is the process of rank {rank}, and the placement says otherwise",
                    rank_proc.proc
                ));
            }
            if matches!(rank_proc.state, State::Pending | State::Running)
                && let Some(open) = open.get_mut(place.node.index())
            {
                *open += 1;
            }
        }
        for ((counted, over), (actual, node)) in self.nodes.iter().zip(open.into_iter().zip((0..).map(NodeId::new))) {
            // Ranks of a host that has ended may run elsewhere by now.
            if *counted != actual && !over {
                return Err(format!(
                    "{node:?}: counted {counted} processes that have not ended, and there are {actual}"
                ));
            }
        }
        let busy = self.nodes.iter().filter(|(open, over)| *open > 0 && !over).count();
        if self.busy == busy { Ok(()) } else { Err(format!("busy hosts: counted {}, and there are {busy}", self.busy)) }
    }

    /// The number of rank 0's process when all ranks are started again: the others follow it.
    pub(super) fn next_generation(&self) -> ProcId {
        let last = self.ranks.iter().map(|rank_proc| rank_proc.proc.get()).max().unwrap_or_default();
        // Some may have had more than one process.
        ProcId::new(last.checked_div(self.stride).map_or(0, |times| (times + 1).saturating_mul(self.stride)))
    }

    /// Requests another process of a rank whose process has ended, on the rank's present host. Returns its number.
    pub(super) fn anew(&mut self, facts: &JobFacts, rank: Rank) -> Option<ProcId> {
        let node = facts.placement().node_of(rank)?;
        let rank_proc = self.ranks.get_mut(rank.index())?;
        let (open, over) = self.nodes.get_mut(node.index()).filter(|(_, over)| !over)?;
        rank_proc.proc = ProcId::new(rank_proc.proc.get().checked_add(self.stride)?);
        (rank_proc.state, rank_proc.started, rank_proc.is_finished) = (State::Pending, None, false);
        if *open == 0 && !*over {
            self.busy = self.busy.saturating_add(1);
        }
        *open = open.saturating_add(1);
        Some(rank_proc.proc)
    }

    /// Ranks from this one on are new: a process of each is asked for.
    pub(super) fn add(&mut self, facts: &JobFacts, first: Rank) {
        for (rank, rank_proc) in facts.placement().ranks.with_ranks().filter(|(rank, _)| *rank >= first) {
            self.ranks.push(RankProc {
                proc: ProcId::new(rank.get()),
                state: State::Pending,
                started: None,
                is_finished: false,
            });
            let Some((open, over)) = self.nodes.get_mut(rank_proc.node.index()) else { continue };
            if *open == 0 && !*over {
                self.busy = self.busy.saturating_add(1);
            }
            *open = open.saturating_add(1);
        }
    }

    /// Removes the ranks that are not placed any more: their worlds have ended.
    pub(super) fn forget(&mut self, facts: &JobFacts) {
        let placement = facts.placement();
        self.ranks.remove(|rank| placement.node_of(rank).is_none());
    }

    /// Withdraws the request for a process, before its host has got it.
    pub(super) fn withdraw(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        let proc = self
            .ranks
            .get(rank.index())
            .filter(|rank_proc| rank_proc.state == State::Pending)
            .map(|rank_proc| rank_proc.proc);
        let node = cx.facts.placement().node_of(rank);
        if let Some((proc, node)) = proc.zip(node) {
            self.not_started(cx, node, proc);
        }
    }

    /// Whether the process of a rank has not ended, as far as is known.
    pub(super) fn lives(&self, rank: Rank) -> bool {
        self.ranks.get(rank.index()).is_some_and(|rank_proc| rank_proc.state != State::Over)
    }

    /// Whether some rank has exited with 0 by itself.
    pub(super) fn has_finished_rank(&self) -> bool {
        self.ranks.iter().any(|rank_proc| rank_proc.is_finished)
    }

    /// Whether all ranks have.
    pub(super) fn has_all_finished(&self) -> bool {
        self.ranks.iter().all(|rank_proc| rank_proc.is_finished)
    }

    /// Whether no rank of a node is waited for any more, whatever it does.
    pub(super) fn is_node_over(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).is_none_or(|(_, over)| *over)
    }

    /// How many processes have not ended, on hosts that are there.
    pub(super) fn open(&self) -> usize {
        self.nodes.iter().filter(|(_, over)| !over).map(|(open, _)| *open).sum()
    }

    /// Whether the process of a rank has ended: by itself, or with its host.
    pub(super) fn end_of(&self, facts: &JobFacts, rank: Rank) -> End {
        let node = facts.placement().node_of(rank);
        let (Some(rank_proc), Some(node)) = (self.ranks.get(rank.index()), node) else { return End::Open };
        match (rank_proc.state, self.nodes.get(node.index())) {
            (State::Over, _) | (State::Pending | State::Running | State::Stuck, Some((_, true))) => End::Seen,
            (State::Pending | State::Running | State::Stuck, Some((_, false)) | None) => End::Open,
        }
    }

    /// A process of every rank is asked for; rank 0's has this number.
    pub(super) fn begin(&mut self, placement: &Placement, first: ProcId) {
        let rank_proc = |n: u32| RankProc {
            proc: ProcId::new(first.get().saturating_add(n)),
            state: State::Pending,
            started: None,
            is_finished: false,
        };
        self.ranks = (0..placement.world_size()).map(rank_proc).collect();
        self.nodes = vec![(0, false); placement.nodes.len()];
        for rank_proc in &placement.ranks {
            if let Some((open, _)) = self.nodes.get_mut(rank_proc.node.index()) {
                *open = open.saturating_add(1);
            }
        }
        self.busy = self.nodes.iter().filter(|(open, _)| *open > 0).count();
    }

    pub(super) fn started(&mut self, cx: &mut Cx<'_>, node: NodeId, procs: &[Started]) {
        for started in procs {
            // A process is started once, where it was asked for: anything else would be a second life of its number.
            let began = self.offsets.ours(node, started.at);
            let Some(rank) = self.current(cx.facts, node, started.proc) else { continue };
            let local_rank = cx.facts.placement().ranks.get(rank.index()).map(|rank_proc| rank_proc.local_rank);
            let rank_proc = self.ranks.get_mut(rank.index()).filter(|rank_proc| rank_proc.state == State::Pending);
            let Some((rank_proc, local_rank)) = rank_proc.zip(local_rank) else { continue };
            (rank_proc.state, rank_proc.started) = (State::Running, Some(began));
            let at = self.clock.since(began);
            let group = cx.facts.group_of(rank).map(|(group, rank)| RankInGroup { group, rank });
            cx.notify(Notice::Log(What::RankStarted { rank, node, local_rank, group, pid: started.pid, at }));
        }
    }

    /// Records that a process could not be started. `ends_job`: at once, whatever `--on-failure` says, since a job that is not complete
    /// cannot do its work. While ranks are cleared, rlaunch itself may be the cause. Then the next generation will show if it is not.
    pub(super) fn spawn_failed(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        proc: ProcId,
        error: SpawnError,
        tried: Tried,
        ends_job: bool,
    ) {
        let Some(rank) = self.mark_over(cx.facts, node, proc) else { return };
        cx.notify(Notice::Log(What::RankFailed { rank, node, error: error.clone(), tried }));
        if ends_job {
            cx.notify(Notice::End(Cause::Spawn { rank, error }));
        }
        self.notify_if_over(cx, node);
    }

    /// Records that a process will not be started: its world is being ended.
    pub(super) fn not_started(&mut self, cx: &mut Cx<'_>, node: NodeId, proc: ProcId) {
        if self.mark_over(cx.facts, node, proc).is_some() {
            self.notify_if_over(cx, node);
        }
    }

    pub(super) fn exited(&mut self, cx: &mut Cx<'_>, node: NodeId, exited: &Exited) {
        let Some(rank) = self.mark_over(cx.facts, node, exited.proc) else { return };
        let Exited { proc, status, at, alive_at, asked, usage } = *exited;
        if let Some(rank_proc) = self.ranks.get_mut(rank.index()) {
            rank_proc.is_finished = status.is_success() && !asked;
        }
        // An agent that says otherwise must not make the interval empty.
        let here = (HostTime(alive_at.0.min(at.0)), at);
        let alive_at = self.offsets.between(node, here.0).0;
        let (seen_after, at) = self.offsets.between(node, at);
        // The exit was reported, so it is past.
        let at = at.min(cx.now);
        cx.notify(Notice::Log(What::RankExited {
            rank,
            status,
            at: self.clock.since(at),
            alive_at: self.clock.since(alive_at),
            asked,
            usage,
        }));
        let exit = RankExit { rank, node, status, at, alive_at, seen_after, here, asked };
        cx.notify(Notice::Exited(proc, exit));
        self.notify_if_over(cx, node);
    }

    /// Facts about a process that has ended. Returns its rank, if it wrote why it failed into its TORCHELASTIC_ERROR_FILE.
    pub(super) fn facts(&mut self, cx: &mut Cx<'_>, node: NodeId, proc: ProcId, facts: Facts) -> Option<Rank> {
        // Another process may have followed it already.
        let rank = self.ended(cx.facts, node, proc)?;
        let is_explained = facts.error_file.as_ref().is_some_and(|text| !text.is_empty());
        cx.notify(Notice::Log(What::RankFacts { rank, facts }));
        is_explained.then_some(rank)
    }

    /// Records that a process cannot be ended: the wait for all processes leaves it out. Returns whether that is news.
    pub(super) fn mark_stuck(&mut self, cx: &mut Cx<'_>, node: NodeId, proc: ProcId) -> bool {
        if self.rank_proc(cx.facts, node, proc).is_none_or(|rank_proc| rank_proc.state == State::Stuck) {
            return false;
        }
        let Some(rank) = self.mark_over(cx.facts, node, proc) else { return false };
        if let Some(rank_proc) = self.ranks.get_mut(rank.index()) {
            rank_proc.state = State::Stuck;
        }
        // Its agent waits for it until the order comes that it need not.
        self.notify_if_all_over(cx);
        true
    }

    /// The nodes with such processes.
    pub(super) fn stuck_nodes(&self, facts: &JobFacts) -> BTreeSet<NodeId> {
        let stuck = self.ranks.with_ranks().filter(|(_, rank_proc)| rank_proc.state == State::Stuck);
        stuck.filter_map(|(rank, _)| facts.placement().node_of(rank)).collect()
    }

    /// A node has nothing more to report. None of its ranks is waited for any more, also none that was never started or
    /// cannot be killed. A rank that has not ended by then means that the agent ended too early.
    pub(super) fn node_over(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let had_open_ranks = self.mark_node_over(node);
        if had_open_ranks {
            cx.notify(Notice::End(Cause::Lost { node, lost: Lost::AgentEarly }));
        }
        self.notify_if_over(cx, node);
    }

    /// Whether a rank has not ended and is not known as never started.
    pub(super) fn is_open(&self, facts: &JobFacts, rank: Rank) -> bool {
        self.end_of(facts, rank) == End::Open
    }

    /// The processes of this node are not waited for any more: the node is left out, or lost. Not a failure.
    pub(super) fn absent(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let _had_open_ranks = self.mark_node_over(node);
        self.notify_if_all_over(cx);
    }

    /// Marks a node as over. Returns whether the node was not over and still has ranks that are not.
    fn mark_node_over(&mut self, node: NodeId) -> bool {
        let Some((open, over)) = self.nodes.get_mut(node.index()).filter(|(_, over)| !over) else { return false };
        *over = true;
        if *open > 0 {
            self.busy = self.busy.saturating_sub(1);
        }
        *open > 0
    }

    pub(super) fn offset(&mut self, node: NodeId, offset: Offset) {
        self.offsets.set(node, offset);
    }

    /// The rank of a process, if it is the one of its rank, and of this node.
    fn current(&self, facts: &JobFacts, node: NodeId, proc: ProcId) -> Option<Rank> {
        let rank = facts.placement().rank_of(proc)?;
        let rank_proc = self.ranks.get(rank.index()).filter(|rank_proc| rank_proc.proc == proc);
        rank_proc.filter(|_| facts.placement().node_of(rank) == Some(node)).map(|_| rank)
    }

    fn rank_proc(&self, facts: &JobFacts, node: NodeId, proc: ProcId) -> Option<&RankProc> {
        self.ranks.get(self.current(facts, node, proc)?.index())
    }

    /// The rank of a process of this node that has ended.
    fn ended(&self, facts: &JobFacts, node: NodeId, proc: ProcId) -> Option<Rank> {
        let rank = facts.placement().rank_of(proc)?;
        let rank_proc = self.ranks.get(rank.index()).filter(|_| facts.placement().node_of(rank) == Some(node))?;
        (proc < rank_proc.proc || (rank_proc.proc == proc && rank_proc.state == State::Over)).then_some(rank)
    }

    /// Marks a process as ended. Returns its rank, unless the process had ended before, or is none of this node.
    fn mark_over(&mut self, facts: &JobFacts, node: NodeId, proc: ProcId) -> Option<Rank> {
        let rank = self.current(facts, node, proc)?;
        let rank_proc = self.ranks.get_mut(rank.index())?;
        match rank_proc.state {
            State::Pending | State::Running => {}
            State::Stuck => {
                rank_proc.state = State::Over;
                return Some(rank);
            }
            State::Over => return None,
        }
        rank_proc.state = State::Over;
        if let Some((open, over)) = self.nodes.get_mut(node.index()) {
            *open = open.saturating_sub(1);
            if *open == 0 && !*over {
                self.busy = self.busy.saturating_sub(1);
            }
        }
        Some(rank)
    }

    /// Whether the process was requested, and its start was not reported yet.
    pub(super) fn is_pending(&self, facts: &JobFacts, proc: ProcId) -> bool {
        let rank = facts.placement().rank_of(proc);
        let rank_proc = rank.and_then(|rank| self.ranks.get(rank.index())).filter(|rank_proc| rank_proc.proc == proc);
        rank_proc.is_some_and(|rank_proc| rank_proc.state == State::Pending)
    }

    /// Whether this is the process of a rank of this node.
    pub(super) fn is_current(&self, facts: &JobFacts, node: NodeId, rank: Rank, proc: ProcId) -> bool {
        self.current(facts, node, proc) == Some(rank)
    }

    /// A moment of a host, on our clock.
    pub(super) fn when(&self, node: NodeId, at: HostTime) -> Mono {
        self.offsets.ours(node, at)
    }

    /// When a rank was started, if it was.
    pub(super) fn started_at(&self, rank: Rank) -> Option<Mono> {
        self.ranks.get(rank.index())?.started
    }

    /// Whether no rank of this node is waited for.
    pub(super) fn is_over(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).is_some_and(|(open, over)| *open == 0 || *over)
    }

    /// A rank of this node is not waited for any more.
    fn notify_if_over(&self, cx: &mut Cx<'_>, node: NodeId) {
        if self.is_over(node) {
            cx.notify(Notice::RanksOver(node));
        }
        self.notify_if_all_over(cx);
    }

    fn notify_if_all_over(&self, cx: &mut Cx<'_>) {
        if self.busy == 0 {
            cx.notify(Notice::AllOver);
        }
    }
}
