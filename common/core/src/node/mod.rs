//! The agent's machine: the life of the ranks of one node, from the first message to the count of what is left.
//!
//! [`Node`] only routes. Each concern is a private sub-machine in its own file that changes only itself and speaks to the
//! others by notices.

mod begins;
mod binding;
mod check;
mod device_steps;
mod devices;
mod ends;
mod exec;
mod generation_change;
mod gpu_check;
mod grace;
mod host_signals;
mod lease;
mod leftovers;
mod lost;
mod node_action;
mod node_event;
mod part_actions;
mod postmortem;
mod probing;
mod procs;
mod rate_limited_counter;
mod rounds;
mod sandbox;
mod serve;
mod start;
mod step_end;
#[cfg(test)]
mod tests;
mod timers;
mod warnings;
mod world_plan;
mod worlds;

pub use host_signals::SignalledPart;
pub use node_action::NodeAction;
pub use node_event::{Depth, DevicesFreed, ErrorFile, ExecSpec, NodeEvent};
pub use part_actions::{
    DeviceAction, ExamineAction, LeaseAction, ProbeAction, SessionAction, StoreAction, TcpStoreAction,
};
pub use sandbox::{MpiPort, Processors, Sandbox};
pub use serve::UNUSED;
pub use world_plan::{TcpStorePlan, WorldPlan};

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use generation_change::Between;
use rlaunch_base::id::{AppIndex, ProcId, WorldId};
use rlaunch_base::machine::{self, Machine, earliest_of};
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_base::warnings::WarningSource;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::order::RankOrder;
use rlaunch_protocol::wire::round::RoundRendezvous;
use rlaunch_protocol::wire::to_node::{Delta, Rendezvous, Start, ToNode};
use rlaunch_protocol::wire::to_root::{Exited, NodeRefusal, SpawnError, ToRoot};
use timers::Timer;

/// Messages between the sub-machines.
enum Notice {
    /// start: the launcher's first message is here.
    Begun(Arc<Start>),
    /// start: the node is ready for ranks.
    Ready(Box<Sandbox>),
    /// start, router: the set-up has failed and ended, so the node will never be ready for ranks.
    Unready,
    /// start: a program is complete.
    Program(AppIndex, Arc<AppBase>),
    /// start: where the ranks find each other, and the address of this host by which it has reached that, where it was tried.
    Met(Rendezvous, Option<IpAddr>),
    /// start: the ranks of all nodes have ended.
    Finish,
    /// lease: no message of the launcher for too long.
    NoContact,
    /// procs: this one cannot have its GPUs, or the devices of its host.
    Unable(ProcId, Box<SpawnError>),
    /// start: these ranks are to run, and whether they are the last.
    Queue(Vec<Delta>, bool),
    /// procs, generations: the launcher asks for something impossible.
    Violation,
    /// grace, host_signals: a signal is for every rank.
    Send(Send),
    /// host_signals: this host is about to be taken away.
    Warned(WarningSource),
    /// host_signals: the scheduler has sent SIGTERM to the step.
    StepWarned,
    /// step_end: the ranks get the scheduler's SIGTERM and this grace, without an order of the launcher.
    StepEnds(Span),
    /// host_signals: a rank has ended, perhaps by a signal that was reported to the launcher just now.
    Exited(Exited),
    /// rounds: no round waits for this process any more.
    Unwanted(ProcId),
    /// procs: SIGKILL is on its way to one of these.
    Killed(ProcId),
    /// rounds: a round begins for these processes.
    RoundBegins(Box<rounds::RoundStart>),
    /// rounds: a round has this rendezvous, and these ranks work here.
    RoundMeets(Box<RoundRendezvous>, RankSet),
    /// A change between two generations of ranks.
    Between(Between),
    /// grace, start, lost: SIGKILL for everything, now.
    Destroy,
    /// router: all sub-machines know that everything is killed.
    Destroyed,
    /// lost: the launcher does not get our messages.
    LauncherLost,
    /// lost: the guardian is gone.
    Orphaned,
    /// procs: a rank has ended and waits to be reaped.
    Ended(ProcId, Status),
    /// postmortem: it may be reaped.
    Reap(ProcId),
    /// procs: how things stand.
    Census(Census),
    /// leftovers: what remains is being killed, init too.
    Sweeping,
    /// leftovers: no more bytes are to be waited for.
    CloseStreams,
    /// leftovers: the node has sent its last message.
    Done,
}

/// A signal for every rank.
#[derive(Clone, Copy, Debug)]
enum Send {
    /// The user's; the ranks continue.
    Forward(Signal),
    /// The end has begun: nothing is started any more, and ranks whose start is under way get it too.
    Ending(Signal),
    /// The same, and the scheduler sends the signal, or has.
    SchedulerEnds(Signal),
    /// The scheduler has not sent it here, so we do.
    Owed(Signal),
}

/// The remaining work for the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Census {
    /// All have been reaped and none will come.
    gone: bool,
    /// A stream of one of them is open.
    open: bool,
    /// Whether one failed, or could not be started.
    failed: bool,
    /// One was killed by a signal that was passed on.
    passed_on: bool,
}

type Cx<'a> = machine::Cx<'a, NodeAction, Notice>;

/// The agent's machine.
#[derive(Default)]
pub struct Node {
    out: VecDeque<NodeAction>,
    notices: VecDeque<Notice>,
    parts: Parts,
}

impl Node {
    /// A node that has received nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same on another host than the launcher's: of its own environment, what is true of it only ([`of_login`]).
    ///
    /// [`of_login`]: rlaunch_protocol::env::of_login
    #[must_use]
    pub fn of_login(login: OsStrings) -> Self {
        let parts = Parts { start: start::BringUp::of_login(login), ..Parts::default() };
        Self { parts, ..Self::default() }
    }

    /// Runs one transition, unless the node has said all that it will, then passes on notices until none is left.
    fn with(&mut self, now: Mono, transition: impl FnOnce(&mut Parts, &mut Cx<'_>)) {
        let Self { out, notices, parts } = self;
        if parts.done {
            return;
        }
        let mut cx = Cx { now, out, notice: notices, facts: &() };
        parts.rounds.observe_clock(now);
        transition(parts, &mut cx);
        parts.route_notices(&mut cx);
    }
}

/// The sub-machines, apart from the queues that they are given.
#[derive(Default)]
struct Parts {
    start: start::BringUp,
    procs: procs::Procs,
    generations: generation_change::Generations,
    grace: grace::Grace,
    host_signals: host_signals::HostSignals,
    step_end: step_end::StepEnd,
    lease: lease::Lease,
    lost: lost::Lost,
    postmortem: postmortem::Postmortem,
    serve: serve::Serve,
    rounds: rounds::Rounds,
    leftovers: leftovers::Leftovers,
    warnings: warnings::Warnings,
    launcher_lost: bool,
    done: bool,
}

impl Parts {
    fn receive(&mut self, cx: &mut Cx<'_>, event: NodeEvent) {
        match event {
            NodeEvent::FromRoot(message) => self.obey(cx, message),
            NodeEvent::SandboxReady(sandbox) => self.start.on_sandbox_ready(cx, sandbox),
            NodeEvent::Refused(refusal) if self.generations.is_renewing() => {
                cx.notify(Notice::Unready);
                self.start.refuse(cx, refusal);
            }
            NodeEvent::Refused(refusal) => self.start.on_refused(cx, refusal),
            NodeEvent::Renewed { port } => cx.notify(Notice::Between(Between::Renewed(port))),
            NodeEvent::StoreUsed => self.serve.on_used(),
            NodeEvent::RanksMeasured { cpu } => self.serve.on_measured(cx, cpu),
            NodeEvent::StoreRefused { from, count, foreign } => self.serve.on_refused(cx, from, count, foreign),
            NodeEvent::StoreLimit { met, count } => self.serve.on_limit(cx, met, count),
            NodeEvent::Unserved { errno, at } => self.start.refuse(cx, NodeRefusal::NoStore { errno, at }),
            NodeEvent::Probed { number, found } => self.start.probing.on_probed(cx, number, found),
            NodeEvent::Checked { app, error } => self.start.on_checked(cx, app, error),
            NodeEvent::Beat(beat) => self.lease.on_beat(cx, beat),
            NodeEvent::EdgeLost => self.edge_lost(cx),
            NodeEvent::Signal { sig, to } => self.signalled(cx, sig, to),
            NodeEvent::GuardianLost => self.lost.on_guardian(cx),
            NodeEvent::InitLost => self.lost.on_init(cx),
            NodeEvent::Spawned { proc, pid, at } => {
                self.host_signals.on_spawned(proc, at);
                self.step_end.on_spawned();
                self.procs.on_spawned(cx, proc, pid, at);
            }
            NodeEvent::Withheld { proc } => self.procs.on_withheld(cx, proc),
            NodeEvent::SpawnFailed { proc, error } => self.not_spawned(cx, proc, error),
            NodeEvent::Exited { proc, status, at, alive_at, usage } => {
                // The guardian kills the ranks when the lease has expired: such an end is no failure of the rank.
                if self.lease.is_due(cx.now) {
                    self.lease.on_timeout(cx);
                    self.route_notices(cx);
                }
                let (at, alive_at) = (at.host_time(), alive_at.host_time());
                let exited = Exited { proc, status, at, alive_at, asked: false, usage };
                if let Some(exited) = self.host_signals.hold(cx, exited) {
                    self.exited(cx, exited);
                }
            }
            NodeEvent::StreamEnd { proc, which, total: _ } => self.procs.on_stream_end(cx, proc, which),
            NodeEvent::InputFailed { errno } => cx.act(NodeAction::ToRoot(ToRoot::InputFailed { errno })),
            NodeEvent::News(news) => cx.act(NodeAction::ToRoot(ToRoot::News(news))),
            NodeEvent::FileLost { proc, which, bytes } => send(cx, ToRoot::FileLost { proc, which, bytes }),
            NodeEvent::Examined { proc, facts } => self.postmortem.on_examined(cx, proc, facts),
            NodeEvent::SessionBegun { session, rank, terms } => self.rounds.on_session_begun(cx, session, rank, &terms),
            NodeEvent::SessionMessage { session, said } => self.rounds.on_session_message(cx, session, said),
            NodeEvent::SessionLost { session } => self.rounds.on_gone(cx, session),
            NodeEvent::DevicesFreed(freed) => self.devices_freed(cx, freed),
            NodeEvent::DevicesEnding => self.start.devices.on_ending(cx.now),
            NodeEvent::DevicesExamined => self.leftovers.on_devices_examined(cx),
            NodeEvent::DevicesReleased { proc, taken } => self.procs.on_devices_released(cx, proc, taken),
            NodeEvent::PortReserved { port } => self.rounds.on_port(cx, port),
            NodeEvent::Ordered(order) => self.ordered(cx, order),
            NodeEvent::WorldReserved { world, port } => send(cx, ToRoot::WorldPort { world, port }),
            NodeEvent::Warned(source) => self.warned(cx, source),
            NodeEvent::Left { count, named } => self.leftovers.on_left(cx, count, named),
        }
    }

    fn ordered(&mut self, cx: &mut Cx<'_>, order: Box<RankOrder>) {
        self.leftovers.expect_more();
        send(cx, ToRoot::Order(order));
    }

    fn obey(&mut self, cx: &mut Cx<'_>, message: ToNode) {
        match message {
            ToNode::Start(start) => self.start.on_start(cx, start),
            ToNode::App { app, last, part } => self.start.on_part(cx, app, last, &part),
            ToNode::Probe(places) => self.start.probing.on_probe(cx, places),
            ToNode::Rendezvous(rendezvous) => self.start.on_rendezvous(cx, rendezvous),
            ToNode::Finish => self.start.on_finish(cx),
            ToNode::Spawn { procs, last, local_size } => {
                self.procs.on_local_size(local_size);
                self.start.on_spawn(cx, procs.into_vec(), last);
            }
            ToNode::OrderDone { asker, reply } => cx.act(NodeAction::Store(StoreAction::OrderDone { asker, reply })),
            ToNode::ReserveWorld(world) => cx.act(NodeAction::TcpStores(TcpStoreAction::ReserveWorldPort { world })),
            ToNode::World(start) if self.start.is_met() => self.world_begins(cx, *start),
            ToNode::EndWorld { world, sig, grace } => self.procs.on_end_world(cx, world, sig, grace),
            ToNode::CloseWorld(world) => {
                let programs = self.procs.on_close_world(cx, world);
                self.start.forget_programs(&programs);
            }
            ToNode::Signal { sig } => self.grace.on_signal(cx, sig),
            ToNode::End { sig, grace } => self.grace.on_end(cx, Send::Ending(sig), grace),
            ToNode::SchedulerEnds { sig, grace } => self.grace.on_end(cx, Send::SchedulerEnds(sig), grace),
            ToNode::HoldLease(span) => self.lease.on_suspended(cx, span),
            ToNode::Clear { sig, grace, port } if self.start.is_met() => {
                self.generations.on_clear(cx, sig, grace, port);
            }
            ToNode::Again(rendezvous) if self.start.is_met() => self.generations.on_next_generation(cx, rendezvous),
            ToNode::Clear { .. } | ToNode::Again(_) | ToNode::World(_) => self.start.refuse(cx, NodeRefusal::Protocol),
            ToNode::Devices(step) => self.start.on_device_order(cx, step),
            ToNode::Kill => self.grace.on_kill(cx),
            // The edge's: they are about connections, not about ranks.
            ToNode::FindOwners(_) | ToNode::OwnersFound(_) => {}
            ToNode::Round(down) => self.rounds.on_down(cx, down),
        }
    }

    fn route(&mut self, cx: &mut Cx<'_>, notice: Notice) {
        match notice {
            Notice::Begun(start) => self.begins(cx, start),
            Notice::Ready(sandbox) => {
                self.serve.on_ready(cx, &sandbox);
                self.rounds.on_ready(&sandbox);
                self.procs.on_ready(cx, sandbox);
                self.leftovers.on_set_up_ended(cx);
            }
            Notice::Unready => self.leftovers.on_set_up_ended(cx),
            Notice::Program(app, base) => self.procs.on_program(cx, app, base),
            Notice::Met(rendezvous, by) => {
                self.rounds.on_met(&rendezvous, by);
                self.serve.on_met(cx, &rendezvous);
                self.procs.on_met(cx, rendezvous, by);
            }
            Notice::Between(between) => self.between(cx, between),
            Notice::Finish => {
                self.serve.on_ending(cx);
                self.leftovers.on_finish(cx);
            }
            Notice::NoContact => self.lost.on_no_contact(cx),
            Notice::Queue(deltas, last) if deltas.iter().any(|delta| delta.world_rank.world > WorldId::new(0)) => {
                self.procs.on_world_queue(cx, deltas, last);
            }
            Notice::Queue(deltas, last) => match self.rounds.on_queue(&deltas, last) {
                Some(after) => self.procs.on_queue(cx, deltas, last, &after),
                None => self.procs.on_surplus(cx),
            },
            Notice::Unable(proc, error) => self.not_spawned(cx, proc, *error),
            Notice::Unwanted(proc) => self.procs.on_unwanted(cx, proc),
            Notice::Killed(proc) => self.rounds.on_killed(cx.now, proc),
            Notice::RoundBegins(round_start) => self.procs.begin_round(cx, &round_start),
            Notice::RoundMeets(place, ranks) => self.serve.on_round(cx, &place, ranks),
            Notice::Violation => self.start.refuse(cx, NodeRefusal::Protocol),
            Notice::Send(send) => self.sends(cx, send),
            Notice::Warned(source) => self.warned(cx, source),
            Notice::StepWarned => self.step_end.on_warned(cx),
            Notice::StepEnds(grace) => self.step_ends(cx, grace),
            Notice::Exited(exited) => self.exited(cx, exited),
            Notice::Destroy => self.destroys(cx),
            Notice::Destroyed => self.leftovers.on_destroy(cx),
            Notice::LauncherLost => self.on_launcher_lost(cx),
            Notice::Orphaned => self.leftovers.on_orphaned(),
            Notice::Ended(proc, status) => self.postmortem.on_ended(cx, proc, status),
            Notice::Reap(proc) => self.procs.reap(cx, proc),
            Notice::Census(census) => self.counted(cx, census),
            Notice::Sweeping => {
                self.lost.on_sweeping();
                self.serve.on_ending(cx);
            }
            Notice::CloseStreams => self.procs.close_streams(cx),
            Notice::Done => {
                self.lease.on_done();
                self.done = true;
            }
        }
    }

    /// The processes of the ranks were counted.
    fn counted(&mut self, cx: &mut Cx<'_>, census: Census) {
        self.grace.on_census(cx, census);
        self.leftovers.on_census(cx, census);
        if census.gone {
            self.warnings.on_ranks_gone(cx);
            self.step_end.on_ranks_gone(cx);
        }
    }

    fn sends(&mut self, cx: &mut Cx<'_>, send: Send) {
        match send {
            Send::Forward(sig) => {
                self.host_signals.on_sent(sig);
                self.procs.pass_on(cx, sig);
            }
            Send::Ending(sig) => {
                self.host_signals.on_sent(sig);
                self.ends(cx, sig, procs::Procs::on_ending);
            }
            Send::SchedulerEnds(sig) => {
                self.host_signals.on_scheduler_ends(cx, sig);
                self.ends(cx, sig, procs::Procs::on_scheduler_ends);
            }
            Send::Owed(sig) => self.procs.signal_each(cx, sig, |proc| self.host_signals.owes(proc)),
        }
    }

    /// A rank has ended.
    fn exited(&mut self, cx: &mut Cx<'_>, exited: Exited) {
        let (proc, excused) = (exited.proc, self.rounds.is_open());
        self.procs.on_exited(cx, exited, excused);
        self.rounds.on_exited(cx, proc);
    }

    /// The devices of this host are free, or will not be.
    fn devices_freed(&mut self, cx: &mut Cx<'_>, freed: DevicesFreed) {
        match freed {
            DevicesFreed::Free { skips_lock } => {
                self.procs.on_devices_free(cx, skips_lock);
                self.leftovers.on_devices_free();
                self.start.on_devices_done(cx, false);
            }
            DevicesFreed::Found => self.start.on_devices_done(cx, true),
            DevicesFreed::Refused(refusal) => self.start.refuse(cx, refusal),
        }
    }

    /// A process could not be started: in rounds another may follow it.
    fn not_spawned(&mut self, cx: &mut Cx<'_>, proc: ProcId, error: SpawnError) {
        self.procs.on_spawn_failed(cx, proc, error);
        self.rounds.on_exited(cx, proc);
    }

    /// Routes notices until none is left. Each sub-machine sends fewer than it receives, so this ends.
    fn route_notices(&mut self, cx: &mut Cx<'_>) {
        while let Some(notice) = cx.notice.pop_front() {
            self.route(cx, notice);
        }
    }
}

fn send(cx: &mut Cx<'_>, message: ToRoot) {
    cx.act(NodeAction::ToRoot(message));
}

impl Machine for Node {
    type Event = NodeEvent;
    type Action = NodeAction;

    fn handle(&mut self, now: Mono, event: NodeEvent) {
        self.with(now, |parts, cx| parts.receive(cx, event));
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.with(now, |parts, cx| Timer::ALL.into_iter().for_each(|timer| parts.timeout(cx, timer)));
    }

    fn poll_action(&mut self) -> Option<NodeAction> {
        loop {
            // The starts of a burst travel in one message, but never after another report.
            let due = matches!(self.out.front(), None | Some(NodeAction::ToRoot(_)));
            let action = match if due { self.parts.procs.take_started() } else { None } {
                Some(procs) => NodeAction::ToRoot(ToRoot::Started { procs }),
                None => self.out.pop_front()?,
            };
            if !(self.parts.launcher_lost && matches!(action, NodeAction::ToRoot(_))) {
                return Some(action);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Mono> {
        if self.parts.done {
            return None;
        }
        earliest_of(Timer::ALL.map(|timer| self.parts.deadline(timer)))
    }
}
