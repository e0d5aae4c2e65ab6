//! Functions that are begun again in the same processes: the job machine, node machines and simulated clients, with everything that can
//! go wrong with ranks and hosts at any step.
//!
//! Promised is: no process begins a round while another is still in the function of an earlier one, wherever it is; all of a round
//! agree on who is in it and where it meets; no process that has registered is left out; no two generations run at once; the job ends,
//! and by the right cause.

mod check;
mod client;
mod host;
mod plan;
mod twins;

use crate::plan::MS;
use crate::rng::Rng;
use check::Truth;
use client::{Act, Client};
use host::{Host, id};
use plan::{Fault, Plan};
use rlaunch_base::exit::Ending;
use rlaunch_base::id::ProcId;
use rlaunch_base::machine::Machine as _;
use rlaunch_base::time::{Mono, WallNs};
use rlaunch_base::warnings::WarningSource;
use rlaunch_core::events::CloseReason;
use rlaunch_core::job::{Job, JobAction, JobEvent, Setting};
use rlaunch_core::node::NodeEvent;
use rlaunch_plan::bootstrap::HostFailure;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::wire::codec;
use rlaunch_protocol::wire::frozen::client::client_round::AgentMessage;
use rlaunch_protocol::wire::to_node::ToNode;
use std::collections::BTreeMap;
use std::sync::Arc;
use twins::Twins;

/// Past this moment nothing may be continuing.
const LIMIT: u64 = 600_000 * MS;
const STEPS: u32 = 300_000;

#[derive(Debug)]
enum Ev {
    ToJob(usize, Box<JobEvent>),
    ToNode(usize, Box<ToNode>),
    Node(usize, Box<NodeEvent>),
    Message(ProcId, Box<AgentMessage>),
    Client(ProcId, u32, Act),
    /// A host was reached.
    Begins(usize),
    LeaseEnds(usize),
    Fault(Fault),
}

struct World {
    now: u64,
    rng: Rng,
    plan: Plan,
    job: Job,
    finished: Option<Ending>,
    hosts: Vec<Host>,
    procs: BTreeMap<ProcId, Client>,
    sessions: u32,
    /// The placement that the launcher assumes.
    members: Arc<Placement>,
    /// Generation whose ranks are started.
    generation: u32,
    /// Times of the last event for each host, and of the last message to each process.
    queued: BTreeMap<usize, u64>,
    messages_until: BTreeMap<ProcId, u64>,
    queue: BTreeMap<(u64, u64), Ev>,
    tickets: u64,
    truth: Truth,
    twins: Twins,
    log: Option<Vec<String>>,
    broken: Option<String>,
}

/// The broken promise, and the log, if it is kept.
pub(crate) fn attempt(seed: u64, logged: bool) -> Option<(String, Vec<String>)> {
    let (rng, plan) = plan::plan(seed);
    let mut world = World::new(rng, plan, logged);
    world.run();
    let log = world.log.take().unwrap_or_default();
    world.broken.take().map(|what| (what, log))
}

impl World {
    fn new(rng: Rng, plan: Plan, logged: bool) -> Self {
        let setting = Setting { version: "0".into(), host: "sim".into(), ..Setting::default() };
        let host = |node: &rlaunch_plan::place::Node| Host { local: node.local, begun: node.local, ..Host::default() };
        let hosts = plan.spec.placement.nodes.iter().map(host).collect();
        Self {
            now: 0,
            rng,
            job: Job::new(Mono::from_nanos(0), WallNs(0), &Arc::new(plan.spec.clone()), &setting),
            members: Arc::new(plan.spec.placement.clone()),
            plan,
            finished: None,
            hosts,
            procs: BTreeMap::new(),
            sessions: 0,
            generation: 0,
            queued: BTreeMap::new(),
            messages_until: BTreeMap::new(),
            queue: BTreeMap::new(),
            tickets: 0,
            truth: Truth::default(),
            twins: Twins::default(),
            log: logged.then(Vec::new),
            broken: None,
        }
    }

    fn note(&mut self, who: &str, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>9}.{:03} ms  {who:<9} {}", self.now / MS, self.now % MS / 1000, what()));
        }
    }

    fn fail(&mut self, what: String) {
        self.note("BROKEN", || what.clone());
        self.broken.get_or_insert(what);
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(what());
        }
    }

    fn mono(&self) -> Mono {
        Mono::from_nanos(self.now)
    }

    fn at(&mut self, time: u64, ev: Ev) {
        self.tickets += 1;
        self.queue.insert((time.max(self.now), self.tickets), ev);
    }

    fn run(&mut self) {
        if self.log.is_some() {
            let plan = format!("{:#?}", self.plan);
            self.note("plan", || plan);
        }
        for (time, fault) in self.plan.faults.clone() {
            self.at(time, Ev::Fault(fault));
        }
        self.drain_job();
        let mut steps = 0;
        while self.broken.is_none() && self.step() {
            steps += 1;
            let now = self.now;
            self.check(steps < STEPS && now < LIMIT, || "it never comes to rest".to_owned());
        }
        if self.broken.is_none() {
            match self.finished {
                Some(ending) => self.check_end(ending),
                None => self.fail("nothing happens any more, and the job has not ended".to_owned()),
            }
        }
    }

    fn step(&mut self) -> bool {
        let due = |at: Mono| at.nanos().max(self.now);
        let job = if self.finished.is_some() { None } else { self.job.poll_timeout().map(due) };
        let node = |(host, one): (usize, &Host)| {
            let live = one.begun && !one.gone;
            one.node.poll_timeout().filter(|_| live).map(|at| (due(at), host))
        };
        let node = self.hosts.iter().enumerate().filter_map(node).min();
        let event = self.queue.first_key_value().map(|(key, _)| key.0);
        let timer = job.into_iter().chain(node.map(|(at, _)| at)).min();
        match (timer, event) {
            (None, None) => return false,
            (Some(timer), event) if event.is_none_or(|event| timer <= event) => {
                self.now = timer;
                match node {
                    Some((at, host)) if job.is_none_or(|job| at <= job) => self.node_timeout(host),
                    Some(_) | None => {
                        self.job.handle_timeout(self.mono());
                        self.drain_job();
                    }
                }
            }
            (_, _) => {
                if let Some(((time, _), ev)) = self.queue.pop_first() {
                    self.now = time;
                    self.happen(ev);
                }
            }
        }
        true
    }

    fn happen(&mut self, ev: Ev) {
        match ev {
            Ev::ToJob(host, event) => {
                // An edge that the launcher has let go of says nothing.
                if !self.hosts[host].closed {
                    self.hosts[host].closed = matches!(*event, JobEvent::EdgeClosed { .. });
                    self.notify_job(*event);
                }
            }
            Ev::ToNode(host, msg) => {
                if !self.hosts[host].cut {
                    self.node(host, NodeEvent::FromRoot(*msg));
                }
            }
            Ev::Node(host, event) => self.node(host, *event),
            Ev::Message(proc, message) => self.on_message(proc, *message),
            Ev::Client(proc, turn, act) => self.acts(proc, turn, act),
            Ev::Begins(host) => {
                if self.hosts[host].gone || self.hosts[host].cut {
                    self.notify_job(JobEvent::HostFailed { node: id(host), why: HostFailure::default() });
                } else {
                    self.hosts[host].begun = true;
                    self.up(host, JobEvent::EdgeUp { node: id(host) });
                }
            }
            Ev::LeaseEnds(host) => self.lease_ends(host),
            Ev::Fault(fault) => self.fault(fault),
        }
    }

    fn fault(&mut self, fault: Fault) {
        if self.finished.is_some() {
            return;
        }
        self.note("fault", || format!("{fault:?}"));
        self.truth.host_lost |= !matches!(fault, Fault::Signal(_) | Fault::Warned(_));
        match fault {
            Fault::Power(host) => self.power_fails(host),
            Fault::Cut(host) => self.hosts[host].cut = true,
            Fault::Edge(host) => {
                if self.hosts[host].begun && !self.hosts[host].gone {
                    let node = id(host);
                    self.up(host, JobEvent::EdgeClosed { node, why: CloseReason::Eof });
                    self.hosts[host].cut = true;
                    self.edge_lost(host);
                }
            }
            Fault::Guardian(host) => self.node(host, NodeEvent::GuardianLost),
            Fault::Warned(host) => self.node(host, NodeEvent::Warned(WarningSource::Preempted)),
            Fault::Signal(sig) => {
                self.truth.interrupted = true;
                self.notify_job(JobEvent::Signal(sig));
            }
        }
    }

    /// An agent reads the end of its edge.
    fn edge_lost(&mut self, host: usize) {
        if !std::mem::replace(&mut self.hosts[host].is_notified, true) {
            self.soon(host, NodeEvent::EdgeLost);
        }
    }

    fn notify_job(&mut self, event: JobEvent) {
        if self.finished.is_some() {
            return;
        }
        self.note("> job", || format!("{event:?}").chars().take(300).collect());
        self.job.handle(self.mono(), event);
        self.drain_job();
    }

    fn drain_job(&mut self) {
        let records = self.job.check();
        self.check(records.is_ok(), || format!("the job's records do not agree: {records:?}"));
        while let Some(action) = self.job.poll_action() {
            let over = self.finished.is_some();
            self.check(!over, || format!("after Finish: {action:?}"));
            match action {
                JobAction::Connect { node } => {
                    let after = self.rng.micros(1000, 100_000);
                    self.at(self.now + after, Ev::Begins(node.index()));
                }
                JobAction::GiveUp { node } => {
                    let host = &mut self.hosts[node.index()];
                    (host.cut, host.gone) = (true, true);
                    let failed = JobEvent::HostFailed { node, why: HostFailure::default() };
                    self.at(self.now, Ev::ToJob(node.index(), Box::new(failed)));
                }
                JobAction::Send { node, msg } => self.send(node.index(), &msg),
                JobAction::Beat { node, beat } => {
                    if !self.hosts[node.index()].cut {
                        self.soon(node.index(), NodeEvent::Beat(beat));
                    }
                }
                JobAction::Sever { node } | JobAction::CloseEdge { node } => {
                    self.hosts[node.index()].closed |= matches!(action, JobAction::CloseEdge { .. });
                    if !self.hosts[node.index()].cut {
                        self.edge_lost(node.index());
                    }
                }
                JobAction::Emit(record) => {
                    self.note("< job", || format!("{:?}", record.what).chars().take(300).collect());
                    self.logged(record.generation, record.what);
                }
                JobAction::DrainOutput => {
                    let drained = JobEvent::OutputDrained { lost: 0, broken: 0 };
                    self.notify_job(drained);
                }
                JobAction::Finish(ending) => self.finished = Some(ending),
                JobAction::Place(placement) => self.members = placement,
                JobAction::WakeAgent { .. } | JobAction::Home { .. } | JobAction::AbandonOutput => {}
                JobAction::Homeless { .. } | JobAction::Ended { .. } | JobAction::Know { .. } => {}
            }
        }
    }

    fn send(&mut self, host: usize, msg: &ToNode) {
        self.note("< job", || format!("to {host}: {msg:?}").chars().take(300).collect());
        if let ToNode::Again(rendezvous) = msg {
            self.generation = rendezvous.restart;
        }
        self.brings_twin(msg);
        let one = &self.hosts[host];
        if one.cut || one.gone || one.closed {
            return;
        }
        let Some(msg) = codec::decode(&codec::encode(msg)).ok() else {
            return self.fail("a message cannot be read".to_owned());
        };
        let (low, high) = if one.local { (1, 20) } else { (self.plan.wire / 4, self.plan.wire) };
        let down = one.down;
        let at = (self.now + self.rng.micros(low, high)).max(down);
        self.hosts[host].down = at;
        self.at(at, Ev::ToNode(host, Box::new(msg)));
    }
}
