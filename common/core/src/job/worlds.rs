//! Worlds besides the first one: their start, and the program with which the job ends.

use super::bringup::Bringup;
use super::notice::{Notice, RankExit};
use super::proc_table::{End, Procs};
use super::{Cx, JobAction};
use crate::events::{Cause, What};
use crate::id::{AppIndex, NodeId, ProcId, Rank, WorldId};
use crate::spec::JobSpec;
use crate::wire::to_node::{ToNode, WORLD_NAMESPACE};
use crate::wire::to_root::NodeRefusal;
use alloc::collections::BTreeMap;

/// How far the start of a world is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its port is being reserved on the host of its rank 0.
    Reserving(NodeId),
    /// Its ranks were asked for.
    Started,
}

/// The meaning of the exit of a rank for the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// A failure ends the job.
    Counts,
    /// The job continues.
    Excused,
    /// The job ends: the program that leads it has finished.
    LeadFinished,
}

/// The worlds.
#[derive(Debug)]
pub(super) struct Worlds {
    lead: Option<AppIndex>,
    /// The worlds of the command line have been begun.
    is_begun: bool,
    states: BTreeMap<WorldId, State>,
    /// Ranks of each that have not ended.
    open: BTreeMap<WorldId, u32>,
}

impl Worlds {
    pub(super) const fn new(spec: &JobSpec) -> Self {
        Self { lead: spec.lead, is_begun: false, states: BTreeMap::new(), open: BTreeMap::new() }
    }

    /// Begins the worlds of the command line, once the first one is on its way.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>, bringup: &Bringup) {
        if self.is_begun || bringup.rendezvous().is_none() {
            return;
        }
        self.is_begun = true;
        let placement = cx.facts.placement();
        for world in placement.worlds.ids().filter(|world| *world > WorldId::new(0)) {
            let head = placement.members(world).next().and_then(|rank| placement.node_of(rank));
            let Some(node) = head else { continue };
            self.states.insert(world, State::Reserving(node));
            self.open.insert(world, placement.only(world).world_size());
            cx.act(JobAction::Send { node, msg: ToNode::ReserveWorld(world) });
        }
    }

    /// A host has reserved the port of a world: the ranks can start.
    pub(super) fn on_port(&mut self, cx: &mut Cx<'_>, bringup: &Bringup, (node, world): (NodeId, WorldId), port: u16) {
        if self.states.get(&world) != Some(&State::Reserving(node)) {
            return;
        }
        self.states.insert(world, State::Started);
        if port == 0 {
            let why = NodeRefusal::NoPort;
            cx.notify(Notice::Log(What::HostRefused { node, why: why.clone() }));
            return cx.notify(Notice::End(Cause::Refused { node, why }));
        }
        bringup.start_world(cx, world, port, (ProcId::new(0), false));
    }

    /// A rank has ended, or will not be started. After the last one of its world its hosts let go of what they hold for it.
    pub(super) fn on_rank_over(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        let placement = cx.facts.placement();
        let world = placement.world_of(rank);
        let Some(open) = self.open.get_mut(&world) else { return };
        *open = open.saturating_sub(1);
        if *open > 0 {
            return;
        }
        self.open.remove(&world);
        self.states.remove(&world);
        for node in placement.only(world).used() {
            cx.act(JobAction::Send { node, msg: ToNode::CloseWorld(world) });
        }
        cx.act(JobAction::Homeless { namespace: WORLD_NAMESPACE.saturating_add(world.get()) });
    }

    /// The meaning of the exit of a rank.
    pub(super) fn meaning(&self, cx: &Cx<'_>, procs: &Procs, exit: &RankExit) -> Meaning {
        let placement = cx.facts.placement();
        let app = |rank: Rank| placement.ranks.get(rank.index()).map(|seat| seat.app);
        let Some(lead) = self.lead else { return Meaning::Counts };
        if app(exit.rank) != Some(lead) {
            return if exit.status.is_success() { Meaning::Counts } else { Meaning::Excused };
        }
        let share = placement.share(lead);
        let first = share.first.get();
        let mut ranks = (first..first.saturating_add(share.size)).map(Rank::new);
        let is_over = ranks.all(|rank| procs.end_of(cx.facts, rank) == End::Seen);
        if exit.status.is_success() && is_over && procs.open() > 0 { Meaning::LeadFinished } else { Meaning::Counts }
    }
}
