//! Where the job machine meets the kernel. Nothing in `perform` waits or fails: outcomes are events.

mod guardian;
mod input;
mod ledger;
mod log;
mod output;
mod sink;
mod trace;

use crate::cli::{Plan, Verbosity};
use crate::view::Tone;
use crate::view::say::say;
use anyhow::Context as _;
use guardian::Guardian;
use input::Input;
use log::Log;
use output::Output;
use rlaunch_core::exit::Ending;
use rlaunch_core::id::NodeId;
use rlaunch_core::job::{CloseReason, JobAction, JobEvent};
use rlaunch_core::machine::earliest;
use rlaunch_core::signal::Signal;
use rlaunch_core::spec::StdinPlan;
use rlaunch_core::time::{Mono, Span};
use rlaunch_core::wire::to_node::ToNode;
use rlaunch_core::wire::to_root::ToRoot;
use rlaunch_net::{Alarm, Body, Closed, Connection, Early};
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::guardian::Lifeline;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::signals::SignalFd;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

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
    pub(crate) lifeline: Lifeline,
    pub(crate) plan: &'a Plan,
    pub(crate) origin: &'a Origin,
}

enum Link {
    Early(Early<ToRoot>),
    Live(Connection<ToRoot>),
    Gone,
}

/// All that the launcher holds of the kernel.
pub(crate) struct Edges {
    link: Link,
    guardian: Guardian,
    signals: Signals,
    bell: Doorbell,
    live_bell: Option<AsyncFd<Doorbell>>,
    output: Output,
    input: Input,
    log: Option<Log>,
    tone: Tone,
    terminal: bool,
    /// This host's name, for diagnostics.
    host: String,
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
        let open = |target| setup.origin.interruptibly(|| Log::open(target, &bell));
        let log = presentation.events.as_ref().map(open).transpose()?;
        let mut output = Output::new(job, &bell);
        let mut link = Early::new(UnixStream::from(setup.edge));
        if let Some(up_to) = output.first_grant() {
            link.grant(NODE, up_to)?;
        }
        Ok(Self {
            link: Link::Early(link),
            guardian: Guardian::new(setup.lifeline),
            signals: Signals::Waiting(SignalFd::new(&setup.origin.watched()).context("cannot listen to signals")?),
            input: Input::new(job.stdin == StdinPlan::Rank0, bell.clone()),
            bell,
            live_bell: None,
            output,
            log,
            tone: tone(presentation.verbosity),
            terminal: rlaunch_sys::tty::is_terminal(2),
            host: String::from_utf8_lossy(&rlaunch_sys::facts::host::hostname()).into_owned(),
            events: VecDeque::new(),
            alarm: Alarm::default(),
            finish: None,
            trim_at: Some(now() + SETTLED),
        })
    }

    /// Writes the first messages, before there is a runtime. An agent that does not take all of them is not waited for: no
    /// signal reaches us now. The rest goes out under the runtime.
    pub(crate) fn flush_early(&mut self) {
        if let Link::Early(link) = &mut self.link
            && let Err(error) = link.flush()
        {
            // What the agent said before it ended, its count above all, is still to be read.
            tracing::debug!(%error, "the edge to the agent cannot be written");
        }
    }

    /// Hands everything to the runtime that was entered.
    pub(crate) fn go_live(&mut self) -> io::Result<()> {
        if let Link::Early(link) = std::mem::replace(&mut self.link, Link::Gone) {
            self.link = Link::Live(link.into_connection().map_err(|(_, error)| error)?);
        }
        if let Signals::Waiting(signals) = std::mem::replace(&mut self.signals, Signals::Lost) {
            self.signals = Signals::Live(rlaunch_net::ready::readable(signals)?);
        }
        self.live_bell = Some(rlaunch_net::ready::readable(self.bell.clone())?);
        self.guardian.go_live()
    }

    /// What has happened next; `None`: nothing more for now.
    pub(crate) fn take(&mut self) -> Option<JobEvent> {
        self.events.pop_front()
    }

    /// How rlaunch ends, once its own last words are written.
    pub(crate) fn finished(&mut self) -> Option<Ending> {
        self.settle_log();
        let (ending, until) = self.finish?;
        let written = self.output.is_idle() && self.log.as_ref().is_none_or(Log::is_idle);
        (written || now() >= until).then_some(ending)
    }

    /// Waits until something has happened, or until `deadline`. Cancel-safe: all state is in `self`.
    pub(crate) async fn wait(&mut self, deadline: Option<Mono>) {
        poll_fn(|cx| self.poll(cx, deadline)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Mono>) -> Poll<()> {
        // First, because input waits for room: room that is made after it was asked wakes nobody.
        self.poll_flush(cx);
        self.poll_signals(cx);
        self.poll_bell(cx);
        self.poll_recv(cx);
        // After the edge: what the agent said before the guardian ended it comes first.
        self.guardian.poll(cx, &mut self.events);
        self.poll_input(cx);
        self.settle_output();
        self.poll_flush(cx);
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
        while let Link::Live(link) = &mut self.link {
            match link.poll_recv(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(frame)) => match frame.body {
                    Body::Message(msg) => self.events.push_back(JobEvent::Message { node: frame.node, msg }),
                    Body::Data { stream, flags, bytes } => {
                        self.output.arrived(stream, flags, bytes, &mut self.events);
                    }
                    Body::Credit(up_to) => self.input.grant(up_to),
                    Body::Beat | Body::Broken(_) => {}
                    // A guardian on this machine writes them on the lifeline.
                    Body::Last(_) => tracing::debug!("last words on a local edge"),
                },
                Poll::Ready(Err(error)) => self.lose_link(why(&error)),
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) {
        if let Link::Live(link) = &mut self.link
            && let Poll::Ready(Err(error)) = link.poll_flush(cx)
        {
            // What the agent said before it ended is still to be read: its end is told by reading.
            tracing::debug!(%error, "the edge to the agent cannot be written");
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) {
        let Link::Live(link) = &mut self.link else { return };
        self.input.poll(cx, link);
        let failed = self.input.take_failure();
        self.events.extend(failed.map(|errno| JobEvent::InputFailed { errno }));
    }

    /// Writes what has come, takes in what the writers have done, and grants credit for it.
    fn settle_output(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
        let grant = self.output.settle(&mut self.events);
        if let (Some(up_to), Link::Live(link)) = (grant, &mut self.link)
            && link.grant(NODE, up_to).is_err()
        {
            self.lose_link(CloseReason::Slow);
        }
        while let (Some(broken), Link::Live(link)) = (self.output.take_broken(), &mut self.link) {
            if link.broken(NODE, broken).is_err() {
                self.lose_link(CloseReason::Slow);
            }
        }
    }

    /// Tells once that the event log cannot be written.
    fn settle_log(&mut self) {
        if let Some(errno) = self.log.as_mut().and_then(Log::failure) {
            self.output.say(crate::view::say::log_failed(errno));
        }
    }

    fn lose_link(&mut self, why: CloseReason) {
        tracing::debug!(?why, "the edge to the agent has ended");
        self.link = Link::Gone;
        self.output.cut_off();
        self.events.push_back(JobEvent::EdgeClosed { node: NODE, why });
    }

    /// Does what the machine asks for.
    pub(crate) fn perform(&mut self, action: JobAction) {
        tracing::trace!(?action, "perform");
        match action {
            JobAction::Send { node, msg } => self.send(node, &msg),
            JobAction::Rouse { .. } => self.guardian.rouse(),
            JobAction::Sever { .. } => self.guardian.sever(),
            JobAction::Emit(record) => {
                trace::record(&record, &self.host);
                if let Some(log) = &mut self.log {
                    log.push(&record);
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

    fn send(&mut self, node: NodeId, msg: &ToNode) {
        let sent = match &mut self.link {
            Link::Early(link) => link.send(node, msg),
            Link::Live(link) => link.send(node, msg),
            Link::Gone => Ok(()),
        };
        if sent.is_err() {
            self.lose_link(CloseReason::Slow);
        }
    }
}

fn why(error: &Closed) -> CloseReason {
    match error {
        Closed::Eof => CloseReason::Eof,
        // It ended without having read all that we sent.
        Closed::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => CloseReason::Eof,
        Closed::Truncated | Closed::Frame(_) | Closed::Message => CloseReason::Malformed,
        Closed::Io(error) => CloseReason::Failed(error.raw_os_error().unwrap_or(0)),
    }
}

/// How much the words of a job say.
pub(crate) const fn tone(verbosity: Verbosity) -> Tone {
    match verbosity {
        Verbosity::Quiet => Tone::Quiet,
        Verbosity::Normal => Tone::Normal,
        Verbosity::Verbose | Verbosity::Debug => Tone::Verbose,
    }
}
