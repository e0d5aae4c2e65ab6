//! The virtual clock, and the delivery of events.

use crate::agent::Arrival;
use crate::discovery::Found;
use crate::generations::{self, Known};
use crate::host::Host;
use crate::kernel::Life;
use crate::launcher::Launcher;
use crate::plan::{EVER, FAULTS_END, Fault, MS, Plan};
use crate::rng::Rng;
use crate::scheduler;
use crate::site;
use crate::slices;
use crate::srun::{Shake, Srun, Turn};
use crate::still::{Pause, Still};
use crate::truth::Truth;
use crate::worlds::{self, Orders};
use rlaunch_base::id::{NodeId, ProcId};
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Mono;
use rlaunch_core::job::JobEvent;
use rlaunch_protocol::settings::Tier;
use std::collections::BTreeMap;

/// Past this moment nothing may be continuing.
const LIMIT: u64 = FAULTS_END + 60_000 * MS;
/// More steps than any run needs.
const STEPS: u32 = 400_000;

/// Which jobs a seed stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A host.
    Plain,
    /// The same, with suspensions now and then.
    Standing,
    /// Several hosts.
    Hosts,
    /// Runs on one host or on several, with restarts of all ranks.
    Restarts,
    /// The same in a scheduler's step.
    Scheduled,
    /// Jobs on slices.
    Slices,
    /// Jobs with several worlds.
    Worlds,
}

/// An event.
#[derive(Debug)]
pub(crate) enum Ev {
    /// A frame reaches the agent.
    AtAgent(Vec<u8>),
    /// A frame reaches the launcher; when it was sent.
    AtLauncher(u64, Vec<u8>),
    /// The launcher's end of the edge reads end of file.
    LauncherEdgeEnds,
    /// The agent's end does.
    AgentEdgeEnds,
    /// The agent learns of something.
    Arrives(Arrival),
    /// The agent handles what it has learned of.
    Wake,
    /// The spawn thread starts a rank.
    Starts(ProcId),
    /// The agent's sweep does its work.
    Sweeps,
    /// … and counts.
    Counts,
    /// The agent closes a rank's streams.
    Closes(ProcId),
    /// A process does something.
    Process(u32, Life),
    /// Init dies.
    InitDies,
    /// The guardian learns that a process has exited.
    GuardianWakes,
    /// The guardian works.
    GuardianWorks,
    /// An event for the job.
    ToJob(JobEvent),
    /// The sinks are written.
    Sink,
    Fault(Fault),
    /// The launcher, or the whole host, is suspended.
    Pause(Pause),
    /// The launcher continues.
    Resume,
    /// A host was reached, and its guardian begins.
    Begins,
    /// The launcher is notified that a host was reached.
    Up,
    /// A host was not reached, or not in time.
    Unreached,
    /// A connection from a host to the launcher's port for agents.
    Shake(Shake),
    /// Something else about the step of the agents.
    Step(Turn),
    /// A guardian reads the end of its lifeline.
    LifelineEnds,
    /// A guardian looks whether its lease has ended.
    LeaseRuns,
    /// The scheduler signals the processes of its step on a host.
    Scheduler(Signal),
    /// The command of `--discover` has printed this list.
    Prints(usize),
    /// A rank asks for a world.
    Asks(usize),
    /// … has it ended.
    AsksEnd(usize),
    /// The grace of the world has ended.
    IsWorldOver(usize),
}

impl Ev {
    /// Whether the agent handles it, or a thread of it: not while it is suspended.
    const fn is_agents(&self) -> bool {
        match self {
            Self::AtAgent(_)
            | Self::AgentEdgeEnds
            | Self::Wake
            | Self::Starts(_)
            | Self::Sweeps
            | Self::Counts
            | Self::Closes(_) => true,
            Self::AtLauncher(..)
            | Self::LauncherEdgeEnds
            | Self::Arrives(_)
            | Self::Process(..)
            | Self::InitDies
            | Self::GuardianWakes
            | Self::GuardianWorks
            | Self::ToJob(_)
            | Self::Sink
            | Self::Fault(_)
            | Self::Pause(_)
            | Self::Resume
            | Self::Begins
            | Self::Up
            | Self::Unreached
            | Self::Shake(_)
            | Self::Step(_)
            | Self::LifelineEnds
            | Self::LeaseRuns
            | Self::Scheduler(_)
            | Self::Prints(_)
            | Self::Asks(_)
            | Self::AsksEnd(_)
            | Self::IsWorldOver(_) => false,
        }
    }
}

impl Ev {
    /// Whether the launcher gets it, or a thread of it handles it: not while it is suspended.
    pub(crate) const fn is_launchers(&self) -> bool {
        matches!(
            self,
            Self::AtLauncher(..)
                | Self::LauncherEdgeEnds
                | Self::Up
                | Self::Unreached
                | Self::Shake(_)
                | Self::Step(_)
                | Self::ToJob(_)
                | Self::Sink
                | Self::Prints(_)
                | Self::Fault(Fault::Signal(_))
        )
    }
}

/// Everything.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) launcher: Launcher,
    /// The host of the present event.
    pub(crate) host: Host,
    /// Its number.
    pub(crate) node: usize,
    /// The others, by number.
    pub(crate) away: Vec<Host>,
    pub(crate) still: Still,
    pub(crate) truth: Truth,
    pub(crate) known: Known,
    /// The hosts that `--discover` has found.
    pub(crate) found: Found,
    /// Orders of ranks.
    pub(crate) orders: Orders,
    /// The step of the agents, in a scheduler's job.
    pub(crate) srun: Option<Srun>,
    /// Hosts for a step.
    pub(crate) wanted: Vec<NodeId>,
    queue: BTreeMap<(u64, u64), (usize, Ev)>,
    tickets: u64,
    log: Option<Vec<String>>,
    broken: Option<String>,
}

impl World {
    pub(crate) fn new(seed: u64, kind: Kind, logged: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut orders = Orders::default();
        let plan = match kind {
            Kind::Plain | Kind::Standing => Plan::new(&mut rng),
            Kind::Hosts => site::plan(&mut Rng::new(seed ^ site::STREAM)),
            Kind::Restarts => generations::plan(seed),
            Kind::Scheduled => scheduler::plan(seed),
            Kind::Slices => slices::plan(seed),
            Kind::Worlds => {
                let (plan, asked) = worlds::plan(seed);
                orders = asked;
                plan
            }
        };
        let launcher = Launcher::new(&plan);
        let still = match kind {
            Kind::Plain => Still::default(),
            Kind::Standing => Still::new(seed),
            Kind::Hosts | Kind::Restarts | Kind::Scheduled | Kind::Slices | Kind::Worlds => Still::of(&plan.stops),
        };
        let mut away: Vec<Host> = plan.sites.iter().map(Host::of).collect();
        let host = if away.is_empty() { Host::only() } else { std::mem::take(&mut away[0]) };
        away.resize_with(away.len().max(1), Host::default);
        Self {
            now: 0,
            rng,
            plan,
            launcher,
            host,
            node: 0,
            away,
            still,
            truth: Truth::default(),
            known: Known::default(),
            found: Found::default(),
            orders,
            srun: None,
            wanted: vec![],
            queue: BTreeMap::new(),
            tickets: 0,
            log: logged.then(Vec::new),
            broken: None,
        }
    }

    /// Writes a line of the event log.
    pub(crate) fn note(&mut self, who: &str, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            let (ms, rest) = (self.now / MS, self.now % MS / 1000);
            let where_to = if self.plan.sites.is_empty() { String::new() } else { format!("{} ", self.node) };
            log.push(format!("{ms:>6}.{rest:03} ms  {where_to}{who:<9} {}", what()));
        }
    }

    /// A promise is broken. The first one counts.
    pub(crate) fn fail(&mut self, what: String) {
        self.note("BROKEN", || what.clone());
        self.broken.get_or_insert(what);
    }

    pub(crate) fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(what());
        }
    }

    pub(crate) fn mono(&self) -> Mono {
        Mono::from_nanos(self.now)
    }

    pub(crate) fn at(&mut self, time: u64, ev: Ev) {
        if time < EVER {
            self.tickets += 1;
            self.queue.insert((time.max(self.now), self.tickets), (self.node, ev));
        }
    }

    /// After a delay of the kernel or of a thread.
    pub(crate) fn soon(&mut self, ev: Ev) {
        let (low, high) = self.plan.local;
        let delay = self.rng.micros(low, high);
        self.at(self.now.saturating_add(delay), ev);
    }

    /// Everything that is still to happen happens so much later.
    pub(crate) fn postpone(&mut self, by: u64) {
        let queue = std::mem::take(&mut self.queue);
        self.queue = queue.into_iter().map(|((time, ticket), ev)| ((time.saturating_add(by), ticket), ev)).collect();
    }

    /// Takes back what has not happened yet of this host.
    pub(crate) fn cancel(&mut self, which: impl Fn(&Ev) -> bool) {
        let here = self.node;
        self.queue.retain(|_, (node, ev)| *node != here || !which(ev));
    }

    /// Runs until nothing is left to happen; what is broken, and the log.
    pub(crate) fn run(&mut self) -> Option<String> {
        self.note("plan", String::new);
        if self.log.is_some() {
            let plan = format!("{:#?}\n{:?}", self.plan, self.still);
            self.note("plan", || plan);
        }
        for (time, fault) in self.plan.faults.clone() {
            self.at(time, Ev::Fault(fault));
        }
        for (time, pause) in self.still.pauses() {
            self.at(time, Ev::Pause(pause));
        }
        for (node, site) in (0..).zip(self.plan.sites.clone()) {
            for (time, fault) in site.faults {
                self.on(NodeId::new(node), |world| world.at(time, Ev::Fault(fault)));
            }
        }
        for (list, time) in self.plan.lists.iter().map(|(time, _)| *time).enumerate().collect::<Vec<_>>() {
            self.at(time, Ev::Prints(list));
        }
        for (time, node, number) in self.orders.times(&self.plan.spec.placement) {
            self.on(node, |world| world.at(time, Ev::Asks(number)));
        }
        self.scheduler_begins();
        self.own_host_has_its_time();
        self.drain_job();
        let mut steps = 0;
        while self.broken.is_none() && self.step() {
            steps += 1;
            self.check(steps < STEPS, || "it never comes to rest".to_owned());
            let now = self.now;
            let limit = LIMIT
                + self.still.planned()
                + 4 * self.plan.spec.settings.hosts.lease.nanos() * u64::from(self.several());
            let limit = limit + u64::from(self.plan.spec.settings.restarts.most) * generations::LONGEST;
            let limit = limit + self.slices_take();
            self.check(now < limit, || "it continues long after the last fault".to_owned());
        }
        if self.broken.is_none() {
            self.check_rest();
        }
        self.broken.take()
    }

    pub(crate) fn log(&mut self) -> Vec<String> {
        self.log.take().unwrap_or_default()
    }

    fn step(&mut self) -> bool {
        let event = self.queue.first_key_value().map(|(key, _)| key.0);
        let due = |at: u64| at.saturating_add(self.plan.late).max(self.now);
        let job = self.launcher.deadline().map(|at| due(at.nanos()));
        let node = (0..self.count()).filter_map(|node| Some((due(self.host(node).deadline()?), node))).min();
        let timer = job.into_iter().chain(node.map(|(at, _)| at)).min();
        // A due timer goes first.
        match (timer, event) {
            (None, None) => return false,
            (Some(timer), event) if event.is_none_or(|event| timer <= event) => {
                self.now = timer;
                match node {
                    Some((_, node)) if job != Some(timer) => {
                        self.go(node);
                        self.node_timeout();
                    }
                    Some(_) | None => self.job_timeout(),
                }
            }
            (_, _) => {
                if let Some(((time, _), (node, ev))) = self.queue.pop_first() {
                    self.now = time;
                    self.go(node);
                    self.happen(ev);
                }
            }
        }
        true
    }

    pub(crate) fn happen(&mut self, ev: Ev) {
        let Some(ev) = (if ev.is_agents() { self.agent_holds(ev) } else { self.launcher_holds(ev) }) else { return };
        match ev {
            Ev::AtAgent(frame) => self.frame_at_agent(&frame),
            Ev::AtLauncher(_, frame) => self.frame_at_launcher(&frame),
            Ev::LauncherEdgeEnds => self.launcher_edge_ends(),
            Ev::AgentEdgeEnds => self.agent_edge_ends(),
            Ev::Arrives(arrival) => self.arrive(arrival),
            Ev::Wake => self.wake(),
            Ev::Starts(proc) => self.starts(proc),
            Ev::Sweeps => self.sweeps(),
            Ev::Counts => self.counts(),
            Ev::Closes(proc) => self.closes(proc),
            Ev::Process(pid, life) => self.lives(pid, life),
            Ev::InitDies => self.init_dies(),
            Ev::GuardianWakes => self.guardian_wakes(),
            Ev::GuardianWorks => self.guardian_works(),
            Ev::ToJob(event) => self.notify_job(event),
            Ev::Sink => self.write_sinks(),
            Ev::Fault(fault) => self.fault(fault),
            Ev::Pause(pause) => self.pause(pause),
            Ev::Resume => self.launcher_resumes(),
            Ev::Begins => self.begins(),
            Ev::Up => self.is_up(),
            Ev::Unreached => self.unreached(),
            Ev::Shake(shake) => self.shakes(shake),
            Ev::Step(turn) => self.step_turn(turn),
            Ev::LifelineEnds => self.guardian_severs(),
            Ev::LeaseRuns => self.lease_runs(),
            Ev::Scheduler(sig) => self.scheduler_signals(sig),
            Ev::Prints(list) => {
                let list = self.plan.lists.get(list).map(|(_, list)| list.clone()).unwrap_or_default();
                self.notify_job(JobEvent::Discovered(list));
            }
            Ev::Asks(number) => self.asks(number),
            Ev::AsksEnd(number) => self.asks_end(number),
            Ev::IsWorldOver(number) => self.is_world_over(number),
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.note("fault", || format!("{fault:?}"));
        let absent = !self.host.begun || self.host.gone;
        match fault {
            Fault::HostLost => self.host_is_lost(),
            Fault::EdgeKilled => self.edge_killed(),
            Fault::AgentKilled
            | Fault::AgentAsked
            | Fault::AgentStopped
            | Fault::AgentFrozen
            | Fault::AgentResumes
            | Fault::GuardianKilled
            | Fault::InitKilled
                if absent => {}
            Fault::Signal(sig) => self.notify_job(JobEvent::Signal(sig)),
            Fault::AgentKilled => self.agent_killed(),
            Fault::AgentAsked => self.agent_asked(),
            Fault::AgentStopped => self.agent_stands(false),
            Fault::AgentFrozen => self.agent_stands(true),
            Fault::AgentResumes => self.agent_resumes(),
            Fault::GuardianKilled => self.guardian_killed(),
            Fault::InitKilled => self.init_killed(),
            Fault::LauncherKilled => self.launcher_killed(),
            Fault::ReaderCloses => self.launcher.sinks.reader_closes(),
            Fault::SinkFails => self.launcher.sinks.fails(),
            Fault::SinkBlocks => self.launcher.sinks.block(true),
            Fault::SinkUnblocks => {
                self.launcher.sinks.block(false);
                self.soon(Ev::Sink);
            }
        }
    }

    /// When nothing can happen any more, nothing may be left.
    fn check_rest(&mut self) {
        let over = self.launcher.has_exited();
        self.check(over, || "the job never ends".to_owned());
        for node in 0..self.count() {
            self.go(node);
            self.check_host();
        }
    }

    fn check_host(&mut self) {
        let over = !self.host.begun || self.host.agent.has_exited();
        self.check(over, || "the agent never ends".to_owned());
        let over = !self.host.begun || self.host.guardian.has_exited();
        self.check(over, || "the guardian never ends".to_owned());
        let faults = self.site().map_or(&self.plan.faults, |site| &site.faults);
        let hit = |fault| faults.iter().any(|(_, hit)| *hit == fault);
        // Subreapers promise nothing once both are killed, the second before it could act.
        let both = self.plan.tier == Tier::T3 && hit(Fault::AgentKilled) && hit(Fault::GuardianKilled);
        let left = self.host.kernel.killable();
        let both = both && !self.host.killed;
        self.check(both || left.is_empty(), || format!("these outlive the job: {left:?}"));
    }
}
