//! Rounds: the events of the job that the machine of the in-process restart receives, and the effects of its requests.
//!
//! Its window is open while a function runs that can be begun again without the failed ranks. Until it closes, the machine decides about
//! the end of a rank or the loss of a host. Such a rank has ended, and is no failure. A fault that the machine cannot absorb is handed
//! back, and the job's ordinary rule holds for it. Ranks that a round has left out never fail the job: it continued without them.
//!
//! Programs that do not restart within themselves send no message about rounds, and cost nothing here.

mod phase;
mod respawn_queue;
mod restart_unused;
pub(super) mod routing;
mod setting;

use super::facts::JobFacts;
use super::hosts::Loss;
use super::notice::{Notice, RankExit};
use super::orders::is_together;
use super::{Cx, JobAction, shrink_rule};
use crate::events::What;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use phase::Phase;
use restart_unused::RestartUnused;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{NodeId, ProcId, Rank, Round};
use rlaunch_base::machine::{Machine as _, earliest_of};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use rlaunch_base::time::{HostTime, Mono};
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_protocol::rounds::{Limits, PolicyReader};
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::round::RoundDown;
use rlaunch_protocol::wire::to_node::ToNode;
use rlaunch_restart::{EndReason, Restart, RestartAction, RestartEvent, RoundNote, RoundsEnd, Step};

/// The status of a rank that had no status to fail with: a rank that raised, or left, or exited with 0 too early.
const FAILED: Status = Status::Exited(1);

/// A fault that rounds could not absorb, handed back to the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Escalation {
    /// A rank has failed.
    RankFailed(RankExit),
    /// A rank has left of its own will: its failure is known when its process exits.
    RankLeft(RankExit),
    /// A host was lost.
    HostLost(Loss),
}

/// The rounds of a job.
#[derive(Debug)]
pub(super) struct Rounds {
    spec: Arc<JobSpec>,
    read: PolicyReader,
    /// State of this generation. Another generation begins with an empty one.
    now: Generation,
    /// The number of the namespace of the store that was used last.
    namespace: u32,
    /// Hosts that have turned out to have no GPUs for one more rank.
    full: BTreeSet<NodeId>,
    /// Restart options are set, and no rank has registered.
    restart_unused: RestartUnused,
    /// Whether the reason why a process could not take part was reported.
    said_refused: bool,
}

/// The rounds of one generation of ranks.
#[derive(Debug, Default)]
struct Generation {
    phase: Phase,
    /// Ranks without which a round continues, or will.
    exempt: BTreeSet<Rank>,
    /// Processes that were ordered to end because no round waits for them any more. A process that has registered meanwhile takes part.
    dismissed: BTreeSet<ProcId>,
    /// Ends of ranks in this round, in the order of their reports.
    ended: Vec<RankExit>,
    /// When something was wrong with others: by their hosts' clocks, and by ours.
    seen: BTreeMap<Rank, (HostTime, Mono)>,
    /// When the work was done: who had ended before that, and could, fails nothing.
    done: Option<Mono>,
    /// From where ranks have gone to other hosts.
    homes: BTreeMap<Rank, NodeId>,
    /// Ranks of which another process is wanted, as soon as one can be started.
    respawn_queued: BTreeSet<Rank>,
    /// Requested processes that are not known to have started; one may have registered before that is known.
    asked: BTreeSet<ProcId>,
    /// Requested processes that have not registered, and their nodes.
    respawn_started: BTreeMap<Rank, (ProcId, NodeId)>,
    /// Whether ranks that have not registered were named.
    has_logged_unregistered: bool,
    /// Without this one there is no other round, and its process has until then to end by itself. That is awaited in any phase.
    leaving: Option<(RankExit, Mono)>,
}

/// How a rank has failed that was to continue: a good end in the midst of the function is none.
const fn failing(status: Status) -> Status {
    if status.is_success() { FAILED } else { status }
}

impl Rounds {
    pub(super) fn new(spec: Arc<JobSpec>, read: PolicyReader) -> Self {
        let (now, full) = (Generation::default(), BTreeSet::new());
        Self { spec, read, now, namespace: 0, full, restart_unused: RestartUnused::Idle, said_refused: false }
    }

    /// The machine of this generation agrees with itself; see [`Restart::check`].
    pub(super) fn check(&self) -> Result<(), String> {
        self.now.phase.machine().map_or(Ok(()), Restart::check)
    }

    /// The round that runs, or ends.
    pub(super) fn round(&self) -> Option<Round> {
        self.now.phase.machine().and_then(Restart::round)
    }

    fn is_open(&self) -> bool {
        self.now.phase.active().is_some_and(Restart::is_open)
    }

    /// Whether the work of a call is done, and no rank has come for another.
    fn is_idle(&self) -> bool {
        self.now.phase.active().is_some_and(Restart::is_idle)
    }

    /// A program that restarts within itself runs: it can do with fewer ranks.
    pub(super) const fn is_used(&self) -> bool {
        self.now.phase.machine().is_some()
    }

    /// Whether the program can continue by itself without a host that is about to be taken away.
    pub(super) fn can_drain(&self, node: NodeId) -> bool {
        self.now.phase.active().is_some_and(|machine| machine.can_drain(node))
    }

    /// How few ranks are enough.
    pub(super) fn limits(&self) -> Limits {
        self.now.phase.machine().map_or(self.spec.rounds.limits, Restart::limits)
    }

    /// Sends the machine an event, if there is one.
    fn notify(&mut self, now: Mono, event: RestartEvent) {
        if let Some(machine) = self.now.phase.active_mut() {
            machine.handle(now, event);
        }
    }

    /// A process has ended; whether that is a matter of rounds, and no failure of the job's.
    pub(super) fn ended(&mut self, now: Mono, proc: ProcId, exit: &RankExit) -> bool {
        let RankExit { rank, status, at, .. } = *exit;
        let late = self.is_idle() && self.now.respawn_started.get(&rank).is_some_and(|(own, _)| *own == proc);
        let known = self.now.exempt.contains(&rank) || self.now.dismissed.remove(&proc) || late;
        let open = self.is_open();
        if open {
            self.now.exempt.insert(rank);
            // A rank that is out already, or not in, ends for reasons of its own.
            if self.now.phase.active().is_some_and(|machine| machine.concerns(rank)) {
                self.now.ended.push(*exit);
            }
        }
        if self.now.respawn_started.get(&rank).is_some_and(|(own, _)| *own == proc) {
            self.now.respawn_started.remove(&rank);
        }
        let event = RestartEvent::Ended { initial: rank, proc, status, at };
        self.now.phase.keep_early(&event);
        self.notify(now, event);
        open || known || self.now.done.is_some_and(|done| at < done)
    }

    /// Records a rank that has left before any other has registered: all others will wait for it.
    fn left_early(&mut self, fault: &RestartEvent) {
        if let RestartEvent::Fault { fault: Fault { kind: FaultKind::Left(_) | FaultKind::Ended(_), .. }, .. } = fault {
            self.now.phase.keep_early(fault);
        }
    }

    /// A part of ours was lost on a host; whether that is a matter of rounds. Its ranks may still run, but they are lost, and by the end
    /// of its lease they have ended: the others can leave their function meanwhile.
    pub(super) fn on_host_lost(&mut self, cx: &mut Cx<'_>, loss: Loss) -> bool {
        let node = loss.node;
        if cx.facts.hosts.is_recently_lost(node) {
            return !self.is_off();
        }
        if cx.facts.hosts.is_local(node) || !self.is_open() {
            return false;
        }
        shrink_rule::dismiss(cx, &loss);
        self.notify(cx.now, RestartEvent::HostSuspected { node, at: loss.between.1.min(cx.now) });
        // The work continued without them, whether their ends are reported before or after it is done.
        self.now.exempt.extend(cx.facts.placement().ranks_of(node));
        true
    }

    /// Records that all processes of a host have ended; whether the job continues without it.
    pub(super) fn node_over(&mut self, cx: &mut Cx<'_>, node: NodeId) -> bool {
        if !cx.facts.hosts.is_recently_lost(node) {
            return false;
        }
        self.now.exempt.extend(cx.facts.placement().ranks_of(node));
        self.notify(cx.now, RestartEvent::HostLost { node });
        !self.is_off()
    }

    /// A process of this rank has come. If it was ordered to end, it had registered before the order.
    fn on_joined(&mut self, initial: Rank, proc: ProcId) {
        self.now.respawn_started.remove(&initial);
        self.now.dismissed.remove(&proc);
        self.now.exempt.remove(&initial);
        self.now.ended.retain(|failure| failure.rank != initial);
    }

    /// When something was wrong with a rank: by its host's clock, and by ours.
    fn record_fault_time(&mut self, initial: Rank, host: HostTime, at: Mono) {
        self.now.seen.entry(initial).or_insert((host, at));
    }

    /// No process is left: whatever is still waited for, no round follows. Returns the consequence for the job.
    pub(super) fn on_no_process_left(&mut self, cx: &mut Cx<'_>) -> Option<Escalation> {
        if !self.is_open() {
            return None;
        }
        // They may have been ended because of what was wrong before. Of several that have ended by themselves it counts who was the first.
        let cause = self.now.phase.machine().and_then(Restart::cause);
        let cause = cause.filter(|fault| !matches!(fault.kind, FaultKind::Ended(_))).cloned();
        let first = self.now.ended.iter().min_by_key(|failure| failure.at);
        let fault = match (cause, first) {
            (Some(fault), _) => fault,
            (None, Some(failure)) => {
                Fault { initial: failure.rank, kind: FaultKind::Ended(failure.status), text: OsBytes::default() }
            }
            (None, None) => {
                let mut placements = cx.facts.placement().ranks.with_ranks();
                let (initial, _) = placements.find(|(_, placed)| cx.facts.hosts.is_recently_lost(placed.node))?;
                Fault { initial, kind: FaultKind::HostLost, text: OsBytes::default() }
            }
        };
        let reason = EndReason::NoHealthyRank;
        let escalation = self.escalation(cx, &fault);
        cx.notify(Notice::Log(What::RoundsOver(Box::new(RoundsEnd::Impossible { fault, reason }))));
        self.off(cx.now);
        Some(escalation)
    }

    /// The job ends, or all of its ranks do and may be started again.
    pub(super) fn off(&mut self, now: Mono) {
        self.notify(now, RestartEvent::Off);
        self.now.phase.turn_off();
        self.now.leaving = None;
        self.now.respawn_queued.clear();
    }

    /// Other processes play all ranks; the number of the namespace that they share.
    pub(super) fn reset_for_generation(&mut self) -> u32 {
        self.namespace = self.namespace.saturating_add(1);
        self.now = Generation::default();
        self.namespace
    }

    pub(super) fn timeout(&mut self, now: Mono) {
        if let Some(machine) = self.now.phase.active_mut() {
            machine.handle_timeout(now);
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let machine = self.now.phase.active().and_then(Restart::poll_timeout);
        let leaving = self.now.leaving.as_ref().map(|(_, until)| *until);
        earliest_of([machine, leaving, self.unused_deadline()])
    }

    /// Does what the machine asks for; what it hands back to the job.
    pub(super) fn apply_decisions(&mut self, cx: &mut Cx<'_>) -> Option<Escalation> {
        let mut escalation = None;
        while let Some(action) = self.now.phase.poll_action() {
            match action {
                RestartAction::Send { node, msg } => self.send(cx, node, msg),
                RestartAction::Opened => {}
                RestartAction::Respawn { initial } => self.queue_respawn(initial),
                RestartAction::End { initial } => self.cancel_respawn(cx, initial),
                RestartAction::Note(note) => self.note(cx, note),
                RestartAction::Closed(given) => {
                    cx.notify(Notice::Log(What::RoundsOver(Box::new(given.clone()))));
                    match given {
                        RoundsEnd::Done => self.now.done = Some(cx.now),
                        RoundsEnd::Impossible { fault, .. } => escalation = Some(self.escalation(cx, &fault)),
                    }
                }
            }
        }
        escalation
    }

    fn send(&mut self, cx: &mut Cx<'_>, node: NodeId, msg: RoundDown) {
        if let RoundDown::Begin { place, members, .. } = &msg {
            self.namespace = self.namespace.max(place.namespace);
            if place.here {
                cx.act(JobAction::Home { node, namespace: place.namespace });
            }
            self.now.exempt.extend(members.iter().filter(|member| member.rank.is_none()).map(|member| member.initial));
        }
        cx.act(JobAction::Send { node, msg: ToNode::Round(msg) });
    }

    fn note(&mut self, cx: &mut Cx<'_>, note: RoundNote) {
        let what = self.record(cx.facts, note);
        cx.notify(Notice::Log(what));
    }

    /// Takes a note into account; the record of it.
    fn record(&mut self, facts: &JobFacts, note: RoundNote) -> What {
        match &note {
            RoundNote::Began { faults, .. } => {
                let lost = faults.iter().filter(|fault| fault.kind.is_loss()).map(|fault| fault.initial);
                self.now.exempt.extend(lost);
                self.now.ended.clear();
                self.now.seen.clear();
            }
            RoundNote::NoRoundNeeded { fault } if fault.kind.is_loss() => {
                self.now.exempt.insert(fault.initial);
                // The rank is not the cause of later failures.
                self.now.ended.retain(|failure| failure.rank != fault.initial);
            }
            RoundNote::NoRoundNeeded { .. } | RoundNote::Respawned { .. } | RoundNote::Awaited { .. } => {}
            RoundNote::Refused { .. } | RoundNote::Remark(_) => {}
        }
        let first = match &note {
            RoundNote::Began { faults, .. } => Fault::first_of(faults).map(|(fault, _)| fault.initial),
            RoundNote::NoRoundNeeded { fault } => Some(fault.initial),
            RoundNote::Respawned { initial, .. } => Some(*initial),
            RoundNote::Awaited { ranks, .. } => common_host(facts, ranks),
            RoundNote::Refused { .. } | RoundNote::Remark(_) => None,
        };
        let node =
            first.filter(|_| !is_together(facts.placement())).and_then(|initial| facts.placement().node_of(initial));
        What::Round { node, note: Box::new(note) }
    }

    /// Logs ranks that have not registered, while other ranks of their host wait for them and no host has all of its ranks registered.
    /// Only the first such host is reported.
    fn log_unregistered(&mut self, cx: &mut Cx<'_>, ranks: RankSet) {
        if !ranks.is_empty() && !core::mem::replace(&mut self.now.has_logged_unregistered, true) {
            self.note(cx, RoundNote::Awaited { round: None, step: Step::Register, ranks });
        }
    }

    /// A fault that no round makes good: as the failure of a rank, or the loss of a host.
    fn escalation(&self, cx: &Cx<'_>, fault: &Fault) -> Escalation {
        let rank = fault.initial;
        let (now, node) = (cx.now, cx.facts.placement().node_of(rank).unwrap_or(NodeId::new(0)));
        if let (FaultKind::HostLost, Some(loss)) = (fault.kind, cx.facts.hosts.recent_loss(node)) {
            return Escalation::HostLost(loss);
        }
        if let Some(failure) = self.now.ended.iter().find(|failure| failure.rank == rank) {
            return Escalation::RankFailed(RankExit { status: failing(failure.status), asked: false, ..*failure });
        }
        let status = match fault.kind {
            // Its session has ended, and it has not.
            FaultKind::Ended(Status::Lost) => FAILED,
            FaultKind::Ended(status) | FaultKind::Overdue(status) => failing(status),
            FaultKind::Exception
            | FaultKind::Hang
            | FaultKind::Left(_)
            | FaultKind::HostLost
            | FaultKind::Warned
            | FaultKind::Joined => FAILED,
        };
        let (host, at) = self.now.seen.get(&rank).copied().unwrap_or((HostTime(now.nanos()), now));
        let failure =
            RankExit { rank, node, status, at, alive_at: at, seen_after: at, here: (host, host), asked: false };
        if matches!(fault.kind, FaultKind::Left(_)) {
            Escalation::RankLeft(failure)
        } else {
            Escalation::RankFailed(failure)
        }
    }

    /// A host has not taken who wanted to register: said for the first of them.
    fn refused(&mut self, cx: &mut Cx<'_>, text: OsBytes) {
        if !core::mem::replace(&mut self.said_refused, true) {
            self.note(cx, RoundNote::Refused { text });
        }
    }

    /// Refuses ranks that register in a job that cannot restart within its processes.
    fn refuse(&self, cx: &mut Cx<'_>, node: NodeId) {
        let programs = self.spec.apps.len();
        let text = format!("only a job of one program restarts within its processes, and this has {programs}");
        let text = OsBytes::from(text);
        let msg = RoundDown::Refuse { ranks: Capped::default(), text };
        cx.act(JobAction::Send { node, msg: ToNode::Round(msg) });
    }
}

/// The name of a rank's host, where there are several.
pub(super) fn host_of(facts: &JobFacts, initial: Rank) -> OsBytes {
    let placement = facts.placement();
    let node = placement.node_of(initial).filter(|_| !is_together(placement));
    node.map(|node| facts.host_name(node)).unwrap_or_default()
}

/// The first of the ranks, if all of them run on the same host.
fn common_host(facts: &JobFacts, ranks: &RankSet) -> Option<Rank> {
    let node_of = |rank: Rank| facts.placement().node_of(rank);
    let mut all = ranks.ranges().flat_map(|(first, last)| first..=last).map(Rank::new);
    let first = all.next()?;
    all.all(|rank| node_of(rank) == node_of(first)).then_some(first)
}
