//! From the wish for another process of a rank to its start.
//!
//! A number names one process for ever, so the news of the one before has to be here first: its end is. Its agent has the new one wait
//! until the old one is reaped.
//!
//! Where the host is lost, the rank goes to one that has room, once nothing of the lost one runs any more: a slot that no rank of the job has
//! had. It stays there, in later generations too.

use super::Rounds;
use crate::id::{NodeId, ProcId, Rank};
use crate::job::procs::End;
use crate::job::{Cx, JobAction, Parts};
use crate::os_bytes::OsBytes;
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

/// What its end is called if it could not be started, which was said.
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
        self.wanted.insert(initial);
    }

    /// It is not, or not any more.
    pub(super) fn wants_no(&mut self, cx: &mut Cx<'_>, initial: Rank) {
        self.wanted.remove(&initial);
        if let Some((proc, node)) = self.coming.get(&initial) {
            self.unwanted.insert(*proc);
            let msg = RoundDown::End { ranks: Capped::chunks([initial]).pop().unwrap_or_default() };
            cx.act(JobAction::Send { node: *node, msg: ToNode::Round(msg) });
        }
    }

    /// Whether it is worth a word that this process runs: somebody waits for it.
    fn is_awaited(&self, proc: ProcId) -> bool {
        let is_over = self.machine.as_ref().is_none_or(|machine| machine.is_over());
        !self.off && !is_over && !self.unwanted.contains(&proc)
    }

    /// Whether this process is one that was started again, and has not registered.
    fn is_coming(&self, initial: Rank, proc: ProcId) -> bool {
        self.coming.get(&initial).is_some_and(|(own, _)| *own == proc)
    }
}

impl Parts {
    /// Starts whoever is wanted, and can be: the process before has ended, and its host is there.
    pub(in crate::job) fn start_wanted(&mut self, cx: &mut Cx<'_>) {
        // Behind a call nobody may call for more.
        if self.rounds.wanted.is_empty() || !self.rounds.is_open() || self.generations.is_between() {
            return;
        }
        let place = |initial: &Rank| {
            let node = self.procs.node_of_rank(*initial)?;
            // All of a lost host's are placed together, when nothing of it runs any more.
            let is_there = !self.rounds.is_gone(node) || self.rounds.over.contains(&node);
            (self.procs.end_of(*initial) == End::Seen && is_there).then_some((*initial, node))
        };
        let ready: Vec<(Rank, NodeId)> = self.rounds.wanted.iter().filter_map(place).collect();
        let (homeless, at_home): (Vec<_>, Vec<_>) = ready.into_iter().partition(|(_, node)| self.rounds.is_gone(*node));
        for (initial, node) in at_home {
            self.rounds.wanted.remove(&initial);
            self.start_anew(cx, initial, node);
        }
        self.start_elsewhere(cx, homeless);
    }

    /// The work is done, and none of those is left who might call for more: whoever has not come by now finds nothing to do.
    pub(in crate::job) fn dismiss_late(&mut self, cx: &mut Cx<'_>) {
        if self.rounds.coming.is_empty() || !self.rounds.rests() {
            return;
        }
        let here = |(_, (_, node)): &(&Rank, &(ProcId, NodeId))| !self.rounds.is_gone(*node);
        if self.procs.open() > self.rounds.coming.iter().filter(here).count() {
            return;
        }
        let late = self.rounds.coming.iter().filter(here).filter(|(_, (proc, _))| !self.rounds.unwanted.contains(proc));
        let late: Vec<Rank> = late.map(|(initial, _)| *initial).collect();
        late.into_iter().for_each(|initial| self.rounds.wants_no(cx, initial));
    }

    /// Those whose hosts are lost: where there is room.
    fn start_elsewhere(&mut self, cx: &mut Cx<'_>, homeless: Vec<(Rank, NodeId)>) {
        if homeless.is_empty() {
            return;
        }
        // Who finds no room is of the host that it has come from, and goes with it.
        let home = |(initial, from): (Rank, NodeId)| (initial, *self.rounds.homes.entry(initial).or_insert(from));
        let homeless: Vec<(Rank, NodeId)> = homeless.into_iter().map(home).collect();
        let may =
            |node: NodeId| !self.rounds.is_gone(node) && !self.left.is_gone(node) && !self.rounds.full.contains(&node);
        let mut placement = self.rounds.placement().clone();
        let rooms = placement.move_ranks(homeless.iter().copied(), may);
        let placement = Arc::new(placement);
        self.rounds.reseat(&placement);
        self.bringup.moves(&placement);
        cx.act(JobAction::Move(placement));
        let (mut nowhere, mut lost) = (RankSet::default(), BTreeSet::new());
        for ((initial, home), node) in homeless.into_iter().zip(rooms) {
            self.rounds.wanted.remove(&initial);
            self.rounds.tell(cx.now, RestartEvent::Placed { initial, node });
            match node {
                Some(node) => self.start_anew(cx, initial, node),
                None => {
                    nowhere.insert(initial);
                    lost.insert(home);
                }
            }
        }
        if !nowhere.is_empty() {
            let lost: Vec<NodeId> = lost.into_iter().collect();
            let what = if self.rounds.full.is_empty() { "a free slot" } else { "a free slot, and GPUs for it" };
            let note = RoundNote::Policy { text: no_room(&nowhere, &self.bringup.folded(&lost), what) };
            self.rounds.note(cx, self.log.generation(), note);
        }
    }

    /// Starts another process of a rank, on this node, that has the program and knows where ranks meet: the one before has ended, or
    /// is lost with its host.
    fn start_anew(&mut self, cx: &mut Cx<'_>, initial: Rank, node: NodeId) {
        let seat = self.rounds.placement().seats.get(initial.index());
        let Some(local_rank) = seat.filter(|seat| seat.node == node).map(|seat| seat.local_rank) else { return };
        let Some(proc) = self.procs.anew(initial, (node, local_rank)) else { return };
        self.mute.ranks_again(node);
        self.rounds.asked.insert(proc);
        self.rounds.coming.insert(initial, (proc, node));
        self.bringup.start_one(cx, initial, node, proc);
    }

    /// Processes have started.
    pub(in crate::job) fn started_anew(&mut self, cx: &mut Cx<'_>, procs: &[Started]) {
        self.rounds.ranks_started(cx.now);
        if self.rounds.asked.is_empty() {
            return;
        }
        let generation = self.log.generation();
        for Started { proc, pid, .. } in procs {
            let initial = self.procs.rank_of(*proc);
            let was_asked = self.rounds.asked.remove(proc);
            let is_news = was_asked && self.rounds.is_awaited(*proc);
            if let Some(round) = self.rounds.round().filter(|_| is_news) {
                self.rounds.note(cx, generation, RoundNote::Again { round, initial, pid: *pid });
            }
            if self.rounds.is_coming(initial, *proc) {
                self.rounds.tell(cx.now, RestartEvent::Started { initial, proc: *proc });
            }
        }
        self.settle_rounds(cx);
    }

    /// Whether a process that cannot be started costs nobody anything: it was to come for one that has ended.
    pub(in crate::job) fn is_spare(&self, proc: ProcId) -> bool {
        self.rounds.is_coming(self.procs.rank_of(proc), proc)
    }

    /// It could not be started.
    pub(in crate::job) fn not_started(&mut self, cx: &mut Cx<'_>, proc: ProcId, error: SpawnError) {
        let initial = self.procs.rank_of(proc);
        let (host, lacks) = (self.rounds.host(initial), error.step == SpawnStep::Gpus);
        cx.act(JobAction::Say(Sentence::Unable { initial, host, error }));
        self.rounds.asked.remove(&proc);
        let coming = self.rounds.coming.remove(&initial);
        let has_moved = self.rounds.homes.contains_key(&initial);
        let is_wanted =
            self.rounds.is_open() && !self.generations.is_between() && !self.rounds.unwanted.contains(&proc);
        if let Some((_, node)) = coming.filter(|_| lacks && has_moved && is_wanted) {
            self.rounds.full.insert(node);
            self.start_elsewhere(cx, vec![(initial, node)]);
            return self.settle_rounds(cx);
        }
        let event = RestartEvent::Ended { initial, proc, status: NOT_STARTED, at: cx.now };
        self.rounds.tell(cx.now, event);
        self.settle_rounds(cx);
    }
}
