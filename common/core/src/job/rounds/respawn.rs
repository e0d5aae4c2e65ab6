//! From the wish for another process of a rank to its start.
//!
//! A number names one process for ever, so the news of the one before has to be here first: its end is. Its agent has the new one wait
//! until the old one is reaped.
//!
//! Where the host is lost, the rank goes to one that has room, once nothing of the lost one runs any more: a slot that no rank of the job has
//! had. It stays there, in later generations too.

use super::{Rounds, host_of};
use crate::id::{NodeId, ProcId, Rank};
use crate::job::facts::JobFacts;
use crate::job::procs::End;
use crate::job::{Cx, JobAction, Parts, Step};
use crate::os_bytes::OsBytes;
use crate::place::Placement;
use crate::rank_set::RankSet;
use crate::report::Sentence;
use crate::restart::{RestartEvent, RoundNote};
use crate::status::Status;
use crate::wire::capped::Capped;
use crate::wire::round::RoundDown;
use crate::wire::to_node::ToNode;
use crate::wire::to_root::{SpawnError, SpawnStep, Started};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// The status of a process that could not be started; the failed start was reported.
const NOT_STARTED: Status = Status::Lost;

fn no_room(ranks: &RankSet, hosts: &OsBytes, what: &str) -> OsBytes {
    let (who, are) = if ranks.len() == 1 { ("rank", "is") } else { ("ranks", "are") };
    OsBytes::from(format!(
        "initial {who} {ranks} of {hosts} {are} not started again: no host that is left of those where the job began has {what} (try: more hosts for --spare-hosts, or more slots)"
    ))
}

impl Rounds {
    /// A process of this rank is wanted.
    pub(super) fn wants(&mut self, initial: Rank) {
        self.now.wanted.insert(initial);
    }

    /// Withdraws the request.
    pub(super) fn wants_no(&mut self, cx: &mut Cx<'_>, initial: Rank) {
        self.now.wanted.remove(&initial);
        if let Some((proc, node)) = self.now.coming.get(&initial) {
            self.now.unwanted.insert(*proc);
            let msg = RoundDown::End { ranks: Capped::chunks([initial]).pop().unwrap_or_default() };
            cx.act(JobAction::Send { node: *node, msg: ToNode::Round(msg) });
        }
    }

    /// Whether the start of this process is worth a report: a round waits for it.
    fn is_awaited(&self, proc: ProcId) -> bool {
        let is_over = self.now.machine.as_ref().is_none_or(|machine| machine.is_over());
        !self.now.off && !is_over && !self.now.unwanted.contains(&proc)
    }

    /// Whether this process is one that was started again, and has not registered.
    fn is_coming(&self, initial: Rank, proc: ProcId) -> bool {
        self.now.coming.get(&initial).is_some_and(|(own, _)| *own == proc)
    }

    /// The work is done, and all of the `open` processes have been started again: none is left that might call for more, and those that
    /// have not registered by now find nothing to do.
    pub(in crate::job) fn dismiss_late(&mut self, cx: &mut Cx<'_>, open: usize) {
        if self.now.coming.is_empty() || !self.rests() {
            return;
        }
        let here = |(_, (_, node)): &(&Rank, &(ProcId, NodeId))| !cx.facts.hosts.is_recently_lost(*node);
        if open > self.now.coming.iter().filter(here).count() {
            return;
        }
        let late = self.now.coming.iter().filter(here).filter(|(_, (proc, _))| !self.now.unwanted.contains(proc));
        let late: Vec<Rank> = late.map(|(initial, _)| *initial).collect();
        late.into_iter().for_each(|initial| self.wants_no(cx, initial));
    }

    /// Processes have started; whether some were asked for by rounds.
    pub(in crate::job) fn started(&mut self, cx: &mut Cx<'_>, procs: &[Started]) -> bool {
        self.ranks_started(cx.now);
        if self.now.asked.is_empty() {
            return false;
        }
        for Started { proc, pid, .. } in procs {
            let Some(initial) = cx.facts.placement().rank_of(*proc) else { continue };
            let was_asked = self.now.asked.remove(proc);
            let is_news = was_asked && self.is_awaited(*proc);
            if let Some(round) = self.round().filter(|_| is_news) {
                self.note(cx, RoundNote::Again { round, initial, pid: *pid });
            }
            if self.is_coming(initial, *proc) {
                self.tell(cx.now, RestartEvent::Started { initial, proc: *proc });
            }
        }
        true
    }

    /// Whether a process that cannot be started does not matter to the job: it was to follow one that has ended.
    pub(in crate::job) fn is_spare(&self, facts: &JobFacts, proc: ProcId) -> bool {
        facts.placement().rank_of(proc).is_some_and(|initial| self.is_coming(initial, proc))
    }
}

impl Parts {
    /// Starts queued processes that can start: the process before has ended, and its host is there.
    pub(in crate::job) fn start_wanted(&mut self, step: &mut Step<'_>) {
        // After a call it may be that no other call follows.
        if self.rounds.now.wanted.is_empty() || !self.rounds.is_open() || self.generations.is_between() {
            return;
        }
        let place = |initial: &Rank| {
            let node = step.facts.placement().node_of(*initial)?;
            // All of a lost host's are placed together, when nothing of it runs any more.
            let is_there = !step.facts.hosts.is_recently_lost(node) || !step.facts.hosts.may_still_run(node);
            (self.procs.end_of(step.facts, *initial) == End::Seen && is_there).then_some((*initial, node))
        };
        let ready: Vec<(Rank, NodeId)> = self.rounds.now.wanted.iter().filter_map(place).collect();
        let (homeless, at_home): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|(_, node)| step.facts.hosts.is_recently_lost(*node));
        if !at_home.is_empty() {
            self.rounds.now.wanted.retain(|initial| !at_home.iter().any(|(other, _)| other == initial));
            self.start_anew(step, at_home);
        }
        self.start_elsewhere(step, homeless);
    }

    /// Starts ranks of lost hosts where there is room.
    fn start_elsewhere(&mut self, step: &mut Step<'_>, homeless: Vec<(Rank, NodeId)>) {
        if homeless.is_empty() {
            return;
        }
        // A rank without room belongs to the host from which it came, and is lost with it.
        let home = |(initial, from): (Rank, NodeId)| (initial, *self.rounds.now.homes.entry(initial).or_insert(from));
        let homeless: Vec<(Rank, NodeId)> = homeless.into_iter().map(home).collect();
        let may = |node: NodeId| !step.facts.hosts.is_lost(node) && !self.rounds.full.contains(&node);
        let mut placement = Placement::clone(step.facts.placement());
        let rooms = placement.move_ranks(homeless.iter().copied(), may);
        step.facts.place(Arc::new(placement));
        let mut placed = Vec::new();
        let (mut nowhere, mut lost) = (RankSet::default(), BTreeSet::new());
        for ((initial, home), node) in homeless.into_iter().zip(rooms) {
            self.rounds.now.wanted.remove(&initial);
            self.rounds.tell(step.now, RestartEvent::Placed { initial, node });
            match node {
                Some(node) => placed.push((initial, node)),
                None => {
                    nowhere.insert(initial);
                    lost.insert(home);
                }
            }
        }
        self.start_anew(step, placed);
        if !nowhere.is_empty() {
            let lost: Vec<NodeId> = lost.into_iter().collect();
            let what = if self.rounds.full.is_empty() { "a free slot" } else { "a free slot, and GPUs for it" };
            let note = RoundNote::Policy { text: no_room(&nowhere, &self.bringup.folded(&lost), what) };
            self.rounds.note(&mut step.cx(), note);
        }
    }

    /// Starts another process of each of these ranks, on hosts that have the program and know where ranks meet: the one before has
    /// ended, or is lost with its host.
    fn start_anew(&mut self, step: &mut Step<'_>, ranks: Vec<(Rank, NodeId)>) {
        let mut started = Vec::new();
        for (initial, node) in ranks {
            let Some(proc) = self.procs.anew(step.facts, initial) else { continue };
            step.facts.add_process(proc, initial);
            self.mute.ranks_again(node);
            self.rounds.now.asked.insert(proc);
            self.rounds.now.coming.insert(initial, (proc, node));
            started.push((initial, node, proc));
        }
        step.act(JobAction::Place(Arc::clone(step.facts.placement())));
        for (initial, node, proc) in started {
            self.bringup.start_one(&mut step.cx(), initial, node, proc);
        }
    }

    /// Records that it could not be started.
    pub(in crate::job) fn not_started(&mut self, step: &mut Step<'_>, proc: ProcId, error: SpawnError) {
        let Some(initial) = step.facts.placement().rank_of(proc) else { return };
        let (host, lacks) = (host_of(step.facts, initial), error.step == SpawnStep::Gpus);
        step.act(JobAction::Say(Sentence::Unable { initial, host, error }));
        self.rounds.now.asked.remove(&proc);
        let coming = self.rounds.now.coming.remove(&initial);
        let has_moved = self.rounds.now.homes.contains_key(&initial);
        let is_wanted = self.rounds.is_open()
            && !self.generations.is_between()
            && !self.rounds.now.unwanted.contains(&proc)
            && self.procs.end_of(step.facts, initial) == End::Seen;
        if let Some((_, node)) = coming.filter(|_| lacks && has_moved && is_wanted) {
            self.rounds.full.insert(node);
            self.start_elsewhere(step, vec![(initial, node)]);
            return self.settle_rounds(step);
        }
        let event = RestartEvent::Ended { initial, proc, status: NOT_STARTED, at: step.now };
        self.rounds.tell(step.now, event);
        self.settle_rounds(step);
    }
}
