//! Jobs whose ranks may be started again: what a seed means for them, and what must hold of every generation.

use crate::agent::Arrival;
use crate::host::Clock;
use crate::kernel::Init;
use crate::plan::{FAULTS_END, Fault, MS, Plan, Reaction, Script, script};
use crate::rng::Rng;
use crate::site;
use crate::truth::Failed;
use crate::world::{Ev, World};
use rlaunch_base::backoff::ALIKE;
use rlaunch_base::id::{ProcId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_core::events::RestartCause;
use rlaunch_core::node::NodeEvent;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::guard::devices::DeviceKind;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::settings::{OnFailure, Tier};
use rlaunch_protocol::wire::to_root::SpawnStep;

/// Number of the random stream, distinct from those of other jobs.
const STREAM: u64 = 0x6167_6169_6e00_0000;
/// How far ports of two generations are apart.
const PORTS: u16 = 64;

/// The longest time of a generation, with the pause before it.
pub(crate) const LONGEST: u64 = 120_000 * MS;

/// Restarts after the loss of a host: not more than there are hosts.
const RETRIES: u32 = 3;

/// A job on several hosts, or on the launcher's own alone.
pub(crate) fn plan(seed: u64) -> Plan {
    let rng = &mut Rng::new(seed ^ STREAM);
    let mut plan = site::plan(rng);
    if rng.chance(40) {
        alone(&mut plan);
    }
    let most = u32::try_from(rng.between(1, 6)).unwrap_or(1);
    let delay = Span::from_millis(rng.pick(&[0, 10, 300, 1000]));
    let on_failure = if rng.chance(95) { OnFailure::Kill } else { OnFailure::Continue };
    // Where nothing ever changes, that is noticed.
    let same = rng.chance(10);
    let most = if same { most + ALIKE } else { most };
    plan.spec.settings.restarts = Restarts { preempt: RETRIES, give_up_after: Span::ZERO, ..Restarts::of(most, delay) };
    plan.spec.settings.ending.on_failure = on_failure;
    let world = plan.ranks.len() as u64;
    for _ in 0..most {
        let fails = rng.chance(70);
        plan.ranks.extend((0..world).map(|_| Script { stuck: None, ..calm(rng, fails, world) }));
    }
    if same {
        let (rank, all) = (rng.below(world), plan.ranks.len() as u64);
        let at = (0..all).filter(|proc| proc % world == rank).filter_map(|proc| usize::try_from(proc).ok());
        for proc in at {
            (plan.ranks[proc].runs, plan.ranks[proc].end) = (MS, Status::Exited(3));
        }
    }
    if rng.chance(10) {
        let proc = u32::try_from(rng.below(plan.ranks.len() as u64)).unwrap_or(0);
        plan.no_start = Some((proc, SpawnStep::Exec));
    }
    // A process that the kernel cannot kill for a while, or for ever: on other hosts a lease promises that it can.
    if plan.spec.placement.is_here() && rng.chance(10) {
        let proc = usize::try_from(rng.below(plan.ranks.len() as u64)).unwrap_or(0);
        let long = if rng.chance(50) { rng.micros(100, 1_500_000) } else { 30_000 * MS };
        plan.ranks[proc].stuck = Some((rng.below(plan.ranks[proc].runs.max(1)), long));
    }
    // The job may do with fewer ranks, where hosts are lost.
    if rng.chance(60) {
        plan.spec.rounds.limits.min_world = Some(u32::try_from(rng.between(1, world)).unwrap_or(1));
    }
    if rng.chance(40) {
        plan.spec.settings.devices.kind = DeviceKind::Auto;
    }
    for _ in 0..RETRIES {
        plan.ranks.extend((0..world).map(|_| Script { stuck: None, ..calm(rng, true, world) }));
    }
    plan
}

fn calm(rng: &mut Rng, fails: bool, world: u64) -> Script {
    let mut script = script(rng, fails, world);
    script.kids.iter_mut().for_each(|kid| kid.stuck = false);
    if script.asked == Reaction::Ignores && rng.chance(50) {
        script.asked = Reaction::Dies;
    }
    script
}

/// All on the launcher's own host.
pub(crate) fn alone(plan: &mut Plan) {
    let apps = plan.spec.apps.iter().map(|app| app.procs).collect::<Vec<_>>();
    plan.spec.placement = Placement::here("here", apps);
    plan.spec.min_hosts = None;
    plan.sites.truncate(1);
    for site in &mut plan.sites {
        (site.local, site.clock, site.bare) = (true, Clock::default(), false);
        site.reach = site::Reach::Up(0);
        site.spells.clear();
        site.faults.retain(|(_, fault)| !matches!(fault, Fault::HostLost | Fault::EdgeKilled));
        let stands = site.faults.iter().any(|(_, fault)| fault.is_a_stop());
        // No lease ends its ranks.
        site.faults.extend(stands.then_some((FAULTS_END, Fault::AgentResumes)));
    }
}

/// The knowledge about the generations.
#[derive(Default)]
pub(crate) struct Known {
    /// Restarts that the launcher reported.
    pub(crate) restarts: u32,
    /// Restarts that followed a failure, and no loss of a host.
    pub(crate) failures: u32,
    /// Whether it has reported that it sees no progress, or that a process could not be ended.
    pub(crate) gives_up: bool,
}

impl World {
    /// All ranks that the job asks for.
    fn world_size(&self) -> u32 {
        u32::try_from(self.plan.spec.placement.ranks.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Which generation a process is of.
    pub(crate) fn generation_of(&self, proc: ProcId) -> u32 {
        if self.has_worlds() { 0 } else { proc.get() / self.world_size() }
    }

    pub(crate) fn rank_of(&self, proc: ProcId) -> Rank {
        Rank::new(if self.has_worlds() { proc.get() } else { proc.get() % self.world_size() })
    }

    /// How often a host has chosen a MASTER_PORT anew by then.
    pub(crate) fn ports_of(&self, node: usize, generation: u32) -> u32 {
        if self.is_sliced() { self.host(node).agent.renewals() } else { generation }
    }

    /// The MASTER_PORT that a host has chosen for a generation.
    pub(crate) fn port_at(&self, node: usize, generation: u32) -> u16 {
        crate::agent::port_of(node) + PORTS * u16::try_from(generation).unwrap_or(0)
    }

    /// A process is started: nothing runs anywhere that is of another generation.
    pub(crate) fn check_generation(&mut self, proc: ProcId) {
        let generation = self.generation_of(proc);
        self.check(generation == self.known.restarts, || format!("{proc} is started in generation {generation}"));
        let allowed = self.known.failures <= self.plan.spec.settings.restarts.most;
        self.check(allowed, || format!("{generation} restarts are too many"));
        for node in 0..self.count() {
            let others = self.host(node).kernel.owners().filter(|owner| self.generation_of(*owner) != generation);
            let others: Vec<ProcId> = others.collect();
            let none = others.is_empty() || self.host(node).is_none_of_ours();
            self.check(none, || format!("{proc} is started while these run on host {node}: {others:?}"));
        }
    }

    /// The launcher has all ranks started again.
    pub(crate) fn restarts(&mut self, restart: u32, why: RestartCause) {
        self.note("< job", || format!("restart {restart}: {why:?}"));
        self.known.failures += u32::from(why.is_failure());
        let next = restart == self.known.restarts + 1 && self.known.failures <= self.plan.spec.settings.restarts.most;
        let before = self.known.restarts;
        self.check(next, || format!("restart {restart} follows {before}"));
        for node in 0..self.count() {
            let (alive, ours) = (self.host(node).kernel.alive_count(), !self.host(node).is_none_of_ours());
            self.check(alive == 0 || !ours, || format!("{alive} processes still run on host {node}"));
        }
        let failed = self.failed_by_themselves();
        // Of a host that has come back nothing is known.
        match why {
            RestartCause::Failed { rank, lost, .. } => {
                let is_rank = |failed: &Failed| self.rank_of(failed.proc) == rank;
                let known = self.is_sliced() || lost.is_some() || failed.iter().any(is_rank);
                self.check(known, || format!("rank {rank} has not failed by itself"));
            }
            RestartCause::Grown { size, running } => self.grows(size, running),
        }
        self.known.restarts = restart;
        self.truth.forget();
    }

    /// The job ends because a rank failed: then no restart was left, or something had kept it from one.
    pub(crate) fn check_used_up(&mut self) {
        let spec = &self.plan.spec;
        let used_up = self.known.failures >= spec.settings.restarts.most
            || spec.settings.ending.on_failure == OnFailure::Continue;
        let hit = self.plan.sites.iter().any(|site| !site.faults.is_empty() || !site.spells.is_empty());
        let slow = !self.plan.stops.is_empty() || self.plan.ranks.iter().any(|rank| rank.stuck.is_some());
        let scheduled = self.truth.warned.is_some() || self.is_any_killed();
        let why = used_up || self.known.gives_up || hit || slow || scheduled;
        let (restarts, most) = (self.known.failures, self.plan.spec.settings.restarts.most);
        self.check(why, || format!("the job ends after {restarts} of {most} restarts"));
    }

    /// The sandbox is set up anew.
    pub(crate) fn renews(&mut self, choose_port: bool) {
        let kernel = &self.host.kernel;
        let clear = kernel.alive_count() == 0 && kernel.unreaped() == 0 && self.host.agent.is_drained();
        self.check(clear, || "the sandbox is set up anew, and the host is not clear".to_owned());
        let t1 = self.plan.tier == Tier::T1;
        self.host.kernel.init = if t1 { Init::Alive } else { Init::Absent };
        let generation = self.host.agent.renew();
        let port = if choose_port { self.port_at(self.node, generation) } else { 0 };
        self.soon(Ev::Arrives(Arrival::Event(Box::new(NodeEvent::Renewed { port }))));
    }

    /// A space is there before the ranks of its generation.
    pub(crate) fn makes_space(&mut self, generation: u32) {
        let last = self.host.agent.last_spawned();
        let early = last.is_none_or(|proc| self.generation_of(proc) < generation);
        self.check(early && self.host.kernel.alive_count() == 0, || "a space is made after the first rank".to_owned());
        let right = generation == self.known.restarts;
        self.check(right, || format!("a space of generation {generation}"));
    }

    pub(crate) fn serves(&mut self, addr: OsBytes, port: u16) {
        let once = self.host.agent.served.replace((addr, port)).is_none() && self.host.kernel.alive_count() == 0;
        self.check(once, || "the store is held too late, or twice".to_owned());
    }
}
