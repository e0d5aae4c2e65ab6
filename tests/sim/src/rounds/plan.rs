//! The meaning of a seed: a job whose function is begun again, and the faults with their times.

use crate::plan::{MS, program};
use crate::rng::Rng;
use rlaunch_base::id::{AppIndex, JobId, LocalRank, NodeId};
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_plan::hostlist::Host;
use rlaunch_plan::place::{Node, Placement, Processes, RankPlacement, Worlds};
use rlaunch_plan::rank_assign::parse;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::rounds::{Limits, Rounds};
use rlaunch_protocol::settings::StdinPlan;
use rlaunch_protocol::spec::{AppSpec, JobSpec};

/// Number of the random stream, distinct from those of other jobs.
const STREAM: u64 = 0x726f_756e_6400_0000;
const ROOM: u64 = 0x726f_6f6d_0000_0000;
const CALLS: u64 = 0x6361_6c6c_0000_0000;
const TWINS: u64 = 0x7477_696e_0000_0000;

/// A fault besides the actions of ranks themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The power of a host fails.
    Power(usize),
    /// Nothing comes from a host any more, or to it.
    Cut(usize),
    /// The ssh to a host is killed: either side reads the end of its edge.
    Edge(usize),
    /// The guardian of a host.
    Guardian(usize),
    /// A host is about to be taken away.
    Warned(usize),
    /// The user loses patience.
    Signal(Signal),
}

/// About when the second of two twins registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    /// The ranks are to leave their function for the first twin.
    Interrupt,
    /// Its round begins.
    Begin,
}

/// A whole run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) spec: JobSpec,
    pub(super) faults: Vec<(u64, Fault)>,
    /// Delays of edges and of hosts, in microseconds.
    pub(super) wire: u64,
    pub(super) local: u64,
    /// In so many of a hundred executions of the function something goes wrong.
    pub(super) trouble: u64,
    /// Number of rounds of a generation that have trouble of their own.
    pub(super) rounds: u32,
    /// Per cent of the processes that follow others which cannot be started.
    pub(super) unstartable: u64,
    /// Per cent of the killed processes that cannot be ended.
    pub(super) stuck: u64,
    /// Per cent of the hooks that never finish.
    pub(super) endless: u64,
    /// How often each process calls the function.
    pub(super) calls: u32,
    /// How long the function takes, at least and at most, in microseconds.
    pub(super) least_work: u64,
    pub(super) work: u64,
    /// Two ranks of this host are killed and started again.
    pub(super) twins: Option<(usize, Moment)>,
}

/// A job, and what hits it.
pub(super) fn plan(seed: u64) -> (Rng, Plan) {
    let mut rng = Rng::new(seed ^ STREAM);
    let hosts = if rng.chance(30) { 1 } else { rng.between(2, 4) };
    let local = if hosts == 1 || rng.chance(40) { Some(0) } else { None };
    let sizes: Vec<u32> = (0..hosts).map(|_| u32::try_from(rng.between(1, 4)).unwrap_or(1)).collect();
    let mut spec = spec(&mut rng, &sizes, local);
    let mut room = Rng::new(seed ^ ROOM);
    for node in &mut spec.placement.nodes {
        let most = if room.chance(30) { 4 } else { 1 };
        node.slots += u32::try_from(room.below(most)).unwrap_or(0);
    }
    let mut faults = Vec::new();
    for host in (0..sizes.len()).filter(|host| Some(*host) != local) {
        if rng.chance(25) {
            let which = [Fault::Power(host), Fault::Cut(host), Fault::Edge(host), Fault::Guardian(host)];
            faults.push((rng.micros(1000, 3_000_000), rng.pick(&which)));
        }
    }
    if rng.chance(8) {
        faults.push((rng.micros(1000, 3_000_000), Fault::Signal(Signal::INT)));
    }
    if rng.chance(20) {
        let host = usize::try_from(rng.below(hosts)).unwrap_or(0);
        faults.push((rng.micros(1000, 3_000_000), Fault::Warned(host)));
    }
    let mut calls = Rng::new(seed ^ CALLS);
    let mut plan = Plan {
        spec,
        stuck: calls.pick(&[0, 0, 5, 30]),
        endless: calls.pick(&[0, 0, 0, 5]),
        calls: calls.pick(&[1, 1, 2, 3]),
        faults,
        wire: if rng.chance(70) { 300 } else { 40_000 },
        local: if rng.chance(80) { 200 } else { 5_000 },
        trouble: rng.pick(&[0, 5, 20, 60]),
        rounds: u32::try_from(rng.between(1, 8)).unwrap_or(1),
        unstartable: room.pick(&[0, 10, 50, 100]),
        least_work: 1,
        work: rng.pick(&[500, 5_000, 50_000, 500_000]),
        twins: None,
    };
    plan_twins(&mut Rng::new(seed ^ TWINS), &mut plan, &sizes);
    (rng, plan)
}

/// Two ranks of one host are killed, and the function runs for long enough that both can be back. Mostly nothing else goes wrong.
fn plan_twins(rng: &mut Rng, plan: &mut Plan, sizes: &[u32]) {
    let may = plan.spec.rounds.respawn && sizes.iter().sum::<u32>() > 2;
    let host = sizes.iter().position(|ranks| *ranks > 1).filter(|_| may && rng.chance(30));
    let Some(host) = host else { return };
    plan.twins = Some((host, rng.pick(&[Moment::Interrupt, Moment::Interrupt, Moment::Begin, Moment::Begin])));
    (plan.least_work, plan.work) = (300_000, 500_000);
    if rng.chance(70) {
        (plan.trouble, plan.unstartable, plan.stuck) = (0, 0, 0);
        plan.faults.clear();
        plan.spec.rounds.limits = Limits::default();
    }
}

fn spec(rng: &mut Rng, sizes: &[u32], local: Option<usize>) -> JobSpec {
    let world: u32 = sizes.iter().sum();
    let mut members = vec![];
    let mut nodes = vec![];
    for (ranks, node) in sizes.iter().zip(0..) {
        let member = |local_rank| RankPlacement { node: NodeId::new(node), local_rank, app: AppIndex::new(0) };
        members.extend((0..*ranks).map(LocalRank::new).map(member));
        let local = local.is_some_and(|own| u32::try_from(own) == Ok(node));
        nodes.push(Node { local, ..Node::of(Host::named(&format!("node{node}")), *ranks) });
    }
    let policies = [None, Some("all,shift"), Some("max=3,fill"), Some("all,shift,group(host)>=2")];
    let asked = rng.pick(&policies).filter(|words| !words.contains("group") || sizes.iter().any(|size| *size > 1));
    let some = |rng: &mut Rng, most: u64| rng.chance(25).then(|| u32::try_from(rng.between(1, most)).unwrap_or(1));
    let least = u64::from(world);
    let limits = Limits {
        max_rounds: some(rng, 6),
        min_world: some(rng, least),
        min_active: some(rng, least.min(2)),
        max_rank_faults: some(rng, 3),
    };
    JobSpec {
        rounds: Rounds {
            policy: asked.and_then(|words| parse::policy(words).ok()),
            limits,
            fault_window: Span::from_nanos(if rng.chance(30) { rng.below(20) * MS } else { 0 }),
            yield_within: Rounds::YIELD,
            respawn: rng.chance(67),
            respawn_timeout: Span::from_secs(3),
            asked: "--respawn".into(),
        },
        ..JobSpec::of(
            JobId([7; 16]),
            vec![AppSpec { procs: world, base: program() }],
            Placement {
                nodes,
                ranks: members.into(),
                notes: vec![],
                processes: Processes::default(),
                order: vec![],
                worlds: Worlds::default(),
            },
        )
    }
    .with(|settings| {
        settings.hosts.lease = Span::from_secs(2);
        settings.ending.grace = Span::from_millis(500);
        settings.restarts = Restarts {
            give_up_after: Span::from_secs(u64::from(world % 3) * 2),
            ..Restarts::of(u32::try_from(rng.below(3)).unwrap_or(0), Span::ZERO)
        };
        settings.output.stdin = StdinPlan::None;
    })
}
