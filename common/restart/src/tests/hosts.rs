//! Hosts of a job as the machine of rounds sees them, with queues between: messages on their way can be late, or lost.

use super::*;
use alloc::collections::{BTreeMap, VecDeque};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{ProcId, Rank};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_protocol::rank_fault::{Fault, FaultKind, Leave};
use rlaunch_protocol::wire::round::Enrolled;

/// A process that takes part.
pub(super) fn enrolled(initial: u32, proc: u32, keys: &[&str]) -> Enrolled {
    let keys = Capped::chunks(keys.iter().map(|key| OsBytes::from(*key))).pop().unwrap_or_default();
    Enrolled { initial: Rank::new(initial), proc: ProcId::new(proc), keys }
}

/// All ranks of all hosts register.
pub(super) fn register(machine: &mut Restart, hosts: u32, per: u32, keys: &[&str]) {
    for host in 0..hosts {
        let ranks = (host * per..(host + 1) * per).map(|rank| enrolled(rank, rank, keys)).collect();
        let event = RestartEvent::Joined { call: 0, node: NodeId::new(host), ranks, terms: OsBytes::default() };
        machine.handle(Mono::default(), event);
    }
}

/// The state of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// The process has not registered.
    Starting,
    Registered,
    Working,
    Reserve,
    /// Has left its function, or is about to.
    Leaving,
    Ready,
    Returned,
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) id: u32,
    pub(super) at: At,
}

/// Messages of the launcher, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Down {
    Word(RoundDown),
    /// Start a process of this rank.
    Spawn(Rank, u32),
}

/// A host.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) number: u32,
    pub(super) up: VecDeque<RestartEvent>,
    pub(super) down: VecDeque<Down>,
    /// Ends of processes that the host has not reported yet.
    late: VecDeque<RestartEvent>,
    pub(super) procs: BTreeMap<u32, Process>,
    pub(super) round: Option<Round>,
    interrupted: bool,
    answered: bool,
    has_sent_return: bool,
    said_first: bool,
    pub(super) over: bool,
    /// The host sends no heartbeats any more.
    pub(super) suspected: bool,
    pub(super) lost: bool,
}

impl Host {
    pub(super) fn new(number: u32, per: u32) -> Self {
        let procs = (number * per..(number + 1) * per).map(|rank| (rank, Process { id: rank, at: At::Starting }));
        Self { number, procs: procs.collect(), ..Self::default() }
    }

    fn node(&self) -> NodeId {
        NodeId::new(self.number)
    }

    /// Delivers the launcher's next message.
    pub(super) fn receives(&mut self) -> bool {
        match self.down.pop_front() {
            None => return false,
            Some(Down::Spawn(initial, id)) => {
                let proc = Process { id, at: At::Starting };
                assert!(self.procs.insert(initial.get(), proc).is_none(), "{initial} is there still");
            }
            Some(Down::Word(msg)) => self.heeds(msg),
        }
        true
    }

    fn heeds(&mut self, msg: RoundDown) {
        match msg {
            RoundDown::Begin { round, members, .. } => {
                self.round = Some(round);
                (self.interrupted, self.answered, self.has_sent_return) = (false, false, false);
                for member in &*members {
                    let initial = member.initial.get();
                    if member.rank.is_none() {
                        self.procs.remove(&initial);
                    } else if let Some(proc) = self.procs.get_mut(&initial) {
                        proc.at = if member.active.is_some() { At::Working } else { At::Reserve };
                    }
                }
            }
            RoundDown::Interrupt { round, within, .. } if Some(round) == self.round => {
                self.interrupted = true;
                if within.is_none() {
                    self.leave_all();
                }
                self.look();
            }
            RoundDown::Interrupt { .. } => {}
            RoundDown::Finish { .. } | RoundDown::GiveUp { .. } => {
                self.over = true;
                self.procs.clear();
            }
            RoundDown::End { .. } | RoundDown::Late { .. } => {}
            RoundDown::Refuse { ranks, .. } if ranks.is_empty() => {
                self.over = true;
                self.procs.clear();
            }
            RoundDown::Refuse { ranks, .. } => self.procs.retain(|initial, _| !ranks.contains(&Rank::new(*initial))),
        }
    }

    /// Takes all ranks out of the function.
    pub(super) fn leave_all(&mut self) {
        for proc in self.procs.values_mut() {
            if matches!(proc.at, At::Working | At::Reserve | At::Returned) {
                proc.at = At::Leaving;
            }
        }
    }

    /// Whether ranks are to leave where they can.
    pub(super) fn yields(&self) -> bool {
        self.interrupted && !self.answered
    }

    /// Says what there is to say once.
    pub(super) fn look(&mut self) {
        let Some(round) = self.round else { return };
        let any = |at: &[At]| self.procs.values().any(|proc| at.contains(&proc.at));
        if self.interrupted && !self.answered && !any(&[At::Working, At::Reserve, At::Leaving, At::Returned]) {
            self.answered = true;
            let out = self.procs.iter().filter(|(_, proc)| proc.at == At::Ready);
            let ranks = out.map(|(initial, proc)| enrolled(*initial, proc.id, &[])).collect();
            let node = self.node();
            self.up.push_back(RestartEvent::Ready { node, round, ranks, last: true, port: 7001, pinged: true });
        } else if !self.has_sent_return && any(&[At::Returned]) && !any(&[At::Working, At::Leaving, At::Ready]) {
            self.has_sent_return = true;
            self.up.push_back(RestartEvent::Returned { node: self.node(), round });
        }
    }

    /// Processes register: all together at first.
    pub(super) fn registers(&mut self) -> bool {
        let mut ranks = Vec::new();
        for (initial, proc) in self.procs.iter_mut().filter(|(_, proc)| proc.at == At::Starting) {
            proc.at = At::Registered;
            ranks.push(enrolled(*initial, proc.id, &[]));
        }
        if ranks.is_empty() {
            return false;
        }
        let terms = if self.said_first { OsBytes::default() } else { OsBytes::from("soft_timeout=50s\n") };
        self.said_first = true;
        self.up.push_back(RestartEvent::Joined { call: 0, node: self.node(), ranks, terms });
        true
    }

    fn nth(&self, pick: usize, of: &[At]) -> Option<u32> {
        let all: Vec<u32> =
            self.procs.iter().filter(|(_, proc)| of.contains(&proc.at)).map(|(rank, _)| *rank).collect();
        if all.is_empty() { None } else { all.get(pick % all.len()).copied() }
    }

    fn set(&mut self, initial: u32, at: At) {
        if let Some(proc) = self.procs.get_mut(&initial) {
            proc.at = at;
        }
    }

    fn fault(&mut self, initial: u32, kind: FaultKind) {
        let fault = Fault { initial: Rank::new(initial), kind, text: OsBytes::default() };
        let round = self.round.unwrap_or(Round::new(0));
        self.up.push_back(RestartEvent::Fault { round, fault, at: Mono::default() });
    }

    pub(super) fn throws(&mut self, pick: usize) {
        if let Some(initial) = self.nth(pick, &[At::Working, At::Reserve]) {
            self.fault(initial, FaultKind::Exception);
            self.set(initial, At::Leaving);
        }
    }

    pub(super) fn hangs(&mut self, pick: usize) {
        if let Some(initial) = self.nth(pick, &[At::Working]) {
            self.fault(initial, FaultKind::Hang);
        }
    }

    pub(super) fn gets_ready(&mut self, pick: usize) -> bool {
        let Some(initial) = self.nth(pick, &[At::Leaving]) else { return false };
        self.set(initial, At::Ready);
        self.look();
        true
    }

    pub(super) fn returns(&mut self, pick: usize) -> bool {
        let Some(initial) = self.nth(pick, &[At::Working]) else { return false };
        self.set(initial, At::Returned);
        self.look();
        true
    }

    /// Ends a process. Its host reports that at once, or only after its ranks are ready without it.
    pub(super) fn dies(&mut self, pick: usize, late: bool) {
        let all = [At::Starting, At::Registered, At::Working, At::Reserve, At::Leaving, At::Ready, At::Returned];
        let Some(initial) = self.nth(pick, &all) else { return };
        let Some(proc) = self.procs.remove(&initial) else { return };
        let status = Status::Signaled { sig: Signal::KILL, core: false };
        let (initial, proc) = (Rank::new(initial), ProcId::new(proc.id));
        let event = RestartEvent::Ended { initial, proc, status, at: Mono::default() };
        if late {
            self.late.push_back(event)
        } else {
            self.up.push_back(event)
        }
        self.look();
    }

    pub(super) fn reports_late(&mut self) -> bool {
        match self.late.pop_front() {
            Some(event) => {
                self.up.push_back(event);
                true
            }
            None => false,
        }
    }

    pub(super) fn leaves(&mut self, pick: usize) {
        if let Some(initial) = self.nth(pick, &[At::Working, At::Leaving, At::Ready]) {
            self.fault(initial, FaultKind::Left(Leave::Abort));
            self.procs.remove(&initial);
            self.look();
        }
    }

    pub(super) fn is_lost(&mut self) {
        self.lost = true;
        self.procs.clear();
        self.up.clear();
        self.down.clear();
        self.late.clear();
    }
}
