//! The edges of the node machine: its contact with the kernel. Nothing in `perform` waits or fails: outcomes are events.

mod check;
mod client_socket;
mod convert;
mod device_thread;
mod examine;
mod files;
pub(crate) mod lease;
pub(crate) mod link;
mod live_set;
mod logs;
pub mod metadata;
mod mpi;
mod next_port;
mod port;
mod preempt_probe;
mod probe;
mod proc_searches;
mod processors;
mod pump;
mod rank_table;
mod renew;
mod sandbox;
mod sessions;
mod stdin;
mod store;
mod sweep;
mod tcpstore_listener;
#[cfg(test)]
mod testing;
pub(crate) mod tpu_facts;
mod watch;
mod worlds;

use crate::AgentSetup;
use crate::clock::now;
use bytes::Bytes;
use link::{Link, last_word, refusal};
use rank_table::Ranks;
use rlaunch_core::id::{NodeId, ProcId};
use rlaunch_core::machine::earliest_of;
use rlaunch_core::node::{NodeAction, NodeEvent};
use rlaunch_core::stream::turn::Broken;
use rlaunch_core::time::{Mono, Span};
use rlaunch_core::wire::beat::Beat;
use rlaunch_core::wire::frame::Flags;
use rlaunch_core::wire::to_node::{Start, ToNode};
use rlaunch_core::wire::to_root::ToRoot;
use rlaunch_net::{Alarm, Body, Early};
use rlaunch_sys::guardian::TempFiles;
use rlaunch_sys::origin::Origin;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long ends of ranks may wait for us while others are being started.
const REST: Duration = Duration::from_millis(2);

/// How long what we have to say at our end may take to go out, if we hear nothing from there.
const OUTLIVED: Span = Span::from_secs(2);

/// Descriptors for which there is room before there are threads: those of some hundred ranks, and as many connections to the store.
const ROOM: RawFd = 4096;

/// All that the agent holds of the kernel.
pub(crate) struct Edges {
    link: Link,
    origin: Origin,
    node: NodeId,
    /// Held, so that its end is ours.
    lease: Option<lease::LeaseLine>,
    watch: watch::Watch,
    ranks: Ranks,
    pump: pump::Pump,
    stdin: stdin::Stdin,
    sweep: sweep::Sweep,
    sandbox: sandbox::Held,
    examine: examine::Examinations,
    files: files::Files,
    proc_searches: proc_searches::ProcSearches,
    devices: device_thread::DeviceThread,
    logs: logs::Logs,
    /// The tries to reach rank 0's host, or the wait there for such tries.
    probes: probe::Probes,
    /// The TCPStore, where this agent holds it.
    listener: Option<tcpstore_listener::TcpStoreListener>,
    /// Ports and stores of worlds besides the first one.
    worlds: worlds::Worlds,
    /// The listener for MPI libraries.
    mpi: Option<Box<mpi::MpiListener>>,
    /// Remaining connections of earlier listeners.
    silent: tcpstore_listener::SilentConnections,
    /// Resources that are held for the next round, and processes that take part in rounds.
    next: next_port::Next,
    sessions: Option<sessions::Sessions>,
    /// Our own listener, and the namespaces that it serves.
    store: Option<store::Store>,
    temp_files: TempFiles,
    /// Why the guardian or the agent is no subreaper: an errno.
    no_subreaper: Option<i32>,
    /// The authorizer for this store, or for another host's.
    authorizer: Option<tcpstore_listener::Authorizer>,
    /// The watch over the metadata server.
    metadata: metadata::Watching,
    /// The command that warns.
    preempt_probe: preempt_probe::PreemptProbe,
    /// Events that were not handled yet.
    events: VecDeque<NodeEvent>,
    alarm: Alarm,
    /// Something has happened since the last wait.
    stirred: bool,
    /// Nothing more comes from the launcher, but it may still hear us.
    deaf: bool,
    /// The exit code, and when it was asked for.
    finish: Option<(u8, Mono)>,
}

impl Edges {
    /// Takes what the agent was given, within a runtime. An error has been reported to the launcher.
    pub(crate) fn new(setup: AgentSetup) -> io::Result<Self> {
        rlaunch_sys::origin::raise_nofile(&setup.origin);
        let (node, link) = (setup.node, setup.edge.early());
        let fails = |link: &mut Early<ToNode>, error: &io::Error| last_word(node, link, "watch what happens", error);
        let sets = watch::Watch::new(&setup.origin, setup.guardian).and_then(|watch| {
            rlaunch_sys::fd::make_room(&*watch.set, ROOM);
            setup.lease.iter().try_for_each(|line| watch.watch_guardian_signals(line))?;
            Ok((watch, pump::Pump::new(node)?))
        });
        let (link, (watch, pump)) = match sets {
            Ok(sets) => match link.into_connection() {
                Ok(link) => (Some(link), sets),
                Err((mut link, error)) => {
                    fails(&mut link, &error);
                    return Err(error);
                }
            },
            Err(error) => {
                let mut link = link;
                fails(&mut link, &error);
                return Err(error);
            }
        };
        Ok(Self {
            link,
            origin: setup.origin,
            node,
            lease: setup.lease,
            watch,
            ranks: Ranks::default(),
            pump,
            stdin: stdin::Stdin::new(setup.node),
            sweep: sweep::Sweep::default(),
            sandbox: sandbox::Held::default(),
            examine: examine::Examinations::default(),
            files: files::Files::default(),
            proc_searches: proc_searches::ProcSearches::default(),
            devices: device_thread::DeviceThread::default(),
            logs: logs::Logs::default(),
            probes: probe::Probes::default(),
            listener: None,
            worlds: worlds::Worlds::default(),
            mpi: None,
            silent: tcpstore_listener::SilentConnections::default(),
            next: next_port::Next::default(),
            sessions: None,
            store: None,
            temp_files: setup.temp_files,
            no_subreaper: setup.no_subreaper,
            authorizer: None,
            metadata: metadata::Watching::default(),
            preempt_probe: preempt_probe::PreemptProbe::default(),
            events: VecDeque::new(),
            alarm: Alarm::default(),
            stirred: false,
            deaf: false,
            finish: None,
        })
    }

    /// The launcher was heard of: takes the caller's CPUs, before there are threads. Without diagnostics the agent lets go of the user's
    /// stderr too.
    fn on_start(&mut self, start: &Start) {
        self.origin.restore_cpus();
        if start.settings.trace.is_empty() {
            self.release_stdio(&[2]);
        } else {
            rlaunch_net::diagnostics::start(&start.settings.trace);
        }
    }

    /// Lets go of these streams of the caller. After an error the launcher gets a message, and the agent ends.
    pub(crate) fn release_stdio(&mut self, streams: &[i32]) {
        if let Err(error) = rlaunch_sys::fd::release_stdio(streams) {
            self.send(&refusal("open /dev/null", &error));
            self.finish = Some((rlaunch_core::exit::LAUNCH, now()));
        }
    }

    /// Wakes the guardian before we end: a suspended guardian would remain otherwise, and see neither our end nor our last report.
    pub(crate) fn wake_guardian(&self) {
        self.watch.wake_guardian();
    }

    /// Returns the next event; `None`: nothing more for now.
    pub(crate) fn take(&mut self) -> Option<NodeEvent> {
        self.events.pop_front()
    }

    /// The exit code, once the last action was asked for and the last message was written.
    pub(crate) fn finished(&self) -> Option<u8> {
        let (code, asked) = self.finish?;
        let written = match &self.link {
            Some(link) => link.is_flushed() || (self.deaf && asked + OUTLIVED <= now()),
            None => true,
        };
        // A file that is to be removed is waited for, but not for long.
        let removed = self.files.quiet_at().is_none_or(|at| at <= now());
        (written && removed).then_some(code)
    }

    /// Waits until something has happened, or until `deadline`. Cancel-safe: all state is in `self`.
    pub(crate) async fn wait(&mut self, deadline: Option<Mono>) {
        self.rest();
        poll_fn(|cx| self.poll(cx, deadline)).await;
    }

    /// Leaves the processors to a launch that is under way: ranks that end at once would wake us for every one of them,
    /// and us the launcher, just where the next rank should start. The launcher's word and the spawn thread's bell, which
    /// rings at a failure and when it has nothing to do, end the rest at once. Our own messages go out first.
    fn rest(&self) {
        if let (true, true, Some(link), Some(port)) =
            (self.stirred, self.ranks.launching(), &self.link, self.sandbox.spawn_port())
            && link.is_flushed()
        {
            rlaunch_sys::fd::readable_within(&[link.as_fd(), port.bell().as_fd()], REST);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Mono>) -> Poll<()> {
        self.poll_flush(cx);
        // While the sandbox is being set up, what has come with the order for it is unpacked.
        if !matches!(&self.link, Some(link) if link.has_frame()) {
            sandbox::finish(self);
        }
        watch::poll(self, cx);
        renew::finish(self);
        sessions::poll(self, cx);
        // No launch waits for these.
        if !self.ranks.is_empty() {
            metadata::poll(self, cx);
            preempt_probe::poll(self);
        }
        self.poll_recv(cx);
        self.stdin.poll(cx, &mut self.link);
        self.events.extend(self.stdin.take_failure().map(|errno| NodeEvent::InputFailed { errno }));
        logs::poll(self, cx);
        rank_table::go_overdue(self);
        pump::poll(self, cx);
        mpi::poll(self, cx);
        tcpstore_listener::poll(self, cx);
        store::poll(self, cx);
        mpi::ask_store(self);
        sessions::admit(self);
        examine::settle(self);
        worlds::settle(self);
        self.events.extend(self.proc_searches.take_measured().map(|cpu| NodeEvent::RanksMeasured { cpu }));
        stdin::look(self);
        mpi::look(self);
        sweep::poll(self, now());
        if self.examine.poll(now()) {
            self.events.shrink_to_fit();
            rlaunch_sys::memory::give_back();
        }
        self.poll_flush(cx);
        if store::has_more(self) {
            cx.waker().wake_by_ref();
        }
        self.stirred = !self.events.is_empty();
        if self.stirred || self.finished().is_some() {
            return Poll::Ready(());
        }
        let deadline = earliest_of(self.deadlines(deadline));
        deadline.map_or(Poll::Pending, |at| self.alarm.poll(cx, at.since(now())))
    }

    /// All that an edge waits for, and `deadline`, the machine's.
    fn deadlines(&self, deadline: Option<Mono>) -> [Option<Mono>; 13] {
        [
            deadline,
            pump::deadline(self),
            self.sweep.deadline(),
            self.examine.deadline(),
            self.files.deadline(),
            self.stdin.deadline(),
            mpi::deadline(self),
            tcpstore_listener::deadline(self),
            store::deadline(self),
            self.logs.deadline(),
            self.ranks.overdue(),
            self.files.quiet_at().filter(|_| self.finish.is_some()),
            self.finish.filter(|_| self.deaf).map(|(_, asked)| asked + OUTLIVED),
        ]
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) {
        while let (Some(link), false) = (&mut self.link, self.deaf) {
            match link.poll_recv(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(frame)) => match frame.body {
                    Body::Message(ToNode::Whose(question)) => tcpstore_listener::asked(self, &question),
                    Body::Message(ToNode::Theirs(answer)) => tcpstore_listener::answered(self, &answer),
                    Body::Message(ToNode::Start(start)) => {
                        self.on_start(&start);
                        self.events.push_back(NodeEvent::FromRoot(ToNode::Start(start)));
                        // The sandbox comes before all that follows.
                        return cx.waker().wake_by_ref();
                    }
                    Body::Message(message) => self.events.push_back(NodeEvent::FromRoot(message)),
                    Body::Data { bytes, flags, .. } => self.stdin_arrived(bytes, flags),
                    Body::Credit(up_to) => self.granted(up_to),
                    Body::Broken(broken) => self.line_broken(broken),
                    Body::Beat(beat) => self.events.push_back(NodeEvent::Beat(beat)),
                    Body::Store(bytes) => self.on_store_message(frame.node, &bytes),
                    Body::Last(_) => {}
                },
                // sshd lets go of our input when the guardian is gone, which it has started; our output it takes to the end.
                Poll::Ready(Err(_)) if self.watch.is_unguarded() => {
                    self.deaf = true;
                    // The launcher grants no more credit either: output of the ranks until now is sent at once.
                    self.pump.window.grant(u64::MAX);
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "the edge to the launcher has ended");
                    self.lose_link();
                }
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) {
        if let Some(link) = &mut self.link
            && let Poll::Ready(Err(error)) = link.poll_flush(cx)
        {
            tracing::debug!(%error, "the edge to the launcher cannot be written");
            self.lose_link();
        }
    }

    fn lose_link(&mut self) {
        self.link = None;
        self.events.push_back(NodeEvent::EdgeLost);
    }

    /// The launcher takes output up to this offset.
    pub(crate) fn granted(&mut self, up_to: u64) {
        self.pump.window.grant(up_to);
    }

    /// The launcher has broken a line.
    pub(crate) fn line_broken(&mut self, broken: Broken) {
        self.pump.lines.broken(broken);
    }

    /// Standard input for the ranks that read it.
    pub(crate) fn stdin_arrived(&mut self, bytes: Bytes, flags: Flags) {
        self.stdin.push(bytes, flags.has(Flags::END));
    }

    fn on_store_message(&mut self, node: NodeId, bytes: &[u8]) {
        if let Some(store) = &mut self.store {
            store.heard(node, bytes);
        }
    }

    /// Does what the machine asks for.
    pub(crate) fn perform(&mut self, action: NodeAction) {
        tracing::trace!(?action, "perform");
        match action {
            NodeAction::SetUpSandbox(start) => sandbox::begin(self, start),
            NodeAction::Check { app, base } => check::perform(self, app, &base),
            NodeAction::Probe(place) => probe::call(self, place),
            NodeAction::EndProbes => probe::end(self),
            NodeAction::Beat(beat) => self.beat(beat),
            NodeAction::Lease(until) => self.renew_lease(until),
            NodeAction::Spare(until) => self.lease.iter().for_each(|line| line.spare(until)),
            NodeAction::HoldAfterCut(span) => self.lease.iter().for_each(|line| line.hold_after_cut(span)),
            NodeAction::Serve { addr, port, guard, ranks } => tcpstore_listener::open(self, &addr, port, guard, ranks),
            NodeAction::Renew { port } => renew::begin(self, port),
            NodeAction::OpenNamespace { here, number, ranks } => {
                self.store.iter_mut().for_each(|store| store.begin(here, number, ranks.clone()));
            }
            NodeAction::Unserve => tcpstore_listener::close(self),
            NodeAction::MeasureRanks => {
                let pids = self.ranks.by_number().into_keys().collect();
                self.proc_searches.measure(pids, |bell| self.watch.watch_proc_searches(bell));
            }
            NodeAction::OrderDone { asker, reply } => {
                self.store.iter_mut().for_each(|store| store.order_done(asker, &reply));
            }
            NodeAction::ReserveWorld { world } => worlds::reserve(self, world),
            NodeAction::OpenWorld(plan) => worlds::open(self, *plan),
            NodeAction::CloseWorld { world } => worlds::close(self, world),
            NodeAction::KillSessions { procs } => worlds::kill_sessions(self, procs),
            NodeAction::ServeMpi(layout) => mpi::begin(self, *layout),
            NodeAction::ReservePort { listen } => next_port::reserve(self, listen.as_ref()),
            NodeAction::UsePort(is_used) => next_port::settle(self, is_used),
            NodeAction::Tell { session, heard } => sessions::notify(self, session, &heard),
            NodeAction::EndSession { session } => sessions::end(self, session),
            NodeAction::Mark { proc, line } => pump::mark(self, proc, &line),
            NodeAction::Spawn { proc, exec } => {
                self.store.iter_mut().for_each(|store| store.add_rank(exec.delta.world_rank));
                rank_table::spawn(self, proc, *exec);
            }
            NodeAction::FreeDevices { plan, job, grace, step } => device_thread::free(self, plan, job, grace, step),
            NodeAction::ExamineDevices { kind } => device_thread::examine(self, kind),
            NodeAction::AwaitDevices { proc, pid, rank } => device_thread::await_release(self, proc, pid, rank),
            NodeAction::WatchPreemption { command } => self.preempt_probe.begin(&command),
            NodeAction::Withhold => {
                tracing::debug!("nothing more is started");
                rank_table::withhold(self);
            }
            NodeAction::Signal { proc, sig } => self.ranks.signal(proc, sig),
            NodeAction::Examine { proc, status, depth } => examine::ask(self, proc, status, depth),
            NodeAction::Reap { proc } => self.reap(proc),
            NodeAction::CloseStreams { proc } => pump::close_streams(self, proc),
            NodeAction::NameLeft => sweep::name_left(self),
            NodeAction::Sweep => sweep::begin(self),
            NodeAction::ToRoot(message) => {
                if matches!(message, ToRoot::Done { .. }) {
                    // The next job may be given the same port as soon as the launcher has ended.
                    self.sandbox.let_go_of_port();
                    self.worlds.release();
                }
                self.send(&message);
            }
            NodeAction::Finish(code) => self.finish = Some((code, now())),
        }
    }

    fn send(&mut self, message: &ToRoot) {
        let sent = match &mut self.link {
            Some(link) => link.send(self.node, message),
            None => Ok(()),
        };
        if sent.is_err() {
            self.lose_link();
        }
    }

    fn beat(&mut self, beat: Beat) {
        let sent = match &mut self.link {
            Some(link) => link.beat(self.node, beat),
            None => Ok(()),
        };
        if sent.is_err() {
            self.lose_link();
        }
    }

    fn renew_lease(&self, until: Mono) {
        if let Some(line) = &self.lease {
            line.renew(until);
        }
    }

    fn reap(&mut self, proc: ProcId) {
        if worlds::defers_reaping(self, proc) {
            return;
        }
        self.pump.forget(proc);
        mpi::reaped(self, proc);
        let Some(error_file) = self.ranks.reap(proc) else { return };
        if self.sandbox.error_files_are_near() {
            let _no_such_file = rlaunch_sys::facts::error_file::remove(&error_file);
        } else {
            self.files.remove(error_file.to_vec(), |bell| self.watch.watch_files(bell));
        }
    }
}

impl Ranks {
    fn kill(&self, proc: ProcId) {
        self.signal(proc, rlaunch_core::signal::Signal::KILL);
    }

    fn signal(&self, proc: ProcId, sig: rlaunch_core::signal::Signal) {
        let Some(rank) = self.get(proc) else { return };
        let number = i32::from(sig.get());
        // A sweep may have reaped it before the machine knows of its end: then its number may belong to another process.
        let sent = rlaunch_sys::pidfd::signal(&rank.pidfd, 0)
            .and_then(|()| rlaunch_sys::pidfd::signal_group(rank.pid, number));
        match sent {
            Ok(()) => tracing::debug!("{sig} to the group of proc {proc}, pid {}", rank.pid),
            Err(error) => tracing::debug!(%error, "{sig} for proc {proc}, pid {}, was not sent", rank.pid),
        }
    }
}
