//! From the wish for another process of a rank to its start.
//!
//! A number names one process for ever, so the news of the one before has to be here first: its end is. Its agent has the new one wait
//! until the old one is reaped.
//!
//! If the host is lost, the rank moves to a host with room, once nothing of the lost host runs any more. It gets a slot that no rank of
//! the job has had. It stays there, in later generations too.

use super::Rounds;
use crate::job::facts::JobFacts;
use crate::job::proc_table::{End, Procs};
use crate::job::{Cx, JobAction};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::wire::round::RoundDown;
use rlaunch_protocol::wire::to_node::ToNode;
use rlaunch_protocol::wire::to_root::Started;
use rlaunch_restart::remark::Remark;
use rlaunch_restart::{RestartEvent, RoundNote};

/// The status of a process that could not be started; the failed start was reported.
const NOT_STARTED: Status = Status::Lost;

impl Rounds {
    /// A process of this rank is wanted.
    pub(super) fn queue_respawn(&mut self, initial: Rank) {
        self.now.respawn_queued.insert(initial);
    }

    /// Withdraws the request.
    pub(super) fn cancel_respawn(&mut self, cx: &mut Cx<'_>, initial: Rank) {
        self.now.respawn_queued.remove(&initial);
        if let Some((proc, node)) = self.now.respawn_started.get(&initial) {
            self.now.dismissed.insert(*proc);
            let msg = RoundDown::End { ranks: Capped::chunks([initial]).pop().unwrap_or_default() };
            cx.act(JobAction::Send { node: *node, msg: ToNode::Round(msg) });
        }
    }

    /// Whether the start of this process is worth a report: a round waits for it.
    fn is_awaited(&self, proc: ProcId) -> bool {
        self.now.phase.active().is_some_and(|machine| !machine.is_call_ended()) && !self.now.dismissed.contains(&proc)
    }

    /// Whether this process is one that was started again, and has not registered.
    fn has_started(&self, initial: Rank, proc: ProcId) -> bool {
        self.now.respawn_started.get(&initial).is_some_and(|(own, _)| *own == proc)
    }

    /// The work is done, and all of the `open` processes have been started again: none is left that might call for more, and those that
    /// have not registered by now find nothing to do.
    pub(in crate::job) fn dismiss_late(&mut self, cx: &mut Cx<'_>, open: usize) {
        if self.now.respawn_started.is_empty() || !self.is_idle() {
            return;
        }
        let here = |(_, (_, node)): &(&Rank, &(ProcId, NodeId))| !cx.facts.hosts.is_recently_lost(*node);
        if open > self.now.respawn_started.iter().filter(here).count() {
            return;
        }
        let late =
            self.now.respawn_started.iter().filter(here).filter(|(_, (proc, _))| !self.now.dismissed.contains(proc));
        let late: Vec<Rank> = late.map(|(initial, _)| *initial).collect();
        late.into_iter().for_each(|initial| self.cancel_respawn(cx, initial));
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
                self.note(cx, RoundNote::Respawned { round, initial, pid: *pid });
            }
            if self.has_started(initial, *proc) {
                self.notify(cx.now, RestartEvent::Started { initial, proc: *proc });
            }
        }
        true
    }

    /// Whether a process was asked for to replace one that has exited: if it cannot be started, that does not matter to the job.
    pub(in crate::job) fn is_respawn(&self, facts: &JobFacts, proc: ProcId) -> bool {
        facts.placement().rank_of(proc).is_some_and(|initial| self.has_started(initial, proc))
    }
}

/// The outcome of the search for room for ranks of lost hosts.
pub(in crate::job) struct Room {
    /// The placement of all ranks from now on.
    pub(in crate::job) placement: Placement,
    /// The ranks for which there is room, and their hosts.
    pub(in crate::job) placed: Vec<(Rank, NodeId)>,
    /// The ranks without room.
    pub(in crate::job) nowhere: RankSet,
    /// The lost hosts of these.
    pub(in crate::job) lost: Vec<NodeId>,
}

impl Rounds {
    /// Takes the queued processes that can start: the process before has ended, and its host is there. First those that start where their
    /// rank was, then the ranks of lost hosts, each with its last host.
    pub(in crate::job) fn take_startable(&mut self, facts: &JobFacts, procs: &Procs) -> [Vec<(Rank, NodeId)>; 2] {
        // After a call it may be that no other call follows.
        if self.now.respawn_queued.is_empty() || !self.is_open() {
            return [Vec::new(), Vec::new()];
        }
        let place = |initial: &Rank| {
            let node = facts.placement().node_of(*initial)?;
            // All of a lost host's are placed together, when nothing of it runs any more.
            let is_there = !facts.hosts.is_recently_lost(node) || !facts.hosts.may_still_run(node);
            (procs.end_of(facts, *initial) == End::Seen && is_there).then_some((*initial, node))
        };
        let ready: Vec<(Rank, NodeId)> = self.now.respawn_queued.iter().filter_map(place).collect();
        for (initial, _) in &ready {
            self.now.respawn_queued.remove(initial);
        }
        let leaves = |node: NodeId| facts.hosts.is_recently_lost(node) || facts.hosts.warning(node).is_some();
        let (elsewhere, here) = ready.into_iter().partition(|(_, node)| leaves(*node));
        [here, elsewhere]
    }

    /// Finds room for ranks of lost hosts: on hosts that are there, and have GPUs for them.
    pub(in crate::job) fn find_room(&mut self, cx: &Cx<'_>, homeless: Vec<(Rank, NodeId)>) -> Room {
        // A rank without room belongs to the host from which it came, and is lost with it.
        let home = |(initial, from): (Rank, NodeId)| {
            let home = self.now.homes.entry(initial).or_insert(from);
            // A host that was only warned keeps its own processes; this one was elsewhere since.
            if !cx.facts.hosts.is_lost(*home) {
                *home = from;
            }
            (initial, *home)
        };
        let homeless: Vec<(Rank, NodeId)> = homeless.into_iter().map(home).collect();
        let may = |node: NodeId| {
            !cx.facts.hosts.is_lost(node) && cx.facts.hosts.warning(node).is_none() && !self.full.contains(&node)
        };
        let mut placement = Placement::clone(cx.facts.placement());
        let rooms = rooms_by_slice(&mut placement, cx.facts.placement(), &homeless, may);
        let (mut placed, mut nowhere, mut lost) = (Vec::new(), RankSet::default(), BTreeSet::new());
        for ((initial, home), node) in homeless.into_iter().zip(rooms) {
            self.notify(cx.now, RestartEvent::Placed { initial, node });
            match node {
                Some(node) => placed.push((initial, node)),
                None => {
                    nowhere.insert(initial);
                    lost.insert(home);
                }
            }
        }
        Room { placement, placed, nowhere, lost: lost.into_iter().collect() }
    }

    /// Reports ranks for which there is no room. `lost`: how the user calls their hosts.
    pub(in crate::job) fn note_no_room(&mut self, cx: &mut Cx<'_>, ranks: &RankSet, lost: &OsBytes) {
        let lacks_gpus = !self.full.is_empty();
        self.note(cx, RoundNote::Remark(Remark::NoRoom { ranks: ranks.clone(), hosts: lost.clone(), lacks_gpus }));
    }

    /// Records that a process was requested.
    pub(in crate::job) fn on_asked(&mut self, initial: Rank, node: NodeId, proc: ProcId) {
        self.now.asked.insert(proc);
        self.now.respawn_started.insert(initial, (proc, node));
    }

    /// A process that was asked for could not be started; its rank and host, if another host may have room. `is_over`: all ranks end.
    pub(in crate::job) fn on_not_started(
        &mut self,
        cx: &mut Cx<'_>,
        procs: &Procs,
        (initial, proc): (Rank, ProcId),
        (lacks_gpus, is_over): (bool, bool),
    ) -> Option<(Rank, NodeId)> {
        self.now.asked.remove(&proc);
        let coming = self.now.respawn_started.remove(&initial);
        let may_move = lacks_gpus && self.now.homes.contains_key(&initial);
        let is_wanted = self.is_open()
            && !is_over
            && !self.now.dismissed.contains(&proc)
            && procs.end_of(cx.facts, initial) == End::Seen;
        if may_move
            && is_wanted
            && let Some((_, node)) = coming
        {
            self.full.insert(node);
            return Some((initial, node));
        }
        self.notify(cx.now, RestartEvent::Ended { initial, proc, status: NOT_STARTED, at: cx.now });
        None
    }
}

/// Moves ranks of lost hosts to hosts with room. A rank of a TPU slice stays in its slice, where its chips are wired to the others.
fn rooms_by_slice(
    placement: &mut Placement,
    before: &Placement,
    homeless: &[(Rank, NodeId)],
    may: impl Fn(NodeId) -> bool,
) -> Vec<Option<NodeId>> {
    let mut rooms = BTreeMap::new();
    let slices: BTreeSet<Option<&str>> = homeless.iter().map(|(_, home)| before.slice(*home)).collect();
    for slice in slices {
        let of: Vec<(Rank, NodeId)> =
            homeless.iter().filter(|(_, home)| before.slice(*home) == slice).copied().collect();
        let keeps = |node: NodeId| may(node) && (slice.is_none() || before.slice(node) == slice);
        let found = placement.move_ranks(of.iter().copied(), keeps);
        rooms.extend(of.into_iter().map(|(rank, _)| rank).zip(found));
    }
    homeless.iter().map(|(rank, _)| rooms.get(rank).copied().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::id::{AppIndex, LocalRank};
    use rlaunch_plan::hostlist::{Chips, Host};
    use rlaunch_plan::place::{Node, Processes, RankPlacement, Worlds};

    /// Four hosts with two slots and a rank each: two slices, or none.
    fn placed(is_sliced: bool) -> Placement {
        let chips = |n: u32| Chips::of(if n < 2 { "s" } else { "t" }, n % 2, 4);
        let node = |n: u32| Node {
            chips: is_sliced.then(|| chips(n)),
            slots: 2,
            ..Node::of(Host::named(&alloc::format!("n{n}")), 1)
        };
        let placed =
            |n: u32| RankPlacement { node: NodeId::new(n), local_rank: LocalRank::new(0), app: AppIndex::new(0) };
        Placement {
            nodes: (0..4).map(node).collect(),
            ranks: (0..4).map(placed).collect(),
            notes: Vec::new(),
            processes: Processes::default(),
            order: Vec::new(),
            worlds: Worlds::default(),
        }
    }

    #[test]
    fn rank_of_a_lost_host_stays_in_its_slice() {
        let lost = [(Rank::new(3), NodeId::new(3)), (Rank::new(1), NodeId::new(1))];
        let rooms = |is_sliced| {
            let before = placed(is_sliced);
            let may = |node: NodeId| ![1, 3].contains(&node.get());
            rooms_by_slice(&mut before.clone(), &before, &lost, may)
        };
        let nodes = |all: [u32; 2]| all.map(|node| Some(NodeId::new(node))).to_vec();
        assert_eq!(rooms(true), nodes([2, 0]));
        assert_eq!(rooms(false), nodes([0, 2]));
    }
}
