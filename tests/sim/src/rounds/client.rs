//! Simulated processes that restart a function within themselves, and what they do to each other's plans.

use super::{Ev, World};
use rlaunch_base::id::{LocalRank, ProcId, Rank, Round, SessionId};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::rank_fault::Leave;
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, Begin, ClientMessage, Dismissal};
use rlaunch_protocol::wire::to_root::Usage;

/// The next step of a process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Registers,
    /// Its round has begun, and it enters the function.
    Enters,
    /// Its function raises.
    Fails,
    /// Returns.
    Returns,
    /// Pings, and a planned interrupt waits for that.
    Yields,
    /// Is out, cleaned up and healthy.
    IsReady,
    Leaves(Leave),
    /// Its hooks in reserve have come to their end.
    HooksEnd,
    /// The hooks after the work have run, and its call returns.
    CallEnds,
    Ends(Status),
}

/// The position of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Before,
    Registered,
    /// Notified that this round begins, and not yet in its function.
    Entering,
    /// In the function of this round.
    Inside,
    Reserve,
    /// Has returned from it, and waits for the others.
    Returned,
    /// Out of it.
    Outside,
    Ready,
    /// Its call has ended: for it there are no rounds any more.
    Done,
    Left,
    Dismissed,
}

/// A process.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) rank: Rank,
    pub(super) host: usize,
    pub(super) local_rank: LocalRank,
    pub(super) generation: u32,
    pub(super) session: Option<SessionId>,
    pub(super) place: Place,
    /// … since then, if it has come there by itself.
    pub(super) since: u64,
    pub(super) round: Option<Round>,
    /// Steps that were planned before are dropped.
    pub(super) turn: u32,
    /// Its action in the function that it is about to enter, and the time until then. `None`: it hangs.
    pub(super) then: Option<(u64, Act)>,
    /// Whether it was to yield before it had entered.
    pub(super) is_to_yield: bool,
    /// Whether it has left the round without having entered its function.
    pub(super) has_not_entered: bool,
    /// Whether it was in a round.
    pub(super) took_part: bool,
    /// Number of calls that it has finished.
    pub(super) calls: u32,
    /// Its agent knows that hooks of it run.
    pub(super) hooks: bool,
    /// Whether it was killed, and the kernel cannot end it: it does nothing any more.
    pub(super) is_stuck: bool,
    /// Its streams have ended.
    pub(super) is_silent: bool,
    /// How it has ended.
    pub(super) ended: Option<Status>,
}

impl Client {
    pub(super) fn lives(&self) -> bool {
        self.ended.is_none()
    }

    /// Whether it runs the function of a round.
    pub(super) fn is_inside(&self) -> bool {
        self.lives() && !self.is_stuck && matches!(self.place, Place::Entering | Place::Inside)
    }
}

const KILLED: Status = Status::Signaled { sig: Signal::KILL, core: false };

impl World {
    /// Plans what a process does, in place of what was planned.
    pub(super) fn plans(&mut self, proc: ProcId, after: u64, act: Act) {
        if let Some(client) = self.procs.get_mut(&proc) {
            client.turn += 1;
            let turn = client.turn;
            self.at(self.now + after, Ev::Client(proc, turn, act));
        }
    }

    fn moves(&mut self, proc: ProcId, place: Place) {
        let now = self.now;
        if let Some(client) = self.procs.get_mut(&proc) {
            (client.place, client.since) = (place, now);
        }
    }

    pub(super) fn acts(&mut self, proc: ProcId, turn: u32, act: Act) {
        let Some(client) = self.procs.get(&proc).filter(|client| client.lives() && client.turn == turn) else { return };
        let (round, rank) = (client.round.unwrap_or(Round::new(0)), client.rank);
        self.note("client", || format!("{proc}: {act:?}"));
        let short = self.rng.micros(1, 3_000);
        match act {
            Act::Registers => {
                self.sessions += 1;
                let session = SessionId::new(self.sessions);
                self.moves(proc, Place::Registered);
                if let Some(client) = self.procs.get_mut(&proc) {
                    (client.session, client.round) = (Some(session), None);
                }
                let limits = [("soft_timeout", "2s"), ("hard_timeout", "3s"), ("barrier_timeout", "40s")];
                let terms = limits.map(|(name, value)| (name.into(), value.into())).to_vec();
                self.for_node(proc, NodeEvent::SessionBegun { session, rank: Some(rank), terms });
            }
            Act::Enters => self.enters(proc),
            Act::Fails => {
                self.moves(proc, Place::Outside);
                self.says(proc, ClientMessage::Fault(round, "ValueError".into()));
                self.plans(proc, short, Act::IsReady);
            }
            Act::Returns => {
                self.moves(proc, Place::Returned);
                self.note_return(proc);
                self.says(proc, ClientMessage::Returned(round));
            }
            // The rank waits in a collective operation and sends no ping.
            Act::Yields if self.has_missing_peer(proc) => {}
            Act::Yields => {
                self.moves(proc, Place::Outside);
                self.says(proc, ClientMessage::Section(round, None));
                // Longer than the soft limit: silence is no hang any more.
                let hooks = if self.rng.chance(10) && !self.is_calm() { 2_500_000 } else { 3_000 };
                let after = self.rng.micros(1, hooks);
                self.plans(proc, after, Act::IsReady);
            }
            Act::IsReady => {
                self.hooks(proc, false);
                self.moves(proc, Place::Ready);
                self.says(proc, ClientMessage::Ready(round, Vec::new()));
            }
            Act::Leaves(why) => {
                self.moves(proc, Place::Left);
                self.says(proc, ClientMessage::Leave(why, "".into()));
                let status = Status::Exited(u8::try_from(self.rng.below(3)).unwrap_or(0));
                self.plans(proc, short, Act::Ends(status));
            }
            Act::HooksEnd => self.hooks(proc, false),
            Act::CallEnds => self.returns(proc),
            Act::Ends(status) => self.dies(proc, status),
        }
    }

    /// Reports its hooks to its agent.
    fn hooks(&mut self, proc: ProcId, run: bool) {
        let Some(client) = self.procs.get_mut(&proc) else { return };
        if std::mem::replace(&mut client.hooks, run) != run {
            let round = client.round.unwrap_or(Round::new(0));
            self.says(proc, ClientMessage::Hooks(round, run));
        }
    }

    /// Its call has returned: it calls again, or has nothing more to do.
    fn returns(&mut self, proc: ProcId) {
        self.hooks(proc, false);
        let (after, odd) = (self.rng.micros(1, 5_000), self.rng.chance(3));
        let Some(client) = self.procs.get_mut(&proc) else { return };
        let session = client.session.take();
        client.calls += 1;
        let is_last = client.calls >= self.plan.calls;
        if !is_last {
            client.place = Place::Before;
        }
        session.into_iter().for_each(|session| self.for_node(proc, NodeEvent::SessionLost { session }));
        let end = Act::Ends(Status::Exited(u8::from(odd) * 5));
        self.plans(proc, after, if is_last || odd { end } else { Act::Registers });
    }

    fn says(&mut self, proc: ProcId, said: ClientMessage) {
        if let Some(session) = self.procs.get(&proc).and_then(|client| client.session) {
            self.for_node(proc, NodeEvent::SessionMessage { session, said });
        }
    }

    /// A process ends. Its agent may see the end of its session first.
    pub(super) fn dies(&mut self, proc: ProcId, status: Status) {
        let Some(client) = self.procs.get_mut(&proc).filter(|client| client.lives()) else { return };
        client.ended = Some(status);
        let (session, at) = (client.session.take(), self.mono());
        self.note("client", || format!("{proc} ends: {status}"));
        self.ended(proc, status);
        let exited = NodeEvent::Exited { proc, status, at, alive_at: at, usage: Usage::default() };
        let gone = session.map(|session| NodeEvent::SessionLost { session });
        let first = self.rng.chance(50);
        if first {
            gone.clone().into_iter().for_each(|gone| self.for_node(proc, gone));
        }
        self.for_node(proc, exited);
        if !first {
            gone.into_iter().for_each(|gone| self.for_node(proc, gone));
        }
        self.streams_end(proc);
    }

    /// SIGKILL ends it, unless it is in the kernel, where a device does not answer: then it ends later, or never.
    pub(super) fn is_killed(&mut self, proc: ProcId) {
        let is_stuck = self.rng.chance(self.plan.stuck);
        let Some(client) = self.procs.get_mut(&proc).filter(|client| client.lives() && !client.is_stuck) else {
            return;
        };
        if !is_stuck {
            return self.dies(proc, KILLED);
        }
        (client.is_stuck, client.turn) = (true, client.turn + 1);
        self.note("kernel", || format!("{proc} cannot be ended"));
        if self.rng.chance(70) {
            let after = self.rng.micros(1000, 60_000_000);
            self.plans(proc, after, Act::Ends(KILLED));
        }
    }

    /// A signal reaches it.
    pub(super) fn signalled(&mut self, proc: ProcId, sig: Signal) {
        match sig {
            Signal::KILL => self.is_killed(proc),
            Signal::TERM | Signal::INT if !self.procs.get(&proc).is_some_and(|client| client.is_stuck) => {
                let after = self.rng.micros(1, 2_000);
                let by = if self.rng.chance(80) { Status::Signaled { sig, core: false } } else { Status::Exited(1) };
                self.plans(proc, after, Act::Ends(by));
            }
            _ => {}
        }
    }

    /// A message of the agent to its client.
    pub(super) fn on_message(&mut self, proc: ProcId, message: AgentMessage) {
        let Some(client) = self.procs.get(&proc).filter(|client| client.lives() && !client.is_stuck) else { return };
        let (place, own) = (client.place, client.round);
        self.note("> client", || format!("{proc}: {message:?}"));
        match message {
            AgentMessage::Begin(begin) => self.begins(proc, &begin),
            // A rank pings only in its function. If it left now, the ranks that are there would wait for it.
            AgentMessage::Interrupt(round, _, Some(_)) if own == Some(round) && place == Place::Entering => {
                self.procs.entry(proc).and_modify(|client| client.is_to_yield = true);
            }
            AgentMessage::Interrupt(round, _, Some(_)) if own == Some(round) && place == Place::Inside => {
                // A rank that hangs does not ping.
                if !self.rng.chance(self.plan.trouble / 3) {
                    let after = self.rng.micros(1, 500_000);
                    self.plans(proc, after, Act::Yields);
                }
            }
            AgentMessage::Interrupt(round, ..) if own == Some(round) => self.interrupted(proc, place),
            AgentMessage::Interrupt(..) => {}
            AgentMessage::Finish(round) => {
                let may = matches!(place, Place::Returned | Place::Reserve) && own == Some(round)
                    || place == Place::Registered && own.is_none();
                self.check(may, || format!("{proc} receives the end of round {round}, and is {place:?} in {own:?}"));
                if place == Place::Registered {
                    self.check_left_out(proc);
                }
                // A rank that was in no round is not missed, or is: the launcher may know of it, or not.
                self.moves(proc, if own.is_none() { Place::Reserve } else { Place::Done });
                self.hooks(proc, true);
                if let Some(client) = self.procs.get_mut(&proc) {
                    client.turn += 1;
                }
                // Hooks that never finish are ended.
                if !self.rng.chance(self.plan.endless) {
                    let after = self.rng.micros(1, 5_000);
                    self.plans(proc, after, Act::CallEnds);
                }
            }
            AgentMessage::Dismissed(why, _) => {
                self.moves(proc, Place::Dismissed);
                let code = u8::try_from(self.rng.below(3)).unwrap_or(0);
                let code = if why == Dismissal::GivenUp { 9 } else { code };
                let after = self.rng.micros(1, 20_000);
                self.plans(proc, after, Act::Ends(Status::Exited(code)));
            }
            AgentMessage::Unsupported(kind) => self.fail(format!("{proc} is not understood: {kind}")),
        }
    }

    fn begins(&mut self, proc: ProcId, begin: &Begin) {
        self.check_begin(proc, begin);
        let active = begin.active_rank.is_some();
        if let Some(client) = self.procs.get_mut(&proc) {
            (client.round, client.took_part) = (Some(begin.round), true);
            client.place = if active { Place::Entering } else { Place::Reserve };
            client.turn += 1;
            (client.then, client.is_to_yield, client.has_not_entered) = (None, false, false);
        }
        if active {
            self.says(proc, ClientMessage::Alive(begin.round, false));
        } else if self.rng.chance(30) {
            self.hooks(proc, true);
            if !self.rng.chance(self.plan.endless) {
                let after = self.rng.micros(1, 5_000);
                self.plans(proc, after, Act::HooksEnd);
            }
        }
        let trouble = begin.round.get() < self.plan.rounds && self.rng.chance(self.plan.trouble);
        let work = self.rng.micros(self.plan.least_work, self.plan.work);
        let act = match self.rng.below(20) {
            0..14 if trouble && !active => Act::Ends(KILLED),
            _ if !active => return,
            _ if !trouble => Act::Returns,
            0..6 => Act::Fails,
            6..11 => Act::Ends(KILLED),
            11 | 12 => Act::Ends(Status::Exited(3)),
            13 => Act::Ends(Status::Exited(0)),
            14 => Act::Leaves(Leave::Abort),
            15 => Act::Leaves(Leave::BaseException),
            // It hangs: no step follows until that is noticed.
            16 | 17 => return self.enters_soon(proc, None),
            _ => Act::Returns,
        };
        if active {
            self.enters_soon(proc, Some((work, act)));
        } else {
            self.plans(proc, work, act);
        }
    }

    fn interrupted(&mut self, proc: ProcId, place: Place) {
        if !matches!(place, Place::Entering | Place::Inside | Place::Reserve | Place::Returned) {
            return;
        }
        self.procs.entry(proc).and_modify(|client| client.has_not_entered = place == Place::Entering);
        let odd = self.rng.chance(self.plan.trouble / 3);
        let after = self.rng.micros(1, 3_000);
        let act = match self.rng.below(6) {
            // It ignores that, as long as it may.
            0 if odd => return,
            1 if odd => Act::Ends(KILLED),
            2 if odd => Act::Leaves(Leave::Unhealthy),
            3 if odd && matches!(place, Place::Entering | Place::Inside) => Act::Fails,
            _ => Act::IsReady,
        };
        self.plans(proc, after, act);
    }

    /// How long a process takes to register; now and then it ends before. `again`: it follows another, and costs the others nothing
    /// before it has registered.
    pub(super) fn starts(&mut self, proc: ProcId, again: bool) {
        if again && self.plans_twin(proc) {
            return;
        }
        let after = self.rng.micros(10, 30_000);
        if again && self.rng.chance(8) {
            // It waits for others, and never registers.
            return;
        }
        if again && self.rng.chance(12) {
            let status = Status::Exited(u8::try_from(self.rng.below(3)).unwrap_or(0));
            return self.plans(proc, after, Act::Ends(status));
        }
        let act = if self.rng.chance(1) { Act::Ends(Status::Exited(4)) } else { Act::Registers };
        self.plans(proc, after, act);
    }
}
