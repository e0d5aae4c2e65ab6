//! The meaning of a seed for a job of several hosts: the hosts, the networks between them, and the faults of each.
//!
//! It is drawn from a stream of its own: the jobs of one host stay what they are.

use crate::host::Clock;
use crate::plan::{EVER, FAULTS_END, Fault, MS, Plan, Reaction, Script, Sight, holder, script};
use crate::rng::Rng;
use crate::srun::Dialling;
use crate::ways::{self, Nets, OPEN};
use rlaunch_base::id::{AppIndex, JobId, LocalRank, NodeId};
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_plan::hostlist::Host;
use rlaunch_plan::place::{Node, Placement, Processes, RankPlacement, Worlds};
use rlaunch_protocol::settings::{OnFailure, Tier};
use rlaunch_protocol::spec::{AppSpec, JobSpec};

/// Number of the random stream, distinct from that of the run itself.
pub(crate) const STREAM: u64 = 0x686f_7374_7300_0000;
/// Time that a guardian may need to kill everything after it has noticed the end of the lease. A chain of 20 forks, of 1 ms each, is the
/// longest there is; the last process must then be found, and end.
const TO_KILL: u64 = 30 * MS;
/// How long the launcher tries to reach a host.
const DEADLINE: u64 = 25_000 * MS;

/// A host, and the way to it.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) local: bool,
    pub(crate) clock: Clock,
    pub(crate) reach: Reach,
    pub(crate) deadline: u64,
    /// Delays of the way there and back, in microseconds.
    pub(crate) wire: (u64, u64),
    pub(crate) spells: Vec<Spell>,
    /// By how much the guardian is late where the lease has ended.
    pub(crate) slack: u64,
    /// Its programs are not there.
    pub(crate) bare: bool,
    pub(crate) faults: Vec<(u64, Fault)>,
    pub(crate) nets: Nets,
    /// From when on the host can be reached again, where it was lost or could not be reached.
    pub(crate) back: Option<u64>,
    /// How its agent dials, in a scheduler's step.
    pub(crate) dialling: Dialling,
}

/// The outcome of the launcher's attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    Up(u64),
    Fails(u64),
}

/// A time in which the way is bad.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spell {
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// From the host; to the host.
    pub(crate) ways: [bool; 2],
    /// The delay of messages; `None`: not before the end of it.
    pub(crate) delay: Option<u64>,
    /// … and then after so long.
    pub(crate) back: u64,
}

impl Site {
    /// Nothing hits this host that could cost it its lease, its agent or its edge.
    pub(crate) fn is_well(&self, lease: u64) -> bool {
        let short = |spell: &Spell| match spell.delay {
            Some(delay) => delay <= lease / 8,
            None => spell.until.saturating_sub(spell.from).saturating_add(spell.back) <= lease / 3,
        };
        // How often it is late adds up.
        let spells = self.spells.len() < 2 && self.spells.iter().all(short);
        spells && self.stop() <= lease / 3 && self.faults.iter().all(|(_, fault)| fault.is_a_stop())
    }

    /// The length of its agent's suspension.
    pub(crate) fn stop(&self) -> u64 {
        let first = self.faults.iter().map(|(at, _)| *at).min().unwrap_or(0);
        let last = self.faults.iter().map(|(at, _)| *at).max().unwrap_or(0);
        last - first
    }
}

/// A job and its surroundings; the times and lengths of the launcher's suspensions.
pub(crate) fn plan(rng: &mut Rng) -> Plan {
    let count = if rng.chance(5) { 1 } else { rng.between(2, 5) };
    let local = if count > 1 && rng.chance(40) { rng.below(count) } else { EVER };
    let lease = Span::from_secs(rng.pick(&[2, 5, 30, 30]));
    let fails = rng.chance(50);
    let sizes: Vec<u64> = (0..count).map(|_| rng.between(1, 4)).collect();
    let world = sizes.iter().sum();
    let ranks: Vec<Script> = (0..world).map(|_| Script { stuck: None, ..calm(script(rng, fails, world)) }).collect();
    let tier = if rng.chance(50) { Tier::T1 } else { Tier::T3 };
    let far = match rng.below(10) {
        0 if lease == Span::from_secs(30) => 2_000_000,
        0..4 => 80_000,
        4..7 => 5_000,
        _ => 300,
    };
    // Half of the jobs have nothing to fear, or next to nothing.
    let hard = rng.chance(60);
    let mut sites: Vec<Site> = (0..count).map(|n| site(rng, n == local, lease.nanos(), far, hard)).collect();
    if rng.chance(10) {
        // All that can be reached wait for one that cannot.
        let which = usize::try_from(rng.below(count)).unwrap_or(0);
        sites[which].reach = Reach::Fails(rng.micros(1000, 20_000_000));
    }
    let step = rng
        .chance(5)
        .then(|| (u32::try_from(rng.below(world)).unwrap_or(0), rlaunch_protocol::wire::to_root::SpawnStep::Exec));
    let mut plan = Plan {
        spec: spec(rng, &sizes, local, lease),
        tier,
        ranks,
        faults: user(rng),
        sight: rng.pick(&[Sight::Exact, Sight::Exact, Sight::Bursts, Sight::Poor]),
        late: if rng.chance(50) { MS } else { 0 },
        wire: (5, 300),
        local: if rng.chance(80) { (1, 200) } else { (1, 5_000) },
        window: rng.between(1, 16) * 16384,
        refusal: None,
        no_start: step,
        usr_kills: rng.chance(30),
        sites,
        stops: stops(rng, lease.nanos()),
        scheduler: None,
        lists: vec![],
    };
    // Drawn last: the jobs of all seeds stay what they were.
    plan.spec.min_hosts = rng.chance(50).then(|| u32::try_from(rng.between(1, count)).unwrap_or(1));
    if rng.chance(40) {
        to_the_limit(rng, &mut plan);
    }
    ways::draw(rng, &mut plan);
    plan
}

/// A process that the kernel cannot kill is a subject of the jobs of one host.
fn calm(mut script: Script) -> Script {
    script.kids.iter_mut().for_each(|kid| kid.stuck = false);
    script
}

fn spec(rng: &mut Rng, sizes: &[u64], local: u64, lease: Span) -> JobSpec {
    let world = u32::try_from(sizes.iter().sum::<u64>()).unwrap_or(1);
    let base = crate::plan::program();
    let first = u32::try_from(rng.between(0, u64::from(world))).unwrap_or(0);
    let mut placements = vec![];
    let mut nodes = vec![];
    for (ranks, node) in sizes.iter().map(|size| u32::try_from(*size).unwrap_or(1)).zip(0..) {
        for local_rank in (0..ranks).map(LocalRank::new) {
            let app = AppIndex::new(u32::from(placements.len() >= usize::try_from(first).unwrap_or(0)));
            placements.push(RankPlacement { node: NodeId::new(node), local_rank, app });
        }
        let host = Host::named(&format!("node{node}"));
        nodes.push(Node { local: u64::from(node) == local, ..Node::of(host, ranks) });
    }
    JobSpec::of(
        JobId([7; 16]),
        vec![AppSpec { procs: first, base: base.clone() }, AppSpec { procs: world - first, base }],
        Placement {
            nodes,
            ranks: placements.into(),
            notes: vec![],
            processes: Processes::default(),
            order: vec![],
            worlds: Worlds::default(),
        },
    )
    .with(|settings| {
        settings.hosts.lease = lease;
        settings.ending.on_failure = if rng.chance(70) { OnFailure::Kill } else { OnFailure::Continue };
        settings.ending.grace = Span::from_millis(if rng.chance(10) { 0 } else { rng.between(10, 5000) });
        settings.ending.timeout = rng.chance(10).then(|| Span::from_millis(rng.between(1, 9000)));
        settings.store.holder = holder(world);
    })
}

fn site(rng: &mut Rng, local: bool, lease: u64, far: u64, hard: bool) -> Site {
    let margin = margin(lease);
    let drift = if rng.chance(50) { 10_000 } else { 500 };
    let ppm = i64::try_from(rng.between(0, 2 * drift)).unwrap_or(0) - i64::try_from(drift).unwrap_or(0);
    let clock = Clock { offset: rng.between(0, 1 << 50), ppm };
    let mut site = Site {
        local,
        clock: if local { Clock::default() } else { clock },
        reach: Reach::Up(if rng.chance(90) { rng.micros(1000, 300_000) } else { rng.micros(1000, 15_000_000) }),
        deadline: DEADLINE,
        wire: (5.max(far / 4), far),
        spells: vec![],
        slack: if rng.chance(50) { rng.below(margin * 3 / 4) } else { 0 },
        bare: rng.chance(2),
        faults: vec![],
        nets: OPEN,
        back: None,
        dialling: Dialling::default(),
    };
    if hard && rng.chance(50) {
        hit(rng, &mut site, lease);
    }
    if local {
        // No way leads there that could be bad, and its power is the launcher's.
        site.spells.clear();
        site.faults.retain(|(_, fault)| !matches!(fault, Fault::HostLost | Fault::EdgeKilled));
    }
    site
}

/// A guardian that is as late as is allowed, on a host whose clock is as slow as is allowed. Its messages are lost from some moment on,
/// and it still gets the answer to its last one: the launcher has no time to spare.
fn to_the_limit(rng: &mut Rng, plan: &mut Plan) {
    let at = usize::try_from(rng.below(plan.sites.len() as u64)).unwrap_or(0);
    let Some(site) = plan.sites.get_mut(at).filter(|site| !site.local) else { return };
    let lease = plan.spec.settings.hosts.lease.nanos();
    site.slack = margin(lease) - TO_KILL - rng.below(5 * MS);
    // It shows 1 s after 1.01 s.
    site.clock.ppm = -9_900;
    let from = rng.micros(1_000_000, 6_000_000);
    site.spells = vec![Spell { from, until: EVER, ways: [true, false], delay: None, back: 0 }];
    // Its agent has passed that on, and would end everything in time.
    site.faults = vec![(from + lease / 2, Fault::AgentFrozen)];
    // Nor do its ranks end by themselves.
    for (script, placed) in plan.ranks.iter_mut().zip(&plan.spec.placement.ranks) {
        if placed.node.index() == at {
            (script.runs, script.asked) = (60_000 * MS, Reaction::Ignores);
        }
    }
}

/// How late a guardian may be.
fn margin(lease: u64) -> u64 {
    (2000 * MS).max(lease / 5)
}

/// A fault of a host, or of the way there.
fn hit(rng: &mut Rng, site: &mut Site, lease: u64) {
    let from = rng.micros(1, 6_000_000);
    // Long enough to cost the lease, or short enough to cost nothing.
    let long = if rng.chance(50) { rng.below(lease / 3 * 2) } else { rng.between(lease / 2, lease * 2) };
    let until = if rng.chance(30) { EVER } else { from + long };
    let ways = rng.pick(&[[true, false], [false, true], [true, true], [true, true]]);
    let back = if rng.chance(50) { 0 } else { rng.below(long / 2) };
    let delay = if rng.chance(30) { Some(rng.below(2000 * MS)) } else { None };
    let also = from + rng.below(3000 * MS);
    let stop = if rng.chance(50) { Fault::AgentStopped } else { Fault::AgentFrozen };
    let resume = (until.min(FAULTS_END), Fault::AgentResumes);
    match rng.below(10) {
        0 | 1 => site.faults.push((from, Fault::HostLost)),
        2..5 => site.spells.push(Spell { from, until, ways, delay, back }),
        5 => site.faults.push((from, Fault::AgentKilled)),
        6 => site.faults.push((from, Fault::GuardianKilled)),
        7 => site.faults.push((from, Fault::EdgeKilled)),
        8 => site.faults.extend([(from, stop), resume]),
        _ => {
            // Two at once.
            site.spells.push(Spell { from, until, ways, delay: None, back });
            let other = rng.pick(&[Fault::AgentKilled, Fault::EdgeKilled, Fault::GuardianKilled, stop]);
            site.faults.push((also, other));
            if other == stop {
                site.faults.push((resume.0.max(also), resume.1));
            }
        }
    }
}

/// The actions of the user.
fn user(rng: &mut Rng) -> Vec<(u64, Fault)> {
    let sig = Fault::Signal(rng.pick(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]));
    let which = match rng.below(20) {
        0 => vec![sig],
        1 => vec![sig; 2],
        2 => vec![sig; 3],
        3 => vec![Fault::LauncherKilled],
        4 => vec![Fault::ReaderCloses],
        5 => vec![Fault::Signal(Signal::USR1)],
        _ => vec![],
    };
    which.into_iter().map(|fault| (rng.micros(1, 6_000_000), fault)).collect()
}

/// The launcher is stopped: for less than a third of the lease, or for longer than it.
fn stops(rng: &mut Rng, lease: u64) -> Vec<(u64, u64)> {
    if !rng.chance(15) {
        return vec![];
    }
    let long = if rng.chance(50) { rng.between(1, lease / 3) } else { rng.between(lease, lease * 3) };
    vec![(rng.micros(1, 6_000_000), long)]
}
