//! The launcher's machine: what a job is waiting for, when it ends, and why it ended.
//!
//! [`Job`] only routes. Each concern is a private sub-machine in its own file that changes only itself and speaks to the
//! others by notices.

mod bringup;
mod clock;
mod closing;
mod ending;
mod event;
mod generations;
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
use generations::{Fate, Why};
use notice::{Failure, Notice};

/// What a sub-machine of a job is given.
type Cx<'a> = machine::Cx<'a, JobAction, Notice>;

/// What a job has to know about where it runs.
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
    /// What ranks on other hosts get of this place.
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
            output: output::Output::new(setting.nohup, spec.world_size()),
            closing: closing::Closing::new(),
            log,
        };
        let mut job = Self { actions: VecDeque::new(), notices: VecDeque::new(), parts };
        job.with(now, |parts, cx| {
            parts.log.start(cx, spec, setting);
            parts.bringup.start(cx);
        });
        job
    }

    /// Runs one transition, then passes on notices until none is left.
    fn with(&mut self, now: Mono, transition: impl FnOnce(&mut Parts, &mut Cx<'_>)) {
        let Self { actions, notices, parts } = self;
        // After `Finish` nothing matters any more.
        if parts.closing.finished() {
            return;
        }
        let mut cx = Cx { now, out: actions, notice: notices };
        parts.lease.looks(now);
        transition(parts, &mut cx);
        while let Some(notice) = cx.notice.pop_front() {
            let last = matches!(notice, Notice::Close { .. });
            parts.notice(&mut cx, notice);
            if last {
                cx.notice.clear();
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

    fn timeout(&mut self, cx: &mut Cx<'_>, timer: Timer) {
        match timer {
            Timer::Ending => self.ending.timeout(cx),
            Timer::Mute => self.mute.timeout(cx),
            Timer::Loss => self.loss.timeout(cx),
            Timer::Lease => self.lease.timeout(cx),
            Timer::Late => self.late.timeout(cx),
            Timer::Bringup => self.bringup.timeout(cx),
            Timer::Generations => self.generations.timeout(cx),
            Timer::Rounds => {
                self.rounds.timeout(cx.now);
                self.settle_rounds(cx);
            }
            Timer::Closing => self.closing.timeout(cx),
        }
    }

    fn event(&mut self, cx: &mut Cx<'_>, event: JobEvent) {
        match event {
            JobEvent::Message { node, msg } => self.message(cx, node, msg),
            JobEvent::EdgeUp { node } => {
                self.lease.edge_up(cx, node);
                self.mute.edge_up(cx, node);
                self.bringup.edge_up(cx, node);
            }
            JobEvent::ReadyBy { node, at, limit } => self.late.ready_by(node, at, limit),
            JobEvent::HostFailed { node, why } => {
                self.bringup.failed(cx, node, why);
                self.loss.host_failed(cx, node);
            }
            JobEvent::Beat { node, beat } => {
                self.mute.heard(cx, node);
                self.lease.beat(cx, node, beat);
            }
            JobEvent::EdgeClosed { node, why } => self.loss.edge_closed(cx, node, why),
            JobEvent::GuardianEnded { node, end } => self.loss.guardian_ended(cx, node, end),
            JobEvent::Signal(sig) => self.signals.on(cx, sig),
            JobEvent::StreamEnd { stream, total } => {
                if let Some(node) = self.procs.node_of(stream.proc()) {
                    self.mute.heard(cx, node);
                }
                self.output.stream_end(cx, stream, total, self.procs.is_pending(stream.proc()));
            }
            JobEvent::ReaderClosed(std) => self.output.reader_closed(cx, std),
            JobEvent::HungUp(std) => self.output.hung_up(cx, std),
            JobEvent::SinkFailed { std, errno } => self.output.sink_failed(cx, std, errno),
            JobEvent::InputFailed { errno } => self.output.input_failed(cx, errno),
            JobEvent::OutputDrained { lost, broken } => self.closing.drained(cx, lost, broken),
        }
    }

    fn message(&mut self, cx: &mut Cx<'_>, node: NodeId, msg: ToRoot) {
        self.mute.heard(cx, node);
        match msg {
            ToRoot::Hello(hello) => self.bringup.hello(cx, node, hello),
            ToRoot::Refused(why) => self.bringup.refused(cx, node, why),
            ToRoot::Ready => {
                self.late.ready(node);
                self.bringup.ready(cx, node);
            }
            ToRoot::Probed { number, errno, by } => self.bringup.probed(cx, node, number, (errno, by)),
            ToRoot::Started { procs } => {
                self.procs.started(cx, node, &procs);
                procs.iter().for_each(|started| self.output.started(cx, started.proc));
                self.started_anew(cx, &procs);
            }
            ToRoot::SpawnFailed { proc, error } => {
                let spare = self.is_spare(proc);
                self.procs.spawn_failed(cx, node, proc, error.clone(), spare || self.generations.is_between());
                if spare {
                    self.not_started(cx, proc, error);
                }
            }
            ToRoot::Exited(exited) => self.procs.exited(cx, node, &exited),
            ToRoot::Postmortem { proc, facts } => self.procs.facts(cx, node, proc, facts),
            ToRoot::InputFailed { errno } => self.output.input_undelivered(cx, errno),
            ToRoot::InitLost => self.loss.init_lost(cx, node),
            ToRoot::GuardianLost => self.loss.guardian_lost(cx, node),
            ToRoot::StoreUnused { at } => cx.act(JobAction::Say(Sentence::StoreUnused { at })),
            ToRoot::StoreForeign { from } => cx.act(JobAction::Say(Sentence::StoreForeign { from })),
            ToRoot::StoreRefused { from, count } => cx.tell(Notice::Log(What::StoreRefused { node, from, count })),
            ToRoot::StoreLimit { met, count } => self.log.store_limit(cx, node, met, count),
            ToRoot::FileFailed { errno, path } => self.log.file_failed(cx, node, errno, path),
            ToRoot::FileLost { proc, which, bytes } => self.output.file_lost(cx, proc, which, bytes),
            // The edges': they are about connections, not about the job.
            ToRoot::Whose(_) | ToRoot::Theirs(_) => {}
            ToRoot::Round(up) => self.round(cx, node, up),
            // Hearing it is all that it is for.
            ToRoot::Killing => self.mute.killing(cx, node),
            ToRoot::Draining if self.generations.is_between() => self.generations.draining(node),
            // The job goes on without it.
            ToRoot::Draining if self.rounds.is_gone(node) => {}
            ToRoot::Draining => self.procs.node_over(cx, node),
            ToRoot::Cleared { left, named: _, port } => {
                if let Some(first) = self.generations.cleared(node, left, port) {
                    self.cleared(cx, &first);
                }
            }
            ToRoot::Done { left, named } => self.loss.done(cx, node, left, named.into_vec()),
        }
    }

    /// No rank is left to wait for.
    fn all_over(&mut self, cx: &mut Cx<'_>) {
        self.nobody_left(cx);
        if self.generations.is_between() {
            return;
        }
        self.signals.all_over();
        self.ending.all_over(cx);
        self.mute.all_over(cx);
        self.closing.all_over(cx);
        // Their agents wait for what cannot be ended until they are told to end it: then they name it.
        let stuck = self.procs.stuck_nodes();
        stuck.into_iter().for_each(|node| cx.act(JobAction::Send { node, msg: ToNode::Kill }));
    }

    /// No agent was ever there.
    fn absent(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.mute.node_over(node);
        self.procs.absent(cx, node);
    }

    /// The job does without a node: nothing of it is waited for or counted.
    fn forget(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.lease.node_over(node);
        self.mute.node_over(node);
        self.procs.absent(cx, node);
        self.loss.forget(cx, node);
    }

    /// The job goes on with fewer hosts.
    fn leave_out(&mut self, cx: &mut Cx<'_>, nodes: Vec<NodeId>, placement: &Placement) {
        nodes.iter().for_each(|node| self.forget(cx, *node));
        self.procs.reseat(placement);
        self.log.left_out(cx, nodes, placement);
    }

    /// A part of ours was lost on a node: the job ends, unless it can do without the node.
    fn lost(&mut self, cx: &mut Cx<'_>, node: NodeId, lost: Lost) {
        let lost = self.lease.blame(node, lost);
        self.log.write(cx, What::HostLost { node, lost });
        if self.bringup.spares(cx, node) {
            return self.forget(cx, node);
        }
        if self.is_without(node) || self.loses(cx, node, lost) {
            return;
        }
        let between = self.lease.between(cx.now, node, lost);
        self.verdict.lost(node, lost, between);
        if self.goes_on_without(cx, node, lost, between) {
            return;
        }
        self.ending.end(cx, Cause::Lost { node, lost }, Ranks::Run);
    }

    /// A rank ended with something else than exit 0: the job ends, or this generation of its ranks does.
    fn failed(&mut self, cx: &mut Cx<'_>, failure: Failure) {
        self.verdict.failed(failure);
        let clears = match self.generations.fate(&failure) {
            Fate::Known => return,
            Fate::Ends => false,
            Fate::Clears => !self.lacks_hosts() && self.clears(cx, Why { failure, lost: None }),
        };
        if !clears {
            self.ending.failed(cx, &failure);
        }
    }

    /// What the ranks are doing.
    fn ranks(&self) -> Ranks {
        match self.bringup.awaited() {
            Some(awaited) => Ranks::Awaited(awaited),
            None if self.generations.is_pausing() => Ranks::Between,
            None => Ranks::Run,
        }
    }

    /// Nothing runs any more: all that there is to know of this generation is known.
    fn cleared(&mut self, cx: &mut Cx<'_>, first: &Why) {
        let root = self.verdict.root().filter(|_| first.lost.is_none());
        let first = Why { failure: root.unwrap_or(first.failure), ..*first };
        let Failure { rank, at, .. } = first.failure;
        let lived = self.procs.started_at(rank).map_or(Span::ZERO, |started| at.since(started));
        let fewer = self.fewer(&first);
        self.left.says();
        self.generations.decide(cx, &first, lived, fewer);
    }

    /// All ranks are started again.
    fn again(&mut self, cx: &mut Cx<'_>) {
        self.output.rest().for_each(|what| self.log.write(cx, what));
        let (restart, ports) = self.generations.again();
        self.log.again(restart);
        let fewer = self.place_again();
        let first = self.procs.again(fewer.as_deref());
        self.verdict.again();
        self.mute.again();
        let space = self.rounds.again();
        if let Some(placement) = &fewer {
            self.rounds.reseat(placement);
            match self.left.is_said() {
                true => self.log.fewer(cx, self.left.nodes(), placement),
                // In the pause.
                false => self.log.left_out(cx, self.left.nodes(), placement),
            }
        }
        self.bringup.again(cx, (restart, first), (&ports, space), fewer);
    }

    fn close(&mut self, cx: &mut Cx<'_>, left: Option<u32>) {
        self.output.rest().for_each(|what| self.log.write(cx, what));
        self.says_unheard(cx, true);
        let unwritten = self.output.close(cx);
        let nodes = self.verdict.together();
        if !nodes.is_empty() {
            self.log.write(cx, What::Together { nodes });
        }
        self.log.close(cx, self.verdict.cause(), left, unwritten);
    }

    /// Who has to know what. A line here is the whole price of a new listener.
    fn notice(&mut self, cx: &mut Cx<'_>, notice: Notice) {
        match notice {
            Notice::Log(what) => self.log.write(cx, what),
            Notice::Broadcast(msg) => self.bringup.broadcast(cx, &msg),
            Notice::End(cause) => self.ending.end(cx, cause, self.ranks()),
            Notice::Exited(proc, failure) => self.exited(cx, proc, failure),
            Notice::Again => self.again(cx),
            Notice::Explained { rank } => self.verdict.explained(rank),
            Notice::Forwarded(sig) => self.verdict.forwarded(sig),
            Notice::Began(began) => {
                self.bringup.began(cx);
                self.verdict.began(&began);
                self.signals.began(&began);
                self.output.began();
                self.mute.began(cx, &began);
                self.lease.began(cx, &began);
                self.closing.began(cx, &began);
                self.rounds.off(cx.now);
                self.generations.began().into_iter().for_each(|node| self.procs.node_over(cx, node));
            }
            Notice::Killed => {
                self.signals.killed();
                self.ending.killed();
                self.mute.killed(cx);
                self.lease.killed(cx);
            }
            Notice::Rouse => self.loss.rouse(cx),
            Notice::Bereft(node) => self.verdict.bereft(node),
            Notice::Doomed(node) => self.mute.doomed(cx, node),
            // Others will follow, or it is told again when the job ends.
            Notice::AllOver | Notice::RanksOver(_) if self.generations.is_between() => {}
            Notice::AllOver => self.all_over(cx),
            Notice::Mute(node) => self.loss.mute(cx, node),
            Notice::Unheard(node) => self.loss.unheard(cx, node),
            Notice::Lost { node, lost } => self.lost(cx, node, lost),
            Notice::Late { node, limit } if self.bringup.late(cx, node, limit) => self.forget(cx, node),
            // It was ready, or is given up for another reason.
            Notice::Late { .. } => {}
            Notice::LeftOut { nodes, placement } => {
                self.rounds.reseat(&placement);
                self.leave_out(cx, nodes, &placement);
            }
            Notice::Severed(node) => self.lease.severed(cx, node),
            Notice::Offset(node, offset) => self.procs.offset(node, offset),
            Notice::NodeOver(node) => self.node_over(cx, node),
            Notice::RanksOver(node) if self.procs.is_over(node) => self.mute.ranks_over(cx, node),
            // One of them was started again at once.
            Notice::RanksOver(_) => {}
            Notice::Unguarded(node) => self.mute.unguarded(cx, node),
            Notice::LeftAlone(node) => self.mute.left_alone(cx, node),
            Notice::Absent(node) => self.absent(cx, node),
            Notice::Impatient { patience } => self.closing.impatient(cx, patience),
            Notice::Abandoned => self.mute.abandoned(cx),
            Notice::Counted { left } => {
                self.ending.all_over(cx);
                self.closing.counted(cx, left);
            }
            Notice::Leave => self.closing.leave(cx),
            Notice::Close { left } => self.close(cx, left),
        }
    }
}

impl Machine for Job {
    type Event = JobEvent;
    type Action = JobAction;

    fn handle(&mut self, now: Mono, event: JobEvent) {
        self.with(now, |parts, cx| parts.event(cx, event));
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.with(now, |parts, cx| Timer::ALL.into_iter().for_each(|timer| parts.timeout(cx, timer)));
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
