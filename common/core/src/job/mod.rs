//! The launcher's machine: what a job is waiting for, when it ends, and why it ended.
//!
//! [`Job`] only routes. Each concern is a private sub-machine in its own file that changes only itself and speaks to the
//! others by notices. What several of them have to know, hosts and placement, is kept once in [`facts`], which they read and only
//! the router changes.

mod bringup;
mod clock;
mod closing;
mod ending;
mod event;
mod facts;
mod generations;
mod hosts;
mod late;
mod lease;
mod left;
mod log;
mod loss;
mod mute;
mod notice;
mod orders;
mod output;
mod probing;
mod procs;
mod roster;
mod rounds;
mod signals;
mod still;
#[cfg(test)]
mod tests;
mod verdict;

pub use event::{CloseReason, GuardianEnd, HostFailure, JobAction, JobEvent};

use crate::events::{Cause, Lost, What};
use crate::id::NodeId;
use crate::machine::{self, Machine, earliest_of};
use crate::os_bytes::OsBytes;
use crate::place::Placement;
use crate::report::Sentence;
use crate::rounds::PolicyReader;
use crate::spec::JobSpec;
use crate::time::{Mono, Span, WallNs};
use crate::travel::Travel;
use crate::wire::probe::Key;
use crate::wire::to_node::ToNode;
use crate::wire::to_root::ToRoot;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ending::Ranks;
use facts::JobFacts;
use generations::{Fate, Why};
use notice::{Failure, Notice};

/// The context of a sub-machine of a job.
type Cx<'a> = machine::Cx<'a, JobAction, Notice, JobFacts>;

/// One transition of a job: what sub-machines are given, and the facts, which only the router changes.
struct Step<'a> {
    now: Mono,
    out: &'a mut VecDeque<JobAction>,
    notice: &'a mut VecDeque<Notice>,
    facts: &'a mut JobFacts,
}

impl Step<'_> {
    fn cx(&mut self) -> Cx<'_> {
        Cx { now: self.now, out: self.out, notice: self.notice, facts: self.facts }
    }

    fn act(&mut self, action: JobAction) {
        self.out.push_back(action);
    }

    fn tell(&mut self, notice: Notice) {
        self.notice.push_back(notice);
    }
}

/// Facts about the place where the job runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    /// rlaunch's version.
    pub version: OsBytes,
    /// The launcher's host name.
    pub host: OsBytes,
    /// Diagnostics wanted from agents (`RLAUNCH_LOG` syntax); empty: none.
    pub trace: OsBytes,
    /// SIGHUP is ignored (nohup): the job is to outlive its terminal.
    pub nohup: bool,
    /// Settings of this place that ranks on other hosts get.
    pub travel: Travel,
    /// The interface of rank 0's host at which the others find it; empty: the one that suits best.
    pub interface: OsBytes,
    /// Random bytes, by which agents of the job know that of rank 0's host.
    pub secret: Key,
    /// Reads a policy that a program asks for.
    pub read_policy: PolicyReader,
}

/// A job, from its first message to its exit code.
pub struct Job {
    actions: VecDeque<JobAction>,
    notices: VecDeque<Notice>,
    facts: JobFacts,
    parts: Parts,
}

impl Job {
    /// A job; where the launcher's own host has ranks, the edge to its agent is there. `now` and `wall` are the moment at
    /// which rlaunch was started: the report's times and `--timeout` count from it.
    #[must_use]
    pub fn new(now: Mono, wall: WallNs, spec: &Arc<JobSpec>, setting: &Setting) -> Self {
        let log = log::Log::new(now, wall);
        let parts = Parts {
            bringup: bringup::Bringup::new(Arc::clone(spec), setting),
            procs: procs::Procs::new(&spec.placement, log.clock()),
            signals: signals::Signals::new(),
            ending: ending::Ending::new(now, spec),
            verdict: verdict::Verdict::new(),
            loss: loss::Loss::new(&spec.placement),
            mute: mute::Mute::new(spec),
            lease: lease::Lease::new(spec),
            late: late::Late::new(spec.placement.nodes.len()),
            left: left::Left::new(Arc::clone(spec)),
            generations: generations::Generations::new(spec),
            rounds: rounds::Rounds::new(Arc::clone(spec), setting.read_policy),
            output: output::Output::new(setting.nohup),
            closing: closing::Closing::new(),
            log,
        };
        let facts = JobFacts::new(spec);
        let mut job = Self { actions: VecDeque::new(), notices: VecDeque::new(), facts, parts };
        job.with(now, |parts, step| {
            parts.log.start(&mut step.cx(), spec, setting);
            parts.bringup.start(&mut step.cx());
        });
        job
    }

    /// Runs one transition, then passes on notices until none is left.
    fn with(&mut self, now: Mono, transition: impl FnOnce(&mut Parts, &mut Step<'_>)) {
        let Self { actions, notices, facts, parts } = self;
        // After `Finish` nothing matters any more.
        if parts.closing.finished() {
            return;
        }
        let mut step = Step { now, out: actions, notice: notices, facts };
        parts.lease.looks(now);
        transition(parts, &mut step);
        while let Some(notice) = step.notice.pop_front() {
            let last = matches!(notice, Notice::Close { .. });
            parts.notice(&mut step, notice);
            if last {
                step.notice.clear();
            }
        }
    }
}

/// The sub-machines, apart from the queues that they are given.
struct Parts {
    bringup: bringup::Bringup,
    procs: procs::Procs,
    signals: signals::Signals,
    ending: ending::Ending,
    verdict: verdict::Verdict,
    loss: loss::Loss,
    mute: mute::Mute,
    lease: lease::Lease,
    late: late::Late,
    left: left::Left,
    generations: generations::Generations,
    rounds: rounds::Rounds,
    output: output::Output,
    closing: closing::Closing,
    log: log::Log,
}

/// The sub-machines that wait for a time.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Ending,
    Mute,
    Loss,
    Lease,
    Late,
    Bringup,
    Generations,
    Rounds,
    Closing,
}

impl Timer {
    /// All of them, in the order in which they are run.
    const ALL: [Self; 9] = [
        Self::Ending,
        Self::Mute,
        Self::Loss,
        Self::Lease,
        Self::Late,
        Self::Bringup,
        Self::Generations,
        Self::Rounds,
        Self::Closing,
    ];
}

impl Parts {
    fn deadline(&self, timer: Timer) -> Option<Mono> {
        match timer {
            Timer::Ending => self.ending.deadline(),
            Timer::Mute => self.mute.deadline(),
            Timer::Loss => self.loss.deadline(),
            Timer::Lease => self.lease.deadline(),
            Timer::Late => self.late.deadline(),
            Timer::Bringup => self.bringup.deadline(),
            Timer::Generations => self.generations.deadline(),
            Timer::Rounds => self.rounds.deadline(),
            Timer::Closing => self.closing.deadline(),
        }
    }

    fn timeout(&mut self, step: &mut Step<'_>, timer: Timer) {
        match timer {
            Timer::Ending => self.ending.timeout(&mut step.cx()),
            Timer::Mute => self.mute.timeout(&mut step.cx()),
            Timer::Loss => self.loss.timeout(&mut step.cx()),
            Timer::Lease => self.lease.timeout(&mut step.cx()),
            Timer::Late => self.late.timeout(&mut step.cx()),
            Timer::Bringup => self.bringup.timeout(&mut step.cx()),
            Timer::Generations => self.generations.timeout(&mut step.cx()),
            Timer::Rounds => {
                self.rounds.timeout(step.now);
                self.settle_rounds(step);
            }
            Timer::Closing => self.closing.timeout(&mut step.cx()),
        }
    }

    fn event(&mut self, step: &mut Step<'_>, event: JobEvent) {
        match event {
            JobEvent::Message { node, msg } => self.message(step, node, msg),
            JobEvent::EdgeUp { node } => {
                self.lease.edge_up(&step.cx(), node);
                self.mute.edge_up(&step.cx(), node);
                self.bringup.edge_up(&mut step.cx(), node);
            }
            JobEvent::ReadyBy { node, at, limit } => self.late.ready_by(node, at, limit),
            JobEvent::HostFailed { node, why } => {
                self.bringup.failed(&mut step.cx(), node, why);
                self.loss.host_failed(&mut step.cx(), node);
            }
            JobEvent::Beat { node, beat } => {
                self.mute.heard(&step.cx(), node);
                self.lease.beat(&mut step.cx(), node, beat);
            }
            JobEvent::EdgeClosed { node, why } => self.loss.edge_closed(&mut step.cx(), node, why),
            JobEvent::GuardianEnded { node, end } => self.loss.guardian_ended(&mut step.cx(), node, end),
            JobEvent::Signal(sig) => self.signals.on(&mut step.cx(), sig),
            JobEvent::StreamEnd { stream, total } => {
                if let Some(node) = step.facts.node_of_process(stream.proc()) {
                    self.mute.heard(&step.cx(), node);
                }
                let pending = self.procs.is_pending(step.facts, stream.proc());
                self.output.stream_end(&mut step.cx(), stream, total, pending);
            }
            JobEvent::ReaderClosed(std) => self.output.reader_closed(&mut step.cx(), std),
            JobEvent::HungUp(std) => self.output.hung_up(&mut step.cx(), std),
            JobEvent::SinkFailed { std, errno } => self.output.sink_failed(&mut step.cx(), std, errno),
            JobEvent::InputFailed { errno } => self.output.input_failed(&mut step.cx(), errno),
            JobEvent::OutputDrained { lost, broken } => self.closing.drained(&mut step.cx(), lost, broken),
        }
    }

    fn message(&mut self, step: &mut Step<'_>, node: NodeId, msg: ToRoot) {
        self.mute.heard(&step.cx(), node);
        match msg {
            ToRoot::Hello(hello) => self.bringup.hello(&mut step.cx(), node, hello),
            ToRoot::Refused(why) => self.bringup.refused(&mut step.cx(), node, why),
            ToRoot::Ready => {
                self.late.ready(node);
                self.bringup.ready(&mut step.cx(), node);
            }
            ToRoot::Probed { number, errno, by } => self.bringup.probed(&mut step.cx(), node, number, (errno, by)),
            ToRoot::Started { procs } => {
                self.procs.started(&mut step.cx(), node, &procs);
                procs.iter().for_each(|started| self.output.started(&mut step.cx(), started.proc));
                if self.rounds.started(&mut step.cx(), &procs) {
                    self.settle_rounds(step);
                }
            }
            ToRoot::SpawnFailed { proc, error } => {
                let spare = self.rounds.is_spare(step.facts, proc);
                self.procs.spawn_failed(
                    &mut step.cx(),
                    node,
                    proc,
                    error.clone(),
                    spare || self.generations.is_between(),
                );
                if spare {
                    self.not_started(step, proc, error);
                }
            }
            ToRoot::Exited(exited) => self.procs.exited(&mut step.cx(), node, &exited),
            ToRoot::Postmortem { proc, facts } => self.procs.facts(&mut step.cx(), node, proc, facts),
            ToRoot::InputFailed { errno } => self.output.input_undelivered(&mut step.cx(), errno),
            ToRoot::InitLost => self.loss.init_lost(&mut step.cx(), node),
            ToRoot::GuardianLost => self.loss.guardian_lost(&mut step.cx(), node),
            ToRoot::StoreUnused { at } => step.act(JobAction::Say(Sentence::StoreUnused { at })),
            ToRoot::StoreForeign { from } => step.act(JobAction::Say(Sentence::StoreForeign { from })),
            ToRoot::StoreRefused { from, count } => step.tell(Notice::Log(What::StoreRefused { node, from, count })),
            ToRoot::StoreLimit { met, count } => self.log.store_limit(&mut step.cx(), node, met, count),
            ToRoot::FileFailed { errno, path } => self.log.file_failed(&mut step.cx(), node, errno, path),
            ToRoot::FileLost { proc, which, bytes } => self.output.file_lost(&mut step.cx(), proc, which, bytes),
            // The edges': they are about connections, not about the job.
            ToRoot::Whose(_) | ToRoot::Theirs(_) => {}
            ToRoot::Round(up) => self.round(step, node, up),
            // Hearing it is all that it is for.
            ToRoot::Killing => self.mute.killing(&step.cx(), node),
            ToRoot::Draining if self.generations.is_between() => self.generations.draining(node),
            // The job continues without it.
            ToRoot::Draining if step.facts.hosts.is_recently_lost(node) => {}
            ToRoot::Draining => self.procs.node_over(&mut step.cx(), node),
            ToRoot::Cleared { left, named: _, port } => {
                if let Some(first) = self.generations.cleared(node, left, port) {
                    self.cleared(step, &first);
                }
            }
            ToRoot::Done { left, named } => self.loss.done(&mut step.cx(), node, left, named.into_vec()),
        }
    }

    /// No rank is left to wait for.
    fn all_over(&mut self, step: &mut Step<'_>) {
        self.nobody_left(step);
        if self.generations.is_between() {
            return;
        }
        self.signals.all_over();
        self.ending.all_over(&mut step.cx());
        self.mute.all_over(&step.cx());
        self.closing.all_over(&mut step.cx());
        // Their agents wait for processes that cannot be ended until they get the order to end: then they name them.
        let stuck = self.procs.stuck_nodes(step.facts);
        stuck.into_iter().for_each(|node| step.act(JobAction::Send { node, msg: ToNode::Kill }));
    }

    /// No agent was ever there.
    fn absent(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.mute.node_over(node);
        self.procs.absent(&mut step.cx(), node);
    }

    /// The job does without a node: nothing of it is waited for or counted.
    fn forget(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.lease.node_over(node);
        self.mute.node_over(node);
        self.procs.absent(&mut step.cx(), node);
        self.loss.forget(&mut step.cx(), node);
    }

    /// Continues the job with fewer hosts.
    fn leave_out(&mut self, step: &mut Step<'_>, nodes: Vec<NodeId>, placement: &Placement) {
        for node in &nodes {
            step.facts.hosts.leave_out(*node);
            self.forget(step, *node);
        }
        self.procs.left_out(step.facts);
        self.log.left_out(&mut step.cx(), nodes, placement);
    }

    /// A part of ours was lost on a node: the job ends, unless it can do without the node.
    fn lost(&mut self, step: &mut Step<'_>, node: NodeId, lost: Lost) {
        let lost = self.lease.blame(node, lost);
        self.log.write(&mut step.cx(), What::HostLost { node, lost });
        if self.bringup.spares(&mut step.cx(), node) {
            return self.forget(step, node);
        }
        if self.is_without(step, node) || self.loses(step, node, lost) {
            return;
        }
        let between = self.lease.between(step.now, node, lost);
        self.verdict.lost(node, lost, between);
        if self.goes_on_without(step, node, lost, between) {
            return;
        }
        self.ending.end(&mut step.cx(), Cause::Lost { node, lost }, Ranks::Run);
    }

    /// A rank ended with something else than exit 0: the job ends, or this generation of its ranks does.
    fn failed(&mut self, step: &mut Step<'_>, failure: Failure) {
        self.verdict.failed(failure);
        let clears = match self.generations.fate(&failure) {
            Fate::Known => return,
            Fate::Ends => false,
            Fate::Clears => !self.lacks_hosts(step.facts) && self.clears(step, Why { failure, lost: None }),
        };
        if !clears {
            self.ending.failed(&mut step.cx(), &failure);
        }
    }

    /// The state of the ranks.
    fn ranks(&self) -> Ranks {
        match self.bringup.awaited() {
            Some(awaited) => Ranks::Awaited(awaited),
            None if self.generations.is_pausing() => Ranks::Between,
            None => Ranks::Run,
        }
    }

    /// Nothing runs any more: all that there is to know of this generation is known.
    fn cleared(&mut self, step: &mut Step<'_>, first: &Why) {
        let root = self.verdict.root().filter(|_| first.lost.is_none());
        let first = Why { failure: root.unwrap_or(first.failure), ..*first };
        let Failure { rank, at, .. } = first.failure;
        let lived = self.procs.started_at(rank).map_or(Span::ZERO, |started| at.since(started));
        let fewer = self.fewer(step.facts, &first);
        self.left.says(step.facts);
        self.generations.decide(&mut step.cx(), &first, lived, fewer);
    }

    /// All ranks are started again.
    fn again(&mut self, step: &mut Step<'_>) {
        self.output.rest(step.facts).for_each(|what| self.log.write(&mut step.cx(), what));
        let (restart, ports) = self.generations.again();
        let fewer = self.place_again(step.facts);
        step.facts.begin_generation(restart);
        self.log.in_round(None);
        let shrinks = fewer.is_some();
        if let Some(placement) = fewer {
            step.facts.place(placement);
        }
        let first = self.procs.next_generation();
        step.facts.begin_processes(first);
        self.procs.again(step.facts, first);
        self.verdict.again();
        self.ending.again();
        self.mute.again();
        let space = self.rounds.again();
        if shrinks {
            let (lost, placement) = (step.facts.hosts.list_lost(), Arc::clone(step.facts.placement()));
            match self.left.is_said(step.facts) {
                true => self.log.fewer(&mut step.cx(), lost, &placement),
                // In the pause.
                false => self.log.left_out(&mut step.cx(), lost, &placement),
            }
        }
        self.bringup.again(&mut step.cx(), (restart, first.get()), (&ports, space), shrinks);
    }

    fn close(&mut self, step: &mut Step<'_>, left: Option<u32>) {
        self.output.rest(step.facts).for_each(|what| self.log.write(&mut step.cx(), what));
        self.rounds.say_unheard(&mut step.cx(), true);
        let unwritten = self.output.close(&mut step.cx());
        let nodes = self.verdict.together();
        if !nodes.is_empty() {
            self.log.write(&mut step.cx(), What::Together { nodes });
        }
        self.log.close(&mut step.cx(), self.verdict.cause(), left, unwritten);
    }

    /// Passes a notice to the sub-machines that need it. A line here is the whole price of a new listener.
    fn notice(&mut self, step: &mut Step<'_>, notice: Notice) {
        match notice {
            Notice::Log(what) => self.log.write(&mut step.cx(), what),
            Notice::Broadcast(msg) => self.bringup.broadcast(&mut step.cx(), &msg),
            Notice::End(cause) => self.ending.end(&mut step.cx(), cause, self.ranks()),
            Notice::Exited(proc, failure) => self.exited(step, proc, failure),
            Notice::Again => self.again(step),
            Notice::Explained { rank } => self.verdict.explained(rank),
            Notice::Forwarded(sig) => {
                self.verdict.forwarded(sig);
                self.ending.forwarded(sig);
            }
            Notice::Began(began) => {
                self.bringup.began(&mut step.cx());
                self.verdict.began(&began);
                self.signals.began(&began);
                self.output.began();
                self.mute.began(&step.cx(), &began);
                self.lease.began(&step.cx(), &began);
                self.closing.began(&mut step.cx(), &began);
                self.rounds.off(step.now);
                self.generations.began().into_iter().for_each(|node| self.procs.node_over(&mut step.cx(), node));
            }
            Notice::Killed => {
                self.signals.killed();
                self.ending.killed();
                self.mute.killed(&step.cx());
                self.lease.killed(&step.cx());
            }
            Notice::Rouse => self.loss.rouse(&mut step.cx()),
            Notice::Bereft(node) => self.verdict.bereft(node),
            Notice::Doomed(node) => self.mute.doomed(&step.cx(), node),
            // Others will follow, or it is sent again when the job ends.
            Notice::AllOver | Notice::RanksOver(_) if self.generations.is_between() => {}
            Notice::AllOver => self.all_over(step),
            Notice::Mute(node) => self.loss.mute(&mut step.cx(), node),
            Notice::Unheard(node) => self.loss.unheard(&mut step.cx(), node),
            Notice::Lost { node, lost } => self.lost(step, node, lost),
            Notice::Late { node, limit } if self.bringup.late(&mut step.cx(), node, limit) => self.forget(step, node),
            // It was ready, or is given up for another reason.
            Notice::Late { .. } => {}
            Notice::LeftOut { nodes, placement } => {
                step.facts.place(Arc::clone(&placement));
                self.leave_out(step, nodes, &placement);
            }
            Notice::Severed(node) => self.lease.severed(&mut step.cx(), node),
            Notice::Offset(node, offset) => self.procs.offset(node, offset),
            Notice::NodeOver(node) => self.node_over(step, node),
            Notice::RanksOver(node) if self.procs.is_over(node) => self.mute.ranks_over(&step.cx(), node),
            // One of them was started again at once.
            Notice::RanksOver(_) => {}
            Notice::Unguarded(node) => self.mute.unguarded(&step.cx(), node),
            Notice::LeftAlone(node) => self.mute.left_alone(&step.cx(), node),
            Notice::Absent(node) => self.absent(step, node),
            Notice::Impatient { patience } => self.closing.impatient(&mut step.cx(), patience),
            Notice::Abandoned => self.mute.abandoned(&step.cx()),
            Notice::Counted { left } => {
                self.ending.all_over(&mut step.cx());
                self.closing.counted(&mut step.cx(), left);
            }
            Notice::Leave => self.closing.leave(&mut step.cx()),
            Notice::Close { left } => self.close(step, left),
        }
    }
}

impl Machine for Job {
    type Event = JobEvent;
    type Action = JobAction;

    fn handle(&mut self, now: Mono, event: JobEvent) {
        self.with(now, |parts, step| parts.event(step, event));
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.with(now, |parts, step| Timer::ALL.into_iter().for_each(|timer| parts.timeout(step, timer)));
    }

    fn poll_action(&mut self) -> Option<JobAction> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        if self.parts.closing.finished() {
            return None;
        }
        earliest_of(Timer::ALL.map(|timer| self.parts.deadline(timer)))
    }
}
