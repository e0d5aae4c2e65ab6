//! Jobs in a scheduler's step: the meaning of a seed for them, and the promises about its signals.
//!
//! The scheduler warns one host, some or all of them, and kills the rest of the step some time later. The jobs are those with restarts.
//! The scheduler's actions are drawn from a stream of their own.

use crate::agent::Arrival;
use crate::generations;
use crate::kernel::KILLED;
use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::site::{Reach, Site};
use crate::srun::{self, Turn};
use crate::world::{Ev, World};
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_core::events::{Cause, CloseReason, Lost};
use rlaunch_core::node::{NodeEvent, SignalledPart};
use rlaunch_plan::allocation;
use rlaunch_plan::bootstrap::CarrierKind;
use rlaunch_protocol::settings::OnFailure;
use rlaunch_protocol::wire::to_node::ToNode;

/// The stream differs from those of other jobs.
const STREAM: u64 = 0x736c_7572_6d00_0000;
/// How far the signals to two hosts are apart at most.
const LAG: u64 = 50 * MS;
/// Two signals of a kind are not one.
const APART: u64 = 500 * MS;
/// How long an agent waits for the scheduler's own signal, with what its surroundings cost.
const OWED: u64 = 400 * MS;
/// The stream of the ends of steps.
const CANCELLED: u64 = 0x6361_6e63_656c_0000;
/// The stream of the ends of srun.
const SRUN_KILLED: u64 = 0x6b69_6c6c_0000_0000;
/// How long after the end of srun the scheduler has killed the step.
const STEP_ENDS: u64 = 1900 * MS;
/// How long after its tasks srun ends.
const SRUN_ENDS: u64 = 300 * MS;
/// Limit for the time from the kill of srun to its report.
const REPORT: u64 = 1900 * MS;
/// A host that is lost so long before or after the end of srun is lost for that.
const NEAR: u64 = 5000 * MS;

/// A scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    /// The scheduler signals every process below the guardian, and not the guardian alone.
    pub(crate) every_process: bool,
    /// Signals with their times, each to some of the hosts.
    pub(crate) signals: Vec<(u64, Signal, NodeId)>,
    /// How often each of the signals was sent that end no job.
    pub(crate) rounds: [u32; 2],
    /// Time of the report that srun was killed. The scheduler kills the step before or after that.
    srun_killed: Option<u64>,
}

/// A job of [`generations`] with a scheduler.
pub(crate) fn plan(seed: u64) -> Plan {
    let mut plan = generations::plan(seed);
    let rng = &mut Rng::new(seed ^ STREAM);
    // All agents are tasks of the step, the one of the launcher's host too.
    plan.sites.iter_mut().for_each(|site| site.local = false);
    plan.spec.placement.nodes.iter_mut().for_each(|node| node.local = false);
    plan.ranks.iter_mut().for_each(|rank| rank.stuck = None);
    if rng.chance(60) {
        nothing_else(&mut plan);
    }
    if rng.chance(40) {
        plan.spec.settings.restarts = Default::default();
    }
    plan.spec.settings.hosts.scheduler = Some(allocation::Scheduler::Slurm);
    let mut scheduler = draw(rng, plan.sites.len());
    cancel(&mut Rng::new(seed ^ CANCELLED), &mut scheduler, plan.sites.len());
    kill_srun(&mut Rng::new(seed ^ SRUN_KILLED), &mut scheduler, plan.sites.len());
    srun::draw(seed, &mut plan.sites);
    if !scheduler.every_process {
        // Such an end beside a signal to the guardian looks as if the ranks had got it too.
        for rank in &mut plan.ranks {
            if let Status::Signaled { sig: sig @ (Signal::TERM | Signal::USR1), .. } = &mut rank.end {
                *sig = Signal::SEGV;
            }
        }
    }
    plan.scheduler = Some(scheduler);
    plan
}

/// Nothing goes wrong but what the scheduler and the ranks do.
fn nothing_else(plan: &mut Plan) {
    for site in &mut plan.sites {
        site.faults.clear();
        site.spells.clear();
        site.bare = false;
        site.reach = match site.reach {
            Reach::Up(after) | Reach::Fails(after) => Reach::Up(after.min(2000 * MS)),
        };
    }
    plan.faults.clear();
    plan.stops.clear();
    plan.no_start = None;
}

fn draw(rng: &mut Rng, hosts: usize) -> Scheduler {
    let mut scheduler = Scheduler { every_process: rng.chance(50), signals: vec![], rounds: [0, 0], srun_killed: None };
    for (sig, which) in [(Signal::USR1, 0), (Signal::USR2, 1)] {
        if rng.chance(30) {
            let first = rng.micros(1, 6_000_000);
            let second = rng.chance(30).then(|| first + APART + rng.micros(1, 3_000_000));
            for at in [first].into_iter().chain(second) {
                scheduler.rounds[which] += 1;
                to_hosts(rng, &mut scheduler.signals, (at, sig), hosts);
            }
        }
    }
    if rng.chance(90) {
        let first = rng.micros(1, 8_000_000);
        let second = rng.chance(30).then(|| first + rng.micros(1, 3_000_000));
        for at in [first].into_iter().chain(second) {
            to_hosts(rng, &mut scheduler.signals, (at, Signal::TERM), hosts);
        }
        let kill = first + rng.between(1, 30) * 1000 * MS;
        scheduler.signals.extend((0..).map(NodeId::new).take(hosts).map(|node| (kill, Signal::KILL, node)));
    }
    scheduler
}

/// Some steps are killed without a warning.
fn cancel(rng: &mut Rng, scheduler: &mut Scheduler, hosts: usize) {
    if rng.chance(25) {
        scheduler.signals.retain(|(_, sig, _)| !matches!(*sig, Signal::TERM | Signal::KILL));
        let at = rng.micros(1, 8_000_000);
        let kill = |node| (at + rng.below(LAG), Signal::KILL, node);
        scheduler.signals.extend((0..).map(NodeId::new).take(hosts).map(kill));
    }
}

/// Some sruns are killed, and the scheduler then kills their steps without a warning.
fn kill_srun(rng: &mut Rng, scheduler: &mut Scheduler, hosts: usize) {
    if !rng.chance(15) {
        return;
    }
    scheduler.signals.retain(|(_, sig, _)| !matches!(*sig, Signal::TERM | Signal::KILL));
    let at = rng.micros(1, 8_000_000);
    let all = at + rng.below(STEP_ENDS - LAG);
    let kill = |node| (all + rng.below(LAG), Signal::KILL, node);
    scheduler.signals.extend((0..).map(NodeId::new).take(hosts).map(kill));
    let reported = if rng.chance(40) { at + rng.below(REPORT) } else { at };
    scheduler.srun_killed = Some(reported);
}

/// A signal to one host, to some or to all.
fn to_hosts(rng: &mut Rng, signals: &mut Vec<(u64, Signal, NodeId)>, (at, sig): (u64, Signal), hosts: usize) {
    let only = rng.below(hosts as u64);
    let how = rng.below(4);
    for node in (0..).map(NodeId::new).take(hosts) {
        let chosen = u64::from(node.get()) == only || how > 1 || (how == 1 && rng.chance(50));
        let lag = rng.below(LAG);
        signals.extend(chosen.then_some((at + lag, sig, node)));
    }
}

impl World {
    pub(crate) fn scheduler_begins(&mut self) {
        for (at, sig, node) in
            self.plan.scheduler.iter().flat_map(|scheduler| scheduler.signals.clone()).collect::<Vec<_>>()
        {
            self.on(node, |world| world.at(at, Ev::Scheduler(sig)));
        }
        if let Some(at) = self.plan.scheduler.as_ref().and_then(|scheduler| scheduler.srun_killed) {
            self.at(at, Ev::Step(Turn::Killed));
        }
    }

    /// The scheduler signals its step on this host.
    pub(crate) fn scheduler_signals(&mut self, sig: Signal) {
        if self.host.is_none_of_ours() {
            return;
        }
        self.note("scheduler", || format!("sends {sig}"));
        if sig == Signal::KILL {
            return self.scheduler_kills();
        }
        let every = self.plan.scheduler.as_ref().is_some_and(|scheduler| scheduler.every_process);
        let signal_to = |to| Ev::Arrives(Arrival::Event(Box::new(NodeEvent::Signal { sig, to })));
        if !self.host.guardian.has_exited() {
            self.soon(signal_to(SignalledPart::Guardian));
        }
        if every {
            self.soon(signal_to(SignalledPart::Agent));
            if sig == Signal::TERM {
                self.host.kernel.ended_by_us.get_or_insert(self.now);
            }
            for pid in self.host.kernel.killable() {
                self.signal(pid, sig);
            }
        }
    }

    /// Kills the rest of the step, all at once.
    fn scheduler_kills(&mut self) {
        self.host.killed |= !self.host.guardian.has_exited() || !self.host.agent.has_exited();
        self.host.kernel.ended_by_us.get_or_insert(self.now);
        for pid in self.host.kernel.cease() {
            self.dies(pid, KILLED);
        }
        self.agent_killed();
        self.guardian_killed();
        let is_srun_alive = self.plan.scheduler.as_ref().is_none_or(|scheduler| scheduler.srun_killed.is_none());
        if is_srun_alive {
            self.at(self.now + SRUN_ENDS, Ev::Step(Turn::Ends));
        }
    }

    /// The scheduler has killed what it had not ended otherwise, or srun has ended.
    pub(crate) fn is_any_killed(&self) -> bool {
        self.truth.srun_ended.is_some() || (0..self.count()).any(|node| self.host(node).killed)
    }

    /// The agent signals a rank. A rank that has the scheduler's signal does not get it again.
    pub(crate) fn check_scheduler_order(&mut self, proc: ProcId, sig: Signal) {
        let Some(scheduler) = &self.plan.scheduler else { return };
        let got = self.host.kernel.got(proc, sig);
        let users = self.plan.faults.len();
        let rounds = match sig {
            Signal::USR1 => scheduler.rounds[0],
            Signal::USR2 => scheduler.rounds[1],
            _ => 1,
        };
        let steady = self.site().is_some_and(|site| site.stop() == 0);
        let Some(ends) = self.ends_for_scheduler() else {
            let usr = sig == Signal::USR1 || sig == Signal::USR2;
            let once = !steady || !usr || users > 0 || got < rounds;
            return self.check(once, || format!("{proc} gets {sig} again"));
        };
        if sig == Signal::TERM {
            let once = got == 0 || !steady || self.host.kernel.was_early(proc);
            self.check(once, || format!("{proc} gets {sig} again"));
        }
        let warned = self.host.kernel.got(proc, Signal::TERM) > 0 || !self.host.kernel.is_running(proc);
        let soon = self.now < ends + OWED;
        if sig == Signal::KILL {
            self.check(warned || soon || !steady, || format!("{proc} is killed without a warning"));
        }
    }

    /// After a warning that the job ends nothing is started.
    pub(crate) fn check_warned_order(&mut self, message: &ToNode) {
        let starts = matches!(message, ToNode::Spawn { .. } | ToNode::Again(_));
        let is_ended = matches!(self.truth.began, Some(Cause::Scheduler { .. }));
        let warned = (self.truth.warned.is_some() || is_ended) && starts;
        self.check(!warned, || "ranks are started, and the scheduler ends the job".to_owned());
    }

    /// The scheduler is the cause of the end, unless something else was before.
    pub(crate) fn check_scheduler_cause(&mut self, cause: &Cause) {
        self.check_srun_ended(cause);
        let Some((warned, true)) = self.truth.warned else { return };
        let failed = self.failed_by_themselves();
        let before = |at: u64| at <= warned + MS;
        match cause {
            Cause::Scheduler { sig, .. } => self.check(*sig == Signal::TERM, || format!("{sig} ends the job")),
            Cause::Rank { rank, .. } => {
                let named = failed.iter().find(|failed| self.rank_of(failed.proc) == *rank).map(|failed| failed.at);
                let may = named.is_some_and(before) || self.plan.spec.settings.ending.on_failure == OnFailure::Continue;
                self.check(may, || format!("rank {rank} is the cause, and the scheduler had ended the job before"));
            }
            // Another check is about what happened to that host.
            Cause::Lost { .. } | Cause::Preempted { .. } => {}
            Cause::Success
            | Cause::Lead { .. }
            | Cause::Spawn { .. }
            | Cause::Refused { .. }
            | Cause::Unreachable { .. }
            | Cause::Signal(_)
            | Cause::Timeout { .. }
            | Cause::TooFewSlices { .. }
            | Cause::ReaderClosed(_) => self.fail(format!("{cause:?}, and the scheduler had ended the job before")),
        }
    }

    /// A host is lost for the end of srun if it was lost at about that time, and surely if it was lost after that.
    fn check_srun_ended(&mut self, cause: &Cause) {
        let Cause::Lost { node, lost: Lost::Agent(why) } = cause else { return };
        let named = matches!(why, CloseReason::Carrier(CarrierKind::Srun, _));
        let closed = self.truth.closed.get(node).copied().unwrap_or(0);
        let Some(ended) = self.truth.srun_ended else {
            return self.check(!named, || format!("node{node} is lost by {why:?}, and srun has not ended"));
        };
        let is_near = closed.abs_diff(ended) <= NEAR;
        self.check(is_near || !named, || {
            format!("node{node} is lost by {why:?}, and srun has ended long before or after")
        });
        let calm = self.plan.stops.is_empty()
            && self.plan.sites.iter().all(|site| Site::is_swift(site) && site.faults.is_empty())
            && self.host(node.index()).killed;
        let is_missed = calm && is_near && closed > ended && !named;
        self.check(!is_missed, || format!("node{node} is lost by {why:?}, and srun had ended before"));
    }

    /// The named rank did not fail by itself. The scheduler has ended it, and the launcher learned that after the failure.
    pub(crate) fn check_ended_by_scheduler(&mut self, rank: Rank) {
        let late = matches!(self.truth.warned, Some((_, false)));
        self.check(late, || format!("rank {rank} did not fail by itself"));
    }

    /// A rank that a signal of the scheduler's kind has ended may have got it from the scheduler; USR1 and USR2 are passed on also while
    /// the job ends.
    pub(crate) fn may_be_schedulers(&self, proc: ProcId, node: usize) -> bool {
        let by = self.plan.ranks.get(proc.index()).map(|script| script.end);
        let is_by = |own| matches!(by, Some(Status::Signaled { sig, .. }) if sig == own);
        let got = |sig| self.host(node).kernel.got(proc, sig) > 0;
        let is_passed_on = self.plan.usr_kills && (got(Signal::USR1) || got(Signal::USR2));
        self.truth.warned.is_some() && (is_by(Signal::TERM) || is_passed_on)
    }
}
