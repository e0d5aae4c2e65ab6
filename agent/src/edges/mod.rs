//! The edges of the node machine: its contact with the kernel. Nothing in `perform` waits or fails: outcomes are events.

mod busy;
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
mod memory;
pub mod metadata;
mod mpi;
mod next_port;
mod part;
mod port;
mod preempt_probe;
mod probe;
mod proc_searches;
mod processors;
mod pump;
mod rank_table;
mod renew;
mod sandbox;
mod session_kills;
mod sessions;
mod socket_searches;
mod stdin;
mod store;
mod sweep;
mod tcpstore_listener;
mod tcpstores;
#[cfg(test)]
mod testing;
pub(crate) mod tpu_facts;
mod watch;

use crate::AgentSetup;
use crate::clock::now;
use crate::edges::part::{Base, Parts};
use crate::edges::watch::Source;
use busy::Busy;
use link::{Link, last_word, refusal};
use part::Part as _;
use rank_table::Ranks;
use rlaunch_base::id::{ProcId, WorldId};
use rlaunch_base::machine::earliest_of;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::node::{NodeAction, NodeEvent, WorldPlan};
use rlaunch_net::{Alarm, Body, Connection, Early};
use rlaunch_protocol::wire::frame::Flags;
use rlaunch_protocol::wire::to_node::{Start, ToNode};
use rlaunch_protocol::wire::to_root::ToRoot;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long ends of ranks may wait for us while others are being started.
const REST: Duration = Duration::from_millis(2);

/// How long the agent's last messages may take to go out, if the launcher sends nothing.
const OUTLIVED: Span = Span::from_secs(2);

/// Descriptors for which there is room before there are threads: those of some hundred ranks, and as many connections to the store.
const ROOM: RawFd = 4096;

/// All that the agent holds of the kernel: a base that all parts share, and the parts. Everything that needs two parts is done here.
pub(crate) struct Edges {
    base: Base,
    parts: Parts,
    sweep: sweep::Sweep,
    alarm: Alarm,
    /// Something has happened since the last wait.
    stirred: bool,
    /// The launcher sends nothing more, but may still receive.
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
            setup.lease.iter().try_for_each(|line| watch.add(line, Source::GuardianSignals))?;
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
        let base = Base {
            link,
            origin: setup.origin,
            node,
            lease: setup.lease,
            watch,
            ranks: Ranks::default(),
            pump,
            stdin: stdin::Stdin::new(setup.node),
            sandbox: sandbox::Held::default(),
            files: files::Files::default(),
            proc_searches: proc_searches::ProcSearches::default(),
            socket_searches: socket_searches::SocketSearches::default(),
            logs: logs::Logs::default(),
            memory: memory::MemoryWatch::default(),
            temp_files: setup.temp_files,
            no_subreaper: setup.no_subreaper,
            events: VecDeque::new(),
        };
        Ok(Self {
            base,
            parts: Parts::default(),
            sweep: sweep::Sweep::default(),
            alarm: Alarm::default(),
            stirred: false,
            deaf: false,
            finish: None,
        })
    }

    /// Handles the launcher's start message: takes the caller's CPUs, before there are threads. Without diagnostics the agent lets go of
    /// the user's stderr too.
    fn on_start(&mut self, start: &Start) {
        self.base.origin.restore_cpus();
        if start.settings.trace.is_empty() {
            self.release_stdio(&[2]);
        } else {
            rlaunch_net::diagnostics::start(&start.settings.trace);
        }
    }

    /// Lets go of these streams of the caller. After an error the launcher gets a message, and the agent ends.
    pub(crate) fn release_stdio(&mut self, streams: &[i32]) {
        if let Err(error) = rlaunch_sys::fd::release_stdio(streams) {
            self.base.send(&refusal("open /dev/null", &error));
            self.finish = Some((rlaunch_base::exit::LAUNCH, now()));
        }
    }

    /// Wakes the guardian before we end: a suspended guardian would remain otherwise, and see neither our end nor our last report.
    pub(crate) fn wake_guardian(&self) {
        self.base.watch.wake_guardian();
    }

    /// Returns the next event; `None`: nothing more for now.
    pub(crate) fn take(&mut self) -> Option<NodeEvent> {
        self.base.events.pop_front()
    }

    /// The exit code, once the last action was asked for and the last message was written.
    pub(crate) fn finished(&self) -> Option<u8> {
        let (code, asked) = self.finish?;
        let written = match &self.base.link {
            Some(link) => link.is_flushed() || (self.deaf && asked + OUTLIVED <= now()),
            None => true,
        };
        // A file that is to be removed is waited for, but not for long.
        let removed = self.base.files.quiet_at().is_none_or(|at| at <= now());
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
            (self.stirred, self.base.ranks.launching(), &self.base.link, self.base.sandbox.spawn_port())
            && link.is_flushed()
        {
            rlaunch_sys::fd::wait_for_any(&[link.as_fd(), port.bell().as_fd()], Some(REST));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Mono>) -> Poll<()> {
        self.base.poll_flush(cx);
        // While the sandbox is being set up, what has come with the order for it is unpacked.
        if !self.base.link.as_ref().is_some_and(Connection::has_frame) {
            sandbox::finish(self);
        }
        watch::poll(self, cx);
        renew::finish(&mut self.base);
        self.poll_recv(cx);
        self.poll_streams(cx);
        let busy = Busy::with(|| "parts".to_owned());
        self.parts.poll(&mut self.base, cx);
        drop(busy);
        if let Parts { mpi: Some(mpi), store, .. } = &mut self.parts {
            mpi.ask(store.as_mut(), &mut self.base);
        }
        sessions::admit(self);
        self.parts.session_kills.take_over().into_iter().for_each(|proc| self.reap(proc));
        let measured = self.base.proc_searches.take_measured();
        self.base.events.extend(measured.map(|cpu| NodeEvent::RanksMeasured { cpu }));
        sweep::poll(self, now());
        let trims = self.base.memory.poll(now());
        self.base.poll_flush(cx);
        if self.parts.store.as_ref().is_some_and(|store| store.has_more(&self.base.link)) {
            cx.waker().wake_by_ref();
        }
        self.stirred = !self.base.events.is_empty();
        if self.stirred || self.finished().is_some() {
            // Not yet.
            trims.then(|| self.base.memory.give_back());
            return Poll::Ready(());
        }
        let deadline = earliest_of(self.deadlines(deadline));
        let polled = deadline.map_or(Poll::Pending, |at| self.alarm.poll(cx, at.since(now())));
        if trims {
            // Last: code that runs after this is mapped again.
            self.base.events.shrink_to_fit();
            rlaunch_sys::memory::give_back();
        }
        polled
    }

    /// Input and output of the ranks.
    fn poll_streams(&mut self, cx: &mut Context<'_>) {
        let base = &mut self.base;
        base.stdin.poll(cx, &mut base.link);
        base.events.extend(base.stdin.take_failure().map(|errno| NodeEvent::InputFailed { errno }));
        let mpi = &mut self.parts.mpi;
        let last_words: pump::LastWords<'_> =
            &mut |base, id| mpi.as_mut().is_some_and(|mpi| mpi.has_last_words(base, id));
        logs::poll(base, cx, last_words);
        check::receive_checked(base);
        rank_table::go_overdue(base);
        pump::poll(base, cx, last_words);
        stdin::look(base);
    }

    /// All that is waited for, and `deadline`, the machine's.
    fn deadlines(&self, deadline: Option<Mono>) -> [Option<Mono>; 11] {
        let Base { files, .. } = &self.base;
        [
            deadline,
            pump::deadline(&self.base),
            self.parts.deadline(),
            self.sweep.deadline(),
            self.base.memory.deadline(),
            files.deadline(),
            self.base.stdin.deadline(),
            self.base.logs.deadline(),
            self.base.ranks.overdue(),
            files.quiet_at().filter(|_| self.finish.is_some()),
            self.finish.filter(|_| self.deaf).map(|(_, asked)| asked + OUTLIVED),
        ]
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) {
        while let (Some(link), false) = (&mut self.base.link, self.deaf) {
            match link.poll_recv(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(frame)) => match frame.body {
                    Body::Message(ToNode::FindOwners(question)) => {
                        self.parts.tcp_stores.asked(&mut self.base, &question)
                    }
                    Body::Message(ToNode::OwnersFound(answer)) => self.parts.tcp_stores.answered(&answer),
                    Body::Message(ToNode::Start(start)) => {
                        self.on_start(&start);
                        self.base.events.push_back(NodeEvent::FromRoot(ToNode::Start(start)));
                        // The sandbox comes before all that follows.
                        return cx.waker().wake_by_ref();
                    }
                    Body::Message(message) => self.base.events.push_back(NodeEvent::FromRoot(message)),
                    Body::Data { bytes, flags, .. } => self.base.stdin.push(bytes, flags.has(Flags::END)),
                    Body::Credit(up_to) => self.base.pump.window.grant(up_to),
                    Body::Broken(broken) => self.base.pump.lines.broken(broken),
                    Body::Beat(beat) => self.base.events.push_back(NodeEvent::Beat(beat)),
                    Body::Store(bytes) => {
                        self.parts.store.iter_mut().for_each(|store| store.receive_passage(frame.node, &bytes))
                    }
                    Body::Last(_) => {}
                },
                // sshd lets go of our input when the guardian is gone, which it has started; our output it takes to the end.
                Poll::Ready(Err(_)) if self.base.watch.is_unguarded() => {
                    self.deaf = true;
                    // The launcher grants no more credit either: output of the ranks until now is sent at once.
                    self.base.pump.window.grant(u64::MAX);
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "the edge to the launcher has ended");
                    self.base.lose_link();
                }
            }
        }
    }

    /// Does what the machine asks for. Nothing here waits.
    pub(crate) fn perform(&mut self, action: NodeAction) {
        tracing::trace!(?action, "perform");
        let _busy = Busy::with(|| busy::name(&action));
        let Self { base, parts, .. } = self;
        match action {
            NodeAction::Sessions(action) => parts.sessions.perform(base, action),
            NodeAction::WatchPreemption { command } => parts.preempt_probe.perform(base, command.to_vec()),
            NodeAction::Probes(action) => parts.probes.perform(base, action),
            NodeAction::Devices(action) => parts.devices.perform(base, action),
            NodeAction::TcpStores(action) => parts.tcp_stores.perform(base, action),
            NodeAction::Store(action) => parts.store.perform(base, action),
            NodeAction::Examine(action) => parts.examine.perform(base, action),
            NodeAction::KillSessions { procs } => parts.session_kills.perform(base, procs),
            NodeAction::ServeMpi(layout) => {
                parts.mpi.perform(base, layout);
                // Answers that the ranks before have not got.
                parts.store.iter_mut().for_each(|store| drop(store.answers_of_mpi()));
            }
            NodeAction::OpenWorld(plan) => self.open_world(*plan),
            NodeAction::CloseWorld { world } => self.close_world(world),
            NodeAction::SetUpSandbox(start) => sandbox::begin(base, start),
            NodeAction::Renew { port } => renew::begin(self, port),
            NodeAction::Check { app, base: program } => check::perform(base, app, &program),
            NodeAction::Beat(beat) => base.beat(beat),
            NodeAction::Lease(action) => base.lease.iter().for_each(|line| line.perform(&action)),
            NodeAction::MeasureRanks => {
                let pids = base.ranks.by_number().into_keys().collect();
                base.proc_searches.measure(pids, |bell| base.watch.add(bell, Source::ProcSearches));
            }
            NodeAction::Mark { proc, line } => pump::mark(base, proc, &line),
            NodeAction::Spawn { proc, exec } => {
                parts.store.iter_mut().for_each(|store| store.add_rank(exec.delta.world_rank));
                rank_table::spawn(base, proc, *exec);
            }
            NodeAction::Withhold => {
                tracing::debug!("nothing more is started");
                rank_table::withhold(base);
            }
            NodeAction::Signal { proc, sig } => base.ranks.signal(proc, sig),
            NodeAction::Reap { proc } => self.reap(proc),
            NodeAction::CloseStreams { proc } => pump::close_streams(base, proc),
            NodeAction::NameLeft => sweep::name_left(self),
            NodeAction::Sweep => sweep::begin(self),
            NodeAction::ToRoot(message) => {
                if matches!(message, ToRoot::Done { .. }) {
                    // The next job may be given the same port as soon as the launcher has ended.
                    base.sandbox.let_go_of_port();
                    parts.tcp_stores.close_worlds();
                }
                base.send(&message);
            }
            NodeAction::Finish(code) => self.finish = Some((code, now())),
        }
    }

    /// Serves a world besides the first one.
    fn open_world(&mut self, WorldPlan { world, namespace, here, store, mpi }: WorldPlan) {
        let Self { base, parts, .. } = self;
        parts.store.iter_mut().for_each(|store| store.open_world(world, namespace, here));
        if let (Some(listener), Some(layout)) = (&mut parts.mpi, mpi) {
            listener.open_world(world, *layout);
        }
        parts.tcp_stores.open_world(base, world, store.as_ref());
    }

    /// Lets go of all that belongs to a world.
    fn close_world(&mut self, world: WorldId) {
        let Self { base, parts, .. } = self;
        parts.tcp_stores.close_world(world);
        parts.mpi.iter_mut().for_each(|mpi| mpi.close_world(world));
        base.ranks.forget_unused_programs();
        parts.store.iter_mut().for_each(|store| store.close_world(world));
    }

    fn reap(&mut self, proc: ProcId) {
        let Self { base, parts, .. } = self;
        if parts.session_kills.defers(proc) {
            return;
        }
        base.pump.forget(proc);
        parts.mpi.iter_mut().for_each(|mpi| mpi.reaped(&base.ranks, proc));
        let Some(error_file) = base.ranks.reap(proc) else { return };
        if base.sandbox.error_files_are_near() {
            let _no_such_file = rlaunch_sys::facts::error_file::remove(&error_file);
        } else {
            base.files.remove(error_file.to_vec(), |bell| base.watch.add(bell, Source::Files));
        }
    }
}

impl Ranks {
    fn kill(&self, proc: ProcId) {
        self.signal(proc, rlaunch_base::signal::Signal::KILL);
    }

    fn signal(&self, proc: ProcId, sig: rlaunch_base::signal::Signal) {
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
