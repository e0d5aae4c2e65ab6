//! Properties of a job of several hosts, derived from the true events there, on the one clock that no part of it can read.

use crate::plan::{EVER, Fault, MS, Sight};
use crate::site::{Reach, Site};
use crate::world::World;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::signal::Signal;
use rlaunch_core::events::{Cause, Lost, What};
use rlaunch_core::job::JobEvent;
use rlaunch_core::node::ExecSpec;
use rlaunch_core::report::{Became, Report};
use rlaunch_plan::bootstrap::{CarrierEvent, CarrierNews};
use rlaunch_plan::place::Placement;
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::wire::to_root::{Exited, ToRoot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A host that says nothing for so long would have said something: three signs of life, and what clocks and ways may cost.
const SILENT: u64 = 5000 * MS;

/// The events and reports of the launcher.
#[derive(Default)]
pub(crate) struct Truth {
    /// Failures that were reported to the launcher.
    failures: Vec<Exited>,
    /// Ranks that were reported to have exited with 0.
    succeeded: usize,
    /// When the edge to a host came.
    pub(crate) up: BTreeMap<NodeId, u64>,
    /// Hosts that the launcher calls lost, and those whose order it does not know.
    lost: Vec<NodeId>,
    together: Vec<NodeId>,
    end: Option<(Cause, Ending)>,
    /// Time of the report that the scheduler ends the job, and whether that report came before the end had begun.
    pub(crate) warned: Option<(u64, bool)>,
    /// Whether the end has begun.
    ending: bool,
    /// The placement, if it differs from the plan.
    pub(crate) placements: Option<Arc<Placement>>,
    pub(crate) report: Report,
    /// The slots of a job on slices, in the order of its slices.
    pub(crate) slices: Vec<usize>,
    /// When ranks were last placed on slices.
    pub(crate) started: u64,
    /// Hosts with a warning.
    pub(crate) warned_hosts: Vec<NodeId>,
    /// Time of the report that srun has exited.
    pub(crate) srun_ended: Option<u64>,
    /// When the edge of a host ended.
    pub(crate) closed: BTreeMap<NodeId, u64>,
    /// The cause for which the job began to end.
    pub(crate) began: Option<Cause>,
}

impl Truth {
    /// Other processes play all ranks.
    pub(crate) fn forget(&mut self) {
        self.failures.clear();
        self.succeeded = 0;
    }

    /// A host was lost, and the program that leads continues.
    pub(crate) fn lost_to_lead(&mut self, node: NodeId) {
        self.lost.push(node);
    }

    pub(crate) fn on_event(&mut self, now: u64, event: &JobEvent) {
        if let JobEvent::EdgeUp { node } = event {
            self.up.insert(*node, now);
            // Its agent is a new one.
            self.warned_hosts.retain(|warned| warned != node);
        }
        if let JobEvent::EdgeClosed { node, .. } = event {
            self.closed.insert(*node, now);
        }
        if let JobEvent::Carrier(CarrierEvent::News(CarrierNews::SrunEnded { .. })) = event {
            self.srun_ended.get_or_insert(now);
        }
        if let JobEvent::Message { node, msg: ToRoot::Warned(_) } = event {
            self.warned_hosts.push(*node);
        }
        if let JobEvent::Message { msg: ToRoot::HostSignal { sig: Signal::TERM, .. }, .. } = event {
            // The job had begun to end already, or does now.
            let first = !self.ending;
            self.warned.get_or_insert((now, first));
        }
        if let JobEvent::Message { msg: ToRoot::Exited(exited), .. } = event {
            if exited.status.is_success() {
                self.succeeded += 1;
            } else {
                self.failures.push(*exited);
            }
        }
    }
}

/// A rank that failed by itself: the true time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Failed {
    pub(crate) at: u64,
    pub(crate) proc: ProcId,
    node: usize,
}

impl World {
    /// The placement.
    pub(crate) fn placement(&self) -> &Placement {
        self.truth.placements.as_deref().unwrap_or(&self.plan.spec.placement)
    }

    /// The job does without hosts: as few as were allowed are left, and nothing is missing of a host on which all is well.
    pub(crate) fn placed(&mut self, placement: &Arc<Placement>) {
        if self.is_sliced() {
            return self.placed_on_slices(placement);
        }
        // All start again where they were.
        if placement.ranks == self.placement().ranks {
            return;
        }
        if self.has_worlds() {
            self.placed_with_world(placement);
            self.truth.placements = Some(Arc::clone(placement));
            return;
        }
        if self.known.restarts > 0 {
            return self.shrunk(placement);
        }
        let once = self.truth.placements.replace(Arc::clone(placement)).is_none();
        self.check(once, || "hosts are left out twice".to_owned());
        let (used, least) = (placement.used().count(), self.plan.spec.min_hosts);
        let enough = least.is_some_and(|least| used >= usize::try_from(least).unwrap_or(usize::MAX));
        self.check(enough, || format!("{used} hosts are not {least:?}"));
        for (site, node) in self.plan.sites.clone().iter().zip(&placement.nodes) {
            let bad = site.bare || self.may_be_missing(site) || self.may_be_cut_off() || self.is_any_killed();
            self.check(bad || node.ranks > 0, || format!("{} is left out, and nothing was wrong with it", node.host));
        }
    }

    /// A generation does without hosts: they were lost, and the user is content with those that are left.
    fn shrunk(&mut self, placement: &Arc<Placement>) {
        let world = u32::try_from(placement.ranks.len()).unwrap_or(u32::MAX);
        let least = self.plan.spec.rounds.limits.min_world;
        self.check(least.is_some_and(|least| world >= least), || format!("{world} ranks are not {least:?}"));
        let before = self.placement().nodes.clone();
        for ((before, now), node) in before.iter().zip(&placement.nodes).zip((0..).map(NodeId::new)) {
            let lost = self.truth.lost.contains(&node);
            let same = now.ranks == before.ranks && (now.ranks == 0 || !lost);
            self.check(same || (now.ranks == 0 && lost), || format!("{node:?}, lost: {lost}, has {} ranks", now.ranks));
        }
        self.truth.placements = Some(Arc::clone(placement));
    }

    /// Checks that a rank is where the placement has it, and has the right variables.
    pub(crate) fn check_placement(&mut self, proc: ProcId, exec: &ExecSpec) {
        if self.has_worlds() {
            return self.check_world_rank(proc, exec);
        }
        // A group has a rendezvous of its own.
        if exec.base.role.world.group.is_empty() {
            self.check_store(proc, exec);
        }
        if !self.several() {
            return;
        }
        self.check_way(exec);
        let placement = self.placement();
        let index = placement.used().position(|node| node == self.id());
        let first = placement.ranks.first().map_or(0, |placed| placed.node.index());
        let (rank, generation) = (self.rank_of(proc), self.generation_of(proc));
        let placed = placement.ranks.get(rank.index()).filter(|placed| placed.node == self.id());
        let Some((placed, index)) = placed.zip(index) else { return self.fail(format!("{proc} is not of this host")) };
        let of_app = placement.ranks.iter().filter(|other| other.app == placed.app).count();
        let before = placement.ranks.iter().take(rank.index()).filter(|other| other.app == placed.app).count();
        let expected = [
            format!("RANK={rank}"),
            format!("TORCHELASTIC_RESTART_COUNT={generation}"),
            format!("LOCAL_RANK={}", placed.local_rank),
            format!("WORLD_SIZE={}", placement.ranks.len()),
            format!("GROUP_RANK={index}"),
            format!("GROUP_WORLD_SIZE={}", placement.used().count()),
            format!("ROLE_RANK={before}"),
            format!("ROLE_WORLD_SIZE={of_app}"),
            format!("MASTER_PORT={}", self.port_at(first, self.ports_of(first, generation))),
        ];
        for var in expected {
            let has = exec.shared.iter().chain(exec.vars.iter()).any(|entry| entry == var.as_bytes());
            self.check(has, || format!("{proc} lacks {var}"));
        }
    }

    /// Checks that ranks know the holder of the store. On the first host it is there before they are, where they know it.
    fn check_store(&mut self, proc: ProcId, exec: &ExecSpec) {
        let has = |var: &str| exec.shared.iter().any(|entry| entry == var.as_bytes());
        let placement = self.placement();
        let first_is_here = placement.ranks.first().is_some_and(|placed| !self.host(placed.node.index()).remote);
        // One host alone is met at 127.0.0.1.
        let is_translated = self.is_translated() && first_is_here && placement.used().nth(1).is_some();
        let by_agent = self.plan.spec.settings.store.holder.is_agent() && !is_translated;
        let word = if by_agent { "True" } else { "False" };
        self.check(has(&format!("TORCHELASTIC_USE_AGENT_STORE={word}")), || format!("{proc} does not know the store"));
        let held = self.host.agent.served.clone();
        if by_agent && has("GROUP_RANK=0") {
            let found = held
                .is_some_and(|(addr, port)| has(&format!("MASTER_ADDR={addr}")) && has(&format!("MASTER_PORT={port}")));
            self.check(found, || format!("{proc} is started before its store is held"));
        } else {
            self.check(held.is_none(), || "a store is held that no rank knows".to_owned());
        }
    }

    /// No rank starts before all nodes are ready that take part.
    pub(crate) fn check_ready(&mut self) {
        let held = self.placement().used().find(|node| self.host(node.index()).agent.holders);
        self.check(held.is_none(), || format!("a rank starts, and the devices of a host are held: {held:?}"));
        if self.several() {
            let alone = self.plan.spec.placement.is_here();
            let ready = alone || self.placement().used().all(|node| self.host(node.index()).agent.ready);
            self.check(ready, || "a rank starts before all hosts are ready".to_owned());
        }
    }

    pub(crate) fn truth_logged(&mut self, what: &What) {
        if !self.several() {
            return;
        }
        match what {
            What::Ending { cause, .. } => {
                self.truth.ending = true;
                self.worlds_end();
                self.truth.began.get_or_insert_with(|| cause.clone());
                self.note("< job", || format!("begins to end: {cause:?}"));
            }
            What::HostLost { node, .. } => self.truth.lost.push(*node),
            What::Restart { restart, why, .. } => {
                let warned = self.truth.warned.is_some();
                self.check(!warned, || "ranks are started again, and the scheduler ends the job".to_owned());
                self.restarts(*restart, *why);
            }
            What::Together { nodes } => self.truth.together.clone_from(nodes),
            What::JobEnd { cause, exit, .. } => {
                self.truth.ending = true;
                self.truth.end = Some((cause.clone(), *exit));
            }
            _ => {}
        }
    }

    /// Checks that each rank of a host has exited when the host is called lost for its silence.
    pub(crate) fn check_unheard(&mut self) {
        let running = self.host.kernel.running();
        let agent = self.host.agent.is_suspended() || (self.host.agent.has_exited() && self.plan.tier == Tier::T3);
        // No process that could end the ranks is left there.
        let is_unsupervised = self.host.guardian.was_killed() && agent;
        self.check(running == 0 || is_unsupervised, || format!("a host is called lost where {running} ranks run"));
    }

    /// Something of a host's is called lost.
    pub(crate) fn check_host_lost(&mut self, lost: Lost) {
        match lost {
            Lost::NoHeartbeat => self.check_unheard(),
            Lost::Expired => {
                self.check(self.host.guardian.has_expired(), || "its lease has not run out".to_owned());
            }
            Lost::Starved(long) => {
                // From its last look at the clock, one beat before, to the next.
                let stood = self.plan.stops.iter().map(|(_, long)| *long + self.plan.late + 1000 * MS).sum::<u64>();
                self.check(long.nanos() <= stood, || format!("the launcher was not suspended for {long}"));
            }
            Lost::Agent(_) | Lost::AgentEarly | Lost::AgentMute | Lost::Guardian | Lost::Init | Lost::Warned(_) => {}
        }
        if self.is_sliced() {
            // Their hosts have faults at many times.
            return;
        }
        let lease = self.plan.spec.settings.hosts.lease.nanos();
        let spared = !self.host.killed;
        let well = self.site().filter(|_| spared).is_some_and(|site| match lost {
            Lost::AgentMute => site.is_well(lease) && site.spells.is_empty() && site.stop() == 0,
            Lost::NoHeartbeat
            | Lost::Expired
            | Lost::Starved(_)
            | Lost::Agent(_)
            | Lost::AgentEarly
            | Lost::Guardian
            | Lost::Init
            | Lost::Warned(_) => site.is_well(lease),
        });
        // Where all else was well the launcher is to blame, and no other part. It knows if it had a lease to renew.
        let calm = well && self.site().is_some_and(|site| site.spells.is_empty() && site.stop() == 0);
        let up = self.truth.up.get(&self.id()).copied();
        let knows = self.plan.stops.iter().all(|(at, _)| up.is_some_and(|up| up < *at));
        let blames = matches!(lost, Lost::NoHeartbeat | Lost::Expired | Lost::Agent(_));
        self.check(!(calm && knows && blames), || format!("{lost:?}, and the launcher was the suspended part"));
        let stopped = self.plan.stops.iter().any(|(_, long)| *long > lease / 3);
        self.check(!well || stopped, || format!("{lost:?}, but nothing had happened to that host"));
    }

    /// Checks the end of a job of several hosts.
    pub(crate) fn check_hosts_finish(&mut self, ending: Ending) {
        let Some((cause, exit)) = self.truth.end.clone() else { return self.fail("no end is reported".to_owned()) };
        self.check(exit == ending && cause.exit(false) == exit, || {
            format!("{cause:?} gives {exit:?}, and then {ending:?}")
        });
        let sites = &self.plan.sites;
        let user = |wanted: &dyn Fn(Fault) -> bool| self.plan.faults.iter().any(|(_, fault)| wanted(*fault));
        let planned = match &cause {
            Cause::Success | Cause::Rank { .. } | Cause::Lost { .. } => true,
            Cause::Lead { .. } => self.plan.spec.lead.is_some(),
            Cause::Spawn { .. } => self.plan.no_start.is_some() || user(&|fault| fault == Fault::InitKilled),
            Cause::Refused { .. } => sites.iter().any(|site| site.bare) || self.may_be_cut_off(),
            Cause::Unreachable { failed, asked, .. } => {
                (self.is_any_killed() || sites.iter().any(|site| self.may_be_missing(site)))
                    && self.too_few(*failed, *asked)
            }
            Cause::Signal(sig) => user(&|fault| fault == Fault::Signal(*sig)),
            Cause::Scheduler { .. } => self.truth.warned.is_some(),
            Cause::Preempted { .. } => self.is_sliced() || user(&|fault| fault == Fault::AgentAsked),
            Cause::Timeout { .. } => self.plan.spec.settings.ending.timeout.is_some(),
            Cause::TooFewSlices { .. } => self.plan.spec.slices.is_some(),
            Cause::ReaderClosed(_) => user(&|fault| fault == Fault::ReaderCloses),
        };
        self.check(planned, || format!("{cause:?} was not planned"));
        if self.is_sliced() {
            // Hosts that have come back have forgotten the earlier job.
            return;
        }
        if self.has_worlds() {
            return self.check_worlds_finish(&cause);
        }
        if cause == Cause::Success {
            self.check_success();
        }
        self.check_scheduler_cause(&cause);
        if matches!(cause, Cause::Rank { .. }) {
            self.check_used_up();
        }
        self.check_causes(&cause);
        self.check_first_lost(&cause);
    }

    /// A host may not be reached, or be lost before the start.
    fn may_be_missing(&self, site: &Site) -> bool {
        let lease = self.plan.spec.settings.hosts.lease.nanos();
        let stopped = self.plan.stops.iter().any(|(_, long)| *long > lease / 3);
        stopped || site.may_fail() || !site.is_well(lease)
    }

    /// Whether a job with so many hosts missing cannot continue; with two programs, one may be left without a host.
    fn too_few(&self, failed: u32, asked: u32) -> bool {
        let alone = self.plan.spec.apps.iter().filter(|app| app.procs > 0).count() == 1;
        self.plan.spec.min_hosts.is_none_or(|least| asked - failed < least) || !alone
    }

    fn check_success(&mut self) {
        let world = self.placement().ranks.len();
        // Processes on hosts that were lost before are of an earlier generation.
        let nodes = &self.placement().nodes;
        let used = |node: &usize| nodes.get(*node).is_some_and(|node| node.ranks > 0);
        let hosts = || (0..self.count()).filter(used).map(|node| self.host(node));
        let started: usize = hosts().map(|host| host.kernel.started()).sum();
        let failed: usize = hosts().map(|host| host.kernel.failed_before(EVER).len()).sum();
        let all = started == world && failed == 0 && self.truth.succeeded == world;
        self.check(all, || format!("a success, but {started} of {world} ranks started and {failed} failed"));
    }

    /// Ranks that failed to the launcher's knowledge, and before any part ended a process there.
    pub(crate) fn failed_by_themselves(&self) -> Vec<Failed> {
        let reported = |proc| self.truth.failures.iter().any(|exited| exited.proc == proc);
        let of_host = |node: usize| {
            let kernel = &self.host(node).kernel;
            let died = kernel.failed_before(kernel.ended_by_us.unwrap_or(EVER));
            died.into_iter().filter(move |(_, proc)| reported(*proc)).map(move |(at, proc)| Failed { at, proc, node })
        };
        let mut all: Vec<Failed> = (0..self.count()).flat_map(of_host).collect();
        all.sort_unstable();
        all
    }

    /// Checks the lost host that the cause names: the first host without power, or one of those that are named together. Hosts without
    /// power long before a failed rank, or before another host was lost in another way, are named, too.
    fn check_first_lost(&mut self, cause: &Cause) {
        let at = match cause {
            Cause::Lost { node, lost: Lost::NoHeartbeat } => self.without_power(*node),
            Cause::Lost { node, lost: Lost::Agent(_) } => self.first_fault(*node).map(|at| at.saturating_sub(SILENT)),
            Cause::Rank { rank, .. } if self.plan.sight == Sight::Exact => {
                let failed = self.failed_by_themselves();
                let named = failed.iter().find(|failed| self.rank_of(failed.proc) == *rank);
                named.map(|named| named.at.saturating_sub(SILENT))
            }
            Cause::Rank { .. } | Cause::Lost { .. } | Cause::Success | Cause::Spawn { .. } | Cause::Refused { .. } => {
                None
            }
            Cause::Unreachable { .. }
            | Cause::Lead { .. }
            | Cause::Signal(_)
            | Cause::Scheduler { .. }
            | Cause::Timeout { .. }
            | Cause::ReaderClosed(_)
            | Cause::TooFewSlices { .. }
            | Cause::Preempted { .. } => None,
        };
        let Some(at) = at else { return };
        let nodes = (0..).map(NodeId::new).take(self.count());
        let used = |node: &NodeId| self.placement().nodes.get(node.index()).is_some_and(|node| node.ranks > 0);
        // A host that a generation was without already is no reason for its end.
        let earlier = |node: &NodeId| used(node) && self.without_power(*node).is_some_and(|other| other < at);
        let first: Vec<NodeId> = nodes.filter(earlier).filter(|node| !self.truth.together.contains(node)).collect();
        let named = |node: &NodeId| matches!(cause, Cause::Lost { node: named, .. } if named == node);
        let untold = first.iter().any(|node| !named(node));
        self.check(!untold, || format!("the end is {cause:?}, and {first:?} had no power before"));
    }

    /// When something first happened to a host.
    fn first_fault(&self, node: NodeId) -> Option<u64> {
        self.plan.sites.get(node.index())?.faults.iter().map(|(at, _)| *at).min()
    }

    /// When a host lost power that has said all that it had to say until then, every so often and soon.
    fn without_power(&self, node: NodeId) -> Option<u64> {
        let (site, up) = (self.plan.sites.get(node.index())?, *self.truth.up.get(&node)?);
        let [(at, Fault::HostLost)] = site.faults[..] else { return None };
        let swift = site.spells.is_empty() && self.plan.stops.is_empty() && site.wire.1 < 100_000;
        let steady = at > up + 1000 * MS && self.truth.lost.contains(&node);
        // Where some may be missing, those that were lost first were no reason to end.
        (swift && steady && self.plan.spec.min_hosts.is_none()).then_some(at)
    }

    /// The earliest failure is named, or the order cannot be known; and all ranks that failed by themselves are listed so.
    fn check_causes(&mut self, cause: &Cause) {
        let failed = self.failed_by_themselves();
        let named = if let Cause::Rank { rank, .. } = cause { Some(*rank) } else { None };
        let listed = self.listed();
        for failed in &failed {
            let rank = self.rank_of(failed.proc);
            let is = named == Some(rank) || listed.contains(&rank) || self.may_be_schedulers(failed.proc, failed.node);
            self.check(is, || format!("rank {rank} failed by itself, and the report does not say so"));
        }
        let Some(rank) = named else { return };
        let Some(named) = failed.iter().find(|failed| self.rank_of(failed.proc) == rank).copied() else {
            return self.check_ended_by_scheduler(rank);
        };
        let Some(first) = failed.first().copied() else { return };
        if self.plan.sight == Sight::Exact
            && let Some(error) = self.error(first.node).zip(self.error(named.node)).map(|(a, b)| a + b)
        {
            let late = named.at - first.at;
            let close = first.node == named.node || late <= error;
            let same = first.node != named.node || late == 0;
            self.check(close && same, || format!("rank {} failed {late} ns before rank {rank}", first.proc));
        }
    }

    /// By how much a time of this host may be wrong: half of the way there and back, and what clocks run apart in between.
    fn error(&self, node: usize) -> Option<u64> {
        let site = self.plan.sites.get(node)?;
        if site.local {
            return Some(0);
        }
        let steady = site.spells.is_empty() && self.plan.stops.is_empty() && site.stop() == 0;
        let trip = 2 * (site.wire.1 + self.plan.local.1) * 1000 + 2 * self.plan.late + MS;
        let drift = site.clock.ppm.unsigned_abs().max(1000) * (4000 * MS + trip) / 1_000_000;
        steady.then_some(trip + drift)
    }

    fn listed(&self) -> Vec<Rank> {
        if self.truth.report.end.is_none() {
            return vec![];
        }
        let failed = self.truth.report.others().into_iter().filter(|group| matches!(group.became, Became::Failed(_)));
        failed.flat_map(|group| group.ranks).collect()
    }
}

impl Site {
    /// Whether it may not be reached in time.
    fn may_fail(&self) -> bool {
        let gone = self.faults.iter().any(|(_, fault)| !fault.is_a_stop());
        gone || !self.spells.is_empty() || matches!(self.reach, Reach::Fails(_)) || self.is_late_to_dial()
    }
}
