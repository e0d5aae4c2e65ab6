//! Orders of ranks: programs that are started as new worlds while the job runs, and worlds that are ended.

use super::super::JobAction;
use super::super::facts::JobFacts;
use super::super::spawn_refusal::{OrderRefusal, done};
use super::super::worlds::NewWorld;
use super::{Parts, Step};
use crate::events::{What, WorldLine};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, NodeId, ProcId, Rank, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::place::{MOST_RANKS, NewRanks, Placement, World};
use rlaunch_protocol::env::is_name;
use rlaunch_protocol::wire::frozen::client::order::{Order, Program, Request};
use rlaunch_protocol::wire::order::RankOrder;
use rlaunch_protocol::wire::to_node::ToNode;

impl Parts {
    /// A rank has ordered something.
    pub(super) fn ordered(&mut self, step: &mut Step<'_>, node: NodeId, order: &RankOrder) {
        // The only node does not end before it has got the orders that follow.
        self.bringup.expect_more();
        let outcome = match Order::parse(&order.words) {
            Err(_) => Err(OrderRefusal::Malformed),
            Ok(Order::Spawn(request)) => self.spawn(step, node, order, &request).map(|()| None),
            Ok(Order::EndWorld(world, grace)) => self.end_by_order(step, world, grace).map(|()| Some(done(None))),
        };
        let Some(reply) = outcome.unwrap_or_else(|refusal| Some(refusal.reply())) else { return };
        let msg = ToNode::OrderDone { asker: order.asker, reply: OsBytes::new(reply) };
        step.act(JobAction::Send { node, msg });
    }

    fn spawn(
        &mut self,
        step: &mut Step<'_>,
        node: NodeId,
        order: &RankOrder,
        request: &Request,
    ) -> Result<(), OrderRefusal> {
        self.check_spawn(request)?;
        let before = Arc::clone(step.facts.placement());
        let asking = order.rank.and_then(|rank| before.members(order.world).nth(rank.index()));
        if request.bound && asking.is_none() {
            return Err(OrderRefusal::NoAsker);
        }
        let group = self.group_name(step.facts, request)?;
        let (mut placed, world, is_crowded) = self.place_world(step, &before, request, &group)?;
        let first = before.ranks.next();
        let programs = self.worlds.programs_of(&before, asking, request, &group);
        // From here on nothing is refused.
        let oldest = placed.forget(&self.worlds.forget_oldest());
        let namesake = before.worlds.named(&group).into_iter().flat_map(|world| before.members(world));
        self.ended_ranks.forget(&mut step.cx(), &oldest.iter().copied().chain(namesake).collect());
        for n in first.get()..placed.ranks.next().get() {
            // Nothing is started again in such a job: each rank has one process, whose number is its own.
            placed.processes.add(ProcId::new(n), Rank::new(n));
        }
        let placement = Arc::new(placed);
        step.facts.place(Arc::clone(&placement));
        self.procs.forget(step.facts);
        step.act(JobAction::Place(Arc::clone(&placement)));
        self.procs.add(step.facts, first);
        let only = placement.only(world);
        only.used().for_each(|node| self.kill_watchdog.on_ranks_cleared(node));
        let apps = programs.iter().map(|(_, app)| super::super::log::app_line(app)).collect();
        let forgotten = oldest.into_iter().collect();
        let line = WorldLine { world, group, first, apps, asker: asking, is_crowded, forgotten };
        self.log.write(&mut step.cx(), What::WorldStart(Box::new(line)));
        let new = NewWorld {
            head: only.head(),
            ranks: only.world_size(),
            asker: (node, order.asker),
            programs,
            tolerant: request.tolerant,
            bound_to: asking.filter(|_| request.bound),
            origin: request.origin.clone(),
        };
        self.worlds.spawn(&mut step.cx(), world, new);
        Ok(())
    }

    /// Whether programs may be started at all, and as many.
    fn check_spawn(&self, request: &Request) -> Result<(), OrderRefusal> {
        if self.is_over() || self.generations.is_between() {
            return Err(OrderRefusal::Ending);
        }
        if self.bringup.starts_again() || self.rounds.is_used() {
            return Err(OrderRefusal::Restarts);
        }
        if request.programs.iter().any(|program| program.argv.is_empty()) || request.programs.is_empty() {
            return Err(OrderRefusal::NoProgram);
        }
        let mut names = request.programs.iter().flat_map(|program| &program.env).map(|(name, _)| name);
        if let Some(name) = names.find(|name| !is_name(name)) {
            return Err(OrderRefusal::Variable { name: name.clone() });
        }
        let ranks: u64 = request.programs.iter().map(|program| u64::from(program.ranks)).sum();
        // Ranks that have ended make room for others.
        let most = u64::from(MOST_RANKS).saturating_sub(self.procs.open() as u64);
        let is_none = request.programs.iter().any(|program| program.ranks == 0);
        if is_none || ranks > most {
            return Err(OrderRefusal::Ranks { ranks, most });
        }
        let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
        match request.tied {
            tied if tied > 0 && ranks % tied > 0 => Err(OrderRefusal::Tied { ranks, tied }),
            _ => Ok(()),
        }
    }

    /// The placement with the ranks of a new world, its number, and whether hosts have too many ranks now.
    fn place_world(
        &mut self,
        step: &Step<'_>,
        before: &Placement,
        request: &Request,
        group: &OsBytes,
    ) -> Result<(Placement, WorldId, bool), OrderRefusal> {
        let first_app = self.worlds.next_app();
        let mut placed = before.clone();
        let argv = request.programs.first().map(|program| program.argv.iter().collect()).unwrap_or_default();
        let ranks = request.programs.iter().fold(0_u32, |sum, program| sum.saturating_add(program.ranks));
        let agent_store = ranks > 1 && rlaunch_protocol::master_store::is_python(&argv);
        let world = World { group: group.clone(), tied: request.tied, agent_store };
        let apps = (first_app..).map(AppIndex::new).take(request.programs.len());
        let world = placed.worlds.spawn(world, apps.clone());
        if request.share.is_empty() {
            let mut new = Vec::new();
            for (program, app) in request.programs.iter().zip(apps) {
                let nodes = self.hosts_for(step, before, program)?;
                // As many names as ranks: the host of each.
                if program.hosts.len() == program.ranks as usize {
                    new.extend(nodes.into_iter().map(|node| NewRanks { app, ranks: 1, nodes: vec![node] }));
                } else {
                    new.push(NewRanks { app, ranks: program.ranks, nodes });
                }
            }
            let is_crowded = placed.add_ranks(&new, |rank| self.procs.lives(rank));
            return Ok((placed, world, is_crowded));
        }
        let name = request.share.clone();
        let shared = before.worlds.named(&name).ok_or_else(|| OrderRefusal::NoGroup { name: name.clone() })?;
        let base: Vec<Rank> = before.members(shared).collect();
        let has = u32::try_from(base.len()).unwrap_or(u32::MAX);
        if ranks > has {
            return Err(OrderRefusal::Share { ranks, has, name });
        }
        // Its slots may be on a host that was lost meanwhile.
        let own = base.iter().take(ranks as usize).filter_map(|rank| before.node_of(*rank));
        if let Some(gone) = own.into_iter().find(|node| step.facts.hosts.is_lost(*node)) {
            return Err(OrderRefusal::NoHost { name: step.facts.host_name(gone) });
        }
        let mut base = base.as_slice();
        for (program, app) in request.programs.iter().zip(apps) {
            let (own, rest) = base.split_at_checked(program.ranks as usize).unwrap_or((base, &[]));
            placed.add_sharing(app, own);
            base = rest;
        }
        Ok((placed, world, false))
    }

    /// The hosts that a program may run on.
    fn hosts_for(
        &self,
        step: &Step<'_>,
        placement: &Placement,
        program: &Program,
    ) -> Result<Vec<NodeId>, OrderRefusal> {
        let ids = (0..).map(NodeId::new).take(placement.nodes.len());
        let can_take = |node: &NodeId| {
            let is_there = !step.facts.hosts.is_lost(*node) && !step.facts.hosts.is_left_out(*node);
            is_there && !self.procs.is_node_over(*node) && self.bringup.known(*node).is_some()
        };
        let usable: Vec<NodeId> = ids.filter(can_take).collect();
        if program.hosts.is_empty() {
            return Ok(usable);
        }
        let by_name = |name: &OsBytes| {
            let is_it = |node: &NodeId| {
                let host = placement.nodes.get(node.index()).map(|node| &node.host.name);
                host.is_some_and(|host| host.as_bytes().eq_ignore_ascii_case(name))
            };
            let found = usable.iter().copied().find(is_it);
            found.ok_or_else(|| OrderRefusal::NoHost { name: name.clone() })
        };
        program.hosts.iter().map(by_name).collect()
    }

    fn end_by_order(&mut self, step: &mut Step<'_>, world: WorldId, grace: Option<Span>) -> Result<(), OrderRefusal> {
        let grace = grace.unwrap_or_else(|| self.generations.grace());
        match self.worlds.end(&mut step.cx(), world, grace) {
            true => Ok(()),
            false => Err(OrderRefusal::NoWorld { world: world.get() }),
        }
    }

    /// The name of a new world. The name of a world that has ended is free. Ranks on a host that the job continues without have ended.
    fn group_name(&self, facts: &JobFacts, request: &Request) -> Result<OsBytes, OrderRefusal> {
        let (name, placement) = (&request.group, facts.placement());
        let is_without =
            |rank: Rank| placement.ranks.get(rank.index()).is_some_and(|placed| self.worlds.is_without(placed.node));
        let is_open = |rank| self.procs.is_open(facts, rank) && !is_without(rank);
        let is_taken =
            |name: &[u8]| placement.worlds.named(name).is_some_and(|world| placement.members(world).any(is_open));
        if name.is_empty() {
            let mut names = (placement.worlds.next().get()..).map(|n| OsBytes::from(format!("world-{n}")));
            return Ok(names.find(|name| !is_taken(name)).unwrap_or_default());
        }
        let is_fit = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
        match name.iter().all(is_fit) && name.len() <= 64 {
            false => Err(OrderRefusal::GroupName { name: name.clone() }),
            true if is_taken(name) => Err(OrderRefusal::GroupTaken { name: name.clone() }),
            true => Ok(name.clone()),
        }
    }
}
