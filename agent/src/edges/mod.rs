//! Where the node machine meets the kernel. Nothing in `perform` waits or fails: outcomes are events.

mod check;
mod convert;
mod examine;
mod ground;
mod pump;
mod ranks;
mod stdin;
mod sweep;
mod watch;

use crate::Seat;
use crate::early::now;
use bytes::Bytes;
use ranks::Ranks;
use rlaunch_core::id::{NodeId, ProcId};
use rlaunch_core::machine::earliest;
use rlaunch_core::node::{NodeAction, NodeEvent, Scope};
use rlaunch_core::time::Mono;
use rlaunch_core::wire::beat::Beat;
use rlaunch_core::wire::frame::Flags;
use rlaunch_core::wire::to_node::ToNode;
use rlaunch_net::{Alarm, Body, Closed, Connection, Early};
use rlaunch_sys::origin::Origin;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};
use std::time::Duration;

/// The only node of a local job.
const NODE: NodeId = NodeId::new(0);

/// How long ends of ranks may wait for us while others are being started.
const REST: Duration = Duration::from_millis(2);

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
    watch: watch::Watch,
    ranks: Ranks,
    pump: pump::Pump,
    stdin: stdin::Stdin,
    sweep: sweep::Sweep,
    ground: ground::Held,
    examine: examine::Examinations,
    /// Where the guardian reads until when we may live.
    lease: Option<OwnedFd>,
    /// What has happened and was not handled yet.
    events: VecDeque<NodeEvent>,
    alarm: Alarm,
    /// Something has happened since the last wait.
    stirred: bool,
    finish: Option<u8>,
}

impl Edges {
    pub(crate) fn new(seat: Seat) -> io::Result<Self> {
        rlaunch_sys::origin::raise_nofile(&seat.origin);
        let watch = watch::Watch::new(&seat.origin, seat.guardian)?;
        Ok(Self {
            link: Link::Early(Early::new(UnixStream::from(seat.edge))),
            origin: seat.origin,
            lease: seat.lease,
            watch,
            ranks: Ranks::default(),
            pump: pump::Pump::new()?,
            stdin: stdin::Stdin::default(),
            sweep: sweep::Sweep::default(),
            ground: ground::Held::default(),
            examine: examine::Examinations::default(),
            events: VecDeque::new(),
            alarm: Alarm::default(),
            stirred: false,
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

    /// The next frame, before there is a runtime.
    pub(crate) fn recv_early(&mut self) -> Result<Body<ToNode>, Closed> {
        match &mut self.link {
            Link::Early(link) => link.recv().map(|frame| frame.body),
            Link::Live(_) | Link::Gone => Err(Closed::Eof),
        }
    }

    /// Finishes the ground that is being laid, unless there is something of the launcher's to be read meanwhile; whether
    /// it did.
    pub(crate) fn lay_ground(&mut self) -> bool {
        !matches!(&self.link, Link::Early(link) if link.has_frame()) && ground::finish(self)
    }

    /// Writes what `perform` queued, before there is a runtime.
    pub(crate) fn flush_early(&mut self) {
        if let Link::Early(link) = &mut self.link
            && link.flush().is_err()
        {
            self.lose_link();
        }
    }

    /// Hands everything to the runtime that was entered.
    pub(crate) fn go_live(&mut self) -> io::Result<()> {
        if let Link::Early(link) = std::mem::replace(&mut self.link, Link::Gone) {
            self.link = Link::Live(link.into_connection()?);
        }
        self.watch.go_live()?;
        self.pump.go_live()
    }

    /// What has happened next; `None`: nothing more for now.
    pub(crate) fn take(&mut self) -> Option<NodeEvent> {
        self.events.pop_front()
    }

    /// The exit code, once the last action was asked for and the last message was written.
    pub(crate) fn finished(&self) -> Option<u8> {
        let written = match &self.link {
            Link::Live(link) => link.is_flushed(),
            Link::Early(_) | Link::Gone => true,
        };
        self.finish.filter(|_| written)
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
            (self.stirred, self.ranks.launching(), &self.link, self.ground.port())
        {
            rlaunch_sys::fd::readable_within(&[link.as_fd(), port.bell().as_fd()], REST);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Mono>) -> Poll<()> {
        self.poll_flush(cx);
        ground::finish(self);
        watch::poll(self, cx);
        self.poll_recv(cx);
        self.stdin.poll(cx, &mut self.link);
        pump::poll(self, cx);
        examine::settle(self);
        sweep::poll(self, now());
        if self.examine.poll(now()) {
            self.events.shrink_to_fit();
            rlaunch_sys::origin::trim_memory();
        }
        self.poll_flush(cx);
        self.stirred = !self.events.is_empty();
        if self.stirred || self.finished().is_some() {
            return Poll::Ready(());
        }
        let ours = earliest(pump::deadline(self), earliest(self.sweep.deadline(), self.examine.deadline()));
        let deadline = earliest(deadline, ours);
        deadline.map_or(Poll::Pending, |at| self.alarm.poll(cx, at.since(now())))
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) {
        while let Link::Live(link) = &mut self.link {
            match link.poll_recv(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(frame)) => match frame.body {
                    Body::Message(message) => self.events.push_back(NodeEvent::FromRoot(message)),
                    Body::Data { bytes, flags, .. } => self.stdin_arrived(bytes, flags),
                    Body::Credit(up_to) => self.granted(up_to),
                    Body::Beat(beat) => self.events.push_back(NodeEvent::Beat(beat)),
                },
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

    /// Standard input for rank 0.
    pub(crate) fn stdin_arrived(&mut self, bytes: Bytes, flags: Flags) {
        self.stdin.push(bytes, flags.has(Flags::END));
    }

    /// Does what the machine asks for.
    pub(crate) fn perform(&mut self, action: NodeAction) {
        tracing::trace!(?action, "perform");
        match action {
            NodeAction::Ground(plan) => ground::begin(self, plan),
            NodeAction::Check { app, base } => check::perform(self, app, &base),
            NodeAction::Beat(beat) => self.beat(beat),
            NodeAction::Lease(until) => self.renew_lease(until),
            NodeAction::Spawn { proc, exec } => ranks::spawn(self, proc, *exec),
            NodeAction::Signal { proc, sig, scope } => self.ranks.signal(proc, sig, scope),
            NodeAction::Examine { proc, status, depth } => self.examine.ask(proc, status, depth),
            NodeAction::Reap { proc } => self.reap(proc),
            NodeAction::CloseStreams { proc } => pump::close_streams(self, proc),
            NodeAction::Sweep { kill } => sweep::begin(self, kill),
            NodeAction::ToRoot(message) => self.send(&message),
            NodeAction::Finish(code) => self.finish = Some(code),
        }
    }

    fn send(&mut self, message: &rlaunch_core::wire::to_root::ToRoot) {
        let sent = match &mut self.link {
            Link::Early(link) => link.send(NODE, message),
            Link::Live(link) => link.send(NODE, message),
            Link::Gone => Ok(()),
        };
        if sent.is_err() {
            self.lose_link();
        }
    }

    fn beat(&mut self, beat: Beat) {
        let sent = match &mut self.link {
            Link::Early(link) => link.beat(NODE, beat),
            Link::Live(link) => link.beat(NODE, beat),
            Link::Gone => Ok(()),
        };
        if sent.is_err() {
            self.lose_link();
        }
    }

    /// A guardian that does not read has its old deadline, and ends us then: so nothing is to be done about it.
    fn renew_lease(&self, until: Mono) {
        if let Some(line) = &self.lease {
            let _full = rlaunch_sys::fd::write(line.as_raw_fd(), &until.nanos().to_le_bytes());
        }
    }

    fn reap(&mut self, proc: ProcId) {
        if let Some(error_file) = self.ranks.reap(proc) {
            let _no_such_file = rlaunch_sys::facts::error_file::remove(&error_file);
        }
    }
}

impl Ranks {
    fn signal(&self, proc: ProcId, sig: rlaunch_core::signal::Signal, scope: Scope) {
        let Some(rank) = self.get(proc) else { return };
        let number = i32::from(sig.get());
        // A process that has gone meanwhile is no error.
        let _gone = match scope {
            Scope::Proc => rlaunch_sys::pidfd::signal(&rank.pidfd, number),
            // A sweep may have reaped it before the machine hears of its end: then its number may be somebody else's.
            Scope::Group => rlaunch_sys::pidfd::signal(&rank.pidfd, 0)
                .and_then(|()| rlaunch_sys::pidfd::signal_group(rank.pid, number)),
        };
    }
}
