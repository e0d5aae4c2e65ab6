//! The router of a job: the receivers of each event among the sub-machines, and the effects of the decisions that they return.
//!
//! A sub-machine changes only itself. Changes of several sub-machines are written here, in the order in which they are done.

mod anew;
mod carriers;
mod discovered;
mod losses;
mod next_generation;
mod orders;
mod slice_events;
mod warnings;

use super::job_event::JobEvent;
use super::notice::{EndingBegan, Notice, RankExit};
use super::rounds::routing::RoundEffect;
use super::worlds::Meaning;
use super::{JobAction, Parts, Step};
use crate::events::{Cause, Obstacle, RanksState, What};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, ProcId};
use rlaunch_base::time::Span;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::wire::round::RoundUp;
use rlaunch_protocol::wire::to_node::ToNode;
use rlaunch_protocol::wire::to_root::ToRoot;

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
            ToRoot::FindOwners(_) | ToRoot::OwnersFound(_) | ToRoot::Input(_) => {}
            ToRoot::Round(up) => self.round(step, node, up),
            // The message has no other effect.
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
        self.recovery.slices_mut().into_iter().for_each(|slices| slices.on_ready(node));
        self.bringup.ready(&mut step.cx(), node);
        self.worlds.begin(&mut step.cx(), &self.bringup);
    }

    /// A host has looked which processes hold its devices, or has ended these.
    fn devices(&mut self, step: &mut Step<'_>, node: NodeId, held: bool) {
        self.bringup.on_devices(&mut step.cx(), node, held);
        self.worlds.begin(&mut step.cx(), &self.bringup);
        if self.bringup.is_next_awaited() {
            self.generations.pause_until(step.now);
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
            self.redial_later(step, node);
        }
    }

    /// Ranks start for the first time, without these nodes.
    fn placed(&mut self, step: &mut Step<'_>, nodes: Vec<NodeId>, placement: Arc<Placement>) {
        step.facts.place(Arc::clone(&placement));
        for node in &nodes {
            step.facts.hosts.leave_out(*node);
            self.forget(step, *node);
        }
        self.procs.begin(&placement, ProcId::new(0));
        if self.recovery.slices().is_some() {
            self.take_slices(step, &placement);
        } else {
            self.log.left_out(&mut step.cx(), nodes, &placement, false);
        }
    }

    /// Whether the job ends, or its ranks have done their work.
    fn is_over(&self) -> bool {
        self.ending.has_begun() || self.closing.is_all_over()
    }

    /// The state of the ranks.
    fn ranks(&self) -> RanksState {
        match self.bringup.awaited() {
            Some(awaited) => RanksState::NotStarted { awaited },
            None if self.generations.is_pausing() => RanksState::Between,
            None => RanksState::Running,
        }
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
            Notice::Forwarded(sig) => self.root_cause.forwarded(sig),
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
            // Other ranks will follow, or the notice is sent again when the job ends.
            Notice::AllOver | Notice::RanksOver(_) if self.generations.is_between() => {}
            Notice::AllOver => self.all_over(step),
            Notice::AgentUnresponsive(node) => self.node_ends.on_agent_unresponsive(&mut step.cx(), node),
            Notice::HostSuspended { node, is_over } => self.lease.on_host_suspended(&mut step.cx(), node, is_over),
            Notice::MissedLease(node) => self.node_ends.on_missed_lease(&mut step.cx(), node),
            Notice::Lost { node, lost } => self.lost(step, node, lost),
            Notice::StartupDeadlineExpired { node, limit } => self.on_startup_deadline(step, node, limit),
            Notice::Placed { left_out, placement } => self.placed(step, left_out, placement),
            Notice::NoWay(node, why) => _ = self.note_obstacle(node, Obstacle::Refused(why)),
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

    /// A node speaks of rounds. Messages about another generation are dropped.
    fn round(&mut self, step: &mut Step<'_>, node: NodeId, up: RoundUp) {
        if matches!(up, RoundUp::Joined { .. } | RoundUp::Refused { .. } | RoundUp::Awaited { .. }) {
            self.rounds.on_registered();
        }
        if self.generations.is_between() || self.rounds.is_off() {
            return;
        }
        match self.rounds.on_message(&mut step.cx(), (&self.procs, &self.bringup), node, up) {
            RoundEffect::Nothing => {}
            RoundEffect::News => self.apply_round_decisions(step),
            RoundEffect::Stuck(proc) => {
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
        let is_absorbed = self.rounds.ended(step.now, proc, &exit);
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
        if is_absorbed || exit.status.is_success() {
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
}
