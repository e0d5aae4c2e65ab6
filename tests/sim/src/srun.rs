//! The step of srun that brings the agents of a job in a scheduler's step: they dial the launcher, some of them late or twice, and strangers
//! do too. The decisions are those of the real machines, `Admission` and `StepDial`.

use crate::plan::MS;
use crate::rng::Rng;
use crate::site::{Reach, Site};
use crate::world::{Ev, World};
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::{Machine as _, earliest};
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::job::JobEvent;
use rlaunch_plan::bootstrap::admission::PATIENCE;
use rlaunch_plan::bootstrap::{
    Admission, Caller, CarrierEnd, CarrierEvent, Hash, Hello, Preamble, Program, Refusal, Secret, SrunPlan, StepAction,
    StepDial, StepEvent, StepPlan, StepPreamble, Target, Transport,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

const STREAM: u64 = 0x7372_756e_0000_0000;
/// How far a handshake may be from the end of its time so that either side may win.
const CLOSE: u64 = 200 * MS;

/// How the agents of a host dial.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dialling {
    /// How long the agent takes for its handshake after it has connected.
    takes: u64,
    /// Another connection for this host.
    second: Option<Second>,
}

/// Another connection for a host.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// How long after the agent was started.
    after: u64,
    takes: u64,
    knows_key: bool,
}

impl Site {
    /// Whether its agent may be too late, with its connection or with its handshake.
    pub(crate) fn is_late_to_dial(&self) -> bool {
        let Reach::Up(after) = self.reach else { return true };
        let takes = self.dialling.takes;
        takes + CLOSE > PATIENCE.nanos() || after + takes + 2 * self.wire.1 * 1000 + CLOSE > self.deadline
    }
}

/// Draws how the hosts of a step dial.
pub(crate) fn draw(seed: u64, sites: &mut [Site]) {
    let rng = &mut Rng::new(seed ^ STREAM);
    let is_hard = rng.chance(50);
    for site in sites {
        let mut takes = || if rng.chance(80) { rng.micros(0, 50_000) } else { rng.micros(0, 4_000_000) };
        let (first, second) = (takes(), takes());
        let second = Second { after: rng.micros(0, 4_000_000), takes: second, knows_key: rng.chance(70) };
        let is_slow = is_hard && rng.chance(20);
        site.dialling = Dialling {
            takes: if is_slow { first } else { first.min(MS) },
            second: (is_hard && rng.chance(50)).then_some(second),
        };
        if is_hard && rng.chance(5) {
            site.reach = Reach::Up(rng.between(site.deadline - CLOSE, site.deadline + CLOSE));
        }
    }
}

/// A process that dials the launcher as the agent of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agent {
    takes: u64,
    knows_key: bool,
}

/// A step of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shake {
    /// The agent connects.
    Dials(Agent),
    /// Its hello and first message are there.
    Greets(Caller, Agent),
    /// The answer is confirmed.
    Answered(Caller),
}

/// An event of a step that is no handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    /// A time-out.
    Timer,
    /// srun is killed.
    Killed,
    /// srun ends.
    Ends,
}

/// The launcher's side of a step.
pub(crate) struct Srun {
    dial: StepDial,
    /// While a host is waited for.
    admission: Option<Admission>,
    callers: BTreeMap<Caller, NodeId>,
    /// Hosts of which a connection has become the edge.
    admitted: BTreeSet<NodeId>,
    /// How many connections of a host have no outcome, those that will come included.
    open: BTreeMap<NodeId, usize>,
    timer: Option<Mono>,
    /// Frames of agents that have not been answered.
    early: Vec<(NodeId, Vec<u8>)>,
}

fn step() -> StepPreamble {
    StepPreamble { job: rlaunch_base::id::JobId([7; 16]), epoch: 0, port: 1, secret: Secret([9; 32]) }
}

fn name(node: NodeId) -> String {
    format!("node{node}")
}

impl World {
    pub(crate) fn is_in_step(&self) -> bool {
        self.plan.scheduler.is_some()
    }

    /// The launcher opens a step for the hosts that it wants.
    pub(crate) fn opens_step(&mut self) {
        let nodes = std::mem::take(&mut self.wanted);
        if nodes.is_empty() {
            return;
        }
        let once = self.srun.is_none();
        self.check(once, || "a second step is opened".to_owned());
        let target = |node: &NodeId| Target::parse(name(*node).as_bytes(), None).ok().map(|target| (*node, target));
        let hosts: BTreeMap<NodeId, Target> = nodes.iter().filter_map(target).collect();
        let limit = Span::from_nanos(self.plan.sites.first().map_or(0, |site| site.deadline));
        let preamble = |node: &NodeId| Preamble {
            job: step().job,
            node: *node,
            secret: Secret([0; 32]),
            lease: self.plan.spec.settings.hosts.lease,
            len: 0,
            hash: Hash([0; 32]),
        };
        let awaited = hosts.keys().map(|node| (Hash::of(name(*node).as_bytes()), preamble(node)));
        let dials = |node: &NodeId| {
            let second = self.plan.sites.get(node.index()).is_some_and(|site| site.dialling.second.is_some());
            (*node, 1 + usize::from(second))
        };
        self.srun = Some(Srun {
            admission: Some(Admission::new(&step(), awaited.collect())),
            callers: BTreeMap::new(),
            admitted: BTreeSet::new(),
            open: hosts.keys().map(dials).collect(),
            timer: None,
            early: vec![],
            dial: StepDial::new(StepPlan {
                hosts,
                srun: SrunPlan { transport: Transport::Tcp, ..SrunPlan::default() },
                program: Program::Binary { path: "/rlaunch".into(), ends: Hash([0; 32]) },
                preamble: step(),
                limit,
            }),
        });
        self.notify_step(StepEvent::Start);
        self.notify_step(StepEvent::Listening(1, None));
    }

    /// The agent of this host is started, and dials the launcher.
    pub(crate) fn dials(&mut self) {
        let Some(Dialling { takes, second }) = self.site().map(|site| site.dialling) else { return };
        self.travel_out(Ev::Shake(Shake::Dials(Agent { takes, knows_key: true })));
        if let Some(Second { after, takes, knows_key }) = second {
            // The second connection has an order of its own.
            let (low, _) = self.site().map_or((0, 0), |site| site.wire);
            self.at(self.now + low * 1000 + after, Ev::Shake(Shake::Dials(Agent { takes, knows_key })));
        }
    }

    /// A host that the launcher has given up dials all the same, while other hosts are waited for.
    pub(crate) fn dials_after_all(&mut self, given_up: u64) {
        let Some(Dialling { takes, second: Some(Second { after, .. }) }) = self.site().map(|site| site.dialling) else {
            return;
        };
        self.at(self.now + given_up + after, Ev::Shake(Shake::Dials(Agent { takes, knows_key: true })));
    }

    pub(crate) fn shakes(&mut self, shake: Shake) {
        if self.launcher.has_exited() {
            return;
        }
        self.note("step", || format!("{shake:?}"));
        let (node, now) = (self.id(), self.mono());
        let Some(srun) = &mut self.srun else { return self.fail("no step is open".to_owned()) };
        let Some(admission) = &mut srun.admission else { return self.is_refused(node, None, Refusal::Ended) };
        match shake {
            Shake::Dials(agent) => {
                let address = IpAddr::V4(Ipv4Addr::from(node.get()));
                let caller = admission.accept(now, address);
                srun.callers.insert(caller, node);
                self.at(self.now + agent.takes, Ev::Shake(Shake::Greets(caller, agent)));
                self.step_turns();
            }
            // The connection was closed before.
            Shake::Greets(caller, _) | Shake::Answered(caller) if !srun.callers.contains_key(&caller) => {}
            Shake::Greets(caller, agent) => {
                let hello = Hello { job: step().job, epoch: step().epoch, host: Hash::of(name(node).as_bytes()) };
                let greeted = admission.greet(caller, &hello.to_bytes()).and_then(|()| admission.keys(caller));
                match greeted {
                    Ok(_) if !agent.knows_key => self.is_refused(node, Some(caller), Refusal::WrongKey),
                    Ok((_, preamble)) => {
                        admission.answer(now, caller);
                        self.check(preamble.node == node, || format!("{} is sent to {node}", preamble.node));
                        // Another one may shake hands before the agent has confirmed.
                        let wait = self.now % 3 * 100_000;
                        self.at(self.now + wait, Ev::Shake(Shake::Answered(caller)));
                    }
                    Err(why) => self.is_refused(node, Some(caller), why),
                }
            }
            Shake::Answered(caller) => match admission.admit(caller) {
                Ok(admitted) => self.is_admitted(node, caller, admitted),
                Err(why) => self.is_refused(node, Some(caller), why),
            },
        }
    }

    /// A connection has become the edge of a host: no other one has, or will.
    fn is_admitted(&mut self, node: NodeId, caller: Caller, admitted: NodeId) {
        let Some(srun) = &mut self.srun else { return };
        srun.callers.remove(&caller);
        let once = srun.admitted.insert(node);
        let still = srun.admission.as_ref().is_some_and(|admission| admission.has_secret() == admission.is_waiting());
        if let Some(open) = srun.open.get_mut(&node) {
            *open = open.saturating_sub(1);
        }
        self.check(once, || format!("a second agent of node{node} is admitted"));
        self.check(admitted == node, || format!("node{node} is admitted as node{admitted}"));
        self.check(still, || "the secret is kept after the last agent, or gone before".to_owned());
        let facts = rlaunch_plan::bootstrap::AgentFacts { pid: 1, wall: 0 };
        self.notify_step(StepEvent::Connected(node, facts));
    }

    /// A connection is closed. An agent without an edge ends.
    fn is_refused(&mut self, node: NodeId, caller: Option<Caller>, why: Refusal) {
        self.note("step", || format!("refuses {caller:?}: {why:?}"));
        let Some(srun) = &mut self.srun else { return };
        if let (Some(caller), Some(admission)) = (caller, &mut srun.admission) {
            admission.refuse(caller, why);
            srun.callers.remove(&caller);
        }
        let left = srun.open.entry(node).or_insert(1);
        *left = left.saturating_sub(1);
        if *left == 0 && !srun.admitted.contains(&node) {
            self.on(node, Self::close_to_agent);
        }
    }

    /// Keeps a frame of an agent until it has been answered.
    pub(crate) fn step_keeps(&mut self, frame: &[u8]) -> bool {
        let (node, keeps) = (self.id(), !self.host.link.is_live());
        let Some(srun) = self.srun.as_mut().filter(|_| keeps) else { return false };
        srun.early.push((node, frame.to_vec()));
        true
    }

    /// Delivers the frames of this host that were kept.
    pub(crate) fn step_delivers(&mut self) {
        let node = self.id();
        let Some(srun) = &mut self.srun else { return };
        for (_, frame) in srun.early.extract_if(.., |(of, _)| *of == node).collect::<Vec<_>>() {
            self.frame_at_launcher(&frame);
        }
    }

    /// The connections of a host have ended.
    pub(crate) fn shakes_end(&mut self) {
        let node = self.id();
        let Some(srun) = self.srun.as_ref() else { return };
        let of_host = srun.callers.iter().filter(|(_, of)| **of == node).map(|(caller, _)| *caller);
        for caller in of_host.collect::<Vec<_>>() {
            self.is_refused(node, Some(caller), Refusal::Ended);
        }
        self.cancel(|ev| matches!(ev, Ev::Shake(_)));
    }

    pub(crate) fn step_turn(&mut self, turn: Turn) {
        if self.launcher.has_exited() {
            return;
        }
        let now = self.mono();
        match turn {
            Turn::Timer => {
                let Some(srun) = &mut self.srun else { return };
                srun.timer = None;
                let expired = srun.admission.as_ref().map(|admission| admission.expired(now)).unwrap_or_default();
                for caller in expired {
                    let node = self.srun.as_ref().and_then(|srun| srun.callers.get(&caller).copied());
                    self.is_refused(node.unwrap_or(NodeId::ROOT), Some(caller), Refusal::Silent);
                }
                if let Some(srun) = &mut self.srun {
                    srun.dial.handle_timeout(now);
                }
                self.step_acts();
            }
            // Hosts that are waited for would fail with it.
            Turn::Killed if self.srun.as_ref().is_some_and(|srun| srun.dial.is_waiting()) => {}
            Turn::Killed => self.notify_step(StepEvent::Ended(CarrierEnd::Signal(9))),
            // Its tasks were killed.
            Turn::Ends => self.notify_step(StepEvent::Ended(CarrierEnd::Code(137))),
        }
    }

    /// Hosts are not waited for while the launcher is suspended.
    pub(crate) fn step_stood_still(&mut self, long: u64) {
        if let Some(srun) = &mut self.srun {
            srun.dial.exclude_suspension(Span::from_nanos(long));
        }
        self.step_turns();
    }

    pub(crate) fn notify_step(&mut self, event: StepEvent) {
        let now = self.mono();
        if let Some(srun) = &mut self.srun {
            srun.dial.handle(now, event);
        }
        self.step_acts();
    }

    fn step_acts(&mut self) {
        while let Some(action) = self.srun.as_mut().and_then(|srun| srun.dial.poll_action()) {
            match action {
                StepAction::Start(_) | StepAction::Write(_) | StepAction::Stage(..) => {}
                StepAction::Kill { .. } => self.at(self.now + MS, Ev::Step(Turn::Ends)),
                StepAction::News(news) => self.notify_job(JobEvent::Carrier(CarrierEvent::News(news))),
                StepAction::Up(node, up) => self.on(node, |world| world.is_up_by(up.by)),
                StepAction::Failed(node, _) => self.on(node, Self::unreached),
                StepAction::WithShell(node, _) | StepAction::FallBack(node, ..) => {
                    self.fail(format!("node{node} is reached in another way"));
                }
            }
        }
        self.step_closes();
        self.step_turns();
    }

    /// The port is closed when no host is waited for, and with it all connections that have not shaken hands.
    fn step_closes(&mut self) {
        let Some(srun) = self.srun.as_mut().filter(|srun| !srun.dial.is_waiting()) else { return };
        if srun.admission.take().is_some() {
            let callers = std::mem::take(&mut srun.callers);
            callers.into_values().for_each(|node| self.is_refused(node, None, Refusal::Ended));
        }
    }

    /// Sets the next timer.
    fn step_turns(&mut self) {
        let Some(srun) = &mut self.srun else { return };
        let admission = srun.admission.as_ref().and_then(Admission::deadline);
        let next = earliest(srun.dial.poll_timeout(), admission);
        if let Some(at) = next.filter(|at| srun.timer.is_none_or(|timer| *at < timer)) {
            srun.timer = Some(at);
            self.at(at.nanos(), Ev::Step(Turn::Timer));
        }
    }
}
