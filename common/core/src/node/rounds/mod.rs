//! Rounds, as a node sees them: the ranks that take part, those in their function, and those out of it.
//!
//! The launcher decides. Ranks are reported to it together where it can do nothing before the last of them. Facts that only this host can
//! know are found here: a rank that hangs, a session that ends. A process that was ordered to end, or is about to be, is waited for. When
//! the next round begins, its devices and ports are thus free, and it writes nothing any more. The wait is limited: a process that
//! SIGKILL does not end within `UNKILLABLE`, or that lives long after its session, holds up no round.

mod awaited;
mod call_state;
mod hang_watch;
mod local_member;
mod round_orders;
mod round_reports;

use super::{Cx, NodeAction, Sandbox};
use crate::node::SessionAction;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use awaited::Awaited;
use core::net::IpAddr;
use local_member::{LocalMember, LocalState};
use rlaunch_base::capped::Capped;
use rlaunch_base::error::hinted;
use rlaunch_base::id::{ProcId, Rank, Round, SessionId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::rank_fault::{FaultKind, Leave};
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, ClientMessage, Dismissal};
use rlaunch_protocol::wire::round::{KEY, RoundMember, RoundRendezvous};
use rlaunch_protocol::wire::to_node::{Delta, Rendezvous, Start};
use rlaunch_restart::detect::{HangLimits, Soonest};
use rlaunch_restart::terms::{self, Terms};

/// From the end of a session to that of its process, which closes its descriptors on the way. A process that takes longer is not waited
/// for, but another takes its place only after its end.
const DYING: Span = Span::from_secs(2);

/// Why a process of a job with groups cannot register.
const IN_WORLDS: &str = "a function is not restarted within the processes of a job with groups (--group)";

/// Processes of this node for which a round begins.
pub(super) struct RoundStart {
    pub(super) round: Round,
    pub(super) place: RoundRendezvous,
    /// The numbers of those of this node that work in it.
    pub(super) numbers: RankSet,
    /// Initial ranks whose numbers have changed: their output is marked.
    pub(super) marked: RankSet,
    pub(super) who: Vec<(SessionId, Delta, RoundMember)>,
}

pub(super) struct Rounds {
    state: State,
    round: Round,
    /// How many calls are done, and the first round of this one: programs count from it.
    call: u32,
    first: Round,
    /// Ranks of this node, while none has registered: most jobs know nothing of rounds, and what is kept of each is little.
    idle: Vec<Delta>,
    members: BTreeMap<Rank, LocalMember>,
    procs: BTreeMap<ProcId, Rank>,
    sessions: BTreeMap<SessionId, Rank>,
    /// Sessions of calls that are done: their programs may still run hooks.
    closing: BTreeMap<SessionId, (Rank, ProcId)>,
    /// All ranks of this node are known.
    complete: bool,
    programs: u32,
    /// The job has several worlds.
    has_worlds: bool,
    /// Processes may follow others that have ended.
    can_start_more: bool,
    /// The address at which others find this host.
    at: Option<OsBytes>,
    /// The TCPStore is an agent's.
    agent_store: bool,
    limits: HangLimits,
    /// Time to wait for others after that.
    awaits: Span,
    soonest: Soonest,
    awaited: Awaited,
    /// When a message came, or ranks were looked at, last.
    seen: Mono,
    /// Whether the launcher knows that a rank waits here for others in vain.
    alone: bool,
    /// The terms that were sent to the launcher with the registered ranks.
    sent_terms: Option<OsBytes>,
    /// Whether the launcher has got a refusal.
    refused: bool,
    /// Whether the host is about to be taken away, and with it every rank that registers from now on.
    warned: bool,
    /// Parts of a round that begins.
    parts: Vec<RoundMember>,
    /// The port that is held for the next round; 0: none.
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No round has begun.
    Gathering,
    /// A round runs.
    Running {
        /// The launcher knows that its work is done here.
        returned: bool,
    },
    /// All are leaving it.
    Interrupting,
    /// The ranks have left it; a port is being chosen.
    Reserving,
    /// The launcher knows.
    Waiting,
    /// No round follows.
    Over,
    /// The ranks are being ended.
    Off,
}

impl State {
    /// The end of a rank is a matter of rounds.
    const fn is_open(self) -> bool {
        match self {
            Self::Running { .. } | Self::Interrupting | Self::Reserving | Self::Waiting => true,
            Self::Gathering | Self::Over | Self::Off => false,
        }
    }
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            state: State::Gathering,
            round: Round::new(0),
            call: 0,
            first: Round::new(0),
            idle: Vec::new(),
            members: BTreeMap::new(),
            procs: BTreeMap::new(),
            sessions: BTreeMap::new(),
            closing: BTreeMap::new(),
            complete: false,
            programs: 0,
            has_worlds: false,
            can_start_more: false,
            at: None,
            agent_store: false,
            limits: HangLimits::default(),
            awaits: Span::ZERO,
            soonest: Soonest::default(),
            awaited: Awaited::None,
            seen: Mono::default(),
            alone: false,
            sent_terms: None,
            refused: false,
            warned: false,
            parts: Vec::new(),
            port: 0,
        }
    }
}

impl Rounds {
    /// Whether the end of a rank is a matter of rounds.
    pub(super) const fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// Sessions, processes and ranks mean each other.
    pub(super) fn check(&self) -> Result<(), String> {
        for (session, rank) in &self.sessions {
            if self.members.get(rank).is_none_or(|member| member.session != Some(*session)) {
                return Err(format!("session {session:?} is of rank {rank}, which has another one or none"));
            }
        }
        for (rank, member) in &self.members {
            if member.session.is_some_and(|session| self.sessions.get(&session) != Some(rank)) {
                return Err(format!("rank {rank} has a session that is not its own: {:?}", member.session));
            }
            if member.lives && self.procs.get(&member.delta.proc) != Some(rank) {
                return Err(format!("process {:?} of rank {rank} lives, and is not in the table", member.delta.proc));
            }
        }
        Ok(())
    }

    /// Takes the settings of the launcher's first message.
    pub(super) fn on_begun(&mut self, start: &Start) {
        (self.programs, self.can_start_more, self.awaits) = (start.apps, start.can_start_more, start.awaits);
        self.has_worlds = start.has_worlds;
        start.rendezvous.iter().for_each(|rendezvous| self.on_met(rendezvous, None));
    }

    /// The job has several worlds from now on.
    pub(super) const fn on_world(&mut self) {
        self.has_worlds = true;
    }

    /// The address at which others find this host, if it is not rank 0's.
    pub(super) fn on_ready(&mut self, sandbox: &Sandbox) {
        let reached = sandbox.hello.reached.as_ref().and_then(|reached| reached.at.first());
        self.at = self.at.take().or_else(|| reached.cloned());
    }

    /// `by`: the address of this host by which it has reached rank 0's. The launcher takes that for where others find it.
    pub(super) fn on_met(&mut self, rendezvous: &Rendezvous, by: Option<IpAddr>) {
        self.agent_store = rendezvous.agent_store;
        if rendezvous.node_index == 0 {
            self.at = Some(rendezvous.addr.clone());
        } else if let Some(by) = by {
            self.at = Some(OsBytes::from(by.to_string()));
        }
    }

    /// These ranks are to run. Within rounds the process of a rank that has ended may be followed by another: says which by which, if
    /// one was here. `None`: it may not.
    pub(super) fn on_queue(&mut self, deltas: &[Delta], last: bool) -> Option<Vec<(ProcId, Option<ProcId>)>> {
        if !self.complete {
            self.complete = last;
            match self.members.is_empty() {
                true => self.idle.extend_from_slice(deltas),
                false => deltas.iter().for_each(|delta| self.take_in(*delta)),
            }
            return Some(Vec::new());
        }
        let before = |delta: &Delta| match self.members.get(&delta.rank) {
            Some(member) if member.lives => None,
            Some(member) => Some((delta.proc, Some(member.proc()))),
            None => Some((delta.proc, None)),
        };
        // After a call, too: the next one may have begun elsewhere.
        let may = self.state.is_open() || (self.state == State::Gathering && self.call > 0);
        let pairs: Vec<_> = deltas.iter().map(before).collect::<Option<_>>().filter(|_| may)?;
        deltas.iter().for_each(|delta| self.take_in(*delta));
        Some(pairs)
    }

    fn take_in(&mut self, delta: Delta) {
        self.procs.insert(delta.proc, delta.rank);
        if let Some(before) = self.members.insert(delta.rank, LocalMember::new(delta)) {
            before.session.map(|session| self.sessions.remove(&session));
        }
    }

    /// Other ranks follow.
    pub(super) fn on_next_generation(&mut self, rendezvous: &Rendezvous) {
        let Self { programs, has_worlds, can_start_more, at, awaits, seen, warned, .. } = core::mem::take(self);
        *self = Self { programs, has_worlds, can_start_more, at, awaits, seen, warned, ..Self::default() };
        self.on_met(rendezvous, None);
    }

    /// Records that all ranks are being ended: later events do not concern rounds.
    pub(super) fn on_ending(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Off;
        self.soonest = Soonest::default();
        self.awaited = Awaited::None;
        self.members.values_mut().for_each(LocalMember::put_out);
        self.use_port(cx, false);
    }

    /// A process registers.
    pub(super) fn on_session_begun(
        &mut self,
        cx: &mut Cx<'_>,
        session: SessionId,
        rank: Option<Rank>,
        asked: &[(OsBytes, OsBytes)],
    ) {
        core::mem::take(&mut self.idle).into_iter().for_each(|delta| self.take_in(delta));
        let came = self.admit(rank).and_then(|initial| {
            let terms = terms_of(asked);
            if let Err(why) = &terms {
                self.report_refused(cx, why);
            }
            Ok((initial, terms?))
        });
        match came {
            Ok((initial, _)) if self.is_behind(initial) => self.catch_up(cx, session, initial),
            Ok((initial, terms)) => {
                if self.sent_terms.is_none() {
                    self.limits = HangLimits { others: self.awaits, ..HangLimits::from(&terms) };
                }
                self.sessions.insert(session, initial);
                if let Some(member) = self.members.get_mut(&initial) {
                    (member.session, member.part) = (Some(session), LocalState::Joined);
                    if !member.watch.is_ending() {
                        // Hooks of the call before have come to their end.
                        member.watch.rest();
                    }
                    // Its keys are its own, and are reported as such: the remaining terms are common to many ranks.
                    member.keys = Capped::chunks(terms.own).into_iter().next().unwrap_or_default();
                    let shared = |(name, _): &&(OsBytes, OsBytes)| !name.starts_with(b"key.");
                    let asked: Vec<_> = asked.iter().filter(shared).cloned().collect();
                    // Nothing at all would mean that it asks for what others ask for.
                    member.terms = if asked.is_empty() { OsBytes::from("keys=0\n") } else { terms::lines(&asked) };
                }
                self.report_progress(cx);
            }
            Err(why) => {
                let order = AgentMessage::Dismissed(Dismissal::Refused, OsBytes::from(why));
                cx.act(NodeAction::Sessions(SessionAction::Send { session, message: Box::new(order) }));
                cx.act(NodeAction::Sessions(SessionAction::End { session }));
            }
        }
    }

    /// Whether it may take part: who it is.
    fn admit(&self, rank: Option<Rank>) -> Result<Rank, String> {
        if self.has_worlds {
            return Err(IN_WORLDS.into());
        }
        let rank =
            rank.ok_or("the process does not say which rank it is: RLAUNCH_RANK is not set in its environment")?;
        let member = self.members.get(&rank).filter(|member| member.lives);
        let member = member.ok_or_else(|| format!("no rank {rank} of this job runs on this host"))?;
        if self.programs > 1 {
            let programs = self.programs;
            return Err(format!("a function is restarted only in jobs of one program, and this one has {programs}"));
        }
        match (self.state, member.part) {
            (State::Off, _) => return Err("the job is about to end".into()),
            (State::Over, _) => return Err("the rounds of this job are over".into()),
            (_, LocalState::Absent) => {}
            (_, LocalState::Out) => return Err(format!("rank {rank} takes no part any more")),
            (
                _,
                LocalState::Joined
                | LocalState::Working
                | LocalState::Reserve
                | LocalState::Returned
                | LocalState::Ready
                | LocalState::Lost(_)
                | LocalState::Ending,
            ) => return Err(format!("another process or thread of rank {rank} takes part already")),
        }
        Ok(rank)
    }

    /// Handles a message of a session.
    pub(super) fn on_session_message(&mut self, cx: &mut Cx<'_>, session: SessionId, said: ClientMessage) {
        let (round, limits) = (self.in_call(self.round), self.limits);
        let Some(member) = self.sessions.get(&session).and_then(|rank| self.members.get_mut(rank)) else {
            return self.closes(cx, session, &said);
        };
        let initial = member.initial();
        match said {
            ClientMessage::Fault(of, text)
                if of == round && matches!(member.part, LocalState::Working | LocalState::Reserve) =>
            {
                member.watch.leave(cx.now, Span::ZERO, &limits);
                self.soonest.mind(&member.watch, &limits);
                if !core::mem::replace(&mut member.failed, true) {
                    self.report_fault(cx, initial, FaultKind::Exception, &text);
                }
            }
            ClientMessage::Ready(of, keys) if of == round && member.part.is_interrupted() => {
                self.is_out(cx, initial, keys)
            }
            ClientMessage::Returned(of) if of == round && member.part == LocalState::Working => {
                member.part = LocalState::Returned;
                // It may have the interrupt already.
                if matches!(self.state, State::Running { .. }) {
                    member.watch.returned(cx.now);
                    self.soonest.mind(&member.watch, &limits);
                }
                self.report_progress(cx);
            }
            ClientMessage::Leave(why, text) if member.part.is_in() && member.part != LocalState::Ending => {
                member.put_out();
                self.report_fault(cx, initial, FaultKind::Left(why), &text);
                self.report_progress(cx);
            }
            ClientMessage::Alive(of, pinged) if of == round => {
                member.watch.alive(cx.now, pinged);
                member.pinged |= pinged;
                // With the first word in a round its silence begins to count.
                self.soonest.mind(&member.watch, &limits);
            }
            ClientMessage::Section(of, span) if of == round => {
                member.watch.section(cx.now, span);
                self.soonest.mind(&member.watch, &limits);
            }
            // Of who takes no part any more too, in whatever round.
            ClientMessage::Hooks(of, run)
                if (of == round || member.part == LocalState::Out) && self.state != State::Off =>
            {
                member.watch.hooks(cx.now, run);
                self.soonest.mind(&member.watch, &limits);
            }
            ClientMessage::Section(_, span) if member.part == LocalState::Out => {
                member.watch.section(cx.now, span);
                self.soonest.mind(&member.watch, &limits);
            }
            // A message of an earlier round, or of a rank that is out.
            ClientMessage::Fault(..)
            | ClientMessage::Ready(..)
            | ClientMessage::Returned(_)
            | ClientMessage::Leave(..) => {}
            ClientMessage::Alive(..)
            | ClientMessage::Section(..)
            | ClientMessage::Hooks(..)
            | ClientMessage::Register(_) => {}
        }
    }

    /// Records that a rank is out of its function, and its keys.
    fn is_out(&mut self, cx: &mut Cx<'_>, initial: Rank, keys: Vec<OsBytes>) {
        let Some(member) = self.members.get_mut(&initial) else { return };
        if keys.iter().any(|key| key.len() > KEY) {
            member.put_out();
            let text = OsBytes::from(too_long_a_key());
            let order = AgentMessage::Dismissed(Dismissal::Refused, text.clone());
            member.session.iter().for_each(|session| {
                cx.act(NodeAction::Sessions(SessionAction::Send {
                    session: *session,
                    message: Box::new(order.clone()),
                }));
            });
            self.report_fault(cx, initial, FaultKind::Left(Leave::Unhealthy), &text);
        } else {
            member.part = LocalState::Ready;
            member.keys = Capped::chunks(keys).into_iter().next().unwrap_or_default();
            member.watch.ready(cx.now, &self.limits);
            self.soonest.mind(&member.watch, &self.limits);
        }
        self.report_progress(cx);
    }

    /// Its session has ended. The end of its process is seen soon, and is more precise.
    pub(super) fn on_gone(&mut self, cx: &mut Cx<'_>, session: SessionId) {
        let Some(member) = self.sessions.remove(&session).and_then(|rank| self.members.get_mut(&rank)) else {
            return self.has_closed(session);
        };
        member.session = None;
        if member.part.is_in() && member.part != LocalState::Ending {
            member.part = LocalState::Lost(cx.now + DYING);
            member.watch.rest();
        } else if !member.watch.is_ending() {
            // A process without a session is not watched.
            member.watch.rest();
        }
    }

    /// Handles the end of a process, which is reported to the launcher elsewhere.
    pub(super) fn on_exited(&mut self, cx: &mut Cx<'_>, proc: ProcId) {
        self.idle.retain(|delta| delta.proc != proc);
        let Some(member) = self.procs.get(&proc).and_then(|rank| self.members.get_mut(rank)) else { return };
        if member.proc() != proc || !core::mem::replace(&mut member.lives, false) {
            return;
        }
        let was_in = member.part.is_in() || member.watch.is_ending();
        member.put_out();
        if was_in && self.state.is_open() {
            // The others continue without it, and so without its children.
            cx.act(NodeAction::Signal { proc, sig: Signal::KILL });
        }
        self.report_progress(cx);
    }
}

/// Why a process is refused whose keys are longer than a message may hold.
fn too_long_a_key() -> String {
    format!("a key of the policy has a value of more than {KEY} bytes")
}

/// The terms of a process, or the error in them.
fn terms_of(asked: &[(OsBytes, OsBytes)]) -> Result<Terms, String> {
    if asked.iter().any(|(name, value)| name.starts_with(b"key.") && value.len() > KEY) {
        return Err(too_long_a_key());
    }
    let pairs = asked.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    Terms::of(pairs).map_err(|error| hinted(&error))
}
