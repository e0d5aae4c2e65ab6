//! The launcher: drives the job machine, writes what the ranks write, and grants credit for it.

use crate::check::Oracle;
use crate::link;
use crate::plan::Plan;
use crate::world::{Ev, World};
use rlaunch_base::id::{NodeId, Std, StreamId};
use rlaunch_base::machine::Machine;
use rlaunch_base::time::{Mono, Span, WallNs};
use rlaunch_core::events::{CloseReason, JobNews, Record, What};
use rlaunch_core::job::{GuardianEnd, Job, JobAction, JobEvent, Setting};
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::frame::{Flags, Lane};
use rlaunch_protocol::wire::guardian_count::Last;
use rlaunch_protocol::wire::to_root::ToRoot;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct Launcher {
    job: Job,
    over: bool,
    pub(crate) stands: bool,
    pub(crate) sinks: Sinks,
    pub(crate) oracle: Oracle,
}

/// Our own stdout and stderr.
#[derive(Default)]
pub(crate) struct Sinks {
    received: BTreeMap<usize, u64>,
    totals: BTreeMap<u32, u64>,
    queued: [u64; 2],
    lost: u64,
    /// Which were given up, by whatever came first.
    given_up: [bool; 2],
    closed: bool,
    failed: bool,
    blocked: bool,
    draining: bool,
    abandoned: bool,
}

impl Sinks {
    pub(crate) fn reader_closes(&mut self) {
        self.closed = true;
    }
    pub(crate) fn fails(&mut self) {
        self.failed = true;
    }
    pub(crate) fn block(&mut self, blocked: bool) {
        self.blocked = blocked;
    }
}

impl Launcher {
    pub(crate) fn new(plan: &Plan) -> Self {
        let setting = Setting { version: "0".into(), host: "sim".into(), ..Setting::default() };
        Self {
            job: Job::new(Mono::from_nanos(0), WallNs(0), &Arc::new(plan.spec.clone()), &setting),
            over: false,
            stands: false,
            sinks: Sinks::default(),
            oracle: Oracle::new(&plan.spec),
        }
    }

    pub(crate) fn has_exited(&self) -> bool {
        self.over
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        if self.over || self.stands { None } else { self.job.poll_timeout() }
    }
}

impl World {
    pub(crate) fn frame_at_launcher(&mut self, frame: &[u8]) {
        if self.host.remote && self.host.link.is_gone() || self.step_keeps(frame) {
            return;
        }
        let node = self.id();
        let Some((header, body)) = self.open(frame) else { return };
        match header.lane {
            Lane::Control if header.is_last_words() => self.last_words(body),
            Lane::Control => {
                if let Some(msg) = self.decode::<ToRoot>(body) {
                    self.notify_job(JobEvent::Message { node, msg });
                }
            }
            Lane::Data => self.output(header.stream, header.flags.has(Flags::END), header.len),
            Lane::Beat if self.host.remote => match Beat::parse(body) {
                Some(beat) => self.notify_job(JobEvent::Beat { node, beat }),
                None => self.fail("a beat is refused".to_owned()),
            },
            Lane::Store | Lane::Credit | Lane::Beat => self.fail(format!("a {:?} frame to the launcher", header.lane)),
        }
    }

    fn last_words(&mut self, body: &[u8]) {
        match Last::parse(body) {
            Some(Last { left, expired: true, named }) => {
                self.notify_job(JobEvent::GuardianEnded { node: self.id(), end: GuardianEnd::Expired { left, named } });
            }
            Some(Last { left, expired: false, named }) => {
                self.notify_job(JobEvent::GuardianEnded { node: self.id(), end: GuardianEnd::Record { left, named } });
            }
            None => self.fail("last words are refused".to_owned()),
        }
    }

    fn output(&mut self, stream: u32, last: bool, bytes: u32) {
        let Some(id) = StreamId::from_raw(stream) else { return self.fail(format!("stream {stream}")) };
        let sinks = &mut self.launcher.sinks;
        *sinks.received.entry(self.node).or_default() += u64::from(bytes);
        let total = sinks.totals.entry(stream).or_default();
        *total += u64::from(bytes);
        let total = *total;
        sinks.queued[usize::from(id.std() == Std::Err)] += u64::from(bytes);
        if last {
            self.notify_job(JobEvent::StreamEnd { stream: id, total });
        }
        self.soon(Ev::Sink);
    }

    pub(crate) fn write_sinks(&mut self) {
        let sinks = &mut self.launcher.sinks;
        if self.launcher.over || (sinks.blocked && !sinks.abandoned) {
            return;
        }
        let mut event = None;
        for which in [0, 1] {
            let bytes = std::mem::take(&mut sinks.queued[which]);
            let gone = sinks.closed || sinks.failed;
            if bytes > 0 && gone && !sinks.abandoned && !std::mem::replace(&mut sinks.given_up[which], true) {
                let (std, errno) = (Self::std(which), 28);
                let closed = JobEvent::ReaderClosed(std);
                event = Some(if sinks.closed { closed } else { JobEvent::SinkFailed { std, errno } });
            }
            if sinks.given_up[which] || sinks.abandoned {
                sinks.lost += bytes;
            }
        }
        // Output that is not written needs no window.
        let window = if sinks.abandoned { 1 << 40 } else { self.plan.window };
        for node in 0..self.count() {
            self.go(node);
            let received = self.launcher.sinks.received.get(&node).copied().unwrap_or(0);
            self.send_to_agent(link::credit(received + window));
        }
        if let Some(event) = event {
            self.notify_job(event);
        }
        self.answer_drain();
    }

    fn answer_drain(&mut self) {
        let sinks = &mut self.launcher.sinks;
        if sinks.queued == [0, 0] && std::mem::take(&mut sinks.draining) {
            let lost = sinks.lost;
            self.soon(Ev::ToJob(JobEvent::OutputDrained { lost, broken: 0 }));
        }
    }

    pub(crate) fn launcher_edge_ends(&mut self) {
        if self.host.remote {
            self.shakes_end();
            if !self.host.link.is_live() || !self.host.link.let_go() {
                return;
            }
            self.close_to_agent();
        }
        self.notify_job(JobEvent::EdgeClosed { node: self.id(), why: CloseReason::Eof });
    }

    /// The launcher's own host, if it is one of several, has as long as the others. Nothing is drawn for it: the jobs of all
    /// seeds stay what they were.
    pub(crate) fn own_host_has_its_time(&mut self) {
        for (site, node) in self.plan.sites.iter().zip((0..).map(NodeId::new)) {
            if site.local && self.plan.sites.len() > 1 {
                let (now, limit) = (Mono::from_nanos(self.now), Span::from_nanos(site.deadline));
                self.launcher.job.handle(now, JobEvent::ReadyBy { node, at: now + limit, limit });
            }
        }
    }

    pub(crate) fn notify_job(&mut self, event: JobEvent) {
        if self.launcher.over {
            return;
        }
        let early = self.launcher.deadline().is_none_or(|at| at > self.mono());
        if early && self.rng.chance(10) {
            self.launcher.job.handle_timeout(self.mono());
            let idle = self.launcher.job.poll_action().is_none();
            self.check(idle, || "the job acts on a time-out that is not due".to_owned());
        }
        self.note("> job", || format!("{event:?}"));
        let (now, awake) = (self.mono(), self.still.awake(self.mono()));
        if let JobEvent::Discovered(list) = &event {
            self.found.on_list(list);
        }
        if self.several() {
            self.truth.on_event(self.now, &event);
        } else {
            self.launcher.oracle.on_event(now, awake, &event);
        }
        self.launcher.job.handle(self.mono(), event);
        self.drain_job();
    }

    pub(crate) fn job_timeout(&mut self) {
        self.note("> job", || "time-out".to_owned());
        let (now, awake) = (self.mono(), self.still.awake(self.mono()));
        self.launcher.oracle.time_passes(now, awake);
        self.launcher.job.handle_timeout(self.mono());
        self.drain_job();
    }

    pub(crate) fn drain_job(&mut self) {
        let records = self.launcher.job.check();
        self.check(records.is_ok(), || format!("the job's records do not agree: {records:?}"));
        for node in 0..if self.now == 0 { self.count() } else { 0 } {
            self.go(node);
            if !self.host.remote {
                self.send_to_agent(link::credit(self.plan.window));
            }
        }
        while let Some(action) = self.launcher.job.poll_action() {
            let over = self.launcher.over;
            self.check(!over, || format!("after Finish: {action:?}"));
            match action {
                JobAction::Send { node, msg } => self.on(node, |world| {
                    world.note("< job", || message_in_brief(&format!("{msg:?}")));
                    world.check_warned_order(&msg);
                    world.send_to_agent(link::message(&msg));
                }),
                JobAction::WakeAgent { node } => self.on(node, |world| {
                    world.note("< job", || "Rouse".to_owned());
                    // On another host it goes nowhere.
                    if !world.host.remote {
                        world.agent_roused();
                    }
                }),
                JobAction::Sever { node } => self.on(node, |world| {
                    world.note("< job", || "Sever".to_owned());
                    if world.host.remote {
                        world.close_to_agent();
                    } else {
                        world.guardian_severs();
                    }
                }),
                JobAction::Connect { node } => self.on(node, |world| world.for_other(&action, World::connects)),
                JobAction::GiveUp { node } => self.on(node, |world| world.for_other(&action, World::gives_up)),
                JobAction::CloseEdge { node } => self.on(node, |world| world.for_other(&action, World::edge_closed)),
                JobAction::Beat { node, beat } => {
                    self.on(node, |world| world.for_other(&action, |world| world.send_to_agent(link::beat(beat))));
                }
                JobAction::Place(placement) => self.placed(&placement),
                // Programs here ask no store.
                JobAction::Home { .. } | JobAction::Homeless { .. } | JobAction::Ended { .. } => {}
                JobAction::Know { node, host } => self.is_known(node, &host),
                JobAction::Emit(record) => self.logged(record),
                JobAction::DrainOutput => {
                    self.launcher.sinks.draining = true;
                    self.soon(Ev::Sink);
                }
                JobAction::AbandonOutput => {
                    self.note("< job", || "AbandonOutput".to_owned());
                    self.launcher.sinks.abandoned = true;
                    self.check_abandoned();
                    self.soon(Ev::Sink);
                }
                JobAction::Finish(ending) => {
                    self.check_finish(ending);
                    self.launcher_is_gone();
                }
            }
        }
        self.opens_step();
    }

    fn logged(&mut self, record: Record) {
        if self.several() {
            self.truth.report.add(&record);
        }
        let what = record.what;
        if let What::News(news) = &what {
            self.note("< job", || message_in_brief(&format!("{news:?}")));
            if let JobNews::LeadContinues { node, lost } = news {
                let (node, lost) = (*node, *lost);
                self.truth.lost_to_lead(node);
                self.on(node, |world| world.check_lost(lost));
            }
            self.known.gives_up |= matches!(news, JobNews::NoProgress { .. } | JobNews::NotClear);
        }
        if let What::HostLost { node, lost } = what {
            self.note("< job", || format!("lost: {lost:?}"));
            self.on(node, |world| world.check_lost(lost));
        }
        self.truth_logged(&what);
        if let What::JobEnd { cause, exit, left, .. } = what {
            self.note("< job", || format!("ends: {cause:?}, {exit:?}, left: {left:?}"));
            self.check_end(&cause, exit, left);
        }
    }

    /// Something for an agent that is not on this host.
    fn for_other(&mut self, action: &JobAction, act: impl FnOnce(&mut Self)) {
        if self.host.remote {
            act(self);
        } else {
            self.fail(format!("{action:?}"));
        }
    }

    /// The launcher lets go of a host's edge.
    fn edge_closed(&mut self) {
        self.note("< job", || "CloseEdge".to_owned());
        self.check_unheard();
        self.host.link.let_go();
        self.close_to_agent();
    }

    /// All edges end.
    fn edges_end(&mut self) {
        for node in 0..self.count() {
            self.go(node);
            self.host.link.let_go();
            self.close_to_agent();
            if !self.host.remote {
                self.soon(Ev::GuardianWakes);
            }
        }
    }

    fn launcher_is_gone(&mut self) {
        self.launcher.over = true;
        self.edges_end();
        self.launcher.job.handle(self.mono(), JobEvent::OutputDrained { lost: 0, broken: 0 });
        self.launcher.job.handle_timeout(Mono::from_nanos(u64::MAX / 2));
    }

    pub(crate) fn launcher_killed(&mut self) {
        if !self.launcher.over {
            self.launcher.over = true;
            self.edges_end();
        }
    }
}

fn message_in_brief(text: &str) -> String {
    text.chars().take(160).collect()
}
