//! The router of a job: which sub-machine hears of what, and what follows from the decisions that they return.
//!
//! A sub-machine changes only itself. Changes of several sub-machines are written here, in the order in which they are done.

mod anew;
mod carriers;
mod discovered;
mod host_losses;
mod lead_losses;
mod orders;
mod slice_events;
mod warnings;

use super::generations::{Fate, Why};
use super::job_event::JobEvent;
use super::notice::{EndingBegan, Notice, RankExit};
use super::rounds::Escalation;
use super::rounds::routing::Heard;
use super::shrink_rule::{self, Means};
use super::worlds::Meaning;
use super::{JobAction, Parts, Step};
use crate::events::{Cause, Fewer, Lost, Obstacle, RanksState, What};
use crate::id::{NodeId, ProcId, Rank};
use crate::place::Placement;
use crate::time::Span;
use crate::wire::round::RoundUp;
use crate::wire::to_node::ToNode;
use crate::wire::to_root::ToRoot;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use slice_events::Next;

impl Parts {
    pub(super) fn event(&mut self, step: &mut Step<'_>, event: JobEvent) {
        match event {
            JobEvent::Message { node, msg } => self.message(step, node, msg),
            JobEvent::EdgeUp { node } => {
                step.facts.hosts.come_up(node);
                self.lease.edge_up(&step.cx(), node);
                self.kill_watchdog.edge_up(&step.cx(), node);
                self.bringup.edge_up(&mut step.cx(), node);
            }
            JobEvent::ReadyBy { node, at, limit } => self.startup_deadline.ready_by(step.now, node, at, limit),
            JobEvent::Carrier(event) => self.carrier_event(step, event),
            JobEvent::Found(news) => step.notify(Notice::Log(What::News(news))),
            JobEvent::Discovered(list) => self.discovered(step, &list),
            JobEvent::HostFailed { node, why } => self.host_failed(step, node, why),
            JobEvent::Beat { node, beat } => {
                self.kill_watchdog.on_message(&step.cx(), node);
                if let Some(offset) = self.lease.beat(&mut step.cx(), node, beat) {
                    self.procs.offset(node, offset);
                }
            }
            JobEvent::EdgeClosed { node, why } => self.node_ends.edge_closed(&mut step.cx(), node, why),
            JobEvent::GuardianEnded { node, end } => self.node_ends.guardian_ended(&mut step.cx(), node, end),
            JobEvent::Signal(sig) => {
                let may_be_scheduler =
                    self.scheduler_signals.scheduler().is_some() && matches!(self.ranks(), RanksState::Running);
                self.signals.on(&mut step.cx(), sig, may_be_scheduler);
            }
            JobEvent::StreamEnd { stream, total } => {
                if let Some(node) = step.facts.node_of_process(stream.proc()) {
                    self.kill_watchdog.on_message(&step.cx(), node);
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
        self.kill_watchdog.on_message(&step.cx(), node);
        match msg {
            ToRoot::WorldPort { world, port } => {
                let parts = (&self.bringup, &mut self.procs);
                self.worlds.on_port(&mut step.cx(), parts, (node, world), port);
            }
            ToRoot::Order(order) => self.ordered(step, node, &order),
            ToRoot::NotStarted { proc } => {
                self.procs.not_started(&mut step.cx(), node, proc);
                self.on_process_over(step, proc);
            }
            ToRoot::Hello(hello) => self.bringup.hello(&mut step.cx(), node, hello),
            ToRoot::Refused(why) => {
                self.note_obstacle(node, Obstacle::Refused(why.clone()));
                self.bringup.refused(&mut step.cx(), node, why);
            }
            ToRoot::Ready => self.ready(step, node),
            ToRoot::Devices { held } => self.devices(step, node, held),
            ToRoot::Probed { number, found } => {
                self.bringup.probed(&mut step.cx(), node, number, found);
                self.worlds.begin(&mut step.cx(), &self.bringup);
            }
            ToRoot::Started { procs } => self.started(step, node, &procs),
            ToRoot::SpawnFailed { proc, error } => self.spawn_failed(step, node, proc, error),
            ToRoot::Exited(exited) => self.procs.exited(&mut step.cx(), node, &exited),
            ToRoot::Postmortem { proc, facts } => {
                self.ended_ranks.on_facts(&mut step.cx(), proc, &facts);
                if let Some(explained) = self.procs.facts(&mut step.cx(), node, proc, facts) {
                    self.root_cause.explained(explained);
                }
            }
            ToRoot::HostSignal { sig, to_ranks } => {
                self.scheduler_signals.on(&mut step.cx(), node, sig, to_ranks);
            }
            ToRoot::InputFailed { errno } => self.output.input_undelivered(&mut step.cx(), errno),
            ToRoot::InitLost => self.node_ends.init_lost(&mut step.cx(), node),
            ToRoot::GuardianLost => self.node_ends.on_guardian_lost(&mut step.cx(), node),
            ToRoot::Warned(source) => self.warned(step, node, source),
            ToRoot::News(news) => {
                self.mpi_use.on_news(&news);
                step.notify(Notice::Log(What::NodeNews { node, news }));
            }
            ToRoot::FileLost { proc, which, bytes } => self.output.file_lost(&mut step.cx(), proc, which, bytes),
            // The edges': they are about connections, not about the job.
            ToRoot::Whose(_) | ToRoot::Theirs(_) | ToRoot::Input(_) => {}
            ToRoot::Round(up) => self.round(step, node, up),
            // Hearing it is all that it is for.
            ToRoot::Killing => self.kill_watchdog.killing(&step.cx(), node),
            ToRoot::Draining if self.generations.is_between() => self.generations.draining(node),
            // The job continues without it.
            ToRoot::Draining if step.facts.hosts.is_recently_lost(node) => {}
            ToRoot::Draining => self.procs.node_over(&mut step.cx(), node),
            ToRoot::Cleared { left, named: _, port } => {
                if let Some(first) = self.generations.cleared(node, left, port) {
                    self.cleared(step, &first);
                }
            }
            ToRoot::Done { left, named } => self.node_ends.done(&mut step.cx(), node, left, named.into_vec()),
        }
    }

    /// The ranks of a node can be started.
    fn ready(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.startup_deadline.ready(node);
        self.slices.iter_mut().for_each(|slices| slices.on_ready(node));
        self.bringup.ready(&mut step.cx(), node);
        self.worlds.begin(&mut step.cx(), &self.bringup);
    }

    /// A host has looked which processes hold its devices, or has ended these.
    fn devices(&mut self, step: &mut Step<'_>, node: NodeId, held: bool) {
        self.bringup.on_devices(&mut step.cx(), node, held);
        self.worlds.begin(&mut step.cx(), &self.bringup);
        if self.bringup.is_next_awaited() {
            self.generations.end_hold(step.now);
        }
    }

    /// No rank is left to wait for.
    fn all_over(&mut self, step: &mut Step<'_>) {
        let escalation = self.rounds.on_no_process_left(&mut step.cx());
        self.on_rounds_given_up(step, escalation);
        if self.generations.is_between() {
            return;
        }
        self.signals.all_over();
        self.ending.all_over(&mut step.cx());
        self.kill_watchdog.all_over(&step.cx());
        self.closing.all_over(&mut step.cx());
        self.slices_end(step);
        // Their agents wait for processes that cannot be ended until they get the order to end: then they name them.
        let stuck = self.procs.stuck_nodes(step.facts);
        stuck.into_iter().for_each(|node| step.act(JobAction::Send { node, msg: ToNode::Kill }));
    }

    /// A node is left out before the start, with or without an agent there.
    fn absent(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.kill_watchdog.node_over(node);
        if !self.has_slices() {
            self.procs.absent(&mut step.cx(), node);
        }
    }

    /// The job does without a node: nothing of it is waited for or counted.
    fn forget(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.lease.node_over(node);
        self.absent(step, node);
        self.node_ends.forget(&mut step.cx(), node);
    }

    /// Gives up a node that is not ready in time. A node that was ready, or was given up for another reason, stays as it is.
    fn on_startup_deadline(&mut self, step: &mut Step<'_>, node: NodeId, limit: Span) {
        if let Some(why) = self.bringup.give_up_late_host(&mut step.cx(), node, limit) {
            self.note_obstacle(node, Obstacle::Failed(why));
            self.forget(step, node);
            self.slice_host_failed(step, node);
        }
    }

    /// Continues the job with fewer hosts.
    fn leave_out(&mut self, step: &mut Step<'_>, nodes: Vec<NodeId>, placement: &Placement) {
        for node in &nodes {
            step.facts.hosts.leave_out(*node);
            self.forget(step, *node);
        }
        self.procs.left_out(step.facts);
        self.log.left_out(&mut step.cx(), nodes, placement, false);
    }

    /// The job does without these nodes from its start on.
    fn place_without(&mut self, step: &mut Step<'_>, nodes: Vec<NodeId>, placement: Arc<Placement>) {
        step.facts.place(Arc::clone(&placement));
        self.leave_out(step, nodes, &placement);
    }

    /// A part of ours was lost on a node: the job ends, unless it can do without the node.
    fn lost(&mut self, step: &mut Step<'_>, node: NodeId, lost: Lost) {
        let lost = self.root_cause.srun_ends.on_lost(step.now, node, self.lease.blame(node, lost));
        self.log.write(&mut step.cx(), What::HostLost { node, lost });
        if self.slice_host_lost(step, node, lost) {
            return;
        }
        if self.bringup.try_start_without(&mut step.cx(), node) {
            return self.forget(step, node);
        }
        if self.is_without(step, node)
            || self.on_host_lost(step, node, lost)
            || self.try_leave_to_lead(step, node, lost)
        {
            return;
        }
        let between = self.lease.between(step.now, node, lost);
        self.root_cause.lost(node, lost, between);
        if self.try_continue_without(step, node, lost, between) {
            return;
        }
        let cause = self.loss_cause(step, node, lost);
        self.ending.end(&mut step.cx(), cause, RanksState::Running);
    }

    /// A rank ended with something else than exit 0: the job ends, or this generation of its ranks does.
    fn failed(&mut self, step: &mut Step<'_>, failure: RankExit) {
        self.root_cause.failed(failure);
        let may_be_lost = step.facts.has_other_hosts() || step.facts.hosts.warning(failure.node).is_some();
        let clears = match self.generations.fate(&failure, may_be_lost) {
            Fate::Known => return,
            Fate::Ends => false,
            Fate::Clears => {
                !(self.slices.is_none() && self.shrink_rule.lacks_hosts(step.facts, &self.means()))
                    && self.try_clear(step, Why::Failed { failure, lost: None })
            }
        };
        if !clears {
            // The class of the failure is the same with and without a restart.
            let warned = step.facts.hosts.warning(failure.node).filter(|_| !failure.asked);
            let lost = warned.map(|source| (failure.node, Lost::Warned(source)));
            self.ending.failed(&mut step.cx(), &failure, lost);
        }
    }

    /// The state of the ranks.
    fn ranks(&self) -> RanksState {
        match self.bringup.awaited() {
            Some(awaited) => RanksState::NotStarted { awaited },
            None if self.generations.is_pausing() => RanksState::Between,
            None => RanksState::Running,
        }
    }

    /// Nothing runs any more: all that there is to know of this generation is known.
    fn cleared(&mut self, step: &mut Step<'_>, first: &Why) {
        let first = self.classify(step, first);
        if let Some(cause) = self.leave_warned(step).or_else(|| self.refuse_parts(step)) {
            return self.ending.end(&mut step.cx(), cause, RanksState::Between);
        }
        let (rank, at) = match first {
            Why::Failed { failure: RankExit { rank, at, .. }, .. } => (rank, at),
            // All ranks had finished when the order to end came.
            Why::Grown { .. } if self.procs.has_all_finished() => {
                return self.ending.end(&mut step.cx(), Cause::Success, RanksState::Between);
            }
            Why::Grown { .. } => (Rank::new(0), step.now),
        };
        let lived = self.procs.started_at(rank).map_or(Span::ZERO, |started| at.since(started));
        let fewer = self.fewer(step);
        self.shrink_rule.on_reported(step.facts);
        self.generations.decide(&mut step.cx(), &first, lived, fewer);
    }

    /// Starts all ranks again. The order matters where a comment says why.
    fn start_generation(&mut self, step: &mut Step<'_>) {
        if let Some(cause) = self.refuse_parts(step) {
            return self.ending.end(&mut step.cx(), cause, RanksState::Between);
        }
        if !self.bringup.is_next_free(&mut step.cx()) {
            return self.generations.await_devices(step.now);
        }
        // First: the streams that have ended belong to ranks of the old placement.
        let next = self.next_slices(step);
        if matches!(next, Next::Held) {
            return;
        }
        self.output.rest(step.facts).for_each(|what| self.log.write(&mut step.cx(), what));
        let (restart, ports) = self.generations.end_pause();
        // Before the generation begins: from then on its recent losses are losses of an earlier one.
        let fewer = match next {
            Next::Slices(placement) => Some(placement),
            Next::Unsliced | Next::Held => shrink_rule::next_placement(step.facts, &self.means()).map(Arc::new),
        };
        step.facts.begin_generation(restart);
        self.log.in_round(None);
        let shrinks = fewer.is_some();
        if let Some(placement) = fewer {
            step.facts.place(placement);
        }
        // After the placement: processes are numbered by it, and the first number follows those of the old processes.
        let first = self.procs.next_generation();
        step.facts.begin_processes(first);
        self.procs.reset_for_generation(step.facts, first);
        self.root_cause.reset_for_generation();
        self.ending.reset_for_generation();
        self.kill_watchdog.reset_for_generation();
        let namespace = self.rounds.reset_for_generation();
        if shrinks && self.slices.is_none() {
            let (lost, placement) = (step.facts.hosts.list_lost(), Arc::clone(step.facts.placement()));
            // Another host may have been lost in the pause.
            let is_known = self.shrink_rule.is_reported(step.facts);
            self.log.left_out(&mut step.cx(), lost, &placement, is_known);
        }
        // Last: orders are sent by the new facts.
        self.bringup.start_generation(&mut step.cx(), (restart, first.get()), (&ports, namespace), shrinks);
    }

    fn close(&mut self, step: &mut Step<'_>, left: Option<u32>) {
        self.output.rest(step.facts).for_each(|what| self.log.write(&mut step.cx(), what));
        let unused = self.rounds.unused_report(&step.cx(), true);
        let lost = self.output.files_lost().map(What::News);
        let apart = self.mpi_use.report(&self.root_cause.cause(), step.facts.placement());
        unused.into_iter().chain(apart).chain(lost).for_each(|what| self.log.write(&mut step.cx(), what));
        let nodes = self.root_cause.together();
        if !nodes.is_empty() {
            self.log.write(&mut step.cx(), What::Together { nodes });
        }
        self.log.close(&mut step.cx(), self.root_cause.cause(), left, self.output.is_unwritten());
    }

    /// The job ends.
    fn on_ending_began(&mut self, step: &mut Step<'_>, began: &EndingBegan) {
        self.log_no_restart(step, &began.cause);
        self.bringup.on_ending_began(&mut step.cx());
        self.root_cause.on_ending_began(began);
        self.signals.on_ending_began(began);
        self.output.on_ending_began();
        self.ended_ranks.on_ending_began();
        self.kill_watchdog.on_ending_began(&step.cx(), began);
        self.lease.on_ending_began(&step.cx(), began);
        self.closing.on_ending_began(&mut step.cx(), began);
        self.rounds.off(step.now);
        self.slices_end(step);
        self.generations.on_ending_began().into_iter().for_each(|node| self.procs.node_over(&mut step.cx(), node));
    }

    /// Passes a notice to the sub-machines that need it. A line here is the whole price of a new listener.
    pub(super) fn notice(&mut self, step: &mut Step<'_>, notice: Notice) {
        match notice {
            Notice::Log(what) => self.log.write(&mut step.cx(), what),
            Notice::Broadcast(msg) => self.bringup.broadcast(&mut step.cx(), &msg),
            Notice::End(cause) => {
                if let Cause::Scheduler { .. } = cause {
                    self.root_cause.on_scheduler_ends(cause.clone());
                }
                self.ending.end(&mut step.cx(), cause, self.ranks());
            }
            Notice::Exited(proc, exit) => self.exited(step, proc, exit),
            Notice::StartGeneration => self.start_generation(step),
            Notice::Forwarded(sig) => {
                self.root_cause.forwarded(sig);
                self.ending.forwarded(sig);
            }
            Notice::EndingBegan(began) => self.on_ending_began(step, &began),
            Notice::Killed => {
                self.signals.killed();
                self.ending.killed();
                self.kill_watchdog.killed(&step.cx());
                self.lease.killed(&step.cx());
            }
            Notice::WakeAgents => self.node_ends.wake(&mut step.cx()),
            Notice::LostSupervisor(node) => self.root_cause.on_lost_supervisor(node),
            Notice::Doomed(node) => self.kill_watchdog.doomed(&step.cx(), node),
            // Others will follow, or it is sent again when the job ends.
            Notice::AllOver | Notice::RanksOver(_) if self.generations.is_between() => {}
            Notice::AllOver => self.all_over(step),
            Notice::AgentUnresponsive(node) => self.node_ends.on_agent_unresponsive(&mut step.cx(), node),
            Notice::HostSuspended { node, is_over } => self.lease.on_host_suspended(&mut step.cx(), node, is_over),
            Notice::MissedLease(node) => self.node_ends.on_missed_lease(&mut step.cx(), node),
            Notice::Lost { node, lost } => self.lost(step, node, lost),
            Notice::StartupDeadlineExpired { node, limit } => self.on_startup_deadline(step, node, limit),
            Notice::LeftOut { nodes, placement } => self.place_without(step, nodes, placement),
            Notice::NoWay(node, why) => _ = self.note_obstacle(node, Obstacle::Refused(why)),
            Notice::SlicesTaken { slots, placement } => self.slices_started(step, slots, placement),
            Notice::Chips(chips) => step.facts.add_chips(chips),
            Notice::Severed(node) => self.lease.severed(&mut step.cx(), node),
            Notice::NodeOver(node) => self.node_over(step, node),
            Notice::RanksOver(node) if self.procs.is_over(node) => self.kill_watchdog.ranks_over(&step.cx(), node),
            // One of them was started again at once.
            Notice::RanksOver(_) => {}
            Notice::GuardianLost(node) => self.kill_watchdog.on_guardian_lost(&step.cx(), node),
            Notice::GuardianEnded(node) => self.kill_watchdog.on_guardian_ended(&step.cx(), node),
            Notice::Absent(node) => self.absent(step, node),
            Notice::Impatient { patience } => self.closing.impatient(&mut step.cx(), patience),
            Notice::Abandoned => self.kill_watchdog.abandoned(&step.cx()),
            // Hosts of slices come back.
            Notice::Counted { .. } if self.has_slices() => {}
            Notice::Counted { left } => {
                self.ending.all_over(&mut step.cx());
                self.closing.counted(&mut step.cx(), left);
            }
            Notice::Leave => self.closing.leave(&mut step.cx()),
            Notice::Close { left } => self.close(step, left),
        }
    }

    /// Facts that decide what another generation may be.
    fn means(&self) -> Means {
        Means {
            can_start_again: self.bringup.can_start_again(),
            has_rounds: self.rounds.is_used(),
            limits: self.rounds.limits(),
        }
    }

    /// Whether another generation may follow: not where all ranks have done their work, and only what they have left is ended.
    fn may_follow(&self) -> bool {
        self.generations.may_follow() && !self.closing.is_all_over()
    }

    /// Ends all ranks, so that another generation may follow. Returns whether any host was ordered to.
    fn try_clear(&mut self, step: &mut Step<'_>, why: Why) -> bool {
        let (grace, shrinks) = (self.generations.grace_for(&why), self.may_shrink());
        let lost = step.facts.hosts.list_lost();
        let mut nodes = self.bringup.clear(&mut step.cx(), grace, (&lost, shrinks));
        if nodes.is_empty() {
            return false;
        }
        nodes.extend(lost.into_iter().filter(|node| step.facts.hosts.may_still_run(*node)));
        self.root_cause.cleared_from(step.now);
        self.rounds.off(step.now);
        // A host that is silent is known as lost only then.
        let longer = if shrinks { self.lease.patience() } else { Span::ZERO };
        self.generations.clearing(&mut step.cx(), why, nodes, longer);
        true
    }

    /// The remaining hosts for the next generation, where hosts were lost in this one.
    fn fewer(&self, step: &Step<'_>) -> Option<Box<Fewer>> {
        let placement = shrink_rule::next_placement(step.facts, &self.means()).filter(|_| self.slices.is_none())?;
        Some(Box::new(Fewer { without: step.facts.hosts.list_lost(), ranks: placement.world_size() }))
    }

    /// A node speaks of rounds. Messages about another generation are dropped.
    fn round(&mut self, step: &mut Step<'_>, node: NodeId, up: RoundUp) {
        if matches!(up, RoundUp::Joined { .. } | RoundUp::Refused { .. } | RoundUp::Awaited { .. }) {
            self.rounds.on_registered();
        }
        if self.generations.is_between() || self.rounds.is_off() {
            return;
        }
        match self.rounds.on_message(&mut step.cx(), (&self.procs, &self.bringup), node, up) {
            Heard::Nothing => {}
            Heard::News => self.apply_round_decisions(step),
            Heard::Stuck(proc) => {
                let Some(initial) = step.facts.placement().rank_of(proc) else { return };
                if self.procs.mark_stuck(&mut step.cx(), node, proc) {
                    self.rounds.note_stuck(&mut step.cx(), initial);
                    self.apply_round_decisions(step);
                }
            }
        }
    }

    /// A process has ended.
    fn exited(&mut self, step: &mut Step<'_>, proc: ProcId, exit: RankExit) {
        self.ended_ranks.on_exited(&mut step.cx(), proc, &exit);
        self.on_process_over(step, proc);
        self.rounds.on_unused_exit(step.now, &exit);
        let theirs = self.rounds.ended(step.now, proc, &exit);
        self.apply_round_decisions(step);
        if let Some(left) = self.rounds.take_left(&exit) {
            self.root_cause.refined(left);
            return self.failed(step, left);
        }
        match self.worlds.meaning(&step.cx(), &self.procs, &exit) {
            Meaning::Counts => {}
            Meaning::Expected => return,
            Meaning::Excused => return self.ending.passed_over(&mut step.cx(), &exit),
            Meaning::LeadFinished => {
                let cause = Cause::Lead { rank: exit.rank };
                return self.ending.end(&mut step.cx(), cause, RanksState::Running);
            }
        }
        if theirs || exit.status.is_success() {
            return;
        }
        if self.rounds.awaits_exit() {
            // There is no round for the others to continue with: that they end comes of it.
            self.root_cause.failed(exit);
        } else {
            self.failed(step, exit);
        }
    }

    /// Does what rounds ask for. A loss that rounds cannot absorb has its ordinary consequence.
    pub(super) fn apply_round_decisions(&mut self, step: &mut Step<'_>) {
        let escalation = self.rounds.apply_decisions(&mut step.cx());
        self.log.in_round(self.rounds.round());
        let unused = self.rounds.unused_report(&step.cx(), false);
        unused.into_iter().for_each(|what| step.notify(Notice::Log(what)));
        self.on_rounds_given_up(step, escalation);
        if let Some(failure) = self.rounds.left_too_late(step.now) {
            self.failed(step, failure);
        }
        self.start_queued(step);
        self.rounds.dismiss_late(&mut step.cx(), self.procs.open());
    }

    /// The consequence of a fault that rounds could not absorb.
    fn on_rounds_given_up(&mut self, step: &mut Step<'_>, escalation: Option<Escalation>) {
        match escalation {
            Some(Escalation::RankFailed(failure)) => {
                self.root_cause.decided(failure);
                self.failed(step, failure);
            }
            Some(Escalation::RankLeft(failure)) => {
                self.root_cause.decided(failure);
                self.rounds.await_exit(failure, step.now + self.generations.grace());
            }
            Some(Escalation::HostLost(node, lost, between)) => {
                self.root_cause.lost(node, lost, between);
                let follows = self.may_follow() && !self.generations.is_between() && self.can_do_without(step, &[]);
                if follows {
                    self.try_clear(step, shrink_rule::why_lost(step.facts, node, lost, between));
                } else {
                    let cause = self.loss_cause(step, node, lost);
                    self.ending.end(&mut step.cx(), cause, RanksState::Running);
                }
            }
            None => {}
        }
    }
}
