//! The edges of the node machine: its contact with the kernel. Nothing in `perform` waits or fails: outcomes are events.

mod check;
mod client_socket;
mod convert;
mod device_thread;
mod examine;
mod files;
pub(crate) mod lease;
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
pub(crate) mod tpu_facts;
mod watch;
mod worlds;

use crate::AgentSetup;
use crate::clock::now;
use bytes::Bytes;
use rank_table::Ranks;
use rlaunch_core::id::{NodeId, ProcId};
use rlaunch_core::machine::earliest_of;
use rlaunch_core::node::{NodeAction, NodeEvent};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::stream::turn::Broken;
use rlaunch_core::time::{Mono, Span};
use rlaunch_core::wire::beat::Beat;
use rlaunch_core::wire::frame::Flags;
use rlaunch_core::wire::to_node::ToNode;
use rlaunch_core::wire::to_root::{NodeRefusal, ToRoot};
use rlaunch_net::seal::Seal;
use rlaunch_net::{Alarm, Body, Closed, Connection, Early};
use rlaunch_sys::guardian::TempFiles;
use rlaunch_sys::origin::Origin;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long ends of ranks may wait for us while others are being started.
const REST: Duration = Duration::from_millis(2);

/// How long the launcher may take to accept the last words of an agent without a runtime.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long what we have to say at our end may take to go out, if we hear nothing from there.
const OUTLIVED: Span = Span::from_secs(2);

/// Descriptors for which there is room before there are threads: those of some hundred ranks, and as many connections to the store.
const ROOM: RawFd = 4096;

/// The carrier of the stream to the launcher.
#[derive(Debug)]
pub enum Edge {
    /// A socket.
    Socket(OwnedFd),
    /// The pipes of sshd or srun, on another machine.
    Halves {
        /// From the launcher.
        input: OwnedFd,
        /// To the launcher.
        output: OwnedFd,
    },
    /// A sealed edge: its messages are encrypted after the handshake.
    Sealed(Box<Self>, Box<Seal>),
}

impl Edge {
    /// The same edge, with this seal.
    #[must_use]
    pub fn sealed(self, seal: Option<Box<Seal>>) -> Self {
        match seal {
            Some(seal) => Self::Sealed(Box::new(self), seal),
            None => self,
        }
    }

    pub(crate) fn early(self) -> Early<ToNode> {
        match self {
            Self::Socket(fd) => Early::new(fd),
            Self::Halves { input, output } => Early::from_halves(input, output),
            Self::Sealed(edge, seal) => edge.early().sealed(*seal),
        }
    }
}

/// The stream to the launcher, before and after there is a runtime.
enum Link {
    Early(Early<ToNode>),
    Live(Connection<ToNode>),
    Gone,
}

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
    pub(crate) fn new(setup: AgentSetup) -> io::Result<Self> {
        rlaunch_sys::origin::raise_nofile(&setup.origin);
        let (node, mut link) = (setup.node, setup.edge.early());
        let sets =
            watch::Watch::new(&setup.origin, setup.guardian).and_then(|watch| Ok((watch, pump::Pump::new(node)?)));
        let (watch, pump) = sets.inspect_err(|error| last_word(node, &mut link, "watch what happens", error))?;
        rlaunch_sys::fd::make_room(&watch.set, ROOM);
        if let Some(line) = &setup.lease {
            let watched = watch.watch_guardian_signals(line);
            watched.inspect_err(|error| last_word(node, &mut link, "watch what happens", error))?;
        }
        Ok(Self {
            link: Link::Early(link),
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

    /// The launcher was heard of: takes the caller's CPUs, before there are threads.
    pub(crate) fn settle_down(&self) {
        self.origin.restore_cpus();
    }

    /// Whether something is to be waited for besides the launcher, a rank or the end of what is swept: time to build the
    /// runtime.
    pub(crate) fn has_work(&self) -> bool {
        !self.ranks.is_empty() || self.sweep.deadline().is_some()
    }

    /// The next frame, before there is a runtime. `None`: nothing had come by `deadline`, or before something else happened.
    pub(crate) fn recv_early(&mut self, deadline: Option<Mono>) -> Result<Option<Body<ToNode>>, Closed> {
        let Link::Early(link) = &mut self.link else { return Err(Closed::Eof) };
        let time = deadline.map(|at| Duration::from_nanos(at.since(now()).nanos()));
        let frame = link.recv_beside(&self.watch.set, time)?;
        if frame.is_none() {
            watch::look(self);
        }
        Ok(frame.map(|frame| frame.body))
    }

    /// Whether the guardian is gone.
    pub(crate) fn is_unguarded(&self) -> bool {
        self.watch.is_unguarded()
    }

    /// Wakes the guardian before we end: a suspended guardian would remain otherwise, and see neither our end nor our last report.
    pub(crate) fn wake_guardian(&self) {
        self.watch.wake_guardian();
    }

    /// Finishes the sandbox that is being set up, unless there is something of the launcher's to be read meanwhile; whether
    /// it did.
    pub(crate) fn set_up_sandbox(&mut self) -> bool {
        !matches!(&self.link, Link::Early(link) if link.has_frame()) && sandbox::finish(self)
    }

    /// Writes what `perform` queued, before there is a runtime. Nothing waits for it: what is not taken goes out while we
    /// read, or under the runtime.
    pub(crate) fn flush_early(&mut self) {
        if let Link::Early(link) = &mut self.link
            && link.flush().is_err()
        {
            self.lose_link();
        }
    }

    /// The same for the last words of an agent that never gets a runtime: who does not take them goes without.
    pub(crate) fn flush_last(&mut self) {
        if let Link::Early(link) = &mut self.link {
            flush_last(link);
        }
    }

    /// Hands everything to the runtime that was entered.
    pub(crate) fn go_live(&mut self) -> io::Result<()> {
        self.watch.go_live()?;
        self.pump.go_live()?;
        self.logs.go_live()?;
        self.listener.as_mut().map_or(Ok(()), tcpstore_listener::TcpStoreListener::go_live)?;
        self.worlds.go_live()?;
        self.mpi.as_mut().map_or(Ok(()), |mpi| mpi.go_live())?;
        self.store.as_mut().map_or(Ok(()), store::Store::go_live)?;
        let Link::Early(link) = std::mem::replace(&mut self.link, Link::Gone) else { return Ok(()) };
        let (link, done) = match link.into_connection() {
            Ok(link) => (Link::Live(link), Ok(())),
            Err((link, error)) => (Link::Early(*link), Err(error)),
        };
        self.link = link;
        done
    }

    /// The last word of an agent that has no runtime.
    pub(crate) fn give_up(&mut self, step: &str, error: &io::Error) {
        if let Link::Early(link) = &mut self.link {
            last_word(self.node, link, step, error);
        }
        self.wake_guardian();
    }

    /// Takes an event that was read before there is a runtime. It says more than that something could not be written.
    pub(crate) fn happened(&mut self, event: NodeEvent) {
        self.events.push_front(event);
    }

    /// Returns the next event; `None`: nothing more for now.
    pub(crate) fn take(&mut self) -> Option<NodeEvent> {
        self.events.pop_front()
    }

    /// The exit code, once the last action was asked for and the last message was written.
    pub(crate) fn finished(&self) -> Option<u8> {
        let (code, asked) = self.finish?;
        let written = match &self.link {
            Link::Live(link) => link.is_flushed() || (self.deaf && asked + OUTLIVED <= now()),
            Link::Early(_) | Link::Gone => true,
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
    /// rings at a failure and when it has nothing to do, end the rest at once.
    fn rest(&self) {
        if let (true, true, Link::Live(link), Some(port)) =
            (self.stirred, self.ranks.launching(), &self.link, self.sandbox.spawn_port())
        {
            rlaunch_sys::fd::readable_within(&[link.as_fd(), port.bell().as_fd()], REST);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Mono>) -> Poll<()> {
        self.poll_flush(cx);
        sandbox::finish(self);
        watch::poll(self, cx);
        renew::finish(self);
        sessions::poll(self, cx);
        metadata::poll(self, cx);
        preempt_probe::poll(self);
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
        while let (Link::Live(link), false) = (&mut self.link, self.deaf) {
            match link.poll_recv(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(frame)) => match frame.body {
                    Body::Message(ToNode::Whose(question)) => tcpstore_listener::asked(self, &question),
                    Body::Message(ToNode::Theirs(answer)) => tcpstore_listener::answered(self, &answer),
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
        if let Link::Live(link) = &mut self.link
            && let Poll::Ready(Err(error)) = link.poll_flush(cx)
        {
            tracing::debug!(%error, "the edge to the launcher cannot be written");
            self.lose_link();
        }
    }

    fn lose_link(&mut self) {
        self.link = Link::Gone;
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
            Link::Early(link) => link.send(self.node, message),
            Link::Live(link) => link.send(self.node, message),
            Link::Gone => Ok(()),
        };
        if sent.is_err() {
            self.lose_link();
        }
    }

    fn beat(&mut self, beat: Beat) {
        let sent = match &mut self.link {
            Link::Early(link) => link.beat(self.node, beat),
            Link::Live(link) => link.beat(self.node, beat),
            Link::Gone => Ok(()),
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

/// Why an agent cannot continue: it would look like a crash otherwise.
pub(crate) fn last_word(node: NodeId, link: &mut Early<ToNode>, step: &str, error: &io::Error) {
    let why = NodeRefusal::Resource { errno: error.raw_os_error().unwrap_or(0), step: OsBytes::from(step) };
    let _overflow = link.send(node, &ToRoot::Refused(why));
    flush_last(link);
}

fn flush_last(link: &mut Early<ToNode>) {
    match link.flush_within(LAST_WORDS) {
        Ok(true) => {}
        Ok(false) => tracing::warn!("the launcher does not take our last words"),
        Err(error) => tracing::debug!(%error, "the edge to the launcher cannot be written"),
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
