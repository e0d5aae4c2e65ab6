//! Jobs on slices: what a seed means for them, hosts that come back, and what must hold of every start of their ranks.
//!
//! Hosts are lost, warned, late and back again. Ranks always run on whole slices, a slice that is well keeps its place, and a host
//! is host k of slot s for ever.

use crate::discovery;
use crate::generations::LONGEST;
use crate::host::{Clock, Host};
use crate::plan::{EVER, Fault, MS, Plan, Reaction, Script, Sight, holder, program, script};
use crate::rng::Rng;
use crate::site::{Reach, Site};
use crate::ways::OPEN;
use crate::world::{Ev, World};
use rlaunch_base::id::{AppIndex, JobId, LocalRank, NodeId};
use rlaunch_base::time::Span;
use rlaunch_base::warnings::WarningPlan;
use rlaunch_plan::hostlist::{self, Chips};
use rlaunch_plan::place::{Node, Placement, Processes, RankPlacement, Worlds};
use rlaunch_plan::slices::{Grow, Sizes, SlicePlan, SlotId, slots};
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::settings::{OnFailure, Tier};
use rlaunch_protocol::spec::{AppSpec, JobSpec};
use std::sync::Arc;

/// Number of the random stream, distinct from those of other jobs.
const STREAM: u64 = 0x736c_6963_6573_0000;
/// Starts after a host was lost.
const RETRIES: u32 = 4;
/// Starts on more slices, at most: from one to four, and again after each loss.
const GROWTHS: u32 = 3 * (RETRIES + 3);
/// The job may grow so long after a start.
const GROW_AFTER: u64 = 60_000 * MS;
/// The longest time that slices are waited for.
const TIMEOUT: u64 = 40_000 * MS;
/// How long a host may take to be reached.
const DEADLINE: u64 = 10_000 * MS;

/// A job on slices.
pub(crate) fn plan(seed: u64) -> Plan {
    let rng = &mut Rng::new(seed ^ STREAM);
    let (count, hosts) = (rng.between(2, 4), rng.between(1, 3));
    let lease = Span::from_secs(rng.pick(&[2, 5, 5, 30]));
    let world = count * hosts;
    let fails = rng.chance(30);
    let most = if rng.chance(30) { 2 } else { 0 };
    // Drawn apart: other jobs are what they were.
    let grows = Rng::new(seed ^ STREAM ^ 1).chance(40);
    let starts = u64::from(RETRIES + most + if grows { GROWTHS } else { 0 }) + 1;
    let mut ranks: Vec<Script> = (0..world * starts).map(|_| calm(rng, fails, world)).collect();
    disturb(&mut ranks, world, rng);
    if grows {
        outlast(&mut ranks, world, &mut Rng::new(seed ^ STREAM ^ 2));
    }
    let sites: Vec<Site> = (0..world).map(|_| site(rng, lease.nanos())).collect();
    let count_of_ranks = u32::try_from(world).unwrap_or(1);
    let sizes = sizes(count, rng);
    let grace = Span::from_millis(rng.between(10, 3000));
    let spec = JobSpec {
        slices: Some(SlicePlan {
            sizes: Sizes::new(&sizes, u32::try_from(count).unwrap_or(1)).unwrap_or_else(|_| unreachable!()),
            slots: slots(&nodes(count, hosts)).unwrap_or_default(),
            spares: 0,
            timeout: Span::from_nanos(rng.between(2_000 * MS, TIMEOUT)),
            grow: if grows { Grow::Now } else { Grow::Next },
        }),
        ..JobSpec::of(JobId([7; 16]), vec![AppSpec { procs: count_of_ranks, base: program() }], placed(count, hosts))
    }
    .with(|settings| {
        settings.hosts.lease = lease;
        settings.ending.grace = grace;
        settings.warnings = WarningPlan { grace, ..WarningPlan::default() };
        settings.ending.on_failure = OnFailure::Kill;
        settings.restarts = Restarts { most, delay: Span::from_millis(300), preempt: RETRIES, ..Restarts::default() };
        settings.store.holder = holder(count_of_ranks);
    });
    let mut plan = Plan {
        spec,
        tier: if rng.chance(50) { Tier::T1 } else { Tier::T3 },
        ranks,
        faults: vec![],
        sight: rng.pick(&[Sight::Exact, Sight::Exact, Sight::Bursts, Sight::Poor]),
        late: if rng.chance(50) { MS } else { 0 },
        wire: (5, 300),
        local: (1, 200),
        window: rng.between(1, 16) * 16384,
        refusal: None,
        no_start: None,
        usr_kills: false,
        sites,
        stops: vec![],
        scheduler: None,
        lists: vec![],
    };
    discovery::draw(seed, &mut plan);
    plan
}

/// The numbers of slices that a job takes.
fn sizes(count: u64, rng: &mut Rng) -> Vec<i64> {
    let all = i64::try_from(count).unwrap_or(1);
    match rng.below(3) {
        0 => vec![i64::try_from(rng.between(1, count)).unwrap_or(1)],
        1 => vec![1, all],
        _ => (1..=all).collect(),
    }
}

/// The first generations are there to be disturbed.
fn disturb(ranks: &mut [Script], world: u64, rng: &mut Rng) {
    let early = usize::try_from(world * rng.between(0, 2)).unwrap_or(0);
    for script in ranks.iter_mut().take(early) {
        script.runs = script.runs.max(rng.between(3_000, 9_000) * MS);
    }
}

/// The first generations run until the job may grow.
fn outlast(ranks: &mut [Script], world: u64, rng: &mut Rng) {
    let early = usize::try_from(world * rng.between(1, 3)).unwrap_or(0);
    let long = GROW_AFTER + rng.between(0, 30_000) * MS;
    ranks.iter_mut().take(early).for_each(|script| script.runs = script.runs.max(long));
}

fn nodes(count: u64, hosts: u64) -> Vec<Node> {
    let node = |n: u64| Node {
        chips: Some(Chips {
            hosts: u32::try_from(hosts).unwrap_or(0),
            ..Chips::of(&format!("s{}", n / hosts), u32::try_from(n % hosts).unwrap_or(0), 4)
        }),
        ..Node::of(hostlist::Host::named(&format!("node{n}")), 1)
    };
    (0..count * hosts).map(node).collect()
}

/// One rank on each host, slice by slice.
fn placed(count: u64, hosts: u64) -> Placement {
    let nodes = nodes(count, hosts);
    let all: Vec<NodeId> = (0..).map(NodeId::new).take(nodes.len()).collect();
    let placed = |node: &NodeId| RankPlacement { node: *node, local_rank: LocalRank::new(0), app: AppIndex::new(0) };
    let ranks = all.iter().map(placed).collect();
    Placement { nodes, ranks, notes: vec![], processes: Processes::default(), order: all, worlds: Worlds::default() }
}

fn calm(rng: &mut Rng, fails: bool, world: u64) -> Script {
    let mut script = Script { stuck: None, ..script(rng, fails, world) };
    script.kids.iter_mut().for_each(|kid| kid.stuck = false);
    if script.asked == Reaction::Ignores && rng.chance(50) {
        script.asked = Reaction::Dies;
    }
    script
}

/// A host that may be late, lost, warned, and back.
fn site(rng: &mut Rng, lease: u64) -> Site {
    let clock = Clock { offset: rng.between(0, 1 << 50), ppm: i64::try_from(rng.below(1000)).unwrap_or(0) - 500 };
    let reach = match rng.below(10) {
        0 => Reach::Fails(rng.micros(1000, 2_000_000)),
        1 => Reach::Up(rng.micros(1_000_000, 8_000_000)),
        _ => Reach::Up(rng.micros(1000, 300_000)),
    };
    let from = rng.micros(500_000, 8_000_000);
    let faults = match rng.below(8) {
        0 => vec![(from, Fault::HostLost)],
        1 => vec![(from, Fault::AgentKilled)],
        2 => vec![(from, Fault::EdgeKilled)],
        3 => vec![(from, Fault::AgentAsked), (from + rng.micros(1, 5_000_000), Fault::HostLost)],
        4 => vec![(from, Fault::GuardianKilled)],
        _ => vec![],
    };
    let back = if rng.chance(70) { from + rng.between(lease, lease * 3) } else { EVER };
    Site {
        local: false,
        clock,
        reach,
        deadline: DEADLINE,
        wire: (75, 300),
        spells: vec![],
        slack: 0,
        bare: false,
        faults,
        nets: OPEN,
        back: Some(back),
        dialling: crate::srun::Dialling::default(),
    }
}

impl World {
    /// Whether hosts come back.
    pub(crate) fn is_sliced(&self) -> bool {
        self.plan.spec.slices.is_some()
    }

    /// Whether the job takes more slices at once (`--grow now`).
    fn grows_now(&self) -> bool {
        self.plan.spec.slices.as_ref().is_some_and(|plan| plan.grow == Grow::Now)
    }

    /// All ranks are started again on more slices: that was asked for, and the start before was long ago.
    pub(crate) fn grows(&mut self, size: u32, running: u32) {
        let had = u32::try_from(self.truth.slices.len()).unwrap_or(0);
        let right = self.grows_now() && size > running && running == had;
        self.check(right, || format!("{running} slices grow to {size}, and the job had {had}"));
        let long = self.now - self.truth.started;
        self.check(long >= GROW_AFTER, || format!("the job grows {long} ns after its last start"));
    }

    /// How much longer a job on slices may take.
    pub(crate) fn slices_take(&self) -> u64 {
        let grows = self.grows_now();
        let starts = u64::from(RETRIES + if grows { GROWTHS } else { 0 });
        if self.is_sliced() { starts * (LONGEST + TIMEOUT) + TIMEOUT } else { 0 }
    }

    /// The launcher has a host reached again: nothing of the job may run there, and what was there before is forgotten.
    pub(crate) fn is_reached_again(&mut self) {
        if !std::mem::replace(&mut self.host.tried, true) {
            return;
        }
        let running = self.host.kernel.running();
        let gone = self.host.is_none_of_ours();
        self.check(running == 0 || gone, || format!("a host is reached again where {running} ranks run"));
        self.cancel(|ev| !matches!(ev, Ev::Fault(_) | Ev::Prints(_)));
        let Some(site) = self.site().cloned() else { return };
        let is_off = self.host.gone && site.back.is_none_or(|back| self.now < back);
        self.host = Host::of(&site);
        (self.host.gone, self.host.tried) = (is_off, true);
    }

    /// The outcome of an attempt to reach a host of a slice.
    pub(crate) fn reaches(&mut self, reach: Reach) -> Reach {
        let back = self.site().and_then(|site| site.back).unwrap_or(EVER);
        match reach {
            Reach::Up(_) if self.host.gone => Reach::Fails(500 * MS),
            // It could not be reached at first.
            Reach::Fails(after) if self.now >= back => Reach::Up(after),
            other => other,
        }
    }

    /// Ranks are placed on whole slices. Slices that had ranks and have them still keep their order.
    pub(crate) fn placed_on_slices(&mut self, placement: &Arc<Placement>) {
        let Some(plan) = self.plan.spec.slices.clone() else { return };
        let used: Vec<NodeId> = placement.ranks.iter().map(|placed| placed.node).collect();
        let mut taken: Vec<SlotId> = vec![];
        for (slot, id) in plan.slots.iter().zip((0..).map(SlotId::new)) {
            let places: Vec<usize> =
                slot.hosts.iter().filter_map(|host| used.iter().position(|node| node == host)).collect();
            if places.is_empty() {
                continue;
            }
            let whole = places.len() == slot.hosts.len() && places.windows(2).all(|pair| pair[1] == pair[0] + 1);
            self.check(whole, || format!("slice {id:?} has ranks at {places:?} of {} hosts", slot.hosts.len()));
            taken.push(id);
        }
        let size = u32::try_from(taken.len()).unwrap_or(0);
        self.check(plan.sizes.as_slice().contains(&size), || format!("{size} slices are not {:?}", plan.sizes));
        let of = |node: &NodeId| plan.slots.iter().position(|slot| slot.hosts.first() == Some(node));
        let order: Vec<usize> = used.iter().filter_map(of).collect();
        let before = std::mem::replace(&mut self.truth.slices, order.clone());
        let stayed: Vec<usize> = before.iter().filter(|slot| order.contains(slot)).copied().collect();
        let kept: Vec<usize> = order.iter().filter(|slot| before.contains(slot)).copied().collect();
        self.check(stayed == kept, || format!("slices change places: {before:?}, then {order:?}"));
        for node in &used {
            let fit = self.on(*node, |world| {
                world.host.begun && world.host.agent.ready && !world.truth.warned_hosts.contains(node)
            });
            self.check(fit, || format!("{node:?} gets ranks, and is not up"));
            let listed = self.is_listed(*node);
            self.check(listed, || format!("{node:?} gets ranks, and the last list does not have it"));
        }
        self.truth.started = self.now;
        self.truth.placements = Some(Arc::clone(placement));
    }
}
