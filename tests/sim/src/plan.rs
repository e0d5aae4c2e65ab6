//! The meaning of a seed: a job, the actions of its ranks, and the faults with their times.

use crate::rng::Rng;
use crate::scheduler::Scheduler;
use crate::site::Site;
use rlaunch_base::id::JobId;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_base::warnings::WarningPlan;
use rlaunch_plan::hostlist::Entry;
use rlaunch_plan::place::{Placement, World as GroupWorld};
use rlaunch_protocol::master_store::{ForAgent, ForRank0, Holder};
use rlaunch_protocol::settings::{OnFailure, Tier};
use rlaunch_protocol::spec::{AppBase, AppSpec, JobSpec, Role};
use rlaunch_protocol::wire::to_root::{NodeRefusal, SpawnStep};

/// For ever.
pub(crate) const EVER: u64 = u64::MAX;
/// A millisecond.
pub(crate) const MS: u64 = 1_000_000;
/// By then every fault has happened and every blocked sink takes bytes again.
pub(crate) const FAULTS_END: u64 = 60_000 * MS;

/// A whole run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) spec: JobSpec,
    pub(crate) tier: Tier,
    pub(crate) ranks: Vec<Script>,
    pub(crate) faults: Vec<(u64, Fault)>,
    pub(crate) sight: Sight,
    /// How late timers are.
    pub(crate) late: u64,
    /// Delays of the wire, in microseconds.
    pub(crate) wire: (u64, u64),
    /// Delays of the kernel and of threads, in microseconds.
    pub(crate) local: (u64, u64),
    /// Bytes that may be under way.
    pub(crate) window: u64,
    pub(crate) refusal: Option<NodeRefusal>,
    /// Rank that cannot be started, and the step that fails.
    pub(crate) no_start: Option<(u32, SpawnStep)>,
    /// SIGUSR1 and 2 kill ranks that do not catch TERM either.
    pub(crate) usr_kills: bool,
    /// The hosts; none: the launcher's own alone, as it has always been.
    pub(crate) sites: Vec<Site>,
    /// When the launcher is stopped, and for how long.
    pub(crate) stops: Vec<(u64, u64)>,
    /// The scheduler in whose step the agents run.
    pub(crate) scheduler: Option<Scheduler>,
    /// Lists of hosts that the command of `--discover` prints, with their times.
    pub(crate) lists: Vec<(u64, Vec<Entry>)>,
}

/// How well the agent sees when ranks end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight {
    /// Each end at its time.
    Exact,
    /// In bursts; it knows when the last one was.
    Bursts,
    /// In bursts; it only knows that they ran when they were started.
    Poor,
}

/// The actions of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) runs: u64,
    pub(crate) end: Status,
    pub(crate) asked: Reaction,
    pub(crate) writes: Vec<(u64, u64)>,
    pub(crate) kids: Vec<Kid>,
    pub(crate) error_file: bool,
    /// From when on and how long the kernel cannot kill it.
    pub(crate) stuck: Option<(u64, u64)>,
}

/// A descendant of a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kid {
    pub(crate) after: u64,
    pub(crate) lives: u64,
    /// Whether it left the rank's process group.
    pub(crate) escaped: bool,
    /// Whether it holds the rank's stdout, and writes there before it ends.
    pub(crate) holds: bool,
    /// How often it forks away before a SIGKILL reaches it.
    pub(crate) hops: u8,
    pub(crate) stuck: bool,
}

/// The reaction of a process to a signal to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reaction {
    Dies,
    Exits(u8, u64),
    Ignores,
}

/// A fault, or an action of the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Signal(Signal),
    AgentKilled,
    AgentAsked,
    /// Until it is roused.
    AgentStopped,
    /// Until it continues.
    AgentFrozen,
    AgentResumes,
    GuardianKilled,
    InitKilled,
    LauncherKilled,
    ReaderCloses,
    SinkFails,
    SinkBlocks,
    SinkUnblocks,
    /// A host loses its power.
    HostLost,
    /// The ssh to a host is killed.
    EdgeKilled,
}

impl Fault {
    /// Whether it is a suspension that ends: a short one has no consequence.
    pub(crate) const fn is_a_stop(self) -> bool {
        matches!(self, Self::AgentStopped | Self::AgentFrozen | Self::AgentResumes)
    }
}

impl Plan {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let count = match rng.below(20) {
            0 => rng.between(257, 300),
            1..4 => 1,
            _ => rng.between(1, 12),
        };
        let fails = rng.chance(50);
        let ranks: Vec<Script> = (0..count).map(|_| script(rng, fails, count)).collect();
        let tier = if rng.chance(50) { Tier::T1 } else { Tier::T3 };
        let endless = ranks.iter().any(|rank| rank.stuck.is_some_and(|(_, long)| long == EVER));
        let refusal = rng.chance(2).then_some(NodeRefusal::NoPort);
        let step = rng.pick(&[SpawnStep::Exec, SpawnStep::Exec, SpawnStep::Clone, SpawnStep::ChangeDir]);
        let no_start = rng.chance(8).then(|| (u32::try_from(rng.below(count)).unwrap_or(0), step));
        Self {
            spec: spec(rng, u32::try_from(count).unwrap_or(1), endless),
            tier,
            ranks,
            faults: faults(rng, tier),
            sight: rng.pick(&[Sight::Exact, Sight::Exact, Sight::Bursts, Sight::Poor]),
            late: if rng.chance(50) { MS } else { 0 },
            wire: if rng.chance(80) { (5, 300) } else { (5, 80_000) },
            local: if rng.chance(80) { (1, 200) } else { (1, 5_000) },
            window: rng.between(1, 16) * 16384,
            refusal,
            no_start,
            usr_kills: rng.chance(30),
            sites: vec![],
            stops: vec![],
            scheduler: None,
            lists: vec![],
        }
    }
}

impl Plan {
    /// Whether a sink takes nothing for a while.
    /// How long all output takes at most, a window at a time.
    pub(crate) fn drain(&self) -> u64 {
        let written = self.ranks.iter().flat_map(|rank| &rank.writes).map(|(_, bytes)| bytes).sum::<u64>();
        (written / self.window + 1) * 2 * self.wire.1 * 1000
    }

    pub(crate) fn blocks(&self) -> bool {
        self.faults.iter().any(|(_, fault)| *fault == Fault::SinkBlocks)
    }
}

/// The program of all ranks.
pub(crate) fn program() -> AppBase {
    AppBase {
        argv: ["rank"].iter().collect(),
        env: ["A=1"].iter().collect(),
        pinned: OsStrings::default(),
        wdir: None,
        role: Role::sole(),
        logs: None,
        filled: false,
    }
}

/// The holder of the store makes a difference in half of all jobs.
pub(crate) const fn holder(ranks: u32) -> Holder {
    if ranks.is_multiple_of(2) { Holder::Agent(ForAgent::Python) } else { Holder::Rank0(ForRank0::NotPython) }
}

fn spec(rng: &mut Rng, count: u32, endless: bool) -> JobSpec {
    let base = program();
    // Now and then a program that needs more than one message.
    let big = AppBase { argv: ["x".repeat(300_000)].iter().collect(), ..base.clone() };
    let split = rng.between(0, u64::from(count));
    let first = u32::try_from(split).unwrap_or(0);
    let mut second = if rng.chance(5) { big } else { base.clone() };
    let mut placement = Placement::here("here", [first, count - first]);
    // The second program is a group in a third of the jobs where it is another one.
    if first > 0 && first < count && count.is_multiple_of(3) {
        let group = GroupWorld { agent_store: holder(count - first).is_agent(), ..GroupWorld::named("gen".into()) };
        second.role.world = group.clone();
        placement.worlds.add_program(GroupWorld::default());
        placement.worlds.add_program(group);
    }
    let on_failure = if rng.chance(70) { OnFailure::Kill } else { OnFailure::Continue };
    let grace = Span::from_millis(if rng.chance(10) { 0 } else { rng.between(10, 5000) });
    JobSpec::of(
        JobId([7; 16]),
        vec![AppSpec { procs: first, base }, AppSpec { procs: count - first, base: second }],
        placement,
    )
    .with(|settings| {
        settings.ending.on_failure = on_failure;
        settings.ending.grace = grace;
        settings.warnings = WarningPlan { grace, ..WarningPlan::default() };
        settings.ending.timeout = (endless || rng.chance(15)).then(|| Span::from_millis(rng.between(1, 6000)));
        settings.store.holder = holder(count);
    })
}

pub(crate) fn script(rng: &mut Rng, fails: bool, count: u64) -> Script {
    let runs = rng.micros(50, 3_000_000);
    let failing = fails && rng.below(count) < 2;
    let end = match rng.below(3) {
        _ if !failing => Status::Exited(0),
        0 => Status::Signaled { sig: rng.pick(&[Signal::SEGV, Signal::KILL, Signal::TERM, Signal::USR1]), core: false },
        _ => Status::Exited(u8::try_from(rng.between(1, 255)).unwrap_or(1)),
    };
    let asked = match rng.below(10) {
        0 => Reaction::Ignores,
        1 | 2 => Reaction::Exits(u8::try_from(rng.below(3)).unwrap_or(0), rng.micros(1, 800_000)),
        _ => Reaction::Dies,
    };
    let writes = (0..rng.below(3)).map(|_| (rng.below(runs), rng.between(1, 60_000))).collect();
    let kids = if rng.chance(25) { (0..rng.between(1, 3)).map(|_| kid(rng, runs)).collect() } else { vec![] };
    let long = if rng.chance(50) { EVER } else { rng.micros(100, 4_000_000) };
    let stuck = rng.chance(1).then(|| (rng.below(runs), long));
    Script { runs, end, asked, writes, kids, error_file: failing && rng.chance(30), stuck }
}

fn kid(rng: &mut Rng, runs: u64) -> Kid {
    Kid {
        after: rng.below(runs),
        lives: if rng.chance(50) { EVER } else { rng.micros(100, 6_000_000) },
        escaped: rng.chance(60),
        holds: rng.chance(50),
        hops: if rng.chance(20) { u8::try_from(rng.between(1, 20)).unwrap_or(1) } else { 0 },
        stuck: rng.chance(3),
    }
}

fn faults(rng: &mut Rng, tier: Tier) -> Vec<(u64, Fault)> {
    let sig = Fault::Signal(rng.pick(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]));
    let mut which = match rng.below(16) {
        0..3 => vec![sig],
        3 => vec![sig; 2],
        4 => vec![sig; 3],
        5 => vec![Fault::AgentKilled],
        6 => vec![Fault::GuardianKilled],
        7 => vec![Fault::LauncherKilled],
        8 => vec![Fault::ReaderCloses],
        9 => vec![Fault::AgentAsked],
        10 if tier == Tier::T1 => vec![Fault::InitKilled],
        // The agent alone has to end what is there.
        12 => vec![Fault::GuardianKilled, Fault::LauncherKilled],
        // The kernel alone.
        11 if tier == Tier::T1 => vec![Fault::AgentKilled, Fault::GuardianKilled],
        _ => vec![],
    };
    if rng.chance(10) {
        which.push(Fault::Signal(if rng.chance(50) { Signal::USR1 } else { Signal::USR2 }));
    }
    if rng.chance(5) {
        which.push(Fault::SinkFails);
    }
    let blocks = rng.chance(15);
    if blocks {
        which.push(Fault::SinkBlocks);
    }
    let mut faults: Vec<_> = which.into_iter().map(|fault| (rng.micros(1, 4_000_000), fault)).collect();
    if rng.chance(20) {
        faults.extend(stands(rng, sig));
    }
    if blocks {
        let until = if rng.chance(50) { FAULTS_END } else { rng.micros(4_000_000, 8_000_000) };
        faults.push((until, Fault::SinkUnblocks));
    }
    faults
}

/// Suspends the agent for a while, and then the user may lose patience.
fn stands(rng: &mut Rng, sig: Fault) -> Vec<(u64, Fault)> {
    let from = rng.micros(1, 4_000_000);
    let fault = if rng.chance(50) { Fault::AgentStopped } else { Fault::AgentFrozen };
    let until = if rng.chance(50) { FAULTS_END } else { from + rng.micros(1, 8_000_000) };
    let mut faults = vec![(from, fault), (until, Fault::AgentResumes)];
    for _ in 0..rng.below(3) {
        faults.push((from + rng.micros(1, 3_000_000), sig));
    }
    // Without a request to end, only rlaunch could notice that the guardian is gone too.
    if fault == Fault::AgentFrozen && until == FAULTS_END && faults.len() == 2 {
        faults.push((from + from % (500 * MS), Fault::GuardianKilled));
    }
    faults
}
