//! Where the job machine meets the kernel. Nothing in `perform` waits or fails: outcomes are events.

mod guardian;
mod input;
mod nodes;
mod output;
mod sink;

use crate::cli::{Events, Plan, Verbosity};
use crate::view::Tone;
use crate::view::say::say;
use anyhow::Context as _;
use input::Input;
use nodes::Nodes;
use output::Output;
use rlaunch_core::exit::Ending;
use rlaunch_core::id::NodeId;
use rlaunch_core::job::{CloseReason, HostFailure, JobAction, JobEvent};
use rlaunch_core::machine::earliest;
use rlaunch_core::signal::Signal;
use rlaunch_core::spec::StdinPlan;
use rlaunch_core::time::{Mono, Span};
use rlaunch_net::{Alarm, Body, Closed};
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::signals::SignalFd;
use sink::Sink;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// EPIPE, errno(3).
const EPIPE: i32 = 32;

/// The only node of a local job.
const NODE: NodeId = NodeId::new(0);
/// A job that runs for longer than this is worth giving memory back for.
const SETTLED: Span = Span::from_millis(100);

/// `CLOCK_BOOTTIME`, the machines' clock.
pub(crate) fn now() -> Mono {
    Mono::from_nanos(rlaunch_sys::clock::boottime())
}

/// What the edges are made of.
pub(crate) struct Setup<'a> {
    pub(crate) edge: OwnedFd,
    pub(crate) lifeline: OwnedFd,
    pub(crate) plan: &'a Plan,
    pub(crate) origin: &'a Origin,
}

/// All that the launcher holds of the kernel.
pub(crate) struct Edges {
    nodes: Nodes,
    signals: Signals,
    bell: Doorbell,
    live_bell: Option<AsyncFd<Doorbell>>,
    output: Output,
    input: Input,
    log: Option<Sink>,
    log_told: bool,
    tone: Tone,
    terminal: bool,
    events: VecDeque<JobEvent>,
    alarm: Alarm,
    finish: Option<(Ending, Mono)>,
    /// When the memory that the launch has used is given back.
    trim_at: Option<Mono>,
}

enum Signals {
    Waiting(SignalFd),
    Live(AsyncFd<SignalFd>),
    Lost,
}

impl Edges {
    pub(crate) fn new(setup: Setup<'_>) -> anyhow::Result<Self> {
        let Plan { job, presentation, .. } = setup.plan;
        let bell = Doorbell::new().context("cannot make an eventfd")?;
        let log = match &presentation.events {
            Some(target) => {
                // A FIFO waits for its reader.
                let log = setup.origin.interruptibly(|| open_log(target))?;
                Some(Sink::new("events", log, bell.clone()))
            }
            None => None,
        };
        let mut output = Output::new(job, &bell);
        let mut nodes = Nodes::new(&job.placement, setup.edge, setup.lifeline);
        let mut events = VecDeque::new();
        let first = job.placement.seats.first().map_or(NODE, |seat| seat.node);
        if let Some(up_to) = output.first_grant() {
            nodes.ids().for_each(|node| nodes.grant(node, up_to, &mut events));
        }
        Ok(Self {
            nodes,
            signals: Signals::Waiting(SignalFd::new(&setup.origin.watched()).context("cannot listen to signals")?),
            input: Input::new(job.stdin == StdinPlan::Rank0, first, bell.clone()),
            bell,
            live_bell: None,
            output,
            log,
            log_told: false,
            tone: tone(presentation.verbosity),
            terminal: rlaunch_sys::tty::is_terminal(2),
            events,
            alarm: Alarm::default(),
            finish: None,
            trim_at: Some(now() + SETTLED),
        })
    }

    /// Writes the first messages, before there is a runtime.
    pub(crate) fn flush_early(&mut self) {
        self.nodes.flush_early(&mut self.events);
    }

    /// Hands everything to the runtime that was entered.
    pub(crate) fn go_live(&mut self) -> io::Result<()> {
        self.nodes.go_live()?;
        if let Signals::Waiting(signals) = std::mem::replace(&mut self.signals, Signals::Lost) {
            self.signals = Signals::Live(rlaunch_net::ready::readable(signals)?);
        }
        self.live_bell = Some(rlaunch_net::ready::readable(self.bell.clone())?);
        Ok(())
    }

    /// What has happened next; `None`: nothing more for now.
    pub(crate) fn take(&mut self) -> Option<JobEvent> {
        self.events.pop_front()
    }

    /// How rlaunch ends, once its own last words are written.
    pub(crate) fn finished(&mut self) -> Option<Ending> {
        self.settle_log();
        let (ending, until) = self.finish?;
        let written = self.output.is_idle() && self.log.as_ref().is_none_or(Sink::is_idle);
        (written || now() >= until).then_some(ending)
    }

    /// Waits until something has happened, or until `deadline`. Cancel-safe: all state is in `self`.
    pub(crate) async fn wait(&mut self, deadline: Option<Mono>) {
        poll_fn(|cx| self.poll(cx, deadline)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Mono>) -> Poll<()> {
        // First, because input waits for room: room that is made after it was asked wakes nobody.
        self.nodes.poll_flush(cx);
        self.poll_signals(cx);
        self.poll_bell(cx);
        self.poll_recv(cx);
        self.nodes.poll_lifelines(cx, &mut self.events);
        self.poll_input(cx);
        self.settle_output();
        self.nodes.poll_flush(cx);
        if !self.events.is_empty() || self.finished().is_some() {
            return Poll::Ready(());
        }
        if self.trim_at.is_some_and(|at| at <= now()) {
            self.trim_at = None;
            rlaunch_sys::origin::trim_memory();
        }
        let finish = earliest(self.finish.map(|(_, until)| until), self.trim_at);
        let deadline = earliest(earliest(deadline, finish), self.output.deadline());
        deadline.map_or(Poll::Pending, |at| self.alarm.poll(cx, at.since(now())))
    }

    fn poll_signals(&mut self, cx: &mut Context<'_>) {
        let Signals::Live(signals) = &self.signals else { return };
        while let Poll::Ready(Ok(mut guard)) = signals.poll_read_ready(cx) {
            match guard.get_inner().next() {
                Some(number) => self.events.extend(Signal::new(number).map(JobEvent::Signal)),
                None => guard.clear_ready(),
            }
        }
    }

    /// A thread of ours has something to tell.
    fn poll_bell(&mut self, cx: &mut Context<'_>) {
        let Some(bell) = &self.live_bell else { return };
        while let Poll::Ready(Ok(mut guard)) = bell.poll_read_ready(cx) {
            guard.get_inner().clear();
            guard.clear_ready();
        }
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) {
        for node in self.nodes.ids() {
            while let Some(body) = self.nodes.poll_recv(node, cx, &mut self.events) {
                match body {
                    Body::Message(msg) => self.events.push_back(JobEvent::Message { node, msg }),
                    Body::Data { stream, flags, bytes } => {
                        self.output.arrived(stream, flags, bytes, &mut self.events);
                    }
                    Body::Credit(up_to) => self.input.grant(up_to),
                    Body::Beat(beat) => self.events.push_back(JobEvent::Beat { node, beat }),
                }
            }
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) {
        if let Some(link) = self.nodes.live(self.input.node()) {
            self.input.poll(cx, link);
        }
    }

    /// Takes in what the writers have done, and grants credit for it.
    fn settle_output(&mut self) {
        let grant = self.output.settle(&mut self.events);
        if let Some(up_to) = grant {
            self.nodes.grant(NODE, up_to, &mut self.events);
        }
    }

    /// Tells once that the event log cannot be written. A reader of it that left has what it wanted.
    fn settle_log(&mut self) {
        if let Some(errno) = self.log.as_ref().and_then(|log| log.progress().failed)
            && !std::mem::replace(&mut self.log_told, true)
            && errno != EPIPE
        {
            self.output.say(crate::view::say::log_failed(errno));
        }
    }

    /// Does what the machine asks for.
    pub(crate) fn perform(&mut self, action: JobAction) {
        tracing::trace!(?action, "perform");
        match action {
            JobAction::Connect { node } | JobAction::GiveUp { node } => {
                let why = HostFailure { why: "no way to reach it".into(), ..HostFailure::default() };
                self.events.push_back(JobEvent::HostFailed { node, why });
            }
            JobAction::Send { node, msg } => self.nodes.send(node, &msg, &mut self.events),
            JobAction::Beat { node, beat } => self.nodes.beat(node, beat, &mut self.events),
            JobAction::CloseEdge { node } => self.nodes.close(node),
            JobAction::Emit(record) => {
                if let Some(log) = &mut self.log {
                    log.push(rlaunch_core::events::line(&record).into(), 0);
                }
            }
            JobAction::Say(sentence) => {
                if let Some(text) = say(&sentence, self.tone, self.terminal) {
                    self.output.say(text);
                }
            }
            JobAction::DrainOutput => self.output.drain(),
            JobAction::AbandonOutput => self.output.abandon(),
            JobAction::Finish(ending) => self.finish = Some((ending, now() + self.output.patience())),
        }
    }
}

fn why(error: &Closed) -> CloseReason {
    match error {
        Closed::Eof => CloseReason::Eof,
        Closed::Truncated | Closed::Frame(_) | Closed::Message => CloseReason::Malformed,
        Closed::Io(error) => CloseReason::Failed(error.raw_os_error().unwrap_or(0)),
    }
}

const fn tone(verbosity: Verbosity) -> Tone {
    match verbosity {
        Verbosity::Quiet => Tone::Quiet,
        Verbosity::Normal => Tone::Normal,
        Verbosity::Verbose | Verbosity::Debug => Tone::Verbose,
    }
}

fn open_log(target: &Events) -> anyhow::Result<OwnedFd> {
    match target {
        Events::File(path) => {
            let name = std::ffi::OsStr::from_bytes(path);
            let file = std::fs::File::create(name).with_context(|| format!("cannot write the event log {path}"))?;
            Ok(file.into())
        }
        Events::Fd(number) => i32::try_from(*number)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
            .and_then(rlaunch_sys::fd::duplicate)
            .with_context(|| format!("cannot write the event log to descriptor {number}")),
    }
}
