//! The launcher's machine: what a job is waiting for, when it ends, and why it ended.
//!
//! Each concern is a private sub-machine in its own file. It changes only itself, returns decisions, and speaks to the others by
//! notices. Facts that several of them need, hosts and placement, are kept once in [`facts`], which they read. Only the router
//! ([`router`]) changes the facts and several sub-machines at once.

mod bringup;
mod check;
mod clock;
mod closing;
mod device_barrier;
mod ended_ranks;
mod ending;
mod facts;
mod generations;
mod host_leases;
mod host_reports;
mod hosts;
mod interface_probing;
mod job_event;
mod kill_watchdog;
mod log;
mod master_addr;
mod mpi_use;
mod node_ends;
mod notice;
mod orders;
mod output;
mod proc_table;
mod recovery;
mod root_cause;
mod roster;
mod rounds;
mod router;
mod scheduler_signals;
mod shrink_rule;
mod signals;
mod slice_hosts;
mod slices;
mod spawn_refusal;
mod srun_ends;
mod startup_deadline;
mod suspend_detector;
#[cfg(test)]
mod tests;
mod worlds;

pub use job_event::{GuardianEnd, JobAction, JobEvent};
pub use signals::document as signals_document;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use facts::JobFacts;
use notice::Notice;
use rlaunch_base::machine::{self, Machine, earliest_of};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, WallNs};
use rlaunch_protocol::rounds::PolicyReader;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::travel::Travel;
use rlaunch_protocol::wire::probe::Key;

/// The context of a sub-machine of a job.
type Cx<'a> = machine::Cx<'a, JobAction, Notice, JobFacts>;

/// One transition of a job: what sub-machines are given, and the facts, which only the router changes.
struct Step<'a> {
    now: Mono,
    out: &'a mut VecDeque<JobAction>,
    notice: &'a mut VecDeque<Notice>,
    facts: &'a mut JobFacts,
}

impl Step<'_> {
    fn cx(&mut self) -> Cx<'_> {
        Cx { now: self.now, out: self.out, notice: self.notice, facts: self.facts }
    }

    fn act(&mut self, action: JobAction) {
        self.out.push_back(action);
    }

    fn notify(&mut self, notice: Notice) {
        self.notice.push_back(notice);
    }
}

/// Facts about the place where the job runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    /// rlaunch's version.
    pub version: OsBytes,
    /// The launcher's host name.
    pub host: OsBytes,
    /// SIGHUP is ignored (nohup): the job is to outlive its terminal.
    pub nohup: bool,
    /// Settings of this place that ranks on other hosts get.
    pub travel: Travel,
    /// Random bytes, by which agents of the job know that of rank 0's host.
    pub secret: Key,
    /// Reads a policy that a program asks for.
    pub read_policy: PolicyReader,
}

/// A job, from its first message to its exit code.
pub struct Job {
    actions: VecDeque<JobAction>,
    notices: VecDeque<Notice>,
    facts: JobFacts,
    parts: Parts,
}

impl Job {
    /// A job; where the launcher's own host has ranks, the edge to its agent is there. `now` and `wall` are the moment at
    /// which rlaunch was started: the report's times and `--timeout` count from it.
    #[must_use]
    pub fn new(now: Mono, wall: WallNs, spec: &Arc<JobSpec>, setting: &Setting) -> Self {
        let log = log::Log::new(now, wall);
        let parts = Parts {
            bringup: bringup::Bringup::new(Arc::clone(spec), setting),
            procs: proc_table::Procs::new(&spec.placement, log.clock()),
            signals: signals::Signals::new(),
            scheduler_signals: scheduler_signals::SchedulerSignals::new(spec),
            ending: ending::Ending::new(now, spec),
            root_cause: root_cause::RootCause::default(),
            node_ends: node_ends::NodeEnds::new(spec.placement.nodes.len()),
            kill_watchdog: kill_watchdog::KillWatchdog::new(spec),
            lease: host_leases::Lease::new(spec),
            startup_deadline: startup_deadline::StartupDeadline::new(spec.placement.nodes.len()),
            recovery: recovery::Recovery::new(now, spec),
            generations: generations::Generations::new(spec),
            rounds: rounds::Rounds::new(Arc::clone(spec), setting.read_policy),
            mpi_use: mpi_use::MpiUse::new(spec),
            output: output::Output::new(setting.nohup),
            closing: closing::Closing::new(),
            worlds: worlds::Worlds::new(spec),
            ended_ranks: ended_ranks::EndedRanks::default(),
            log,
        };
        let facts = JobFacts::new(spec);
        let mut job = Self { actions: VecDeque::new(), notices: VecDeque::new(), facts, parts };
        job.with(now, |parts, step| {
            parts.log.start(&mut step.cx(), spec, setting);
            parts.leave_out_unknown(step, &spec.placement);
            parts.bringup.start(&mut step.cx());
            parts.worlds.begin(&mut step.cx(), &parts.bringup);
        });
        job
    }

    /// Runs one transition, then passes on notices until none is left.
    fn with(&mut self, now: Mono, transition: impl FnOnce(&mut Parts, &mut Step<'_>)) {
        let Self { actions, notices, facts, parts } = self;
        // After `Finish` nothing matters any more.
        if parts.closing.finished() {
            return;
        }
        let mut step = Step { now, out: actions, notice: notices, facts };
        parts.lease.observe_clock(now);
        transition(parts, &mut step);
        loop {
            while let Some(notice) = step.notice.pop_front() {
                let last = matches!(notice, Notice::Close { .. });
                parts.notice(&mut step, notice);
                if last {
                    step.notice.clear();
                }
            }
            // After everything else: several hosts may have changed.
            parts.review_slices(&mut step);
            if step.notice.is_empty() {
                return;
            }
        }
    }
}

/// The sub-machines, apart from the queues that they are given.
struct Parts {
    bringup: bringup::Bringup,
    procs: proc_table::Procs,
    signals: signals::Signals,
    scheduler_signals: scheduler_signals::SchedulerSignals,
    ending: ending::Ending,
    root_cause: root_cause::RootCause,
    node_ends: node_ends::NodeEnds,
    kill_watchdog: kill_watchdog::KillWatchdog,
    lease: host_leases::Lease,
    startup_deadline: startup_deadline::StartupDeadline,
    recovery: recovery::Recovery,
    generations: generations::Generations,
    rounds: rounds::Rounds,
    mpi_use: mpi_use::MpiUse,
    output: output::Output,
    closing: closing::Closing,
    worlds: worlds::Worlds,
    ended_ranks: ended_ranks::EndedRanks,
    log: log::Log,
}

/// The sub-machines that wait for a time.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Signals,
    Ending,
    KillWatchdog,
    NodeEnds,
    Lease,
    StartupDeadline,
    Bringup,
    Generations,
    Rounds,
    EndedRanks,
    Slices,
    Closing,
}

impl Timer {
    /// All of them, in the order in which they are run.
    const ALL: [Self; 12] = [
        Self::Signals,
        Self::Ending,
        Self::KillWatchdog,
        Self::NodeEnds,
        Self::Lease,
        Self::StartupDeadline,
        Self::Bringup,
        Self::Generations,
        Self::Rounds,
        Self::EndedRanks,
        Self::Slices,
        Self::Closing,
    ];
}

impl Parts {
    fn deadline(&self, timer: Timer) -> Option<Mono> {
        match timer {
            Timer::Signals => self.signals.deadline(),
            Timer::Ending => self.ending.deadline(),
            Timer::KillWatchdog => self.kill_watchdog.deadline(),
            Timer::NodeEnds => self.node_ends.deadline(),
            Timer::Lease => self.lease.deadline(),
            Timer::StartupDeadline => self.startup_deadline.deadline(),
            Timer::Bringup => self.bringup.deadline(),
            Timer::Generations => self.generations.deadline(),
            Timer::Rounds => self.rounds.deadline(),
            Timer::EndedRanks => self.ended_ranks.deadline(),
            Timer::Slices => self.recovery.slices().and_then(slices::SliceTable::deadline),
            Timer::Closing => self.closing.deadline(),
        }
    }

    fn timeout(&mut self, step: &mut Step<'_>, timer: Timer) {
        match timer {
            Timer::Signals => self.signals.timeout(&mut step.cx()),
            Timer::Ending => self.ending.timeout(&mut step.cx()),
            Timer::KillWatchdog => self.kill_watchdog.timeout(&mut step.cx()),
            Timer::NodeEnds => self.node_ends.timeout(&mut step.cx()),
            Timer::Lease => self.lease.timeout(&mut step.cx()),
            Timer::StartupDeadline => self.startup_deadline.timeout(&mut step.cx()),
            Timer::Bringup => self.bringup.timeout(&mut step.cx()),
            Timer::Generations => self.generations.timeout(&mut step.cx()),
            Timer::Rounds => {
                self.rounds.timeout(step.now);
                self.apply_round_decisions(step);
            }
            Timer::EndedRanks => self.ended_ranks.timeout(&mut step.cx()),
            Timer::Slices => self.slices_timeout(step),
            Timer::Closing => self.closing.timeout(&mut step.cx()),
        }
    }
}

impl Machine for Job {
    type Event = JobEvent;
    type Action = JobAction;

    fn handle(&mut self, now: Mono, event: JobEvent) {
        if let JobEvent::Signal(sig) = event {
            self.with(now, |parts, step| parts.signals.before(&mut step.cx(), sig));
        }
        self.with(now, |parts, step| parts.event(step, event));
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.with(now, |parts, step| Timer::ALL.into_iter().for_each(|timer| parts.timeout(step, timer)));
    }

    fn poll_action(&mut self) -> Option<JobAction> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        if self.parts.closing.finished() {
            return None;
        }
        earliest_of(Timer::ALL.map(|timer| self.parts.deadline(timer)))
    }
}
