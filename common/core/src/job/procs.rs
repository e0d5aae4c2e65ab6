//! What is known of each rank: not yet heard of, running, over.

use super::Cx;
use super::log::Clock;
use super::notice::{Failure, Notice};
use crate::events::{Cause, Lost, What};
use crate::id::{LocalRank, NodeId, ProcId, Rank};
use crate::wire::to_root::{Exited, Facts, SpawnError, Started};
use alloc::vec;
use alloc::vec::Vec;

/// A rank's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Asked for.
    Pending,
    /// Started.
    Running,
    /// It ended, or could not be started.
    Over,
}

/// The ranks.
#[derive(Debug)]
pub(super) struct Procs {
    clock: Clock,
    states: Vec<State>,
    over: usize,
}

impl Procs {
    pub(super) fn new(world_size: u32, clock: Clock) -> Self {
        Self { clock, states: vec![State::Pending; Rank::new(world_size).index()], over: 0 }
    }

    pub(super) fn started(&mut self, cx: &mut Cx<'_>, node: NodeId, procs: &[Started]) {
        for started in procs {
            match self.states.get_mut(started.proc.index()) {
                Some(state @ State::Pending) => *state = State::Running,
                // A process is started once: anything else would be a second life of the same number.
                Some(State::Running | State::Over) | None => continue,
            }
            let at = self.clock.since(Clock::ours(started.at));
            let (rank, local_rank) = (rank_of(started.proc), LocalRank::new(started.proc.get()));
            cx.tell(Notice::Log(What::RankStarted { rank, node, local_rank, pid: started.pid, at }));
        }
    }

    /// Ends the job at once, whatever `--on-failure` says: a job that is not complete cannot do its work.
    pub(super) fn spawn_failed(&mut self, cx: &mut Cx<'_>, proc: ProcId, error: SpawnError) {
        if !self.is_over_now(proc) {
            return;
        }
        let rank = rank_of(proc);
        cx.tell(Notice::Log(What::RankFailed { rank, error: error.clone() }));
        cx.tell(Notice::End(Cause::Spawn { rank, error }));
        self.tell_if_all_over(cx);
    }

    pub(super) fn exited(&mut self, cx: &mut Cx<'_>, exited: &Exited) {
        if !self.is_over_now(exited.proc) {
            return;
        }
        let Exited { proc, status, at, alive_at, usage } = *exited;
        let (rank, at) = (rank_of(proc), Clock::ours(at));
        // An agent that says otherwise must not make the interval empty.
        let alive_at = Clock::ours(alive_at).min(at);
        cx.tell(Notice::Log(What::RankExited {
            rank,
            status,
            at: self.clock.since(at),
            alive_at: self.clock.since(alive_at),
            usage,
        }));
        if !status.is_success() {
            cx.tell(Notice::Failed(Failure { rank, status, at, alive_at }));
        }
        self.tell_if_all_over(cx);
    }

    pub(super) fn facts(&mut self, cx: &mut Cx<'_>, proc: ProcId, facts: Facts) {
        match self.states.get(proc.index()) {
            Some(State::Over) => {}
            Some(State::Pending | State::Running) | None => return,
        }
        if facts.error_file.as_ref().is_some_and(|text| !text.is_empty()) {
            cx.tell(Notice::Explained { rank: rank_of(proc) });
        }
        cx.tell(Notice::Log(What::RankFacts { rank: rank_of(proc), facts }));
    }

    /// The node has nothing more to tell. If a rank is not over by then, this is no way to end.
    pub(super) fn counted(&mut self, cx: &mut Cx<'_>) {
        if self.over < self.states.len() {
            cx.tell(Notice::End(Cause::Lost { node: super::NODE, lost: Lost::AgentEarly }));
        }
    }

    /// No rank is waited for any more, also none that was never started or cannot be killed: only output is.
    pub(super) fn draining(&mut self, cx: &mut Cx<'_>) {
        self.counted(cx);
        cx.tell(Notice::AllOver);
    }

    /// Marks a rank as over; `false` if it was, or is none.
    fn is_over_now(&mut self, proc: ProcId) -> bool {
        match self.states.get_mut(proc.index()) {
            Some(state @ (State::Pending | State::Running)) => {
                *state = State::Over;
                self.over = self.over.saturating_add(1);
                true
            }
            Some(State::Over) | None => false,
        }
    }

    fn tell_if_all_over(&self, cx: &mut Cx<'_>) {
        if self.over == self.states.len() {
            cx.tell(Notice::AllOver);
        }
    }
}

/// A process has the number of its rank as long as no rank is started twice.
pub(super) const fn rank_of(proc: ProcId) -> Rank {
    Rank::new(proc.get())
}
