//! What is known of each rank: not yet heard of, running, over.

use super::Cx;
use super::clock::{Clock, Offset, Offsets};
use super::notice::{Failure, Notice};
use crate::events::{Cause, Lost, What};
use crate::id::{LocalRank, NodeId, ProcId, Rank};
use crate::place::{Placement, Seat as Place};
use crate::time::{HostTime, Mono};
use crate::wire::to_root::{Exited, Facts, SpawnError, Started};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// A rank's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Asked for.
    Pending,
    /// Started.
    Running,
    /// SIGKILL does not end it: nobody waits for its end, but it has not ended.
    Stuck,
    /// It ended, or could not be started.
    Over,
}

/// What is known of the end of a rank's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It has not ended, as far as is known.
    Open,
    /// It is over.
    Seen,
}

/// The ranks.
#[derive(Debug)]
pub(super) struct Procs {
    clock: Clock,
    offsets: Offsets,
    /// From a process of a rank to the next: the ranks that were asked for, however many are left.
    stride: u32,
    ranks: Vec<Seat>,
    /// For each node: its ranks that are not over, and whether it says that it has none left to wait for.
    nodes: Vec<(usize, bool)>,
    /// Nodes with ranks that are waited for.
    busy: usize,
}

/// A rank and its place.
#[derive(Clone, Copy, Debug)]
struct Seat {
    /// Its process.
    proc: ProcId,
    state: State,
    node: NodeId,
    local_rank: LocalRank,
    started: Option<Mono>,
}

impl Procs {
    pub(super) fn new(placement: &Placement, clock: Clock) -> Self {
        let offsets = Offsets::new(placement.nodes.len());
        let stride = u32::try_from(placement.seats.len()).unwrap_or(u32::MAX);
        let mut procs = Self { clock, offsets, stride, ranks: Vec::new(), nodes: Vec::new(), busy: 0 };
        procs.reseat(placement);
        procs
    }

    /// None of them was started yet, and these are the ranks now.
    pub(super) fn reseat(&mut self, placement: &Placement) {
        let seat = |(place, n): (&Place, u32)| Seat {
            proc: ProcId::new(n),
            state: State::Pending,
            node: place.node,
            local_rank: place.local_rank,
            started: None,
        };
        let ranks: Vec<Seat> = placement.seats.iter().zip(0..).map(seat).collect();
        self.begin(ranks, placement.nodes.len());
    }

    /// All ranks are asked for again, `fewer` if hosts were lost: the number of rank 0's process, which the others follow.
    pub(super) fn again(&mut self, fewer: Option<&Placement>) -> u32 {
        let last = self.ranks.iter().map(|seat| seat.proc.get()).max().unwrap_or_default();
        // Some may have had more than one process.
        let first = last.checked_div(self.stride).map_or(0, |times| (times + 1).saturating_mul(self.stride));
        if let Some(placement) = fewer {
            self.reseat(placement);
        }
        let mut ranks = core::mem::take(&mut self.ranks);
        for (seat, n) in ranks.iter_mut().zip(0..) {
            (seat.proc, seat.state, seat.started) = (ProcId::new(first.saturating_add(n)), State::Pending, None);
        }
        self.begin(ranks, self.nodes.len());
        first
    }

    /// Another process of a rank whose own is over is asked for, on this node; its number.
    pub(super) fn anew(&mut self, rank: Rank, (node, local_rank): (NodeId, LocalRank)) -> Option<ProcId> {
        if self.end_of(rank) == End::Open {
            return None;
        }
        let seat = self.ranks.get_mut(rank.index())?;
        let (open, over) = self.nodes.get_mut(node.index()).filter(|(_, over)| !over)?;
        seat.proc = ProcId::new(seat.proc.get().checked_add(self.stride)?);
        (seat.state, seat.started, seat.node, seat.local_rank) = (State::Pending, None, node, local_rank);
        if *open == 0 && !*over {
            self.busy = self.busy.saturating_add(1);
        }
        *open = open.saturating_add(1);
        Some(seat.proc)
    }

    /// How many processes have not ended, on hosts that are there.
    pub(super) fn open(&self) -> usize {
        self.nodes.iter().filter(|(_, over)| !over).map(|(open, _)| *open).sum()
    }

    /// Whether the process of a rank has ended: by itself, or with its host.
    pub(super) fn end_of(&self, rank: Rank) -> End {
        let Some(seat) = self.ranks.get(rank.index()) else { return End::Open };
        match (seat.state, self.nodes.get(seat.node.index())) {
            (State::Over, _) | (State::Pending | State::Running | State::Stuck, Some((_, true))) => End::Seen,
            (State::Pending | State::Running | State::Stuck, Some((_, false)) | None) => End::Open,
        }
    }

    fn begin(&mut self, ranks: Vec<Seat>, nodes: usize) {
        let mut nodes = vec![(0_usize, false); nodes];
        for seat in &ranks {
            if let Some((open, _)) = nodes.get_mut(seat.node.index()) {
                *open = open.saturating_add(1);
            }
        }
        self.busy = nodes.iter().filter(|(open, _)| *open > 0).count();
        (self.ranks, self.nodes) = (ranks, nodes);
    }

    pub(super) fn started(&mut self, cx: &mut Cx<'_>, node: NodeId, procs: &[Started]) {
        for started in procs {
            // A process is started once, where it was asked for: anything else would be a second life of its number.
            let Some(seat) = self.seat(node, started.proc).filter(|seat| seat.state == State::Pending) else {
                continue;
            };
            seat.state = State::Running;
            let local_rank = seat.local_rank;
            let began = self.offsets.ours(node, started.at);
            if let Some(seat) = self.seat(node, started.proc) {
                seat.started = Some(began);
            }
            let at = self.clock.since(began);
            let rank = self.rank_of(started.proc);
            cx.tell(Notice::Log(What::RankStarted { rank, node, local_rank, pid: started.pid, at }));
        }
    }

    /// Ends the job at once, whatever `--on-failure` says: a job that is not complete cannot do its work.
    /// `clearing`: it may be our own work, and the next generation will tell if it is not.
    pub(super) fn spawn_failed(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        proc: ProcId,
        error: SpawnError,
        clearing: bool,
    ) {
        if !self.is_over_now(node, proc) {
            return;
        }
        let rank = self.rank_of(proc);
        cx.tell(Notice::Log(What::RankFailed { rank, node, error: error.clone() }));
        if !clearing {
            cx.tell(Notice::End(Cause::Spawn { rank, error }));
        }
        self.tell_if_over(cx, node);
    }

    pub(super) fn exited(&mut self, cx: &mut Cx<'_>, node: NodeId, exited: &Exited) {
        if !self.is_over_now(node, exited.proc) {
            return;
        }
        let Exited { proc, status, at, alive_at, asked, usage } = *exited;
        let rank = self.rank_of(proc);
        // An agent that says otherwise must not make the interval empty.
        let here = (HostTime(alive_at.0.min(at.0)), at);
        let alive_at = self.offsets.between(node, here.0).0;
        let (seen_after, at) = self.offsets.between(node, at);
        // We heard of it, so it was.
        let at = at.min(cx.now);
        cx.tell(Notice::Log(What::RankExited {
            rank,
            status,
            at: self.clock.since(at),
            alive_at: self.clock.since(alive_at),
            asked,
            usage,
        }));
        let failure = Failure { rank, node, status, at, alive_at, seen_after, here, asked };
        cx.tell(Notice::Exited(proc, failure));
        self.tell_if_over(cx, node);
    }

    pub(super) fn facts(&mut self, cx: &mut Cx<'_>, node: NodeId, proc: ProcId, facts: Facts) {
        match self.seat(node, proc).map(|seat| seat.state) {
            Some(State::Over) => {}
            // Another process has followed it already.
            None if self.is_former(node, proc) => {}
            Some(State::Pending | State::Running | State::Stuck) | None => return,
        }
        if facts.error_file.as_ref().is_some_and(|text| !text.is_empty()) {
            cx.tell(Notice::Explained { rank: self.rank_of(proc) });
        }
        cx.tell(Notice::Log(What::RankFacts { rank: self.rank_of(proc), facts }));
    }

    /// A process cannot be ended: whoever waits for all of them does not wait for it. Whether that is news.
    pub(super) fn is_stuck(&mut self, cx: &mut Cx<'_>, node: NodeId, proc: ProcId) -> bool {
        if self.seat(node, proc).is_none_or(|seat| seat.state == State::Stuck) || !self.is_over_now(node, proc) {
            return false;
        }
        if let Some(seat) = self.seat(node, proc) {
            seat.state = State::Stuck;
        }
        // Its agent waits for it, unless it hears that it need not.
        self.tell_if_all_over(cx);
        true
    }

    /// Where there are such.
    pub(super) fn stuck_nodes(&self) -> BTreeSet<NodeId> {
        self.ranks.iter().filter(|seat| seat.state == State::Stuck).map(|seat| seat.node).collect()
    }

    /// A node has nothing more to tell: of its ranks none is waited for any more, also none that was never started or
    /// cannot be killed. If one is not over by then, this is no way to end.
    pub(super) fn node_over(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if self.is_early(node) {
            cx.tell(Notice::End(Cause::Lost { node, lost: Lost::AgentEarly }));
        }
        self.tell_if_over(cx, node);
    }

    /// No rank of this node will ever run.
    pub(super) fn absent(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.is_early(node);
        self.tell_if_all_over(cx);
    }

    /// Marks a node as over; whether it has ranks that are not.
    fn is_early(&mut self, node: NodeId) -> bool {
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

    fn seat(&mut self, node: NodeId, proc: ProcId) -> Option<&mut Seat> {
        let at = self.at(proc)?;
        self.ranks.get_mut(at).filter(|seat| seat.node == node)
    }

    /// Marks a rank as over; `false` if it was, or is none of this node.
    fn is_over_now(&mut self, node: NodeId, proc: ProcId) -> bool {
        let Some(seat) = self.seat(node, proc) else { return false };
        match seat.state {
            State::Pending | State::Running => {}
            State::Stuck => {
                seat.state = State::Over;
                return true;
            }
            State::Over => return false,
        }
        seat.state = State::Over;
        if let Some((open, over)) = self.nodes.get_mut(node.index()) {
            *open = open.saturating_sub(1);
            if *open == 0 && !*over {
                self.busy = self.busy.saturating_sub(1);
            }
        }
        true
    }

    /// A process that was asked for, and not heard to have started.
    pub(super) fn is_pending(&self, proc: ProcId) -> bool {
        self.at(proc).and_then(|at| self.ranks.get(at)).is_some_and(|seat| seat.state == State::Pending)
    }

    /// The node that a process was asked for on.
    pub(super) fn node_of(&self, proc: ProcId) -> Option<NodeId> {
        self.ranks.get(self.rank_of(proc).index()).map(|seat| seat.node)
    }

    /// The node of a rank.
    pub(super) fn node_of_rank(&self, rank: Rank) -> Option<NodeId> {
        self.ranks.get(rank.index()).map(|seat| seat.node)
    }

    /// Whether this is the process of a rank of this node.
    pub(super) fn is_current(&self, node: NodeId, rank: Rank, proc: ProcId) -> bool {
        self.at(proc) == Some(rank.index()) && self.node_of_rank(rank) == Some(node)
    }

    /// A moment of a host, on our clock.
    pub(super) fn when(&self, node: NodeId, at: HostTime) -> Mono {
        self.offsets.ours(node, at)
    }

    /// When a rank was started, if it was.
    pub(super) fn started_at(&self, rank: Rank) -> Option<Mono> {
        self.ranks.get(rank.index())?.started
    }

    /// Where a process stands, if it is the one of its rank.
    fn at(&self, proc: ProcId) -> Option<usize> {
        let at = self.rank_of(proc).index();
        self.ranks.get(at).filter(|seat| seat.proc == proc).map(|_| at)
    }

    /// Whether this is an earlier process of a rank of this node.
    fn is_former(&self, node: NodeId, proc: ProcId) -> bool {
        let seat = self.ranks.get(self.rank_of(proc).index());
        seat.is_some_and(|seat| seat.node == node && proc < seat.proc)
    }

    pub(super) fn rank_of(&self, proc: ProcId) -> Rank {
        rank_of(proc, self.stride)
    }

    /// Whether no rank of this node is waited for.
    pub(super) fn is_over(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).is_some_and(|(open, over)| *open == 0 || *over)
    }

    /// A rank of this node is not waited for any more.
    fn tell_if_over(&self, cx: &mut Cx<'_>, node: NodeId) {
        if self.is_over(node) {
            cx.tell(Notice::RanksOver(node));
        }
        self.tell_if_all_over(cx);
    }

    fn tell_if_all_over(&self, cx: &mut Cx<'_>) {
        if self.busy == 0 {
            cx.tell(Notice::AllOver);
        }
    }
}

/// The first process has the number of its rank; that of the next is higher by the number of ranks that were asked for.
pub(super) fn rank_of(proc: ProcId, stride: u32) -> Rank {
    Rank::new(proc.get().checked_rem(stride).unwrap_or(0))
}
