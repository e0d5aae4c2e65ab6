//! Worlds besides the first one: their start and their end, and the program with which the job ends.

use super::bringup::Bringup;
use super::facts::JobFacts;
use super::notice::{Notice, RankExit};
use super::proc_table::{End, Procs};
use super::spawn_refusal::{OrderRefusal, done};
use super::{Cx, JobAction};
use crate::events::{Cause, What};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, NodeId, ProcId, Rank, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_plan::place::{Placement, World};
use rlaunch_protocol::env::spawned;
use rlaunch_protocol::spec::{AppBase, AppSpec, JobSpec, Role};
use rlaunch_protocol::wire::frozen::client::order::{Request, Spawned};
use rlaunch_protocol::wire::order::Asker;
use rlaunch_protocol::wire::to_node::{ToNode, WORLD_NAMESPACE};
use rlaunch_protocol::wire::to_root::{NodeRefusal, SpawnError};

/// How many ended worlds are kept. Programs ask how their ranks ended, and the last output of ranks may come late.
const KEPT: usize = 64;

/// How far a world is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its port is being reserved on the host of its rank 0.
    Reserving,
    /// Its ranks were asked for: so many do not run yet.
    Starting(u32),
    /// All of its ranks have run.
    Running,
    /// The world was ordered to end.
    Ending,
}

/// A world that a rank has asked for.
#[derive(Debug)]
pub(super) struct NewWorld {
    /// The host of its rank 0.
    pub(super) head: NodeId,
    /// Its ranks.
    pub(super) ranks: u32,
    /// The asker, which gets the answer.
    pub(super) asker: (NodeId, Asker),
    pub(super) programs: Vec<(AppIndex, AppSpec)>,
    /// The failure of one of its ranks does not end the job.
    pub(super) tolerant: bool,
    /// The rank whose end also ends this world.
    pub(super) bound_to: Option<Rank>,
    /// Words of the asking MPI library for its ranks; empty: MPI does not ask.
    pub(super) origin: OsBytes,
}

#[derive(Debug)]
struct Entry {
    state: State,
    head: NodeId,
    /// Ranks that have not ended.
    open: u32,
    /// Facts of a world that a rank has asked for.
    spawned: Option<NewWorld>,
}

/// The meaning of the exit of a rank for the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// A failure ends the job.
    Counts,
    /// The job continues, and the user has to know.
    Excused,
    /// The job continues: the end was ordered, or a program of the job knows what to do.
    Expected,
    /// The job ends: the program that leads it has finished.
    LeadFinished,
}

/// The worlds.
#[derive(Debug)]
pub(super) struct Worlds {
    spec: Arc<JobSpec>,
    /// The worlds of the command line have been begun.
    is_begun: bool,
    table: BTreeMap<WorldId, Entry>,
    /// The programs of worlds that ranks have asked for.
    programs: BTreeMap<AppIndex, AppBase>,
    /// Worlds whose ranks have all ended, in the order of their ends.
    ended: VecDeque<WorldId>,
    /// Hosts that were lost, and without which the program that leads the job continues.
    lost: BTreeSet<NodeId>,
    next_app: u32,
}

impl Worlds {
    pub(super) fn new(spec: &Arc<JobSpec>) -> Self {
        let next_app = u32::try_from(spec.apps.len()).unwrap_or(u32::MAX);
        let (table, programs) = (BTreeMap::new(), BTreeMap::new());
        Self {
            spec: Arc::clone(spec),
            is_begun: false,
            table,
            programs,
            ended: VecDeque::new(),
            lost: BTreeSet::new(),
            next_app,
        }
    }

    /// The number of worlds that are known.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.table.len().max(self.ended.len())
    }

    /// Returns ended worlds of which nothing is kept any more.
    pub(super) fn forget_oldest(&mut self) -> BTreeSet<WorldId> {
        let gone: BTreeSet<WorldId> = self.ended.drain(..self.ended.len().saturating_sub(KEPT)).collect();
        self.table.retain(|world, _| !gone.contains(world));
        gone
    }

    /// The number of the next program.
    pub(super) const fn next_app(&self) -> u32 {
        self.next_app
    }

    /// Begins the worlds of the command line, once the first one is on its way.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>, bringup: &Bringup) {
        if self.is_begun || bringup.rendezvous().is_none() {
            return;
        }
        self.is_begun = true;
        let placement = Arc::clone(cx.facts.placement());
        for world in placement.worlds.ids().filter(|world| *world > WorldId::new(0)) {
            let only = placement.only(world);
            self.reserve(
                cx,
                world,
                Entry { state: State::Reserving, head: only.head(), open: only.world_size(), spawned: None },
            );
        }
    }

    /// A world whose ranks have not all ended.
    fn living(&mut self, world: WorldId) -> Option<&mut Entry> {
        self.table.get_mut(&world).filter(|entry| entry.open > 0)
    }

    fn reserve(&mut self, cx: &mut Cx<'_>, world: WorldId, entry: Entry) {
        cx.act(JobAction::Send { node: entry.head, msg: ToNode::ReserveWorld(world) });
        self.table.insert(world, entry);
    }

    /// A world that a rank has asked for, and that has its places.
    pub(super) fn spawn(&mut self, cx: &mut Cx<'_>, world: WorldId, new: NewWorld) {
        self.next_app = self.next_app.saturating_add(u32::try_from(new.programs.len()).unwrap_or(u32::MAX));
        self.programs.extend(new.programs.iter().map(|(app, spec)| (*app, spec.base.clone())));
        let (head, open) = (new.head, new.ranks);
        self.reserve(cx, world, Entry { state: State::Reserving, head, open, spawned: Some(new) });
    }

    /// The programs of a request, in the environment of the program of the rank that asks.
    pub(super) fn programs_of(
        &self,
        placement: &Placement,
        asking: Option<Rank>,
        request: &Request,
        group: &OsBytes,
    ) -> Vec<(AppIndex, AppSpec)> {
        let app = asking.and_then(|rank| placement.ranks.get(rank.index())).map(|placed| placed.app);
        let own = app.and_then(|app| self.programs.get(&app));
        let known = app.and_then(|app| self.spec.apps.get(app.index())).or_else(|| self.spec.apps.first());
        let Some(base) = own.or(known.map(|app| &app.base)) else { return Vec::new() };
        let apps = base.role.apps.saturating_add(u32::try_from(request.programs.len()).unwrap_or(u32::MAX));
        let world = World { tied: request.tied, ..World::named(group.clone()) };
        let program = |(program, app): (&rlaunch_protocol::wire::frozen::client::order::Program, AppIndex)| {
            let (env, pinned) = spawned(&base.env, &base.pinned, &program.env);
            let base = AppBase {
                argv: program.argv.iter().collect(),
                env,
                pinned,
                wdir: program.wdir.clone().or_else(|| base.wdir.clone()),
                role: Role { name: Role::UNNAMED.into(), apps, world: world.clone() },
                logs: base.logs.clone(),
                filled: false,
            };
            (app, AppSpec { procs: program.ranks, base })
        };
        request.programs.iter().zip((self.next_app..).map(AppIndex::new)).map(program).collect()
    }

    /// A host has reserved the port of a world: the ranks can start.
    pub(super) fn on_port(
        &mut self,
        cx: &mut Cx<'_>,
        (bringup, procs): (&Bringup, &mut Procs),
        (node, world): (NodeId, WorldId),
        port: u16,
    ) {
        let Some(entry) = self.living(world).filter(|entry| entry.head == node) else { return };
        let is_ended = entry.state == State::Ending;
        if entry.state != State::Reserving && !is_ended {
            return;
        }
        let Some(new) = entry.spawned.as_ref().filter(|_| port == 0 || is_ended) else {
            entry.state = State::Starting(entry.open);
            if port == 0 {
                let why = NodeRefusal::NoPort;
                cx.notify(Notice::Log(What::HostRefused { node, why: why.clone() }));
                return cx.notify(Notice::End(Cause::Refused { node, why }));
            }
            for (app, spec) in entry.spawned.iter().flat_map(|new| &new.programs) {
                bringup.send_program(cx, world, *app, &spec.base);
            }
            let origin = entry.spawned.as_ref().map(|new| &new.origin);
            return bringup.start_world(cx, world, port, (ProcId::new(0), origin));
        };
        let refusal = match is_ended {
            true => OrderRefusal::Ended,
            false => OrderRefusal::NoPort { host: cx.facts.host_name(node) },
        };
        answer(cx, new.asker, refusal.reply());
        entry.state = State::Ending;
        let members: Vec<Rank> = cx.facts.placement().members(world).collect();
        for rank in members {
            procs.withdraw(cx, rank);
            self.on_rank_over(cx, rank);
        }
    }

    /// A rank runs. After the last one the answer is given.
    pub(super) fn on_started(&mut self, cx: &mut Cx<'_>, proc: ProcId) {
        if self.table.is_empty() {
            return;
        }
        let placement = cx.facts.placement();
        let Some(rank) = placement.rank_of(proc) else { return };
        let world = placement.world_of(rank);
        let Some(entry) = self.table.get_mut(&world) else { return };
        let State::Starting(left) = entry.state else { return };
        let left = left.saturating_sub(1);
        entry.state = if left == 0 { State::Running } else { State::Starting(left) };
        if let Some(new) = entry.spawned.as_ref().filter(|_| left == 0) {
            let host = |rank: Rank| placement.node_of(rank).map(|node| cx.facts.host_name(node)).unwrap_or_default();
            let hosts = placement.members(world).map(host).collect();
            let group = OsBytes::from(placement.worlds.group(world));
            answer(cx, new.asker, done(Some(Spawned { world, group, hosts }.write())));
        }
    }

    /// A rank could not be started. Returns whether that is the business of the rank that has asked for its world, which gets the answer:
    /// the others of the world are killed.
    pub(super) fn on_not_started(
        &mut self,
        cx: &mut Cx<'_>,
        (node, proc): (NodeId, ProcId),
        error: &SpawnError,
    ) -> bool {
        let placement = cx.facts.placement();
        let Some(rank) = placement.rank_of(proc) else { return false };
        let world = placement.world_of(rank);
        let Some(entry) = self.table.get_mut(&world) else { return false };
        let Some(new) = &entry.spawned else { return false };
        if let State::Starting(_) = entry.state {
            let host = cx.facts.host_name(node);
            let refusal = OrderRefusal::NotStarted { rank: placement.in_world(rank).get(), host, error: error.clone() };
            answer(cx, new.asker, refusal.reply());
            entry.state = State::Ending;
            send_end(cx, world, Signal::KILL, Span::ZERO);
        }
        true
    }

    /// Ends a world. Returns whether there is one that could be ended.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>, world: WorldId, grace: Span) -> bool {
        let Some(entry) = self.living(world) else { return false };
        let before = core::mem::replace(&mut entry.state, State::Ending);
        match before {
            // Its ranks are withdrawn when its port is known.
            State::Reserving => {}
            State::Starting(_) | State::Running | State::Ending => send_end(cx, world, Signal::TERM, grace),
        }
        if let (State::Starting(_), Some(new)) = (before, &entry.spawned) {
            answer(cx, new.asker, OrderRefusal::Ended.reply());
        }
        true
    }

    /// A rank has ended, or will not be started. After the last one of its world its hosts let go of what they hold for it.
    pub(super) fn on_rank_over(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        if self.table.is_empty() {
            return;
        }
        let is_bound = |entry: &Entry| entry.spawned.as_ref().is_some_and(|new| new.bound_to == Some(rank));
        let bound: Vec<WorldId> = self.table.iter().filter(|(_, entry)| is_bound(entry)).map(|(id, _)| *id).collect();
        let grace = self.spec.settings.ending.grace;
        bound.into_iter().for_each(|world| {
            self.end(cx, world, grace);
        });
        let placement = Arc::clone(cx.facts.placement());
        let world = placement.world_of(rank);
        let Some(entry) = self.living(world) else { return };
        entry.open = entry.open.saturating_sub(1);
        if entry.open > 0 {
            return;
        }
        let programs = entry.spawned.as_mut().map(|new| core::mem::take(&mut new.programs));
        programs.into_iter().flatten().for_each(|(app, _)| drop(self.programs.remove(&app)));
        self.ended.push_back(world);
        for node in placement.only(world).used() {
            cx.act(JobAction::Send { node, msg: ToNode::CloseWorld(world) });
        }
        cx.act(JobAction::Homeless { namespace: WORLD_NAMESPACE.saturating_add(world.get()) });
    }

    /// Whether a rank of the program that leads the job runs on a host.
    pub(super) fn lead_runs_on(&self, facts: &JobFacts, procs: &Procs, node: NodeId) -> bool {
        let placement = facts.placement();
        let is_led =
            |rank: &Rank| placement.ranks.get(rank.index()).is_some_and(|placed| Some(placed.app) == self.spec.lead);
        placement.ranks_of(node).filter(is_led).any(|rank| procs.is_open(facts, rank))
    }

    /// The job continues without a host.
    pub(super) fn leave_out(&mut self, node: NodeId) {
        self.lost.insert(node);
    }

    /// Whether it does.
    pub(super) fn is_without(&self, node: NodeId) -> bool {
        self.lost.contains(&node)
    }

    /// A host was lost with these ranks. A world that a rank has asked for and that does not run yet does not come about.
    pub(super) fn on_host_lost(&mut self, cx: &mut Cx<'_>, procs: &mut Procs, node: NodeId, open: &[Rank]) {
        let placement = Arc::clone(cx.facts.placement());
        let host = cx.facts.host_name(node);
        let worlds: BTreeSet<WorldId> = open.iter().map(|rank| placement.world_of(*rank)).collect();
        let mut over = Vec::new();
        for world in worlds {
            let members: Vec<Rank> = placement.members(world).collect();
            over.extend(members.iter().copied().filter(|rank| open.contains(rank)));
            let Some(entry) = self.table.get_mut(&world) else { continue };
            match (entry.state, &entry.spawned) {
                (State::Reserving, _) if entry.head == node => {
                    let others: Vec<Rank> = members.into_iter().filter(|rank| !open.contains(rank)).collect();
                    others.iter().for_each(|rank| procs.withdraw(cx, *rank));
                    over.extend(others);
                }
                // It is answered, and its ranks are withdrawn, when its port is known.
                (State::Reserving, Some(_)) => {
                    entry.state = State::Ending;
                    over.retain(|rank| placement.world_of(*rank) != world);
                    continue;
                }
                (State::Starting(_), Some(_)) => send_end(cx, world, Signal::KILL, Span::ZERO),
                (State::Reserving | State::Starting(_), None) | (State::Running | State::Ending, _) => continue,
            }
            if let Some(new) = &entry.spawned {
                answer(cx, new.asker, OrderRefusal::HostLost { host: host.clone() }.reply());
            }
            entry.state = State::Ending;
        }
        over.into_iter().for_each(|rank| self.on_rank_over(cx, rank));
    }

    /// The meaning of the exit of a rank.
    pub(super) fn meaning(&self, cx: &Cx<'_>, procs: &Procs, exit: &RankExit) -> Meaning {
        let placement = cx.facts.placement();
        let world = placement.world_of(exit.rank);
        if self.is_without(exit.node) || self.table.get(&world).is_some_and(is_excused) {
            return Meaning::Expected;
        }
        let app = placement.ranks.get(exit.rank.index()).map(|placed| placed.app);
        let Some(lead) = self.spec.lead else { return Meaning::Counts };
        if app != Some(lead) {
            return if exit.status.is_success() { Meaning::Counts } else { Meaning::Excused };
        }
        let share = placement.share(lead);
        let first = share.first.get();
        let mut ranks = (first..first.saturating_add(share.size)).map(Rank::new);
        let is_over = ranks.all(|rank| procs.end_of(cx.facts, rank) == End::Seen);
        if exit.status.is_success() && is_over && procs.open() > 0 { Meaning::LeadFinished } else { Meaning::Counts }
    }
}

/// The ranks of a world may end as they like.
fn is_excused(entry: &Entry) -> bool {
    entry.state == State::Ending || entry.spawned.as_ref().is_some_and(|new| new.tolerant)
}

fn send_end(cx: &mut Cx<'_>, world: WorldId, sig: Signal, grace: Span) {
    let placement = Arc::clone(cx.facts.placement());
    for node in placement.only(world).used() {
        cx.act(JobAction::Send { node, msg: ToNode::EndWorld { world, sig, grace } });
    }
}

fn answer(cx: &mut Cx<'_>, (node, asker): (NodeId, Asker), reply: Vec<u8>) {
    cx.act(JobAction::Send { node, msg: ToNode::OrderDone { asker, reply: OsBytes::new(reply) } });
}
