//! The in-process restart of a function: rounds.
//!
//! A rank throws, hangs, is killed or loses its host. All others leave the function. One decision says which rank continues under which
//! number, and they begin the function again in the same processes. One machine decides, at the root; nodes speak for their ranks
//! ([`rlaunch_protocol::wire::round`]).
//!
//! `Gathering → Running → Waiting → Draining → Running → … → CallEnded`. `Waiting` is left out where `--fault-window` is zero. `Draining` ends
//! after a pause if rounds fail one after the other. The assignment is one function call, once the last node
//! is ready, and the new round is sent at once. After `CallEnded(Done)` another call may gather.
//!
//! All faults before the assignment belong to the round that ends. A rank in reserve whose process exits while the others work costs no
//! round: it is taken out with the next one.
//!
//! Pure, as `rlaunch-base` says.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

extern crate alloc;

mod assign;
mod awaited;
mod calls;
mod check;
pub mod detect;
mod drain;
pub mod end_reason;
mod membership;
mod registration;
pub mod remark;
mod respawn;
pub mod restart_event;
mod round_faults;
mod round_limits;
mod setup;
pub mod terms;
#[cfg(test)]
mod tests;

pub use awaited::{AWAITED, Step};
pub use end_reason::{EndReason, SetLimit};
pub use restart_event::{RestartAction, RestartEvent, RoundNote, RoundsEnd};
pub use setup::{Setup, Site};

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use awaited::Awaited;
use membership::Membership;
use registration::Agreed;
use remark::Remark;
use respawn::Start;
use rlaunch_base::id::{NodeId, Rank, Round};
use rlaunch_base::machine::{Machine, earliest};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use rlaunch_plan::rank_assign::{Group, Key, Policy, Source, Stage, World};
use rlaunch_protocol::rank_fault::Fault;
use rlaunch_protocol::rounds::Limits;
use rlaunch_protocol::wire::round::{KEYS, RoundDown};
use round_faults::RoundFaults;
use round_limits::Progress;

/// The phase of the rounds.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// Not all ranks have registered.
    Gathering,
    /// The function runs.
    Running,
    /// There is a fault, and until then it is waited for more.
    Waiting(Mono),
    /// Ranks leave the function: hosts are awaited.
    Draining {
        /// Ranks are interrupted at once. If not: where they say that they can be.
        urgent: bool,
    },
    /// The call has ended: it has no other round. After a call that is done another call may gather.
    CallEnded(CallEnd),
}

/// How a call has ended, for processes that register afterwards.
#[derive(Clone, PartialEq, Eq, Debug)]
enum CallEnd {
    /// The work is done.
    Done,
    /// For this reason.
    Refused(OsBytes),
    /// The job ends, or all of its ranks do.
    Off,
}

/// The machine of rounds.
#[derive(Debug)]
pub struct Restart {
    setup: Setup,
    phase: Phase,
    /// The one that runs, or ends. Counted through all calls.
    round: Round,
    /// Which of the calls that follow one another in the same processes this is, and its first round.
    call: u32,
    first_round_of_call: Round,
    /// A rank that exited after the last call, and its status: the next call is refused because of it.
    exited_between_calls: Option<(Rank, String)>,
    /// How many are ended although no round ends by it.
    overdue: u32,
    membership: Membership,
    world: World,
    /// Under which terms, once the first ranks have registered.
    agreed: Option<Agreed>,
    policy: Policy,
    /// Keys of the policy that processes have to answer.
    asked: Vec<Source>,
    limits: Limits,
    /// Ranks that have not registered.
    missing: usize,
    /// Hosts whose ranks are not ready.
    awaited_hosts: usize,
    /// Hosts where the function has not returned.
    unreturned: usize,
    /// In this round they were asked who is late.
    late: Option<Round>,
    /// Rounds that were not planned, the first included.
    unplanned_rounds: u32,
    faults: RoundFaults,
    awaited: Awaited,
    progress: Progress,
    /// The end of the pause before the next round, once all ranks are ready for it.
    resume_at: Option<Mono>,
    /// Processes that are to come for ranks whose own have ended.
    comings: BTreeMap<Rank, Start>,
    /// The number of the next round's namespace of the store.
    namespace: u32,
    out: VecDeque<RestartAction>,
}

/// Keys of a policy that only processes can answer, in the order in which processes send them: functions of the script by their numbers,
/// then variables. The latter may be known without them.
#[must_use]
pub fn asked(policy: &Policy) -> Vec<Source> {
    let (mut scripts, mut asked) = (0, Vec::new());
    let mut ask = |key: &Key| match key {
        Key::Of(Source::Script(n)) => scripts = scripts.max(n.saturating_add(1)),
        Key::Of(source @ Source::Env(_)) if !asked.contains(source) => asked.push(source.clone()),
        Key::Of(Source::Host | Source::Slice | Source::Rack | Source::Numa | Source::Env(_))
        | Key::RankBy(_)
        | Key::RankEvery(_)
        | Key::InitialBy(_)
        | Key::InitialEvery(_)
        | Key::Same(_) => {}
    };
    for stage in &policy.stages {
        match stage {
            Stage::Group(Group { key, .. }) => ask(key),
            Stage::Tree(tree) => tree.layers.iter().for_each(|layer| ask(&layer.key)),
            Stage::ActivateAll | Stage::MaxActive(_) | Stage::Divisible(_) | Stage::Shift | Stage::Fill => {}
        }
    }
    // More keys than a process may send are refused when it registers.
    let most = u32::try_from(KEYS).unwrap_or(u32::MAX).saturating_add(1);
    (0..scripts.min(most)).map(Source::Script).chain(asked).collect()
}

/// Whether a policy asks for the TPU slices of ranks.
#[must_use]
pub fn names_slices(policy: &Policy) -> bool {
    let is_slice = |key: &Key| *key == Key::Of(Source::Slice);
    policy.stages.iter().any(|stage| match stage {
        Stage::Group(Group { key, .. }) => is_slice(key),
        Stage::Tree(tree) => tree.layers.iter().any(|layer| is_slice(&layer.key)),
        Stage::ActivateAll | Stage::MaxActive(_) | Stage::Divisible(_) | Stage::Shift | Stage::Fill => false,
    })
}

impl Restart {
    /// For one generation of a job.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let ranks = u32::try_from(setup.ranks.len()).unwrap_or(u32::MAX);
        Self {
            phase: Phase::Gathering,
            round: Round::new(0),
            call: 0,
            first_round_of_call: Round::new(0),
            exited_between_calls: None,
            overdue: 0,
            membership: Membership::new(&setup.ranks, &setup.nodes),
            world: World::new(ranks),
            agreed: None,
            policy: Policy::default(),
            asked: Vec::new(),
            limits: setup.limits,
            missing: setup.ranks.len(),
            awaited_hosts: 0,
            unreturned: 0,
            late: None,
            unplanned_rounds: 0,
            faults: RoundFaults::default(),
            awaited: Awaited::default(),
            progress: Progress::default(),
            resume_at: None,
            comings: BTreeMap::new(),
            namespace: setup.namespace,
            out: VecDeque::new(),
            setup,
        }
    }

    /// The round that runs, or ends: that of the last `Begin`. `None`: there was none.
    #[must_use]
    pub const fn round(&self) -> Option<Round> {
        if self.unplanned_rounds == 0 && self.call == 0 { None } else { Some(self.round) }
    }

    /// Whether the end of a rank is a matter of rounds: between `Opened` and `Closed`, or `Off`.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        match self.phase {
            Phase::Running | Phase::Waiting(_) | Phase::Draining { .. } => true,
            Phase::Gathering | Phase::CallEnded(_) => false,
        }
    }

    /// Whether the work of a call is done, and no rank has come for another.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::CallEnded(CallEnd::Done))
    }

    /// Whether the call has ended: no round follows, unless it is of another call.
    #[must_use]
    pub const fn is_call_ended(&self) -> bool {
        matches!(self.phase, Phase::CallEnded(_))
    }

    /// Whether any rank has registered.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.agreed.is_some()
    }

    /// The fault that ends the present round, if it ends.
    #[must_use]
    pub fn cause(&self) -> Option<&Fault> {
        match self.phase {
            Phase::Waiting(_) | Phase::Draining { .. } => self.faults.real().map(|(fault, _)| fault),
            Phase::Gathering | Phase::Running | Phase::CallEnded(_) => None,
        }
    }

    /// Whether the end of this rank has to do with the round that runs, or ends.
    #[must_use]
    pub fn concerns(&self, initial: rlaunch_base::id::Rank) -> bool {
        self.membership
            .members
            .get(initial.index())
            .is_some_and(|member| member.state == membership::MemberState::Active || member.faulted)
    }

    /// Whether a planned round can continue without a host that is about to be taken away: some rank elsewhere takes part, or is yet to
    /// register.
    #[must_use]
    pub fn can_drain(&self, node: NodeId) -> bool {
        use membership::MemberState::{Absent, Active, Failed, Joining, Left};
        let gathers = matches!(self.phase, Phase::Gathering);
        (gathers || self.is_open())
            && self.membership.members.iter().any(|member| {
                let stays = match member.state {
                    Active => true,
                    Absent | Joining => gathers,
                    Failed { .. } | Left => false,
                };
                stays && !member.warned && member.node != node
            })
    }

    /// The limits of the command line and, once they have registered, of the processes.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    fn act(&mut self, action: RestartAction) {
        self.out.push_back(action);
    }

    fn send(&mut self, node: NodeId, msg: RoundDown) {
        self.act(RestartAction::Send { node, msg });
    }

    fn remark(&mut self, remark: Remark) {
        self.note(RoundNote::Remark(remark));
    }

    fn note(&mut self, note: RoundNote) {
        self.act(RestartAction::Note(note));
    }

    /// Something for all hosts.
    fn notify_all(&mut self, msg: &RoundDown) {
        for (node, _) in self.membership.hosts.iter().filter(|(_, host)| !host.lost) {
            self.out.push_back(RestartAction::Send { node: *node, msg: msg.clone() });
        }
    }

    /// Ends the call: it has no other round, whatever happens.
    fn end_call(&mut self, how: CallEnd) {
        self.awaited.end();
        self.resume_at = None;
        match how {
            // Another call may follow, for which they are not too late.
            CallEnd::Done => {}
            CallEnd::Refused(_) => self.cancel_starts(),
            // Every process that is there is ended.
            CallEnd::Off => self.comings.clear(),
        }
        self.phase = Phase::CallEnded(how);
    }
}

impl Machine for Restart {
    type Event = RestartEvent;
    type Action = RestartAction;

    fn handle(&mut self, now: Mono, event: RestartEvent) {
        match event {
            RestartEvent::Joined { node, call, ranks, terms } => self.on_registered(now, node, call, ranks, &terms),
            RestartEvent::Fault { round, fault, at } => self.fault(now, round, fault, at),
            RestartEvent::Ready { node, round, ranks, last, port, pinged } => {
                self.ready(node, round, ranks, pinged);
                if last {
                    self.answered(now, node, round, port);
                }
            }
            RestartEvent::Returned { node, round } => self.on_returned(node, round),
            RestartEvent::Alone { node, round, initial } => self.on_waiting_alone(node, round, initial),
            RestartEvent::Awaited { node, ranks } => self.on_awaited(now, node, ranks),
            RestartEvent::Ended { initial, proc, status, at } => self.ended(now, initial, proc, status, at),
            RestartEvent::Started { initial, proc } => self.started(now, initial, proc),
            RestartEvent::Placed { initial, node } => self.placed(initial, node),
            RestartEvent::HostSuspected { node, at } => self.on_host_suspected(now, node, at),
            RestartEvent::HostLost { node } => self.on_host_lost(now, node),
            RestartEvent::Warned { ranks } => self.warned(now, &ranks),
            RestartEvent::Off => self.end_call(CallEnd::Off),
        }
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.startup_time(now);
        self.log_awaited(now);
        match self.phase {
            Phase::Waiting(until) if now >= until => self.interrupt(now, true),
            Phase::Draining { .. } if self.resume_at.is_some() => self.begin_when_drained(now),
            Phase::Waiting(_) | Phase::Gathering | Phase::Running | Phase::Draining { .. } | Phase::CallEnded(_) => {}
        }
    }

    fn poll_action(&mut self) -> Option<RestartAction> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let window = match self.phase {
            Phase::Waiting(until) => Some(until),
            Phase::Draining { .. } if self.awaited_hosts == 0 => self.resume_at,
            Phase::Gathering | Phase::Running | Phase::Draining { .. } | Phase::CallEnded(_) => None,
        };
        earliest(earliest(window, self.awaited.deadline()), self.next_deadline())
    }
}
