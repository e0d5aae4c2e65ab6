//! Rounds: what the machine of the in-process restart hears of the job, and what becomes of what it asks for.
//!
//! Its window is open while a function runs that can be begun again without the ranks that are gone. Until it closes, the end of a
//! rank, or the loss of a host, is its business: such a rank is over, as any that has ended, and no failure. What it cannot make good
//! is handed back, and the job's ordinary rule holds for it. Ranks that a round has left out never fail the job: it went on without
//! them.
//!
//! Programs that do not restart within themselves never say a word of rounds, and cost nothing here.

mod part;
mod respawn;
mod setting;
mod unheard;

use super::notice::{Failure, Notice};
use super::{Cx, JobAction, left};
use crate::events::{Lost, What};
use crate::id::{NodeId, ProcId, Rank, Round};
use crate::machine::{Machine as _, earliest};
use crate::os_bytes::OsBytes;
use crate::place::Placement;
use crate::rank_set::RankSet;
use crate::report::Sentence;
use crate::restart::fault::{Fault, FaultKind};
use crate::restart::{Given, Limits, Restart, RestartAction, RestartEvent, RoundNote, Step};
use crate::rounds::PolicyReader;
use crate::spec::JobSpec;
use crate::status::Status;
use crate::time::{HostTime, Mono};
use crate::wire::capped::Capped;
use crate::wire::round::RoundDown;
use crate::wire::to_node::ToNode;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use unheard::Unheard;

/// What a status says of a rank that had no status to fail with: one that raised, or left, or came to a hasty but good end.
const FAILED: Status = Status::Exited(1);

/// What the job makes of rounds that were given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Up {
    /// A rank has failed.
    Rank(Failure),
    /// One has left of its own will: what it fails with it says when its process ends.
    Left(Failure),
    /// A host was lost.
    Host(NodeId, Lost, (Mono, Mono)),
}

/// The rounds of a job.
#[derive(Debug)]
pub(super) struct Rounds {
    spec: Arc<JobSpec>,
    read: PolicyReader,
    /// Without the hosts that could not be had, if there were any.
    fewer: Option<Arc<Placement>>,
    /// That of this generation, once somebody has registered.
    machine: Option<Box<Restart>>,
    /// The job ends, or all ranks do: no round follows.
    off: bool,
    /// The end of the first process that had ended before, or that one had left.
    early: Option<RestartEvent>,
    /// The number of the space of the store that was used last.
    space: u32,
    /// Ranks that a round goes on without, or will.
    excused: BTreeSet<Rank>,
    /// Processes that were told to end, as nobody waits for them any more. One that has registered meanwhile takes part.
    unwanted: BTreeSet<ProcId>,
    /// How ranks have ended in this round, in the order in which we heard of it.
    ended: Vec<Failure>,
    /// When something was wrong with others: by their hosts' clocks, and by ours.
    seen: BTreeMap<Rank, (HostTime, Mono)>,
    /// When the work was done: who had ended before that, and could, fails nothing.
    done: Option<Mono>,
    /// Hosts that were lost while the window was open, and how.
    gone: BTreeMap<NodeId, (Lost, (Mono, Mono))>,
    /// Of them those of which nothing runs any more, as far as anybody can know.
    over: BTreeSet<NodeId>,
    /// Hosts that have turned out to have no GPUs for one more rank.
    full: BTreeSet<NodeId>,
    /// From where ranks have gone to other hosts.
    homes: BTreeMap<Rank, NodeId>,
    /// Ranks of which another process is wanted, as soon as one can be started.
    wanted: BTreeSet<Rank>,
    /// Those that were asked for and are not known to have started; one may have registered before that is known.
    asked: BTreeSet<ProcId>,
    /// Those that were asked for and have not registered, and where.
    coming: BTreeMap<Rank, (ProcId, NodeId)>,
    /// Something was asked of rounds, and nobody has registered.
    unheard: Unheard,
    /// Ranks that have not registered were named.
    has_logged_unregistered: bool,
    /// It was said why a process could not.
    said_refused: bool,
    /// Without this one there is no other round, and its process has until then to end by itself.
    leaving: Option<(Failure, Mono)>,
}

/// How a rank has failed that was to go on: a good end in the midst of the function is none.
const fn failing(status: Status) -> Status {
    if status.is_success() { FAILED } else { status }
}

impl Rounds {
    pub(super) const fn new(spec: Arc<JobSpec>, read: PolicyReader) -> Self {
        Self {
            spec,
            read,
            fewer: None,
            machine: None,
            off: false,
            early: None,
            space: 0,
            excused: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            ended: Vec::new(),
            seen: BTreeMap::new(),
            done: None,
            gone: BTreeMap::new(),
            over: BTreeSet::new(),
            full: BTreeSet::new(),
            homes: BTreeMap::new(),
            wanted: BTreeSet::new(),
            asked: BTreeSet::new(),
            coming: BTreeMap::new(),
            unheard: Unheard::Idle,
            has_logged_unregistered: false,
            said_refused: false,
            leaving: None,
        }
    }

    /// The job, or its next generation, goes on with fewer hosts.
    pub(super) fn reseat(&mut self, placement: &Arc<Placement>) {
        self.fewer = Some(Arc::clone(placement));
    }

    /// Where the ranks of this generation run.
    pub(super) fn placement(&self) -> &Placement {
        self.fewer.as_deref().unwrap_or(&self.spec.placement)
    }

    /// The round that runs, or ends.
    pub(super) fn round(&self) -> Option<Round> {
        self.machine.as_ref().and_then(|machine| machine.round())
    }

    fn is_open(&self) -> bool {
        !self.off && self.machine.as_ref().is_some_and(|machine| machine.is_open())
    }

    /// The work of a call is done, and nobody has come for another.
    fn rests(&self) -> bool {
        !self.off && self.machine.as_ref().is_some_and(|machine| machine.rests())
    }

    /// A host was lost, and the job goes on without it.
    pub(super) fn is_gone(&self, node: NodeId) -> bool {
        self.gone.contains_key(&node)
    }

    /// A program that restarts within itself runs: it can do with fewer ranks.
    pub(super) const fn is_used(&self) -> bool {
        self.machine.is_some()
    }

    /// How few ranks are enough.
    pub(super) fn limits(&self) -> Limits {
        self.machine.as_ref().map_or(self.spec.rounds.limits, |machine| machine.limits())
    }

    /// Tells the machine something, if there is one.
    fn tell(&mut self, now: Mono, event: RestartEvent) {
        if let Some(machine) = self.machine.as_mut().filter(|_| !self.off) {
            machine.handle(now, event);
        }
    }

    /// A process has ended; whether that is a matter of rounds, and no failure of the job's.
    pub(super) fn ended(&mut self, now: Mono, proc: ProcId, failure: &Failure) -> bool {
        let Failure { rank, status, at, .. } = *failure;
        let late = self.rests() && self.coming.get(&rank).is_some_and(|(own, _)| *own == proc);
        let known = self.excused.contains(&rank) || self.unwanted.remove(&proc) || late;
        let open = self.is_open();
        if open {
            self.excused.insert(rank);
            // Who is out already, or not in, ends for reasons of its own.
            if self.machine.as_ref().is_some_and(|machine| machine.concerns(rank)) {
                self.ended.push(*failure);
            }
        }
        if self.coming.get(&rank).is_some_and(|(own, _)| *own == proc) {
            self.coming.remove(&rank);
        }
        if self.machine.is_none() {
            self.early.get_or_insert(RestartEvent::Ended { initial: rank, proc, status, at });
        }
        self.tell(now, RestartEvent::Ended { initial: rank, proc, status, at });
        open || known || self.done.is_some_and(|done| at < done)
    }

    /// One has left who was the first of whom we hear: none of the others has registered, and all will wait for it.
    fn left_early(&mut self, fault: &RestartEvent) {
        if let RestartEvent::Fault { fault: Fault { kind: FaultKind::Left(_) | FaultKind::Ended(_), .. }, .. } = fault
            && self.machine.is_none()
        {
            self.early.get_or_insert_with(|| fault.clone());
        }
    }

    /// A part of ours was lost on a host; whether that is a matter of rounds. Its ranks may still run, but they are lost, and by the end
    /// of its lease they have ended: the others can leave their function meanwhile.
    pub(super) fn loses(&mut self, cx: &mut Cx<'_>, node: NodeId, lost: Lost, between: (Mono, Mono)) -> bool {
        if self.gone.contains_key(&node) {
            return !self.off;
        }
        let local = self.placement().nodes.get(node.index()).is_none_or(|node| node.local);
        if local || !self.is_open() {
            return false;
        }
        self.gone.insert(node, (lost, between));
        left::dismiss(cx, node, lost);
        self.tell(cx.now, RestartEvent::NodeMissed { node, at: between.1.min(cx.now) });
        // Whether we hear of their ends before or after the work is done, it went on without them.
        let ranks = self.ranks_of(node);
        self.excused.extend(ranks);
        true
    }

    /// Nothing of a host's runs any more; whether the job goes on without it.
    pub(super) fn node_over(&mut self, now: Mono, node: NodeId) -> bool {
        if !self.is_gone(node) {
            return false;
        }
        let ranks = self.ranks_of(node);
        self.excused.extend(ranks);
        self.tell(now, RestartEvent::NodeLost { node });
        !self.off
    }

    fn ranks_of(&self, node: NodeId) -> Vec<Rank> {
        let seats = self.placement().seats.iter().zip((0..).map(Rank::new));
        seats.filter(|(seat, _)| seat.node == node).map(|(_, rank)| rank).collect()
    }

    /// A process of this rank has come. If it was told to end, it had registered before it was.
    fn comes(&mut self, initial: Rank, proc: ProcId) {
        self.coming.remove(&initial);
        self.unwanted.remove(&proc);
        self.excused.remove(&initial);
        self.ended.retain(|failure| failure.rank != initial);
    }

    /// When something was wrong with a rank: by its host's clock, and by ours.
    fn saw(&mut self, initial: Rank, host: HostTime, at: Mono) {
        self.seen.entry(initial).or_insert((host, at));
    }

    /// No process is left: whatever is still waited for, no round follows. What the job makes of that.
    fn nobody_left(&mut self, cx: &mut Cx<'_>, generation: u32) -> Option<Up> {
        if !self.is_open() {
            return None;
        }
        // They may have been ended because of what was wrong before. Of several that have ended by themselves it counts who was the first.
        let told = self.machine.as_ref().and_then(|machine| machine.cause());
        let told = told.filter(|fault| !matches!(fault.kind, FaultKind::Ended(_))).cloned();
        let first = self.ended.iter().min_by_key(|failure| failure.at);
        let fault = match (told, first) {
            (Some(fault), _) => fault,
            (None, Some(failure)) => {
                Fault { initial: failure.rank, kind: FaultKind::Ended(failure.status), text: OsBytes::default() }
            }
            (None, None) => {
                let seats = self.placement().seats.iter().zip((0..).map(Rank::new));
                let (_, initial) = seats.into_iter().find(|(seat, _)| self.is_gone(seat.node))?;
                Fault { initial, kind: FaultKind::HostLost, text: OsBytes::default() }
            }
        };
        let text = OsBytes::from("no healthy rank is left");
        let up = self.up(cx.now, &fault);
        cx.tell(Notice::Log(What::RoundsOver(Box::new(Given::Up { fault, text: text.clone() }))));
        cx.act(JobAction::Say(Sentence::GivenUp { generation, round: self.round(), text }));
        self.off(cx.now);
        Some(up)
    }

    /// The job ends, or all of its ranks do and may be started again.
    pub(super) fn off(&mut self, now: Mono) {
        self.tell(now, RestartEvent::Off);
        self.off = true;
        self.leaving = None;
        self.wanted.clear();
    }

    /// Other processes play all ranks; the number of the space that they share.
    pub(super) fn again(&mut self) -> u32 {
        self.space = self.space.saturating_add(1);
        (self.machine, self.off, self.early, self.done) = (None, false, None, None);
        self.has_logged_unregistered = false;
        self.excused.clear();
        self.unwanted.clear();
        self.ended.clear();
        self.seen.clear();
        self.gone.clear();
        self.over.clear();
        self.homes.clear();
        self.wanted.clear();
        self.asked.clear();
        self.coming.clear();
        self.leaving = None;
        self.space
    }

    pub(super) fn timeout(&mut self, now: Mono) {
        if let Some(machine) = self.machine.as_mut().filter(|_| !self.off) {
            machine.handle_timeout(now);
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let machine = self.machine.as_ref().filter(|_| !self.off).and_then(|machine| machine.poll_timeout());
        let leaving = self.leaving.as_ref().map(|(_, until)| *until);
        earliest(earliest(machine, leaving), self.unheard_at())
    }

    /// Does what the machine asks for; what it hands back to the job.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>, generation: u32) -> Option<Up> {
        let mut up = None;
        while let Some(action) = self.machine.as_mut()?.poll_action() {
            match action {
                RestartAction::Send { node, msg } => self.send(cx, node, msg),
                RestartAction::Opened => {}
                RestartAction::Respawn { initial } => self.wants(initial),
                RestartAction::End { initial } => self.wants_no(cx, initial),
                RestartAction::Note(note) => self.note(cx, generation, note),
                RestartAction::Closed(given) => {
                    cx.tell(Notice::Log(What::RoundsOver(Box::new(given.clone()))));
                    match given {
                        Given::Done => self.done = Some(cx.now),
                        Given::Up { fault, text } => {
                            cx.act(JobAction::Say(Sentence::GivenUp { generation, round: self.round(), text }));
                            up = Some(self.up(cx.now, &fault));
                        }
                    }
                }
            }
        }
        up
    }

    fn send(&mut self, cx: &mut Cx<'_>, node: NodeId, msg: RoundDown) {
        if let RoundDown::Begin { place, seats, .. } = &msg {
            self.space = self.space.max(place.space);
            if place.here {
                cx.act(JobAction::Home { node, space: place.space });
            }
            self.excused.extend(seats.iter().filter(|seat| seat.rank.is_none()).map(|seat| seat.initial));
        }
        cx.act(JobAction::Send { node, msg: ToNode::Round(msg) });
    }

    fn note(&mut self, cx: &mut Cx<'_>, generation: u32, note: RoundNote) {
        match &note {
            RoundNote::Began { faults, .. } => {
                let lost = faults.iter().filter(|fault| fault.kind.is_loss()).map(|fault| fault.initial);
                self.excused.extend(lost);
                self.ended.clear();
                self.seen.clear();
            }
            RoundNote::Spared { fault } if fault.kind.is_loss() => {
                self.excused.insert(fault.initial);
                // Whatever comes, it is not its doing.
                self.ended.retain(|failure| failure.rank != fault.initial);
            }
            RoundNote::Spared { .. } | RoundNote::Again { .. } | RoundNote::Awaited { .. } => {}
            RoundNote::Refused { .. } | RoundNote::Policy { .. } => {}
        }
        let first = match &note {
            RoundNote::Began { faults, .. } => Fault::first_of(faults).map(|(fault, _)| fault.initial),
            RoundNote::Spared { fault } => Some(fault.initial),
            RoundNote::Again { initial, .. } => Some(*initial),
            RoundNote::Awaited { ranks, .. } => self.common_host(ranks),
            RoundNote::Refused { .. } | RoundNote::Policy { .. } => None,
        };
        let host = first.map_or_else(OsBytes::default, |initial| self.host(initial));
        cx.tell(Notice::Log(What::Round(Box::new(note.clone()))));
        cx.act(JobAction::Say(Sentence::Round { generation, host, note: Box::new(note) }));
    }

    /// One of these ranks, if they all run on one host.
    fn common_host(&self, ranks: &RankSet) -> Option<Rank> {
        let node_of = |rank: Rank| self.placement().seats.get(rank.index()).map(|seat| seat.node);
        let mut all = ranks.ranges().flat_map(|(first, last)| first..=last).map(Rank::new);
        let first = all.next()?;
        all.all(|rank| node_of(rank) == node_of(first)).then_some(first)
    }

    /// Ranks of a host wait for others of it, and no host has all of its ranks registered: logged for the first such host.
    fn log_unregistered(&mut self, cx: &mut Cx<'_>, generation: u32, ranks: RankSet) {
        if !ranks.is_empty() && !core::mem::replace(&mut self.has_logged_unregistered, true) {
            self.note(cx, generation, RoundNote::Awaited { round: None, step: Step::Register, ranks });
        }
    }

    /// The name of a rank's host, where there are several.
    fn host(&self, initial: Rank) -> OsBytes {
        let placement = self.placement();
        let node = placement.seats.get(initial.index()).filter(|_| placement.used().nth(1).is_some());
        let host = node.and_then(|seat| placement.nodes.get(seat.node.index()));
        host.map(|node| OsBytes::from(node.host.name.as_str())).unwrap_or_default()
    }

    /// A fault that no round makes good: as the failure of a rank, or the loss of a host.
    fn up(&self, now: Mono, fault: &Fault) -> Up {
        let rank = fault.initial;
        let node = self.placement().seats.get(rank.index()).map_or(NodeId::new(0), |seat| seat.node);
        if let (FaultKind::HostLost, Some((lost, between))) = (fault.kind, self.gone.get(&node)) {
            return Up::Host(node, *lost, *between);
        }
        if let Some(failure) = self.ended.iter().find(|failure| failure.rank == rank) {
            return Up::Rank(Failure { status: failing(failure.status), asked: false, ..*failure });
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
        let (host, at) = self.seen.get(&rank).copied().unwrap_or((HostTime(now.nanos()), now));
        let failure =
            Failure { rank, node, status, at, alive_at: at, seen_after: at, here: (host, host), asked: false };
        if matches!(fault.kind, FaultKind::Left(_)) { Up::Left(failure) } else { Up::Rank(failure) }
    }

    /// A host has not taken who wanted to register: said for the first of them.
    fn refused(&mut self, cx: &mut Cx<'_>, generation: u32, text: OsBytes) {
        if !core::mem::replace(&mut self.said_refused, true) {
            self.note(cx, generation, RoundNote::Refused { text });
        }
    }

    /// Those who have registered in a job that restarts nothing within processes are told so.
    fn refuse(&self, cx: &mut Cx<'_>, node: NodeId) {
        let programs = self.spec.apps.len();
        let text = format!("only a job of one program restarts within its processes, and this has {programs}");
        let text = OsBytes::from(text);
        let msg = RoundDown::Refuse { ranks: Capped::default(), text };
        cx.act(JobAction::Send { node, msg: ToNode::Round(msg) });
    }
}
