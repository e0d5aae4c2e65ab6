//! The agent: drives the node machine and answers its actions as the real edges would, after a while.

mod ends;
mod knowledge;

use crate::kernel::Init;
use crate::link;
use crate::plan::Sight;
use crate::world::{Ev, World};
use rlaunch_base::id::{AppIndex, ProcId, StreamId, WorldId};
use rlaunch_base::machine::Machine;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Mono;
use rlaunch_core::node::{
    DeviceAction, DevicesFreed, ExamineAction, ExecSpec, LeaseAction, Node, NodeAction, NodeEvent, ProbeAction,
    Sandbox, SessionAction, StoreAction, TcpStoreAction, TcpStorePlan,
};
use rlaunch_protocol::guard::devices::DeviceStep;
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::frame::Lane;
use rlaunch_protocol::wire::to_node::{PortPlan, Start, ToNode};
use rlaunch_protocol::wire::to_root::{Facts, Found, Hello, SpawnError, SpawnStep, ToRoot, Usage};
use std::collections::{BTreeMap, BTreeSet};

/// An event for the agent.
#[derive(Debug)]
pub(crate) enum Arrival {
    Event(Box<NodeEvent>),
    /// The end of a rank, and its true time.
    Ended {
        proc: ProcId,
        status: Status,
        died: u64,
    },
}

#[derive(Default)]
pub(crate) struct Agent {
    node: Node,
    /// The agent is gone; with its exit code, if it ended by itself.
    over: Option<Option<u8>>,
    stands: Stands,
    /// Events that it would have handled meanwhile.
    held: Vec<Ev>,
    inbox: Vec<Arrival>,
    wakes: bool,
    last_wake: u64,
    spawn_free: u64,
    in_flight: u32,
    swept_at: Option<u64>,
    /// The place of its store.
    pub(crate) served: Option<(OsBytes, u16)>,
    /// Whether it tries to reach rank 0's host, or waits for others that do.
    pub(crate) probes: bool,
    /// Whether it has waited for them.
    pub(crate) listened: bool,
    /// The spawn thread starts nothing more.
    withhold: bool,
    spawned: BTreeSet<ProcId>,
    /// Ranks without which the others continue.
    unneeded: BTreeSet<ProcId>,
    /// How often the sandbox was set up anew.
    renewed: u32,
    reaped: BTreeSet<ProcId>,
    examined: BTreeSet<ProcId>,
    /// Looks whose answer is still to come.
    looking: BTreeSet<ProcId>,
    /// Ranks that the machine knows to run, and when they were started.
    running: BTreeMap<ProcId, Mono>,
    ended: BTreeSet<ProcId>,
    /// Processes that were sent a signal to end.
    asked: BTreeSet<ProcId>,
    /// The machine knows that the end has begun, and did before this burst.
    ending: bool,
    /// … that of this generation.
    clearing: bool,
    /// … and that a start has failed: nothing is started after.
    failed: bool,
    was_ending: bool,
    /// When the order came to end because the scheduler ends the job.
    scheduler_ends: Option<u64>,
    /// … and not because a start failed: then it is for the launcher to say so.
    must_ask: bool,
    sweeping: bool,
    /// … which ends init.
    init_swept: bool,
    edge_lost: bool,
    /// Whether the machine knows that its messages do not arrive.
    mute: bool,
    /// … and did before this burst.
    was_mute: bool,
    /// Whether it has reported that its ranks can be started.
    pub(crate) ready: bool,
    /// Whether processes hold its devices that have to be ended before ranks are started.
    pub(crate) holders: bool,
    /// How often that was looked at.
    looks: u64,
    /// Its report of remaining processes.
    done: Option<u32>,
    granted: u64,
    used: u64,
    /// Streams that have not ended.
    streams: BTreeMap<(ProcId, usize), Stream>,
}

/// The kind of a suspension.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
enum Stands {
    /// Not suspended.
    #[default]
    No,
    /// The agent was stopped: it continues on a wake-up.
    Stopped,
    /// The agent does not react to that.
    Frozen,
}

#[derive(Default)]
struct Stream {
    buffered: u64,
    total: u64,
    closing: bool,
}

/// The MASTER_PORT that a host chooses.
pub(crate) fn port_of(node: usize) -> u16 {
    20_000 + u16::try_from(node).unwrap_or(0)
}

impl Agent {
    pub(crate) fn has_exited(&self) -> bool {
        self.over.is_some()
    }

    pub(crate) fn exit_code(&self) -> Option<u8> {
        self.over.flatten()
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        if self.has_exited() || self.is_suspended() { None } else { self.node.poll_timeout() }
    }

    /// Its host is gone.
    pub(crate) fn vanish(&mut self) {
        self.over = Some(None);
    }

    /// Its spawn thread is so much later.
    pub(crate) fn postpone(&mut self, by: u64) {
        self.spawn_free += by;
    }

    /// The process that was asked for last.
    pub(crate) fn last_spawned(&self) -> Option<ProcId> {
        self.spawned.last().copied()
    }

    /// No stream is open.
    pub(crate) fn is_drained(&self) -> bool {
        self.streams.is_empty() && self.in_flight == 0
    }

    /// How often it was made ready for other ranks.
    pub(crate) fn renewals(&self) -> u32 {
        self.renewed
    }

    /// Makes ready for other ranks; how often by now.
    pub(crate) fn renew(&mut self) -> u32 {
        (self.withhold, self.init_swept, self.served) = (false, false, None);
        self.renewed += 1;
        self.renewed
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.stands != Stands::No
    }
}

impl World {
    /// Suspends the agent until it continues.
    pub(crate) fn agent_stands(&mut self, frozen: bool) {
        if !self.host.agent.has_exited() {
            self.host.agent.stands = if frozen { Stands::Frozen } else { Stands::Stopped };
        }
    }

    /// Keeps the agent's next event, if it is suspended.
    pub(crate) fn agent_holds(&mut self, ev: Ev) -> Option<Ev> {
        if self.host.agent.has_exited() || !self.host.agent.is_suspended() {
            return Some(ev);
        }
        self.host.agent.held.push(ev);
        None
    }

    /// SIGCONT from the launcher: soon, or at once.
    pub(crate) fn agent_roused(&mut self) {
        if self.host.agent.stands == Stands::Stopped {
            self.agent_resumes();
        }
    }

    pub(crate) fn agent_resumes(&mut self) {
        self.host.agent.stands = Stands::No;
        for ev in std::mem::take(&mut self.host.agent.held) {
            self.at(self.now, ev);
        }
        self.pump(None);
    }

    pub(crate) fn frame_at_agent(&mut self, frame: &[u8]) {
        let Some((header, body)) = self.open(frame) else { return };
        match header.lane {
            Lane::Control => {
                if let Some(message) = self.decode::<ToNode>(body) {
                    self.arrive(Arrival::Event(Box::new(NodeEvent::FromRoot(message))));
                }
            }
            Lane::Credit => {
                let up_to = body.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                self.host.agent.granted = self.host.agent.granted.max(up_to);
                self.pump(None);
            }
            Lane::Beat if self.host.remote => match Beat::parse(body) {
                Some(beat) => self.arrive(Arrival::Event(Box::new(NodeEvent::Beat(beat)))),
                None => self.fail("a beat is refused".to_owned()),
            },
            Lane::Store | Lane::Data | Lane::Beat => self.fail(format!("a {:?} frame to the agent", header.lane)),
        }
    }

    pub(crate) fn agent_edge_ends(&mut self) {
        self.host.agent.edge_lost = true;
        self.arrive(Arrival::Event(Box::new(NodeEvent::EdgeLost)));
        self.pump(None);
    }

    pub(crate) fn arrive(&mut self, arrival: Arrival) {
        if self.host.agent.has_exited() {
            return;
        }
        self.host.agent.inbox.push(arrival);
        if !self.host.agent.wakes {
            self.host.agent.wakes = true;
            if self.plan.sight == Sight::Exact {
                self.at(self.now, Ev::Wake);
            } else {
                self.soon(Ev::Wake);
            }
        }
    }

    /// A burst: everything that was learned since the last time.
    pub(crate) fn wake(&mut self) {
        self.host.agent.wakes = false;
        let inbox = std::mem::take(&mut self.host.agent.inbox);
        if self.host.agent.has_exited() {
            return;
        }
        let here = self.here();
        let early = self.host.agent.deadline().is_none_or(|at| at > here);
        if early && self.rng.chance(10) {
            self.host.agent.node.handle_timeout(here);
            let idle = self.host.agent.node.poll_action().is_none();
            self.check(idle, || "the node acts on a time-out that is not due".to_owned());
        }
        let agent = &mut self.host.agent;
        agent.was_ending = agent.ending || agent.clearing || agent.failed || agent.scheduler_ends.is_some();
        self.host.agent.was_mute = self.host.agent.mute;
        for arrival in inbox {
            let event = self.event_of(arrival);
            self.note("> node", || format!("{event:?}"));
            self.learns(&event);
            self.host.agent.node.handle(here, event);
        }
        self.host.agent.last_wake = self.now;
        self.drain_node();
    }

    fn event_of(&self, arrival: Arrival) -> NodeEvent {
        match arrival {
            Arrival::Event(event) => *event,
            Arrival::Ended { proc, status, died } => {
                let started = self.host.agent.running.get(&proc).copied().unwrap_or_default();
                let clock = self.host.clock;
                let (at, alive_at) = match self.plan.sight {
                    Sight::Exact => (clock.reads(died), clock.reads(died)),
                    Sight::Bursts => (self.here(), clock.reads(self.host.agent.last_wake)),
                    Sight::Poor => (self.here(), started),
                };
                NodeEvent::Exited { proc, status, at, alive_at, usage: Usage::default() }
            }
        }
    }

    pub(crate) fn node_timeout(&mut self) {
        self.note("> node", || "time-out".to_owned());
        self.host.agent.node.handle_timeout(self.here());
        self.drain_node();
    }

    fn drain_node(&mut self) {
        self.check_node();
        while let Some(action) = self.host.agent.node.poll_action() {
            self.note("< node", || brief(&action));
            let over = self.host.agent.has_exited();
            self.check(!over, || format!("after Finish: {action:?}"));
            self.perform(action);
        }
        // The scheduler itself may have signalled some of them before the order came to end for it, or to clear: they get a signal once.
        let agent = &self.host.agent;
        let by_scheduler = agent.scheduler_ends.is_some() || agent.clearing && self.plan.scheduler.is_some();
        let is_asked = |proc: &ProcId| {
            self.host.agent.asked.contains(proc) || by_scheduler && self.host.kernel.got(*proc, Signal::TERM) > 0
        };
        let unasked = self.host.agent.running.keys().find(|proc| !is_asked(proc)).copied();
        if let Some(proc) = unasked.filter(|_| self.host.agent.must_ask) {
            self.fail(format!("{proc} runs on and was not asked to end"));
        }
    }

    fn perform(&mut self, action: NodeAction) {
        match action {
            NodeAction::SetUpSandbox(start) => self.set_up_sandbox(&start),
            NodeAction::Spawn { proc, exec } => self.spawns(proc, &exec),
            NodeAction::Renew { port } => self.renews(port == PortPlan::Choose),
            NodeAction::Store(StoreAction::Open { number, .. }) => self.makes_space(number),
            NodeAction::TcpStores(TcpStoreAction::Open(TcpStorePlan { addr, port, guard: _, ranks: _ })) => {
                self.serves(addr, port)
            }
            NodeAction::WatchPreemption { .. }
            | NodeAction::Devices(DeviceAction::Examine { .. })
            | NodeAction::Sessions(SessionAction::End { .. }) => {}
            NodeAction::Devices(DeviceAction::Free { step, .. }) => self.frees(step),
            NodeAction::Devices(DeviceAction::AwaitRelease { .. })
            | NodeAction::TcpStores(TcpStoreAction::ReservePort { .. }) => {}
            NodeAction::TcpStores(TcpStoreAction::ReserveWorldPort { world }) => self.reserves(world),
            NodeAction::Store(StoreAction::OrderDone { asker, reply }) => self.answered(asker, &reply),
            NodeAction::KillSessions { procs } => self.kills_sessions(procs),
            NodeAction::OpenWorld(_) | NodeAction::CloseWorld { .. } => {}
            NodeAction::Sessions(SessionAction::Send { .. })
            | NodeAction::Mark { .. }
            | NodeAction::TcpStores(TcpStoreAction::UsePort(_))
            | NodeAction::TcpStores(TcpStoreAction::Close)
            | NodeAction::MeasureRanks
            | NodeAction::NameLeft
            | NodeAction::ServeMpi(_) => {}
            NodeAction::Probes(ProbeAction::Call(place)) => self.probes(&place),
            NodeAction::Probes(ProbeAction::End) => self.probes_end(),
            NodeAction::Withhold => self.host.agent.withhold = true,
            NodeAction::Signal { proc, sig } => self.signals(proc, sig),
            NodeAction::Examine(ExamineAction { proc, status, depth: _ }) => {
                let zombie = self.host.kernel.is_zombie(proc) && self.host.agent.examined.insert(proc);
                self.host.agent.looking.insert(proc);
                self.check(zombie && !status.is_success(), || format!("{proc} cannot be examined"));
                self.examines(proc);
            }
            NodeAction::Reap { proc } => self.reaps(proc),
            NodeAction::CloseStreams { proc } => self.soon(Ev::Closes(proc)),
            NodeAction::Sweep => {
                self.check_linger();
                let one = !std::mem::replace(&mut self.host.agent.sweeping, true);
                self.check(one, || "a second sweep at once".to_owned());
                self.soon(Ev::Sweeps);
            }
            NodeAction::Check { app, .. } if self.several() || self.host.agent.holders => self.looks_for(app),
            NodeAction::Beat(beat) if self.host.remote => {
                if !self.host.agent.edge_lost {
                    self.send_to_launcher(link::beat(beat));
                }
            }
            NodeAction::Lease(LeaseAction::Until(until)) if self.host.remote => self.guardian_leased(until),
            // The guardian waits for the lease here.
            NodeAction::Lease(LeaseAction::Spare(_) | LeaseAction::HoldAfterCut(_)) => {}
            NodeAction::Check { .. } | NodeAction::Beat(_) | NodeAction::Lease(LeaseAction::Until(_)) => {
                self.fail(format!("{action:?}"))
            }
            NodeAction::ToRoot(message) => self.say(&message),
            NodeAction::Finish(code) => self.agent_finishes(code),
        }
    }

    fn spawns(&mut self, proc: ProcId, exec: &ExecSpec) {
        self.check_ready();
        self.check_placement(proc, exec);
        let new = self.host.agent.spawned.insert(proc) && exec.delta.proc == proc;
        self.check(new, || format!("{proc} is started twice"));
        let late = self.host.agent.was_ending;
        self.check(!late, || format!("{proc} is started after the end began"));
        self.host.agent.in_flight += 1;
        if exec.is_respawn {
            self.host.agent.unneeded.insert(proc);
        }
        let bounded = self.host.agent.in_flight <= 256;
        self.check(bounded, || "the spawn port overflows".to_owned());
        let (low, high) = self.plan.local;
        self.host.agent.spawn_free = self.now.max(self.host.agent.spawn_free) + self.rng.micros(low, high);
        self.at(self.host.agent.spawn_free, Ev::Starts(proc));
    }

    fn reserves(&mut self, world: WorldId) {
        let port = port_of(self.node).saturating_add(u16::try_from(world.get()).unwrap_or(0));
        self.soon(Ev::Arrives(Arrival::Event(Box::new(NodeEvent::WorldReserved { world, port }))));
    }

    fn signals(&mut self, proc: ProcId, sig: Signal) {
        let unreaped = self.host.kernel.is_unreaped(proc);
        self.check(unreaped, || format!("{sig} for {proc}, whose number may belong to another process by now"));
        self.check_scheduler_order(proc, sig);
        if sig != Signal::USR1 && sig != Signal::USR2 {
            self.host.kernel.ended_by_us.get_or_insert(self.now);
            self.host.agent.asked.insert(proc);
        }
        self.signal_group(proc, sig);
    }

    fn reaps(&mut self, proc: ProcId) {
        let looked = !self.host.agent.looking.contains(&proc);
        let once = looked && self.host.kernel.is_zombie(proc) && self.host.agent.reaped.insert(proc);
        self.check(once, || format!("{proc} cannot be reaped"));
        self.host.kernel.reap(proc);
    }

    fn examines(&mut self, proc: ProcId) {
        let error_file = self.plan.ranks[proc.index()].error_file.then(|| OsBytes::from("{}"));
        let facts = Facts { error_file, ..Facts::default() };
        self.soon(Ev::Arrives(Arrival::Event(Box::new(NodeEvent::Examined { proc, facts }))));
    }

    /// Whether a program is there.
    fn looks_for(&mut self, app: AppIndex) {
        let bare = self.site().is_some_and(|site| site.bare);
        let error =
            bare.then(|| SpawnError { step: SpawnStep::Exec, errno: 2, path: "rank".into(), found: Found::Nothing });
        self.soon(Ev::Arrives(Arrival::Event(Box::new(NodeEvent::Checked { app, error }))));
    }

    /// Holders of devices are found in every second look, and end when they have to.
    fn frees(&mut self, step: DeviceStep) {
        let agent = &mut self.host.agent;
        let is_asked = step == DeviceStep::Look || agent.holders;
        agent.looks += u64::from(step == DeviceStep::Look);
        agent.holders = step == DeviceStep::Look && (agent.looks + self.plan.window / 16384).is_multiple_of(2);
        let freed = if agent.holders { DevicesFreed::Found } else { DevicesFreed::Free { skips_lock: false } };
        self.check(is_asked, || "holders are ended where none were found".to_owned());
        self.soon(Ev::Arrives(Arrival::Event(Box::new(NodeEvent::DevicesFreed(freed)))));
    }

    fn set_up_sandbox(&mut self, start: &Start) {
        let event = match self.plan.refusal.clone() {
            Some(refusal) => NodeEvent::Refused(refusal),
            None => {
                self.host.kernel.init = if self.plan.tier == Tier::T1 { Init::Alive } else { Init::Absent };
                NodeEvent::SandboxReady(Sandbox::of(Hello {
                    master_port: if start.port == PortPlan::Choose { port_of(self.node) } else { 0 },
                    init: (self.plan.tier == Tier::T1).then_some(2),
                    reached: self.reached_by(start),
                    addresses: if start.addresses { self.own_addresses() } else { Default::default() },
                    ..Hello::of(self.plan.tier)
                }))
            }
        };
        self.soon(Ev::Arrives(Arrival::Event(Box::new(event))));
    }

    fn say(&mut self, message: &ToRoot) {
        // Messages before the loss of the edge in the same burst may have been answered.
        let (mute, done) = (self.host.agent.was_mute, self.host.agent.done);
        self.check(!mute && done.is_none(), || format!("no launcher receives {message:?}"));
        let true_loss = match message {
            ToRoot::InitLost => self.host.kernel.init_was_killed,
            ToRoot::GuardianLost => self.host.guardian.was_killed(),
            _ => true,
        };
        self.check(true_loss, || format!("{message:?}, but it is not"));
        if let ToRoot::Done { left, .. } = message {
            self.host.agent.done = Some(*left);
        }
        self.host.agent.ready |= matches!(message, ToRoot::Ready);
        if !self.host.agent.edge_lost {
            self.send_to_launcher(link::message(message));
        }
    }

    /// The spawn thread's turn.
    pub(crate) fn starts(&mut self, proc: ProcId) {
        if self.host.agent.has_exited() {
            return;
        }
        self.host.agent.in_flight -= 1;
        if self.host.agent.withhold {
            return self.soon(Ev::Arrives(Arrival::Event(Box::new(NodeEvent::Withheld { proc }))));
        }
        let failed = match self.plan.no_start {
            Some((rank, step)) if rank == proc.get() => Some((step, 2)),
            _ if self.host.kernel.init == Init::Dead => Some((SpawnStep::Clone, 12)),
            _ => None,
        };
        let event = match failed {
            Some((step, errno)) => {
                // As the thread does it: nothing that was asked for before is started after one that the job needs.
                self.host.agent.withhold |= !self.host.agent.unneeded.contains(&proc);
                let error = SpawnError { step, errno, path: "rank".into(), found: Found::Nothing };
                NodeEvent::SpawnFailed { proc, error }
            }
            None => {
                let pid = self.fork_rank(proc);
                self.note("process", || format!("{pid} is rank {proc}"));
                for which in [0, 1] {
                    self.host.agent.streams.insert((proc, which), Stream::default());
                }
                NodeEvent::Spawned { proc, pid, at: self.here() }
            }
        };
        self.soon(Ev::Arrives(Arrival::Event(Box::new(event))));
    }

    pub(crate) fn sweeps(&mut self) {
        if !self.host.agent.has_exited() {
            self.check_grace();
            self.host.agent.init_swept = true;
            self.init_dies();
            self.kill_everything();
            self.soon(Ev::Counts);
        }
    }

    pub(crate) fn counts(&mut self) {
        self.host.agent.sweeping = false;
        let count = u32::try_from(self.host.kernel.alive_count()).unwrap_or(u32::MAX);
        let named = self.host.kernel.named();
        self.arrive(Arrival::Event(Box::new(NodeEvent::Left { count, named })));
    }

    pub(crate) fn closes(&mut self, proc: ProcId) {
        for which in [0, 1] {
            if let Some(stream) = self.host.agent.streams.get_mut(&(proc, which)) {
                stream.closing = true;
            }
        }
        self.pump(Some(proc));
    }

    pub(crate) fn written(&mut self, owner: ProcId, bytes: u64) {
        if let Some(stream) = self.host.agent.streams.get_mut(&(owner, 0)) {
            stream.buffered += bytes;
            self.pump(Some(owner));
        }
    }

    /// Moves bytes as far as the credit goes, and sees which streams have ended.
    pub(crate) fn pump(&mut self, whose: Option<ProcId>) {
        if self.host.agent.has_exited() || self.host.agent.is_suspended() {
            return;
        }
        let from = whose.unwrap_or(ProcId::new(0));
        let to = whose.unwrap_or(ProcId::new(u32::MAX));
        let streams = self.host.agent.streams.range((from, 0)..=(to, 1)).map(|(id, _)| *id);
        for (proc, which) in streams.collect::<Vec<_>>() {
            let held = self.host.kernel.held(proc, which);
            let id = StreamId::of(proc, Self::std(which)).get();
            let mut frames = vec![];
            let Some(stream) = self.host.agent.streams.get_mut(&(proc, which)) else { continue };
            if self.host.agent.edge_lost {
                stream.buffered = 0;
            }
            while stream.buffered > 0 && self.host.agent.used < self.host.agent.granted {
                let bytes = stream.buffered.min(self.host.agent.granted - self.host.agent.used).min(8192);
                stream.buffered -= bytes;
                stream.total += bytes;
                self.host.agent.used += bytes;
                frames.push(link::bytes(id, usize::try_from(bytes).unwrap_or(0), false));
            }
            let (total, std) = (stream.total, Self::std(which));
            let ends = stream.buffered == 0 && (stream.closing || !held);
            if ends && !self.host.agent.edge_lost {
                frames.push(link::bytes(id, 0, true));
            }
            frames.into_iter().for_each(|frame| self.send_to_launcher(frame));
            if ends {
                self.host.agent.streams.remove(&(proc, which));
                self.arrive(Arrival::Event(Box::new(NodeEvent::StreamEnd { proc, which: std, total })));
            }
        }
    }
}

fn brief(action: &NodeAction) -> String {
    match action {
        NodeAction::Spawn { proc, .. } => format!("Spawn {proc}"),
        other => format!("{other:?}"),
    }
}
