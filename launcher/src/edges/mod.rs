//! The edges of the job machine: its contact with the kernel. Nothing in `perform` waits or fails: outcomes are events.

mod discover;
mod guardian;
mod hook_runner;
mod input;
mod ledger;
mod log;
mod nodes;
mod output;
mod part;
mod parting;
mod peer_directory;
pub(crate) mod pool;
mod ready;
mod remote;
mod sink;
mod store;
mod trace;

use crate::bootstrap::Setting;
use crate::cli::{Plan, Presentation, Reach, Verbosity};
use crate::colour;
use crate::view::Tone;
use crate::view::log_view::LogView;
use crate::view::notices::{By, carrier_said, no_message};
use crate::view::progress::{Onto, Progress};
use anyhow::Context as _;
use input::Input;
use log::Log;
use nodes::Nodes;
use output::Output;
use part::{Outcome, Part as _, Parts};
use parting::{Parting, Push};
use pool::Warner;
use remote::Remote;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::earliest_of;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::events::{CloseReason, Record};
use rlaunch_core::job::{JobAction, JobEvent};
use rlaunch_net::{Alarm, Body, Closed, Frame};
use rlaunch_plan::bootstrap::Target;
use rlaunch_plan::hostlist::Host;
use rlaunch_plan::place::{Node, Placement};
use rlaunch_protocol::ended;
use rlaunch_protocol::wire::to_root::ToRoot;
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::guardian::Lifeline;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::signals::SignalFd;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// Time without news of ranks after which memory is given back: the next news may come in hours.
const TRIM_AFTER: Span = Span::from_millis(100);

/// `CLOCK_BOOTTIME`, the machines' clock.
pub(crate) fn now() -> Mono {
    Mono::from_nanos(rlaunch_sys::clock::boottime())
}

/// The parts of the edges.
pub(crate) struct Setup<'a> {
    pub(crate) edge: OwnedFd,
    pub(crate) lifeline: Lifeline,
    pub(crate) plan: &'a Plan,
    pub(crate) origin: &'a Origin,
    /// The way to each host, where there are hosts besides this one.
    pub(crate) remote: Option<(Vec<Option<Target>>, Setting)>,
    /// The pool that receives warnings.
    pub(crate) pool: Option<Warner>,
}

/// All that the launcher holds of the kernel.
pub(crate) struct Edges {
    nodes: Nodes,
    store: store::Store,
    /// Which host has which address.
    directory: peer_directory::Directory,
    signals: AsyncFd<SignalFd>,
    bell: AsyncFd<Doorbell>,
    output: Output,
    input: Input,
    /// Lines on stderr for records.
    log_view: LogView,
    /// The sender of the last signal.
    by: By,
    /// Name of this host and, by node, names of all hosts, for diagnostics.
    names: (String, Vec<String>),
    events: VecDeque<JobEvent>,
    alarm: Alarm,
    finish: Option<(Ending, Mono)>,
    /// The wait for carriers then.
    parting: Option<Parting>,
    /// When the memory that the last news needed is given back.
    trim_at: Option<Mono>,
    /// How far the launch is, where that is shown.
    progress: Option<Progress>,
    parts: Parts,
    /// How discovered hosts are reached.
    reach: Reach,
}

impl Edges {
    /// Within a runtime.
    pub(crate) fn new(setup: Setup<'_>) -> anyhow::Result<Self> {
        let Plan { job, presentation, hooks, .. } = setup.plan;
        let bell = Doorbell::new().context("cannot make an eventfd")?;
        let open = |target| setup.origin.interruptibly(|| Log::open(target, &bell));
        let log = presentation.events.as_ref().map(open).transpose()?;
        let files = output::Files::open(&presentation.files, setup.origin)?;
        let mut output = Output::new(job, files, &bell);
        let local = job.placement.nodes.iter().position(|node| node.local);
        let local = local.and_then(|n| u32::try_from(n).ok()).map(NodeId::new);
        let progress = progress(setup.plan, setup.remote.is_some());
        let remote =
            setup.remote.map_or_else(Remote::none, |(plans, setting)| Remote::new(plans, setting, *setup.origin));
        let credit = output.first_grants();
        let mut events = VecDeque::new();
        let nodes = Nodes::new(&credit, (local, setup.edge, setup.lifeline), remote, &mut events);
        let nodes = nodes.context("cannot watch the agent of this host")?;
        let signals = SignalFd::new(&setup.origin.watched()).and_then(rlaunch_net::ready::readable);
        let reader = job.placement.ranks.first().map_or(NodeId::new(0), |placed| placed.node);
        let mut store = store::Store::new(reader);
        store.place(&job.placement);
        let names = names(&job.placement);
        let discover = discover::Discover::new(&setup.plan.discover, setup.origin);
        let hooks = hook_runner::Hooks::new(hooks, &job.placement, names.1.clone(), setup.origin);
        let short = job.placement.nodes.iter().map(|node| node.host.name.clone());
        let shows_stderr =
            matches!(presentation.files, [_, None]) && job.apps.iter().all(|app| app.base.logs.is_none());
        let log_view = LogView::new(short, tone(presentation.verbosity), rlaunch_sys::tty::is_terminal(2))
            .of_job(presentation.cleans, presentation.lead_has_more)
            .of_streams(shows_stderr, job.lead);
        Ok(Self {
            nodes,
            store,
            directory: peer_directory::Directory::default(),
            signals: signals.context("cannot listen to signals")?,
            input: Input::new(job.settings.output.stdin, &job.placement, bell.clone()),
            bell: rlaunch_net::ready::readable(bell).context("cannot watch the job")?,
            output,
            log_view,
            by: By::Sender,
            names,
            events,
            alarm: Alarm::default(),
            finish: None,
            parting: None,
            trim_at: None,
            progress,
            parts: Parts {
                log,
                hooks: hooks.context("cannot start what ends the commands of --on-restart and --on-exit")?,
                discover: discover.context("cannot start what ends the command of --discover")?,
                pool: pool::Pool::new(setup.pool).context("cannot watch the pool")?,
            },
            reach: setup.plan.reach.clone(),
        })
    }

    /// Returns the next event; `None`: nothing more for now.
    pub(crate) fn take(&mut self) -> Option<JobEvent> {
        self.events.pop_front()
    }

    /// How rlaunch ends, once its own last words are written.
    pub(crate) fn finished(&mut self) -> Option<Ending> {
        let (ending, until) = self.finish.filter(|_| self.parts.is_over())?;
        self.parts.hooks.dismiss();
        let is_written = self.output.is_idle() && self.parts.log.as_ref().is_none_or(Log::is_idle);
        let is_alone = !self.nodes.has_carriers() || self.parting.as_ref().is_none_or(|parting| parting.is_over(now()));
        ((is_written || now() >= until) && is_alone).then(|| {
            self.nodes.dismiss();
            ending
        })
    }

    /// Waits until something has happened, or until `deadline`. Cancel-safe: all state is in `self`.
    pub(crate) async fn wait(&mut self, deadline: Option<Mono>) {
        poll_fn(|cx| self.poll(cx, deadline)).await;
        if self.events.is_empty() && self.finish.is_none() {
            // Something is due. A process that was stopped and continues has not yet asked the kernel for events of that time: SIGCONT
            // ends epoll_wait(2) with EINTR (signal(7)), and the timers look first.
            tokio::task::yield_now().await;
            poll_fn(|cx| {
                let _nothing_more = self.poll(cx, deadline);
                Poll::Ready(())
            })
            .await;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Mono>) -> Poll<()> {
        let ready = self.nodes.begin(cx);
        self.poll_signals(cx);
        self.poll_bell(cx);
        ready.into_iter().for_each(|node| self.poll_recv(node));
        self.poll_keepers(cx);
        self.show_progress();
        self.poll_input(cx);
        self.advance_output();
        self.store.poll(&mut self.nodes);
        self.nodes.finish();
        if self.store.has_more(&mut self.nodes) {
            cx.waker().wake_by_ref();
        }
        self.poll_parts(cx);
        self.push_carriers();
        if !self.events.is_empty() || self.finished().is_some() {
            return Poll::Ready(());
        }
        let trims = self.trim_at.take_if(|at| *at <= now()).is_some();
        let deadline = earliest_of(self.deadlines(deadline));
        let polled = deadline.map_or(Poll::Pending, |at| self.alarm.poll(cx, at.since(now())));
        if trims {
            // Last: code that runs after this is mapped again.
            rlaunch_sys::memory::give_back();
        }
        polled
    }

    /// All that an edge waits for, and `deadline`, the machine's.
    fn deadlines(&self, deadline: Option<Mono>) -> [Option<Mono>; 9] {
        [
            deadline,
            self.finish.filter(|_| self.parts.is_over()).map(|(_, until)| until),
            self.parting.as_ref().filter(|_| self.nodes.has_carriers()).map(Parting::deadline),
            self.parts.deadline(),
            self.trim_at,
            self.progress.as_ref().and_then(Progress::deadline),
            self.output.deadline(),
            self.nodes.deadline(),
            self.store.deadline(),
        ]
    }

    /// Ends carriers that outlive the job.
    fn push_carriers(&mut self) {
        while let Some(push) = self.parting.as_mut().and_then(|parting| parting.pop(now())) {
            self.nodes.end_carriers(push == Push::Kill);
        }
    }

    fn poll_signals(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(mut guard)) = self.signals.poll_read_ready(cx) {
            match guard.get_inner().next_typed() {
                Some((number, typed)) => {
                    self.by = if typed { By::Key } else { By::Sender };
                    if self.finish.is_some() {
                        self.parts.signal();
                    }
                    self.events.extend(Signal::new(number).map(JobEvent::Signal));
                }
                None => guard.clear_ready(),
            }
        }
    }

    /// Polls the parts, after messages to the hosts were written.
    fn poll_parts(&mut self, cx: &mut Context<'_>) {
        let waited = !self.parts.is_over();
        let mut out = Outcome::default();
        self.parts.poll(cx, &mut out);
        self.events.extend(out.events);
        if !out.lines.is_empty() {
            self.say(out.lines);
            self.advance_output();
        }
        if let Some((_, until)) = self.finish.as_mut().filter(|_| waited && self.parts.is_over()) {
            *until = now() + self.output.patience();
        }
    }

    /// A discovered host is reached by this name.
    fn know(&mut self, node: NodeId, host: &Host) {
        match Target::of(host) {
            Ok(target) => self.nodes.know(node, self.reach.over(host, target)),
            // Reaching it fails.
            Err(error) => tracing::warn!(%node, %error, "a discovered host has a name that cannot be reached"),
        }
        let names = &mut self.names.1;
        if names.len() <= node.index() {
            names.resize(node.index() + 1, String::new());
        }
        names.get_mut(node.index()).into_iter().for_each(|name| name.clone_from(&host.name));
        self.parts.know(node, &host.name);
        self.log_view.know(node, &host.name);
    }

    /// Clears the bell that the launcher's other threads ring.
    fn poll_bell(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(mut guard)) = self.bell.poll_read_ready(cx) {
            guard.get_inner().clear();
            guard.clear_ready();
        }
    }

    fn poll_recv(&mut self, node: NodeId) {
        while let Some(Frame { node: of, body }) = self.nodes.poll_recv(node) {
            self.received(node, of, body);
        }
    }

    /// Polls the keepers of edges after messages were received: messages of an agent come before the end of its edge.
    fn poll_keepers(&mut self, cx: &mut Context<'_>) {
        self.nodes.poll_carriers(cx, &mut self.events);
        self.lose_closed();
        self.nodes.poll_guardian(cx, &mut self.events);
        self.lose_closed();
    }

    fn lose_closed(&mut self) {
        while let Some((node, why, words)) = self.nodes.take_closed() {
            if self.finish.is_some() {
                // Its carrier was ended after the job, and its words are about that.
                self.let_go(node);
                continue;
            }
            if !words.is_empty() {
                let host = self.names.1.get(node.index()).map_or("", String::as_str);
                // First: it may be long until the host is known to have ended.
                let text = match why {
                    CloseReason::Carrier(kind, _) => carrier_said(kind, host, &words),
                    CloseReason::Eof | CloseReason::Malformed | CloseReason::Slow | CloseReason::Failed { .. } => {
                        no_message(host, &words)
                    }
                };
                self.say(text);
            }
            self.lose(node, why);
        }
    }

    fn message(&mut self, node: NodeId, msg: ToRoot) {
        let msg = match msg {
            ToRoot::FindOwners(question) => {
                return peer_directory::ask(&mut self.nodes, &self.directory, node, question);
            }
            ToRoot::OwnersFound(answer) => {
                return peer_directory::answer(&mut self.nodes, &self.directory, node, answer);
            }
            ToRoot::Input(news) => return self.input.receive(node, news),
            msg => msg,
        };
        if let ToRoot::Hello(hello) = &msg {
            self.directory.learn(node, &hello.addresses);
        }
        // Ranks start, or end: more will follow, or nothing for long.
        self.trim_at = Some(now() + TRIM_AFTER);
        self.events.push_back(JobEvent::Message { node, msg });
    }

    /// A frame of a node's; `of` is whom it names.
    fn received(&mut self, node: NodeId, of: NodeId, body: Body<ToRoot>) {
        match body {
            Body::Message(msg) => self.message(node, msg),
            Body::Data { stream, flags, bytes } => self.output.arrived(node, stream, flags, bytes, &mut self.events),
            Body::Credit(up_to) => self.input.grant(node, up_to),
            Body::Beat(beat) => self.events.push_back(JobEvent::Beat { node, beat }),
            Body::Broken(_) => {}
            Body::Store(bytes) => self.store.receive(node, of, &bytes),
            // A guardian on this machine writes them on the lifeline.
            Body::Last(last) => self.events.push_back(nodes::last_words(node, last)),
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) {
        self.input.poll(cx, &mut self.nodes);
        let failed = self.input.take_failure();
        self.events.extend(failed.map(|errno| JobEvent::InputFailed { errno }));
    }

    /// Shows how far the launch is.
    fn show_progress(&mut self) {
        let stages = self.nodes.take_stages();
        let Some(progress) = &mut self.progress else { return };
        stages.into_iter().for_each(|(node, stage)| progress.stage(node, stage));
        let now = now();
        let free = progress.deadline().is_some_and(|at| at <= now) && self.output.is_free();
        if let Some(text) = progress.poll(now, free) {
            self.output.say(text);
        }
    }

    /// A word of our own.
    fn say(&mut self, text: String) {
        let wipe = self.progress.as_mut().and_then(Progress::wipe).unwrap_or_default();
        self.output.say(wipe + &colour::painted(text, self.output.own_fd()));
    }

    /// Writes what has come, takes in what the writers have done, and grants credit for it.
    fn advance_output(&mut self) {
        for (node, up_to) in self.output.advance(&mut self.events) {
            let granted = self.nodes.grant(node, up_to);
            self.unless(granted, node);
        }
        while let Some((node, broken)) = self.output.take_broken() {
            let sent = self.nodes.broken(node, broken);
            self.unless(sent, node);
        }
    }

    fn lose(&mut self, node: NodeId, why: CloseReason) {
        tracing::debug!(%node, ?why, "the edge to the agent has ended");
        self.let_go(node);
        self.events.push_back(JobEvent::EdgeClosed { node, why });
    }

    /// Drops an edge that has ended, whatever ended it: nothing more comes from there.
    fn let_go(&mut self, node: NodeId) {
        self.nodes.close(node);
        self.store.lost(node);
        self.input.lose(node);
        self.output.cut_off(node);
    }

    /// An agent that does not take what it is sent is lost.
    fn unless(&mut self, taken: bool, node: NodeId) {
        if !taken {
            self.lose(node, CloseReason::Slow);
        }
    }

    /// Shows a record to all that read the log.
    fn record(&mut self, record: &Record) {
        trace::record(record, &self.names.0, &self.names.1);
        let text = self.log_view.text(record, self.by);
        if !text.is_empty() {
            self.say(text);
        }
        self.progress.iter_mut().for_each(|progress| progress.record(&record.what, now()));
        self.parts.receive(record);
    }

    /// Does what the machine asks for.
    pub(crate) fn perform(&mut self, action: JobAction) {
        tracing::trace!(?action, "perform");
        match action {
            JobAction::Connect { node } => {
                // Data that is lost with an edge is lost for good. A first connection replaces no edge.
                if self.nodes.had_edge(node) {
                    self.let_go(node);
                }
                let credit = self.output.first_grant(node);
                self.nodes.connect(node, credit, &mut self.events);
            }
            JobAction::Know { node, host } => self.know(node, &host),
            JobAction::GiveUp { node } => self.nodes.give_up(node, &mut self.events),
            JobAction::Send { node, msg } => {
                let sent = self.nodes.send(node, &msg);
                self.unless(sent, node);
            }
            JobAction::Beat { node, beat } => {
                let sent = self.nodes.beat(node, beat);
                self.unless(sent, node);
            }
            JobAction::WakeAgent { node } => self.nodes.wake(node),
            JobAction::Sever { node } => self.nodes.sever(node),
            JobAction::CloseEdge { node } => self.let_go(node),
            JobAction::Place(placement) => {
                self.input.place(&placement);
                self.store.place(&placement);
                self.parts.place(&placement);
                self.output.place(placement);
            }
            JobAction::Home { node, namespace } => self.store.begin(node, namespace),
            JobAction::Ended { group, rank, ended } => self.store.ended(ended::key(&group, rank.get()), ended),
            JobAction::Homeless { namespace } => {
                self.store.end(namespace);
                self.progress.iter_mut().for_each(|progress| progress.on_world_end(namespace));
            }
            JobAction::Emit(record) => self.record(&record),
            JobAction::DrainOutput => self.output.drain(),
            JobAction::AbandonOutput => self.output.abandon(),
            JobAction::Finish(ending) => {
                self.parts.stop();
                self.finish = Some((ending, now() + self.output.patience()));
                self.parting = Some(Parting::new(now(), self.nodes.carrier_patience()));
            }
        }
    }
}

/// The display of progress, if there is one: not beside ssh's questions, nor among diagnostics.
fn progress(plan: &Plan, is_remote: bool) -> Option<Progress> {
    let Presentation { verbosity, .. } = &plan.presentation;
    if *verbosity == Verbosity::Quiet || plan.reach.prompt {
        return None;
    }
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let traced = tracing::enabled!(tracing::Level::ERROR);
    let columns = rlaunch_sys::tty::columns(2).filter(|_| !dumb && !traced);
    let onto = columns.map_or(Onto::Lines, |columns| Onto::Terminal(columns.into()));
    let known = plan.job.placement.nodes.iter().filter(|node| is_remote && !node.is_unknown());
    let names = known.map(|node| node.host.name.clone());
    Some(Progress::new(names, onto, now()))
}

/// Name of this host, and names of a job's hosts.
fn names(placement: &Placement) -> (String, Vec<String>) {
    let own = String::from_utf8_lossy(&rlaunch_sys::facts::host::hostname()).into_owned();
    let name = |node: &Node| if node.local { own.clone() } else { node.host.name.clone() };
    let all = placement.nodes.iter().map(name).collect();
    (own, all)
}

fn why(error: &Closed) -> CloseReason {
    match error {
        Closed::Eof | Closed::Truncated => CloseReason::Eof,
        // The agent ended without having read all that we sent.
        Closed::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => CloseReason::Eof,
        Closed::Frame { .. } | Closed::Message | Closed::Seal => CloseReason::Malformed,
        Closed::Io(error) => CloseReason::Failed { errno: error.raw_os_error().unwrap_or(0) },
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
