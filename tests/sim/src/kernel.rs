//! Simulated processes: ranks and their descendants, init, and what signals do to them.

use crate::agent::Arrival;
use crate::plan::{EVER, Kid, MS, Reaction};
use crate::world::{Ev, World};
use rlaunch_base::id::{ProcId, Std};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::wire::to_root::Leftover;
use std::collections::{BTreeMap, BTreeSet};

/// The next step of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Life {
    Ends(Status),
    Writes(u64),
    Forks(Kid),
    Sticks(u64),
    Unsticks,
}

#[derive(Default)]
pub(crate) struct Kernel {
    processes: BTreeMap<u32, Process>,
    ranks: BTreeMap<ProcId, u32>,
    groups: BTreeMap<u32, Vec<u32>>,
    /// How many hold a stream of a rank.
    holders: BTreeMap<(ProcId, usize), u32>,
    pub(crate) init: Init,
    pub(crate) init_was_killed: bool,
    /// When the first signal that ends ranks was sent.
    pub(crate) ended_by_us: Option<u64>,
    /// When which ranks failed.
    died: Vec<(u64, ProcId)>,
    /// How often a rank got a signal to end, or of the user's.
    got: BTreeMap<(ProcId, Signal), u32>,
    /// Ranks that had just started when they got a signal.
    early: BTreeSet<ProcId>,
    last_pid: u32,
    generation: u32,
    /// The time of the last rank's end, by a clock that stops with the host.
    pub(crate) last_rank: Option<u64>,
}

/// The first process of the PID namespace.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Init {
    #[default]
    Absent,
    Alive,
    Dead,
}

struct Process {
    owner: ProcId,
    is_rank: bool,
    born: u64,
    group: u32,
    state: State,
    holds: [bool; 2],
    asked: Reaction,
    hops: u8,
    stuck: bool,
    /// The process ends by this as soon as it can.
    pending: Option<Status>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Alive,
    Zombie,
    Gone,
}

pub(crate) const KILLED: Status = Status::Signaled { sig: Signal::KILL, core: false };

impl Kernel {
    fn alive(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.processes.iter().filter(|(_, p)| p.state == State::Alive).map(|(pid, p)| (*pid, p))
    }

    pub(crate) fn alive_count(&self) -> usize {
        self.alive().count()
    }

    /// Ranks whose processes, or what they have left, are alive.
    pub(crate) fn owners(&self) -> impl Iterator<Item = ProcId> {
        self.alive().map(|(_, process)| process.owner)
    }

    /// Processes of another generation follow: what those before did is history.
    fn turn(&mut self, generation: u32) {
        if generation > self.generation {
            self.generation = generation;
            self.ended_by_us = None;
            self.died.clear();
            self.ranks.clear();
        }
    }

    pub(crate) fn named(&self) -> Vec<Leftover> {
        let leftover = |pid| Leftover { pid, comm: "sim".into(), wchan: OsBytes::default() };
        self.alive().map(|(pid, _)| leftover(pid)).collect()
    }

    /// Processes that are alive although a SIGKILL could end them.
    pub(crate) fn killable(&self) -> Vec<u32> {
        self.alive().filter(|(_, p)| !p.stuck).map(|(pid, _)| pid).collect()
    }

    /// Ranks that run.
    pub(crate) fn running(&self) -> usize {
        self.alive().filter(|(_, p)| p.is_rank).count()
    }

    /// Ranks that were ever started.
    pub(crate) fn started(&self) -> usize {
        self.ranks.len()
    }

    /// The host is gone, and everything on it.
    pub(crate) fn vanish(&mut self) {
        self.processes.values_mut().for_each(|process| process.state = State::Gone);
        self.holders.clear();
    }

    fn rank(&self, proc: ProcId) -> Option<&Process> {
        self.ranks.get(&proc).and_then(|pid| self.processes.get(pid))
    }

    pub(crate) fn is_zombie(&self, proc: ProcId) -> bool {
        self.rank(proc).is_some_and(|p| matches!(p.state, State::Zombie))
    }

    /// Whether a rank had just started when it got a signal.
    pub(crate) fn was_early(&self, proc: ProcId) -> bool {
        self.early.contains(&proc)
    }

    /// Whether a rank was ever started.
    pub(crate) fn was_started(&self, proc: ProcId) -> bool {
        self.ranks.contains_key(&proc)
    }

    /// How often the process of a rank got a signal.
    pub(crate) fn got(&self, proc: ProcId, sig: Signal) -> u32 {
        self.got.get(&(proc, sig)).copied().unwrap_or(0)
    }

    /// All processes end at once, in a way that none can escape.
    pub(crate) fn cease(&mut self) -> Vec<u32> {
        self.processes.values_mut().for_each(|process| process.stuck = false);
        self.alive().map(|(pid, _)| pid).collect()
    }

    pub(crate) fn is_running(&self, proc: ProcId) -> bool {
        self.rank(proc).is_some_and(|p| p.state == State::Alive)
    }

    pub(crate) fn is_unreaped(&self, proc: ProcId) -> bool {
        self.rank(proc).is_some_and(|p| p.state != State::Gone)
    }

    pub(crate) fn unreaped(&self) -> usize {
        self.ranks.keys().filter(|proc| self.is_unreaped(**proc)).count()
    }

    /// Ranks that failed by then, and when.
    pub(crate) fn failed_before(&self, time: u64) -> Vec<(u64, ProcId)> {
        self.died.iter().filter(|(at, _)| *at < time).copied().collect()
    }

    pub(crate) fn held(&self, owner: ProcId, which: usize) -> bool {
        self.holders.get(&(owner, which)).is_some_and(|count| *count > 0)
    }

    fn hold(&mut self, pid: u32, holds: [bool; 2]) {
        if let Some(process) = self.processes.get_mut(&pid) {
            let held = std::mem::replace(&mut process.holds, holds);
            for which in [0, 1] {
                let count = self.holders.entry((process.owner, which)).or_default();
                *count = *count + u32::from(holds[which]) - u32::from(held[which]);
            }
        }
    }

    /// Reaps a rank, whichever process is its parent.
    pub(crate) fn reap(&mut self, proc: ProcId) {
        if let Some(process) = self.ranks.get(&proc).and_then(|pid| self.processes.get_mut(pid)) {
            process.state = State::Gone;
        }
    }

    fn create(&mut self, owner: ProcId, group: Option<u32>, asked: Reaction) -> u32 {
        self.last_pid += 1;
        let pid = self.last_pid;
        let is_rank = false;
        let group = group.unwrap_or(pid);
        let holds = [false; 2];
        let state = State::Alive;
        let born = 0;
        let process =
            Process { owner, is_rank, born, group, state, holds, asked, hops: 0, stuck: false, pending: None };
        self.processes.insert(pid, process);
        self.groups.entry(group).or_default().push(pid);
        pid
    }
}

impl World {
    /// Starts a rank.
    pub(crate) fn fork_rank(&mut self, proc: ProcId) -> u32 {
        self.check_generation(proc);
        let generation = self.generation_of(proc);
        self.host.kernel.turn(generation);
        let script = self.plan.ranks[proc.index()].clone();
        let pid = self.host.kernel.create(proc, None, script.asked);
        self.host.kernel.ranks.insert(proc, pid);
        if let Some(process) = self.host.kernel.processes.get_mut(&pid) {
            (process.is_rank, process.born) = (true, self.now);
        }
        self.host.kernel.hold(pid, [true; 2]);
        for (after, bytes) in script.writes {
            self.at(self.now + after, Ev::Process(pid, Life::Writes(bytes)));
        }
        for kid in script.kids {
            self.at(self.now + kid.after, Ev::Process(pid, Life::Forks(kid)));
        }
        if let Some((after, long)) = script.stuck {
            self.at(self.now + after, Ev::Process(pid, Life::Sticks(long)));
        }
        self.at(self.now.saturating_add(script.runs), Ev::Process(pid, Life::Ends(script.end)));
        pid
    }

    pub(crate) fn lives(&mut self, pid: u32, life: Life) {
        let Some(process) = self.host.kernel.processes.get_mut(&pid) else { return };
        if process.state != State::Alive {
            return;
        }
        let (owner, group) = (process.owner, process.group);
        match life {
            Life::Ends(status) if process.stuck => {
                process.pending.get_or_insert(status);
            }
            Life::Ends(status) => self.dies(pid, status),
            // Only the kernel runs in such a process.
            Life::Writes(_) | Life::Forks(_) if process.stuck => {}
            Life::Writes(bytes) => self.written(owner, bytes),
            Life::Forks(kid) => self.forks(owner, group, kid),
            Life::Sticks(long) => {
                process.stuck = true;
                self.at(self.now.saturating_add(long), Ev::Process(pid, Life::Unsticks));
            }
            Life::Unsticks => {
                process.stuck = false;
                if let Some(status) = process.pending {
                    self.dies(pid, status);
                }
            }
        }
    }

    fn forks(&mut self, owner: ProcId, group: u32, kid: Kid) {
        if self.host.kernel.init == Init::Dead {
            return;
        }
        let group = if kid.escaped { None } else { Some(group) };
        let pid = self.host.kernel.create(owner, group, Reaction::Dies);
        if let Some(process) = self.host.kernel.processes.get_mut(&pid) {
            process.hops = kid.hops;
            process.stuck = kid.stuck;
        }
        self.host.kernel.hold(pid, [kid.holds, false]);
        self.note("process", || format!("{pid} is a child of rank {owner}: {kid:?}"));
        if kid.holds && kid.lives > 0 && kid.lives < EVER {
            self.at(self.now + kid.lives - 1, Ev::Process(pid, Life::Writes(100)));
        }
        self.at(self.now.saturating_add(kid.lives), Ev::Process(pid, Life::Ends(Status::Exited(0))));
    }

    pub(crate) fn dies(&mut self, pid: u32, status: Status) {
        let Some(process) = self.host.kernel.processes.get_mut(&pid) else { return };
        let (owner, is_rank) = (process.owner, process.is_rank);
        process.state = if is_rank { State::Zombie } else { State::Gone };
        self.host.kernel.hold(pid, [false; 2]);
        let is = if is_rank { "rank" } else { "child of rank" };
        self.note("process", || format!("{pid}, {is} {owner}, ends: {status}"));
        if is_rank {
            self.host.kernel.last_rank = Some(self.still.host_awake(self.now));
            if !status.is_success() {
                self.host.kernel.died.push((self.now, owner));
            }
            if self.host.agent.has_exited() {
                self.host.kernel.reap(owner);
            } else {
                self.arrive(Arrival::Ended { proc: owner, status, died: self.now });
            }
        }
        self.pump(Some(owner));
    }

    /// A signal to a group.
    pub(crate) fn signal_group(&mut self, proc: ProcId, sig: Signal) {
        let Some(group) = self.host.kernel.ranks.get(&proc).copied() else { return };
        for pid in self.host.kernel.groups.get(&group).cloned().unwrap_or_default() {
            self.signal(pid, sig);
        }
    }

    pub(crate) fn signal(&mut self, pid: u32, sig: Signal) {
        let Some(process) = self.host.kernel.processes.get_mut(&pid).filter(|p| p.state == State::Alive) else {
            return;
        };
        if process.is_rank {
            *self.host.kernel.got.entry((process.owner, sig)).or_default() += 1;
            if self.now < process.born + 20 * MS {
                self.host.kernel.early.insert(process.owner);
            }
        }
        let user = sig == Signal::USR1 || sig == Signal::USR2;
        if sig != Signal::KILL && user && !self.plan.usr_kills {
            return;
        }
        let by = Status::Signaled { sig, core: false };
        let (owner, group, holds, hops) = (process.owner, process.group, process.holds, process.hops);
        match process.asked {
            _ if sig == Signal::KILL => {
                // It forks away from under the signal, unless the kernel ends its namespace.
                if hops > 0 && self.host.kernel.init != Init::Dead {
                    process.hops = 0;
                    let (escaped, stuck, after) = (false, false, 0);
                    let kid = Kid { after, lives: EVER, escaped, holds: holds[0], hops: hops - 1, stuck };
                    self.forks(owner, group, kid);
                }
                self.soon(Ev::Process(pid, Life::Ends(KILLED)));
            }
            Reaction::Dies => self.soon(Ev::Process(pid, Life::Ends(by))),
            Reaction::Exits(code, after) if !user => {
                self.at(self.now + after, Ev::Process(pid, Life::Ends(Status::Exited(code))));
            }
            Reaction::Exits(..) | Reaction::Ignores => {}
        }
    }

    /// SIGKILL for all that is there.
    pub(crate) fn kill_everything(&mut self) {
        self.host.kernel.ended_by_us.get_or_insert(self.now);
        let all: Vec<u32> = self.host.kernel.alive().map(|(pid, _)| pid).collect();
        for pid in all {
            self.signal(pid, Signal::KILL);
        }
    }

    /// The kernel ends the namespace with its init. The agent sees that first.
    pub(crate) fn init_dies(&mut self) {
        if self.host.kernel.init == Init::Alive {
            self.note("init", || "dies".to_owned());
            self.host.kernel.init = Init::Dead;
            self.arrive(Arrival::Event(Box::new(NodeEvent::InitLost)));
            self.kill_everything();
        }
    }

    pub(crate) fn init_killed(&mut self) {
        self.host.kernel.init_was_killed |= self.host.kernel.init == Init::Alive;
        self.init_dies();
    }

    /// Init follows the agent: its parent-death signal.
    pub(crate) fn parent_of_init_is_gone(&mut self) {
        if self.plan.tier == Tier::T1 {
            self.soon(Ev::InitDies);
        }
        for proc in self.host.kernel.ranks.keys().copied().collect::<Vec<_>>() {
            if self.host.kernel.is_zombie(proc) {
                self.host.kernel.reap(proc);
            }
        }
    }

    pub(crate) fn std(which: usize) -> Std {
        if which == 0 { Std::Out } else { Std::Err }
    }
}
