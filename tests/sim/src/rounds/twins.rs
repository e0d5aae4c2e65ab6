//! Twins: two ranks of one host that are killed in one round and started again. One registers by itself, and costs a planned round. The
//! other registers around the begin of that round: while the launcher's messages, and the ranks that enter their function, are on their
//! way.
//!
//! Promised is that a process that lives and has registered is never left out: it is in a round before the work is done, and soon where
//! nothing else goes wrong.

use super::World;
use super::client::{Act, Client, Place};
use super::plan::{Moment, Plan};
use crate::plan::MS;
use rlaunch_base::id::{ProcId, Rank, Round};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_protocol::wire::round::RoundDown;
use rlaunch_protocol::wire::to_node::ToNode;
use std::collections::BTreeMap;

/// The fallback: less than `--respawn-timeout`.
const AT_LAST: u64 = 2_000 * MS;

/// Longer than two planned rounds take where nothing goes wrong. Shorter than the soft limit, by which a rank that waits in vain is found.
const LONG: u64 = 1_800 * MS;

/// The twins of a run.
#[derive(Default, Debug)]
pub(super) struct Twins {
    /// In their first round, until they are killed.
    began: Vec<ProcId>,
    killed: Vec<Rank>,
    /// The process that follows one of them, and registers by itself.
    first: Option<ProcId>,
    /// The process that follows the other, and is held back.
    second: Option<ProcId>,
    /// When a function has returned first in a round: by generation, call, and round.
    returned: BTreeMap<(u32, u32, Round), u64>,
}

impl World {
    /// A process enters its function: at once, or in a plan with twins after a while. `then`: what it does there, and when.
    pub(super) fn enters_soon(&mut self, proc: ProcId, then: Option<(u64, Act)>) {
        self.procs.entry(proc).and_modify(|client| client.then = then);
        if self.plan.twins.is_none() {
            return self.enters(proc);
        }
        let after = self.rng.micros(1, 5_000);
        self.plans(proc, after, Act::Enters);
    }

    /// A process is in its function.
    pub(super) fn enters(&mut self, proc: ProcId) {
        let Some(client) = self.procs.get_mut(&proc) else { return };
        client.place = Place::Inside;
        match (client.is_to_yield, client.then) {
            (true, _) => {
                let after = self.rng.micros(1, 500_000);
                self.plans(proc, after, Act::Yields);
            }
            (false, Some((work, act))) => self.plans(proc, work, act),
            (false, None) => {}
        }
        self.twin_begins(proc);
    }

    /// Whether another process of the same round has left without entering the function.
    pub(super) fn has_missing_peer(&self, proc: ProcId) -> bool {
        let Some(own) = self.procs.get(&proc) else { return false };
        let is_of_round = |client: &&Client| {
            (client.generation, client.calls, client.round) == (own.generation, own.calls, own.round) && client.lives()
        };
        self.procs.values().filter(is_of_round).any(|client| client.has_not_entered)
    }

    /// Whether nothing goes wrong but the ends of the twins.
    pub(super) fn is_calm(&self) -> bool {
        let Plan { trouble, stuck, faults, twins, .. } = &self.plan;
        twins.is_some() && *trouble == 0 && *stuck == 0 && faults.is_empty()
    }

    /// A process begins its first round. It has waited for others to yield, which takes half a second at most.
    pub(super) fn check_waited(&mut self, proc: ProcId, waited: u64) {
        if !self.is_calm() || !self.plan.spec.rounds.respawn || self.plan.spec.rounds.policy.is_some() {
            return;
        }
        self.check(waited < LONG, || format!("{proc} has waited {} ms for a round", waited / MS));
    }

    /// A process is in its function. The first two of the twins' host are killed.
    pub(super) fn twin_begins(&mut self, proc: ProcId) {
        let host = self.plan.twins.map(|(host, _)| host);
        let is_one = |world: &Self| {
            world.procs.get(&proc).is_some_and(|client| Some(client.host) == host && client.place == Place::Inside)
        };
        if !self.twins.killed.is_empty() || self.twins.began.contains(&proc) || !is_one(self) {
            return;
        }
        self.twins.began.push(proc);
        if self.twins.began.len() == 2 {
            for proc in std::mem::take(&mut self.twins.began) {
                self.twins.killed.extend(self.procs.get(&proc).map(|client| client.rank));
                let after = self.rng.micros(1, 2_000);
                self.plans(proc, after, Act::Ends(Status::Signaled { sig: Signal::KILL, core: false }));
            }
        }
    }

    /// A process follows another one. True: it is one of the twins, and its registration is planned here.
    pub(super) fn plans_twin(&mut self, proc: ProcId) -> bool {
        let rank = |world: &Self, proc: ProcId| world.procs.get(&proc).map(|client| client.rank);
        let Some(own) = rank(self, proc).filter(|own| self.twins.killed.contains(own)) else { return false };
        match (self.twins.first, self.twins.second) {
            (None, _) => {
                self.twins.first = Some(proc);
                let after = self.rng.micros(10, 30_000);
                self.plans(proc, after, Act::Registers);
                true
            }
            (Some(first), None) if rank(self, first) != Some(own) => {
                self.twins.second = Some(proc);
                self.plans(proc, AT_LAST, Act::Registers);
                true
            }
            (Some(_), _) => false,
        }
    }

    /// The launcher sends something to a host: the second twin registers about then.
    pub(super) fn brings_twin(&mut self, msg: &ToNode) {
        let Some((_, moment)) = self.plan.twins else { return };
        let is_moment = match msg {
            ToNode::Round(RoundDown::Interrupt { .. }) => moment == Moment::Interrupt,
            ToNode::Round(RoundDown::Begin { .. }) => moment == Moment::Begin,
            _ => false,
        };
        let has_registered = |proc: &ProcId| self.procs.get(proc).is_some_and(|client| client.session.is_some());
        if !is_moment || !self.twins.first.as_ref().is_some_and(has_registered) {
            return;
        }
        let waits =
            |proc: &ProcId| self.procs.get(proc).is_some_and(|client| client.lives() && client.place == Place::Before);
        let Some(second) = self.twins.second.filter(waits) else { return };
        self.twins.second = None;
        let after = self.rng.micros(0, 2 * (self.plan.wire + self.plan.local) + 3_000);
        self.plans(second, after, Act::Registers);
    }

    /// The function of a process returns.
    pub(super) fn note_return(&mut self, proc: ProcId) {
        let Some(client) = self.procs.get(&proc) else { return };
        if let Some(round) = client.round {
            self.twins.returned.entry((client.generation, client.calls, round)).or_insert(self.now);
        }
    }

    /// Checks a process that was in no round of its call, and learns that the work is done. Either the process has come too late, or the
    /// plan lets processes wait.
    pub(super) fn check_left_out(&mut self, proc: ProcId) {
        let Some(client) = self.procs.get(&proc) else { return };
        let rounds = &self.plan.spec.rounds;
        if !rounds.respawn || rounds.policy.is_some() || !self.plan.faults.is_empty() {
            return;
        }
        let call = (client.generation, client.calls);
        let of_call = |at: &&(u32, u32, Round)| (at.0, at.1) == call;
        let first_return = self.twins.returned.keys().rfind(of_call).map(|at| self.twins.returned[at]);
        // Its word, and what follows from it, may be as long on its way.
        let slack = MS + 3_000 * (self.plan.wire + self.plan.local);
        let late = first_return.is_none_or(|at| at < client.since + slack);
        let since = client.since;
        self.check(late, || format!("{proc} has registered at {} ms, and the work is done without it", since / MS));
    }
}
