//! The life of each rank: queued, spawning, running, ended, reaped.
//!
//! A rank's streams live longer than the rank where a descendant holds them, so they are counted apart from it.

use super::binding::{self, Binding};
use super::devices::Devices;
use super::exec::{Met, Program, near_gpus};
use super::rounds::RoundStart;
use super::worlds::Worlds;
use super::{Census, Cx, NodeAction, Notice, Sandbox, gpu_check};
use crate::node::SessionAction;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::net::IpAddr;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, ProcId, Round, Std, WorldId};
use rlaunch_base::machine::earliest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{HostTime, Mono};
use rlaunch_plan::gpus::Share;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::stream::mark;
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, Dismissal};
use rlaunch_protocol::wire::to_node::{Delta, Rendezvous, Start, WorldRank};
use rlaunch_protocol::wire::to_root::{Exited, STARTED_BATCH, SpawnError, Started, ToRoot};

mod world_ranks;

/// Most ranks handed to the spawn thread and not answered: its port is bounded, and so is what is prepared in advance.
const IN_FLIGHT: u32 = 256;

#[derive(Default)]
pub(super) struct Procs {
    start: Option<Arc<Start>>,
    sandbox: Option<Box<Sandbox>>,
    rendezvous: Option<Rendezvous>,
    /// The address of this host by which it has reached the place where ranks meet.
    by: Option<IpAddr>,
    /// The number of ranks that run here.
    local_size: u32,
    /// The worlds besides the first one.
    worlds: Worlds,
    apps: BTreeMap<AppIndex, Program>,
    queue: VecDeque<Delta>,
    table: BTreeMap<ProcId, Proc>,
    /// Processes that follow others, and which, if that was here.
    after: BTreeMap<ProcId, Option<ProcId>>,
    /// The processes of those that no round waits for any more.
    unwanted: BTreeSet<ProcId>,
    /// Devices that processes before may still hold.
    devices: Devices,
    /// No rank is started before the devices of this host are free.
    awaits_devices: bool,
    /// A lock file of libtpu is in the way.
    skips_tpu_lock: bool,
    /// The CPUs of ranks.
    binding: Binding,
    /// Starts that were not yet reported to the launcher.
    started: VecDeque<Started>,
    /// Ranks that have ended and are reaped when their world is closed: until then their number is the one of their session.
    held: BTreeSet<ProcId>,
    in_flight: u32,
    unreaped: u32,
    open: u32,
    /// The launcher has sent the last rank.
    last: bool,
    /// A start has failed, or the end has begun: nothing is started any more.
    stopped: bool,
    failed: bool,
    /// Signals that were passed on, and whether one has killed a rank.
    forwarded: BTreeSet<Signal>,
    passed_on: bool,
    /// The signal with which the end began, and the time: a rank that starts now gets it too.
    ending: Option<(Signal, HostTime)>,
    /// Streams are no longer waited for.
    closing: bool,
    reported: Census,
}

struct Proc {
    world: WorldId,
    app: AppIndex,
    state: State,
    pid: u32,
    out_open: bool,
    err_open: bool,
}

enum State {
    Queued,
    /// Handed to the spawn thread. Its exit may be seen before the news of its start.
    Spawning(Option<Box<Exited>>),
    Running,
    /// A zombie: its group can still be signalled.
    Ended,
    Reaped,
    /// The process never ran.
    Failed,
}

impl Procs {
    /// Counters are the number of what they count.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut in_flight, mut unreaped, mut open, mut queued) = (0, 0, 0, 0);
        for proc in self.table.values() {
            let streams = u32::from(proc.out_open) + u32::from(proc.err_open);
            match proc.state {
                State::Queued => queued += 1,
                State::Spawning(_) => in_flight += 1,
                State::Running | State::Ended => (unreaped, open) = (unreaped + 1, open + streams),
                State::Reaped => open += streams,
                State::Failed => {}
            }
        }
        for (what, counted, actual) in [
            ("processes being started", self.in_flight, in_flight),
            ("processes that were not reaped", self.unreaped, unreaped),
            ("open streams", self.open, open),
        ] {
            if counted != actual {
                return Err(format!("{what}: counted {counted}, and there are {actual}"));
            }
        }
        if self.stopped || self.queue.len() == queued {
            return Ok(());
        }
        Err(format!("{} processes are in the queue, and {queued} are to be started", self.queue.len()))
    }

    pub(super) fn on_begun(&mut self, start: Arc<Start>) {
        self.rendezvous.clone_from(&start.rendezvous);
        self.awaits_devices = start.settings.devices.is_active();
        self.start = Some(start);
    }

    /// The devices of this host are free for the ranks to come.
    pub(super) fn on_devices_free(&mut self, cx: &mut Cx<'_>, skips_lock: bool) {
        (self.awaits_devices, self.skips_tpu_lock) = (false, skips_lock);
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.skips_tpu_lock = skips_lock;
        }
        self.spawn_more(cx);
        self.report(cx);
    }

    /// `by`: where that was tried.
    pub(super) fn on_met(&mut self, cx: &mut Cx<'_>, rendezvous: Rendezvous, by: Option<IpAddr>) {
        (self.rendezvous, self.by) = (Some(rendezvous), by);
        self.spawn_more(cx);
    }

    pub(super) fn on_ready(&mut self, cx: &mut Cx<'_>, mut sandbox: Box<Sandbox>) {
        sandbox.skips_tpu_lock = self.skips_tpu_lock;
        self.sandbox = Some(sandbox);
        self.spawn_more(cx);
    }

    pub(super) fn on_program(&mut self, cx: &mut Cx<'_>, app: AppIndex, base: Arc<AppBase>) {
        self.apps.insert(app, Program::new(base));
        self.spawn_more(cx);
    }

    /// Sets the number of ranks that will run here, with those that follow.
    pub(super) const fn on_local_size(&mut self, local_size: u32) {
        self.local_size = local_size;
    }

    /// `after`: those among them that follow others, which have ended.
    pub(super) fn on_queue(
        &mut self,
        cx: &mut Cx<'_>,
        deltas: Vec<Delta>,
        last: bool,
        after: &[(ProcId, Option<ProcId>)],
    ) {
        if self.stopped {
            // The rest of the launch was on its way when a start failed or the end began.
            return;
        }
        for delta in deltas {
            if (self.last && after.is_empty()) || self.table.contains_key(&delta.proc) {
                return cx.notify(Notice::Violation);
            }
            let Delta { app, world_rank: WorldRank { world, .. }, .. } = delta;
            let proc = Proc { world, app, state: State::Queued, pid: 0, out_open: true, err_open: true };
            self.table.insert(delta.proc, proc);
            self.queue.push_back(delta);
        }
        self.last |= last;
        self.after.extend(after.iter().copied());
        self.spawn_more(cx);
        self.report(cx);
    }

    /// Answers a request to follow a process that does not exist.
    pub(super) fn on_surplus(&self, cx: &mut Cx<'_>) {
        if !self.stopped {
            cx.notify(Notice::Violation);
        }
    }

    /// Ends a process that no round waits for any more, as soon as it runs.
    pub(super) fn on_unwanted(&mut self, cx: &mut Cx<'_>, id: ProcId) {
        match self.table.get(&id).map(|proc| &proc.state) {
            Some(State::Queued | State::Spawning(_)) => {
                self.unwanted.insert(id);
                self.spawn_more(cx);
            }
            Some(State::Running) => {
                cx.act(NodeAction::Signal { proc: id, sig: Signal::KILL });
                cx.notify(Notice::Killed(id));
            }
            Some(State::Ended | State::Reaped | State::Failed) | None => {}
        }
    }

    /// The sandbox is set up for other ranks: this port was chosen for them; 0: none.
    pub(super) fn on_renewed(&mut self, port: u16) {
        if let Some(sandbox) = self.sandbox.as_mut().filter(|_| port > 0) {
            sandbox.hello.master_port = port;
        }
    }

    /// Other ranks follow. The state of the earlier ranks is dropped: none of them runs, and none of their numbers comes again.
    pub(super) fn on_next_generation(&mut self, rendezvous: Rendezvous) {
        let Self { start, sandbox, mut apps, by, .. } = core::mem::take(self);
        apps.values_mut().for_each(Program::renew);
        // The devices of all hosts were looked at before the launcher has sent this.
        *self = Self { start, sandbox, apps, by, rendezvous: Some(rendezvous), ..Self::default() };
    }

    fn spawn_more(&mut self, cx: &mut Cx<'_>) {
        let (Some(start), Some(rendezvous), Some(sandbox)) = (&self.start, &self.rendezvous, &self.sandbox) else {
            return;
        };
        if self.awaits_devices {
            return;
        }
        // A program that lacks GPUs is refused before the first rank of any.
        let all = self.apps.len() >= usize::try_from(start.apps).unwrap_or(usize::MAX);
        if !all && start.settings.gpus != Share::Unset {
            return;
        }
        while self.in_flight < IN_FLIGHT {
            let respawns = (&self.after, &self.unwanted);
            // A rank that has to wait does not delay the others.
            let mut is_free =
                |delta: &Delta| !is_held(cx, respawns, &self.table, (sandbox.devices, &mut self.devices), delta);
            let Some(at) = self.queue.iter().position(&mut is_free) else { break };
            let Some(&delta) = self.queue.get(at) else { break };
            if !self.apps.contains_key(&delta.app) {
                break;
            }
            // Ranks that share a slot share its CPUs and GPUs.
            let slots = if start.has_worlds { start.local_size } else { self.local_size };
            let near = || near_gpus(self.apps.values_mut(), (start, sandbox), slots);
            let cpus = self.binding.cpus((start, sandbox), slots, delta.local_rank, near);
            let Some(program) = self.apps.get_mut(&delta.app) else { break };
            let Some(proc) = self.table.get_mut(&delta.proc) else { break };
            self.queue.remove(at);
            proc.state = State::Spawning(None);
            self.in_flight += 1;
            let before = self.after.get(&delta.proc).copied().flatten();
            if let Some(error) = before.and_then(|before| self.devices.end_wait(before)) {
                cx.notify(Notice::Unable(delta.proc, Box::new(error)));
                continue;
            }
            let rendezvous = self.worlds.rendezvous(delta.world_rank.world).unwrap_or(rendezvous);
            let (by, ranks) = (self.by, self.local_size);
            let met = Met { rendezvous, by, local_size: rendezvous.ranks_here.unwrap_or(ranks), ranks };
            let mut exec = program.exec(start, met, sandbox, delta, cpus);
            exec.memory = binding::memory(sandbox, exec.cpus.as_ref());
            exec.is_respawn = self.after.contains_key(&delta.proc);
            if !program.has_gpus(delta.local_rank) {
                cx.notify(Notice::Unable(delta.proc, Box::new(gpu_check::too_few())));
                continue;
            }
            binding::report(cx, start, sandbox, delta, exec.cpus.as_ref());
            cx.act(NodeAction::Spawn { proc: delta.proc, exec });
        }
    }

    /// No process that an exited process has left holds a device.
    pub(super) fn on_devices_released(&mut self, cx: &mut Cx<'_>, proc: ProcId, taken: OsBytes) {
        if self.devices.on_released(proc, taken) {
            self.spawn_more(cx);
            self.report(cx);
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        for world in self.worlds.overdue(cx.now) {
            self.kill_world(cx, world);
        }
        if self.devices.on_timeout(cx.now) {
            self.spawn_more(cx);
            self.report(cx);
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let devices = self.devices.deadline().filter(|_| !self.stopped);
        earliest(devices, self.worlds.deadline())
    }

    pub(super) fn on_spawned(&mut self, cx: &mut Cx<'_>, id: ProcId, pid: u32, at: Mono) {
        let Some(proc) = self.table.get_mut(&id) else { return };
        let State::Spawning(early) = &mut proc.state else { return };
        let early = early.take();
        (proc.state, proc.pid) = (State::Running, pid);
        self.in_flight -= 1;
        self.unreaped += 1;
        self.open += u32::from(proc.out_open) + u32::from(proc.err_open);
        self.started.push_back(Started { proc: id, pid, at: at.host_time() });
        let unwanted = self.unwanted.remove(&id).then_some(Signal::KILL);
        let of_world = self.worlds.signal_for(proc.world);
        if let Some(sig) = self.ending.map(|(sig, _)| sig).or(unwanted).or(of_world) {
            cx.act(NodeAction::Signal { proc: id, sig });
        }
        if unwanted.is_some() {
            cx.notify(Notice::Killed(id));
        }
        if self.closing && (proc.out_open || proc.err_open) {
            cx.act(NodeAction::CloseStreams { proc: id });
        }
        if let Some(exited) = early {
            // A process that follows another costs the others nothing when it fails.
            self.ended(cx, *exited, self.after.contains_key(&id));
        }
        self.spawn_more(cx);
        self.report(cx);
    }

    pub(super) fn on_spawn_failed(&mut self, cx: &mut Cx<'_>, id: ProcId, error: SpawnError) {
        let Some(proc) = self.table.get_mut(&id) else { return };
        if !matches!(proc.state, State::Spawning(_)) {
            return;
        }
        proc.state = State::Failed;
        self.in_flight -= 1;
        // The others continue without one that was to follow another.
        if !self.after.contains_key(&id) {
            self.failed = true;
            self.stop_spawning(cx);
        }
        cx.act(NodeAction::ToRoot(ToRoot::SpawnFailed { proc: id, error }));
        self.spawn_more(cx);
        self.report(cx);
    }

    pub(super) fn on_withheld(&mut self, cx: &mut Cx<'_>, id: ProcId) {
        let Some(proc) = self.table.get_mut(&id) else { return };
        if matches!(proc.state, State::Spawning(_)) {
            proc.state = State::Failed;
            self.in_flight -= 1;
            // This order may come before the failure that is its reason: no process may be started in its place.
            self.stop_spawning(cx);
            self.report(cx);
        }
    }

    /// `excused`: the others continue without it, or the launcher ends the job.
    pub(super) fn on_exited(&mut self, cx: &mut Cx<'_>, mut exited: Exited, excused: bool) {
        // An exit that was seen before the end began is handled after it where both came at once: no process had been signalled then. Of
        // a SIGKILL that is no evidence, because the loss of init is seen after the deaths that come of it.
        exited.asked = self.ending.is_some_and(|(sig, began)| {
            let was_killed = matches!(exited.status, Status::Signaled { sig: Signal::KILL, .. });
            // A process whose start was not known yet has had no signal but the SIGKILL for all that is in the sandbox.
            let is_starting = self.table.get(&exited.proc).is_some_and(|proc| matches!(proc.state, State::Spawning(_)));
            (exited.at > began && (was_killed || !is_starting)) || (sig == Signal::KILL && was_killed)
        }) || self.is_ended_with_world(&exited);
        self.ended(cx, exited, excused);
    }

    fn ended(&mut self, cx: &mut Cx<'_>, exited: Exited, excused: bool) {
        let Some(proc) = self.table.get_mut(&exited.proc) else { return };
        match &mut proc.state {
            State::Spawning(early) => *early = Some(Box::new(exited)),
            State::Running => {
                proc.state = State::Ended;
                self.failed |= !exited.status.is_success() && !excused;
                self.passed_on |= match exited.status {
                    Status::Signaled { sig, .. } => self.forwarded.contains(&sig),
                    Status::Exited(_) | Status::Lost => false,
                };
                if self.worlds.signal_for(proc.world).is_some() {
                    // The processes that it has started end with it.
                    cx.act(NodeAction::KillSessions { procs: vec![exited.proc] });
                }
                cx.act(NodeAction::ToRoot(ToRoot::Exited(exited)));
                cx.notify(Notice::Ended(exited.proc, exited.status));
            }
            State::Queued | State::Ended | State::Reaped | State::Failed => {}
        }
    }

    pub(super) fn reap(&mut self, cx: &mut Cx<'_>, id: ProcId) {
        if self.is_held_back(id) {
            return;
        }
        let Some(proc) = self.table.get_mut(&id) else { return };
        if matches!(proc.state, State::Ended) {
            proc.state = State::Reaped;
            self.unreaped -= 1;
            cx.act(NodeAction::Reap { proc: id });
            self.spawn_more(cx);
            self.report(cx);
        }
        self.forget(id);
    }

    pub(super) fn on_stream_end(&mut self, cx: &mut Cx<'_>, id: ProcId, which: Std) {
        let Some(proc) = self.table.get_mut(&id) else { return };
        let open = match which {
            Std::In => return,
            Std::Out => &mut proc.out_open,
            Std::Err => &mut proc.err_open,
        };
        let was_open = core::mem::replace(open, false);
        match proc.state {
            State::Running | State::Ended | State::Reaped => self.open -= u32::from(was_open),
            // Counted when it is known to run.
            State::Queued | State::Spawning(_) | State::Failed => {}
        }
        self.report(cx);
        self.forget(id);
    }

    /// Sends the beginning of a round to its ranks. There is one program where there are rounds.
    pub(super) fn begin_round(&self, cx: &mut Cx<'_>, round_start: &RoundStart) {
        let (Some(start), Some(rendezvous), Some(sandbox)) = (&self.start, &self.rendezvous, &self.sandbox) else {
            return;
        };
        let Some(program) = self.apps.values().next() else { return };
        let met = Met { rendezvous, by: self.by, local_size: self.local_size, ranks: self.local_size };
        let begins = program.begins(start, met, sandbox, round_start);
        for ((session, delta, member), begin) in round_start.who.iter().zip(begins) {
            // Before the rank gets the message: its output from then on comes after the mark.
            if round_start.round > Round::new(0)
                && round_start.marked.contains(member.initial)
                && program.is_marked(start)
                && let Some(line) =
                    mark::line(rendezvous.restart, round_start.round, member, round_start.place.active_world_size)
            {
                cx.act(NodeAction::Mark { proc: delta.proc, line });
            }
            let order = match begin {
                Some(begin) => AgentMessage::Begin(begin),
                None => AgentMessage::Dismissed(Dismissal::Discarded, OsBytes::default()),
            };
            cx.act(NodeAction::Sessions(SessionAction::Send { session: *session, message: Box::new(order) }));
        }
    }

    /// Passes on a signal to every rank. The job continues.
    pub(super) fn pass_on(&mut self, cx: &mut Cx<'_>, sig: Signal) {
        self.forwarded.insert(sig);
        self.signal_all(cx, sig);
    }

    /// Sends a signal to each rank that lives.
    fn signal_all(&self, cx: &mut Cx<'_>, sig: Signal) {
        self.signal_each(cx, sig, |_| true);
    }

    /// The same for some of them.
    pub(super) fn signal_each(&self, cx: &mut Cx<'_>, sig: Signal, is_one: impl Fn(ProcId) -> bool) {
        for (&proc, entry) in &self.table {
            if matches!(entry.state, State::Running | State::Ended) && is_one(proc) {
                cx.act(NodeAction::Signal { proc, sig });
            }
        }
    }

    pub(super) fn on_ending(&mut self, cx: &mut Cx<'_>, sig: Signal) {
        self.stop(cx, sig);
        self.signal_all(cx, sig);
        self.report(cx);
    }

    /// The same, and the scheduler sends the signal to those that run.
    pub(super) fn on_scheduler_ends(&mut self, cx: &mut Cx<'_>, sig: Signal) {
        self.stop(cx, sig);
        self.report(cx);
    }

    /// No rank is started any more; one whose start is under way gets the signal.
    fn stop(&mut self, cx: &mut Cx<'_>, sig: Signal) {
        let began = self.ending.map_or(cx.now.host_time(), |(_, began)| began);
        self.ending = Some((sig, began));
        core::mem::take(&mut self.held).into_iter().for_each(|proc| self.reap(cx, proc));
        self.stop_spawning(cx);
    }

    pub(super) fn close_streams(&mut self, cx: &mut Cx<'_>) {
        self.closing = true;
        for (&proc, entry) in &self.table {
            let ran = matches!(entry.state, State::Running | State::Ended | State::Reaped);
            if ran && (entry.out_open || entry.err_open) {
                cx.act(NodeAction::CloseStreams { proc });
            }
        }
    }

    /// Starts to report to the launcher, in order.
    pub(super) fn take_started(&mut self) -> Option<Capped<Started, STARTED_BATCH>> {
        let count = self.started.len().min(STARTED_BATCH);
        Capped::chunks(self.started.drain(..count)).pop()
    }

    /// Drops queued starts, also those that were handed over and not begun: an ended launch must not work off a whole queue.
    fn stop_spawning(&mut self, cx: &mut Cx<'_>) {
        self.queue.clear();
        if !core::mem::replace(&mut self.stopped, true) && self.in_flight > 0 {
            cx.act(NodeAction::Withhold);
        }
    }

    fn report(&mut self, cx: &mut Cx<'_>) {
        let census = Census {
            gone: (self.last || self.stopped) && self.queue.is_empty() && self.in_flight == 0 && self.unreaped == 0,
            open: self.open > 0,
            failed: self.failed,
            passed_on: self.passed_on,
        };
        if census != self.reported {
            self.reported = census;
            cx.notify(Notice::Census(census));
        }
    }
}

type Respawns<'a> = (&'a BTreeMap<ProcId, Option<ProcId>>, &'a BTreeSet<ProcId>);

/// Whether the process that it follows may still hold something: it is a zombie, or what it has allocated on devices is not free.
fn is_held(
    cx: &mut Cx<'_>,
    (after, unwanted): Respawns<'_>,
    table: &BTreeMap<ProcId, Proc>,
    (any, devices): (bool, &mut Devices),
    &Delta { proc, rank, .. }: &Delta,
) -> bool {
    let Some(before) = after.get(&proc).copied().flatten() else { return false };
    match table.get(&before).map(|before| (&before.state, before.pid)) {
        Some((State::Queued | State::Spawning(_) | State::Running | State::Ended, _)) => true,
        Some((State::Reaped, pid)) => any && !unwanted.contains(&proc) && !devices.is_free(cx, (before, rank), pid),
        Some((State::Failed, _)) | None => false,
    }
}
